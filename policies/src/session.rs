//! Sessions that are told to shorten themselves: leave room for the compaction call, and break an endless loop.
//!
//! After an overflow a client asks for a summary, in a request that is larger than the refused one: so the request after
//! a refusal may use the headroom. Some clients overflow, compact and overflow again without bound (123 requests in 50 s
//! were captured): after a few of them the refusal must be one that the client shows to its user.

use std::collections::VecDeque;
use std::time::Duration;

/// When a session turns in circles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopLimit {
    /// So many overflows …
    pub count: usize,
    /// … within this time are a loop.
    pub within: Duration,
}

/// What is remembered of one session.
#[derive(Clone, Debug, Default)]
pub struct Session {
    overflows: VecDeque<Duration>,
    just_refused: bool,
}

impl Session {
    /// A request of this session arrives. True: the one before it was refused as too long, so this one may fill the
    /// window. The right is used up by asking.
    pub fn may_fill(&mut self) -> bool {
        std::mem::take(&mut self.just_refused)
    }

    /// The session turns in circles at `now` (any clock that only goes forward): a further request is refused as such.
    pub fn loops(&mut self, now: Duration, limit: LoopLimit) -> bool {
        while self.overflows.front().is_some_and(|then| now.saturating_sub(*then) > limit.within) {
            self.overflows.pop_front();
        }
        self.overflows.len() >= limit.count
    }

    /// A request of this session was refused as too long.
    pub fn overflowed(&mut self, now: Duration, limit: LoopLimit) {
        self.just_refused = true;
        self.overflows.push_back(now);
        while self.overflows.len() > limit.count.max(1) {
            self.overflows.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: LoopLimit = LoopLimit { count: 3, within: Duration::from_secs(10) };

    #[test]
    fn only_the_next_request_after_a_refusal_may_fill_the_window() {
        let mut session = Session::default();
        assert!(!session.may_fill());
        session.overflowed(Duration::ZERO, LIMIT);
        assert!(session.may_fill());
        assert!(!session.may_fill());
    }

    #[test]
    fn three_overflows_in_ten_seconds_are_a_loop_and_an_hour_later_none() {
        let mut session = Session::default();
        for second in 0..3 {
            assert!(!session.loops(Duration::from_secs(second), LIMIT));
            session.overflowed(Duration::from_secs(second), LIMIT);
        }
        assert!(session.loops(Duration::from_secs(4), LIMIT));
        assert!(!session.loops(Duration::from_secs(3600), LIMIT));
    }
}
