//! Whether somebody waits for an answer.
//!
//! Clients send requests beside the conversation: a title for it, tags, a look for things worth remembering. They share the
//! gate with the turns that a person waits for, so they are told apart, and may wait. Only kinds that a profile knows count
//! as such: an unknown request is one that somebody waits for, and so is a compaction, without which the turn cannot go on.
//! An agent's turns are awaited, too, but nobody reads them word by word.

use super::clues::{Clues, Dialect};
use super::mark::all_hold;
use super::profile::{Profile, SideTraffic};

/// Who waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Somebody does, and reads as it comes. Embeddings, too: a search stands behind them.
    Interactive,
    /// An agent does: the next turn of its work, or the summary without which it cannot go on.
    Agent,
    /// Nobody does: it comes after those.
    Background,
}

/// The class of one request of a client.
#[must_use]
pub fn class(clues: &Clues<'_>, profile: &Profile) -> Class {
    let agent = !clues.tools.is_empty() || !profile.tools.is_empty();
    if side_traffic(clues, profile).is_some() {
        Class::Background
    } else if agent && clues.dialect != Dialect::Other {
        Class::Agent
    } else {
        Class::Interactive
    }
}

/// Which side traffic of the client the request is, if it is any.
#[must_use]
pub fn side_traffic(clues: &Clues<'_>, profile: &Profile) -> Option<&'static SideTraffic> {
    profile.side_traffic.iter().find(|side| all_hold(side.marks, clues))
}
