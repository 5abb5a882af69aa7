//! The time model: how many seconds the work takes, as functions of token counts alone.
//!
//! `T(n) = a·n + b·n²` seconds to prefill n tokens: `a` is the matrix work per token, `b` the attention to what stands
//! before it. Decode is `tps₀ · f(d) · g(N)`: slower with the depth of the context, slower in company. Few parameters
//! reproduce the published points of each machine (`presets.toml` names the points). It must never know a clock, a
//! socket or an answer.

use serde::{Deserialize, Serialize};

use crate::random::Random;

/// What one machine takes for its work. All times in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timing {
    /// `a`: prefill seconds per token.
    pub prefill_a: f64,
    /// `b`: prefill seconds per token squared.
    pub prefill_b: f64,
    /// Measured prefill times instead of the formula. None: the formula.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// What even the shortest prompt waits before its first token, on top of `T(n)`, unless it begins beside another.
    pub ttft_floor: f64,
    /// Tokens per second of one undisturbed stream with a short context.
    pub decode_tokens_per_second: f64,
    /// `f(d)`: how decode slows with depth. None: not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<Depth>,
    /// `g(N)`: how each stream slows in company. None: not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub company: Option<Company>,
    /// Speculative decoding: tokens come in bursts. None: one a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtp: Option<Mtp>,
}

/// Six measured prefill times, ascending; straight lines between them where both axes are logarithms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Tokens of the prompts.
    pub tokens: [f64; 6],
    /// Seconds that they took.
    pub seconds: [f64; 6],
}

/// `f(d) = 1 / (1 + (d − flat) / scale)` for a context of d tokens, 1 up to `flat`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Depth {
    /// Tokens of context up to which decode does not slow.
    pub flat: usize,
    /// So many tokens further it has half its speed.
    pub scale: usize,
}

/// `g(N)` for N = 1, 2, 4, 8 and 16 streams, linear between, and above 16 so that their sum stays.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Company {
    /// With short contexts.
    pub short: [f64; 5],
    /// With contexts of 16,000 tokens and more; linear in the mean depth below that.
    pub deep: [f64; 5],
}

/// Multi-token prediction: each step drafts some tokens and keeps those before the first wrong one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mtp {
    /// Tokens drafted a step; a step brings 1 to `drafts + 1`.
    pub drafts: usize,
    /// The probability that a drafted token is right, if those before it are.
    pub accept: f64,
}

const COMPANY: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];
const DEEP: f64 = 16_000.0;

impl Default for Timing {
    /// A single 3090 with a 27B model, as published for llama.cpp.
    fn default() -> Self {
        Self {
            prefill_a: 9.46e-4,
            prefill_b: 2.15e-9,
            measured: None,
            ttft_floor: 0.1,
            decode_tokens_per_second: 50.0,
            depth: None,
            company: None,
            mtp: None,
        }
    }
}

impl Timing {
    /// `T(n)`: seconds to prefill `tokens` tokens of an empty context.
    pub fn prefill(&self, tokens: usize) -> f64 {
        let n = tokens as f64;
        if let Some(measured) = &self.measured {
            return measured.seconds(n);
        }
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

    /// Tokens per second of each of `streams` streams (at least one) with a mean context of `depth` tokens.
    pub fn decode_rate(&self, streams: usize, depth: f64) -> f64 {
        let slower = self.depth.map_or(1.0, |curve| curve.factor(depth));
        let shared = self.company.map_or(1.0, |company| company.factor(streams, depth));
        self.decode_tokens_per_second * slower * shared
    }

    /// Seconds of one decode step, in which each of the `streams` gets its burst; 0 without streams.
    pub fn decode_step(&self, streams: usize, depth: f64) -> f64 {
        if streams == 0 { 0.0 } else { self.mean_burst() / self.decode_rate(streams, depth) }
    }

    /// Tokens that a step brings a stream, on average.
    pub fn mean_burst(&self) -> f64 {
        self.mtp
            .map_or(1.0, |mtp| (0..=mtp.drafts).fold((0.0, 1.0), |(sum, p), _| (sum + p, p * mtp.accept)).0)
    }
}

impl Measured {
    fn seconds(&self, tokens: f64) -> f64 {
        if tokens <= 0.0 {
            return 0.0;
        }
        // outside of them the nearest line goes on
        let above = self.tokens.iter().position(|known| *known >= tokens).unwrap_or(5).max(1);
        let log = |of: &[f64; 6], at: usize| of[at].ln();
        let (x0, x1) = (log(&self.tokens, above - 1), log(&self.tokens, above));
        let (y0, y1) = (log(&self.seconds, above - 1), log(&self.seconds, above));
        (y0 + (tokens.ln() - x0) / (x1 - x0) * (y1 - y0)).exp()
    }

    /// Whether both rows are above 0 and ascend.
    pub(crate) fn is_sound(&self) -> bool {
        let ascends = |row: &[f64; 6]| {
            row[0] > 0.0 && row[5].is_finite() && row.windows(2).all(|pair| matches!(pair, [a, b] if a < b))
        };
        ascends(&self.tokens) && ascends(&self.seconds)
    }
}

impl Depth {
    fn factor(self, depth: f64) -> f64 {
        let beyond = (depth - self.flat as f64).max(0.0);
        1.0 / (1.0 + beyond / self.scale.max(1) as f64)
    }
}

impl Company {
    fn factor(&self, streams: usize, depth: f64) -> f64 {
        let deep = (depth / DEEP).clamp(0.0, 1.0);
        let at = |curve: &[f64; 5]| interpolate(curve, streams.max(1) as f64);
        at(&self.short) * (1.0 - deep) + at(&self.deep) * deep
    }
}

fn interpolate(curve: &[f64; 5], streams: f64) -> f64 {
    for (at, value) in COMPANY.windows(2).zip(curve.windows(2)) {
        if let ([from, to], [low, high]) = (at, value)
            && streams <= *to
        {
            return low + (high - low) * (streams - from) / (to - from);
        }
    }
    curve[4] * COMPANY[4] / streams
}

/// The lengths of one answer's bursts after its first token: functions of a seed, so that whoever says the answer and
/// whoever computes it agree.
#[derive(Clone, Debug)]
pub(crate) struct Bursts {
    mtp: Option<Mtp>,
    random: Random,
}

impl Bursts {
    pub(crate) fn new(timing: &Timing, seed: u64) -> Self {
        Self { mtp: timing.mtp, random: Random::of(seed, "bursts") }
    }

    /// How many tokens the next step brings.
    pub(crate) fn next(&mut self) -> usize {
        let Some(mtp) = self.mtp else { return 1 };
        1 + (0..mtp.drafts).take_while(|_| self.random.happens(mtp.accept)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_have_their_published_mean_and_repeat() {
        let timing = Timing { mtp: Some(Mtp { drafts: 3, accept: 0.79 }), ..Timing::default() };
        assert!((timing.mean_burst() - 2.9).abs() < 0.02, "published 2.6 to 3.5: {}", timing.mean_burst());
        let drawn = || -> Vec<usize> {
            let mut bursts = Bursts::new(&timing, 5);
            (0..20_000).map(|_| bursts.next()).collect()
        };
        let mean = drawn().iter().sum::<usize>() as f64 / 20_000.0;
        assert!((mean / timing.mean_burst() - 1.0).abs() < 0.02, "{mean}");
        assert!(drawn().iter().all(|burst| (1..=4).contains(burst)));
        assert_eq!(drawn(), drawn());
    }

    #[test]
    fn measured_times_are_met_and_the_pieces_add_up() {
        let measured = Measured {
            tokens: [1_200.0, 5_000.0, 21_800.0, 35_600.0, 60_000.0, 74_000.0],
            seconds: [5.6, 85.0, 202.0, 254.0, 623.0, 700.0],
        };
        assert!(measured.is_sound());
        let timing = Timing { measured: Some(measured), ..Timing::default() };
        for (tokens, seconds) in [(1_200, 5.6), (21_800, 202.0), (74_000, 700.0)] {
            assert!((timing.prefill(tokens) - seconds).abs() < 1e-9);
        }
        assert_eq!(timing.prefill(0), 0.0);
        assert!(timing.prefill(100) < 5.6 && timing.prefill(100_000) > 700.0);
        let pieces = timing.prefill_piece(0, 8_000) + timing.prefill_piece(8_000, 30_000);
        assert!((pieces - timing.prefill(38_000)).abs() < 1e-9);
    }

    #[test]
    fn a_step_lasts_as_long_as_its_burst_and_its_company_say() {
        let company = Company { short: [1.0, 1.0, 1.0, 0.67, 0.4], deep: [1.0, 0.59, 0.25, 0.078, 0.04] };
        let timing = Timing { company: Some(company), ..Timing::default() };
        let each = |streams, depth| timing.decode_rate(streams, depth) / 50.0;
        assert_eq!((each(1, 0.0), each(4, 0.0), each(4, 16_000.0)), (1.0, 1.0, 0.25));
        assert!((each(3, 30_000.0) - 0.42).abs() < 1e-9 && (each(2, 8_000.0) - 0.795).abs() < 1e-9);
        assert!((each(32, 0.0) - 0.2).abs() < 1e-9, "the sum stays");
        assert_eq!((timing.decode_step(0, 0.0), timing.decode_step(1, 0.0)), (0.0, 0.02));
    }
}
