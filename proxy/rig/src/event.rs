//! The event log: what happened to a simulated backend, with simulated times.
//!
//! Tests ask the log what a client can't see (was the prefill cancelled, who killed the engine), and wait for
//! entries instead of sleeping. It is bounded: a rig that serves for days keeps the last [`KEPT`] entries. It must
//! never influence what the rig does.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;

/// How many events a log keeps.
pub const KEPT: usize = 65_536;

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Its number, from 0, without gaps.
    pub number: u64,
    /// Simulated seconds since the clock's epoch.
    pub at: f64,
    /// Which inference request, numbered from 1 in the order of arrival; none for the engine's own events.
    pub request: Option<u64>,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EventKind {
    /// An inference request was read and counted.
    Arrived {
        /// Prompt tokens, by the rig's own count.
        prompt_tokens: usize,
        /// Whether a stream was asked for.
        stream: bool,
    },
    /// It was answered with an error before it reached the engine.
    Refused {
        /// The HTTP status.
        status: u16,
    },
    /// It got a slot, and its prefill began.
    PrefillStarted,
    /// The cache saved a part of its prefill.
    CacheHit {
        /// Prompt tokens that need not be computed.
        tokens: usize,
    },
    /// The KV pool was full: it lost its slot, and is computed again when there is room.
    Preempted,
    /// Its prefill is over and its first token is out.
    FirstToken,
    /// Its answer is complete.
    Finished {
        /// Tokens of the answer.
        completion_tokens: usize,
        /// The finish reason.
        reason: &'static str,
    },
    /// The script let it fall silent.
    Stalled {
        /// Tokens sent before.
        completion_tokens: usize,
    },
    /// The script broke its connection.
    Broken {
        /// Tokens sent before.
        completion_tokens: usize,
    },
    /// The client hung up, and the work on it was cancelled.
    Cut {
        /// Where it was.
        phase: Phase,
    },
    /// The engine died, and this request with it.
    Lost {
        /// Where it was.
        phase: Phase,
    },
    /// The engine died.
    Died {
        /// The request that killed it; none when it was killed from outside.
        by: Option<u64>,
    },
    /// The engine computes nothing, though it lives; with a request if that made it so.
    Silent,
    /// The engine computes again.
    Resumed,
    /// The process is gone: the port refuses connections.
    Down,
    /// The process is back and loads its model.
    Loading,
    /// The engine serves (again).
    Ready,
}

/// Where a request is in its life on an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Waiting for a slot.
    Queued,
    /// In prefill.
    Prefill,
    /// Producing tokens.
    Decode,
}

/// The log of one rig.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    entries: Mutex<Entries>,
    written: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    next: u64,
    kept: VecDeque<Event>,
}

impl EventLog {
    pub(crate) fn write(&self, at: f64, request: Option<u64>, kind: EventKind) {
        let mut entries = self.entries.lock();
        let number = entries.next;
        entries.next += 1;
        if entries.kept.len() == KEPT {
            entries.kept.pop_front();
        }
        entries.kept.push_back(Event { number, at, request, kind });
        drop(entries);
        self.written.notify_waiters();
    }

    /// The events from `number` on, as far as they are kept.
    pub(crate) fn since(&self, number: u64) -> Vec<Event> {
        let entries = self.entries.lock();
        let first = entries.next - entries.kept.len() as u64;
        let skipped = usize::try_from(number.saturating_sub(first)).unwrap_or(usize::MAX);
        entries.kept.iter().skip(skipped).cloned().collect()
    }

    /// The first event from `number` on that `wanted` accepts; waits for it.
    pub(crate) async fn find(&self, mut number: u64, wanted: impl Fn(&Event) -> bool) -> Event {
        loop {
            let written = self.written.notified();
            tokio::pin!(written);
            written.as_mut().enable();
            for event in self.since(number) {
                number = event.number + 1;
                if wanted(&event) {
                    return event;
                }
            }
            written.await;
        }
    }
}
