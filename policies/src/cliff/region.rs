//! The limits that follow from what was learned of a backend, and what stands above them.
//!
//! Plain values, copied into each decision, so that a sentence can name the death behind a refusal. Must never say more than
//! the deaths do: a limit is of one dimension.

use super::{Dimension, Shape};

/// How far above a limit is explored: a tenth.
const EXPLORES: (u64, u64) = (11, 10);

/// A learned limit in one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The largest size that is held for safe.
    pub limit: u64,
    /// The death behind it.
    pub killer: u64,
    /// It has faded: passed if nobody else is left.
    pub soft: bool,
}

/// The limits that were learned, one a dimension at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    pub(super) bounds: [Option<Bound>; 5],
    /// Whether a size a little above a limit may be tried on a backend that does nothing else.
    pub explores: bool,
}

/// A size above a learned limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// In which dimension.
    pub dimension: Dimension,
    /// The request's size there.
    pub size: u64,
    /// The limit.
    pub bound: Bound,
}

impl Region {
    /// The limit in one dimension.
    #[must_use]
    pub fn bound(&self, dimension: Dimension) -> Option<Bound> {
        self.bounds[dimension as usize]
    }

    /// The same, if it is never passed.
    #[must_use]
    pub fn hard(&self, dimension: Dimension) -> Option<u64> {
        self.bound(dimension).filter(|bound| !bound.soft).map(|bound| bound.limit)
    }

    /// The narrowest limit that may depend on the exact length of a prompt; `None`: none does.
    #[must_use]
    pub fn least_tokens(&self) -> Option<u64> {
        let limits = [Dimension::New, Dimension::Accumulated].map(|dimension| self.bound(dimension));
        limits.into_iter().flatten().map(|bound| bound.limit).min()
    }

    /// The narrowest limit that stands in the way of a request of this shape by itself: of tokens in its prompt and
    /// pictures. How much stands beside it is for admission.
    #[must_use]
    pub fn beyond(&self, shape: &Shape) -> Option<Beyond> {
        let own = [Dimension::New, Dimension::Accumulated, Dimension::Images];
        let beyond = own.into_iter().filter_map(|dimension| {
            let (size, bound) = (shape.size(dimension), self.bound(dimension)?);
            (size > bound.limit).then_some(Beyond { dimension, size, bound })
        });
        beyond.min_by_key(|beyond| (beyond.bound.soft, beyond.bound.limit))
    }
}

impl Beyond {
    /// Whether it may be tried all the same if nobody else is left: the limit has faded, or it is only just passed, may be
    /// explored, and nobody else would suffer.
    #[must_use]
    pub fn may_be_tried(&self, region: &Region, running: u64) -> bool {
        let near = self.size <= self.bound.limit.saturating_mul(EXPLORES.0) / EXPLORES.1;
        self.bound.soft || (region.explores && running == 0 && near)
    }
}
