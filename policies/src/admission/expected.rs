//! How long a request is expected to wait: the queue played forward with the expected times.
//!
//! Told to clients (`Retry-After`, and why one is refused at entry), so it should be true rather than kind: what is not known
//! (a backend without a known number of slots) costs no time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::backend::{Beside, Running};
use super::queue::Waiter;
use super::{Offer, Rules};

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
        let mut ends: Vec<f64> = beside.remaining().map(|time| time.as_secs_f64()).collect();
        ends.sort_by(f64::total_cmp);
        let first_end = ends.first().copied().unwrap_or(0.0);
        let slots = offer.slots.map_or_else(Vec::new, |slots| {
            let slots = usize::try_from(slots.max(1)).unwrap_or(usize::MAX).min(ends.len() + 64);
            // More may run than there are slots by now: those that end first free none.
            let free = slots.saturating_sub(ends.len());
            let busy = ends.split_off(ends.len().saturating_sub(slots));
            std::iter::repeat_n(0.0, free).chain(busy).collect()
        });
        Self { slots, prefill: beside.prefill_remaining(), first_end }
    }

    fn earliest(&self) -> Option<usize> {
        (0..self.slots.len()).min_by(|one, other| self.slots[*one].total_cmp(&self.slots[*other]))
    }
}

/// When the last of `waiters`, who stand in the order of the queue, is expected to start.
pub(super) fn wait<'a>(
    waiters: impl Iterator<Item = &'a Waiter>,
    running: &[Running],
    rules: &Rules,
    now: Duration,
) -> Duration {
    let mut lanes: BTreeMap<&str, Lane> = BTreeMap::new();
    let mut last = 0.0;
    for waiter in waiters {
        let mut best: Option<(f64, &Offer)> = None;
        for offer in &waiter.ask.offers {
            let beside = Beside::of(&offer.backend, running, rules, now);
            let lane = lanes.entry(&offer.backend).or_insert_with(|| Lane::of(offer, &beside));
            let mut start = lane.earliest().map_or(0.0, |slot| lane.slots[slot]);
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
            if let Some(slot) = lane.earliest() {
                lane.slots[slot] = start + offer.finish;
            }
            if offer.is_large(rules) {
                lane.prefill = start + offer.prefill;
            }
        }
        last = start;
    }
    super::backend::seconds(last)
}
