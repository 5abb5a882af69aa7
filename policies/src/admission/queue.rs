//! Who is next among those that wait: by class, then by what each client has had, then by arrival.
//!
//! Clients of a class share fairly by start-time fair queueing: each has a virtual time that grows by the seconds of service
//! that it is given, and the one that has had least is next. Who was away banks nothing. A request that has waited for half
//! of what it may counts as one class higher, so that nobody is starved by a better one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Allowance, Ask, Rules, Ticket};
use crate::client::Class;

/// A request that waits.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    pub(super) ask: Ask,
    pub(super) since: Duration,
}

impl Waiter {
    pub(super) fn waited(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since)
    }

    /// The lower, the sooner.
    pub(super) fn rank(&self, rules: &Rules, now: Duration) -> u8 {
        let class = match self.ask.class {
            Class::Interactive => 0_u8,
            Class::Agent => 1,
            Class::Background => 2,
        };
        class.saturating_sub(u8::from(self.waited(now) >= rules.queue_timeout / 2))
    }
}

/// What one client has had.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share {
    virtual_time: f64,
    running: u64,
    waiting: u64,
    /// Tokens that are left of its budget, as of when; below zero after a large request.
    left: Option<(f64, Duration)>,
    budget: Option<(u64, Duration)>,
}

impl Share {
    fn left(&self, now: Duration) -> f64 {
        let Some((tokens, within)) = self.budget else { return f64::INFINITY };
        let (left, then) = self.left.unwrap_or((tokens as f64, now));
        let refilled = now.saturating_sub(then).as_secs_f64() * rate(tokens, within);
        (left + refilled).min(tokens as f64)
    }
}

fn rate(tokens: u64, within: Duration) -> f64 {
    tokens as f64 / within.as_secs_f64().max(1e-3)
}

/// All clients that are of interest.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Shares {
    clients: BTreeMap<u64, Share>,
    virtual_time: f64,
}

impl Shares {
    fn of(&mut self, client: u64, allowance: &Allowance) -> &mut Share {
        let virtual_time = self.virtual_time;
        let share = self.clients.entry(client).or_insert(Share {
            virtual_time,
            running: 0,
            waiting: 0,
            left: None,
            budget: None,
        });
        share.budget = allowance.tokens;
        share
    }

    pub(super) fn waits(&mut self, ask: &Ask) {
        self.of(ask.client, &ask.allowance).waiting += 1;
    }

    pub(super) fn waits_no_more(&mut self, client: u64, now: Duration) {
        if let Some(share) = self.clients.get_mut(&client) {
            share.waiting = share.waiting.saturating_sub(1);
        }
        self.forget(client, now);
    }

    /// A request of the client is admitted: so many seconds of service, so many tokens.
    pub(super) fn starts(&mut self, ask: &Ask, service: f64, tokens: u64, now: Duration) {
        let virtual_time = self.virtual_time;
        let share = self.of(ask.client, &ask.allowance);
        let start = share.virtual_time.max(virtual_time);
        share.virtual_time = start + service.max(0.0);
        share.running += 1;
        share.left = share.budget.map(|_| (share.left(now) - tokens as f64, now));
        self.virtual_time = start;
    }

    pub(super) fn ends(&mut self, client: u64, now: Duration) {
        if let Some(share) = self.clients.get_mut(&client) {
            share.running = share.running.saturating_sub(1);
        }
        self.forget(client, now);
    }

    /// A client of which nothing follows any more is forgotten.
    fn forget(&mut self, client: u64, now: Duration) {
        let virtual_time = self.virtual_time;
        let idle = |share: &Share| share.running == 0 && share.waiting == 0;
        let spent = |share: &Share| share.budget.is_some_and(|(tokens, _)| share.left(now) < tokens as f64);
        self.clients.retain(|known, share| {
            let looked_at = *known == client || share.virtual_time <= virtual_time;
            !(looked_at && idle(share) && !spent(share) && share.virtual_time <= virtual_time)
        });
        if self.clients.values().all(|share| idle(share) && !spent(share)) {
            // Nobody is there to be fair between.
            self.clients.clear();
            self.virtual_time = 0.0;
        }
    }

    /// When its client has had so little that it is next, virtually.
    pub(super) fn turn(&self, client: u64) -> f64 {
        self.clients.get(&client).map_or(self.virtual_time, |share| share.virtual_time.max(self.virtual_time))
    }

    pub(super) fn may_run_one_more(&self, ask: &Ask) -> bool {
        let running = self.clients.get(&ask.client).map_or(0, |share| share.running);
        ask.allowance.running.is_none_or(|most| running < most.max(1))
    }

    /// Until its client has tokens left; nothing if it has.
    pub(super) fn until_tokens(&self, ask: &Ask, now: Duration) -> Duration {
        let Some((tokens, within)) = ask.allowance.tokens else { return Duration::ZERO };
        let left = self.clients.get(&ask.client).map_or(f64::INFINITY, |share| share.left(now));
        if left > -1e-6 { Duration::ZERO } else { super::backend::seconds(-left / rate(tokens, within)) }
    }
}
