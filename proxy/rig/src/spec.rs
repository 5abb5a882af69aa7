//! The spec of one simulated backend: which engine, what it can carry, how fast, where it dies.
//!
//! A spec is data: presets reproduce published machines (`presets.toml`), a file or a test overrides what it wants.
//! It must never hold anything that changes while the backend runs.

use serde::{Deserialize, Serialize};

use crate::{
    Engine, Format, Script, SpecError, Timing,
    cache::PrefixCache,
    faults::{Death, Faults},
};

/// One simulated backend. Token counts are the rig's own ([`crate::count_tokens`]); times are simulated seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// What people call it. Default: the engine's name.
    #[serde(default)]
    pub name: String,
    /// Whose server it simulates.
    pub engine: Engine,
    /// Which version it behaves like and names. Default: the one that it is simulated after. vLLM before 0.11 has other
    /// metrics, errors and a limit for prompt and answer together; the other engines only name theirs.
    #[serde(default)]
    pub version: Option<String>,
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
    /// A single prompt of more fresh tokens than this kills the engine at four fifths of its prefill (cliff 2a); with
    /// [`Faults::dies_surely_above`] only sometimes, up to there. None: never.
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
    /// What one prompt may take of a step (`--long-prefill-token-threshold`); 0: no limit. It holds always, as in the
    /// versions that the figures were measured with; vLLM 0.32 lifts it for a prompt that is alone.
    #[serde(default)]
    pub long_prefill_threshold: usize,
    /// Whether each step is planned while the one before it runs (vLLM's asynchronous scheduling): a newcomer then
    /// waits for one more step.
    #[serde(default)]
    pub plans_ahead: bool,
    /// Prompts are cut at multiples of this many tokens: 1,600 for hybrid (GDN) models on vLLM.
    #[serde(default = "default_block")]
    pub block_tokens: usize,
    /// Tokens that the KV pool holds, as announced and measured; none: `window` times `slots`. A prompt is admitted when
    /// the pool has room for it; when it is full, the newest request is computed again later. llama.cpp's slots have a
    /// `window` each.
    #[serde(default)]
    pub kv_pool: Option<usize>,
    /// How it reuses the beginnings of prompts. None: not at all.
    #[serde(default)]
    pub prefix_cache: Option<PrefixCache>,
    /// What goes wrong by itself.
    #[serde(default)]
    pub faults: Faults,
    /// Seconds from a death until the process is back (default 3); none, in files `"never"`: it stays away.
    #[serde(default = "default_restart", with = "seconds_or_never")]
    pub restart_after: Option<f64>,
    /// Seconds of loading after that: llama.cpp answers 503, vLLM's port refuses.
    #[serde(default)]
    pub load_time: f64,
    /// Whether it has yet to load when it starts.
    #[serde(default)]
    pub cold: bool,
    /// The member that carries thoughts; none: `reasoning` for vLLM and Ollama, `reasoning_content` for the others.
    #[serde(default)]
    pub reasoning_field: Option<String>,
    /// Whether answers begin with a thought, unless the request's `chat_template_kwargs.enable_thinking` says.
    #[serde(default)]
    pub thinks: bool,
    /// Whether it was started with a reasoning parser; without one thoughts stand in the content, in `<think>` tags.
    #[serde(default = "yes")]
    pub reasoning_parser: bool,
    /// Which requests with tools are answered with a call, and how.
    #[serde(default)]
    pub calls: Calls,
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

const MOST_SLOTS: usize = 65_536;
const MOST_BLOCK: usize = 65_536;

/// How often and in which form a model calls the tools that it is offered. The answer to a tool's result is always
/// prose, so that a client's loop ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Calls {
    /// The share of requests with tools (and `tool_choice: auto`) that are answered with a call.
    pub share: f64,
    /// As text in this format, as if no tool parser knew it; none: through the engine's own parser.
    pub format: Option<Format>,
    /// The share of those texts that have a flaw.
    pub flawed: f64,
}

impl Spec {
    /// The version that it names.
    pub(crate) fn version(&self) -> &str {
        self.version.as_deref().unwrap_or_else(|| self.engine.version())
    }

    /// Whether a death takes its whole process at once, and resets its sockets.
    pub(crate) fn aborts(&self) -> bool {
        self.engine.aborts() || self.faults.death == Death::Process
    }

    /// Whether it is a vLLM from before 0.11.
    pub(crate) fn is_old_vllm(&self) -> bool {
        let mut numbers = self.version().split('.').map(|number| number.parse::<u64>().unwrap_or(0));
        self.engine == Engine::Vllm && (numbers.next(), numbers.next()) < (Some(0), Some(11))
    }

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
        if self.kv_pool() < self.window {
            return wrong("kv_pool", self.kv_pool().to_string(), "at least the window: one prompt must fit");
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
        let shares = [
            ("calls.share", Some(self.calls.share)),
            ("calls.flawed", Some(self.calls.flawed)),
            ("timing.mtp.accept", timing.mtp.map(|mtp| mtp.accept)),
            ("prefix_cache.reuse", self.prefix_cache.map(|cache| cache.reuse)),
        ];
        for (field, value) in shares {
            if let Some(value) = value.filter(|value| !(0.0..=1.0).contains(value)) {
                return wrong(field, value.to_string(), "from 0 to 1");
            }
        }
        if timing.measured.is_some_and(|measured| !measured.is_sound()) {
            return wrong("timing.measured", "out of order".to_owned(), "two rows above 0 that ascend");
        }
        if self.slots > MOST_SLOTS {
            return wrong("slots", self.slots.to_string(), "at most 65536");
        }
        if let Some(cache) = self.prefix_cache.filter(|cache| !(1..=MOST_BLOCK).contains(&cache.block)) {
            return wrong("prefix_cache.block", cache.block.to_string(), "from 1 to 65536");
        }
        if self.faults.busy_above.is_some() && matches!(self.engine, Engine::LlamaCpp | Engine::IkLlama) {
            let value = self.faults.busy_above.unwrap_or_default().to_string();
            return wrong("faults.busy_above", value, "absent: this engine lets requests wait without limit");
        }
        if let Some(mtp) = timing.mtp.filter(|mtp| mtp.drafts > 16) {
            return wrong("timing.mtp.drafts", mtp.drafts.to_string(), "at most 16");
        }
        let company = timing.company.iter().flat_map(|company| company.short.into_iter().chain(company.deep));
        if let Some(value) = company.into_iter().find(|value| !(*value > 0.0 && *value <= 1.0)) {
            return wrong("timing.company", value.to_string(), "above 0 and at most 1");
        }
        self.faults.check(&self.name, self.dies_above)
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
