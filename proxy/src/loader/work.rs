//! The loader's one task: looks where backends are, asks the policy what is next, and carries that out.
//!
//! One job after the other, with the turn in hand that all configurations share. Where backends are is not looked at while one
//! is loaded; requests meanwhile only enter and leave their wishes. Must never leave a job open.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use switchback_policies::facts::BackendState;
use switchback_policies::loading::{Ended, Index, Job, Presence};
use tokio::time::Instant;

use super::Inner;
use super::driver::{AGAIN, Trouble};
use crate::backend::probe;

/// The first pause between two looks whether a backend that is loaded is ready; it grows to [`AGAIN`].
const SOON: Duration = Duration::from_millis(50);

impl Inner {
    pub(super) async fn run(self: Arc<Self>) {
        // Where all are is known only after a load that a former configuration has begun.
        drop(self.processes.turn.lock().await);
        let mut failing = false;
        let mut last = Instant::now();
        let mut look = true;
        loop {
            if look {
                let well = self.look().await;
                if well && failing {
                    tracing::info!(loader = %self.config.driver, "the loader answers again");
                } else if !well && !failing {
                    let detail = self.trouble.lock().clone().unwrap_or_default();
                    tracing::warn!(detail, "the loader does not tell which backends are there");
                }
                failing = !well;
                last = Instant::now();
            }
            if let Some(job) = self.next() {
                self.carry_out(&job).await;
                look = true;
                continue;
            }
            let (waited_for, changes) = {
                let cards = self.cards.lock();
                (cards.is_waited_for(), cards.changes_in(self.now()))
            };
            let pause = if waited_for { AGAIN } else { self.probe.interval };
            // Timers have a grain of a millisecond.
            let changes = changes.map_or(pause, |changes| changes + Duration::from_millis(1));
            look = tokio::select! {
                () = tokio::time::sleep_until(last + pause) => true,
                () = tokio::time::sleep(changes) => false,
                () = self.bell.notified() => true,
                () = self.admission.left.notified() => false,
            };
        }
    }

    /// Asks the driver where all are. False: it does not tell, and what was known stays.
    pub(super) async fn look(&self) -> bool {
        let told = self.driver.look().await;
        let well = told.is_ok();
        *self.trouble.lock() = told.as_ref().err().map(|trouble| trouble.detail.clone());
        let told = match told {
            Ok(told) => {
                self.told.store(true, Ordering::Relaxed);
                Some(told)
            }
            Err(_) if self.told.load(Ordering::Relaxed) => None,
            // Better what the probes find than nobody at all.
            Err(_) => Some(vec![None; self.backends.len()]),
        };
        if let Some(told) = told {
            for (backend, _) in self.backends.iter().zip(&told).filter(|(_, told)| told.is_none()) {
                if backend.probed() == BackendState::Unknown {
                    probe::once(backend, self.probe.timeout).await;
                }
            }
            self.take(&told);
        }
        let cards = self.cards.lock();
        if cards.is_waited_for() {
            // Somebody may have to go: what others have running there should be known before that.
            let there = |index: &Index| cards.presence(*index) == Presence::There;
            (0..self.backends.len()).filter(there).for_each(|index| self.backends[index].look_again());
        }
        drop(cards);
        self.looked.send_modify(|looks| *looks += 1);
        well
    }

    fn take(&self, told: &[Option<Presence>]) {
        let now = self.now();
        let found = |index: Index| told.get(index).copied().flatten().unwrap_or_else(|| self.probed(index));
        let found: Vec<Presence> = (0..self.backends.len()).map(found).collect();
        let mut cards = self.cards.lock();
        for (index, presence) in found.iter().enumerate() {
            cards.seen(index, *presence, now);
            let others = found
                .iter()
                .enumerate()
                .any(|(other, presence)| *presence != Presence::Away && cards.excludes(index, other));
            if *presence == Presence::Away && others {
                // Another is in its place, so this was no flicker.
                cards.seen(index, *presence, now);
                self.backends[index].was_taken_away();
            } else if *presence != Presence::Away {
                self.backends[index].was_left_alone();
            }
        }
        drop(cards);
        self.publish();
    }

    /// Where a backend's own probes find it.
    fn probed(&self, index: Index) -> Presence {
        match self.backends[index].probed() {
            BackendState::Up | BackendState::Draining | BackendState::Dead => Presence::There,
            BackendState::Loading => Presence::Coming,
            BackendState::Absent | BackendState::Unknown | BackendState::NotLoaded => Presence::Away,
        }
    }

    /// Tells the backends and those who wait what has become true.
    fn publish(&self) {
        let cards = self.cards.lock();
        for (index, backend) in self.backends.iter().enumerate() {
            backend.on_presence(cards.presence(index));
        }
        drop(cards);
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// What is to be done now.
    fn next(&self) -> Option<Job> {
        let now = self.now();
        let mut cards = self.cards.lock();
        for (index, backend) in self.backends.iter().enumerate() {
            let own = self.admission.load(backend.name()).running;
            cards.runs(index, backend.busy(own), now);
        }
        let job = cards.next(now);
        drop(cards);
        if job.is_some() {
            self.publish();
        }
        job
    }

    async fn carry_out(&self, job: &Job) {
        let backend = &self.backends[job.target];
        let stopped: Vec<&str> = job.stop.iter().map(|index| self.backends[*index].name()).collect();
        let why = if job.back { "it was there before a load that failed" } else { "requests wait for it" };
        tracing::info!(backend = backend.name(), instead_of = stopped.join(", "), why, "loading a backend");
        let begun = Instant::now();
        // A former configuration's load may still be under way.
        let turn = self.processes.turn.lock().await;
        let until = Instant::now() + self.config.load_timeout;
        let outcome = self.load(job, until).await;
        let seconds = begun.elapsed().as_secs_f64();
        let ended = match outcome {
            Ok(()) => {
                tracing::info!(backend = backend.name(), seconds, "backend is loaded");
                Ended::Loaded
            }
            Err(trouble @ Trouble { ended: Ended::Deferred, .. }) => {
                tracing::info!(
                    backend = backend.name(),
                    detail = trouble.detail,
                    "load put off: {}",
                    trouble.said
                );
                trouble.ended
            }
            Err(trouble) => {
                if trouble.ended == Ended::Failed {
                    self.driver.clear(job.target).await;
                }
                let (said, detail) = (&trouble.said, &trouble.detail);
                tracing::error!(backend = backend.name(), seconds, detail, "loading failed: {said}");
                self.troubles.lock()[job.target] = trouble.said;
                trouble.ended
            }
        };
        drop(turn);
        if ended != Ended::Deferred {
            self.metrics.loaded(backend.name(), ended == Ended::Loaded);
        }
        self.cards.lock().done(ended, self.now());
        self.publish();
    }

    async fn load(&self, job: &Job, until: Instant) -> Result<(), Trouble> {
        let late = || {
            let seconds = self.config.load_timeout.as_secs();
            let text = format!("it was not ready within {seconds} s, the load_timeout of [loader]");
            Trouble::new(text.clone(), text)
        };
        tokio::time::timeout_at(until, self.driver.load(job, until)).await.map_err(|_| late())??;
        let backend = &self.backends[job.target];
        let mut pause = SOON;
        let ready = async {
            loop {
                probe::once(backend, self.probe.timeout).await;
                if backend.probed() == BackendState::Up {
                    break;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(AGAIN);
            }
        };
        tokio::select! {
            () = ready => Ok(()),
            trouble = self.driver.broke(job.target) => Err(trouble),
            () = self.until_displaced(job.target) => {
                let text = "somebody else has loaded another in its place";
                Err(Trouble::new(text, text).deferred())
            }
            () = tokio::time::sleep_until(until) => Err(late()),
        }
    }

    /// Resolves when the driver says twice in a row that another backend is where this one was loaded.
    async fn until_displaced(&self, target: Index) {
        let mut times = 0;
        while times < 2 {
            tokio::time::sleep(AGAIN).await;
            let Ok(told) = self.driver.look().await else { continue };
            let cards = self.cards.lock();
            let others = told.iter().enumerate().any(|(other, presence)| {
                cards.excludes(target, other) && presence.is_some_and(|presence| presence != Presence::Away)
            });
            let gone = told.get(target) == Some(&Some(Presence::Away)) && others;
            times = if gone { times + 1 } else { 0 };
        }
    }
}
