//! How a request comes out of one configuration: to its end, or waiting still when that is changed.
//!
//! Why: who waits decides anew under the new configuration, and what it has been through must not be lost on the way: its turn,
//! its bounds, and who has failed it. Nothing that has begun to be answered changes its configuration.

use std::time::Duration;

use crate::error::ApiError;
use crate::retry::Memory;

/// What a request has been through when the configuration is changed while it waits.
pub(super) struct Left {
    pub(super) memory: Memory,
    /// In the queue, over all attempts.
    pub(super) queued: Duration,
    /// Until its backends were loaded.
    pub(super) loaded_in: Duration,
}

/// How a request came out of one configuration.
pub(super) enum Round {
    Ended(Result<(), ApiError>),
    Replaced(Left),
}
