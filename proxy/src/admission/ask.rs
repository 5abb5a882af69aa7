//! From a decision to a place: what the candidates that may be asked next would take of their backends.

use std::sync::Arc;
use std::time::Duration;

use switchback_policies::admission::{Ask, Grant, Offer};
use switchback_policies::decision::Rule;
use switchback_policies::facts::{BackendFacts, RequestFacts, Speed};
use switchback_policies::routing::Candidate;

use super::Permit;
use crate::answer::Out;
use crate::app::App;
use crate::backend::Backend;
use crate::call::Call;
use crate::error::ApiError;
use crate::identify::Client;
use crate::plan::Plan;
use crate::retry::Retry;

/// Who asks for a place.
#[derive(Clone, Copy)]
pub(crate) struct Asking<'a> {
    pub(crate) call: &'a Call,
    pub(crate) client: &'a Client,
    pub(crate) session: u64,
    /// How long it has waited for places before.
    pub(crate) waited: Duration,
}

/// Waits for a place at one of the choices `next`, the preferred one first. Says which it is; the client is told meanwhile how
/// it stands. When backends come or go meanwhile, it is decided anew who will do.
pub(crate) async fn admit(
    app: &App,
    by: &Asking<'_>,
    plan: &mut Plan,
    retry: &Retry<'_>,
    mut next: Vec<usize>,
    out: &Out,
) -> Result<(usize, Grant, Permit), ApiError> {
    let Asking { call, client, .. } = *by;
    let mut waiting = app.admission.enter(ask(app, by, plan, &next));
    let (room, ticket) = (Arc::downgrade(&app.admission), waiting.ticket());
    out.waits_for(Some(Box::new(move || room.upgrade().and_then(|room| room.standing(ticket)))));
    let answer = loop {
        let changes = plan.changes();
        tokio::select! {
            biased;
            answer = waiting.answer() => break answer,
            () = changes => {
                let (before, backends) = (plan.decision.clone(), plan.backend_facts.clone());
                plan.renew(app, call, client);
                let there = |nth: &usize| {
                    let backend = &plan.backends[plan.decision.choices[*nth].candidate.backend];
                    app.loader.as_ref().is_none_or(|loader| loader.admits(backend))
                };
                let now: Vec<usize> = retry.choices_now(plan).into_iter().filter(there).collect();
                // With nobody left it waits as it did: whoever it is given is gone, and that is noticed there.
                if now.is_empty() || !waiting.asks(ask(app, by, plan, &now)) {
                    (plan.decision, plan.backend_facts) = (before, backends);
                } else {
                    next = now;
                }
            }
        }
    };
    out.waits_for(None);
    match answer {
        Ok(grant) => {
            let nth = next.get(grant.offer).copied().unwrap_or_default();
            if grant.broken.is_some() {
                tracing::info!(id = call.id, %grant, "a large prefill goes beside live streams");
            }
            Ok((nth, grant, waiting.permit()))
        }
        Err(refusal) => Err(ApiError::not_admitted(&refusal, app.config.admission)),
    }
}

fn ask(app: &App, by: &Asking<'_>, plan: &Plan, next: &[usize]) -> Ask {
    let Asking { call, client, session, waited } = *by;
    let counts = call.counts();
    let of = |nth: &usize| {
        let candidate = &plan.decision.choices[*nth].candidate;
        let (backend, facts) = (&plan.backends[candidate.backend], &plan.backend_facts[candidate.backend]);
        offer(backend, candidate, facts, &plan.facts)
    };
    let offers = next.iter().map(of).map(|offer| if counts { free(offer) } else { offer });
    let offers: Vec<Offer> = offers.collect();
    app.prewarm.give_way(offers.iter().map(|offer| &*offer.backend));
    Ask {
        whose: app.sessions.whose(client, session),
        account: app.sessions.account(client),
        class: client.class,
        streams: call.stream
            && call.endpoint.dialect.is_some()
            && !next.iter().any(|nth| asked_whole(plan, *nth)),
        allowance: client.allowance,
        waited,
        offers,
    }
}

/// The backend is asked without streaming, so its first token is not seen.
fn asked_whole(plan: &Plan, nth: usize) -> bool {
    plan.decision.choices[nth].rules.contains(&Rule::AskWhole)
}

/// To count a prompt takes nothing of the engine.
fn free(offer: Offer) -> Offer {
    Offer { slots: None, pool: None, tokens: 0, sequences: 0, prefill: 0.0, finish: 0.0, ..offer }
}

/// What a request would take of a backend.
pub(crate) fn offer(
    at: &Backend,
    candidate: &Candidate,
    backend: &BackendFacts,
    facts: &RequestFacts,
) -> Offer {
    let output = backend.expected_output(facts);
    Offer {
        backend: Arc::from(at.places()),
        slots: backend.slots,
        pool: backend.resident,
        tokens: facts.prompt.expected().saturating_add(output.saturating_mul(facts.sequences)),
        sequences: facts.sequences,
        piece: backend.chunk.map(|chunk| backend.speed.unwrap_or(Speed::USUAL).prefill(0, chunk)),
        prefill: candidate.prefill,
        finish: candidate.finish - candidate.wait,
    }
}
