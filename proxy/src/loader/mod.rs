//! Backends that do not all fit at a time: who is on the cards, and how another gets there.
//!
//! Who comes next is decided by `policies::loading`; here it is carried out, by one task for the whole proxy, so that there
//! is never more than one load. Requests wait in their own futures ([`wait`]), as they do for a place: hanging up takes the
//! wish back, and a load that has begun goes on. It must never stop a backend under an answer, nor learn from its own
//! stopping.

mod command;
mod driver;
mod left;
mod llama_swap;
mod model_switch;
mod process;
mod program;
mod service;
mod wait;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use switchback_policies::facts::Loaded;
use switchback_policies::loading::{Cards, Ended, Index, Loadable, Offer, Presence, Rules, Ticket};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

pub(crate) use self::command::Processes;
pub(crate) use self::driver::Trouble;
use self::driver::{AGAIN, Driver};
pub(crate) use self::program::cannot_start;
pub(crate) use self::wait::{NotThere, first_to_load, may_load, until_there};
use crate::admission::WaitingRoom;
use crate::backend::client::Connect;
use crate::backend::{Backend, Fleet};
use crate::cliffs::CliffMaps;
use crate::config::{self, Config};
use crate::telemetry::metrics::Metrics;

/// Rounds up.
const NEARLY_A_SECOND: Duration = Duration::from_millis(999);

/// A loader at work. Dropping it ends its task; what it has loaded stays.
#[derive(Debug)]
pub(crate) struct Loader {
    inner: Arc<Inner>,
    task: Mutex<Option<AbortHandle>>,
}

#[derive(Debug)]
struct Inner {
    config: config::Loader,
    probe: config::Probe,
    backends: Vec<Arc<Backend>>,
    driver: Driver,
    cards: Mutex<Cards>,
    /// Why the last load of each failed, for clients.
    troubles: Mutex<Vec<String>>,
    /// Changes with all that may matter to those who wait.
    changed: watch::Sender<u64>,
    /// Looks that were made since the start.
    looked: watch::Sender<u64>,
    /// The driver has told where all are, once at least.
    told: AtomicBool,
    /// Why it did not at the last look.
    trouble: Mutex<Option<Trouble>>,
    /// Somebody wants it to look again now.
    bell: Arc<Notify>,
    /// The number of the next wish.
    tickets: AtomicU64,
    started: Instant,
    admission: Arc<WaitingRoom>,
    processes: Arc<Processes>,
    metrics: Arc<Metrics>,
    cliffs: Arc<CliffMaps>,
}

impl Drop for Loader {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

/// What a loader shares with the rest of the proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) connector: &'a Arc<dyn Connect>,
    pub(crate) admission: &'a Arc<WaitingRoom>,
    pub(crate) processes: &'a Arc<Processes>,
    pub(crate) metrics: &'a Arc<Metrics>,
    /// Where load times are kept.
    pub(crate) cliffs: &'a Arc<CliffMaps>,
}

impl Loader {
    /// The loader of a configuration, if it has one. `former` goes on if nothing of it has changed.
    pub(crate) fn of(
        config: &Config,
        fleet: &Fleet,
        former: Option<&Arc<Self>>,
        around: Surroundings<'_>,
    ) -> Option<Arc<Self>> {
        let loaded = |backend: &&Arc<Backend>| config.loader.is_some() && backend.config.load.is_some();
        for backend in fleet.all().iter().filter(|backend| !loaded(backend)) {
            backend.unattended();
        }
        let loader = config.loader.clone()?;
        let backends: Vec<Arc<Backend>> = fleet.all().iter().filter(loaded).cloned().collect();
        let same = |former: &&Arc<Self>| {
            let own = &former.inner.backends;
            former.inner.config == loader
                && own.len() == backends.len()
                && own.iter().zip(&backends).all(|(one, other)| Arc::ptr_eq(one, other))
        };
        if let Some(former) = former.filter(same) {
            return Some(Arc::clone(former));
        }
        let loadable = |backend: &Arc<Backend>| {
            let load = backend.config.load.as_ref()?;
            let seen = around.cliffs.load_time(backend.name());
            Some(Loadable { cards: load.cards.clone(), expected: load.time, seen })
        };
        let loadables = backends.iter().filter_map(loadable).collect();
        let bell = Arc::new(Notify::new());
        for backend in &backends {
            let own = &backend.config;
            let same_place = |other: &&Arc<Backend>| {
                other.config.authority == own.authority && other.config.prefix == own.prefix
            };
            let through_swap = matches!(loader.driver, config::Driver::LlamaSwap(_));
            backend.attend(bell.clone(), through_swap || backends.iter().filter(same_place).count() > 1);
            // Nobody is asked before it is known who is there.
            backend.on_presence(Presence::Away);
        }
        let inner = Inner {
            driver: Driver::new(&loader.driver, &backends, around.connector, around.processes),
            cards: Mutex::new(Cards::new(loader.rules, loadables)),
            troubles: Mutex::new(vec![String::new(); backends.len()]),
            changed: watch::Sender::default(),
            looked: watch::Sender::default(),
            told: AtomicBool::new(false),
            trouble: Mutex::default(),
            bell,
            tickets: AtomicU64::new(0),
            started: Instant::now(),
            admission: around.admission.clone(),
            processes: around.processes.clone(),
            metrics: around.metrics.clone(),
            cliffs: around.cliffs.clone(),
            probe: config.probe,
            config: loader,
            backends,
        };
        Some(Arc::new(Self { inner: Arc::new(inner), task: Mutex::default() }))
    }

    /// Starts to work, once.
    pub(crate) fn start(&self) {
        let mut task = self.task.lock();
        if task.is_none() {
            *task = Some(tokio::spawn(Arc::clone(&self.inner).run()).abort_handle());
        }
    }

    /// Looks once who is there, without loading anything.
    pub(crate) async fn look(&self) {
        self.inner.look().await;
    }

    /// Who it is, for people.
    pub(crate) fn name(&self) -> String {
        self.inner.config.driver.to_string()
    }

    /// What it goes by, and how long a load may take.
    pub(crate) fn rules(&self) -> (Rules, Duration) {
        (self.inner.config.rules, self.inner.config.load_timeout)
    }

    /// Why it does not tell where backends are, if it does not.
    pub(crate) fn last_trouble(&self) -> Option<Trouble> {
        self.inner.trouble.lock().clone()
    }

    /// Whether and when a backend is there for a request; `may_load`: others may have to go for it.
    pub(crate) fn loaded(&self, backend: &Arc<Backend>, may_load: bool) -> Loaded {
        let Some(index) = self.inner.index(backend) else { return Loaded::Yes };
        match self.inner.cards.lock().offer(index, may_load, self.inner.now()) {
            Offer::Ready => Loaded::Yes,
            Offer::After(time) => Loaded::After(time.as_secs_f64()),
            Offer::Denied => Loaded::MayNot,
            Offer::Failed(again) => {
                if self.inner.trouble.lock().is_some() {
                    // Who tells where backends are may do so again.
                    self.inner.bell.notify_one();
                }
                Loaded::Failed((again + NEARLY_A_SECOND).as_secs())
            }
        }
    }

    /// Whether a backend is loaded ahead for a conversation that is about to outgrow the one that is there.
    pub(crate) fn moves_ahead(&self) -> bool {
        self.inner.config.ahead
    }

    /// Whether background requests may have a backend loaded.
    pub(crate) fn for_background(&self) -> bool {
        self.inner.config.background
    }

    /// Whether a backend takes requests, as far as the loader is concerned.
    pub(crate) fn admits(&self, backend: &Arc<Backend>) -> bool {
        self.inner.index(backend).is_none_or(|index| self.inner.cards.lock().admits(index))
    }

    /// Why the last load of a backend failed.
    pub(crate) fn trouble(&self, backend: &Arc<Backend>) -> String {
        let index = self.inner.index(backend);
        let own = index.map(|index| self.inner.troubles.lock()[index].clone()).unwrap_or_default();
        let now = self.inner.trouble.lock().clone();
        match now {
            // Nobody can be loaded now, whatever was before.
            Some(trouble) if own.is_empty() || trouble.ended == Ended::Unreachable => trouble.said,
            Some(_) | None if own.is_empty() => own,
            Some(_) | None => {
                let cards = self.inner.cards.lock();
                let back = cards.comes_back().map(|index| self.inner.backends[index].name());
                let back: Vec<&str> = back.collect();
                match back.as_slice() {
                    [] => own,
                    back => format!("{own}; what was there before, {}, comes back", back.join(", ")),
                }
            }
        }
    }

    /// After a fault that a backend's end could explain: whether somebody has taken it away.
    pub(crate) async fn was_taken_away(&self, backend: &Arc<Backend>) -> bool {
        let Some(index) = self.inner.index(backend) else { return false };
        let mut looked = self.inner.looked.subscribe();
        let patience = Instant::now() + 4 * AGAIN;
        // It takes two looks to be believed to be gone.
        for look in 0..2 {
            tokio::time::sleep(look * AGAIN / 2).await;
            looked.mark_unchanged();
            self.inner.bell.notify_one();
            if tokio::time::timeout_at(patience, looked.changed()).await.is_err() {
                break;
            }
            if self.inner.cards.lock().presence(index) != Presence::There {
                return true;
            }
        }
        false
    }
}

impl Inner {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn index(&self, backend: &Arc<Backend>) -> Option<Index> {
        self.backends.iter().position(|own| Arc::ptr_eq(own, backend))
    }

    fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }
}
