//! The state machine itself: who is there, who waits for whom, and what is done next.

use std::time::Duration;

use super::{Busy, Ended, Index, Job, Loadable, Offer, Presence, Rules, Standing, Ticket};

/// After a load that failed; doubled with each further failure, up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(900);

/// What others load takes no longer than so many times its load time.
const HANGS: u32 = 3;

/// Looks in a row that must not find a backend before it is believed to be gone: a status may flicker.
const GONE_AFTER: u32 = 2;

/// Who is on the cards, and who wants to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cards {
    pub(super) rules: Rules,
    pub(super) spots: Vec<Spot>,
    /// In the order of arrival.
    pub(super) wishes: Vec<Wish>,
    pub(super) doing: Option<Doing>,
    /// Those that went for a load that failed.
    back: Vec<Index>,
}

/// One backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    backend: Loadable,
    /// How long it was seen to load.
    learned: Option<Duration>,
    pub(super) presence: Presence,
    /// When that began.
    pub(super) since: Duration,
    /// When it was last seen in use.
    pub(super) used: Duration,
    busy: Busy,
    /// Looks in a row that did not find it.
    missed: u32,
    /// It gets nothing new, since this time: it is to go.
    leaving: Option<Duration>,
    failed: Option<Failed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failed {
    at: Duration,
    times: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) ticket: Ticket,
    pub(super) backend: Index,
    /// Others may have to go for it.
    pub(super) may_swap: bool,
    pub(super) since: Duration,
}

/// The job that is out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Doing {
    pub(super) job: Job,
    pub(super) begun: Duration,
}

impl Spot {
    pub(super) fn load_time(&self) -> Duration {
        self.learned.unwrap_or(self.backend.expected)
    }

    fn is_busy(&self) -> bool {
        self.busy != Busy::default()
    }

    /// How long until a load is tried again.
    fn pause(&self, now: Duration) -> Option<Duration> {
        let failed = self.failed?;
        let pause = PAUSE.saturating_mul(1 << failed.times.saturating_sub(1).min(10)).min(LONGEST_PAUSE);
        (failed.at + pause).checked_sub(now).filter(|left| !left.is_zero())
    }

    fn is(&mut self, presence: Presence, now: Duration) {
        self.missed = 0;
        if self.presence != presence {
            (self.presence, self.since, self.used, self.leaving) = (presence, now, now, None);
        }
    }
}

impl Cards {
    /// Nobody is seen yet.
    #[must_use]
    pub fn new(rules: Rules, backends: Vec<Loadable>) -> Self {
        let spot = |backend| Spot {
            backend,
            learned: None,
            presence: Presence::Away,
            since: Duration::ZERO,
            used: Duration::ZERO,
            busy: Busy::default(),
            missed: 0,
            leaving: None,
            failed: None,
        };
        let spots = backends.into_iter().map(spot).collect();
        Self { rules, spots, wishes: Vec::new(), doing: None, back: Vec::new() }
    }

    /// Takes where a look found a backend. Not to be called for a look that began while a job was out.
    pub fn seen(&mut self, backend: Index, presence: Presence, now: Duration) {
        let Some(spot) = self.spots.get_mut(backend).filter(|_| self.doing.is_none()) else { return };
        if presence == Presence::Away && spot.presence != Presence::Away {
            spot.missed += 1;
            if spot.missed < GONE_AFTER {
                return;
            }
        }
        if presence == Presence::There {
            spot.failed = None;
        }
        spot.is(presence, now);
    }

    /// Takes what runs at a backend.
    pub fn runs(&mut self, backend: Index, busy: Busy, now: Duration) {
        let Some(spot) = self.spots.get_mut(backend) else { return };
        // It was in use until now, too.
        if busy != Busy::default() || spot.is_busy() {
            spot.used = now;
        }
        spot.busy = busy;
    }

    /// A request wants a backend and waits for it.
    ///
    /// # Errors
    /// How it stands if it may not wait: it is not entered then.
    pub fn wish(
        &mut self,
        ticket: Ticket,
        backend: Index,
        may_swap: bool,
        now: Duration,
    ) -> Result<(), Standing> {
        match self.offer(backend, may_swap, now) {
            Offer::Ready => {}
            Offer::Denied => return Err(Standing::Denied),
            Offer::Failed(again) => return Err(Standing::Failed(again)),
            Offer::After(expected) if expected > self.rules.wait => {
                return Err(Standing::TooLong { expected });
            }
            Offer::After(_) if self.wishes.len() >= self.rules.queue => return Err(Standing::QueueFull),
            Offer::After(_) => {}
        }
        self.wishes.push(Wish { ticket, backend, may_swap, since: now });
        Ok(())
    }

    /// A request waits no more: it goes to its backend, or has hung up.
    pub fn forget(&mut self, ticket: Ticket) {
        self.wishes.retain(|wish| wish.ticket != ticket);
    }

    /// Whether a backend takes requests: it is there, and not to go.
    #[must_use]
    pub fn admits(&self, backend: Index) -> bool {
        self.spots.get(backend).is_some_and(|spot| spot.presence == Presence::There && spot.leaving.is_none())
    }

    /// Where a backend is believed to be.
    #[must_use]
    pub fn presence(&self, backend: Index) -> Presence {
        self.spots.get(backend).map_or(Presence::Away, |spot| spot.presence)
    }

    /// Whether time alone may change something: somebody waits, or something is to come back.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        !self.wishes.is_empty()
            || !self.back.is_empty()
            || self.spots.iter().any(|spot| spot.leaving.is_some())
    }

    /// How long until time alone lets somebody go for who is wished for.
    #[must_use]
    pub fn changes_in(&self, now: Duration) -> Option<Duration> {
        let stays = self.targets(now).into_iter().flat_map(|target| {
            let victims = self.victims(target);
            victims.map(move |victim| self.stays(victim, target, self.in_use(victim), now))
        });
        stays.filter(|stays| !stays.is_zero()).min()
    }

    /// What a backend has to offer to a request that arrives now.
    #[must_use]
    pub fn offer(&self, backend: Index, may_swap: bool, now: Duration) -> Offer {
        if self.admits(backend) {
            return Offer::Ready;
        }
        let Some(spot) = self.spots.get(backend) else { return Offer::Denied };
        if let Some(again) = spot.pause(now) {
            return Offer::Failed(again);
        }
        let wished = || self.wishes.iter().any(|wish| wish.backend == backend && wish.may_swap);
        let free = || spot.presence != Presence::There && self.victims(backend).next().is_none();
        if may_swap || spot.presence == Presence::Coming || free() || wished() {
            Offer::After(self.expected(backend, None, now))
        } else {
            Offer::Denied
        }
    }

    /// How a wish stands.
    #[must_use]
    pub fn standing(&self, ticket: Ticket, now: Duration) -> Standing {
        let Some(before) = self.wishes.iter().position(|wish| wish.ticket == ticket) else {
            return Standing::Denied;
        };
        let wish = self.wishes[before];
        if self.admits(wish.backend) {
            return Standing::Go;
        }
        let spot = &self.spots[wish.backend];
        if let Some(failed) = spot.failed.filter(|failed| failed.at >= wish.since) {
            return Standing::Failed(spot.pause(now).unwrap_or_else(|| now.saturating_sub(failed.at)));
        }
        let expected = self.expected(wish.backend, Some(before), now);
        if now >= wish.since + self.rules.wait {
            return Standing::TooLong { expected };
        }
        match self.offer(wish.backend, wish.may_swap, now) {
            Offer::Denied => Standing::Denied,
            Offer::Failed(again) => Standing::Failed(again),
            Offer::Ready | Offer::After(_) => Standing::Waits { before, expected },
        }
    }

    /// What is to be done now, if anything. The job is out until [`Cards::done`].
    pub fn next(&mut self, now: Duration) -> Option<Job> {
        if self.doing.is_some() {
            return None;
        }
        let mut leaving: Vec<Index> = Vec::new();
        // Who is older has a right to its cards: nobody younger may take them meanwhile.
        let mut older: Vec<Index> = Vec::new();
        let mut job = None;
        for target in self.targets(now) {
            let in_turn = !older.iter().any(|older| self.exclude(*older, target));
            older.push(target);
            let victims: Vec<Index> = self.victims(target).collect();
            if !in_turn || !victims.iter().all(|victim| self.may_leave(*victim, target, now)) {
                continue;
            }
            let drained = victims.iter().all(|victim| self.is_drained(*victim, now));
            leaving.extend(&victims);
            if drained {
                job = Some(Job { target, stop: victims, back: false });
                break;
            }
        }
        for (index, spot) in self.spots.iter_mut().enumerate() {
            spot.leaving = leaving.contains(&index).then(|| spot.leaving.unwrap_or(now));
        }
        let job = job.or_else(|| {
            let back = std::mem::take(&mut self.back);
            let target = back.into_iter().find(|back| {
                let spot = &self.spots[*back];
                let free = self.victims(*back).next().is_none() && spot.pause(now).is_none();
                spot.presence == Presence::Away
                    && free
                    && !older.iter().any(|older| self.exclude(*older, *back))
            });
            target.map(|target| Job { target, stop: Vec::new(), back: true })
        })?;
        for victim in &job.stop {
            self.spots[*victim].is(Presence::Away, now);
        }
        self.spots[job.target].is(Presence::Coming, now);
        self.back.clear();
        self.doing = Some(Doing { job: job.clone(), begun: now });
        Some(job)
    }

    /// How the job ended.
    pub fn done(&mut self, ended: Ended, now: Duration) {
        let Some(Doing { job, begun }) = self.doing.take() else { return };
        if matches!(ended, Ended::NotBegun | Ended::Deferred) {
            for victim in &job.stop {
                self.spots[*victim].is(Presence::There, now);
            }
        }
        let spot = &mut self.spots[job.target];
        if ended == Ended::Loaded {
            let took = now.saturating_sub(begun);
            // The last load tells as much as all before it: caches of the system make the second one faster.
            spot.learned = Some(spot.learned.map_or(took, |learned| (learned + took) / 2));
            spot.failed = None;
            spot.is(Presence::There, now);
        } else if ended == Ended::Deferred {
            spot.is(Presence::Away, now);
        } else {
            let times = spot.failed.map_or(0, |failed| failed.times).saturating_add(1);
            spot.failed = Some(Failed { at: now, times });
            spot.is(Presence::Away, now);
            if ended == Ended::Failed && !job.back {
                self.back = job.stop;
            }
        }
    }

    /// Backends that are wished for and can be loaded, the oldest wish first.
    pub(super) fn targets(&self, now: Duration) -> Vec<Index> {
        let mut targets: Vec<Index> = Vec::new();
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

    fn may_leave(&self, victim: Index, target: Index, now: Duration) -> bool {
        self.stays(victim, target, self.in_use(victim), now).is_zero()
    }

    fn is_drained(&self, victim: Index, now: Duration) -> bool {
        let spot = &self.spots[victim];
        let waited = spot.leaving.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        spot.busy.own == 0 && (spot.busy.others == 0 || waited >= self.rules.drain)
    }
}
