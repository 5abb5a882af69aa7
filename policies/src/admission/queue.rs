//! Who is next among those that wait, and who has to leave a queue that is too full.
//!
//! The order is by class, then by what each client has had, then by what whoever behind it has had, then by arrival; it is the
//! whole order in which they would go, not only who is first. A request that has waited for half of what it may counts as
//! one class higher, so that nobody is starved by a better one.
//!
//! Places in the queue are given as the backends are: a worse class gives way to a better one, and within a class the newest
//! request of the client that has most of them. So nobody who waits is refused for a program, and no client gets another one of
//! its class refused that has fewer in the queue than itself.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use super::turns::Turns;
use super::{Ask, Rules, Ticket, Whose};
use crate::client::Class;

/// A request that waits.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    pub(super) ask: Ask,
    pub(super) since: Duration,
}

impl Waiter {
    pub(super) fn new(ticket: Ticket, ask: Ask, now: Duration) -> Self {
        Self { ticket, since: now.saturating_sub(ask.waited), ask }
    }

    pub(super) fn waited(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since)
    }

    /// The lower, the sooner.
    fn rank(&self, rules: &Rules, now: Duration) -> u8 {
        class(self.ask.class).saturating_sub(u8::from(self.waited(now) >= rules.queue_timeout / 2))
    }

    /// Seconds of service that it asks for.
    fn asks(&self) -> f64 {
        self.ask.offers.first().map_or(0.0, |offer| offer.finish.max(0.0))
    }
}

fn class(class: Class) -> u8 {
    match class {
        Class::Interactive => 0,
        Class::Agent => 1,
        Class::Background => 2,
    }
}

/// Positions of those that wait, the next one first: as if each had its turn when whoever has had least is next.
pub(super) fn order(waiting: &[Waiter], turns: &Turns, rules: &Rules, now: Duration) -> Vec<usize> {
    let ranks: Vec<u8> = waiting.iter().map(|waiter| waiter.rank(rules, now)).collect();
    let had: Vec<(f64, f64)> = waiting.iter().map(|waiter| turns.of(waiter.ask.whose)).collect();
    let came = |at: usize| (waiting[at].since, waiting[at].ticket);
    // When each has its turn among those behind its client; then when its client has it.
    let one = |at: usize| Some(waiting[at].ask.whose);
    let among = tags(waiting, &ranks, one, |at| had[at].1, |one, other| came(one).cmp(&came(other)));
    let client = |at: usize| Some(Whose { part: 0, ..waiting[at].ask.whose });
    let inside =
        |one: usize, other: usize| among[one].total_cmp(&among[other]).then(came(one).cmp(&came(other)));
    let of_client = tags(waiting, &ranks, client, |at| had[at].0, inside);
    let mut order: Vec<usize> = (0..waiting.len()).collect();
    order.sort_by(|&one, &other| {
        let rank = ranks[one].cmp(&ranks[other]);
        rank.then(of_client[one].total_cmp(&of_client[other])).then(came(one).cmp(&came(other)))
    });
    order
}

/// What each one's group will have had when its turn comes, if those of a group go by rank and then as `sooner` says.
fn tags(
    waiting: &[Waiter],
    ranks: &[u8],
    group: impl Fn(usize) -> Option<Whose>,
    had: impl Fn(usize) -> f64,
    sooner: impl Fn(usize, usize) -> Ordering,
) -> Vec<f64> {
    let mut grouped: Vec<usize> = (0..waiting.len()).collect();
    grouped.sort_by(|&one, &other| {
        group(one).cmp(&group(other)).then(ranks[one].cmp(&ranks[other])).then_with(|| sooner(one, other))
    });
    let mut tags = vec![0.0; waiting.len()];
    let (mut of, mut tag) = (None, 0.0);
    for at in grouped {
        if of != group(at) {
            (of, tag) = (group(at), had(at));
        }
        tags[at] = tag;
        tag += waiting[at].asks();
    }
    tags
}

/// The position of the one that leaves a queue that is too full.
pub(super) fn crowded_out(waiting: &[Waiter]) -> Option<usize> {
    let whose = |waiter: &Waiter| (class(waiter.ask.class), waiter.ask.whose);
    let client = |waiter: &Waiter| (class(waiter.ask.class), waiter.ask.whose.client);
    let (mut of_part, mut of_client) = (BTreeMap::new(), BTreeMap::new());
    for waiter in waiting {
        *of_part.entry(whose(waiter)).or_insert(0_usize) += 1;
        *of_client.entry(client(waiter)).or_insert(0_usize) += 1;
    }
    (0..waiting.len()).max_by_key(|at| {
        let waiter = &waiting[*at];
        let has = (of_client[&client(waiter)], of_part[&whose(waiter)]);
        (class(waiter.ask.class), has, waiter.since, waiter.ticket)
    })
}
