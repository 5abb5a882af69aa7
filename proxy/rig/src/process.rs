//! The process of a simulated backend: its port, its connections, its death and its return.
//!
//! One task lives through it all: load, serve until the engine dies, go the way the real server goes, come back.
//! vLLM's API outlives its engine by a moment (error events, 500s, `/health` 503) and then refuses connections;
//! the others abort, and every socket is reset in the same instant. It must never know what travels on a
//! connection.

use std::{
    future::pending,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    Engine, EventKind,
    backend::{Backend, State},
    wire,
};

/// Simulated seconds that vLLM's API outlives its engine: until its watchdog looks, or a plain request has seen it.
/// Both measured.
const WATCHDOG: f64 = 2.5;
const SEEN: f64 = 0.5;

/// Opens a port for listening. Needs a runtime.
pub(crate) fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(1_024)
}

/// The state that a process starts in.
pub(crate) fn first_state(cold: bool, engine: Engine) -> State {
    match (cold, engine.opens_early()) {
        (false, _) => State::Ready,
        (true, true) => State::Loading,
        (true, false) => State::Down,
    }
}

/// A process and what it holds. Dropping it closes everything.
pub(crate) struct Process {
    pub(crate) backend: Arc<Backend>,
    pub(crate) addr: SocketAddr,
    pub(crate) listener: Option<TcpListener>,
    /// Connections in memory.
    pub(crate) dialled: mpsc::Receiver<DuplexStream>,
    connections: JoinSet<()>,
    /// Set in an abort: the sockets of this boot are reset, not closed.
    aborted: Arc<AtomicBool>,
}

impl Process {
    pub(crate) fn new(
        backend: Arc<Backend>,
        addr: SocketAddr,
        listener: TcpListener,
        dialled: mpsc::Receiver<DuplexStream>,
    ) -> Self {
        let (connections, aborted) = (JoinSet::new(), Arc::default());
        Self { backend, addr, listener: Some(listener), dialled, connections, aborted }
    }

    /// Lives for ever, or until it has died and does not come back.
    pub(crate) async fn live(mut self) {
        let backend = Arc::clone(&self.backend);
        let mut loads = backend.spec.cold;
        loop {
            if loads {
                self.load().await;
                backend.gpu.boot(&backend.spec);
                backend.enter(State::Ready);
            }
            self.log(EventKind::Ready);
            self.serve(backend.gpu.run()).await;
            if !backend.spec.aborts() {
                backend.enter(State::Dead { hastens: false });
                self.serve(watchdog(&backend)).await;
            }
            self.leave();
            match backend.spec.restart_after {
                Some(seconds) => backend.clock.sleep(seconds).await,
                None => {
                    while self.connections.join_next().await.is_some() {}
                    return;
                }
            }
            backend.boots();
            loads = true;
        }
    }

    async fn load(&mut self) {
        let backend = Arc::clone(&self.backend);
        let ready = backend.clock.sleep(backend.spec.load_time);
        self.log(EventKind::Loading);
        if !backend.spec.engine.opens_early() {
            self.listener = None;
            ready.await;
            self.open().await;
        } else {
            self.open().await;
            backend.enter(State::Loading);
            self.serve(ready).await;
        }
    }

    /// Opens the port if it is not open; it may take others a moment to leave it.
    async fn open(&mut self) {
        while self.listener.is_none() {
            match listen(self.addr) {
                Ok(listener) => self.listener = Some(listener),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Takes connections until `end` is over.
    async fn serve<T>(&mut self, end: impl Future<Output = T>) {
        let mut end = pin!(end);
        loop {
            let accepted = async {
                match &self.listener {
                    Some(listener) => listener.accept().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = &mut end => return,
                accepted = accepted => match accepted {
                    Ok((stream, _)) => {
                        // small frames must not wait for acknowledgements
                        let _best_effort = stream.set_nodelay(true);
                        self.take(Socket { stream, aborted: Arc::clone(&self.aborted) });
                    }
                    // no file descriptor left, say: let others finish
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                },
                Some(stream) = self.dialled.recv() => self.take(stream),
                Some(_) = self.connections.join_next() => {}
            }
        }
    }

    fn take(&mut self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        self.connections.spawn(converse(stream, Arc::clone(&self.backend)));
    }

    /// The process goes, the way its engine goes.
    fn leave(&mut self) {
        self.listener = None;
        if self.backend.spec.aborts() {
            self.aborted.store(true, Ordering::Relaxed);
            self.aborted = Arc::default();
            self.connections.abort_all();
        }
        self.backend.enter(State::Down);
        while self.dialled.try_recv().is_ok() {}
        self.log(EventKind::Down);
    }

    fn log(&self, kind: EventKind) {
        self.backend.log.write(self.backend.clock.now(), None, kind);
    }
}

/// Waits until vLLM's API leaves after its engine.
async fn watchdog(backend: &Backend) {
    let seen = async {
        backend.until(|life| life.state == State::Dead { hastens: true }).await;
        backend.clock.sleep(SEEN).await;
    };
    tokio::select! {
        biased;
        () = backend.clock.sleep(WATCHDOG) => {}
        () = seen => {}
    }
}

/// Serves one connection. When its process goes, what is under way still ends (each answer sees to that).
async fn converse(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, backend: Arc<Backend>) {
    let boot = backend.life().boot;
    let service = service_fn(|request| wire::answer(Arc::clone(&backend), request));
    let mut connection = pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        biased;
        // how a connection ended is the client's business
        _ = connection.as_mut() => return,
        () = backend.gone(boot) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ended = connection.await;
}

/// A TCP connection that its process may reset.
struct Socket {
    stream: TcpStream,
    aborted: Arc<AtomicBool>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.aborted.load(Ordering::Relaxed) {
            // without it the client sees an orderly end, which is also a death
            let _best_effort = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
