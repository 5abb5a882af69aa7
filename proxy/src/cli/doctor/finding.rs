//! What a trial found: a verdict, a sentence, and the lines of configuration that follow from it.
//!
//! Must never name a setting that was not seen to be needed.

use std::fmt;

use serde::Serialize;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// As it should be.
    Good,
    /// Odd, and the proxy mends it without being told.
    Mended,
    /// The configuration should say so: see the settings.
    Setting,
    /// Worth knowing; there is nothing to do.
    Note,
    /// Broken: somebody must look at the backend.
    Bad,
    /// Not found out, and why.
    Untold,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Good => "good",
            Self::Mended => "mended",
            Self::Setting => "setting",
            Self::Note => "note",
            Self::Bad => "bad",
            Self::Untold => "not told",
        })
    }
}

/// A line for the backend's entry in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Setting {
    pub(super) key: &'static str,
    /// Its value, as TOML.
    pub(super) value: String,
    pub(super) because: String,
}

/// What one trial found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) trial: &'static str,
    pub(super) verdict: Verdict,
    pub(super) said: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) settings: Vec<Setting>,
}

impl Finding {
    pub(super) fn new(trial: &'static str, verdict: Verdict, said: impl Into<String>) -> Self {
        Self { trial, verdict, said: said.into(), settings: Vec::new() }
    }

    /// With a line of configuration, which makes it a setting.
    pub(super) fn sets(mut self, key: &'static str, value: impl Into<String>, because: &str) -> Self {
        self.verdict = Verdict::Setting;
        self.settings.push(Setting { key, value: value.into(), because: because.to_owned() });
        self
    }
}
