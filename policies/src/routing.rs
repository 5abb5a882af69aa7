//! Which backends may carry a request, in which order, and why not the others.
//!
//! Hard filters first: images, window, single-prompt limit. What is left keeps the operator's order, in three ranks: it
//! fits whole, it fits if the output is cut, it may fit (the count is uncertain); those that are loading or down come
//! last, since a probe may be out of date and a refused connection costs nothing.
//!
//! A backend is never a candidate for a prompt that is known to be above its limits.

use std::fmt;

use crate::facts::{BackendFacts, BackendState, RequestFacts};

/// Position of a backend in the list that was given.
pub type BackendIndex = usize;

/// A backend that may be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which one.
    pub backend: BackendIndex,
    /// Why it stands here.
    pub reason: Reason,
}

/// Why a backend is a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Prompt and output fit.
    Fits,
    /// The prompt fits, the output only if it is cut.
    FitsWithLessOutput,
    /// The count is uncertain, and so is the fit.
    MayFit,
    /// It fits, but the backend is loading or believed down; nobody else is left.
    LastResort(BackendState),
}

/// Why a backend is no candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Prompt above the window.
    AboveWindow {
        /// Least number of tokens that the prompt has.
        tokens: u64,
        /// The window, less the headroom that was asked for.
        limit: u64,
    },
    /// Prompt above what the backend survives in one piece.
    AboveSingle {
        /// Least number of tokens that the prompt has.
        tokens: u64,
        /// The limit.
        limit: u64,
    },
    /// The prompt holds an image, and the backend reads none.
    NoImages,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AboveWindow { tokens, limit } => write!(f, "{tokens} tokens above its window of {limit}"),
            Self::AboveSingle { tokens, limit } => {
                write!(f, "{tokens} tokens above its single-prompt limit of {limit}")
            }
            Self::NoImages => f.write_str("takes no images"),
        }
    }
}

/// The result: whom to try in turn, and why not the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// In the order to be tried.
    pub candidates: Vec<Candidate>,
    /// One for each backend that is no candidate.
    pub refusals: Vec<(BackendIndex, Refusal)>,
}

/// Ranks the backends, which stand in the operator's order.
///
/// `headroom`: tokens that an ordinary turn leaves free below the *largest* limit, so that the compaction call after a
/// refusal still fits. Smaller backends need none: their overflow goes to a larger one.
#[must_use]
pub fn rank(request: &RequestFacts, backends: &[BackendFacts], headroom: u64) -> Routing {
    let largest = backends.iter().filter_map(BackendFacts::prompt_limit).max();
    let mut routing = Routing::default();
    let mut ranked: Vec<(u8, Candidate)> = Vec::with_capacity(backends.len());
    for (backend, facts) in backends.iter().enumerate() {
        let is_largest = facts.prompt_limit().is_some_and(|limit| Some(limit) == largest);
        let headroom = if is_largest && !request.may_fill { headroom } else { 0 };
        match fit(request, facts, headroom) {
            Ok((rank, reason)) => {
                let (rank, reason) = match facts.state {
                    BackendState::Up | BackendState::Unknown => (rank, reason),
                    state @ BackendState::Loading => (10 + rank, Reason::LastResort(state)),
                    state @ BackendState::Down => (20 + rank, Reason::LastResort(state)),
                };
                ranked.push((rank, Candidate { backend, reason }));
            }
            Err(refusal) => routing.refusals.push((backend, refusal)),
        }
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    routing.candidates = ranked.into_iter().map(|(_, candidate)| candidate).collect();
    routing
}

fn fit(request: &RequestFacts, backend: &BackendFacts, headroom: u64) -> Result<(u8, Reason), Refusal> {
    if request.images && !backend.images {
        return Err(Refusal::NoImages);
    }
    let tokens = request.prompt.low();
    let window = backend.window.map(|window| window.saturating_sub(headroom));
    let single = backend.single.map(|single| single.saturating_sub(headroom));
    let above_window = window.filter(|window| tokens >= *window).map(|window| {
        // Exactly full is too long, too: nothing could be answered.
        Refusal::AboveWindow {
            tokens,
            limit: if tokens > window { window } else { window.saturating_sub(1) },
        }
    });
    let above_single =
        single.filter(|single| tokens > *single).map(|limit| Refusal::AboveSingle { tokens, limit });
    // Of two limits the smaller one is the truth that the client needs.
    let smaller_first =
        if single < window { above_single.or(above_window) } else { above_window.or(above_single) };
    if let Some(refusal) = smaller_first {
        return Err(refusal);
    }
    let expected = request.prompt.expected();
    let may_only =
        window.is_some_and(|window| expected >= window) || single.is_some_and(|single| expected > single);
    let with_output = expected.saturating_add(request.output.unwrap_or(0));
    Ok(if may_only {
        (2, Reason::MayFit)
    } else if backend.window.is_some_and(|window| with_output > window) {
        (1, Reason::FitsWithLessOutput)
    } else {
        (0, Reason::Fits)
    })
}
