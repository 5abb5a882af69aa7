//! Who has had how much of the backends, and so whose turn it is: between clients first, then among those behind each.
//!
//! Whoever has had the fewest seconds of service is next. A place is charged in advance with the seconds that it should take, and
//! settled with those that it took. Who comes after a pause begins at the mean of those who are or were there: nothing can be saved
//! up, and ever new names are not for ever before one that has been there. Names behind one client share what that client
//! gets: a new name for each request gains nothing against others.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Whose;

/// What one client, or one of those behind it, has had.
#[derive(Clone, Debug, Default, PartialEq)]
struct Flow {
    /// Seconds of what has ended.
    had: f64,
    /// Seconds that what runs should take.
    charged: f64,
    running: u64,
    /// The sum of when what runs has started, seconds.
    started: f64,
    waiting: u64,
}

impl Flow {
    fn is_there(&self) -> bool {
        self.running + self.waiting > 0
    }

    fn turn(&self) -> f64 {
        self.had + self.charged
    }

    /// With what runs up to now.
    fn served(&self, now: f64) -> f64 {
        self.had + (self.running as f64 * now - self.started).clamp(0.0, self.charged.max(0.0))
    }
}

/// Those that share, by their numbers.
#[derive(Clone, Debug, Default, PartialEq)]
struct Flows {
    known: BTreeMap<u64, Flow>,
    /// The most that those who were there have had on average: where newcomers begin. It never falls, or whoever comes after
    /// one that has had much has left would be before those that came while it was there.
    begin: f64,
}

impl Flows {
    /// What those who are there have had, on average.
    fn mean(&self, now: f64) -> f64 {
        let there = || self.known.values().filter(|flow| flow.is_there());
        let count = there().count().max(1);
        there().map(|flow| flow.served(now)).sum::<f64>() / count as f64
    }

    /// What a newcomer counts as having had.
    fn begin(&mut self, now: f64) -> f64 {
        self.begin = self.begin.max(self.mean(now));
        self.begin
    }

    fn enter(&mut self, number: u64, now: f64) -> &mut Flow {
        let there = self.known.get(&number).is_some_and(Flow::is_there);
        let begin = self.begin(now);
        let flow = self.known.entry(number).or_default();
        if !there {
            flow.had = flow.had.max(begin);
        }
        flow
    }

    /// Who is not there, and would begin with no more, is forgotten.
    fn forget(&mut self, now: f64) {
        if !self.known.values().any(Flow::is_there) {
            // Nobody is there to be fair between.
            *self = Self::default();
            return;
        }
        let begin = self.begin(now);
        self.known.retain(|_, flow| flow.is_there() || flow.had > begin);
    }
}

/// All that is known of who has had what.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Turns {
    clients: Flows,
    /// Those behind each client.
    behind: BTreeMap<u64, Flows>,
}

impl Turns {
    fn enter(&mut self, whose: Whose, now: Duration, change: impl Fn(&mut Flow)) {
        let now = now.as_secs_f64();
        change(self.clients.enter(whose.client, now));
        change(self.behind.entry(whose.client).or_default().enter(whose.part, now));
    }

    fn leave(&mut self, whose: Whose, now: Duration, change: impl Fn(&mut Flow)) {
        let now = now.as_secs_f64();
        if let Some(client) = self.clients.known.get_mut(&whose.client) {
            change(client);
        }
        if let Some(behind) = self.behind.get_mut(&whose.client) {
            if let Some(part) = behind.known.get_mut(&whose.part) {
                change(part);
            }
            behind.forget(now);
        }
        self.clients.forget(now);
        self.behind.retain(|_, behind| !behind.known.is_empty());
    }

    pub(super) fn waits(&mut self, whose: Whose, now: Duration) {
        self.enter(whose, now, |flow| flow.waiting += 1);
    }

    pub(super) fn waits_no_more(&mut self, whose: Whose, now: Duration) {
        self.leave(whose, now, |flow| flow.waiting = flow.waiting.saturating_sub(1));
    }

    /// A request that should take so many seconds is admitted.
    pub(super) fn starts(&mut self, whose: Whose, seconds: f64, now: Duration) {
        self.enter(whose, now, |flow| {
            flow.running += 1;
            flow.charged += seconds;
            flow.started += now.as_secs_f64();
        });
    }

    /// A request that started then, and should have taken so many seconds, has ended.
    pub(super) fn ends(&mut self, whose: Whose, started: Duration, seconds: f64, now: Duration) {
        self.leave(whose, now, |flow| {
            flow.running = flow.running.saturating_sub(1);
            let idle = flow.running == 0;
            flow.charged = if idle { 0.0 } else { flow.charged - seconds };
            flow.started = if idle { 0.0 } else { flow.started - started.as_secs_f64() };
            flow.had += now.saturating_sub(started).as_secs_f64();
        });
    }

    /// What its client has had, and what whoever of those behind it has had.
    pub(super) fn of(&self, whose: Whose) -> (f64, f64) {
        let turn = |flows: &Flows, number| flows.known.get(&number).map_or(0.0, Flow::turn);
        let part = self.behind.get(&whose.client).map_or(0.0, |behind| turn(behind, whose.part));
        (turn(&self.clients, whose.client), part)
    }
}
