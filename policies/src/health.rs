//! Whether a backend is there: probes and faults in, a state and the time of the next probe out.
//!
//! A probe that times out says nothing (ik_llama and SGLang answer `/health` behind a running prefill); a refused
//! connection says everything. One bad probe is enough, since a request that is sent elsewhere in vain costs little, and
//! one good probe brings the backend back. A server that is being stopped is the exception: vLLM answers `/health` with 200 until
//! its last second, so it takes a row of good probes before it gets work again.

use std::time::Duration;

use crate::facts::BackendState;
use crate::loading::Presence;

/// What one probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It answered and is ready.
    Ready,
    /// It answered that it is loading.
    Loading,
    /// Connection refused or reset.
    Gone,
    /// It answered that its engine is dead.
    Dead,
    /// No answer in time.
    TimedOut,
}

/// Good probes, a second apart, after which a server that seemed to stop is believed to go on.
const GOES_ON: u32 = 10;

/// One backend's health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    state: BackendState,
    /// Probes that found it in this state since it is in it.
    probes: u32,
    /// Where a loader says that it is; what probes find is theirs to tell only of one that is there.
    presence: Option<Presence>,
}

impl Health {
    /// Where it stands now.
    #[must_use]
    pub fn state(self) -> BackendState {
        match self.presence {
            Some(Presence::Away) => BackendState::NotLoaded,
            Some(Presence::Coming) => BackendState::Loading,
            Some(Presence::There) | None => self.state,
        }
    }

    /// What probes and requests found, whatever a loader says.
    #[must_use]
    pub fn probed(self) -> BackendState {
        self.state
    }

    /// Takes where a loader says that it is. What probes found before it went is true no more.
    pub fn on_presence(&mut self, presence: Option<Presence>) {
        let goes = presence != self.presence && !matches!(presence, Some(Presence::There) | None);
        *self = if goes { Self { presence, ..Self::default() } } else { Self { presence, ..*self } };
    }

    /// Takes a probe's result. A time-out keeps the state, except for a backend that was never seen.
    pub fn on_probe(&mut self, probe: Probe) {
        let seen = match probe {
            Probe::Ready if self.state == BackendState::Draining && self.probes < GOES_ON => self.state,
            Probe::Ready => BackendState::Up,
            Probe::Loading => BackendState::Loading,
            Probe::Gone => BackendState::Absent,
            Probe::Dead => BackendState::Dead,
            Probe::TimedOut if self.state == BackendState::Unknown => BackendState::Absent,
            Probe::TimedOut => self.state,
        };
        self.probes = match seen {
            // Nothing counts there, so that a probe that finds nothing new changes nothing.
            BackendState::Unknown | BackendState::Up | BackendState::Loading | BackendState::NotLoaded => 0,
            _ if seen == self.state => self.probes.saturating_add(1),
            _ => 1,
        };
        self.state = seen;
    }

    /// Takes what a request met there ([`crate::failover::shows`]).
    pub fn on_seen(&mut self, state: BackendState) {
        *self = Self { state, probes: 0, ..*self };
    }

    /// How long to wait before the next probe: the usual interval while it is up, at most a second while it is loading,
    /// stopping, or has just gone, and slowly longer (to twice the interval) while it stays away.
    #[must_use]
    pub fn next_probe(self, interval: Duration) -> Duration {
        let quick = interval.min(Duration::from_secs(1));
        match self.state() {
            BackendState::Up | BackendState::NotLoaded => interval,
            BackendState::Unknown | BackendState::Loading | BackendState::Draining => quick,
            BackendState::Absent | BackendState::Dead => (quick * (1 + self.probes / 4)).min(interval * 2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_that_times_out_says_nothing_of_a_backend_that_was_seen() {
        let mut health = Health::default();
        health.on_probe(Probe::Ready);
        health.on_probe(Probe::TimedOut);
        assert_eq!(health.state(), BackendState::Up);
    }

    #[test]
    fn one_good_probe_brings_a_backend_back() {
        let mut health = Health::default();
        health.on_seen(BackendState::Dead);
        assert_eq!(health.state(), BackendState::Dead);
        health.on_probe(Probe::Ready);
        assert_eq!(health.state(), BackendState::Up);
        assert_eq!(health.next_probe(Duration::from_secs(5)), Duration::from_secs(5));
    }

    #[test]
    fn a_server_that_stops_gets_no_work_though_it_says_that_it_is_well_until_it_has_said_so_for_long() {
        let mut health = Health::default();
        health.on_seen(BackendState::Draining);
        for _ in 0..GOES_ON {
            health.on_probe(Probe::Ready);
            assert_eq!(health.state(), BackendState::Draining);
        }
        health.on_probe(Probe::Ready);
        assert_eq!(health.state(), BackendState::Up);
    }

    #[test]
    fn a_server_that_stopped_and_came_back_is_up_at_once() {
        let mut health = Health::default();
        health.on_seen(BackendState::Draining);
        health.on_probe(Probe::Gone);
        assert_eq!(health.state(), BackendState::Absent);
        health.on_probe(Probe::Loading);
        health.on_probe(Probe::Ready);
        assert_eq!(health.state(), BackendState::Up);
    }

    #[test]
    fn a_backend_that_stays_away_is_asked_less_and_less_often_but_never_rarely() {
        let mut health = Health::default();
        for _ in 0..1000 {
            health.on_probe(Probe::Gone);
        }
        assert_eq!(health.next_probe(Duration::from_secs(5)), Duration::from_secs(10));
    }
}
