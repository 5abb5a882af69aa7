//! What is known of a request and of a backend at the moment of the decision.
//!
//! Numbers and names only, so that a decision can be printed, tested as a table and replayed. Nothing here is looked up:
//! whoever builds the facts has done so before.

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

/// What a decision needs to know of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    /// The prompt's length.
    pub prompt: PromptSize,
    /// Output tokens that the client asked for, if it said so.
    pub output: Option<u64>,
    /// The prompt holds an image.
    pub images: bool,
    /// The session was just told to shorten itself: this request is its chance, and may use the headroom.
    pub may_fill: bool,
}

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
    /// It does not answer, or says that its engine is dead.
    Down,
}

impl fmt::Display for BackendState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "not probed yet",
            Self::Up => "up",
            Self::Loading => "loading",
            Self::Down => "down",
        })
    }
}

/// What a decision needs to know of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendFacts {
    /// The operator's name for it.
    pub name: String,
    /// Prompt and output together, tokens; `None` if nobody told.
    pub window: Option<u64>,
    /// The longest single prompt that it survives, tokens; `None` if no cliff is known.
    pub single: Option<u64>,
    /// Whether it can be asked now.
    pub state: BackendState,
    /// It reads images.
    pub images: bool,
}

impl BackendFacts {
    /// The longest prompt that may ever be sent there; `None` if no limit is known. One token is kept for the answer:
    /// engines refuse or cut to nothing a prompt that fills the window.
    #[must_use]
    pub fn prompt_limit(&self) -> Option<u64> {
        let window = self.window.map(|window| window.saturating_sub(1));
        match (window, self.single) {
            (Some(window), Some(single)) => Some(window.min(single)),
            (limit, None) | (None, limit) => limit,
        }
    }
}
