//! Which backends may carry a request, in which order, and why not the others.
//!
//! Hard filters first (`fit`): images, window, single-prompt limit, conversation, memory. What is left is ranked: by how
//! surely it fits, then by when the answer is expected to end (`score`), and where that makes no real difference by the
//! operator's order. Those that have to be loaded first come after all that surely fit, unless the answer ends clearly sooner with the
//! load than without. Those that answer much worse than they used to come after
//! them: drained as long as anybody else will do. Those that are loading by themselves or down come last, since a probe may be out of date and a refused
//! connection costs nothing.
//!
//! A backend is never a candidate for a prompt that is known to be above its limits, and nobody is refused whom some
//! backend can serve.

mod fit;
mod score;

use std::fmt;

use crate::client::Class;
use crate::cliff::{Beyond, Dimension};
use crate::facts::{BackendFacts, BackendState, Loaded, RequestFacts};

/// Position of a backend in the list that was given.
pub type BackendIndex = usize;

/// A backend that may be tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Which one.
    pub backend: BackendIndex,
    /// Why it stands here.
    pub reason: Reason,
    /// Seconds until the answer is expected to end there.
    pub finish: f64,
    /// Seconds of those that it waits for one of its slots.
    pub wait: f64,
    /// Seconds that the prefill of what is not cached there takes.
    pub prefill: f64,
}

/// Why a backend is a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Prompt and output fit.
    Fits,
    /// The prompt fits, the output only if it is cut.
    FitsWithLessOutput,
    /// It fits if the pictures are left out: it reads none, and they are of earlier turns, or the operator wants that.
    FitsWithoutOldImages,
    /// It fits, but the conversation is about to outgrow what the backend survives.
    NearItsCliff {
        /// Tokens that a conversation may have there.
        limit: u64,
    },
    /// It fits, but not beside what the backend carries now.
    FullNow,
    /// The count is uncertain, and so is the fit.
    MayFit,
    /// It fits, but has to be loaded first.
    AfterLoading {
        /// Until it can be asked, expected.
        seconds: u64,
    },
    /// It fits, but the backend answers much worse than it used to, and nobody else is left.
    Collapsed,
    /// It is above a limit that is known of machines like this one, and nobody else is left.
    AboveSoftLimit {
        /// The limit, tokens.
        limit: u64,
    },
    /// It is above what the backend died of before, but that has faded or may be explored, and nobody else is left.
    BeyondLearned(Beyond),
    /// It fits, but the backend is loading or believed down; nobody else is left.
    LastResort(BackendState),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fits => f.write_str("first that fits"),
            Self::FitsWithLessOutput => f.write_str("fits with less output"),
            Self::FitsWithoutOldImages => f.write_str("fits without the pictures"),
            Self::NearItsCliff { limit } => write!(f, "fits, but the conversation nears its {limit} tokens"),
            Self::FullNow => f.write_str("fits, but is full now"),
            Self::MayFit => f.write_str("may fit: the count is uncertain"),
            Self::AfterLoading { seconds } => {
                write!(
                    f,
                    "has to be loaded first, expected in {seconds} s; nobody who is there will do as well"
                )
            }
            Self::Collapsed => {
                f.write_str("warning: it answers much worse than it used to, nobody else fits")
            }
            Self::AboveSoftLimit { limit } => {
                write!(
                    f,
                    "warning: above the {limit} tokens that such a backend is known to survive, nobody else fits"
                )
            }
            Self::BeyondLearned(beyond) => {
                f.write_str("warning: ")?;
                write_beyond(f, beyond)?;
                f.write_str(", nobody else fits")
            }
            Self::LastResort(BackendState::Loading) => f.write_str("loading, nobody else fits"),
            Self::LastResort(state) => write!(f, "believed {state}, nobody else fits"),
        }
    }
}

impl Reason {
    /// Whether a candidate of this reason may take the place of one with the other, if it is free sooner. Whether a backend
    /// is full is for the gate, which knows it at that moment.
    #[must_use]
    pub fn as_good_as(self, other: Self) -> bool {
        let fits = |reason| matches!(reason, Self::Fits | Self::FullNow);
        if matches!(self, Self::AfterLoading { .. }) {
            return false;
        }
        (fits(self) && fits(other)) || self == other
    }

    /// The rank of those that have to be loaded: after all that will surely do.
    const LOADING: u8 = 6;

    /// The rank of those that need a restart by what they answer: after all that will do, before those that may die.
    const COLLAPSED: u8 = 7;

    /// The lower, the sooner it is tried.
    fn rank(self) -> u8 {
        match self {
            Self::Fits => 0,
            Self::FitsWithLessOutput => 1,
            Self::FitsWithoutOldImages => 2,
            Self::NearItsCliff { .. } => 3,
            Self::FullNow => 4,
            Self::MayFit => 5,
            Self::AfterLoading { .. } => Self::LOADING,
            Self::Collapsed => Self::COLLAPSED,
            Self::AboveSoftLimit { .. } => 8,
            Self::BeyondLearned(_) => 9,
            Self::LastResort(BackendState::Loading) => 10,
            Self::LastResort(_) => 11,
        }
    }
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
    /// Conversation above what the backend survives.
    AboveAccumulated {
        /// Least number of tokens that the prompt has.
        tokens: u64,
        /// The limit.
        limit: u64,
    },
    /// Prompt above what the backend's memory holds.
    AboveResident {
        /// Least number of tokens that the prompt has.
        tokens: u64,
        /// The limit.
        limit: u64,
    },
    /// Above what the backend died of before.
    BeyondLearned(Beyond),
    /// The prompt holds an image, and the backend reads none.
    NoImages,
    /// It is not loaded, another would have to go for it, and this request may not ask for that.
    MayNotLoad,
    /// It could not be loaded lately.
    LoadFailed {
        /// Seconds until that is tried again.
        again: u64,
    },
}

fn write_beyond(f: &mut fmt::Formatter<'_>, beyond: &Beyond) -> fmt::Result {
    let Beyond { dimension, size, bound } = beyond;
    write!(
        f,
        "{size} {} above the {} held for safe: it died of {}",
        dimension.unit(),
        bound.limit,
        bound.killer
    )
}

impl Refusal {
    /// The limit that stands in the way, if it is one of length.
    #[must_use]
    pub fn limit(self) -> Option<u64> {
        match self {
            Self::AboveWindow { limit, .. }
            | Self::AboveSingle { limit, .. }
            | Self::AboveAccumulated { limit, .. }
            | Self::AboveResident { limit, .. } => Some(limit),
            Self::BeyondLearned(beyond) => {
                Some(beyond.bound.limit).filter(|_| beyond.dimension != Dimension::Images)
            }
            Self::NoImages | Self::MayNotLoad | Self::LoadFailed { .. } => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AboveWindow { tokens, limit } => write!(f, "{tokens} tokens above its window of {limit}"),
            Self::AboveSingle { tokens, limit } => {
                write!(f, "{tokens} tokens above its single-prompt limit of {limit}")
            }
            Self::AboveAccumulated { tokens, limit } => {
                write!(f, "{tokens} tokens above the {limit} that a conversation may have there")
            }
            Self::AboveResident { tokens, limit } => {
                write!(f, "{tokens} tokens above the {limit} that its memory holds")
            }
            Self::BeyondLearned(beyond) => write_beyond(f, beyond),
            Self::NoImages => f.write_str("takes no images"),
            Self::MayNotLoad => f.write_str("is not loaded, and another would have to go for it"),
            Self::LoadFailed { again } => {
                write!(f, "could not be loaded lately, which is tried again in {again} s")
            }
        }
    }
}

/// The result: whom to try in turn, and why not the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Routing {
    /// In the order to be tried.
    pub candidates: Vec<Candidate>,
    /// One for each backend that is no candidate.
    pub refusals: Vec<(BackendIndex, Refusal)>,
}

/// Why a backend that was a candidate is none any more: what is learned between two attempts counts for the second.
#[must_use]
pub fn refusal(request: &RequestFacts, index: BackendIndex, backend: &BackendFacts) -> Option<Refusal> {
    fit::fit(request, index, backend, 0).err().or_else(|| not_loaded(backend))
}

/// Why it cannot be loaded, if it has to be.
fn not_loaded(backend: &BackendFacts) -> Option<Refusal> {
    match backend.loaded {
        Loaded::Yes | Loaded::After(_) => None,
        Loaded::MayNot => Some(Refusal::MayNotLoad),
        Loaded::Failed(again) => Some(Refusal::LoadFailed { again }),
    }
}

/// Ranks the backends, which stand in the operator's order.
///
/// `headroom`: tokens that an ordinary turn leaves free below the *largest* limit, so that the compaction call after a
/// refusal still fits. Smaller backends need none: their overflow goes to a larger one.
#[must_use]
pub fn rank(request: &RequestFacts, backends: &[BackendFacts], headroom: u64) -> Routing {
    let largest = backends.iter().filter_map(BackendFacts::prompt_limit).max();
    let mut routing = Routing::default();
    for (backend, facts) in backends.iter().enumerate() {
        let is_largest = facts.prompt_limit().is_some_and(|limit| Some(limit) == largest);
        let headroom = if is_largest && !request.may_fill { headroom } else { 0 };
        let fit = fit::fit(request, backend, facts, headroom);
        match fit.and_then(|reason| not_loaded(facts).map_or(Ok(reason), Err)) {
            Ok(reason) => {
                let score::Times { wait, prefill, finish } = score::times(request, backend, facts);
                let reason = match facts.loaded {
                    // One that would not fit surely is not loaded before those that would.
                    Loaded::After(seconds) if reason.rank() < Reason::LOADING => {
                        Reason::AfterLoading { seconds: whole_seconds(seconds) }
                    }
                    Loaded::After(_) => reason,
                    _ if !facts.state.takes_requests() => Reason::LastResort(facts.state),
                    _ if facts.collapsed && reason.rank() < Reason::COLLAPSED => Reason::Collapsed,
                    _ => reason,
                };
                routing.candidates.push(Candidate { backend, reason, finish, wait, prefill });
            }
            Err(refusal) => routing.refusals.push((backend, refusal)),
        }
    }
    let place = place(request, &routing.candidates);
    // Stable: within a rank the operator's order stands until the score has something to say.
    routing.candidates.sort_by_key(|candidate| place(candidate.reason));
    for same in routing.candidates.chunk_by_mut(|one, other| place(one.reason) == place(other.reason)) {
        score::order(request, backends, same);
    }
    if request.class != Class::Background {
        score::load_if_better(&mut routing.candidates);
    }
    routing
}

/// Where candidates stand. A conversation moves one way: once it has a home elsewhere, that is loaded before it goes back to
/// where it is about to outgrow what the backend survives.
fn place(request: &RequestFacts, candidates: &[Candidate]) -> impl Fn(Reason) -> u8 + use<> {
    let is_home = |candidate: &Candidate| request.home.is_some_and(|home| home.backend == candidate.backend);
    let loads = |candidate: &Candidate| matches!(candidate.reason, Reason::AfterLoading { .. });
    let home_loads = candidates.iter().any(|candidate| is_home(candidate) && loads(candidate));
    move |reason| match reason {
        Reason::NearItsCliff { .. } if home_loads => 2 * Reason::LOADING + 1,
        reason => 2 * reason.rank(),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a saturating cast is meant")]
fn whole_seconds(seconds: f64) -> u64 {
    seconds.ceil() as u64
}
