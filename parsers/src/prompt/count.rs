//! How many tokens a prompt has: exactly, or between two numbers that surely hold it.
//!
//! Why two shapes: most routing decisions are settled by bounds that cost one scan of the body, and an exact count needs the
//! model's vocabulary and template at hand. A bound must never be passed off as a count: whoever asks "does it fit" reads
//! [`TokenCount::high`], whoever asks "is it surely too long" reads [`TokenCount::low`].

use std::fmt;

/// The number of tokens of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenCount {
    /// Counted with the model's own template and vocabulary.
    Exact(u64),
    /// At least `low`, at most `high`.
    Between {
        /// Never more than the true count.
        low: u64,
        /// Never less than the true count.
        high: u64,
    },
}

impl TokenCount {
    /// The smallest number of tokens that it can be.
    pub fn low(self) -> u64 {
        match self {
            Self::Exact(count) => count,
            Self::Between { low, .. } => low,
        }
    }

    /// The largest number of tokens that it can be.
    pub fn high(self) -> u64 {
        match self {
            Self::Exact(count) => count,
            Self::Between { high, .. } => high,
        }
    }

    /// Whether this is a count and not a pair of bounds.
    pub fn is_exact(self) -> bool {
        matches!(self, Self::Exact(_))
    }
}

impl fmt::Display for TokenCount {
    /// `1234`, or `120-4000` for bounds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(count) => write!(f, "{count}"),
            Self::Between { low, high } => write!(f, "{low}-{high}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TokenCount;

    #[test]
    fn a_count_is_its_own_bounds_and_bounds_are_no_count() {
        let exact = TokenCount::Exact(7);
        assert_eq!(
            (exact.low(), exact.high(), exact.is_exact(), exact.to_string()),
            (7, 7, true, "7".into())
        );
        let between = TokenCount::Between { low: 120, high: 4000 };
        assert_eq!((between.low(), between.high(), between.is_exact()), (120, 4000, false));
        assert_eq!(between.to_string(), "120-4000");
    }
}
