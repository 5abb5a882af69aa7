//! How long a request is expected to wait: the queue played forward with the expected times.
//!
//! Told to clients (`Retry-After`, and why one is refused at entry), so it should be true rather than kind: what is not known
//! (a backend without a known number of slots) costs no time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::backend::{Beside, Running};
use super::queue::Waiter;
use super::{Offer, Rules};

/// Slots of one request that are looked at.
const MOST: usize = 1024;

/// One backend as it will be.
struct Lane {
    /// When each slot is free, seconds from now; empty: no bound.
    slots: Vec<f64>,
    /// When the large prefill that runs or is planned there is over.
    prefill: f64,
    /// When one of what runs ends, for a pool that is full now.
    first_end: f64,
}

impl Lane {
    fn of(offer: &Offer, beside: &Beside<'_>) -> Self {
        let freed = beside.ends().flat_map(|(time, slots)| {
            std::iter::repeat_n(time.as_secs_f64(), usize::try_from(slots).unwrap_or(usize::MAX).min(MOST))
        });
        let mut ends: Vec<f64> = freed.collect();
        ends.sort_by(f64::total_cmp);
        let first_end = ends.first().copied().unwrap_or(0.0);
        let slots = offer.slots.map_or_else(Vec::new, |slots| {
            let slots = usize::try_from(slots.max(1)).unwrap_or(usize::MAX).min(ends.len() + 64);
            // More may run than there are slots by now: those that end first free none.
            let free = slots.saturating_sub(ends.len());
            let busy = ends.split_off(ends.len().saturating_sub(slots));
            std::iter::repeat_n(0.0, free).chain(busy).collect::<Vec<f64>>()
        });
        Self { slots, prefill: beside.prefill_remaining(), first_end }
    }

    /// When as many slots are free as the offer takes.
    fn free(&self, offer: &Offer) -> f64 {
        self.taken_by(offer).checked_sub(1).map_or(0.0, |last| self.slots[last])
    }

    fn taken_by(&self, offer: &Offer) -> usize {
        usize::try_from(offer.sequences).unwrap_or(usize::MAX).min(self.slots.len())
    }

    /// The offer takes them until then.
    fn take(&mut self, offer: &Offer, until: f64) {
        let taken = self.taken_by(offer);
        self.slots[..taken].fill(until);
        self.slots.sort_by(f64::total_cmp);
    }
}

/// Until a client that may run so many at once may run one more.
fn own_turn(lane: &[f64], most: u64) -> f64 {
    let most = usize::try_from(most.max(1)).unwrap_or(usize::MAX);
    lane.len().checked_sub(most).map_or(0.0, |at| lane[at])
}

/// When the last of `waiters`, who stand in the order of the queue, is expected to start.
pub(super) fn wait<'a>(
    waiters: impl Iterator<Item = &'a Waiter>,
    running: &[Running],
    rules: &Rules,
    now: Duration,
) -> Duration {
    let mut lanes: BTreeMap<&str, Lane> = BTreeMap::new();
    // When what a client has running ends, where it may have only so many, in order.
    let mut own: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let mut last = 0.0;
    for waiter in waiters {
        let account = waiter.ask.account;
        let least = waiter.ask.allowance.running.map_or(0.0, |most| {
            let lane = own.entry(account).or_insert_with(|| {
                let of_it = running.iter().filter(|running| running.account == account);
                let mut ends: Vec<f64> = of_it.map(|running| running.remaining(now).as_secs_f64()).collect();
                ends.sort_by(f64::total_cmp);
                ends
            });
            own_turn(lane, most)
        });
        let mut best: Option<(f64, &Offer)> = None;
        for offer in &waiter.ask.offers {
            let beside = Beside::of(&offer.backend, running, rules, now);
            let lane = lanes.entry(&offer.backend).or_insert_with(|| Lane::of(offer, &beside));
            let mut start = lane.free(offer).max(least);
            if offer.is_large(rules) {
                start = start.max(lane.prefill);
            }
            if offer.pool.is_some_and(|pool| beside.tokens().saturating_add(offer.tokens) > pool) {
                start = start.max(lane.first_end);
            }
            let patience = offer.patience(waiter.ask.class, rules).saturating_sub(waiter.waited(now));
            start = start.max(beside.until_gap(offer).min(patience).as_secs_f64());
            if best.is_none_or(|(other, taken)| start + offer.finish < other + taken.finish) {
                best = Some((start, offer));
            }
        }
        let Some((start, offer)) = best else { continue };
        if let Some(lane) = lanes.get_mut(&*offer.backend) {
            lane.take(offer, start + offer.finish);
            if offer.is_large(rules) {
                lane.prefill = start + offer.prefill;
            }
        }
        if let Some(lane) = own.get_mut(&account) {
            lane.push(start + offer.finish);
            lane.sort_by(f64::total_cmp);
        }
        last = start;
    }
    super::backend::seconds(last)
}
