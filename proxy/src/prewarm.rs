//! The larger backend reads a conversation that is about to outgrow its own, while its user reads the answer.
//!
//! Why: an agent's conversation leaves a small card one way, before it reaches what kills that; its first turn elsewhere is read
//! from the start, 10 to 20 s of silence at 15,000 tokens. Off unless the operator says so: it costs energy, and a
//! conversation that ends there was read in vain.
//!
//! One at a time, in the class that nobody waits for, and only what the prefill ledger has room for. Any request that may take
//! that backend cancels it: what an engine has read so far stays in its cache. It must never wait in anybody's way, and never go
//! to a backend that a real turn would not go to next.

use std::sync::Arc;

use parking_lot::Mutex;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::edit::Edits;
use switchback_parsers::request::ChatRequest;
use switchback_policies::admission::{Allowance, Ask};
use switchback_policies::affinity::Outline;
use switchback_policies::client::Class;
use switchback_policies::decision::{Choice, Settings, decide};
use switchback_policies::facts::{BackendFacts, Home, PromptSize, RequestFacts};
use switchback_policies::routing::Reason;
use tokio::sync::Notify;

use crate::admission::offer;
use crate::app::App;
use crate::attempt::{Terms, attempt};
use crate::backend::{Backend, Work};
use crate::call::Call;
use crate::edits;
use crate::identify::Client;
use crate::plan::Plan;

/// By so much a turn of an agent grows besides its answer: a tool's result.
const GROWTH: u64 = 1_000;

/// What is known there of a prompt already that is not worth reading.
const KNOWN: f64 = 0.5;

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
    facts: RequestFacts,
    backend: Arc<Backend>,
    backend_facts: BackendFacts,
    choice: Choice,
}

impl Prewarm {
    /// A turn has been answered by `by`, in so many tokens: if the next one will go elsewhere, it is read there now.
    pub(crate) fn consider(
        &self,
        app: &Arc<App>,
        call: &Call,
        client: &Client,
        session: u64,
        plan: &Plan,
        (by, tokens): (usize, u64),
    ) {
        let wanted = app.config.prewarm && plan.facts.agent && client.class != Class::Background;
        if !wanted || call.endpoint.dialect.is_none_or(|dialect| dialect == Dialect::Completions) {
            return;
        }
        let prompt = plan.facts.prompt.expected();
        let home = Some(Home { backend: by, cached: prompt });
        let grown = PromptSize::Exact(prompt.saturating_add(tokens).saturating_add(GROWTH));
        let facts = RequestFacts { prompt: grown, home, may_fill: false, ..plan.facts };
        let fleet: Vec<BackendFacts> = plan.backends.iter().map(|backend| backend.facts()).collect();
        let settings = Settings { headroom: 0, margin: app.config.answer.margin };
        let decision = decide(&facts, &fleet, settings);
        let Some(choice) = decision.choices.first() else { return };
        let fits = matches!(choice.candidate.reason, Reason::Fits | Reason::FitsWithLessOutput);
        let backend = &plan.backends[choice.candidate.backend];
        if choice.candidate.backend == by || !fits || app.prefixes.known_share(backend, &plan.outline) > KNOWN
        {
            return;
        }
        let ahead = Ahead {
            app: app.clone(),
            call: call.clone(),
            client: client.clone(),
            session,
            outline: plan.outline.clone(),
            facts: RequestFacts { prompt: plan.facts.prompt, home: None, ..facts },
            backend: backend.clone(),
            backend_facts: fleet[choice.candidate.backend].clone(),
            choice: choice.clone(),
        };
        *self.next.lock() = Some(Box::new(ahead));
        self.there_is_one.notify_one();
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
            *self.at.lock() = Some(ahead.backend.name().to_owned());
            let done = tokio::select! {
                biased;
                () = asked_to => false,
                done = ahead.read() => done,
            };
            *self.at.lock() = None;
            let backend = ahead.backend.name();
            let tokens = ahead.facts.prompt.expected();
            tracing::info!(id = ahead.call.id, backend, tokens, done, "read ahead for the next turn");
            if done {
                ahead.app.metrics.read_ahead(backend, tokens);
            }
        }
    }
}

impl Ahead {
    /// True: it is in the backend's cache.
    async fn read(&self) -> bool {
        let Self { app, backend, choice, facts, .. } = self;
        let Some(call) = self.question() else { return false };
        if !self.enter_debt() {
            return false;
        }
        let ask = Ask {
            client: 0,
            class: Class::Background,
            streams: false,
            allowance: Allowance::default(),
            offers: vec![offer(&choice.candidate, &self.backend_facts, facts)],
        };
        let Ok((_, permit)) = app.admission.place(ask).await else { return false };
        let written = edits::write(&call, &self.client, backend, choice, &app.config, false);
        let shape = facts.shape(choice.candidate.backend, &self.backend_facts);
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
        let mut own = self.backend.debt.lock();
        let room = all.wait(now, tokens, bounds.minute).max(own.wait(now, tokens, bounds.backend)).is_zero();
        if room {
            all.enter(now, tokens);
            own.enter(now, tokens);
        }
        room
    }
}
