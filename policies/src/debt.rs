//! The prefill-debt ledger: prompts that are read again because an attempt failed.
//!
//! Attempts bound how often one request is tried; tokens say what that costs. One hung engine with ten agents on it would else
//! put a million tokens on its neighbour at once, which then seems to hang, too. So the tokens that may be read again are
//! bounded: for one request in all, for one backend and for all of them in any minute. What is above the bound is not
//! refused but waits. The first prompt after a quiet minute always passes, however long it is.

use std::collections::VecDeque;
use std::time::Duration;

/// The minute.
const WINDOW: Duration = Duration::from_secs(60);

/// Tokens that may be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// For one request, over all its attempts.
    pub request: u64,
    /// By one backend in any minute.
    pub backend: u64,
    /// By all backends in any minute.
    pub minute: u64,
}

/// What was read again lately, by one backend or by all.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// When, and how many tokens.
    entries: VecDeque<(Duration, u64)>,
    /// Since the start.
    total: u64,
}

impl Ledger {
    /// How long the next prompt of so many tokens has to wait at `now` (any clock that only goes forward), if no more than
    /// `bound` tokens may be read again in a minute. Zero: it may go.
    #[must_use]
    pub fn wait(&self, now: Duration, tokens: u64, bound: u64) -> Duration {
        let recent = self.entries.iter().filter(|(then, _)| now.saturating_sub(*then) < WINDOW);
        let mut owed: u64 = recent.clone().map(|(_, tokens)| tokens).sum();
        if owed == 0 || owed.saturating_add(tokens) <= bound {
            return Duration::ZERO;
        }
        for (then, paid) in recent {
            owed -= paid;
            if owed == 0 || owed.saturating_add(tokens) <= bound {
                return (*then + WINDOW).saturating_sub(now);
            }
        }
        WINDOW
    }

    /// A prompt of so many tokens is read again.
    pub fn enter(&mut self, now: Duration, tokens: u64) {
        while self.entries.front().is_some_and(|(then, _)| now.saturating_sub(*then) >= WINDOW) {
            self.entries.pop_front();
        }
        self.entries.push_back((now, tokens));
        self.total = self.total.saturating_add(tokens);
    }

    /// Tokens that were read again since the start.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }
}

/// Whether one request may be read again: `again` tokens were already, and the next attempt reads `tokens`. Its second
/// attempt always may.
#[must_use]
pub fn request_may(again: u64, tokens: u64, bounds: Bounds) -> bool {
    again == 0 || again.saturating_add(tokens) <= bounds.request
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_prompt_after_a_quiet_minute_passes_however_long_it_is() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.wait(second(0), 900_000, 100_000), Duration::ZERO);
        ledger.enter(second(0), 900_000);
        assert_eq!(ledger.wait(second(59), 500, 100_000), second(1));
        assert_eq!(ledger.wait(second(60), 900_000, 100_000), Duration::ZERO);
    }

    #[test]
    fn a_storm_is_spread_over_the_minutes_that_its_tokens_take() {
        let mut ledger = Ledger::default();
        for at in 0..3 {
            assert_eq!(ledger.wait(second(at), 30_000, 100_000), Duration::ZERO);
            ledger.enter(second(at), 30_000);
        }
        assert_eq!(ledger.wait(second(10), 30_000, 100_000), second(50), "until the first is a minute old");
        assert_eq!(ledger.wait(second(10), 10_000, 100_000), Duration::ZERO, "short prompts go on");
        assert_eq!(ledger.total(), 90_000);
    }

    #[test]
    fn a_request_is_read_a_second_time_in_any_case_and_a_third_only_within_its_bound() {
        let bounds = Bounds { request: 400_000, backend: 0, minute: 0 };
        assert!(request_may(0, 900_000, bounds));
        assert!(request_may(200_000, 200_000, bounds));
        assert!(!request_may(240_000, 240_000, bounds));
    }

    proptest::proptest! {
        #[test]
        fn no_minute_has_more_than_the_bound_or_one_prompt(
            prompts in proptest::collection::vec((0_u64..20, 1_u64..60_000), 1..60), bound in 1_u64..100_000
        ) {
            let (mut ledger, mut now, mut read) = (Ledger::default(), Duration::ZERO, Vec::new());
            for (pause, tokens) in prompts {
                now += second(pause);
                now += ledger.wait(now, tokens, bound);
                proptest::prop_assert_eq!(ledger.wait(now, tokens, bound), Duration::ZERO);
                ledger.enter(now, tokens);
                read.push((now, tokens));
                let minute: Vec<u64> =
                    read.iter().filter(|(then, _)| now - *then < WINDOW).map(|(_, tokens)| *tokens).collect();
                proptest::prop_assert!(minute.iter().sum::<u64>() <= bound || minute.len() == 1);
            }
        }
    }
}
