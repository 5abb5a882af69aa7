//! Backends as they run: what was configured, what was found out, and whether they are there now.
//!
//! [`Fleet`] is the list, in the order of the configuration; positions in it are the indexes that the policies use.
//! What a probe finds fills what the configuration leaves open and never overrides it.

pub(crate) mod client;
pub(crate) mod decode;
pub(crate) mod headers;
pub(crate) mod probe;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::Full;
use parking_lot::RwLock;
use switchback_parsers::diagnosis::Engine;
use switchback_policies::facts::{BackendFacts, BackendState};
use switchback_policies::failover::{self, Fault};
use switchback_policies::health::{Health, Probe};
use tokio::sync::watch;

use self::client::{ClientError, Connect, Reply};
pub(crate) use self::probe::{Found, Load};
use crate::config;

/// One backend.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) config: config::Backend,
    found: RwLock<Found>,
    /// As of the last probe; `None` if that did not tell.
    load: RwLock<Option<Load>>,
    health: watch::Sender<Health>,
    connector: Arc<dyn Connect>,
    connect_within: Duration,
}

impl Backend {
    fn new(config: config::Backend, connector: Arc<dyn Connect>, connect_within: Duration) -> Self {
        let health = watch::Sender::new(Health::default());
        let (found, load) = (RwLock::default(), RwLock::default());
        Self { config, found, load, health, connector, connect_within }
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    pub(crate) fn engine(&self) -> Engine {
        self.config.engine.or(self.found.read().engine).unwrap_or(Engine::Other)
    }

    pub(crate) fn window(&self) -> Option<u64> {
        self.config.window.or(self.found.read().window)
    }

    pub(crate) fn state(&self) -> BackendState {
        self.health.borrow().state()
    }

    /// The names that it serves: the configured one, else what it says.
    pub(crate) fn names(&self) -> Vec<String> {
        match &self.config.model {
            Some(model) => vec![model.clone()],
            None => self.found.read().names.clone(),
        }
    }

    /// The name to ask this backend for when a client asks for `asked`; `None` if that very name will do.
    pub(crate) fn name_for(&self, asked: Option<&str>) -> Option<String> {
        let names = self.names();
        if asked.is_some_and(|asked| names.iter().any(|name| name == asked)) {
            return None;
        }
        names.into_iter().next()
    }

    /// What a decision needs to know.
    pub(crate) fn facts(&self) -> BackendFacts {
        BackendFacts {
            single: self.config.single,
            state: self.state(),
            images: self.config.images,
            ..BackendFacts::new(&self.config.name, self.window())
        }
    }

    /// Opens a connection and sends one request; `path` starts with `/v1` or is one of the engine's own.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Reply, ClientError> {
        let uri = format!("{}{path}", self.config.prefix);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        // A path that is no path cannot come from the router; the engine would answer it with 404 all the same.
        *request.uri_mut() = uri.parse().unwrap_or_default();
        *request.headers_mut() = headers;
        client::send(self.connector.as_ref(), &self.config.authority, self.connect_within, request).await
    }

    /// Takes what a probe found.
    pub(crate) fn on_probe(&self, probe: Probe, found: Option<Found>) {
        if let Some(found) = found {
            let mut known = self.found.write();
            if *known != found {
                tracing::info!(
                    backend = self.name(),
                    engine = %found.engine.unwrap_or(Engine::Other),
                    window = found.window,
                    names = found.names.join(","),
                    "backend describes itself",
                );
                *known = found;
            }
        }
        self.change(|health| health.on_probe(probe));
    }

    /// Takes how busy a probe found it.
    fn on_load(&self, load: Option<Load>) {
        *self.load.write() = load;
    }

    /// Takes a fault that a request met.
    pub(crate) fn on_fault(&self, fault: Fault) {
        if fault == Fault::Loading {
            self.change(Health::on_loading);
        } else if failover::takes_down(fault) {
            self.change(Health::on_gone);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Health)) {
        self.health.send_if_modified(|health| {
            let before = *health;
            change(health);
            if before.state() != health.state() {
                tracing::info!(backend = self.name(), state = %health.state(), was = %before.state(), "backend changed");
            }
            before != *health
        });
    }

    /// Resolves when the backend is in a state that `wanted` accepts.
    pub(crate) async fn until(&self, wanted: impl Fn(BackendState) -> bool) {
        let mut health = self.health.subscribe();
        // The sender lives as long as the backend does, so this ends only by finding what is wanted.
        let _ = health.wait_for(|health| wanted(health.state())).await;
    }
}

/// All backends, in the order of the configuration.
#[derive(Debug)]
pub(crate) struct Fleet {
    backends: Vec<Arc<Backend>>,
}

impl Fleet {
    pub(crate) fn new(config: &config::Config, connector: &Arc<dyn Connect>) -> Self {
        let within = config.failover.connect;
        let backend =
            |backend: &config::Backend| Arc::new(Backend::new(backend.clone(), connector.clone(), within));
        Self { backends: config.backends.iter().map(backend).collect() }
    }

    pub(crate) fn all(&self) -> &[Arc<Backend>] {
        &self.backends
    }

    /// Those at the given positions, in that order.
    pub(crate) fn at(&self, positions: &[usize]) -> Vec<Arc<Backend>> {
        positions.iter().filter_map(|position| self.backends.get(*position).cloned()).collect()
    }
}
