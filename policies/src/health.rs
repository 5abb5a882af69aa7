//! Whether a backend is there: probes and faults in, a state and the time of the next probe out.
//!
//! A probe that times out says nothing (ik_llama and SGLang answer `/health` behind a running prefill); a refused
//! connection says everything. One bad probe is enough, since a request that is sent elsewhere in vain costs little, and
//! one good probe brings the backend back.

use std::time::Duration;

use crate::facts::BackendState;

/// What one probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It answered and is ready.
    Ready,
    /// It answered that it is loading.
    Loading,
    /// Connection refused or reset, or it said that its engine is dead.
    Gone,
    /// No answer in time.
    TimedOut,
}

/// One backend's health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    state: BackendState,
    misses: u32,
}

impl Health {
    /// Where it stands now.
    #[must_use]
    pub fn state(self) -> BackendState {
        self.state
    }

    /// Takes a probe's result. A time-out keeps the state, except for a backend that was never seen.
    pub fn on_probe(&mut self, probe: Probe) {
        self.state = match probe {
            Probe::Ready => BackendState::Up,
            Probe::Loading => BackendState::Loading,
            Probe::Gone => BackendState::Down,
            Probe::TimedOut if self.state == BackendState::Unknown => BackendState::Down,
            Probe::TimedOut => self.state,
        };
        self.misses = if self.state == BackendState::Down { self.misses.saturating_add(1) } else { 0 };
    }

    /// Takes a fault that says that the backend is gone.
    pub fn on_gone(&mut self) {
        self.state = BackendState::Down;
    }

    /// Takes an answer that says that it is loading.
    pub fn on_loading(&mut self) {
        self.state = BackendState::Loading;
    }

    /// How long to wait before the next probe: the usual interval while it is up, at most a second while it is loading
    /// or has just gone, and slowly longer (to twice the interval) while it stays away.
    #[must_use]
    pub fn next_probe(self, interval: Duration) -> Duration {
        let quick = interval.min(Duration::from_secs(1));
        match self.state {
            BackendState::Up => interval,
            BackendState::Unknown | BackendState::Loading => quick,
            BackendState::Down => (quick * (1 + self.misses / 4)).min(interval * 2),
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
        health.on_gone();
        assert_eq!(health.state(), BackendState::Down);
        health.on_probe(Probe::Ready);
        assert_eq!(health.state(), BackendState::Up);
        assert_eq!(health.next_probe(Duration::from_secs(5)), Duration::from_secs(5));
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
