//! The larger backend gets a conversation that is about to outgrow its own, while its user reads the answer.
//!
//! Why: an agent's conversation leaves a small card one way, before it reaches what kills that; its first turn elsewhere is read
//! from the start, 10 to 20 s of silence at 15,000 tokens, and waits a minute or two where the larger one has to be loaded.
//! To load it ahead is usual where that can be done (`[loader] ahead`), since the next turns cannot be had otherwise, and it
//! reads the conversation then. To read ahead where both are up is off unless the operator says so (`[routing] prewarm`): it
//! costs energy, and a conversation that ends there was read in vain.
//!
//! One at a time, in the class that nobody waits for, under the loader's own rules, and only what the prefill ledger has room
//! for. Any request that may take that backend cancels it: what an engine has read so far stays in its cache. It must never
//! wait in anybody's way, and never go to a backend that a real turn would not go to next.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::edit::Edits;
use switchback_parsers::request::ChatRequest;
use switchback_policies::admission::{Allowance, Ask, Whose};
use switchback_policies::affinity::Outline;
use switchback_policies::client::Class;
use switchback_policies::decision::{Decision, Settings, decide};
use switchback_policies::facts::{BackendFacts, BackendState, Home, Loaded, PromptSize, RequestFacts};
use switchback_policies::routing::{Reason, Refusal};
use tokio::sync::Notify;

use crate::admission::offer;
use crate::app::App;
use crate::attempt::{Terms, attempt};
use crate::backend::{Backend, Work};
use crate::call::Call;
use crate::edits;
use crate::identify::Client;
use crate::loader;
use crate::plan::Plan;

/// By so much a turn of an agent grows besides its answer: a tool's result.
const GROWTH: u64 = 1_000;

/// What is known there of a prompt already that is not worth reading.
const KNOWN: f64 = 0.5;

/// Who keeps its place for longer is not waited for: the next turn asks again.
const BEFORE_THE_LOAD: Duration = Duration::from_secs(120);

/// The one that is read ahead, and the one that is next.
#[derive(Debug, Default)]
pub(crate) struct Prewarm {
    next: Mutex<Option<Box<Ahead>>>,
    there_is_one: Notify,
    /// Where it is read.
    at: Mutex<Option<String>>,
    give_way: Notify,
}

/// A prompt to be read ahead.
#[derive(Debug)]
struct Ahead {
    app: Arc<App>,
    call: Call,
    client: Client,
    session: u64,
    outline: Outline,
    /// Of the turn that was answered, and that is read.
    facts: RequestFacts,
    /// Of the next one, as it is expected.
    next: RequestFacts,
    backends: Vec<Arc<Backend>>,
    /// Where it goes.
    at: usize,
    /// That has to be loaded first.
    loads: bool,
}

/// Whether a turn is at ease there.
fn surely_fits(reason: Reason) -> bool {
    matches!(reason, Reason::Fits | Reason::FitsWithLessOutput)
}

/// Whether the conversation is about to leave this backend for what that is known to survive.
fn leaves(decision: &Decision, by: usize) -> bool {
    let near = |reason: Reason| {
        matches!(
            reason,
            Reason::NearItsCliff { .. } | Reason::AboveSoftLimit { .. } | Reason::BeyondLearned(_)
        )
    };
    let beyond = |refusal: Refusal| {
        matches!(
            refusal,
            Refusal::AboveAccumulated { .. } | Refusal::AboveSingle { .. } | Refusal::BeyondLearned(_)
        )
    };
    let own = decision.choices.iter().map(|choice| &choice.candidate).find(|own| own.backend == by);
    own.is_some_and(|own| near(own.reason))
        || decision.refusals.iter().any(|(backend, refusal)| *backend == by && beyond(*refusal))
}

impl Prewarm {
    /// A turn has been answered by `by`, in so many tokens: if the next one will go elsewhere, that is made ready now.
    pub(crate) fn consider(
        &self,
        app: &Arc<App>,
        call: &Call,
        client: &Client,
        session: u64,
        plan: &Plan,
        (by, tokens): (usize, u64),
    ) {
        let may_load = loader::may_load(app, call, client);
        let loads = may_load && app.loader.as_ref().is_some_and(|loader| loader.moves_ahead());
        let wanted = (app.config.prewarm || loads) && plan.facts.agent && client.class != Class::Background;
        if !wanted || call.endpoint.dialect.is_none_or(|dialect| dialect == Dialect::Completions) {
            return;
        }
        let prompt = plan.facts.prompt.expected();
        let home = Some(Home { backend: by, cached: prompt });
        let grown = PromptSize::Exact(prompt.saturating_add(tokens).saturating_add(GROWTH));
        let next = RequestFacts { prompt: grown, home, may_fill: false, ..plan.facts };
        let ahead = Ahead {
            app: app.clone(),
            call: call.clone(),
            client: client.clone(),
            session,
            outline: plan.outline.clone(),
            facts: RequestFacts { prompt: plan.facts.prompt, home: None, ..next },
            next,
            backends: plan.backends.clone(),
            at: 0,
            loads: false,
        };
        let fleet = ahead.fleet(may_load);
        let decision = ahead.decide(&fleet);
        let Some(first) = decision.choices.first().map(|choice| &choice.candidate) else { return };
        let elsewhere = first.backend != by && surely_fits(first.reason);
        let to = if elsewhere {
            let known = app.prefixes.known_share(&plan.backends[first.backend], &plan.outline);
            (app.config.prewarm && known <= KNOWN).then_some((first.backend, false))
        } else if loads && leaves(&decision, by) {
            ahead.to_be_loaded(&decision, &fleet, by).map(|backend| (backend, true))
        } else {
            None
        };
        if let Some((at, loads)) = to {
            *self.next.lock() = Some(Box::new(Ahead { at, loads, ..ahead }));
            self.there_is_one.notify_one();
        }
    }

    /// A request may go to one of these backends: it is not held up by what nobody waits for.
    pub(crate) fn give_way<'n>(&self, mut backends: impl Iterator<Item = &'n str>) {
        let at = self.at.lock();
        if let Some(at) = at.as_deref()
            && backends.any(|name| name == at)
        {
            self.give_way.notify_waiters();
        }
    }

    /// Reads ahead, for ever. Cancelled by dropping.
    pub(crate) async fn work(self: Arc<Self>) {
        loop {
            let next = self.next.lock().take();
            let Some(ahead) = next else {
                self.there_is_one.notified().await;
                continue;
            };
            let asked_to = self.give_way.notified();
            tokio::pin!(asked_to);
            // From now on: what was asked before was asked of another one.
            asked_to.as_mut().enable();
            *self.at.lock() = Some(ahead.backend().places().to_owned());
            let done = tokio::select! {
                biased;
                () = asked_to => false,
                // Whatever came meanwhile is newer.
                done = async { ahead.is_there().await && self.next.lock().is_none() && ahead.read().await } => done,
            };
            *self.at.lock() = None;
            let backend = ahead.backend().name();
            let tokens = ahead.facts.prompt.expected();
            tracing::info!(id = ahead.call.id, backend, tokens, done, "read ahead for the next turn");
            if done {
                ahead.app.metrics.read_ahead(backend, tokens);
            }
        }
    }
}

impl Ahead {
    fn backend(&self) -> &Arc<Backend> {
        &self.backends[self.at]
    }

    /// What is known of all backends now.
    fn fleet(&self, may_load: bool) -> Vec<BackendFacts> {
        let facts = |backend: &Arc<Backend>| BackendFacts {
            loaded: self.app.loaded(backend, may_load),
            ..backend.facts()
        };
        self.backends.iter().map(facts).collect()
    }

    /// Where the next turn will go.
    fn decide(&self, fleet: &[BackendFacts]) -> Decision {
        decide(&self.next, fleet, Settings { headroom: 0, margin: self.app.config.answer.margin })
    }

    /// The first of those that have to be loaded where the conversation would be at ease.
    fn to_be_loaded(&self, decision: &Decision, fleet: &[BackendFacts], by: usize) -> Option<usize> {
        let loaded = |facts: &BackendFacts| match facts.loaded {
            Loaded::After(_) => {
                BackendFacts { loaded: Loaded::Yes, state: BackendState::Up, ..facts.clone() }
            }
            Loaded::Yes | Loaded::MayNot | Loaded::Failed(_) => facts.clone(),
        };
        let then = self.decide(&fleet.iter().map(loaded).collect::<Vec<_>>());
        let at_ease = |backend: usize| {
            let own = then.choices.iter().map(|choice| &choice.candidate).find(|own| own.backend == backend);
            own.is_some_and(|own| surely_fits(own.reason))
        };
        let candidates = decision.choices.iter().map(|choice| choice.candidate.backend);
        candidates
            .filter(|backend| *backend != by && matches!(fleet[*backend].loaded, Loaded::After(_)))
            .find(|backend| at_ease(*backend))
    }

    /// Waits until its backend is there; false: it cannot be loaded, or not soon.
    async fn is_there(&self) -> bool {
        let Some(loader) = self.app.loader.as_ref().filter(|_| self.loads) else { return true };
        let backend = self.backend();
        let tokens = self.next.prompt.expected();
        tracing::info!(id = self.call.id, backend = backend.name(), tokens, "to be loaded for the next turn");
        let load = backend.config.load.as_ref().map_or(Duration::ZERO, |load| load.time);
        tokio::time::timeout(BEFORE_THE_LOAD + 2 * load, loader.ahead(backend)).await.unwrap_or(false)
    }

    /// True: it is in the backend's cache.
    async fn read(&self) -> bool {
        let Self { app, facts, .. } = self;
        let backend = self.backend();
        let fleet = self.fleet(false);
        let decision = self.decide(&fleet);
        let choice = decision.choices.iter().find(|choice| choice.candidate.backend == self.at);
        let Some(choice) = choice.filter(|choice| surely_fits(choice.candidate.reason)) else { return false };
        let Some(call) = self.question() else { return false };
        if !self.enter_debt() {
            return false;
        }
        let ask = Ask {
            whose: Whose::default(),
            account: 0,
            class: Class::Background,
            streams: false,
            allowance: Allowance::default(),
            waited: Duration::ZERO,
            offers: vec![offer(backend, &choice.candidate, &fleet[self.at], facts)],
        };
        let Ok((_, permit)) = app.admission.place(ask).await else { return false };
        let written = edits::write(&call, &self.client, backend, choice, &app.config, false);
        let shape = facts.shape(self.at, &fleet[self.at]);
        let tokens = facts.prompt.expected();
        let work = Work { tokens, new: shape.new, shape: Some(shape), believed: 0, prefill: None };
        let place = backend.occupy(work, permit);
        let terms = Terms::to_read_ahead(&app.config);
        match attempt(backend, &call, written.body, &terms, &place).await {
            Ok(_) => {
                app.prefixes.was_read(backend, &self.outline);
                app.sessions.moves(self.session, backend.name());
                true
            }
            Err(failure) => {
                tracing::warn!(backend = backend.name(), fault = %failure.fault, detail = failure.detail, "reading ahead failed");
                backend.on_fault(failure.fault, &place);
                false
            }
        }
    }

    /// The same prompt, and one token.
    fn question(&self) -> Option<Call> {
        let request = self.call.request.as_deref()?;
        let root = request.root();
        let mut edits = Edits::new();
        edits.set(root, "stream", "false");
        for member in ["stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens", "n"] {
            edits.remove(root, member);
        }
        match self.call.endpoint.dialect? {
            // No fewer are taken there.
            Dialect::Responses => edits.set(root, "max_output_tokens", "16"),
            _ => edits.set(root, "max_tokens", "1"),
        }
        let request = ChatRequest::parse(request.write(&Edits::new(), &edits)).ok()?;
        Some(Call { stream: false, ..self.call.asking(request) })
    }

    /// It is a prompt that is read once more, and counts as one.
    fn enter_debt(&self) -> bool {
        let (bounds, now) = (self.app.config.failover.prefill_again, self.app.now());
        let tokens = self.facts.prompt.expected();
        // Both locks, so that two do not take the same room.
        let mut all = self.app.debt.lock();
        let mut own = self.backend().debt.lock();
        let room = all.wait(now, tokens, bounds.minute).max(own.wait(now, tokens, bounds.backend)).is_zero();
        if room {
            all.enter(now, tokens);
            own.enter(now, tokens);
        }
        room
    }
}
