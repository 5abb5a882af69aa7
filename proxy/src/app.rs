//! What all requests share: the configuration, the backends, the vocabularies, what is remembered of sessions, the
//! counters. One value, made at start, passed in; there is no global state.
//!
//! A new configuration makes a new [`App`] that takes over what is still true; requests that run keep the one that they
//! started with, those that wait go on under the new one. [`Live`] holds the current one.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use switchback_policies::debt::Ledger;
use switchback_policies::facts::Loaded;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::admission::WaitingRoom;
use crate::backend::client::Connect;
use crate::backend::{Backend, Fleet, probe};
use crate::cliffs::CliffMaps;
use crate::config::Config;
use crate::loader::{Loader, Processes, Surroundings};
use crate::measure::Vocabularies;
use crate::prefixes::Prefixes;
use crate::prewarm::Prewarm;
use crate::session::Sessions;
use crate::telemetry::metrics::Metrics;

/// The running proxy's state under one configuration.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) fleet: Fleet,
    pub(crate) cliffs: Arc<CliffMaps>,
    /// Prompts that were read again, by anybody.
    pub(crate) debt: Arc<Mutex<Ledger>>,
    pub(crate) vocabularies: Vocabularies,
    pub(crate) sessions: Sessions,
    pub(crate) prefixes: Prefixes,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) admission: Arc<WaitingRoom>,
    pub(crate) prewarm: Arc<Prewarm>,
    /// Who brings backends onto their cards, if somebody does.
    pub(crate) loader: Option<Arc<Loader>>,
    /// What a loader has started and belongs to the proxy.
    pub(crate) processes: Arc<Processes>,
    connector: Arc<dyn Connect>,
    started: Instant,
    /// What came after it, once the configuration was changed.
    successor: OnceLock<Arc<Self>>,
    replaced: Notify,
}

impl App {
    /// Needs a tokio runtime: vocabularies are loaded aside.
    pub(crate) fn new(config: Config, connector: Arc<dyn Connect>) -> Self {
        let cliffs = Arc::new(CliffMaps::open(config.cliffs.clone()));
        let fleet = Fleet::new(&config, &connector, &cliffs, None);
        let (metrics, admission) = (Arc::new(Metrics::new()), WaitingRoom::new(config.admission));
        let folder = config.cliffs.file.as_deref().and_then(Path::parent).map(Path::to_owned);
        let processes = Arc::new(Processes::new(config.server.keys_env.as_deref(), folder));
        let around = Surroundings {
            connector: &connector,
            admission: &admission,
            processes: &processes,
            metrics: &metrics,
            cliffs: &cliffs,
        };
        Self {
            loader: Loader::of(&config, &fleet, None, around),
            processes,
            fleet,
            cliffs,
            debt: Arc::default(),
            vocabularies: Vocabularies::load(&config.models, None),
            prefixes: Prefixes::new(),
            sessions: Sessions::new(config.answer.overflow_loop),
            metrics,
            admission,
            prewarm: Arc::default(),
            config,
            connector,
            started: Instant::now(),
            successor: OnceLock::new(),
            replaced: Notify::new(),
        }
    }

    /// The same under another configuration.
    fn under(&self, config: Config) -> Self {
        let cliffs = self.cliffs.under(config.cliffs.clone());
        self.admission.set_rules(config.admission);
        let fleet = Fleet::new(&config, &self.connector, &cliffs, Some(&self.fleet));
        let around = Surroundings {
            connector: &self.connector,
            admission: &self.admission,
            processes: &self.processes,
            metrics: &self.metrics,
            cliffs: &cliffs,
        };
        Self {
            loader: Loader::of(&config, &fleet, self.loader.as_ref(), around),
            processes: self.processes.clone(),
            fleet,
            cliffs,
            debt: self.debt.clone(),
            vocabularies: Vocabularies::load(&config.models, Some(&self.vocabularies)),
            prefixes: self.prefixes.clone(),
            sessions: self.sessions.under(config.answer.overflow_loop),
            metrics: self.metrics.clone(),
            admission: self.admission.clone(),
            prewarm: self.prewarm.clone(),
            config,
            connector: self.connector.clone(),
            started: self.started,
            successor: OnceLock::new(),
            replaced: Notify::new(),
        }
    }

    /// Another configuration holds from now on.
    fn is_followed_by(&self, next: Arc<Self>) {
        // A configuration is changed once: the next change is one of its successor.
        let _ = self.successor.set(next);
        self.replaced.notify_waiters();
    }

    /// Resolves when another configuration holds.
    pub(crate) async fn is_replaced(&self) {
        // Made before the look, so that no change is missed.
        let told = self.replaced.notified();
        if self.successor.get().is_none() {
            told.await;
        }
    }

    /// The state under the configuration that holds now.
    pub(crate) fn newest(self: &Arc<Self>) -> Arc<Self> {
        let mut app = self.clone();
        while let Some(next) = app.successor.get().cloned() {
            app = next;
        }
        app
    }

    /// Time since the start: the clock of everything that is remembered.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether and when a backend is on its cards for a request; `may_load`: others may have to go for it.
    pub(crate) fn loaded(&self, backend: &Arc<Backend>, may_load: bool) -> Loaded {
        self.loader.as_ref().map_or(Loaded::Yes, |loader| loader.loaded(backend, may_load))
    }

    /// The same, with all backends there: for questions that nobody was asked about.
    pub(crate) fn with_all_loaded(mut self) -> Self {
        self.loader = None;
        for backend in self.fleet.all() {
            backend.unattended();
        }
        self
    }

    /// Probes all backends once, together.
    pub(crate) async fn probe_all(&self) {
        if let Some(loader) = &self.loader {
            loader.look().await;
        }
        let mut probes = JoinSet::new();
        for backend in self.fleet.all() {
            let backend = backend.clone();
            let timeout = self.config.probe.timeout;
            probes.spawn(async move { probe::once(&backend, timeout).await });
        }
        while probes.join_next().await.is_some() {}
    }

    fn watch(&self) -> JoinSet<()> {
        let mut probes = JoinSet::new();
        let watch = self.config.probe;
        for backend in self.fleet.all() {
            probes.spawn(probe::watch(backend.clone(), watch.interval, watch.timeout));
        }
        probes.spawn(self.cliffs.clone().keep());
        probes.spawn(self.prewarm.clone().work());
        let processes = self.processes.clone();
        probes.spawn(async move { processes.end_left().await });
        if let Some(loader) = &self.loader {
            loader.start();
        }
        probes
    }
}

/// The current state, and the probes that keep it true.
#[derive(Debug)]
pub(crate) struct Live {
    current: RwLock<Arc<App>>,
    probes: Mutex<JoinSet<()>>,
}

impl Live {
    pub(crate) fn new(config: Config, connector: Arc<dyn Connect>) -> Self {
        let app = App::new(config, connector);
        Self { probes: Mutex::new(app.watch()), current: RwLock::new(Arc::new(app)) }
    }

    /// The state that a request starts with.
    pub(crate) fn app(&self) -> Arc<App> {
        self.current.read().clone()
    }

    /// Changes the configuration. The listener stays where it is.
    pub(crate) fn reload(&self, config: Config) {
        let former = self.app();
        let app = Arc::new(former.under(config));
        *self.probes.lock() = app.watch();
        *self.current.write() = app.clone();
        // Whoever waits for a place decides again, under the new one.
        former.is_followed_by(app);
    }
}
