//! The life of one request, from the read body to the end of its answer. Reads like the table in ARCHITECTURE.md:
//!
//! measure → decide → admit → attempt (→ the next candidate) → answer → record
//!
//! It is one future, polled by the response body that it feeds; dropping it at any point closes what it holds. The only
//! way back is from a failed attempt to the next candidate, and only while nothing was shown.

use std::sync::Arc;
use std::time::Duration;

use switchback_parsers::chunk::Dialect;
use switchback_policies::affinity::Outline;
use switchback_policies::budget;
use switchback_policies::client::Usage;
use switchback_policies::decision::{Decision, Settings, Unserved, decide};
use switchback_policies::demand::CutCalls;
use switchback_policies::facts::{BackendFacts, BackendState, RequestFacts, Speed};
use switchback_policies::failover::{self, Fault};
use switchback_policies::routing::Refusal;
use switchback_policies::session::Circle;

use crate::admission;
use crate::answer::free_text::FreeText;
use crate::answer::progress::Progress;
use crate::answer::relay::Silence;
use crate::answer::rename::Rename;
use crate::answer::repair::RepairTerms;
use crate::answer::tidy::Tidy;
use crate::answer::{Out, Piece, Waits};
use crate::app::App;
use crate::ask_again::{self, Asked};
use crate::attempt::Terms;
use crate::backend::{Backend, Work};
use crate::call::Call;
use crate::config::ModelName;
use crate::deliver::{deliver, headers_of};
use crate::edits::{self, RequestRule};
use crate::error::ApiError;
use crate::facts;
use crate::home::{believed, home};
use crate::identify::Client;
use crate::loader::{self, NotThere};
use crate::measure::{Measured, measure};
use crate::models::{self, Target};
use crate::record::{End, Outcome};
use crate::retry::{Retry, Tried};
use crate::session::Arrival;

/// Shorter waits for a place are not worth a word.
const WORTH_TELLING: Duration = Duration::from_millis(50);

/// Backends that are loaded one after another for the same request, before it is sent to the first that will do.
const MOST_LOADS: usize = 4;

/// Everything that is known of a request once it is decided.
pub(crate) struct Plan {
    pub(crate) facts: RequestFacts,
    pub(crate) measured: Measured,
    pub(crate) backends: Vec<Arc<Backend>>,
    pub(crate) backend_facts: Vec<BackendFacts>,
    pub(crate) decision: Decision,
    pub(crate) outline: Outline,
}

/// Why there is no plan, and the prompt's length if that was measured before.
pub(crate) struct Refused {
    pub(crate) error: ApiError,
    pub(crate) measured: Option<Measured>,
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        Self { error, measured: None }
    }
}

/// Runs a request to its end.
pub(crate) async fn run(app: Arc<App>, call: Call, client: Client, out: Out) {
    let out = out.with(FreeText::of(&call.free_text, client.free_text));
    let mut outcome = Outcome::open(&app, &call);
    outcome.client.clone_from(&client.name);
    let session = app.sessions.key(&call, client.conversation.as_deref());
    let result = match settle(&app, &call, &client, session, &mut outcome, &out).await {
        Ok(plan) => {
            outcome.measured = Some(plan.measured.clone());
            serve(&app, &call, &client, session, &plan, &mut outcome, &out).await
        }
        Err(Refused { error, measured }) => {
            outcome.measured = measured;
            Err(error)
        }
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

/// Measures and decides, without sending anything but a count.
pub(crate) async fn plan(
    app: &App,
    call: &Call,
    client: &Client,
    session: u64,
    arrival: Arrival,
) -> Result<Plan, Refused> {
    if let Arrival::Loops(circle, limit) = arrival {
        let (count, seconds) = (limit.count, limit.within.as_secs());
        let error = match circle {
            Circle::Overflows => ApiError::overflow_loop(count, seconds),
            Circle::Failures => ApiError::failure_loop(count, seconds),
        };
        return Err(error.into());
    }
    let Target { backends, model } =
        models::resolve(app, call.model.as_deref())?.only(client.backends.as_deref(), &client.order)?;
    let mut backends = app.fleet.at(&backends);
    if backends.is_empty() {
        return Err(ApiError::nobody_configured(&crate::discover::PORTS).into());
    }
    backends.retain(|backend| client.may_swap || !backend.would_swap(call.model.as_deref()));
    if backends.is_empty() {
        return Err(ApiError::may_not_swap(call.model.as_deref()).into());
    }
    let carries = |backend: &Arc<Backend>| app.admission.load(backend.name());
    let may_load = loader::may_load(app, call, client);
    let facts = |backend: &Arc<Backend>| {
        let loaded = app.loaded(backend, may_load);
        BackendFacts { load: carries(backend), loaded, ..backend.facts() }
    };
    let backend_facts: Vec<BackendFacts> = backends.iter().map(facts).collect();
    let exact_above = app.config.cliffs.exact_above();
    let measured = measure(call, &app.vocabularies, model, &backends, &backend_facts, exact_above).await;
    let outline = call.request.as_deref().map(|request| app.prefixes.outline(request)).unwrap_or_default();
    let output = call.request.as_ref().and_then(|request| request.output_limit());
    let agent = call.request.as_ref().is_some_and(|request| request.tools().next().is_some());
    let facts = RequestFacts {
        prompt: measured.size,
        output,
        output_floor: budget::floor(output, agent, client.no_limit_at, client.min_output)
            .filter(|_| client.follows(RequestRule::RaiseOutput)),
        room_to_think: budget::room_to_think(output, agent, client.is_known, client.thinking_output)
            .filter(|_| client.follows(RequestRule::RoomToThink)),
        output_if_absent: client.default_output.filter(|_| call.endpoint.dialect.is_some()),
        thinks: call.request.as_deref().and_then(facts::thinks),
        streams_required: call.stream && call.request.as_deref().is_some_and(facts::requires_call),
        images: call.request.as_deref().map(facts::images_of).unwrap_or_default(),
        home: home(app, session, &backends, measured.size, &outline),
        own_order: !client.order.is_empty(),
        agent,
        class: client.class,
        may_fill: arrival == Arrival::MayFill,
        turns: call.request.as_deref().map_or(1, facts::turns_of),
        pictures: call.request.as_deref().map_or(0, facts::pictures_of),
    };
    if let Some(limit) = client.max_prompt.filter(|limit| facts.prompt.low() > *limit) {
        let hint = format!("client {} may send prompts of {limit} tokens", client.name);
        let error = ApiError::context_length_exceeded(facts.prompt.expected(), limit, Some(hint));
        return Err(Refused { error, measured: Some(measured) });
    }
    let settings =
        Settings { headroom: headroom(app, client, agent, &backend_facts), margin: app.config.answer.margin };
    let decision = decide(&facts, &backend_facts, settings)
        .with_rules(|backend, rule| edits::allows(rule, client, &backends[backend]));
    let error = match decision.unserved(&facts) {
        Some(Unserved::TooLong { tokens, limit }) => {
            let why = decision.sentence(0, &facts, &backend_facts);
            ApiError::context_length_exceeded(tokens, limit, Some(why))
        }
        Some(Unserved::NoImages) => ApiError::images_not_supported(),
        Some(Unserved::MayNotLoad) if !client.may_swap => ApiError::may_not_swap(call.model.as_deref()),
        Some(Unserved::MayNotLoad) => ApiError::nothing_is_loaded_for(call.model.as_deref(), call.counts()),
        Some(Unserved::LoadFailed { again }) => {
            let failed = decision.refusals.iter().find(|(_, why)| *why == Refusal::LoadFailed { again });
            let backend = failed.map_or(&backends[0], |(index, _)| &backends[*index]);
            let trouble = app.loader.as_ref().map(|loader| loader.trouble(backend)).unwrap_or_default();
            ApiError::load_failed(backend.name(), &trouble, again)
        }
        None => return Ok(Plan { facts, measured, backends, backend_facts, decision, outline }),
    };
    Err(Refused { error, measured: Some(measured) })
}

/// What an ordinary turn leaves free: as configured, else as much as this client's compaction call needs.
fn headroom(app: &App, client: &Client, agent: bool, backends: &[BackendFacts]) -> u64 {
    let longest = || backends.iter().filter_map(BackendFacts::prompt_limit).max().unwrap_or(0);
    let of_client = || if agent { client.on_overflow.headroom(longest()) } else { 0 };
    app.config.answer.headroom.unwrap_or_else(of_client)
}

/// Tries the candidates in turn and relays the first answer that begins.
async fn serve(
    app: &Arc<App>,
    call: &Call,
    client: &Client,
    session: u64,
    plan: &Plan,
    outcome: &mut Outcome,
    out: &Out,
) -> Result<(), ApiError> {
    let wants_usage = call.request.as_ref().is_some_and(|request| request.wants_usage());
    let terms = Terms {
        stream: call.stream,
        silence: Silence {
            first_token: app.config.failover.first_token,
            stall: app.config.failover.stall,
            whole: app.config.failover.whole,
        },
        usage_to_client: wants_usage || client.usage == Usage::Always,
        rename: Rename {
            model: call.model.clone().filter(|_| app.config.answer.model_name == ModelName::Client),
            reasoning: client.reasoning.name(),
        },
        tidy: Tidy::by(|rule| client.has_tidied(rule)),
        reading: None,
        repair: call.request.clone().filter(|_| call.endpoint.dialect == Some(Dialect::Chat)).map(
            |request| RepairTerms {
                request,
                seed: call.id.clone(),
                calls: app.config.repair.tool_calls,
                in_thoughts: app.config.repair.calls_in_thoughts,
                one_call: app.config.repair.one_call,
                keep_text: client.wishes.cut == CutCalls::Rescue,
                thinking_open: false,
                thinking_tags: None,
                format: None,
                family: None,
            },
        ),
        least_prompt: (app.config.failover.silent_truncation
            && matches!(call.endpoint.dialect, Some(Dialect::Chat | Dialect::Completions)))
        .then_some(plan.measured.least),
    };
    let ask_usage = app.config.answer.ask_usage || client.usage == Usage::Always;
    let mut retry = Retry::new(app, call, plan);
    while let Some(next) = retry.next().await {
        let first = plan.decision.choices[next[0]].candidate.backend;
        match loader::until_there(app, call, client, &plan.backends[first], out).await {
            Ok(waited) => outcome.waited += waited,
            Err(NotThere::Elsewhere) => {
                retry.cannot_load(next[0]);
                continue;
            }
            Err(NotThere::Refused(error)) => return Err(error),
        }
        let (nth, grant, permit) = admission::admit(app, call, client, plan, &next, out).await?;
        let choice = &plan.decision.choices[nth];
        let backend = &plan.backends[choice.candidate.backend];
        let stays = app.loader.as_ref().is_none_or(|loader| loader.admits(backend));
        if !stays || !retry.is_open(nth) {
            // Something happened to that backend while the request waited for it.
            continue;
        }
        let mut sentence = plan.decision.sentence(nth, &plan.facts, &plan.backend_facts);
        if grant.waited > WORTH_TELLING {
            sentence = format!("{sentence}; {grant}");
        }
        let before = retry.before();
        outcome.reason = format!("{sentence}{before}; client {}: {}", client.name, client.because);
        let written = edits::write(call, client, backend, choice, &app.config, ask_usage);
        outcome.adjusted = written.adjusted;
        outcome.waited += grant.waited;
        let output = plan.backend_facts[choice.candidate.backend].expected_output(&plan.facts);
        let tokens = plan.facts.prompt.expected().saturating_add(output);
        let facts = &plan.backend_facts[choice.candidate.backend];
        let shape = plan.facts.shape(choice.candidate.backend, facts);
        let speed = facts.speed.unwrap_or(Speed::USUAL);
        let reading = edits::asks_progress(call, client, backend).then(Arc::<Progress>::default);
        let terms = Terms { reading: reading.clone(), ..terms.for_candidate(backend, choice) };
        out.waits_for(reading.map(|reading| Box::new(move || reading.words()) as Waits));
        // Twice what it should take, since others may be read beside it.
        let prefill = (!terms.stream).then(|| 2.0 * speed.seconds(shape.new, 0));
        let believed = believed(app, backend, plan.facts.prompt, &plan.outline);
        let was_dead = backend.state() == BackendState::Dead;
        let place = backend.occupy(Work { tokens, shape, believed, prefill }, permit);
        let asked =
            Asked { app, call, client, plan, choice, backend, place: &place, terms: &terms, ask_usage };
        let started = match ask_again::ask(&asked, written.body, outcome).await {
            Ok(started) => ask_again::settle(&asked, started, outcome).await,
            Err(failure) => Err(failure),
        };
        out.waits_for(None);
        match started {
            Ok(started) => {
                outcome.begins(backend.name());
                app.prefixes.was_read(backend, &plan.outline);
                if let Some(drift) = app.sessions.settle(session, backend.name(), &plan.outline) {
                    outcome.drifted(backend.name(), drift, plan.facts.prompt.expected());
                }
                deliver(&asked, started, outcome, out).await;
                match outcome.end() {
                    // Some clients ask again for ever while answers say nothing.
                    End::Answered if !outcome.empty => {
                        app.sessions.answered(session);
                        let by = choice.candidate.backend;
                        let tokens =
                            outcome.usage.and_then(|usage| usage.completion_tokens).unwrap_or(output);
                        app.prewarm.consider(app, call, client, session, plan, (by, tokens));
                    }
                    End::Answered | End::Cut => app.sessions.failed(session, app.now()),
                    End::Refused | End::Left => {}
                }
                return Ok(());
            }
            Err(mut failure) => {
                failure.was_dead = was_dead && failure.fault == Fault::EngineDead;
                failure.suspect = !failure.was_dead && backend.on_fault(failure.fault, &place);
                tracing::warn!(
                    id = call.id,
                    backend = backend.name(),
                    fault = %failure.fault,
                    detail = failure.detail,
                    suspect = failure.suspect,
                    "attempt failed",
                );
                outcome.failed(backend.name(), failure.fault);
                drop(place);
                if failover::is_silence(failure.fault) {
                    backend.let_go().await;
                }
                if may_be_taken_away(failure.fault)
                    && let Some(loader) = &app.loader
                    && loader.was_taken_away(backend).await
                {
                    retry.was_taken_away(failure, choice.candidate.backend);
                    continue;
                }
                if let Tried::Final = retry.failed(choice.candidate.backend, failure) {
                    break;
                }
            }
        }
    }
    Err(retry.error())
}

/// Faults that the end of a backend explains which somebody unloads.
fn may_be_taken_away(fault: Fault) -> bool {
    matches!(fault, Fault::Unreachable | Fault::ConnectionLost | Fault::Stopping | Fault::ModelUnknown)
}
