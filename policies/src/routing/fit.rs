//! The hard filters: whether a backend can carry a request at all, and how surely.
//!
//! Limits are compared with the *least* that the prompt can have, so nothing is refused that might fit; what only may
//! fit says so.

use super::{BackendIndex, Reason, Refusal};
use crate::facts::{BackendFacts, Images, RequestFacts};

/// A conversation above this part of what a backend survives leaves it now: moving at 12,000 of 15,000 tokens costs
/// ten seconds of prefill, moving later may cost an outage.
const NEAR: (u64, u64) = (4, 5);

/// How a request fits on the backend at this position, or why not. `headroom` tokens stay free below every limit.
pub(super) fn fit(
    request: &RequestFacts,
    index: BackendIndex,
    backend: &BackendFacts,
    headroom: u64,
) -> Result<Reason, Refusal> {
    if request.images == Images::New && !backend.images && !backend.words_for_images {
        return Err(Refusal::NoImages);
    }
    let less = |limit: u64| limit.saturating_sub(headroom);
    let tokens = request.prompt.low();
    let expected = request.prompt.expected();
    let above = |limit: Option<u64>| limit.map(less).filter(|limit| tokens > *limit);
    let (soft, hard) = match backend.accumulated {
        Some(limit) if limit.soft => (Some(limit.tokens), None),
        Some(limit) => (None, Some(limit.tokens)),
        None => (None, None),
    };
    let refusals = [
        // Exactly full is too long, too: nothing could be answered.
        backend.window.map(less).filter(|window| tokens >= *window).map(|window| Refusal::AboveWindow {
            tokens,
            limit: if tokens > window { window } else { window.saturating_sub(1) },
        }),
        above(backend.single).map(|limit| Refusal::AboveSingle { tokens, limit }),
        above(hard).map(|limit| Refusal::AboveAccumulated { tokens, limit }),
        above(backend.resident).map(|limit| Refusal::AboveResident { tokens, limit }),
    ];
    // Of several limits the smallest is the truth that the client needs.
    if let Some(refusal) = refusals.into_iter().flatten().min_by_key(|refusal| refusal.limit()) {
        return Err(refusal);
    }
    if let Some(beyond) = backend.learned.beyond(&request.shape(index, backend)) {
        if beyond.may_be_tried(&backend.learned, backend.load.running) {
            return Ok(Reason::BeyondLearned(beyond));
        }
        return Err(Refusal::BeyondLearned(beyond));
    }
    let output = backend.expected_output(request);
    if let Some(limit) = soft.filter(|limit| tokens.saturating_add(output) > *limit) {
        return Ok(Reason::AboveSoftLimit { limit });
    }
    if backend.prompt_limit().is_some_and(|limit| expected > less(limit)) {
        return Ok(Reason::MayFit);
    }
    let beside = expected.saturating_add(output).saturating_add(backend.load.resident);
    if backend.load.running > 0 && backend.resident.is_some_and(|resident| beside > resident) {
        return Ok(Reason::FullNow);
    }
    if let Some(limit) = backend.accumulated.map(|limit| limit.tokens)
        && request.agent
        && expected >= limit / NEAR.1 * NEAR.0
    {
        return Ok(Reason::NearItsCliff { limit });
    }
    if request.images != Images::None && !backend.images {
        return Ok(Reason::FitsWithoutOldImages);
    }
    let whole = expected.saturating_add(request.output.unwrap_or(0));
    Ok(if backend.window.is_some_and(|window| whole > window) {
        Reason::FitsWithLessOutput
    } else {
        Reason::Fits
    })
}
