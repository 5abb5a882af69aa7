//! Faults: what goes wrong on a simulated machine by itself, without a script.
//!
//! Each is off unless a preset or a file sets it, and each is decided by (seed, prompt), so that a run repeats. The
//! figures stand in `presets.toml`. It must never know what a fault looks like on a wire.

use serde::{Deserialize, Serialize};

use crate::{SpecError, random::Random};

/// What goes wrong by itself. Token counts are the rig's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Cliff 1: more new tokens than this in one request (a large tool result, say) kill the engine, whatever the
    /// cache holds of the rest. Published: 25,000 on archived single-card machines.
    pub dies_above_new: Option<usize>,
    /// Cliff 2a as a ramp: with [`crate::Spec::dies_above`] fresh tokens the probability of death is 0, from here on
    /// it is 1. None: it is 1 from `dies_above` on. Published: 60,000 (with 50,000).
    pub dies_surely_above: Option<usize>,
    /// Cliff 2b: what a conversation has accumulated.
    pub accumulated: Option<Accumulated>,
    /// llama.cpp's fill ceiling: more tokens than this in all slots together, prompts as far as they are in and
    /// output, abort the process.
    pub fills_to: Option<usize>,
    /// The MTP crash: deaths per 1,000 generated tokens, at any length. 1e-4 is assumed where it is known to happen.
    pub crashes_per_1k: f64,
    /// The share of answers that fall silent somewhere, on an open socket.
    pub stalls: f64,
    /// The share of answers that have status 200, usage and no content.
    pub empties: f64,
    /// The share of streamed answers to `tool_choice: required` whose call is lost: no content, or the call as text,
    /// and finish reason `stop`. Published: 0.65 on vLLM with MTP.
    pub drops_required: f64,
    /// Tag silence: where an answer to a request with tools says `<tool_call>` in its prose, the tool parser holds
    /// everything behind it back for a time between these (seconds); then comes the text, or nothing. Published:
    /// `[30, 120]`.
    pub tag_silence: Option<[f64; 2]>,
    /// How it dies of any of these.
    pub death: Death,
    /// `server_busy`: with this many requests waiting, vLLM, SGLang and Ollama answer further ones with 503. None:
    /// they wait without limit, as by default.
    pub busy_above: Option<usize>,
}

/// How an engine dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Death {
    /// The engine's process dies. vLLM's API outlives it by a moment, with error events, 500s and `/health` 503; the
    /// others reset every socket. As captured.
    #[default]
    Engine,
    /// The API's process dies: every socket is reset, with vLLM too.
    Process,
    /// The engine hangs: `/health` answers 200, what runs falls silent, what comes waits (vllm#39863). It stays so until
    /// it is killed or resumed.
    Hang,
}

/// Cliff 2b: a long conversation kills the engine after some turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accumulated {
    /// With this many tokens (the whole conversation) the probability of death in a turn is 0 …
    pub from: usize,
    /// … and from here on it is 1.
    pub surely: usize,
    /// The first turn that may die, counted since the process began.
    pub turns: usize,
}

/// What decides about a prompt's death.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Risk {
    /// Tokens of the prompt.
    pub(crate) prompt: usize,
    /// Those that the cache does not hold.
    pub(crate) new: usize,
    /// Those that are computed.
    pub(crate) fresh: usize,
    /// Which turn of its conversation it is since the process began, from 1.
    pub(crate) turn: usize,
    pub(crate) seed: u64,
}

impl Faults {
    /// Whether the engine dies in this prompt's prefill.
    pub(crate) fn kills(&self, dies_above: Option<usize>, risk: &Risk) -> bool {
        let single = dies_above.is_some_and(|from| {
            let surely = self.dies_surely_above.unwrap_or(from);
            falls(from, surely, risk.fresh, risk.seed, "cliff 2a")
        });
        let accumulated = self.accumulated.is_some_and(|cliff| {
            risk.turn >= cliff.turns && falls(cliff.from, cliff.surely, risk.prompt, risk.seed, "cliff 2b")
        });
        single || accumulated || self.dies_above_new.is_some_and(|most| risk.new > most)
    }

    /// After how many of its tokens an answer kills the engine, if it gets that far; none if never.
    pub(crate) fn crashes_after(&self, seed: u64) -> Option<usize> {
        if self.crashes_per_1k <= 0.0 {
            return None;
        }
        let drawn = -(1.0 - Random::of(seed, "crash").unit()).ln();
        Some((drawn / self.crashes_per_1k * 1_000.0).ceil().max(1.0) as usize)
    }

    /// Whether all numbers are in their ranges.
    pub(crate) fn check(&self, name: &str, dies_above: Option<usize>) -> Result<(), SpecError> {
        let wrong =
            |field, value: String, must| Err(SpecError::Range { name: name.to_owned(), field, value, must });
        for (field, value) in [
            ("faults.stalls", self.stalls),
            ("faults.empties", self.empties),
            ("faults.drops_required", self.drops_required),
        ] {
            if !(0.0..=1.0).contains(&value) {
                return wrong(field, value.to_string(), "from 0 to 1");
            }
        }
        if !(self.crashes_per_1k.is_finite() && self.crashes_per_1k >= 0.0) {
            return wrong("faults.crashes_per_1k", self.crashes_per_1k.to_string(), "0 or more");
        }
        if let Some(surely) = self.dies_surely_above
            && dies_above.is_none_or(|from| surely < from)
        {
            return wrong("faults.dies_surely_above", surely.to_string(), "dies_above or more");
        }
        if let Some(cliff) = self.accumulated
            && cliff.surely < cliff.from
        {
            return wrong("faults.accumulated.surely", cliff.surely.to_string(), "from or more");
        }
        if let Some([least, most]) = self.tag_silence
            && !(least >= 0.0 && most >= least && most.is_finite())
        {
            return wrong("faults.tag_silence", format!("[{least}, {most}]"), "two times, the smaller first");
        }
        Ok(())
    }
}

/// Whether a draw of (seed, purpose) is below the ramp from 0 at `from` to 1 at `surely`.
fn falls(from: usize, surely: usize, tokens: usize, seed: u64, purpose: &str) -> bool {
    let width = surely.saturating_sub(from).max(1) as f64;
    let probability = tokens.saturating_sub(from) as f64 / width;
    Random::of(seed, purpose).happens(probability)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn risk(tokens: usize, turn: usize, seed: u64) -> Risk {
        Risk { prompt: tokens, new: tokens, fresh: tokens, turn, seed }
    }

    /// The share of seeds that die.
    fn share(faults: &Faults, dies_above: Option<usize>, tokens: usize, turn: usize) -> f64 {
        let dead = (0..2_000).filter(|seed| faults.kills(dies_above, &risk(tokens, turn, *seed))).count();
        dead as f64 / 2_000.0
    }

    #[test]
    fn the_single_prompt_cliff_is_sharp_or_a_ramp() {
        let sharp = Faults::default();
        assert_eq!([50_000, 50_001].map(|tokens| share(&sharp, Some(50_000), tokens, 1)), [0.0, 1.0]);
        let ramp = Faults { dies_surely_above: Some(60_000), ..sharp };
        assert_eq!([50_000, 60_000].map(|tokens| share(&ramp, Some(50_000), tokens, 1)), [0.0, 1.0]);
        assert!((share(&ramp, Some(50_000), 55_000, 1) - 0.5).abs() < 0.04);
        assert_eq!(share(&ramp, None, 90_000, 1), 0.0);
    }

    #[test]
    fn the_accumulated_cliff_waits_for_its_turn_and_its_length() {
        let cliff = Accumulated { from: 21_000, surely: 26_000, turns: 4 };
        let faults = Faults { accumulated: Some(cliff), ..Faults::default() };
        assert_eq!(share(&faults, None, 30_000, 3), 0.0);
        assert_eq!([21_000, 26_000].map(|tokens| share(&faults, None, tokens, 4)), [0.0, 1.0]);
        assert!((share(&faults, None, 23_500, 9) - 0.5).abs() < 0.04);
    }

    #[test]
    fn new_tokens_alone_can_kill() {
        let faults = Faults { dies_above_new: Some(25_000), ..Faults::default() };
        assert!(faults.kills(None, &risk(25_001, 1, 0)));
        assert!(!faults.kills(None, &Risk { new: 20_000, ..risk(90_000, 1, 0) }));
    }

    #[test]
    fn crashes_come_as_often_as_their_rate_says() {
        let faults = Faults { crashes_per_1k: 0.5, ..Faults::default() };
        let mean = (0..5_000).filter_map(|seed| faults.crashes_after(seed)).sum::<usize>() as f64 / 5_000.0;
        assert!((mean / 2_000.0 - 1.0).abs() < 0.05, "one in 2,000 tokens: {mean}");
        assert_eq!(Faults::default().crashes_after(1), None);
    }
}
