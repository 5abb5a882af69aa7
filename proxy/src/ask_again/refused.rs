//! A request that the backend refused for something in it that no answer hangs on: it is asked once more without that.
//!
//! No failover: nothing was computed, no other backend is asked, and what was left out is named to the client. Must never ask
//! twice, and never when the backend did not say what it refuses.

use bytes::Bytes;

use super::Asked;
use crate::attempt::{Failure, Started, attempt};
use crate::edits;
use crate::record::Outcome;

/// Sends a body, and once more without what was refused of it.
pub(crate) async fn ask(asked: &Asked<'_>, body: Bytes, outcome: &mut Outcome) -> Result<Started, Failure> {
    let Asked { backend, call, client, terms, place, .. } = asked;
    let failure = match attempt(backend, call, body.clone(), terms, place).await {
        Ok(started) => return Ok(started),
        Err(failure) => failure,
    };
    let refused = failure.error.as_ref().and_then(|error| error.refused.as_ref());
    let is_on = |rule| edits::is_on(rule, client, backend);
    let rest = refused.and_then(|refused| edits::without(&body, refused, is_on));
    let Some((rest, what)) = rest else { return Err(failure) };
    tracing::info!(id = call.id, backend = backend.name(), what, detail = failure.detail, "asked once more");
    let second = attempt(backend, call, rest, terms, place).await;
    if second.is_ok() {
        outcome.adjusted.push(what);
    }
    second
}
