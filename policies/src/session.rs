//! Sessions that are told to shorten themselves, or that fail again and again: leave room for the compaction call, and break
//! endless loops.
//!
//! After an overflow a client asks for a summary, in a request that is larger than the refused one: so the request after
//! a refusal may use the headroom. Some clients overflow, compact and overflow again without bound (123 requests in 50 s
//! were captured), and most send a prompt that failed again, up to thirty times: after a few of them the refusal must be one that
//! the client shows to its user.

use std::collections::VecDeque;
use std::time::Duration;

/// When a session turns in circles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopLimit {
    /// So many times the same …
    pub count: usize,
    /// … within this time are a loop.
    pub within: Duration,
}

/// When something happened last, as often as it matters. Times are of any clock that only goes forward.
#[derive(Clone, Debug, Default)]
struct Times(VecDeque<Duration>);

impl Times {
    fn add(&mut self, now: Duration, limit: LoopLimit) {
        self.0.push_back(now);
        while self.0.len() > limit.count.max(1) {
            self.0.pop_front();
        }
    }

    fn are_a_loop(&mut self, now: Duration, limit: LoopLimit) -> bool {
        while self.0.front().is_some_and(|then| now.saturating_sub(*then) > limit.within) {
            self.0.pop_front();
        }
        self.0.len() >= limit.count
    }
}

/// In which way a session turns in circles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circle {
    /// It overflows, whatever it does about it.
    Overflows,
    /// Backends fail on it, or its answers are cut or empty.
    Failures,
}

/// What is remembered of one session.
#[derive(Clone, Debug, Default)]
pub struct Session {
    overflows: Times,
    failures: Times,
    just_refused: bool,
}

impl Session {
    /// A request of this session arrives. True: the one before it was refused as too long, so this one may fill the
    /// window. The right is used up by asking.
    pub fn may_fill(&mut self) -> bool {
        std::mem::take(&mut self.just_refused)
    }

    /// The session turns in circles at `now`: a further request is refused as such.
    pub fn circle(&mut self, now: Duration, limit: LoopLimit) -> Option<Circle> {
        if self.overflows.are_a_loop(now, limit) {
            return Some(Circle::Overflows);
        }
        self.failures.are_a_loop(now, limit).then_some(Circle::Failures)
    }

    /// A request of this session was refused as too long.
    pub fn overflowed(&mut self, now: Duration, limit: LoopLimit) {
        self.just_refused = true;
        self.overflows.add(now, limit);
    }

    /// A request of this session cost a prefill and got no whole answer, or one that says nothing.
    pub fn failed(&mut self, now: Duration, limit: LoopLimit) {
        self.failures.add(now, limit);
    }

    /// A request of this session was answered to its end: what failed before does not count any more.
    pub fn answered(&mut self) {
        self.failures = Times::default();
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
            assert_eq!(session.circle(Duration::from_secs(second), LIMIT), None);
            session.overflowed(Duration::from_secs(second), LIMIT);
        }
        assert_eq!(session.circle(Duration::from_secs(4), LIMIT), Some(Circle::Overflows));
        assert_eq!(session.circle(Duration::from_secs(3600), LIMIT), None);
    }

    #[test]
    fn failures_are_a_loop_only_if_nothing_succeeds_between() {
        let mut session = Session::default();
        let second = Duration::from_secs(1);
        session.failed(second, LIMIT);
        session.failed(second, LIMIT);
        session.answered();
        session.failed(second, LIMIT);
        assert_eq!(session.circle(second, LIMIT), None);
        session.failed(second, LIMIT);
        session.failed(second, LIMIT);
        assert_eq!(session.circle(second, LIMIT), Some(Circle::Failures));
    }
}
