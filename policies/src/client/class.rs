//! Whether somebody waits for an answer.
//!
//! Clients send requests beside the conversation: a title for it, tags, a look for things worth remembering. They share the
//! gate with the turns that a person waits for, so they are told apart, and may wait. Only kinds that a profile knows count
//! as such: an unknown request is one that somebody waits for, and so is a compaction, without which the turn cannot go on.

use super::clues::Clues;
use super::mark::all_hold;
use super::profile::{Profile, SideTraffic};

/// Who waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Somebody does.
    Interactive,
    /// Nobody does: it comes after those.
    Background,
}

/// The class of one request of a client.
#[must_use]
pub fn class(clues: &Clues<'_>, profile: &Profile) -> Class {
    if side_traffic(clues, profile).is_some() { Class::Background } else { Class::Interactive }
}

/// Which side traffic of the client the request is, if it is any.
#[must_use]
pub fn side_traffic(clues: &Clues<'_>, profile: &Profile) -> Option<&'static SideTraffic> {
    profile.side_traffic.iter().find(|side| all_hold(side.marks, clues))
}
