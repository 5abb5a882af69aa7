//! The gate itself: what runs, what waits, and what each event changes.
//!
//! After every event whoever can go goes, in the queue's order. A request may be overtaken by one that takes another place
//! than it waits for, but once it has waited for `large_prefill_wait` nobody takes what it waits for. It leaves a backend
//! that it prefers for another only if that ends sooner.

use std::time::Duration;

use super::backend::{Beside, Hindrance, Running, charge, seconds};
use super::expected;
use super::queue::{Shares, Waiter};
use super::{Answer, Ask, Event, Grant, Offer, Refusal, Rules, Stall, Ticket, Why};
use crate::client::Class;
use crate::facts::Load;

/// To be taken before one that is preferred, a backend must end sooner by a quarter and by a second: as in routing, guesses
/// would shuffle the order otherwise.
const BETTER: (f64, f64) = (0.75, 1.0);

/// The state of all places and of the queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gate {
    rules: Rules,
    running: Vec<Running>,
    /// In the order of arrival.
    waiting: Vec<Waiter>,
    shares: Shares,
}

/// A waiter that can go.
struct Next {
    at: usize,
    grant: Grant,
}

impl Gate {
    /// An empty gate.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Other rules from now on; what runs and waits stays.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Takes an event at `now` (any clock that only goes forward) and tells who is told what. A request that arrives and is
    /// not answered at once waits, and is answered by a later event.
    pub fn apply(&mut self, event: Event, now: Duration) -> Vec<(Ticket, Answer)> {
        let mut answers = Vec::new();
        match event {
            Event::Arrives(ticket, ask) => self.arrives(ticket, ask, now, &mut answers),
            Event::Asks(ticket, ask) => {
                if let Some(waiter) = self.waiting.iter_mut().find(|waiter| waiter.ticket == ticket) {
                    // Whose it is does not change.
                    waiter.ask = Ask { client: waiter.ask.client, ..ask };
                    self.admit_all(now, &mut answers);
                }
            }
            Event::FirstToken(ticket) => {
                self.first_token(ticket, now);
                self.admit_all(now, &mut answers);
            }
            Event::Leaves(ticket) => {
                self.first_token(ticket, now);
                self.leaves(ticket, now);
                self.admit_all(now, &mut answers);
            }
            Event::Time => self.admit_all(now, &mut answers),
        }
        answers
    }

    /// When [`Event::Time`] may change something, if nothing else happens before.
    #[must_use]
    pub fn wake_at(&self, now: Duration) -> Option<Duration> {
        let rules = &self.rules;
        let times = self.waiting.iter().flat_map(|waiter| {
            let offers = waiter.ask.offers.iter().flat_map(move |offer| {
                let beside = Beside::of(&offer.backend, &self.running, rules, now);
                let patience = waiter.since + offer.patience(waiter.ask.class, rules);
                [Some(patience), beside.changes_in(offer).map(|time| now + time)].into_iter().flatten()
            });
            let since = |time: Duration| waiter.since + time;
            let own = [
                since(rules.large_prefill_wait),
                since(rules.queue_timeout / 2),
                since(rules.queue_timeout),
                now + self.shares.until_tokens(&waiter.ask, now),
            ];
            offers.chain(own)
        });
        times.filter(|time| *time > now).min()
    }

    /// What a backend carries.
    #[must_use]
    pub fn load(&self, backend: &str, now: Duration) -> Load {
        let beside = Beside::of(backend, &self.running, &self.rules, now);
        Load {
            running: beside.count(),
            resident: beside.tokens(),
            first_ends_in: beside.remaining().min().unwrap_or_default().as_secs_f64(),
        }
    }

    /// How many stand before a request that waits, and how long it is expected to wait still.
    #[must_use]
    pub fn place_in_queue(&self, ticket: Ticket, now: Duration) -> Option<(usize, Duration)> {
        let order = self.order(now);
        let position = order.iter().position(|at| self.waiting[*at].ticket == ticket)?;
        let before = order.iter().take(position + 1).map(|at| &self.waiting[*at]);
        Some((position, expected::wait(before, &self.running, &self.rules, now)))
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn arrives(&mut self, ticket: Ticket, ask: Ask, now: Duration, answers: &mut Vec<(Ticket, Answer)>) {
        if let (false, Some(_)) = (self.rules.enabled, ask.offers.first()) {
            let grant = Grant { offer: 0, waited: Duration::ZERO, broken: None };
            self.start(ticket, &ask, grant, now);
            return answers.push((ticket, Ok(grant)));
        }
        self.shares.waits(&ask);
        self.waiting.push(Waiter { ticket, ask, since: now });
        self.admit_all(now, answers);
        let Some(waiter) = self.waiting.iter().find(|waiter| waiter.ticket == ticket) else { return };
        let class = waiter.ask.class;
        let tokens_in = self.shares.until_tokens(&waiter.ask, now);
        let expected = self.place_in_queue(ticket, now).map_or(Duration::ZERO, |(_, expected)| expected);
        let why = if waiter.ask.offers.is_empty() {
            Some(Why::WaitTooLong)
        } else if tokens_in > self.rules.queue_timeout {
            Some(Why::BudgetSpent)
        } else if expected > self.rules.queue_timeout {
            Some(Why::WaitTooLong)
        } else if self.waiting.len() > self.rules.queue {
            match self.displaced_by(class) {
                Some(other) => {
                    let expected = self.place_in_queue(other, now).map_or(expected, |(_, time)| time);
                    self.refuse(other, Why::Displaced, expected, now, answers);
                    None
                }
                None => Some(Why::QueueFull),
            }
        } else {
            None
        };
        if let Some(why) = why {
            self.refuse(ticket, why, expected.max(tokens_in), now, answers);
        }
    }

    /// The latest of those that nobody waits for, if somebody waits for the newcomer.
    fn displaced_by(&self, class: Class) -> Option<Ticket> {
        let background = |waiter: &&Waiter| waiter.ask.class == Class::Background;
        let last = || self.waiting.iter().rev().find(background).map(|waiter| waiter.ticket);
        (class != Class::Background).then(last).flatten()
    }

    fn refuse(
        &mut self,
        ticket: Ticket,
        why: Why,
        expected: Duration,
        now: Duration,
        answers: &mut Vec<(Ticket, Answer)>,
    ) {
        self.leaves(ticket, now);
        answers.push((ticket, Err(Refusal { why, expected, waiting: self.waiting.len() })));
    }

    /// A prefill is over. What a large one cost its neighbours is paid back from now on, not while it ran.
    fn first_token(&mut self, ticket: Ticket, now: Duration) {
        let Some(running) = self.running.iter_mut().find(|running| running.ticket == ticket) else { return };
        let backend = running.backend.clone();
        if let Some(prefill) = running.first_token(now)
            && seconds(prefill) > self.rules.max_victim_stall
        {
            charge(&mut self.running, Some(ticket), &backend, prefill, &self.rules, now);
        }
    }

    fn leaves(&mut self, ticket: Ticket, now: Duration) {
        if let Some(at) = self.waiting.iter().position(|waiter| waiter.ticket == ticket) {
            let waiter = self.waiting.remove(at);
            self.shares.waits_no_more(waiter.ask.client, now);
        }
        if let Some(at) = self.running.iter().position(|running| running.ticket == ticket) {
            let running = self.running.swap_remove(at);
            self.shares.ends(running.client, now);
        }
    }

    fn admit_all(&mut self, now: Duration, answers: &mut Vec<(Ticket, Answer)>) {
        if !self.rules.enabled {
            // It was switched off while they waited.
            for waiter in std::mem::take(&mut self.waiting) {
                let grant = Grant { offer: 0, waited: waiter.waited(now), broken: None };
                self.start(waiter.ticket, &waiter.ask, grant, now);
                self.shares.waits_no_more(waiter.ask.client, now);
                answers.push((waiter.ticket, Ok(grant)));
            }
            return;
        }
        while let Some(Next { at, grant }) = self.next(now) {
            let waiter = self.waiting.remove(at);
            self.start(waiter.ticket, &waiter.ask, grant, now);
            self.shares.waits_no_more(waiter.ask.client, now);
            answers.push((waiter.ticket, Ok(grant)));
        }
        let late: Vec<Ticket> = self
            .waiting
            .iter()
            .filter(|waiter| waiter.waited(now) >= self.rules.queue_timeout)
            .map(|waiter| waiter.ticket)
            .collect();
        for ticket in late {
            let budget = self.waiting.iter().find(|waiter| waiter.ticket == ticket);
            let budget = budget.map_or(Duration::ZERO, |waiter| self.shares.until_tokens(&waiter.ask, now));
            let why = if budget.is_zero() { Why::TimedOut } else { Why::BudgetSpent };
            let expected = self.place_in_queue(ticket, now).map_or(budget, |(_, time)| time.max(budget));
            self.refuse(ticket, why, expected, now, answers);
        }
    }

    fn start(&mut self, ticket: Ticket, ask: &Ask, grant: Grant, now: Duration) {
        let Some(offer) = ask.offers.get(grant.offer) else { return };
        charge(&mut self.running, None, &offer.backend, offer.prefill, &self.rules, now);
        self.running.push(Running::new(ticket, ask, offer, now));
        self.shares.starts(ask, offer.finish, offer.tokens, now);
    }

    /// Positions of those that wait, the next one first.
    fn order(&self, now: Duration) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.waiting.len()).collect();
        let key = |at: &usize| {
            let waiter = &self.waiting[*at];
            (waiter.rank(&self.rules, now), self.shares.turn(waiter.ask.client))
        };
        order.sort_by(|one, other| {
            let ((rank, turn), (other_rank, other_turn)) = (key(one), key(other));
            rank.cmp(&other_rank).then(turn.total_cmp(&other_turn)).then(one.cmp(other))
        });
        order
    }

    fn next(&self, now: Duration) -> Option<Next> {
        let mut kept: Vec<&str> = Vec::new();
        for at in self.order(now) {
            let waiter = &self.waiting[at];
            let ask = &waiter.ask;
            if !self.shares.may_run_one_more(ask) || !self.shares.until_tokens(ask, now).is_zero() {
                continue;
            }
            if let Some(grant) = self.choose(waiter, &kept, now) {
                return Some(Next { at, grant });
            }
            if waiter.waited(now) >= self.rules.large_prefill_wait {
                kept.extend(ask.offers.iter().filter(|offer| self.keeps(offer, now)).map(|o| &*o.backend));
            }
        }
        None
    }

    /// Whether others would take what a request waits for there. A large prefill waits only for another large one.
    fn keeps(&self, offer: &Offer, now: Duration) -> bool {
        let fits = Beside::of(&offer.backend, &self.running, &self.rules, now).fits(offer);
        matches!(fits, Err(Hindrance::Slots | Hindrance::Pool | Hindrance::SmallPrefills))
    }

    /// The offer that a waiter takes now. `kept`: backends where others wait for what is free.
    fn choose(&self, waiter: &Waiter, kept: &[&str], now: Duration) -> Option<Grant> {
        let (ask, waited, rules) = (&waiter.ask, waiter.waited(now), &self.rules);
        let mut best: Option<(f64, usize, Option<Stall>)> = None;
        // The soonest end on a backend that is preferred to the best free one, and not free.
        let mut after_waiting = f64::INFINITY;
        for (nth, offer) in ask.offers.iter().enumerate() {
            let beside = Beside::of(&offer.backend, &self.running, rules, now);
            // A prefill that runs there takes its time from whatever comes.
            let cost = offer.finish + beside.behind(offer);
            let patience = offer.patience(ask.class, rules);
            let stall = match beside.fits(offer) {
                _ if kept.contains(&&*offer.backend) => continue,
                Ok(()) => None,
                Err(Hindrance::Victims(stall)) if waited >= patience => Some(stall),
                Err(hindrance) => {
                    if best.is_none() {
                        let wait = match hindrance {
                            Hindrance::Slots | Hindrance::Pool => {
                                beside.remaining().min().unwrap_or_default()
                            }
                            // That time is in the cost already.
                            Hindrance::LargePrefill | Hindrance::SmallPrefills => Duration::ZERO,
                            Hindrance::Victims(_) => {
                                beside.until_gap(offer).min(patience.saturating_sub(waited))
                            }
                        };
                        after_waiting = after_waiting.min(cost + wait.as_secs_f64());
                    }
                    continue;
                }
            };
            let cost = cost + stall.map_or(0.0, |stall| stall.seconds * stall.streams as f64);
            let better = best.is_none_or(|(other, ..)| cost < other * BETTER.0 - BETTER.1);
            if better {
                best = Some((cost, nth, stall));
            }
        }
        let (cost, offer, broken) = best?;
        let holds_out = after_waiting < cost && waited < rules.large_prefill_wait;
        (!holds_out).then_some(Grant { offer, waited, broken })
    }
}
