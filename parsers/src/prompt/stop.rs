//! When counting ends before the text does: nobody waits any more, or the count is past all that matters.
//!
//! A first count of ten megabytes takes a good part of a second. A client that hung up must not keep a thread for it, and where every
//! backend's limit is far behind, the rest of the number decides nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends a count early. Clones are one: whoever holds one can cancel the count that was given another.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    cancelled: Arc<AtomicBool>,
    limit: Option<u64>,
}

impl Stop {
    /// One that ends a count soon after it has passed `limit` tokens; the result is bounds then.
    pub fn at(limit: Option<u64>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Ends the count as soon as it looks up, which is every few thousand words. It fails then.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Whether so many tokens are enough.
    pub(super) fn is_passed_by(&self, tokens: u64) -> bool {
        self.limit.is_some_and(|limit| tokens > limit)
    }
}
