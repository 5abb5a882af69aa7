//! Who brings backends onto their cards: one of three drivers, asked where they are and told to load one.
//!
//! A driver never decides: whose turn it is, and that nobody is served where it stops something, is settled before. What it
//! says of a failure is in two texts, one for the client and one for the log, since a client must see no insides.

use std::sync::Arc;
use std::time::Duration;

use switchback_policies::loading::{Ended, Index, Job, Presence};
use tokio::time::Instant;

use super::command::{Command, Processes};
use super::llama_swap::LlamaSwap;
use super::model_switch::ModelSwitch;
use crate::backend::Backend;
use crate::backend::client::Connect;
use crate::config;

/// Between two questions whether something has changed.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// Why a load failed, or where backends are is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// For clients: what happened and, if there is one, the way out.
    pub(crate) said: String,
    /// For the log.
    pub(crate) detail: String,
    /// What became of the load.
    pub(crate) ended: Ended,
}

impl Trouble {
    pub(super) fn new(said: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { said: said.into(), detail: detail.into(), ended: Ended::Failed }
    }

    /// It came before anybody was stopped.
    pub(super) fn before(self) -> Self {
        Self { ended: Ended::NotBegun, ..self }
    }

    /// The same of a question that changes nothing, whose answer did not come.
    pub(super) fn in_vain(self) -> Self {
        if self.ended == Ended::Failed { self.unreachable() } else { self }
    }

    /// It came when somebody had been stopped already.
    pub(super) fn after(self) -> Self {
        Self { ended: Ended::Failed, ..self }
    }

    /// Whoever carries loads out cannot be reached: nobody was stopped, and it may be there soon.
    pub(super) fn unreachable(self) -> Self {
        Self { ended: Ended::Unreachable, ..self }
    }

    /// Somebody else is loading: it is not the time.
    pub(super) fn deferred(self) -> Self {
        Self { ended: Ended::Deferred, ..self }
    }
}

/// Where a backend is, as its driver tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// There, or not.
    Is(Presence),
    /// As its own probe finds it.
    AsProbed,
    /// Nothing new is known.
    AsBefore,
}

/// Where all backends are.
#[derive(Debug)]
pub(super) struct Found {
    /// For each of them.
    pub(super) told: Vec<Told>,
    /// Why not everything was told.
    pub(super) trouble: Option<Trouble>,
}

impl Found {
    /// Where this one is, if that was told.
    pub(super) fn presence(&self, index: Index) -> Option<Presence> {
        match self.told.get(index) {
            Some(Told::Is(presence)) => Some(*presence),
            Some(Told::AsProbed | Told::AsBefore) | None => None,
        }
    }
}

/// The driver of a loader; positions are those of its own list of backends.
#[derive(Debug)]
pub(super) enum Driver {
    ModelSwitch(ModelSwitch),
    LlamaSwap(LlamaSwap),
    Command(Command),
}

impl Driver {
    pub(super) fn new(
        driver: &config::Driver,
        backends: &[Arc<Backend>],
        connector: &Arc<dyn Connect>,
        processes: &Arc<Processes>,
    ) -> Self {
        match driver {
            config::Driver::ModelSwitch(service) => {
                Self::ModelSwitch(ModelSwitch::new(service.clone(), connector.clone(), backends))
            }
            config::Driver::LlamaSwap(service) => {
                Self::LlamaSwap(LlamaSwap::new(service.clone(), connector.clone(), backends))
            }
            config::Driver::Command => Self::Command(Command::new(backends, processes.clone())),
        }
    }

    /// Where each backend is.
    pub(super) async fn look(&self) -> Found {
        let (looked, all) = match self {
            Self::ModelSwitch(driver) => (driver.look().await, driver.count()),
            Self::LlamaSwap(driver) => (driver.look().await, driver.count()),
            Self::Command(driver) => return driver.look().await,
        };
        match looked {
            Ok(looked) => Found { told: looked.into_iter().map(Told::Is).collect(), trouble: None },
            Err(trouble) => Found { told: vec![Told::AsBefore; all], trouble: Some(trouble) },
        }
    }

    /// Stops who has to go and starts who is to come. It need not be ready yet when this returns.
    pub(super) async fn load(&self, job: &Job, until: Instant) -> Result<(), Trouble> {
        match self {
            Self::ModelSwitch(driver) => driver.load(job.target, until).await,
            Self::LlamaSwap(driver) => driver.load(job, until).await,
            Self::Command(driver) => driver.load(job, until).await,
        }
    }

    /// Resolves if what was started has failed before it was ready.
    pub(super) async fn broke(&self, target: Index) -> Trouble {
        match self {
            Self::Command(driver) => driver.broke(target).await,
            Self::ModelSwitch(_) | Self::LlamaSwap(_) => std::future::pending().await,
        }
    }

    /// What is left of a load that failed is taken away.
    pub(super) async fn clear(&self, target: Index) {
        if let Self::Command(driver) = self {
            driver.clear(target).await;
        }
    }
}
