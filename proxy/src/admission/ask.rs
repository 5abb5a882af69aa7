//! From a decision to a place: what the candidates that may be asked next would take of their backends.

use std::sync::Arc;

use switchback_policies::admission::{Ask, Grant, Offer};

use super::Permit;
use crate::app::App;
use crate::call::Call;
use crate::error::ApiError;
use crate::identify::Client;
use crate::pipeline::Plan;

/// Waits for a place at one of the choices `next`, the preferred one first. Says which it is.
pub(crate) async fn admit(
    app: &App,
    call: &Call,
    client: &Client,
    plan: &Plan,
    next: &[usize],
) -> Result<(usize, Grant, Permit), ApiError> {
    let offers = next.iter().map(|nth| offer(plan, *nth)).collect();
    let ask = Ask {
        client: app.sessions.owner(client),
        class: client.class,
        streams: call.stream && call.endpoint.dialect.is_some(),
        allowance: client.allowance,
        offers,
    };
    match app.admission.enter(ask).await {
        Ok((grant, permit)) => {
            let nth = next.get(grant.offer).copied().unwrap_or_default();
            if grant.broken.is_some() {
                tracing::info!(id = call.id, %grant, "a large prefill goes beside live streams");
            }
            Ok((nth, grant, permit))
        }
        Err(refusal) => Err(ApiError::not_admitted(&refusal, app.config.admission)),
    }
}

fn offer(plan: &Plan, nth: usize) -> Offer {
    let candidate = &plan.decision.choices[nth].candidate;
    let backend = &plan.backend_facts[candidate.backend];
    let output = backend.expected_output(&plan.facts);
    Offer {
        backend: Arc::from(backend.name.as_str()),
        slots: backend.slots,
        pool: backend.resident,
        tokens: plan.facts.prompt.expected().saturating_add(output),
        prefill: candidate.prefill,
        finish: candidate.finish - candidate.wait,
    }
}
