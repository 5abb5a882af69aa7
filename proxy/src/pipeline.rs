//! The life of one request, from the read body to the end of its answer. Reads like the table in ARCHITECTURE.md:
//!
//! measure → decide → admit → attempt (→ the next candidate) → answer → record
//!
//! It is one future, polled by the response body that it feeds; dropping it at any point closes what it holds. Two ways
//! lead back: from a failed attempt to the next candidate while nothing was shown, and from an answer that was cut to another
//! backend that goes on with it.

mod round;

use std::sync::Arc;
use std::time::Duration;

use switchback_policies::client::Usage;
use switchback_policies::decision::Choice;
use switchback_policies::facts::{BackendState, Speed};
use switchback_policies::failover::{self, Fault};
use tokio::time::Instant;

use self::round::{Left, Round};
use crate::admission::{self, Asking, Permit};
use crate::answer::free_text::FreeText;
use crate::answer::progress::Progress;
use crate::answer::{Out, Piece, Waits};
use crate::app::App;
use crate::ask_again::{self, Asked, Cut};
use crate::attempt::{Failure, Terms, attempt};
use crate::backend::Work;
use crate::call::Call;
use crate::deliver::{deliver, headers_of};
use crate::edits;
use crate::home::believed;
use crate::identify::Client;
use crate::loader::{self, NotThere};
use crate::plan::{Plan, Refused, plan};
use crate::record::{End, Outcome};
use crate::retry::{Retry, Tried};

/// Shorter waits for a place are not worth a word.
const WORTH_TELLING: Duration = Duration::from_millis(50);

/// Backends that are loaded one after another for the same request, before it is sent to the first that will do.
const MOST_LOADS: usize = 4;

/// Runs a request to its end. One that waits for a place when the configuration is changed goes on under the new one.
pub(crate) async fn run(app: Arc<App>, call: Call, client: Client, out: Out) {
    let out = out.with(FreeText::of(&call.free_text, client.free_text));
    let (mut app, mut client) = (app, client);
    let mut outcome = Outcome::open(&app, &call);
    let mut left = None;
    let (session, result) = loop {
        outcome.under(&app, &client.name);
        let session = app.sessions.key(&call, &client);
        match round(&app, &call, &client, session, left.take(), &mut outcome, &out).await {
            Round::Ended(result) => break (session, result),
            Round::Replaced(so_far) => left = Some(so_far),
        }
        app = app.newest();
        client = client.under_new(&app.config, &call);
    };
    if let Err(error) = result {
        if error.is_overflow() {
            app.sessions.overflowed(session, app.now());
        } else if error.cost_a_prefill() {
            app.sessions.failed(session, app.now());
        }
        outcome.ends(End::Refused, Some(error.code));
        if outcome.reason.is_empty() {
            error.message().clone_into(&mut outcome.reason);
        }
        let headers = headers_of(&outcome, "none");
        out.send(Piece::Refused(error, headers)).await;
    }
}

/// Runs it under one configuration.
async fn round(
    app: &Arc<App>,
    call: &Call,
    client: &Client,
    session: u64,
    left: Option<Left>,
    outcome: &mut Outcome,
    out: &Out,
) -> Round {
    let waited = outcome.waited;
    match settle(app, call, client, session, outcome, out).await {
        Ok(plan) => {
            outcome.measured = Some(plan.measured.clone());
            let terms = Terms::of(app, call, client, &plan);
            let ask_usage = app.config.answer.ask_usage || client.usage == Usage::Always;
            let loaded_in = outcome.waited.saturating_sub(waited);
            let serving = Serving { app, call, client, session, out, terms, ask_usage };
            serving.serve(plan, left, loaded_in, outcome).await
        }
        Err(Refused { error, measured }) => {
            outcome.measured = measured;
            Round::Ended(Err(error))
        }
    }
}

/// Decides, and decides again once a backend has been loaded for the request: then it has told what it is.
async fn settle(
    app: &App,
    call: &Call,
    client: &Client,
    session: u64,
    outcome: &mut Outcome,
    out: &Out,
) -> Result<Plan, Refused> {
    let arrival = app.sessions.arrive(session, app.now());
    let mut rounds = 0;
    loop {
        let plan = plan(app, call, client, session, arrival).await?;
        let Some(backend) = loader::first_to_load(&plan).filter(|_| rounds < MOST_LOADS) else {
            return Ok(plan);
        };
        match loader::until_there(app, call, client, backend, out).await {
            Ok(waited) => outcome.waited += waited,
            Err(NotThere::Elsewhere) => {}
            Err(NotThere::Refused(error)) => {
                return Err(Refused { error, measured: Some(plan.measured) });
            }
        }
        rounds += 1;
    }
}

/// What a request is served with.
struct Serving<'a> {
    app: &'a Arc<App>,
    call: &'a Call,
    client: &'a Client,
    session: u64,
    out: &'a Out,
    terms: Terms,
    /// Usage is asked of every backend.
    ask_usage: bool,
}

impl Serving<'_> {
    /// Tries the candidates in turn and relays the first answer that begins; if that is cut, others go on with it.
    async fn serve(
        &self,
        mut plan: Plan,
        left: Option<Left>,
        mut loaded_in: Duration,
        outcome: &mut Outcome,
    ) -> Round {
        let Self { app, call, client, session, out, .. } = *self;
        let mut retry = Retry::new(app, call, client, &plan);
        // In the queue, over all attempts.
        let mut queued = Duration::ZERO;
        if let Some(left) = left {
            retry = retry.remembers(left.memory, &plan);
            (queued, loaded_in) = (left.queued, loaded_in + left.loaded_in);
        }
        // An answer of which the client has the beginning.
        let mut cut: Option<Cut> = None;
        loop {
            let next = tokio::select! {
                biased;
                () = self.is_replaced(cut.is_some()) => return Round::Replaced(Left { memory: retry.memory(&plan), queued, loaded_in }),
                next = retry.next(&mut plan) => next,
            };
            let Some(next) = next else { break };
            let first = plan.decision.choices[next[0]].candidate.backend;
            match loader::until_there(app, call, client, &plan.backends[first], out).await {
                Ok(waited) => {
                    outcome.waited += waited;
                    loaded_in += waited;
                }
                Err(NotThere::Elsewhere) => {
                    retry.cannot_load(first);
                    continue;
                }
                Err(NotThere::Refused(_)) if cut.is_some() => break,
                Err(NotThere::Refused(error)) => return Round::Ended(Err(error)),
            }
            let asking = Asking { call, client, session, waited: queued };
            let entered = Instant::now();
            let place = tokio::select! {
                biased;
                () = self.is_replaced(cut.is_some()) => {
                    outcome.waited += entered.elapsed();
                    queued += entered.elapsed();
                    return Round::Replaced(Left { memory: retry.memory(&plan), queued, loaded_in });
                }
                place = admission::admit(app, &asking, &mut plan, &retry, next, out) => place,
            };
            let (nth, grant, permit) = match place {
                Ok(place) => place,
                Err(_) if cut.is_some() => break,
                Err(error) => return Round::Ended(Err(error)),
            };
            outcome.waited += grant.waited.saturating_sub(queued);
            queued = grant.waited;
            let at = plan.decision.choices[nth].candidate.backend;
            let backend = plan.backends[at].clone();
            let stays = app.loader.as_ref().is_none_or(|loader| loader.admits(&backend));
            if !stays || !retry.is_open(nth, &plan) {
                // Something happened to that backend while the request waited for it.
                continue;
            }
            if !retry.pays(&backend, plan.facts.prompt.expected()) {
                continue;
            }
            if cut.is_none() {
                let mut sentence = plan.decision.sentence(nth, &plan.facts, &plan.backend_facts);
                if loaded_in > WORTH_TELLING {
                    let seconds = loaded_in.as_secs_f64();
                    sentence = format!("{sentence}; waited {seconds:.0} s until it was loaded");
                }
                if grant.waited > WORTH_TELLING {
                    sentence = format!("{sentence}; {grant}");
                }
                let before = retry.before(&plan);
                outcome.reason = format!("{sentence}{before}; client {}: {}", client.name, client.because);
            }
            let shown = cut.as_ref().map(Cut::shown);
            let Some(failure) = self.one_try(&plan, nth, permit, &mut cut, outcome).await else {
                return Round::Ended(Ok(()));
            };
            let fault = failure.fault;
            let tried = if may_be_taken_away(fault)
                && let Some(loader) = &app.loader
                && loader.was_taken_away(&backend).await
            {
                retry.was_taken_away(failure, at);
                Tried::GoOn
            } else {
                retry.failed(at, failure, &plan)
            };
            if let Some(cut) = cut.as_mut().filter(|cut| shown != Some(cut.shown())) {
                // More was shown: that is what has to be continued now.
                let Some(others) = cut.prepare(app, call, &mut plan, at) else { break };
                retry.was_cut(&others);
            } else if tried == Tried::Final {
                break;
            }
        }
        match cut {
            Some(cut) => {
                cut.tell(outcome, out).await;
                app.sessions.failed(session, app.now());
                Round::Ended(Ok(()))
            }
            None => Round::Ended(Err(retry.error(&plan))),
        }
    }

    /// Resolves when the configuration is another one. What has begun goes on as it was begun.
    async fn is_replaced(&self, has_begun: bool) {
        if has_begun {
            std::future::pending::<()>().await;
        }
        self.app.is_replaced().await;
    }

    /// Asks one backend, and passes its answer on to its end. Gives what failed, before anything was shown or behind what is
    /// in `cut` then.
    async fn one_try(
        &self,
        plan: &Plan,
        nth: usize,
        permit: Permit,
        cut: &mut Option<Cut>,
        outcome: &mut Outcome,
    ) -> Option<Failure> {
        let Self { app, client, session, out, ask_usage, .. } = *self;
        let choice = &plan.decision.choices[nth];
        let at = choice.candidate.backend;
        let backend = &plan.backends[at];
        let question = match cut {
            None => None,
            Some(cut) => {
                let window = plan.backend_facts[at].window;
                match cut.ask(app, self.call, client, (backend, choice, window)).await {
                    Some(question) => Some(question),
                    None => return Some(Failure::new(Fault::DidNotGoOn, "it cannot be asked to")),
                }
            }
        };
        let call = question.as_ref().map_or(self.call, |question| &question.call);
        let terms = match cut {
            None => self.terms.for_candidate(backend, choice, &plan.backend_facts[at], &plan.facts),
            Some(_) => self.terms.for_a_rest(),
        };
        let reading = edits::asks_progress(call, client, backend).then(Arc::<Progress>::default);
        let terms = Terms { reading: reading.clone(), ..terms };
        out.waits_for(reading.map(|reading| Box::new(move || reading.words()) as Waits));
        if !call.counts() {
            // The engine reads it whether or not the client stays.
            permit.uses(plan.facts.prompt.expected());
        }
        let was_dead = backend.state() == BackendState::Dead;
        let place = backend.occupy(self.work(plan, choice, terms.stream), permit);
        let asked =
            Asked { app, call, client, plan, choice, backend, place: &place, terms: &terms, ask_usage };
        let started = if let Some(question) = &question {
            attempt(backend, call, question.body.clone(), &terms, &place).await
        } else {
            let written = edits::write(call, client, backend, choice, &app.config, ask_usage);
            outcome.adjusted = written.adjusted;
            match ask_again::ask(&asked, written.body, outcome).await {
                Ok(started) => ask_again::settle(&asked, started, outcome).await,
                Err(failure) => Err(failure),
            }
        };
        out.waits_for(None);
        let mut failure = match started {
            Ok(started) => {
                outcome.begins(backend.name());
                app.prefixes.was_read(backend, &plan.outline);
                if let Some(drift) = app.sessions.settle(session, backend.name(), &plan.outline) {
                    outcome.drifted(backend.name(), drift, plan.facts.prompt.expected());
                }
                match deliver(&asked, started, cut, outcome, out).await {
                    Some(failure) => failure,
                    None => {
                        self.ended(plan, at, outcome);
                        return None;
                    }
                }
            }
            Err(failure) => failure,
        };
        failure.was_dead = was_dead && failure.fault == Fault::EngineDead;
        failure.suspect = !failure.was_dead && backend.on_fault(failure.fault, &place);
        tracing::warn!(
            id = call.id,
            backend = backend.name(),
            fault = %failure.fault,
            detail = failure.detail,
            suspect = failure.suspect,
            cut = cut.is_some(),
            "attempt failed",
        );
        outcome.failed(backend.name(), failure.fault);
        if cut.is_none() {
            // A backend's failure costs its client nothing.
            place.used(0);
        }
        drop(place);
        if failover::is_silence(failure.fault) {
            backend.let_go().await;
        }
        Some(failure)
    }

    /// What the request puts on a backend.
    fn work(&self, plan: &Plan, choice: &Choice, streams: bool) -> Work {
        let at = choice.candidate.backend;
        let (facts, prompt) = (&plan.backend_facts[at], plan.facts.prompt);
        let shape = plan.facts.shape(at, facts);
        // A guess on both sides of where cliffs are looked for teaches nothing.
        let floor = self.app.config.failover.death_is_overflow_above;
        let is_known = prompt.low() >= floor || prompt.expected() < floor;
        let speed = facts.speed.unwrap_or(Speed::USUAL);
        Work {
            tokens: prompt.expected().saturating_add(facts.expected_output(&plan.facts)),
            new: shape.new,
            shape: Some(shape).filter(|_| is_known),
            believed: believed(self.app, &plan.backends[at], prompt, &plan.outline),
            // Twice what it should take, since others may be read beside it.
            prefill: (!streams).then(|| 2.0 * speed.seconds(shape.new, 0)),
        }
    }

    /// The answer has come to an end.
    fn ended(&self, plan: &Plan, by: usize, outcome: &Outcome) {
        let Self { app, call, client, session, .. } = *self;
        if let Some(grade) = outcome.grade {
            plan.backends[by].graded(grade, session, app.sessions.kind(call, client));
        }
        match outcome.end() {
            // Some clients ask again for ever while answers say nothing.
            End::Answered if !outcome.empty => {
                app.sessions.answered(session);
                let expected = || plan.backend_facts[by].expected_output(&plan.facts);
                let tokens = outcome.usage.and_then(|usage| usage.completion_tokens).unwrap_or_else(expected);
                app.prewarm.consider(app, call, client, session, plan, (by, tokens));
            }
            End::Answered | End::Cut => app.sessions.failed(session, app.now()),
            End::Refused | End::Left => {}
        }
    }
}

/// Faults that the end of a backend explains which somebody unloads.
fn may_be_taken_away(fault: Fault) -> bool {
    matches!(fault, Fault::Unreachable | Fault::ConnectionLost | Fault::Stopping | Fault::ModelUnknown)
}
