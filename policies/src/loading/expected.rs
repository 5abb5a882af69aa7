//! How long until a backend is there: the queue of wishes played forward, with load times that were seen.
//!
//! It errs on the long side where others are ahead (they may use their backend as long as they may keep it), so that
//! nobody is promised what does not come.

use std::time::Duration;

use super::{Cards, Index, Presence};

/// A load that takes longer than ever is said to take a tenth of its time still.
const OVERDUE: u32 = 10;

impl Cards {
    /// How long until a backend is there for a wish at this place of the queue; `None`: at its end.
    pub(super) fn expected(&self, backend: Index, place: Option<usize>, now: Duration) -> Duration {
        let spot = &self.spots[backend];
        let left = |index: Index, begun: Duration| {
            let load = self.spots[index].load_time();
            (begun + load).saturating_sub(now).max(load / OVERDUE)
        };
        let doing = self.doing.as_ref().map(|doing| (doing.job.target, doing.begun));
        let mut time = match doing {
            Some((target, begun)) if target == backend => return left(target, begun),
            None if spot.presence == Presence::Coming => return left(backend, spot.since),
            Some((target, begun)) if self.exclude(target, backend) => {
                // Whoever it is loaded for keeps it; what nobody waits for may go soon.
                let stays = if self.in_use(target) {
                    self.rules.min_residency
                } else {
                    self.rules.idle.min(spot.load_time())
                };
                left(target, begun) + stays
            }
            Some((target, begun)) => left(target, begun),
            None => {
                let victims = self.victims(backend);
                let stays = victims.map(|victim| {
                    let in_use = self.in_use(victim);
                    self.stays(victim, backend, in_use, now)
                });
                stays.max().unwrap_or_default()
            }
        };
        let older = self.wishes.iter().take(place.unwrap_or(self.wishes.len()));
        let mut ahead: Vec<Index> = Vec::new();
        for wish in older {
            let other = wish.backend;
            let counts = other != backend && self.spots[other].presence == Presence::Away;
            if counts && self.exclude(other, backend) && !ahead.contains(&other) {
                ahead.push(other);
                time += self.spots[other].load_time() + self.rules.min_residency;
            }
        }
        time + spot.load_time()
    }
}
