//! What a client is told that got no place at a backend: why, how long it would take, and where the bound stands.
//!
//! It waited first, or would have had to wait longer than it may; it must never be told less than is true.

use http::StatusCode;
use switchback_policies::admission::{Refusal, Rules, Why};

use super::ApiError;

/// Seconds. Claude Code gives up on more.
const LONGEST_RETRY_AFTER: f64 = 60.0;

impl ApiError {
    /// No place at a backend. Clients give up on a `Retry-After` above a minute, so none says more.
    pub(crate) fn not_admitted(refusal: &Refusal, rules: Rules) -> Self {
        let seconds = refusal.expected.as_secs_f64().ceil().max(1.0);
        let (waiting, most, timeout) = (refusal.waiting, rules.queue, rules.queue_timeout.as_secs());
        let (status, kind, code, message) = match refusal.why {
            Why::BudgetSpent => (
                StatusCode::TOO_MANY_REQUESTS,
                "rate_limit_error",
                "budget_spent",
                format!("this client's tokens are used up for the next {seconds} s"),
            ),
            Why::QueueFull => (
                StatusCode::SERVICE_UNAVAILABLE,
                "server_error",
                "queue_full",
                format!(
                    "{waiting} requests wait already, the limit is {most}; a place is expected in {seconds} s"
                ),
            ),
            Why::Displaced => (
                StatusCode::SERVICE_UNAVAILABLE,
                "server_error",
                "queue_full",
                format!(
                    "the queue of {most} is full, and others in it are waited for; a place is expected in {seconds} s"
                ),
            ),
            Why::WaitTooLong => (
                StatusCode::SERVICE_UNAVAILABLE,
                "server_error",
                "wait_too_long",
                format!("a place at a backend is expected in {seconds} s, the limit is {timeout} s"),
            ),
            Why::TimedOut => (
                StatusCode::SERVICE_UNAVAILABLE,
                "server_error",
                "wait_too_long",
                format!("no place at a backend within {timeout} s; one is expected in {seconds} s"),
            ),
        };
        let hint = match refusal.why {
            Why::BudgetSpent => "wait, or raise token_budget of this [[client]]",
            _ => "try again then, start another backend, or raise queue and queue_timeout in [admission]",
        };
        let mut error = Self::new(status, kind, code, message).hint(hint);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 60")]
        let retry_after = seconds.min(LONGEST_RETRY_AFTER) as u64;
        error.words.retry_after = Some(retry_after);
        error
    }
}
