//! The gate itself: what runs, what waits, and what each event changes.
//!
//! After every event whoever can go goes, in the queue's order. A request may be overtaken by one that takes another place
//! than it waits for, but once it has waited for `large_prefill_wait` nobody takes what it waits for. It leaves a backend
//! that it prefers for another only if that ends sooner, or if somebody would be refused otherwise.

use std::time::Duration;

use super::accounts::Accounts;
use super::backend::{Beside, Hindrance, Running, charge, seconds};
use super::queue::{Waiter, crowded_out, order};
use super::turns::Turns;
use super::{Answer, Ask, Event, Grant, Offer, Refusal, Rules, Stall, Ticket, Why, expected};
use crate::facts::Load;

/// To be taken before one that is preferred, a backend must end sooner by a quarter and by a second: as in routing, guesses
/// would shuffle the order otherwise.
const BETTER: (f64, f64) = (0.75, 1.0);

/// The state of all places and of the queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gate {
    rules: Rules,
    running: Vec<Running>,
    waiting: Vec<Waiter>,
    turns: Turns,
    accounts: Accounts,
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
                    let Ask { whose, account, allowance, .. } = waiter.ask;
                    waiter.ask = Ask { whose, account, allowance, ..ask };
                    self.admit_all(now, &mut answers);
                }
            }
            Event::FirstToken(ticket) => {
                self.first_token(ticket, now);
                self.admit_all(now, &mut answers);
            }
            Event::Leaves(ticket, used) => {
                self.first_token(ticket, now);
                self.leaves(ticket, used, now);
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
                now + self.accounts.until_tokens(&waiter.ask, now),
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
            running: beside.slots(),
            resident: beside.tokens(),
            first_ends_in: beside.first_end().as_secs_f64(),
        }
    }

    /// How many stand before a request that waits, and how long it is expected to wait still.
    #[must_use]
    pub fn place_in_queue(&self, ticket: Ticket, now: Duration) -> Option<(usize, Duration)> {
        let order = order(&self.waiting, &self.turns, &self.rules, now);
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
        self.turns.waits(ask.whose, now);
        self.accounts.waits(&ask);
        self.waiting.push(Waiter::new(ticket, ask, now));
        self.admit_all(now, answers);
        let Some(waiter) = self.waiting.iter().find(|waiter| waiter.ticket == ticket) else { return };
        let rules = &self.rules;
        // Who has waited already has its bound, and a guess does not end that.
        let is_new = waiter.ask.waited.is_zero();
        let tokens_in = self.accounts.until_tokens_at_best(&waiter.ask, now);
        let expected = self.expected(ticket, now);
        if waiter.ask.offers.is_empty() || (is_new && expected > rules.queue_timeout) {
            self.refuse(ticket, Why::WaitTooLong, now, answers);
        } else if is_new && tokens_in > rules.queue_timeout {
            self.refuse(ticket, Why::BudgetSpent, now, answers);
        } else if self.waiting.len() > rules.queue
            && let Some(at) = crowded_out(&self.waiting)
        {
            let other = self.waiting[at].ticket;
            let why = if other == ticket { Why::QueueFull } else { Why::Displaced };
            self.refuse(other, why, now, answers);
        }
    }

    /// How long it is expected to wait still.
    fn expected(&self, ticket: Ticket, now: Duration) -> Duration {
        self.place_in_queue(ticket, now).map_or(Duration::ZERO, |(_, expected)| expected)
    }

    /// Refuses a request that waits, unless there is a place that it would rather not have taken.
    fn refuse(&mut self, ticket: Ticket, why: Why, now: Duration, answers: &mut Vec<(Ticket, Answer)>) {
        match self.next(Some(ticket), now) {
            Some(next) if self.waiting[next.at].ticket == ticket => self.admit(&next, now, answers),
            _ => {
                let ask =
                    self.waiting.iter().find(|waiter| waiter.ticket == ticket).map(|waiter| &waiter.ask);
                let tokens = ask.map_or(Duration::ZERO, |ask| self.accounts.until_tokens_at_best(ask, now));
                let expected = self.expected(ticket, now).max(tokens);
                self.leaves(ticket, 0, now);
                answers.push((ticket, Err(Refusal { why, expected, waiting: self.waiting.len() })));
            }
        }
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

    fn leaves(&mut self, ticket: Ticket, used: u64, now: Duration) {
        if let Some(at) = self.waiting.iter().position(|waiter| waiter.ticket == ticket) {
            let waiter = self.waiting.remove(at);
            self.waits_no_more(&waiter.ask, now);
        }
        if let Some(at) = self.running.iter().position(|running| running.ticket == ticket) {
            let running = self.running.swap_remove(at);
            self.turns.ends(running.whose, running.started, running.finish, now);
            self.accounts.ends(running.account, running.tokens, used, now);
        }
    }

    fn waits_no_more(&mut self, ask: &Ask, now: Duration) {
        self.turns.waits_no_more(ask.whose, now);
        self.accounts.waits_no_more(ask, now);
    }

    fn admit_all(&mut self, now: Duration, answers: &mut Vec<(Ticket, Answer)>) {
        loop {
            while let Some(next) = self.next(None, now) {
                self.admit(&next, now, answers);
            }
            let late = self.waiting.iter().find(|waiter| waiter.waited(now) >= self.rules.queue_timeout);
            let Some(waiter) = late else { return };
            let tokens_in = self.accounts.until_tokens_at_best(&waiter.ask, now);
            let why = if tokens_in.is_zero() { Why::TimedOut } else { Why::BudgetSpent };
            self.refuse(waiter.ticket, why, now, answers);
        }
    }

    fn admit(&mut self, next: &Next, now: Duration, answers: &mut Vec<(Ticket, Answer)>) {
        let Next { at, grant } = *next;
        let Waiter { ticket, ask, .. } = self.waiting.remove(at);
        if let Some(offer) = ask.offers.get(grant.offer) {
            charge(&mut self.running, None, &offer.backend, offer.prefill, &self.rules, now);
            self.running.push(Running::new(ticket, &ask, offer, now));
            self.turns.starts(ask.whose, offer.finish, now);
            self.accounts.starts(&ask, offer.tokens);
        }
        self.waits_no_more(&ask, now);
        answers.push((ticket, Ok(grant)));
    }

    /// Who goes now, in the queue's order; `rather`: one that takes any place now rather than wait for a better one.
    fn next(&self, rather: Option<Ticket>, now: Duration) -> Option<Next> {
        if !self.rules.enabled {
            let at = self.waiting.iter().position(|waiter| !waiter.ask.offers.is_empty())?;
            let grant = Grant { offer: 0, waited: self.waiting[at].waited(now), broken: None };
            return Some(Next { at, grant });
        }
        let mut kept: Vec<&str> = Vec::new();
        for at in order(&self.waiting, &self.turns, &self.rules, now) {
            let waiter = &self.waiting[at];
            let ask = &waiter.ask;
            if !self.accounts.may_run_one_more(ask) || !self.accounts.until_tokens(ask, now).is_zero() {
                continue;
            }
            // In a queue that is too full somebody would be refused while a place is free.
            let may_hold_out = rather != Some(waiter.ticket) && self.waiting.len() <= self.rules.queue;
            if let Some(grant) = self.choose(waiter, &kept, may_hold_out, now) {
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
    fn choose(&self, waiter: &Waiter, kept: &[&str], may_hold_out: bool, now: Duration) -> Option<Grant> {
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
                            Hindrance::Slots | Hindrance::Pool => beside.first_end(),
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
        let holds_out = may_hold_out && after_waiting < cost && waited < rules.large_prefill_wait;
        (!holds_out).then_some(Grant { offer, waited, broken })
    }
}
