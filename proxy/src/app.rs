//! What all requests share: the configuration, the backends, the vocabularies, what is remembered of sessions, the
//! counters. One value, made at start, passed in; there is no global state.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::backend::client::Connect;
use crate::backend::{Fleet, probe};
use crate::config::Config;
use crate::measure::Vocabularies;
use crate::session::Sessions;
use crate::telemetry::metrics::Metrics;

/// The running proxy's state.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) fleet: Fleet,
    pub(crate) vocabularies: Vocabularies,
    pub(crate) sessions: Sessions,
    pub(crate) metrics: Metrics,
    started: Instant,
}

impl App {
    pub(crate) fn new(config: Config, connector: &Arc<dyn Connect>) -> Self {
        let fleet = Fleet::new(&config, connector);
        let vocabularies = Vocabularies::load(&config.models);
        let sessions = Sessions::new(config.answer.overflow_loop);
        Self { config, fleet, vocabularies, sessions, metrics: Metrics::new(), started: Instant::now() }
    }

    /// Time since the start: the clock of everything that is remembered.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Starts one probe a backend. They end when the set is dropped.
    pub(crate) fn watch(&self) -> JoinSet<()> {
        let mut probes = JoinSet::new();
        let watch = self.config.probe;
        for backend in self.fleet.all() {
            probes.spawn(probe::watch(backend.clone(), watch.interval, watch.timeout));
        }
        probes
    }
}
