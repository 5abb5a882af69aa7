//! In any order of wishes, hang-ups, requests, loads and failures: one job at a time, nothing goes while an answer runs, what
//! excludes each other is never there together, and every wish ends within a bound.

use std::collections::HashMap;

use proptest::prelude::*;
use switchback_policies::loading::{Busy, Cards, Ended, Job, Presence, Rules, Standing, Ticket};

use super::{cards_under, seconds};

const LAYOUTS: [&[&[u32]]; 4] =
    [&[&[], &[]], &[&[0], &[0], &[0]], &[&[0], &[1], &[0, 1]], &[&[0, 1], &[1, 2], &[2], &[]]];

#[derive(Clone, Debug)]
enum Step {
    /// A request for a backend, which takes so many seconds there; whether it may swap.
    Asks(usize, u64, bool),
    /// The oldest of those that wait hangs up.
    HangsUp,
    /// The job that is out ends.
    Ends(bool),
    Passes(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..4, 1u64..200, prop::bool::weighted(0.8)).prop_map(|(b, t, s)| Step::Asks(b, t, s)),
        1 => Just(Step::HangsUp),
        3 => prop::bool::weighted(0.8).prop_map(Step::Ends),
        6 => (1u64..120).prop_map(Step::Passes),
    ]
}

/// What is true outside of the state machine.
struct Rig {
    cards: Cards,
    layout: &'static [&'static [u32]],
    now: u64,
    next: u64,
    waiting: HashMap<u64, (usize, u64, u64)>,
    /// Backend and end of each request that runs.
    running: Vec<(usize, u64)>,
    there: Vec<bool>,
    job: Option<(Job, u64)>,
    /// How long the longest wish took that was fulfilled.
    longest: u64,
    /// Wishes that ended otherwise.
    unfulfilled: u64,
}

impl Rig {
    fn new(layout: &'static [&'static [u32]]) -> Self {
        Self {
            // As long as it takes, so that the bound is the machine's own.
            cards: cards_under(Rules { wait: seconds(100_000), ..Rules::default() }, layout),
            layout,
            now: 0,
            next: 0,
            waiting: HashMap::new(),
            running: Vec::new(),
            there: vec![false; layout.len()],
            job: None,
            longest: 0,
            unfulfilled: 0,
        }
    }

    fn exclude(&self, one: usize, other: usize) -> bool {
        let (one, other) = (self.layout[one], self.layout[other]);
        one.is_empty() || other.is_empty() || one.iter().any(|card| other.contains(card))
    }

    fn ends(&mut self, well: bool) {
        let Some((job, _)) = self.job.take() else { return };
        self.there[job.target] = well;
        self.cards.done(if well { Ended::Loaded } else { Ended::Failed }, seconds(self.now));
        self.look();
    }

    fn look(&mut self) {
        for (backend, there) in self.there.iter().enumerate() {
            let presence = if *there { Presence::There } else { Presence::Away };
            self.cards.seen(backend, presence, seconds(self.now));
        }
    }

    fn tick(&mut self) {
        let now = self.now;
        self.running.retain(|(_, end)| *end > now);
        for backend in 0..self.layout.len() {
            let own = self.running.iter().filter(|(at, _)| *at == backend).count() as u64;
            self.cards.runs(backend, Busy { own, others: 0 }, seconds(now));
        }
        if let Some(job) = self.cards.next(seconds(now)) {
            assert!(self.job.is_none(), "two jobs at once");
            for victim in &job.stop {
                assert!(self.running.iter().all(|(at, _)| at != victim), "stopped under an answer");
                self.there[*victim] = false;
            }
            for (backend, there) in self.there.iter().enumerate() {
                assert!(backend == job.target || !there || !self.exclude(backend, job.target), "no room");
            }
            self.job = Some((job, now));
        }
        let mut gone = Vec::new();
        for (ticket, (backend, takes, since)) in &self.waiting {
            match self.cards.standing(Ticket(*ticket), seconds(now)) {
                Standing::Go => {
                    assert!(self.there[*backend], "sent to one that is not there");
                    self.running.push((*backend, now + takes));
                    self.longest = self.longest.max(now - since);
                }
                Standing::Waits { .. } => continue,
                Standing::Failed(_)
                | Standing::Denied
                | Standing::Expired { .. }
                | Standing::TooLong { .. }
                | Standing::QueueFull => {
                    self.unfulfilled += 1;
                }
            }
            gone.push(*ticket);
        }
        for ticket in gone {
            self.waiting.remove(&ticket);
            self.cards.forget(Ticket(ticket));
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Asks(backend, takes, may_swap) => {
                let backend = backend % self.layout.len();
                self.next += 1;
                if self.cards.wish(Ticket(self.next), backend, may_swap, seconds(self.now)).is_ok() {
                    self.waiting.insert(self.next, (backend, takes, self.now));
                }
            }
            Step::HangsUp => {
                if let Some(oldest) = self.waiting.keys().min().copied() {
                    self.waiting.remove(&oldest);
                    self.cards.forget(Ticket(oldest));
                }
            }
            Step::Ends(well) => self.ends(well),
            Step::Passes(time) => {
                for _ in 0..time {
                    self.now += 1;
                    // No load takes longer than 150 s.
                    if self.job.as_ref().is_some_and(|(_, begun)| self.now - begun >= 150) {
                        self.ends(true);
                    }
                    self.tick();
                }
            }
        }
        self.tick();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_goes_under_an_answer_and_nothing_is_loaded_twice(layout in 0usize..4, steps in prop::collection::vec(step(), 1..80)) {
        let mut rig = Rig::new(LAYOUTS[layout]);
        for step in &steps {
            rig.take(step);
        }
    }

    #[test]
    fn every_wish_is_fulfilled_within_a_residency_two_loads_and_the_two_longest_answers(steps in prop::collection::vec(step(), 1..80)) {
        let mut rig = Rig::new(LAYOUTS[0]);
        for step in &steps {
            match step {
                Step::Ends(_) => rig.take(&Step::Ends(true)),
                Step::Asks(backend, takes, _) => rig.take(&Step::Asks(*backend, *takes, true)),
                Step::HangsUp | Step::Passes(_) => rig.take(step),
            }
        }
        // It came when the backend was about to go; and a second here and there, since the rig looks once a second.
        let bound = 200 + 150 + 300 + 200 + 150 + 4;
        rig.take(&Step::Passes(bound));
        prop_assert!(rig.waiting.is_empty());
        prop_assert_eq!(rig.unfulfilled, 0);
        prop_assert!(rig.longest <= bound, "{}", rig.longest);
    }
}
