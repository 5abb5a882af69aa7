//! A backend that a loader brings onto its cards and takes away: what that means for what is known of it.
//!
//! Being taken away is neither a death nor a restart on purpose: nothing is learned from it but that its caches are empty. A
//! port is no identity: while another backend may answer there, it is not probed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use switchback_policies::facts::BackendState;
use switchback_policies::loading::{Busy, Presence};
use tokio::sync::Notify;

use super::{Backend, client};

/// The loader that says where a backend is.
#[derive(Debug)]
pub(super) struct Attended {
    /// Makes it look again.
    bell: Arc<Notify>,
    /// Other backends may answer at this one's address.
    shares_place: bool,
}

impl Backend {
    /// From now on a loader says whether it is there; `bell` makes that look again. `shares_place`: others may answer at its
    /// address.
    pub(crate) fn attend(&self, bell: Arc<Notify>, shares_place: bool) {
        *self.attended.write() = Some(Attended { bell, shares_place });
    }

    /// Nobody loads it any more: it is there or not by itself.
    pub(crate) fn unattended(&self) {
        *self.attended.write() = None;
        self.change(|health| health.on_presence(None));
    }

    /// Takes where its loader says that it is.
    pub(crate) fn on_presence(&self, presence: Presence) {
        let was_away = self.is_away();
        self.change(|health| health.on_presence(Some(presence)));
        if presence == Presence::Away && !was_away {
            // Coming back by a load is no restart that may have changed it, but its caches are empty.
            self.starts.fetch_add(1, Ordering::Relaxed);
            *self.load.write() = None;
        }
    }

    /// A request that was lost here was lost since it was taken away.
    pub(crate) fn was_taken_away(&self) {
        *self.lost.lock() = None;
    }

    /// It was not taken away: a request that was lost here may have killed it.
    pub(crate) fn was_left_alone(&self) {
        if self.probed() == BackendState::Up {
            // The probe that follows a loss tells.
            return;
        }
        let lost = self.lost.lock().take();
        if let Some(witnessed) = lost {
            self.learn(witnessed);
        }
    }

    /// What probes found, whatever its loader says.
    pub(crate) fn probed(&self) -> BackendState {
        self.health.get().probed()
    }

    /// Looks whether it is there now.
    pub(crate) fn look_again(&self) {
        self.doubt.notify_one();
    }

    /// What runs there: `own` of the proxy, and what the engine tells beyond that.
    pub(crate) fn busy(&self, own: u64) -> Busy {
        let told = self.told_load().map_or(0, |load| load.running + load.waiting);
        Busy { own, others: told.saturating_sub(own) }
    }

    /// Whether anybody accepts connections at its address.
    pub(crate) async fn listens(&self) -> bool {
        let within = self.connect_within.min(Duration::from_secs(2));
        client::listens(self.connector.as_ref(), &self.config.authority, within).await
    }

    fn is_away(&self) -> bool {
        self.state() == BackendState::NotLoaded
    }

    /// It is not there, and who answers at its address may be another backend.
    pub(super) fn is_anothers_place(&self) -> bool {
        self.is_away() && self.attended.read().as_ref().is_some_and(|attended| attended.shares_place)
    }

    /// Has its loader look whether it was taken away; false: it has none.
    pub(super) fn asks_loader(&self) -> bool {
        let attended = self.attended.read();
        if let Some(attended) = attended.as_ref() {
            attended.bell.notify_one();
        }
        attended.is_some()
    }
}
