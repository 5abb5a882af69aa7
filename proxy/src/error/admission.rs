//! What a client is told that got no place at a backend: why, how long it would take, and when to come back.
//!
//! It waited first, or would have had to wait longer than it may; it must never be told less than is true. `Retry-After` is the
//! number of the sentence: when asking again makes sense, since it would wait no longer than it may then.

use std::time::Duration;

use http::StatusCode;
use switchback_policies::admission::{Refusal, Rules, Why};

use super::ApiError;

/// Claude Code gives up on a longer `Retry-After`, and a queue is another one after a minute. When a budget is refilled is known.
const LONGEST: Duration = Duration::from_secs(60);

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

impl ApiError {
    /// No place at a backend.
    pub(crate) fn not_admitted(refusal: &Refusal, rules: Rules) -> Self {
        let Refusal { why, expected, waiting } = *refusal;
        let (most, timeout) = (rules.queue, rules.queue_timeout);
        let again = match why {
            Why::BudgetSpent => expected,
            Why::WaitTooLong => expected.saturating_sub(timeout).min(LONGEST),
            Why::QueueFull | Why::Displaced | Why::TimedOut => expected.min(LONGEST),
        };
        let again = whole_seconds(again).max(1);
        let (place, timeout) = (whole_seconds(expected), timeout.as_secs());
        let (code, what) = match why {
            Why::BudgetSpent => ("budget_spent", "this client's tokens are used up".to_owned()),
            Why::QueueFull => (
                "queue_full",
                format!(
                    "{waiting} requests wait already, the limit is {most}, and none of them comes after this one"
                ),
            ),
            Why::Displaced => (
                "queue_full",
                format!(
                    "the queue of {most} is full, and a request that goes first, or one of a client with fewer in it, took the place"
                ),
            ),
            Why::WaitTooLong => (
                "wait_too_long",
                format!("a place at a backend is expected in {place} s, the limit is {timeout} s"),
            ),
            Why::TimedOut => ("wait_too_long", format!("no place at a backend within {timeout} s")),
        };
        let (status, kind, hint) = match why {
            Why::BudgetSpent => (
                StatusCode::TOO_MANY_REQUESTS,
                "rate_limit_error",
                "wait, or raise token_budget of this [[client]]",
            ),
            _ => (
                StatusCode::SERVICE_UNAVAILABLE,
                "server_error",
                "start another backend, or raise queue and queue_timeout in [admission]",
            ),
        };
        let mut error = Self::new(status, kind, code, format!("{what}; try again in {again} s")).hint(hint);
        error.words.retry_after = Some(again);
        error
    }
}
