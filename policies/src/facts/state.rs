//! Whether a backend can be asked: as probes and requests find it, and as its loader has it.
//!
//! Two answers, since one that is away can be brought back: what a decision makes of that is for [`crate::routing`].

use std::fmt;

/// Whether a backend can be asked now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BackendState {
    /// Not probed yet. Counts as up: an attempt tells sooner than a probe.
    #[default]
    Unknown,
    /// It answers.
    Up,
    /// It answers that its model is being loaded.
    Loading,
    /// Nobody answers at its address.
    Absent,
    /// It is being stopped: what it runs may still end, but it gets nothing new.
    Draining,
    /// It answers that its engine is dead.
    Dead,
    /// It is not on the cards, and a loader can bring it there.
    NotLoaded,
}

impl BackendState {
    /// Whether requests are sent there before all others are asked.
    #[must_use]
    pub fn takes_requests(self) -> bool {
        matches!(self, Self::Unknown | Self::Up)
    }

    /// Whether nothing can come of it, not even of what it runs.
    #[must_use]
    pub fn is_gone(self) -> bool {
        matches!(self, Self::Absent | Self::Dead | Self::NotLoaded)
    }
}

impl fmt::Display for BackendState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "not probed yet",
            Self::Up => "up",
            Self::Loading => "loading",
            Self::Absent => "absent",
            Self::Draining => "draining",
            Self::Dead => "dead",
            Self::NotLoaded => "not loaded",
        })
    }
}

/// Whether a backend is on its cards, as a request finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loaded {
    /// It is, or needs no loading.
    #[default]
    Yes,
    /// Not yet: it can be asked after so many seconds, expected.
    After(f64),
    /// Another would have to go for it, and this request may not ask for that.
    MayNot,
    /// It could not be loaded lately; so many seconds until that is tried again.
    Failed(u64),
}
