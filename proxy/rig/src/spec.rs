//! The spec of one simulated backend: which engine, what it can carry, how fast, where it dies.
//!
//! A spec is data: presets reproduce published machines (`presets.toml`), a file or a test overrides what it wants.
//! It must never hold anything that changes while the backend runs.

use serde::{Deserialize, Serialize};

use crate::{Script, Timing};

/// Whose wire a simulated backend speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Engine {
    /// vLLM 0.32's OpenAI-compatible server.
    Vllm,
    /// llama.cpp's `llama-server`.
    LlamaCpp,
}

impl Engine {
    /// Its name in files and on command lines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::LlamaCpp => "llama-cpp",
        }
    }
}

/// One simulated backend. Token counts are the rig's own ([`crate::count_tokens`]); times are simulated seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// What people call it. Default: the engine's name.
    #[serde(default)]
    pub name: String,
    /// Whose wire it speaks.
    pub engine: Engine,
    /// The model name that it serves. vLLM refuses other names, llama.cpp does not care.
    #[serde(default = "default_model")]
    pub model: String,
    /// Other names for the same model.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// The port that the published machine uses; 0: any free one. [`crate::Rig::start`] takes its own address.
    #[serde(default)]
    pub port: u16,
    /// Context window in tokens, as it is announced.
    #[serde(default = "default_window")]
    pub window: usize,
    /// A single prompt of more tokens than this kills the engine at four fifths of its prefill (cliff 2a). None: never.
    #[serde(default)]
    pub dies_above: Option<usize>,
    /// How long its work takes.
    #[serde(default)]
    pub timing: Timing,
    /// Requests that run at once (`--max-num-seqs`, `-np`); the others wait without limit.
    #[serde(default = "default_slots")]
    pub slots: usize,
    /// Prompt and output tokens of one step (`--max-num-batched-tokens`, `-b`).
    #[serde(default = "default_batch")]
    pub batch_tokens: usize,
    /// What one prompt may take of a step while others run (`--long-prefill-token-threshold`); 0: no limit.
    #[serde(default)]
    pub long_prefill_threshold: usize,
    /// Prompts are cut at multiples of this many tokens: 1,600 for hybrid (GDN) models on vLLM.
    #[serde(default = "default_block")]
    pub block_tokens: usize,
    /// Tokens that the KV pool holds, as announced and measured; none: `window` times `slots`.
    #[serde(default)]
    pub kv_pool: Option<usize>,
    /// Seconds from a death until the process is back (default 3); none, in files `"never"`: it stays away.
    #[serde(default = "default_restart", with = "seconds_or_never")]
    pub restart_after: Option<f64>,
    /// Seconds of loading after that: llama.cpp answers 503, vLLM's port refuses.
    #[serde(default)]
    pub load_time: f64,
    /// Whether it has yet to load when it starts.
    #[serde(default)]
    pub cold: bool,
    /// The member that carries thoughts; none: `reasoning` for vLLM, `reasoning_content` for llama.cpp.
    #[serde(default)]
    pub reasoning_field: Option<String>,
    /// Whether answers begin with a thought, unless the request's `chat_template_kwargs.enable_thinking` says.
    #[serde(default)]
    pub thinks: bool,
    /// Whether it was started with a tool parser.
    #[serde(default = "yes")]
    pub tool_parser: bool,
    /// Whether it takes images.
    #[serde(default)]
    pub vision: bool,
    /// Seconds of silence after which a stream carries a comment. None: never for vLLM, 30 for llama.cpp.
    #[serde(default)]
    pub keep_alive: Option<f64>,
    /// Answers are functions of this and the prompt.
    #[serde(default)]
    pub seed: u64,
    /// What it does with its next requests.
    #[serde(default)]
    pub script: Script,
}

impl Spec {
    /// Tokens that the KV pool holds.
    pub fn kv_pool(&self) -> usize {
        self.kv_pool.unwrap_or(self.window.saturating_mul(self.slots))
    }

    /// Whether all numbers are in their ranges.
    ///
    /// # Errors
    /// [`SpecError::Range`] for the first that is not.
    pub fn check(&self) -> Result<(), SpecError> {
        let wrong = |field, value: String, must| {
            Err(SpecError::Range { name: self.name.clone(), field, value, must })
        };
        let at_least_one = [
            ("window", self.window),
            ("slots", self.slots),
            ("block_tokens", self.block_tokens),
            ("kv_pool", self.kv_pool()),
        ];
        for (field, value) in at_least_one {
            if value == 0 {
                return wrong(field, value.to_string(), "at least 1");
            }
        }
        if self.batch_tokens < self.block_tokens.saturating_add(self.slots) {
            return wrong("batch_tokens", self.batch_tokens.to_string(), "at least block_tokens plus slots");
        }
        let timing = &self.timing;
        for (field, value) in [
            ("timing.prefill_a", timing.prefill_a),
            ("timing.prefill_b", timing.prefill_b),
            ("timing.ttft_floor", timing.ttft_floor),
            ("restart_after", self.restart_after.unwrap_or_default()),
            ("load_time", self.load_time),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return wrong(field, value.to_string(), "0 or more");
            }
        }
        for (field, value) in [
            ("timing.decode_tokens_per_second", timing.decode_tokens_per_second),
            ("keep_alive", self.keep_alive.unwrap_or(1.0)),
        ] {
            if !(value.is_finite() && value > 0.0) {
                return wrong(field, value.to_string(), "above 0");
            }
        }
        Ok(())
    }
}

fn default_model() -> String {
    "qwen3.6-27b".to_owned()
}

fn default_window() -> usize {
    32_768
}

fn default_slots() -> usize {
    1
}

fn default_batch() -> usize {
    2_048
}

fn default_block() -> usize {
    1
}

#[expect(clippy::unnecessary_wraps, reason = "serde wants the field's own type")]
fn default_restart() -> Option<f64> {
    Some(3.0)
}

fn yes() -> bool {
    true
}

/// Seconds, or the word `never`: TOML has no way to write nothing.
mod seconds_or_never {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Seconds(f64),
        Word(String),
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        match Written::deserialize(deserializer)? {
            Written::Seconds(seconds) => Ok(Some(seconds)),
            Written::Word(word) if word == "never" => Ok(None),
            Written::Word(word) => {
                Err(D::Error::custom(format!("{word:?} is neither seconds nor \"never\"")))
            }
        }
    }

    pub(super) fn serialize<S: Serializer>(seconds: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        match seconds {
            Some(seconds) => seconds.serialize(serializer),
            None => "never".serialize(serializer),
        }
    }
}

/// What is wrong with a spec, a script, a fleet file or a clock.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// No such preset.
    #[error("there is no preset {slug:?}; there are {known}")]
    Preset {
        /// What was asked for.
        slug: String,
        /// The slugs that exist.
        known: String,
    },
    /// A step of a script that is none.
    #[error(
        "{text:?} is no step; steps are ok, say TEXT, call NAME ARGUMENTS, empty, http:CODE (400 to 599), dead, \
         stall, stall:TOKENS, cut:TOKENS"
    )]
    Step {
        /// The step as written.
        text: String,
    },
    /// A clock's speed that is none.
    #[error("a clock's speed must be a finite number above 0, not {speed}")]
    Speed {
        /// The speed asked for.
        speed: f64,
    },
    /// A number outside its range.
    #[error("{name}: {field} is {value}, it must be {must}")]
    Range {
        /// The spec's name.
        name: String,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        must: &'static str,
    },
    /// A text that is no spec.
    #[error("{place}: {problem}")]
    Syntax {
        /// Which file or backend.
        place: String,
        /// What the reader said.
        problem: String,
    },
}
