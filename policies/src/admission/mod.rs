//! Who goes to a backend now, who waits, and who is told to come back: the gate.
//!
//! Engines have no fair queue, and one long prefill takes the decode time of everybody beside it. So the queue is kept
//! here, where it is ordered, cancellable and visible, and never more is sent to an engine than it runs at once. Weights are
//! expected seconds of prefill of *uncached* tokens, not tokens: machines differ tenfold.
//!
//! [`Gate`] is a plain state machine: an [`Event`] and the time go in, [`Answer`]s come out. That is the whole interface, and
//! all of it is plain data, so several proxies could feed one gate. It must never exceed a place, forget one, or let
//! anybody wait beyond the bound.

mod accounts;
mod backend;
mod expected;
mod gate;
mod queue;
mod turns;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Class;

pub use gate::Gate;

/// What the operator set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// False: everybody goes at once.
    pub enabled: bool,
    /// Decode time that a live interactive stream may lose to prefills beside it, summed; a quarter of the time that
    /// passes is paid back. A prefill that takes longer than this is a large one.
    pub max_victim_stall: Duration,
    /// How long a large prefill waits for a gap between live streams; then it goes all the same.
    pub large_prefill_wait: Duration,
    /// Requests that may wait.
    pub queue: usize,
    /// How long a request may wait.
    pub queue_timeout: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            enabled: true,
            max_victim_stall: Duration::from_secs(2),
            large_prefill_wait: Duration::from_secs(20),
            queue: 64,
            queue_timeout: Duration::from_secs(180),
        }
    }
}

/// One request, by a number that its proxy chooses and uses once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What one client may have at once; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Requests that run at once.
    pub running: Option<u64>,
    /// Prompt and output tokens within a time, refilled steadily.
    pub tokens: Option<(u64, Duration)>,
}

/// What a request would take of one backend.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The backend's name.
    pub backend: Arc<str>,
    /// Requests that it runs at once; `None`: unknown, and no bound.
    pub slots: Option<u64>,
    /// Tokens that it holds together; `None`: unknown, and no bound.
    pub pool: Option<u64>,
    /// Tokens that the request holds there to its end: prompt and expected output.
    pub tokens: u64,
    /// Slots that it takes: one for each answer that it asks for; none if nothing is computed for it.
    pub sequences: u64,
    /// Seconds that one piece of a long prompt takes there, if its engine reads those in pieces: so long, and not until the
    /// prompt's end, a short one waits beside it.
    pub piece: Option<f64>,
    /// Expected seconds of prefill of what is not cached there.
    pub prefill: f64,
    /// Expected seconds from its start to its end there.
    pub finish: f64,
}

/// Whose a request is. Clients of a class share fairly, and then those behind one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Whose {
    /// What a client cannot make up: its key, or its address.
    pub client: u64,
    /// What it says of itself: its user, or its conversation.
    pub part: u64,
}

/// A request for a place.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Whose it is.
    pub whose: Whose,
    /// Whom its allowance is for: they have it together.
    pub account: u64,
    /// Who waits for it.
    pub class: Class,
    /// Its tokens are seen one by one, so a stall is seen, and so is the first token. Without that, its prefill counts as
    /// over after a quarter more than the expected time.
    pub streams: bool,
    /// What its client may have at once.
    pub allowance: Allowance,
    /// How long it has waited for other places before: the bounds hold for all its waiting together.
    pub waited: Duration,
    /// The backends that will do, the preferred one first. Without any it is refused.
    pub offers: Vec<Offer>,
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A request asks for a place.
    Arrives(Ticket, Ask),
    /// A request that waits asks otherwise: backends have come or gone. It keeps its place in the queue. One that does not
    /// wait any more keeps what it has.
    Asks(Ticket, Ask),
    /// The backend's first token: its prefill place is free.
    FirstToken(Ticket),
    /// It has ended, failed or been given up, waiting or running: all that it holds is free. The tokens that it has used are its
    /// client's, whatever was reserved.
    Leaves(Ticket, u64),
    /// Time has passed.
    Time,
}

/// What a request is told.
pub type Answer = Result<Grant, Refusal>;

/// A place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// Which of the offers.
    pub offer: usize,
    /// How long it waited, with what it had waited before.
    pub waited: Duration,
    /// It was admitted although live streams lose more than they may.
    pub broken: Option<Stall>,
}

/// The victim bound, broken since waiting had an end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stall {
    /// Live streams beside it.
    pub streams: usize,
    /// Seconds that each of them may lose.
    pub seconds: f64,
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waited {:.1} s", self.waited.as_secs_f64())?;
        match self.broken {
            Some(Stall { streams: 1, seconds }) => {
                write!(f, ", then admitted though a live stream may lose {seconds:.0} s")
            }
            Some(Stall { streams, seconds }) => {
                write!(f, ", then admitted though {streams} live streams may lose {seconds:.0} s")
            }
            None => Ok(()),
        }
    }
}

/// No place, and when to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub why: Why,
    /// How long it would have waited, or has to wait still.
    pub expected: Duration,
    /// Requests that wait now.
    pub waiting: usize,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// As many wait as may: none of a worse class, and nobody of its own has more of those places than its client.
    QueueFull,
    /// One of a better class took its place in the queue, or one of a client of its class that has fewer of them.
    Displaced,
    /// It would wait longer than it may.
    WaitTooLong,
    /// It has waited as long as it may.
    TimedOut,
    /// Its client has used up its tokens.
    BudgetSpent,
}
