//! What is known of a request once it is measured, and where it may go: decided when it comes, and again when backends come or go.
//!
//! Nothing is sent but a count. A plan must never be older than what happened to its backends: who waits renews it.

use std::sync::Arc;

use switchback_policies::affinity::Outline;
use switchback_policies::budget;
use switchback_policies::decision::{Decision, Settings, Unserved, decide};
use switchback_policies::facts::{BackendFacts, RequestFacts};
use switchback_policies::routing::Refusal;
use switchback_policies::session::Circle;

use crate::app::App;
use crate::aside::aside;
use crate::backend::{self, Backend};
use crate::call::Call;
use crate::edits::{self, RequestRule};
use crate::error::ApiError;
use crate::facts;
use crate::home::home;
use crate::identify::Client;
use crate::loader;
use crate::measure::{Measured, measure};
use crate::models::{self, Target};
use crate::session::Arrival;

/// Everything that is known of a request once it is decided.
pub(crate) struct Plan {
    pub(crate) facts: RequestFacts,
    pub(crate) measured: Measured,
    pub(crate) backends: Vec<Arc<Backend>>,
    pub(crate) backend_facts: Vec<BackendFacts>,
    pub(crate) decision: Decision,
    pub(crate) outline: Outline,
    settings: Settings,
}

impl Plan {
    /// Decides anew: backends have come, gone, or learned since.
    pub(crate) fn renew(&mut self, app: &App, call: &Call, client: &Client) {
        self.backend_facts = facts_of(app, call, client, &self.backends);
        self.decision = decided(client, &self.facts, &self.backends, &self.backend_facts, self.settings);
    }

    /// Resolves when one of the backends comes or goes: at the first such change after this call.
    pub(crate) fn changes(&self) -> impl Future<Output = ()> + use<> {
        backend::changes(&self.backends)
    }

    /// The longest prompt that a backend takes.
    pub(crate) fn limit(&self, backend: usize) -> Option<u64> {
        self.backend_facts.get(backend).and_then(BackendFacts::prompt_limit)
    }
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
    let backend_facts = facts_of(app, call, client, &backends);
    let exact_above = app.config.cliffs.exact_above();
    let measured = measure(call, &app.vocabularies, model, &backends, &backend_facts, exact_above).await;
    let (outline, told) = match &call.request {
        Some(request) => {
            let prefixes = app.prefixes.clone();
            aside(request, move |request| (prefixes.outline(request), facts::read(request))).await
        }
        None => Default::default(),
    };
    let output = call.request.as_ref().and_then(|request| request.output_limit());
    let agent = call.request.as_ref().is_some_and(|request| request.tools().next().is_some());
    let facts = RequestFacts {
        prompt: measured.size,
        output,
        output_floor: budget::floor(output, agent, client.no_limit_at, client.min_output)
            .filter(|_| client.follows(RequestRule::RaiseOutput)),
        room_to_think: budget::room_to_think(
            output.or(client.default_output),
            agent,
            client.is_known,
            client.thinking_output,
        )
        .filter(|_| client.follows(RequestRule::RoomToThink)),
        output_if_absent: client.default_output.filter(|_| call.endpoint.dialect.is_some()),
        thinks: call.request.as_deref().and_then(facts::thinks),
        streams_required: call.stream && call.request.as_deref().is_some_and(facts::requires_call),
        images: told.images,
        home: home(app, session, &backends, measured.size, &outline),
        own_order: !client.order.is_empty(),
        agent,
        class: client.class,
        may_fill: arrival == Arrival::MayFill,
        turns: told.turns.max(1),
        pictures: told.pictures,
        sequences: told.sequences.max(1),
    };
    if let Some(limit) = client.max_prompt.filter(|limit| facts.prompt.low() > *limit) {
        let hint = format!("client {} may send prompts of {limit} tokens", client.name);
        let error = ApiError::context_length_exceeded(facts.prompt.expected(), limit, Some(hint));
        return Err(Refused { error, measured: Some(measured) });
    }
    let settings =
        Settings { headroom: headroom(app, client, agent, &backend_facts), margin: app.config.answer.margin };
    let decision = decided(client, &facts, &backends, &backend_facts, settings);
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
        None => return Ok(Plan { facts, measured, backends, backend_facts, decision, outline, settings }),
    };
    Err(Refused { error, measured: Some(measured) })
}

fn facts_of(app: &App, call: &Call, client: &Client, backends: &[Arc<Backend>]) -> Vec<BackendFacts> {
    let may_load = loader::may_load(app, call, client);
    let facts = |backend: &Arc<Backend>| {
        let (load, loaded) = (app.admission.load(backend.places()), app.loaded(backend, may_load));
        BackendFacts { load, loaded, ..backend.facts() }
    };
    backends.iter().map(facts).collect()
}

fn decided(
    client: &Client,
    facts: &RequestFacts,
    backends: &[Arc<Backend>],
    backend_facts: &[BackendFacts],
    settings: Settings,
) -> Decision {
    let decision = decide(facts, backend_facts, settings);
    decision.with_rules(|backend, rule| edits::allows(rule, client, &backends[backend]))
}

/// What an ordinary turn leaves free: as configured, else as much as this client's compaction call needs.
fn headroom(app: &App, client: &Client, agent: bool, backends: &[BackendFacts]) -> u64 {
    let longest = || backends.iter().filter_map(BackendFacts::prompt_limit).max().unwrap_or(0);
    let of_client = || if agent { client.on_overflow.headroom(longest()) } else { 0 };
    app.config.answer.headroom.unwrap_or_else(of_client)
}
