//! Presets: what is published of well-known machines, by name, such as `vllm/dual`.
//!
//! `club-3090.json` is the project's own copy of the figures, with its source and date at its head and only the members that
//! are read here. A preset speaks of another machine of the same kind: what the operator configured wins over it, and so
//! does what a probe finds, where that is a fact of now. Must never be completed by guessing: absent is not published.

mod cautions;
mod prefill;
mod read;

use std::sync::LazyLock;
use std::time::Duration;

use switchback_parsers::diagnosis::Engine;
use switchback_policies::facts::{Limit, Speed};

pub use prefill::Prefill;

/// The figures, as they were published.
const CLUB_3090: &str = include_str!("club-3090.json");

static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    read::read(CLUB_3090).unwrap_or_else(|error| {
        // A test reads every row, so no build has this.
        tracing::error!(%error, "presets are not readable: none is known");
        Vec::new()
    })
});

/// What is published of one machine. Limits are in tokens and not above the window; `None`: not published.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// Its name: engine and variant.
    pub slug: String,
    /// The engine that answers.
    pub engine: Engine,
    /// The model, by its family name.
    pub model: String,
    /// The names under which it is served; empty where the engine names it after its file.
    pub names: Vec<String>,
    /// The port that its compose file takes. Several presets share one: it says nothing of who answers there.
    pub port: u16,
    /// How far its project trusts it.
    pub status: Status,
    /// Graphics cards that it runs on.
    pub cards: u32,
    /// What the figures were measured on, where that is not RTX 3090 cards.
    pub rig: Option<String>,
    /// Prompt and output together, of one request.
    pub window: u64,
    /// The longest single prompt that was seen to finish; on one 24 GB card with a cliff, its lower edge.
    pub single: Option<u64>,
    /// The longest conversation that is safe where conversations kill the engine; always soft.
    pub accumulated: Option<Limit>,
    /// The most that was seen to fill its memory.
    pub resident: Option<u64>,
    /// Requests that run at once.
    pub slots: u64,
    /// Tokens that all running requests can hold together.
    pub pool: Option<u64>,
    /// Tokens that a long prompt may take of a step while others run, as the engine was started; 0: no such limit.
    pub long_prefill_threshold: Option<u64>,
    /// How long a prompt takes to read.
    pub prefill: Option<Prefill>,
    /// Tokens a second of a stream that is alone and writes prose; code is faster.
    pub decode: Option<f64>,
    /// What even the shortest prompt waits for its first token.
    pub first_token: Option<Duration>,
    /// Whether it reads images.
    pub vision: Option<bool>,
    /// The tool parser that its engine is started with, in the engine's word for it.
    pub tool_parser: Option<String>,
    /// The reasoning parser, likewise.
    pub reasoning_parser: Option<String>,
    /// It speculates with the model's own prediction heads (MTP).
    pub mtp: bool,
    /// What to know before relying on it, one sentence each: lower case, no full stop.
    pub cautions: Vec<String>,
    /// Where the figures stand, in the repository that the file names.
    pub sources: Vec<String>,
}

/// How far a project trusts one of its machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// In daily use.
    Production,
    /// In use, with known faults.
    Caveats,
    /// On its way to be trusted.
    Incubating,
    /// Tried out.
    Experimental,
    /// Shown early.
    Preview,
    /// Retired, but still starts if forced.
    Deprecated,
    /// No longer shipped.
    Archived,
}

impl Preset {
    /// How fast it is, for the expected finish: what is not published is taken from [`Speed::USUAL`]; `None` if neither
    /// prefill nor decode is published.
    #[must_use]
    pub fn speed(&self) -> Option<Speed> {
        if self.prefill.is_none() && self.decode.is_none() {
            return None;
        }
        let usual = Speed::USUAL;
        let prefill = self.prefill.unwrap_or(Prefill { a: usual.prefill_a, b: usual.prefill_b });
        Some(Speed {
            prefill_a: prefill.a,
            prefill_b: prefill.b,
            first_token: self.first_token.map_or(usual.first_token, |wait| wait.as_secs_f64()),
            decode: self.decode.unwrap_or(usual.decode),
            deeper: usual.deeper,
        })
    }
}

/// The preset with this slug.
#[must_use]
pub fn get(slug: &str) -> Option<&'static Preset> {
    all().iter().find(|preset| preset.slug == slug)
}

/// All presets, in the order of the file.
#[must_use]
pub fn all() -> &'static [Preset] {
    &PRESETS
}

/// The slug that was likely meant, for the hint beside an unknown one: that of the same variant with another engine or none
/// before it, else the most similar.
#[must_use]
pub fn nearest(slug: &str) -> Option<&'static str> {
    let variant = |slug: &str| slug.rsplit('/').next().map(str::to_owned);
    let slugs = || all().iter().map(|preset| preset.slug.as_str());
    let same = slugs().find(|known| variant(known) == variant(slug));
    same.or_else(|| crate::config::nearest(slug, slugs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_read_and_makes_sense() {
        assert_eq!(all().len(), 114);
        for preset in all() {
            let slug = &preset.slug;
            let same = all().iter().filter(|other| other.slug == *slug).count();
            assert_eq!(same, 1, "{slug} is there twice");
            let accumulated = preset.accumulated.map(|limit| limit.tokens);
            for limit in [preset.single, accumulated, preset.resident].into_iter().flatten() {
                assert!(
                    (1..=preset.window).contains(&limit),
                    "{slug}: limit {limit}, window {}",
                    preset.window
                );
            }
            assert!(preset.accumulated.is_none_or(|limit| limit.soft), "{slug}");
            assert!(preset.slots > 0 && preset.cards > 0 && preset.port > 0, "{slug}");
            assert!(preset.pool.is_none_or(|pool| pool >= preset.window / 2), "{slug}");
            if let Some(prefill) = preset.prefill {
                assert!(prefill.a > 0.0 && prefill.b >= 0.0, "{slug}: {prefill:?}");
            }
            assert!(preset.decode.is_none_or(|rate| rate > 1.0), "{slug}");
            assert!(!preset.sources.is_empty(), "{slug}");
        }
    }

    #[test]
    fn the_reference_machine_is_there_with_all_its_figures() {
        let dual = get("vllm/dual").unwrap();
        assert_eq!(
            (dual.engine, dual.window, dual.slots, dual.pool),
            (Engine::Vllm, 262_144, 2, Some(622_000))
        );
        assert_eq!((dual.single, dual.accumulated, dual.resident), (Some(240_633), None, Some(240_633)));
        assert_eq!(
            (dual.decode, dual.long_prefill_threshold, dual.vision),
            (Some(72.0), Some(2048), Some(true))
        );
        assert_eq!(dual.names, ["qwen3.6-27b", "qwen3.6-27b-autoround"]);
        let speed = dual.speed().unwrap();
        assert!((speed.seconds(90_000, 0) / 80.6 - 1.0).abs() < 0.01, "{speed:?}");
    }

    #[test]
    fn a_single_card_has_the_soft_limit_of_its_conversations() {
        let minimal = get("vllm/minimal").unwrap();
        assert_eq!(minimal.accumulated, Some(Limit { tokens: 15_000, soft: true }));
        assert_eq!((minimal.window, minimal.single, minimal.cards), (32_768, Some(32_768), 1));
    }

    #[test]
    fn forks_answer_as_the_engine_that_they_forked() {
        assert_eq!(get("beellama/dflash").unwrap().engine, Engine::LlamaCpp);
        assert_eq!(get("ik-llama/iq4ks-mtp").unwrap().engine, Engine::IkLlama);
    }

    #[test]
    fn an_unknown_slug_finds_its_neighbour() {
        assert_eq!(nearest("dual"), Some("vllm/dual"));
        assert_eq!(nearest("vllm/minimla"), Some("vllm/minimal"));
        assert_eq!(nearest("llama.cpp/default"), Some("llamacpp/default"));
        assert_eq!(nearest("?"), None);
        assert!(get("vllm/duel").is_none());
    }
}
