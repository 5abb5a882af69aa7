//! What a wish waits for: said to its client while it waits, and when it has waited too long.
//!
//! Only what is true now. It must never decide anything.

use std::time::Duration;

use super::{Cards, Index, Presence, Ticket};

/// What stands between a wish and its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The backend is being loaded for so long.
    Loads(Duration),
    /// Another one is being loaded first, for so long.
    Other(Index, Duration),
    /// Whoever carries loads out cannot be reached for so long.
    Unreachable(Duration),
    /// An older wish wants another one.
    Older(Index),
    /// Another one keeps its place for so long still.
    Stays(Index, Duration),
    /// Requests of the proxy and of others run at another one, which goes when they have ended.
    Runs(Index, u64, u64),
    /// It is next.
    Next,
}

impl Cards {
    /// What a wish waits for; `None`: there is no such wish.
    #[must_use]
    pub fn hold(&self, ticket: Ticket, now: Duration) -> Option<Hold> {
        let place = self.wishes.iter().position(|wish| wish.ticket == ticket)?;
        let backend = self.wishes[place].backend;
        if let Some(doing) = &self.doing {
            let since = now.saturating_sub(doing.begun);
            let target = doing.job.target;
            return Some(if target == backend { Hold::Loads(since) } else { Hold::Other(target, since) });
        }
        if self.spots[backend].presence == Presence::Coming {
            return Some(Hold::Loads(now.saturating_sub(self.spots[backend].since)));
        }
        if let Some(since) = self.unreachable {
            return Some(Hold::Unreachable(now.saturating_sub(since)));
        }
        let older = self.wishes[..place]
            .iter()
            .map(|wish| wish.backend)
            .find(|other| self.spots[*other].presence == Presence::Away && self.exclude(*other, backend));
        if let Some(older) = older {
            return Some(Hold::Older(older));
        }
        let stays = |victim: Index| (victim, self.stays(victim, backend, self.in_use(victim), now));
        let longest = self.victims(backend).map(stays).max_by_key(|(_, left)| *left);
        if let Some((victim, left)) = longest.filter(|(_, left)| !left.is_zero()) {
            return Some(Hold::Stays(victim, left));
        }
        let busy = self.victims(backend).find(|victim| self.spots[*victim].is_busy());
        Some(busy.map_or(Hold::Next, |victim| {
            let busy = self.spots[victim].busy;
            Hold::Runs(victim, busy.own, busy.others)
        }))
    }
}
