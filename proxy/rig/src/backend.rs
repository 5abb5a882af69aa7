//! What all parts of one simulated backend share: its spec, clock, engine, log, script and the state of its process.
//!
//! The process moves the state (`process.rs`), the wires read it. It must never hold a socket.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{Clock, Script, Spec, event::EventLog, gpu::Gpu};

/// Where a process is in its life, and which of its lives that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) boot: u64,
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No process, no port.
    Down,
    /// The port is open, the model is not there yet.
    Loading,
    Ready,
    /// The engine is dead, the API around it is not yet. Once it has seen the death on a plain request, it hastens.
    Dead {
        hastens: bool,
    },
}

#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) spec: Spec,
    pub(crate) clock: Clock,
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) log: Arc<EventLog>,
    pub(crate) script: Mutex<Script>,
    life: Mutex<Life>,
    /// It has changed. Wakes in the order of waiting, which a watch channel does not: runs on paused time can be repeated.
    changed: Notify,
    requests: AtomicU64,
}

impl Backend {
    pub(crate) fn new(spec: Spec, clock: Clock) -> Self {
        let log = Arc::new(EventLog::default());
        Self {
            gpu: Arc::new(Gpu::new(&spec, clock, Arc::clone(&log))),
            script: Mutex::new(spec.script.clone()),
            spec,
            clock,
            log,
            life: Mutex::new(Life { boot: 1, state: State::Down }),
            changed: Notify::new(),
            requests: AtomicU64::new(0),
        }
    }

    /// The number of a new inference request, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn life(&self) -> Life {
        *self.life.lock()
    }

    pub(crate) fn enter(&self, state: State) {
        self.change(|life| life.state = state);
    }

    /// The next process takes its place.
    pub(crate) fn boots(&self) {
        self.change(|life| life.boot += 1);
    }

    fn change(&self, change: impl FnOnce(&mut Life)) {
        change(&mut self.life.lock());
        self.changed.notify_waiters();
    }

    /// Waits until its life is as wanted.
    pub(crate) async fn until(&self, wanted: impl Fn(Life) -> bool) {
        loop {
            // Made before the look, so that no change is missed.
            let changed = self.changed.notified();
            if wanted(self.life()) {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the process of this boot is gone.
    pub(crate) async fn gone(&self, boot: u64) {
        self.until(|life| life.boot != boot || life.state == State::Down).await;
    }

    /// A plain request has seen the engine dead: the API process leaves sooner.
    pub(crate) fn hasten(&self) {
        self.change(|life| {
            if life.state == (State::Dead { hastens: false }) {
                life.state = State::Dead { hastens: true };
            }
        });
    }
}
