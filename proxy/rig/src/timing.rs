//! The time model: how many seconds the work takes, as functions of token counts alone.
//!
//! `T(n) = a·n + b·n²` seconds to prefill n tokens: `a` is the matrix work per token, `b` the attention to what stands
//! before it. Two parameters reproduce the published points of each machine within a few percent
//! (`presets.toml` names the points). It must never know a clock, a socket or an answer.

use serde::{Deserialize, Serialize};

/// What one machine takes for its work. All times in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timing {
    /// `a`: prefill seconds per token.
    pub prefill_a: f64,
    /// `b`: prefill seconds per token squared.
    pub prefill_b: f64,
    /// What even the shortest prompt waits before its first token, on top of `T(n)`.
    pub ttft_floor: f64,
    /// Tokens per second of one undisturbed stream.
    pub decode_tokens_per_second: f64,
}

impl Default for Timing {
    /// A single 3090 with a 27B model, as published for llama.cpp.
    fn default() -> Self {
        Self { prefill_a: 9.46e-4, prefill_b: 2.15e-9, ttft_floor: 0.1, decode_tokens_per_second: 50.0 }
    }
}

impl Timing {
    /// `T(n)`: seconds to prefill `tokens` tokens of an empty context.
    pub fn prefill(&self, tokens: usize) -> f64 {
        let n = tokens as f64;
        self.prefill_a * n + self.prefill_b * n * n
    }

    /// Seconds for `tokens` more tokens of a prompt of which `done` are in. The pieces of a prompt add up to `T(n)`,
    /// however it is cut.
    pub fn prefill_piece(&self, done: usize, tokens: usize) -> f64 {
        self.prefill(done + tokens) - self.prefill(done)
    }

    /// Seconds from the start of a prefill of `tokens` tokens to the first token, on an idle engine.
    pub fn first_token(&self, tokens: usize) -> f64 {
        self.ttft_floor + self.prefill(tokens)
    }

    /// Seconds of one decode step, in which each of the `streams` gets one token. Published for up to four short
    /// streams: the step does not grow.
    pub fn decode_step(&self, streams: usize) -> f64 {
        if streams == 0 { 0.0 } else { 1.0 / self.decode_tokens_per_second }
    }
}
