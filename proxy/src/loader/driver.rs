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

    /// Somebody else is loading: it is not the time.
    pub(super) fn deferred(self) -> Self {
        Self { ended: Ended::Deferred, ..self }
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

    /// Where each backend is; `None`: as its probe finds it.
    pub(super) async fn look(&self) -> Result<Vec<Option<Presence>>, Trouble> {
        match self {
            Self::ModelSwitch(driver) => driver.look().await,
            Self::LlamaSwap(driver) => driver.look().await,
            Self::Command(driver) => Ok(driver.look().await),
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
