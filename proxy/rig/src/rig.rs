//! A running simulated backend, from the outside: start it, reach it, kill it, ask what happened.
//!
//! The handle owns the one task that is the backend, so that dropping it leaves nothing behind: no task, no port, no
//! connection. It must never take part in what the backend does.

use std::{fmt, io, net::SocketAddr, sync::Arc};

use serde::Serialize;
use tokio::{
    io::DuplexStream,
    runtime::Handle,
    sync::mpsc,
    task::{AbortHandle, JoinHandle},
};

use crate::{
    Clock, Event, Script, Spec,
    backend::{Backend, State},
    event::EventLog,
    process::{self, Process},
};

/// Bytes that a connection in memory holds in each direction.
const PIPE: usize = 64 << 10;

/// A running simulated backend. Dropping it stops it at once: its tasks end, its port closes, its connections break.
pub struct Rig {
    addr: SocketAddr,
    backend: Arc<Backend>,
    dial: mpsc::Sender<DuplexStream>,
    task: JoinHandle<()>,
    stop: AbortHandle,
}

/// What a backend carries at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Load {
    /// Requests in a slot.
    pub running: usize,
    /// Requests waiting for one.
    pub waiting: usize,
    /// Tokens in its KV pool: prompts as far as they are in, and output.
    pub resident_tokens: usize,
    /// Context tokens that it has computed since its process began: prompts without what the cache held, also those that
    /// were given up or computed again.
    pub prefilled: usize,
    /// Tokens that it has put out since then.
    pub decoded: usize,
}

impl Rig {
    /// Starts a backend. It takes connections when this returns, unless its spec is `cold`. Port 0 takes a free port,
    /// which it keeps over restarts.
    ///
    /// # Errors
    /// `InvalidInput` if [`Spec::check`] complains, why the address can't be bound, or that there is no tokio runtime.
    pub fn start(spec: Spec, addr: SocketAddr, clock: Clock) -> io::Result<Self> {
        spec.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let listener = process::listen(addr)?;
        let addr = listener.local_addr()?;
        let state = process::first_state(spec.cold, spec.engine);
        let backend = Arc::new(Backend::new(spec, clock));
        if state == State::Ready {
            backend.gpu.boot(&backend.spec);
        }
        backend.enter(state);
        let (dial, dialled) = mpsc::channel(64);
        let process = Process::new(Arc::clone(&backend), addr, listener, dialled);
        let task = runtime.spawn(process.live());
        Ok(Self { addr, backend, dial, stop: task.abort_handle(), task })
    }

    /// Its base URL, without a trailing slash: `http://127.0.0.1:8010`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Where it listens while it is up.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it was started with.
    pub fn spec(&self) -> &Spec {
        &self.backend.spec
    }

    /// A connection in memory instead of a socket: with paused time, only these never lose a race against the clock.
    ///
    /// # Errors
    /// `ConnectionRefused` while the process is down.
    pub async fn connect(&self) -> io::Result<DuplexStream> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        if self.backend.life().state == State::Down {
            return Err(refused());
        }
        let (near, far) = tokio::io::duplex(PIPE);
        self.dial.send(far).await.map_err(|_| refused())?;
        Ok(near)
    }

    /// Kills the engine, as an out-of-memory would: all its requests are lost, and its process follows. No effect on
    /// one that is dead already.
    pub fn kill(&self) {
        self.backend.gpu.kill();
    }

    /// From now on it computes nothing, though it answers probes and takes requests: the silent engine. No effect on a
    /// dead one; a death ends it.
    pub fn silence(&self) {
        self.backend.gpu.silence(true);
    }

    /// Ends its silence.
    pub fn resume(&self) {
        self.backend.gpu.silence(false);
    }

    /// Replaces what is left of its script.
    pub fn script(&self, script: Script) {
        *self.backend.script.lock() = script;
    }

    /// Whether it serves.
    pub fn is_ready(&self) -> bool {
        self.backend.life().state == State::Ready
    }

    /// Its log, for whoever can't hold the rig while waiting.
    pub(crate) fn watch(&self) -> Arc<EventLog> {
        Arc::clone(&self.backend.log)
    }

    /// What it carries now.
    pub fn load(&self) -> Load {
        self.backend.gpu.load()
    }

    /// The events so far, oldest first; the log keeps the last [`crate::KEPT`].
    pub fn events(&self) -> Vec<Event> {
        self.events_since(0)
    }

    /// The events from the one with this number on.
    pub fn events_since(&self, number: u64) -> Vec<Event> {
        self.backend.log.since(number)
    }

    /// The first event, past or to come, that `wanted` accepts. Waits for ever if there never is one.
    pub async fn event(&self, wanted: impl Fn(&Event) -> bool) -> Event {
        self.event_since(0, wanted).await
    }

    /// The same, from the event with this number on.
    pub async fn event_since(&self, number: u64, wanted: impl Fn(&Event) -> bool) -> Event {
        self.backend.log.find(number, wanted).await
    }

    /// Stops it and waits until its port is free.
    pub async fn shutdown(mut self) {
        self.stop.abort();
        // aborted is how it ends
        let _aborted = (&mut self.task).await;
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.abort();
    }
}

impl fmt::Debug for Rig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, life) = (&self.backend.spec.name, self.backend.life());
        f.debug_struct("Rig").field("name", name).field("addr", &self.addr).field("life", &life).finish()
    }
}
