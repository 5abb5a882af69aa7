//! What runs on one backend, and whether one more fits beside it.
//!
//! Three lives: the prefill place ends with the first token, the decode place and the tokens with the answer. A request
//! that finds its backend idle always fits, whatever its weights say: they are estimates, and nobody is in its way.

use std::sync::Arc;
use std::time::Duration;

use super::{Ask, Offer, Rules, Stall, Ticket, Whose};
use crate::client::Class;

/// Part of the time that passes in which a stream is paid back what it lost: it loses a fifth of its time at most.
const PAID_BACK: f64 = 0.25;

/// How much longer than expected a prefill whose end is not seen counts as running.
const UNSEEN: f64 = 1.25;

/// A request that holds places.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Running {
    pub(super) ticket: Ticket,
    pub(super) whose: Whose,
    pub(super) account: u64,
    pub(super) backend: Arc<str>,
    class: Class,
    streams: bool,
    pub(super) tokens: u64,
    sequences: u64,
    prefill: f64,
    /// Seconds that it should take.
    pub(super) finish: f64,
    pub(super) started: Duration,
    ends: Duration,
    /// It has not shown its first token.
    prefilling: bool,
    /// Seconds lost to others, as of when.
    lost: (f64, Duration),
}

/// Why an offer cannot be taken now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Hindrance {
    /// As many run as can.
    Slots,
    /// Their tokens fill its memory.
    Pool,
    /// Another large prefill runs, and this is one, too.
    LargePrefill,
    /// Small prefills run that together are one large.
    SmallPrefills,
    /// Live streams would lose too much.
    Victims(Stall),
}

/// Seconds as a duration; what is no time becomes none.
pub(super) fn seconds(seconds: f64) -> Duration {
    const AGES: f64 = 1e9;
    Duration::try_from_secs_f64(seconds.clamp(0.0, AGES)).unwrap_or_default()
}

impl Offer {
    pub(super) fn is_large(&self, rules: &Rules) -> bool {
        self.prefill > rules.max_victim_stall.as_secs_f64()
    }

    /// How long it waits for the sake of others: not longer than its own prefill takes, nor than the operator allows. What
    /// nobody waits for has time.
    pub(super) fn patience(&self, class: Class, rules: &Rules) -> Duration {
        match class {
            Class::Background => rules.large_prefill_wait,
            Class::Interactive | Class::Agent => rules.large_prefill_wait.min(seconds(self.prefill)),
        }
    }
}

impl Running {
    pub(super) fn new(ticket: Ticket, ask: &Ask, offer: &Offer, now: Duration) -> Self {
        Self {
            ticket,
            whose: ask.whose,
            account: ask.account,
            backend: offer.backend.clone(),
            class: ask.class,
            streams: ask.streams,
            tokens: offer.tokens,
            sequences: offer.sequences,
            prefill: offer.prefill,
            finish: offer.finish,
            started: now,
            ends: now + seconds(offer.finish),
            prefilling: true,
            lost: (0.0, now),
        }
    }

    /// Its prefill is over; how long it was expected to take, if it was not over before.
    pub(super) fn first_token(&mut self, now: Duration) -> Option<f64> {
        let was = self.is_prefilling(now).then_some(self.prefill);
        self.prefilling = false;
        was
    }

    /// When a prefill whose end is not seen counts as over.
    pub(super) fn unseen_until(&self) -> Option<Duration> {
        (self.prefilling && !self.streams).then(|| self.started + seconds(self.prefill * UNSEEN))
    }

    pub(super) fn is_prefilling(&self, now: Duration) -> bool {
        self.prefilling && self.unseen_until().is_none_or(|until| now < until)
    }

    /// Somebody looks at its tokens as they come.
    fn is_victim(&self, now: Duration) -> bool {
        self.streams && self.class == Class::Interactive && !self.is_prefilling(now)
    }

    fn has_lost(&self, now: Duration) -> f64 {
        let (lost, then) = self.lost;
        (lost - now.saturating_sub(then).as_secs_f64() * PAID_BACK).max(0.0)
    }

    /// Until its expected end. What is overdue was expected wrongly: a quarter of what it has taken.
    pub(super) fn remaining(&self, now: Duration) -> Duration {
        let overdue = now.saturating_sub(self.started) / 4;
        if self.ends > now { self.ends - now } else { overdue.max(Duration::from_secs(1)) }
    }

    fn prefill_remaining(&self, now: Duration) -> f64 {
        if self.is_prefilling(now) {
            let taken = now.saturating_sub(self.started).as_secs_f64();
            // Overdue, as above.
            if taken < self.prefill { self.prefill - taken } else { taken / 4.0 }
        } else {
            0.0
        }
    }
}

/// What runs on one backend.
pub(super) struct Beside<'a> {
    running: Vec<&'a Running>,
    rules: &'a Rules,
    now: Duration,
}

impl<'a> Beside<'a> {
    pub(super) fn of(backend: &str, all: &'a [Running], rules: &'a Rules, now: Duration) -> Self {
        let running = all.iter().filter(|running| &*running.backend == backend).collect();
        Self { running, rules, now }
    }

    /// Slots that are taken.
    pub(super) fn slots(&self) -> u64 {
        self.running.iter().map(|running| running.sequences).fold(0, u64::saturating_add)
    }

    pub(super) fn tokens(&self) -> u64 {
        self.running.iter().map(|running| running.tokens).fold(0, u64::saturating_add)
    }

    /// Until what takes slots there ends, and how many that frees.
    pub(super) fn ends(&self) -> impl Iterator<Item = (Duration, u64)> {
        let computed = self.running.iter().filter(|running| running.sequences > 0);
        computed.map(|running| (running.remaining(self.now), running.sequences))
    }

    pub(super) fn first_end(&self) -> Duration {
        self.ends().map(|(time, _)| time).min().unwrap_or_default()
    }

    fn prefilling(&self) -> impl Iterator<Item = &&'a Running> {
        self.running.iter().filter(|running| running.is_prefilling(self.now))
    }

    fn victims(&self) -> impl Iterator<Item = &&'a Running> {
        self.running.iter().filter(|running| running.is_victim(self.now))
    }

    fn bound(&self) -> f64 {
        self.rules.max_victim_stall.as_secs_f64()
    }

    /// Until the longest prefill that runs there is over, seconds.
    pub(super) fn prefill_remaining(&self) -> f64 {
        self.running.iter().map(|running| running.prefill_remaining(self.now)).fold(0.0, f64::max)
    }

    /// Seconds that the offer stands behind prefills which run there. An engine that reads long prompts in pieces gives a short one
    /// its turn after two of them (club-3090, PR 712: 2.6 s beside a prefill of a minute, 15 s without); live streams get a
    /// token a piece, and lose as much as they would without.
    pub(super) fn behind(&self, offer: &Offer) -> f64 {
        let remaining = self.prefill_remaining();
        match offer.piece.filter(|_| !offer.is_large(self.rules)) {
            Some(piece) => remaining.min(2.0 * piece),
            None => remaining,
        }
    }

    /// Whether the offer can be taken now; hard bounds first.
    pub(super) fn fits(&self, offer: &Offer) -> Result<(), Hindrance> {
        let taken = self.slots();
        if taken == 0 || offer.sequences == 0 {
            return Ok(());
        }
        if offer.slots.is_some_and(|slots| taken.saturating_add(offer.sequences) > slots.max(1)) {
            return Err(Hindrance::Slots);
        }
        if offer.pool.is_some_and(|pool| self.tokens().saturating_add(offer.tokens) > pool) {
            return Err(Hindrance::Pool);
        }
        let bound = self.bound();
        let in_flight = self.prefilling().map(|running| running.prefill);
        let (large, small): (Vec<f64>, Vec<f64>) = in_flight.partition(|prefill| *prefill > bound);
        if offer.is_large(self.rules) {
            if !large.is_empty() {
                return Err(Hindrance::LargePrefill);
            }
        } else if !small.is_empty() && small.iter().sum::<f64>() + offer.prefill > bound {
            return Err(Hindrance::SmallPrefills);
        }
        // Beside a large prefill they lose their time anyway, and short ones pass.
        if !large.is_empty() {
            return Ok(());
        }
        const GRAIN: f64 = 1e-6;
        let hurt = self.victims().filter(|victim| {
            offer.prefill > GRAIN && victim.has_lost(self.now) + offer.prefill > bound + GRAIN
        });
        match hurt.count() {
            0 => Ok(()),
            streams => Err(Hindrance::Victims(Stall { streams, seconds: offer.prefill })),
        }
    }

    /// How long the live streams there are expected to stand in the offer's way.
    pub(super) fn until_gap(&self, offer: &Offer) -> Duration {
        let hurt = self.victims().filter(|victim| victim.has_lost(self.now) + offer.prefill > self.bound());
        hurt.map(|victim| self.until_bearable(victim, offer)).max().unwrap_or_default()
    }

    fn until_bearable(&self, victim: &Running, offer: &Offer) -> Duration {
        let ends = victim.remaining(self.now);
        self.paid_back(victim, offer).map_or(ends, |paid| paid.min(ends))
    }

    /// Until the victim has been paid back enough to bear the offer; `None`: it never can.
    fn paid_back(&self, victim: &Running, offer: &Offer) -> Option<Duration> {
        let too_much = victim.has_lost(self.now) + offer.prefill - self.bound();
        (offer.prefill <= self.bound()).then(|| seconds(too_much / PAID_BACK))
    }

    /// When time alone may change whether the offer fits.
    pub(super) fn changes_in(&self, offer: &Offer) -> Option<Duration> {
        let paid = self.victims().filter_map(|victim| self.paid_back(victim, offer));
        let unseen = self.running.iter().filter_map(|running| running.unseen_until());
        let unseen = unseen.map(|until| until.saturating_sub(self.now));
        paid.chain(unseen).filter(|time| !time.is_zero()).min()
    }
}

/// Charges the live streams on a backend, but the one whose it is, for a prefill beside them. Nobody can lose more than all
/// that may be lost.
pub(super) fn charge(
    all: &mut [Running],
    own: Option<Ticket>,
    backend: &str,
    prefill: f64,
    rules: &Rules,
    now: Duration,
) {
    let bound = rules.max_victim_stall.as_secs_f64();
    let beside = |running: &&mut Running| &*running.backend == backend && Some(running.ticket) != own;
    for running in all.iter_mut().filter(beside).filter(|running| running.is_victim(now)) {
        running.lost = ((running.has_lost(now) + prefill).min(bound), now);
    }
}
