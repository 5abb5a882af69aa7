//! The state machine itself: who is there, who waits for whom, and what is done next.

use std::time::Duration;

use super::{Busy, Ended, Index, Job, Loadable, Offer, Presence, Rules, Standing, Ticket};

/// After a load that failed; doubled with each further failure, up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(900);

/// What others load takes no longer than so many times its load time.
pub(super) const HANGS: u32 = 3;

/// Whoever carries loads out is waited for so long if it cannot be reached: services of one machine come up one after another.
const UNREACHABLE: Duration = Duration::from_secs(60);

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
    /// A load has failed since: whoever was good before it is owed its cards.
    owed: bool,
    /// Whoever carries loads out cannot be reached since.
    pub(super) unreachable: Option<Duration>,
}

/// One backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) backend: Loadable,
    pub(super) presence: Presence,
    /// When that began.
    pub(super) since: Duration,
    /// When it was last seen in use.
    pub(super) used: Duration,
    pub(super) busy: Busy,
    /// Looks in a row that did not find it.
    missed: u32,
    /// It gets nothing new, since this time: it is to go.
    pub(super) leaving: Option<Duration>,
    failed: Option<Failed>,
    /// It was the last one that was there on its cards, and went only for another.
    good: bool,
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
    /// Since when those that go for it were there, and when they were last in use.
    were: Vec<(Duration, Duration)>,
}

impl Spot {
    pub(super) fn load_time(&self) -> Duration {
        self.backend.seen.unwrap_or(self.backend.expected)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy != Busy::default()
    }

    /// How long until a load is tried again.
    pub(super) fn pause(&self, now: Duration) -> Option<Duration> {
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
            presence: Presence::Away,
            since: Duration::ZERO,
            used: Duration::ZERO,
            busy: Busy::default(),
            missed: 0,
            leaving: None,
            failed: None,
            good: false,
        };
        let spots = backends.into_iter().map(spot).collect();
        Self { rules, spots, wishes: Vec::new(), doing: None, owed: false, unreachable: None }
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
            self.arrives(backend, now);
        } else {
            // Somebody else has taken it away, or it died: that is no load of ours that failed.
            spot.good &= self.owed || spot.presence == Presence::Away;
            spot.is(presence, now);
        }
    }

    /// It is there: the last good one of its cards.
    fn arrives(&mut self, backend: Index, now: Duration) {
        for other in 0..self.spots.len() {
            self.spots[other].good &= !self.exclude(backend, other);
        }
        let spot = &mut self.spots[backend];
        spot.good = true;
        spot.is(Presence::There, now);
    }

    /// Whether whoever carries loads out can be reached.
    pub fn reaches(&mut self, reached: bool, now: Duration) {
        self.unreachable = if reached { None } else { self.unreachable.or(Some(now)) };
    }

    /// How long a backend was seen to load.
    #[must_use]
    pub fn load_time(&self, backend: Index) -> Option<Duration> {
        self.spots.get(backend)?.backend.seen
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
            // A load that takes longer than anybody waits is tried all the same: it goes on when who waits has given up, and
            // may be faster the next time.
            Offer::After(expected) if expected > self.rules.wait.max(self.spots[backend].load_time()) => {
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
    pub fn is_waited_for(&self, now: Duration) -> bool {
        !self.wishes.is_empty()
            || self.back(now).is_some()
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
        if let Some(since) = self.unreachable
            && spot.presence != Presence::Coming
            && now.saturating_sub(since) >= UNREACHABLE
        {
            return Offer::Failed(Duration::from_secs(1));
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
            return Standing::Expired { waited: now - wish.since };
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
            let target = self.back(now).filter(|_| self.unreachable.is_none())?;
            let in_turn = !older.iter().any(|older| self.exclude(*older, target));
            in_turn.then(|| Job { target, stop: Vec::new(), back: true })
        })?;
        let were = job.stop.iter().map(|victim| (self.spots[*victim].since, self.spots[*victim].used));
        self.doing = Some(Doing { job: job.clone(), begun: now, were: were.collect() });
        for victim in &job.stop {
            self.spots[*victim].is(Presence::Away, now);
        }
        self.spots[job.target].is(Presence::Coming, now);
        Some(job)
    }

    /// Who is to come back after a load that failed, and who is on its way.
    pub fn comes_back(&self) -> impl Iterator<Item = Index> + '_ {
        let under_way = self.doing.as_ref().filter(|doing| doing.job.back).map(|doing| doing.job.target);
        let owed = |index: &Index| {
            let spot = &self.spots[*index];
            self.owed && spot.good && spot.presence == Presence::Away
        };
        (0..self.spots.len()).filter(move |index| Some(*index) == under_way || owed(index))
    }

    /// Who is owed its cards and could have them now.
    fn back(&self, now: Duration) -> Option<Index> {
        let owed = |index: &Index| {
            let spot = &self.spots[*index];
            spot.good && spot.presence == Presence::Away && spot.pause(now).is_none()
        };
        let free = |index: &Index| self.victims(*index).next().is_none();
        (0..self.spots.len()).filter(|_| self.owed).find(|index| owed(index) && free(index))
    }

    /// How the job ended.
    pub fn done(&mut self, ended: Ended, now: Duration) {
        let Some(Doing { job, begun, were }) = self.doing.take() else { return };
        if matches!(ended, Ended::NotBegun | Ended::Deferred | Ended::Unreachable) {
            for (victim, (since, used)) in job.stop.iter().zip(were) {
                self.arrives(*victim, now);
                if ended != Ended::Deferred {
                    // It was there all the time.
                    let spot = &mut self.spots[*victim];
                    (spot.since, spot.used) = (since, used);
                }
            }
        }
        match ended {
            Ended::Loaded => {
                let took = now.saturating_sub(begun);
                let spot = &mut self.spots[job.target];
                // The last load tells as much as all before it: caches of the system make the second one faster.
                spot.backend.seen = Some(spot.backend.seen.map_or(took, |seen| (seen + took) / 2));
                spot.failed = None;
                self.arrives(job.target, now);
            }
            Ended::Deferred => self.spots[job.target].is(Presence::Away, now),
            Ended::Unreachable => {
                self.spots[job.target].is(Presence::Away, now);
                self.reaches(false, now);
            }
            Ended::Failed | Ended::NotBegun => {
                let spot = &mut self.spots[job.target];
                let times = spot.failed.map_or(0, |failed| failed.times).saturating_add(1);
                spot.failed = Some(Failed { at: now, times });
                spot.is(Presence::Away, now);
                self.owed |= ended == Ended::Failed;
            }
        }
        let is_owed = |spot: &Spot| spot.good && spot.presence == Presence::Away;
        self.owed &= self.spots.iter().any(is_owed);
    }
}
