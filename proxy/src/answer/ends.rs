//! Which choices of a stream have begun, and which have come to a good end: only that makes an answer whole.
//!
//! Status 200, a clean end and `[DONE]` prove nothing. Must never open a choice again that has ended: usage and empty deltas follow.

use std::collections::BTreeSet;

use switchback_parsers::chunk::{Finish, Said};

/// The choices of one stream.
#[derive(Debug, Default)]
pub(super) struct Ends {
    open: BTreeSet<u64>,
    finished: BTreeSet<u64>,
}

impl Ends {
    /// All choices that have begun came to a good end.
    pub(super) fn is_complete(&self) -> bool {
        !self.finished.is_empty() && self.open.is_empty()
    }

    /// Takes what a frame says; a bad finish reason is handed back.
    pub(super) fn take(&mut self, said: &Said) -> Option<String> {
        for choice in &said.choices {
            match &choice.finish {
                None if self.finished.contains(&choice.index) => {}
                None => {
                    self.open.insert(choice.index);
                }
                Some(Finish::Good(_)) => {
                    self.open.remove(&choice.index);
                    self.finished.insert(choice.index);
                }
                Some(Finish::Bad(reason)) => return Some(reason.chars().take(40).collect()),
            }
        }
        None
    }
}
