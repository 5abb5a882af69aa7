//! Who excludes whom, who would have to go for whom, and when it may: the rules of hysteresis.
//!
//! Pure questions to [`Cards`]; nothing changes here. No backend may be let go that is within its rights.

use std::time::Duration;

use super::cards::HANGS;
use super::{Cards, Index, Presence};

impl Cards {
    /// Backends that are wished for and can be loaded, the oldest wish first.
    pub(super) fn targets(&self, now: Duration) -> Vec<Index> {
        let mut targets: Vec<Index> = Vec::new();
        if self.unreachable.is_some() {
            return targets;
        }
        for wish in &self.wishes {
            let spot = &self.spots[wish.backend];
            let away = match spot.presence {
                Presence::Away => true,
                Presence::There => false,
                // Whoever loads it has given up, or it hangs.
                Presence::Coming => now.saturating_sub(spot.since) > spot.load_time() * HANGS,
            };
            let wanted = away && spot.pause(now).is_none();
            let may = || wish.may_swap || self.victims(wish.backend).next().is_none();
            if wanted && !targets.contains(&wish.backend) && may() {
                targets.push(wish.backend);
            }
        }
        targets
    }

    /// Whether two backends cannot be there together.
    #[must_use]
    pub fn excludes(&self, one: Index, other: Index) -> bool {
        one.max(other) < self.spots.len() && self.exclude(one, other)
    }

    pub(super) fn exclude(&self, one: Index, other: Index) -> bool {
        let (cards, others) = (&self.spots[one].backend.cards, &self.spots[other].backend.cards);
        one != other
            && (cards.is_empty() || others.is_empty() || cards.iter().any(|card| others.contains(card)))
    }

    /// Who would have to go for this one.
    pub(super) fn victims(&self, target: Index) -> impl Iterator<Item = Index> + '_ {
        let there = |index: &Index| self.spots[*index].presence != Presence::Away;
        (0..self.spots.len()).filter(there).filter(move |index| self.exclude(*index, target))
    }

    /// How long a backend is still protected from going for this one, if it is used no more or, `in_use`, all the time.
    pub(super) fn stays(&self, victim: Index, target: Index, in_use: bool, now: Duration) -> Duration {
        let spot = &self.spots[victim];
        if spot.leaving.is_some() {
            return Duration::ZERO;
        }
        let resides = (spot.since + self.rules.min_residency).saturating_sub(now);
        let unused = self.rules.idle.min(self.spots[target].load_time());
        if in_use { resides } else { resides.min((spot.used + unused).saturating_sub(now)) }
    }

    /// Somebody uses it, or has waited for it and is about to.
    pub(super) fn in_use(&self, index: Index) -> bool {
        self.spots[index].is_busy() || self.wishes.iter().any(|wish| wish.backend == index)
    }

    pub(super) fn may_leave(&self, victim: Index, target: Index, now: Duration) -> bool {
        self.stays(victim, target, self.in_use(victim), now).is_zero()
    }

    pub(super) fn is_drained(&self, victim: Index, now: Duration) -> bool {
        let spot = &self.spots[victim];
        let waited = spot.leaving.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        spot.busy.own == 0 && (spot.busy.others == 0 || waited >= self.rules.drain)
    }
}
