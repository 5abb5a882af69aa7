//! The length of a prompt, as well as it is known.
//!
//! Exact where it was counted; else two bounds, and what to plan with between them. It never claims to know more than its bounds.

use std::fmt;

/// How long a prompt is, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptSize {
    /// The engine will see exactly so many tokens.
    Exact(u64),
    /// Nobody could count: the true number lies between the two, both included.
    Between {
        /// No tokenizer yields fewer.
        low: u64,
        /// No tokenizer yields more.
        high: u64,
    },
}

impl PromptSize {
    /// The least that the prompt can have.
    #[must_use]
    pub fn low(self) -> u64 {
        match self {
            Self::Exact(tokens) => tokens,
            Self::Between { low, .. } => low,
        }
    }

    /// The most that the prompt can have.
    #[must_use]
    pub fn high(self) -> u64 {
        match self {
            Self::Exact(tokens) => tokens,
            Self::Between { high, .. } => high,
        }
    }

    /// What to plan with. Upper bounds are byte counts, and code, prose, JSON and Chinese have 3.6 bytes or more a token;
    /// a third of margin on top of that gives 2.8. Base64 (1.35) is underestimated: its letter and digit runs raise `low`.
    #[must_use]
    pub fn expected(self) -> u64 {
        match self {
            Self::Exact(tokens) => tokens,
            Self::Between { low, high } => low.max(high.saturating_mul(10) / 28).min(high.max(low)),
        }
    }
}

impl fmt::Display for PromptSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(tokens) => write!(f, "{tokens}"),
            Self::Between { low, high } => write!(f, "{low}-{high}"),
        }
    }
}
