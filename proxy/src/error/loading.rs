//! What a client is told whose backend would have to be loaded first, and is not: why, how long it takes, and the way out.

use std::time::Duration;

use http::StatusCode;

use super::ApiError;
use super::presentable::presentable;

/// Seconds. Claude Code gives up on more.
const LONGEST_RETRY_AFTER: u64 = 60;

impl ApiError {
    fn not_loaded(message: String, hint: &str, retry_after: u64) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let mut error = Self::new(status, "server_error", "not_loaded", message).hint(hint);
        error.words.retry_after = Some(retry_after.clamp(1, LONGEST_RETRY_AFTER));
        error
    }

    /// The backend could not be loaded lately; tried again after so many seconds.
    pub(crate) fn load_failed(backend: &str, trouble: &str, again: u64) -> Self {
        let trouble = if trouble.is_empty() { "its load failed" } else { trouble };
        let message = format!("{backend} could not be loaded: {trouble}; that is tried again in {again} s");
        Self::not_loaded(
            message,
            "the proxy's log says more; ask for a model that is loaded, or try again then",
            again,
        )
    }

    /// A request has waited as long as it may. `why`: what stood in the way.
    pub(crate) fn waited_too_long_for_load(backend: &str, waited: Duration, why: &str) -> Self {
        let seconds = waited.as_secs();
        let message = format!(
            "{backend} has to be loaded and was not there after {seconds} s, which is as long as a request waits: {why}"
        );
        Self::not_loaded(
            message,
            "try again, since a load that has begun goes on; or raise wait in [loader]",
            LONGEST_RETRY_AFTER / 4,
        )
    }

    /// The proxy is about to end, and begins no load.
    pub(crate) fn not_loaded_any_more(backend: &str) -> Self {
        let message = format!("{backend} has to be loaded, and this proxy is being stopped");
        Self::not_loaded(message, "try again when it is back", 5)
    }

    /// It would take longer than a request may wait.
    pub(crate) fn load_takes_too_long(backend: &str, expected: Duration, limit: Duration) -> Self {
        let (expected, limit) = (expected.as_secs().max(1), limit.as_secs());
        let message =
            format!("{backend} is expected to be loaded in {expected} s, the limit is {limit} s in all");
        Self::not_loaded(
            message,
            "try again then, or raise wait or lower min_residency in [loader]",
            expected,
        )
    }

    /// As many requests wait for loads as may.
    pub(crate) fn too_many_wait_for_loads(limit: usize) -> Self {
        let message = format!("{limit} requests wait for backends to be loaded, which is the limit");
        Self::not_loaded(message, "try again in a minute, or raise queue in [admission]", LONGEST_RETRY_AFTER)
    }

    /// A background request, or one that only `counts`, whose backend is not loaded.
    pub(crate) fn nothing_is_loaded_for(model: Option<&str>, counts: bool) -> Self {
        let model = presentable(model.unwrap_or("the model"));
        let what = if counts { "to count a prompt" } else { "for a background request" };
        let hint = if counts {
            "try again when it is loaded; a tokenizer under [[model]] counts without any backend"
        } else {
            "try again when it is loaded, or set background = true in [loader], or another class under [[client]]"
        };
        let message = format!("{model} is not loaded, and no other is unloaded {what}");
        Self::not_loaded(message, hint, LONGEST_RETRY_AFTER)
    }
}
