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
use super::driver::{AGAIN, Found, Told, Trouble};
use super::process::GRACE;
use crate::backend::probe;
use crate::config;

/// The first pause between two looks whether a backend that is loaded is ready; it grows to [`AGAIN`].
const SOON: Duration = Duration::from_millis(50);

impl Inner {
    /// Works until the proxy is about to end. A load that is under way then is given up: nobody could use it.
    pub(super) async fn run(self: Arc<Self>) {
        tokio::select! {
            () = self.processes.until_no_more() => {}
            () = self.work() => {}
        }
    }

    async fn work(&self) {
        // What a former proxy has left holds memory.
        self.processes.end_left().await;
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
                } else if let Some(Trouble { said, detail, .. }) = self.trouble.lock().clone()
                    && !failing
                {
                    tracing::warn!(detail, "the loader does not tell which backends are there: {said}");
                }
                failing = !well;
                last = Instant::now();
            }
            if !self.end_strays().await {
                // What they hold is not free yet.
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            if let Some(job) = self.next() {
                self.carry_out(&job).await;
                look = true;
                continue;
            }
            let (waited_for, changes) = {
                let cards = self.cards.lock();
                (cards.is_waited_for(self.now()), cards.changes_in(self.now()))
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

    /// Ends the servers that belong to the proxy and are of no backend any more since the configuration has changed: nobody
    /// else would free their cards. False: requests of the former configuration still run there.
    async fn end_strays(&self) -> bool {
        let is_own = |name: &str| {
            let by_commands = matches!(self.config.driver, config::Driver::Command);
            by_commands && self.backends.iter().any(|backend| backend.name() == name)
        };
        for name in self.processes.names().into_iter().filter(|name| !is_own(name)) {
            if self.admission.load(&name).running > 0 {
                return false;
            }
            tracing::info!(
                backend = name,
                "ending a server whose backend is not in the configuration any more"
            );
            self.processes.end_one(&name, GRACE).await;
        }
        true
    }

    /// Asks the driver where all are. False: it does not tell, and what was known stays.
    pub(super) async fn look(&self) -> bool {
        let Found { mut told, trouble } = self.driver.look().await;
        let well = trouble.is_none();
        let reached = trouble.as_ref().is_none_or(|trouble| trouble.ended != Ended::Unreachable);
        *self.trouble.lock() = trouble;
        if well {
            self.told.store(true, Ordering::Relaxed);
        } else if !self.told.load(Ordering::Relaxed) {
            // Better what the probes find than nobody at all.
            let unknown = told.iter_mut().filter(|told| **told == Told::AsBefore);
            unknown.for_each(|told| *told = Told::AsProbed);
        }
        for (backend, told) in self.backends.iter().zip(&told) {
            if *told == Told::AsProbed && backend.probed() == BackendState::Unknown {
                probe::once(backend, self.probe.timeout).await;
            }
        }
        self.cards.lock().reaches(reached, self.now());
        self.take(&told);
        let cards = self.cards.lock();
        if cards.is_waited_for(self.now()) {
            // Somebody may have to go: what others have running there should be known before that.
            let there = |index: &Index| cards.presence(*index) == Presence::There;
            (0..self.backends.len()).filter(there).for_each(|index| self.backends[index].look_again());
        }
        drop(cards);
        self.looked.send_modify(|looks| *looks += 1);
        well
    }

    fn take(&self, told: &[Told]) {
        let now = self.now();
        let mut cards = self.cards.lock();
        let found = told.iter().enumerate().map(|(index, told)| match told {
            Told::Is(presence) => *presence,
            Told::AsProbed => self.probed(index),
            // Nobody else tells, so what answers at its address does.
            Told::AsBefore if self.backends[index].probed() != BackendState::Unknown => self.probed(index),
            Told::AsBefore => cards.presence(index),
        });
        let found: Vec<Presence> = found.collect();
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
        let why = if job.back {
            "it was the last good one before a load that failed"
        } else {
            "requests wait for it"
        };
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
            Err(trouble @ Trouble { ended: Ended::Deferred | Ended::Unreachable, .. }) => {
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
        if matches!(self.config.driver, config::Driver::Command) {
            // What probes said while somebody was being stopped is not true any more.
            for index in job.stop.iter().chain((ended != Ended::Loaded).then_some(&job.target)) {
                probe::once(&self.backends[*index], self.probe.timeout).await;
            }
        }
        drop(turn);
        if !matches!(ended, Ended::Deferred | Ended::Unreachable) {
            self.metrics.loaded(backend.name(), ended == Ended::Loaded);
        }
        let mut cards = self.cards.lock();
        cards.done(ended, self.now());
        if ended == Ended::Failed {
            for back in cards.comes_back() {
                let backend = self.backends[back].name();
                tracing::warn!(backend, "the last good one comes back, as soon as it can");
            }
        }
        if let (Ended::Loaded, Some(took)) = (ended, cards.load_time(job.target)) {
            self.cliffs.took(backend.name(), took);
        }
        drop(cards);
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
            let found = self.driver.look().await;
            let cards = self.cards.lock();
            let others = (0..self.backends.len()).any(|other| {
                let presence = found.presence(other);
                cards.excludes(target, other) && presence.is_some_and(|presence| presence != Presence::Away)
            });
            let gone = found.presence(target) == Some(Presence::Away) && others;
            times = if gone { times + 1 } else { 0 };
        }
    }
}
