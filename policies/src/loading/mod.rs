//! Which backends are on the cards, which comes next, and how long that takes: for rigs where not all fit at a time.
//!
//! A swap costs a minute or two, and nobody is served meanwhile. So it happens for a wish that nothing on the cards can
//! fulfil; whoever wants the same waits together; what is there stays for `min_residency` unless nobody has used it for as
//! long as the load would take; and the oldest wish is next, so that nobody starves. A load that fails is not tried again at once, and
//! the last good one comes back, however often that has to be tried.
//!
//! [`Cards`] is a plain state machine: what is seen and wished goes in with the time, a [`Job`] comes out, one at a time. It
//! must never let go of a backend while an answer of the proxy runs there, or have two jobs out.

mod cards;
mod expected;
mod hold;
mod rights;

use std::time::Duration;

pub use crate::admission::Ticket;
pub use cards::Cards;
pub use hold::Hold;

/// Position of a backend in the list that a loader was given.
pub type Index = usize;

/// What the operator set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How long a backend stays although others are wished for.
    pub min_residency: Duration,
    /// One that nobody has used for so long may go before that; so may one that was unused for as long as the load takes.
    pub idle: Duration,
    /// How long requests of others than the proxy may hold up a swap. Its own answers are waited for to their end.
    pub drain: Duration,
    /// How long a request waits for a load.
    pub wait: Duration,
    /// Requests that may wait.
    pub queue: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            min_residency: Duration::from_secs(300),
            idle: Duration::from_secs(60),
            drain: Duration::from_secs(120),
            wait: Duration::from_secs(600),
            queue: 64,
        }
    }
}

/// A backend that can be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loadable {
    /// The cards that it needs; empty: all of them.
    pub cards: Vec<u32>,
    /// How long it is expected to load, before that was seen.
    pub expected: Duration,
    /// How long it was seen to load.
    pub seen: Option<Duration>,
}

/// Whether a backend is on its cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// It is not.
    #[default]
    Away,
    /// Somebody loads it.
    Coming,
    /// It is, and ready or broken.
    There,
}

/// What runs at a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    /// Requests of the proxy.
    pub own: u64,
    /// Requests of others, as far as the engine tells.
    pub others: u64,
}

/// A load, with what has to go for it first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Who is to be loaded.
    pub target: Index,
    /// Who has to be stopped for that. None of them has an answer of the proxy running.
    pub stop: Vec<Index>,
    /// Nobody wished for it: it was there before a load that failed.
    pub back: bool,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The target is ready.
    Loaded,
    /// It is not, and who was there before may be gone.
    Failed,
    /// It is not, and nobody was stopped.
    NotBegun,
    /// It is not, and nobody was stopped: whoever carries loads out cannot be reached.
    Unreachable,
    /// Somebody else loads, or has loaded another in its place: it is no fault, and not the time.
    Deferred,
}

/// What a backend has to offer to a request that arrives now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It is there.
    Ready,
    /// It is there after so long.
    After(Duration),
    /// It would take the place of another, and the request may not ask for that.
    Denied,
    /// It could not be loaded lately; so long until that is tried again.
    Failed(Duration),
}

/// How a wish stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The backend is there.
    Go,
    /// It waits.
    Waits {
        /// Wishes that are older.
        before: usize,
        /// How long it is expected to wait still.
        expected: Duration,
    },
    /// The load failed; so long until it is tried again.
    Failed(Duration),
    /// Nobody who may have it loaded wishes for it any more.
    Denied,
    /// It has waited as long as it may.
    Expired {
        /// How long that was.
        waited: Duration,
    },
    /// It would have to wait longer than it may.
    TooLong {
        /// How long it would take still.
        expected: Duration,
    },
    /// As many wait as may.
    QueueFull,
}
