//! From the figures as published to presets.
//!
//! A limit above the window is cut to it. Unknown members are refused, so that nothing is carried that nobody reads.

use std::time::Duration;

use serde::Deserialize;
use switchback_parsers::diagnosis::Engine;
use switchback_policies::facts::Limit;

use super::prefill::Prefill;
use super::{Preset, Status, cautions};

#[derive(Debug, Deserialize)]
struct File {
    presets: Vec<Row>,
}

/// One machine, as the file has it. Absent: not published.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) slug: String,
    pub(super) engine: Program,
    pub(super) model: String,
    #[serde(default)]
    served_names: Vec<String>,
    port: u16,
    pub(super) status: Status,
    pub(super) topology: Topology,
    tp: u32,
    pub(super) max_ctx: u64,
    pub(super) max_num_seqs: u64,
    kv_pool_tokens: Option<u64>,
    pub(super) single_prompt_safe_tokens: Option<u64>,
    pub(super) accumulated_safe_tokens: Option<u64>,
    /// From where on conversations were seen to kill it, and where they surely did.
    pub(super) accumulated_oom_tokens: Option<(u64, u64)>,
    fillable_tokens_verified: Option<u64>,
    #[serde(default)]
    pub(super) cliffs: Vec<Cliff>,
    #[serde(default)]
    prefill_tok_s: Vec<(f64, f64)>,
    pub(super) long_prefill_token_threshold: Option<u64>,
    decode_tps: Option<Decode>,
    ttft_ms_short: Option<u64>,
    pub(super) rig: Option<String>,
    vision: Option<bool>,
    tool_parser: Option<String>,
    reasoning_parser: Option<String>,
    #[serde(default)]
    pub(super) mtp: bool,
    sources: Vec<String>,
}

/// The program in the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Program {
    Vllm,
    LlamaCpp,
    IkLlama,
    /// A fork of llama.cpp with the same wire.
    Beellama,
    /// Another.
    #[serde(rename = "llamacpp-club3090")]
    LlamaCppClub3090,
}

/// On how many cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Topology {
    Single,
    Dual,
    Multi4,
    Multi8,
}

/// A way to fail that is published for a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum Cliff {
    /// One long prompt runs it out of memory.
    #[serde(rename = "cliff2a")]
    Single,
    /// A conversation does, over several turns.
    #[serde(rename = "cliff2b")]
    Accumulated,
    /// The first token comes later with each turn.
    #[serde(rename = "cliff3")]
    SlowTurns,
    /// The same, less so.
    #[serde(rename = "cliff3-attenuated")]
    SlowerTurns,
    /// A long prefill stops running answers.
    #[serde(rename = "decode-starvation")]
    Starvation,
}

/// Tokens a second.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Decode {
    narrative: Option<f64>,
    code: Option<f64>,
}

/// Reads the file.
pub(super) fn read(text: &str) -> Result<Vec<Preset>, serde_json::Error> {
    let file: File = serde_json::from_str(text)?;
    Ok(file.presets.into_iter().map(preset).collect())
}

fn preset(row: Row) -> Preset {
    let within = |limit: u64| limit.min(row.max_ctx);
    Preset {
        cautions: cautions::of(&row),
        engine: match row.engine {
            Program::Vllm => Engine::Vllm,
            Program::LlamaCpp | Program::Beellama | Program::LlamaCppClub3090 => Engine::LlamaCpp,
            Program::IkLlama => Engine::IkLlama,
        },
        single: row.single_prompt_safe_tokens.map(within),
        accumulated: row.accumulated_safe_tokens.map(|tokens| Limit { tokens: within(tokens), soft: true }),
        resident: row.fillable_tokens_verified.map(within),
        prefill: Prefill::fit(&row.prefill_tok_s),
        decode: row.decode_tps.and_then(|rate| rate.narrative.or(rate.code)),
        first_token: row.ttft_ms_short.map(Duration::from_millis),
        slug: row.slug,
        model: row.model,
        names: row.served_names,
        port: row.port,
        status: row.status,
        cards: row.tp,
        rig: row.rig,
        window: row.max_ctx,
        slots: row.max_num_seqs,
        pool: row.kv_pool_tokens,
        long_prefill_threshold: row.long_prefill_token_threshold,
        vision: row.vision,
        tool_parser: row.tool_parser,
        reasoning_parser: row.reasoning_parser,
        mtp: row.mtp,
        sources: row.sources,
    }
}
