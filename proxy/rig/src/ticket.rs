//! A request's work as an engine takes it, how far it is, and the claim to it.
//!
//! Whoever holds the [`Ticket`] sees the progress; dropping it before the end cancels the work, wherever it is. It must
//! never hold more of the progress than the last of it.

use std::sync::Arc;

use tokio::sync::watch;

use crate::{Phase, answer::Ending, cache::Chain, gpu::Gpu};

/// One request's work.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) prompt_tokens: usize,
    pub(crate) output_tokens: usize,
    pub(crate) ending: Ending,
    /// Chance for everything that concerns it.
    pub(crate) seed: u64,
    /// The hashes of its prompt and its answer.
    pub(crate) chain: Chain,
    pub(crate) conversation: Option<u64>,
    /// The script has it kill the engine.
    pub(crate) deadly: bool,
}

/// How far a job is. Times are simulated seconds since the clock's epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) phase: Phase,
    /// Prompt tokens that the cache saved.
    pub(crate) cached: usize,
    pub(crate) prefilled: usize,
    pub(crate) decoded: usize,
    pub(crate) prefill_from: f64,
    pub(crate) decode_from: f64,
    /// When this progress was made.
    pub(crate) at: f64,
    pub(crate) end: Option<End>,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Complete,
    Died,
}

/// A job on the engine. Dropping it before its end cancels it.
#[derive(Debug)]
pub(crate) struct Ticket {
    id: u64,
    progress: watch::Receiver<Progress>,
    gpu: Arc<Gpu>,
}

impl Ticket {
    pub(crate) fn new(id: u64, progress: watch::Receiver<Progress>, gpu: Arc<Gpu>) -> Self {
        Self { id, progress, gpu }
    }

    pub(crate) fn now(&mut self) -> Progress {
        *self.progress.borrow_and_update()
    }

    /// The next progress that has not been seen.
    pub(crate) async fn next(&mut self) -> Progress {
        // the sender leaves only after it has sent the end
        let _ended = self.progress.changed().await;
        self.now()
    }

    /// The first progress that `wanted` accepts, or the end.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Progress) -> bool) -> Progress {
        loop {
            let now = self.now();
            if wanted(&now) || now.end.is_some() {
                return now;
            }
            self.next().await;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.gpu.leave(self.id);
    }
}
