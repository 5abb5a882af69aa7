//! The listening side: an accept loop of our own, since its limits are ours.
//!
//! HTTP/1.1 and HTTP/2 without TLS on one port. A connection has `read_timeout` for its first head and `idle_timeout` between
//! requests (agents keep sockets for 90 s and take a close for a failure). At `max_connections` the next one waits in
//! the kernel's queue. On shutdown nothing new is accepted, running answers have `drain` to end.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::ServiceExt as _;

use crate::app::Live;
use crate::backend::client::{Connect, Io, Tcp};
use crate::config::{Config, Server};
use crate::hang_up::watched;
use crate::routes::{router, strip_v1};

/// Header fields at which hyper itself refuses a request, without words.
pub(crate) const MAX_HEADERS: usize = 512;

/// The proxy without a listener: it serves whatever byte streams it is given, and reaches its backends through any
/// connector. The listener is one user of it; tests on paused time, over in-memory pipes on both sides, are another.
#[derive(Debug)]
pub struct Service {
    live: Arc<Live>,
    router: Router,
    server: Server,
}

impl Service {
    /// Starts to watch the backends. Needs a tokio runtime.
    #[must_use]
    pub fn new(config: Config, connector: Arc<dyn Connect>) -> Self {
        let server = config.server.clone();
        let live = Arc::new(Live::new(config, connector));
        Self { router: router(live.clone()), live, server }
    }

    /// Changes the configuration; requests that run keep the one that they started with. Where it listens and how many
    /// connections it takes stay as they were at the start.
    pub fn reload(&self, config: Config) {
        self.live.reload(config);
    }

    /// Serves one connection until either side ends it. Dropping the future closes it.
    pub fn connection<T: Io + 'static>(&self, io: T) -> impl Future<Output = ()> + Send + use<T> {
        serve(io, None, self.router.clone(), self.server.clone(), None)
    }
}

/// Servers that belong to the proxy have so much time to end at the least.
const LEAST_GRACE: Duration = Duration::from_secs(5);

/// Where a request comes from, as an extension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// A bound proxy. Serves until [`Proxy::shut_down`]; dropping it closes everything at once.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    live: Arc<Live>,
    stop: watch::Sender<bool>,
    serving: JoinSet<()>,
}

impl Proxy {
    /// Binds the configured address and serves.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn start(config: Config) -> std::io::Result<Self> {
        let listener = TcpListener::bind(config.server.listen).await?;
        let address = listener.local_addr()?;
        let service = Service::new(config, Arc::new(Tcp));
        let live = service.live.clone();
        let (stop, stopped) = watch::channel(false);
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, service, stopped));
        Ok(Self { address, live, stop, serving })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the configuration, as [`Service::reload`] does.
    pub fn reload(&self, config: Config) {
        self.live.reload(config);
    }

    /// Stops to accept, gives up loads, and waits until running answers have ended, but no longer than `drain`. Servers that
    /// belong to it have the rest of that time to end, and a few seconds at least.
    pub async fn shut_down(mut self) {
        let app = self.live.app();
        let until = Instant::now() + app.config.server.drain;
        app.processes.no_more();
        self.stop.send_replace(true);
        while self.serving.join_next().await.is_some() {}
        let app = self.live.app();
        app.cliffs.save();
        app.processes.end(until.saturating_duration_since(Instant::now()).max(LEAST_GRACE)).await;
    }
}

impl Drop for Proxy {
    /// What belongs to it does not outlive it, whatever becomes of the runtime.
    fn drop(&mut self) {
        self.live.app().processes.let_go();
    }
}

async fn accept(listener: TcpListener, service: Service, mut stopped: watch::Receiver<bool>) {
    let server = &service.server;
    let places = Arc::new(Semaphore::new(server.max_connections));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        let next = async {
            let place = places.clone().acquire_owned().await.ok()?;
            listener.accept().await.ok().map(|(stream, peer)| (stream, peer.ip(), place))
        };
        let next = tokio::select! {
            next = next => next,
            _ = stopped.wait_for(|stopped| *stopped) => break,
        };
        match next {
            Some((stream, peer, place)) => {
                // Without it small frames wait for the client's acknowledgement.
                let _ = stream.set_nodelay(true);
                let (router, server) = (service.router.clone(), server.clone());
                let connection = serve(stream, Some(peer), router, server, Some(graceful.watcher()));
                connections.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            // Out of file descriptors, or a connection that died while queued: let others end first.
            None => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    tracing::info!(connections = graceful.count(), drain = ?server.drain, "shutting down");
    if tokio::time::timeout(server.drain, graceful.shutdown()).await.is_err() {
        tracing::warn!(connections = connections.len(), "answers that did not end in time are cut");
    }
}

async fn serve(
    io: impl Io + 'static,
    peer: Option<IpAddr>,
    router: Router,
    server: Server,
    watcher: Option<Watcher>,
) {
    let (io, watch) = watched(io);
    let first_head = Arc::new(AtomicBool::new(false));
    let seen = first_head.clone();
    let service = service_fn(move |request: http::Request<Incoming>| {
        seen.store(true, Ordering::Relaxed);
        let mut request = strip_v1(request.map(axum::body::Body::new));
        if let Some(peer) = peer {
            request.extensions_mut().insert(Peer(peer));
        }
        router.clone().oneshot(request)
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // In hyper this also bounds the wait for the next request of a connection.
        .header_read_timeout(server.idle_timeout)
        .max_headers(MAX_HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(server.idle_timeout / 2))
        .keep_alive_timeout(server.read_timeout);
    let connection = builder.serve_connection(TokioIo::new(io), service);
    let connection = async {
        match watcher {
            Some(watcher) => watcher.watch(connection.into_owned()).await,
            None => connection.await,
        }
    };
    let too_slow = async {
        tokio::time::sleep(server.read_timeout).await;
        if first_head.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        ended = connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "connection ended");
            }
        }
        // Whatever is still being answered is for nobody now.
        () = watch.hung_up() => tracing::debug!("client hung up"),
        () = too_slow => tracing::debug!("no request arrived on a new connection in time"),
    }
}
