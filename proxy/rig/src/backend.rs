//! What all parts of one simulated backend share: its spec, clock, engine, log, script and the state of its process.
//!
//! The process moves the state (`process.rs`), the wires read it. It must never hold a socket.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use tokio::sync::watch;

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
    pub(crate) life: watch::Sender<Life>,
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
            life: watch::Sender::new(Life { boot: 1, state: State::Down }),
            requests: AtomicU64::new(0),
        }
    }

    /// The number of a new inference request, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn life(&self) -> Life {
        *self.life.borrow()
    }

    pub(crate) fn enter(&self, state: State) {
        self.life.send_modify(|life| life.state = state);
    }

    /// Waits until the process of this boot is gone.
    pub(crate) async fn gone(&self, boot: u64) {
        let gone = |life: &Life| life.boot != boot || life.state == State::Down;
        let mut life = self.life.subscribe();
        // the sender is in self: the wait can't fail
        drop(life.wait_for(gone).await);
    }

    /// A plain request has seen the engine dead: the API process leaves sooner.
    pub(crate) fn hasten(&self) {
        self.life.send_if_modified(|life| {
            let hastens = life.state == State::Dead { hastens: false };
            if hastens {
                life.state = State::Dead { hastens: true };
            }
            hastens
        });
    }
}
