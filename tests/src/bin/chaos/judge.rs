//! What the run comes to: from the clients' transcripts and the simulated backends' own event logs.
//!
//! An error is avoidable if nothing had been shown and, when it came, some backend had been ready and at work for ten
//! seconds: two probes of the proxy. Except where three engines have fallen while they had the request to read: from outside
//! that is a request which kills, and whoever hands it to a fourth takes that one from everybody else, too. It must never
//! read what the proxy says of itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::json;
use switchback_rig::{EventKind, Rig};
use switchback_tests::strict::Transcript;

use crate::world::World;

/// Simulated seconds for which a backend must have been well.
const WELL_FOR: f64 = 10.0;

/// A request that so many engines had to read when they fell is given to no other.
const MOST_FALLS: usize = 3;

/// The figures of a run.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    requests: usize,
    ok: usize,
    honest_errors: usize,
    avoidable_failures: usize,
    /// Requests under which three engines fell, though another was well.
    like_killers: usize,
    pub(crate) duplicated: usize,
    pub(crate) clean_finish_on_cut: usize,
    /// Tokens of prompts that reached a backend, each time that they did.
    prefill_tokens: usize,
    /// Those that had reached one before.
    prefill_resent_tokens: usize,
    kills: BTreeMap<&'static str, usize>,
    deaths: usize,
    errors: BTreeMap<String, usize>,
    /// Avoidable ones.
    avoidable: BTreeMap<String, usize>,
    /// What became of those.
    histories: Vec<String>,
    seconds: f64,
}

/// Judges the run.
pub(crate) fn judge(
    world: &World,
    got: &[(usize, Transcript)],
    kills: BTreeMap<&'static str, usize>,
) -> Figures {
    let mut figures =
        Figures { requests: got.len(), kills, seconds: world.clock.now(), ..Figures::default() };
    let lives: Vec<Life> = world.rigs.iter().map(Life::of).collect();
    let mut first_time = 0;
    for (prompt, transcript) in got {
        let prompt = &world.prompts[*prompt];
        let right = &prompt.right.content;
        first_time += prompt.tokens;
        if transcript.is_whole() && transcript.content == *right {
            figures.ok += 1;
        } else if !right.starts_with(&transcript.content) {
            figures.duplicated += 1;
        } else if transcript.is_whole() {
            figures.clean_finish_on_cut += 1;
        } else {
            figures.honest_errors += 1;
            let error = transcript.error.clone().unwrap_or_else(|| "no finish, no error".to_owned());
            let shown = if transcript.content.is_empty() { "nothing shown" } else { "in mid-answer" };
            let error = format!("{} {error}, {shown}", transcript.status);
            let nothing_shown = transcript.content.is_empty();
            if nothing_shown && lives.iter().any(|life| life.well_at(transcript.to)) {
                let falls = |life: &Life| life.falls_under(prompt.tokens, transcript);
                if lives.iter().map(falls).sum::<usize>() >= MOST_FALLS {
                    figures.like_killers += 1;
                } else {
                    figures.avoidable_failures += 1;
                    *figures.avoidable.entry(error.clone()).or_default() += 1;
                    figures.histories.push(history(world, prompt.tokens, transcript));
                }
            }
            *figures.errors.entry(error).or_default() += 1;
        }
    }
    for life in &lives {
        figures.prefill_tokens += life.arrived;
        figures.deaths += life.ill.iter().filter(|(_, died)| *died).count();
    }
    figures.prefill_resent_tokens = figures.prefill_tokens.saturating_sub(first_time);
    figures
}

/// What backends saw of a request, for who wants to know why it failed.
fn history(world: &World, tokens: usize, transcript: &Transcript) -> String {
    let mut seen = Vec::new();
    for rig in world.rigs.iter() {
        let of_it = |kind: &EventKind| matches!(kind, EventKind::Arrived { prompt_tokens, .. } if *prompt_tokens == tokens);
        let events = rig.events();
        let its: Vec<u64> =
            events.iter().filter(|event| of_it(&event.kind)).filter_map(|event| event.request).collect();
        for event in events {
            let fell = matches!(event.kind, EventKind::Died { .. } | EventKind::Silent | EventKind::Ready);
            let of_it = event.request.is_some_and(|request| its.contains(&request));
            if (transcript.from - WELL_FOR..=transcript.to).contains(&event.at) && (fell || of_it) {
                seen.push((event.at, format!("{:.1} {}: {:?}", event.at, rig.spec().name, event.kind)));
            }
        }
    }
    seen.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (from, to) = (transcript.from, transcript.to);
    let seen: Vec<String> = seen.into_iter().map(|(_, seen)| seen).collect();
    let said = transcript.said.as_deref().unwrap_or_default();
    format!("{tokens} tokens, from {from:.1} to {to:.1}: {}; told: {said}", seen.join("; "))
}

/// When a backend was well, and what it read.
struct Life {
    /// From when on it is well or ill, in order; true: well.
    turns: Vec<(f64, bool)>,
    /// When it ceased to be well, and whether that was its death.
    ill: Vec<(f64, bool)>,
    /// Its falls, and the sizes of the prompts that it had to read then.
    falls: Vec<(f64, Vec<usize>)>,
    arrived: usize,
}

impl Life {
    fn of(rig: &Rig) -> Self {
        let mut life = Self { turns: vec![(f64::MIN, true)], ill: Vec::new(), falls: Vec::new(), arrived: 0 };
        let mut to_read = BTreeMap::new();
        for event in rig.events() {
            match event.kind {
                EventKind::Arrived { prompt_tokens, .. } => {
                    life.arrived += prompt_tokens;
                    to_read.insert(event.request, prompt_tokens);
                }
                EventKind::FirstToken
                | EventKind::Finished { .. }
                | EventKind::Refused { .. }
                | EventKind::Cut { .. } => {
                    to_read.remove(&event.request);
                }
                EventKind::Died { .. } | EventKind::Silent => {
                    life.falls.push((event.at, std::mem::take(&mut to_read).into_values().collect()));
                    life.turns.push((event.at, false));
                    life.ill.push((event.at, matches!(event.kind, EventKind::Died { .. })));
                }
                EventKind::Ready | EventKind::Resumed => life.turns.push((event.at, true)),
                _ => {}
            }
        }
        life
    }

    /// How often it fell while it had this request to read.
    fn falls_under(&self, tokens: usize, transcript: &Transcript) -> usize {
        let meanwhile = |at: f64| (transcript.from..=transcript.to).contains(&at);
        self.falls.iter().filter(|(at, read)| meanwhile(*at) && read.contains(&tokens)).count()
    }

    /// Whether it had been well for a while.
    fn well_at(&self, at: f64) -> bool {
        let last = self.turns.iter().rfind(|(since, _)| *since <= at);
        last.is_some_and(|(since, well)| *well && at - since >= WELL_FOR)
    }
}

impl Figures {
    /// The line that programs read.
    pub(crate) fn json(&self) -> String {
        json!({
            "requests": self.requests, "ok": self.ok, "honest_errors": self.honest_errors,
            "avoidable_failures": self.avoidable_failures, "duplicated": self.duplicated,
            "clean_finish_on_cut": self.clean_finish_on_cut, "prefill_tokens": self.prefill_tokens,
            "prefill_resent_tokens": self.prefill_resent_tokens,
        })
        .to_string()
    }

    /// The table that people read.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        let kills: Vec<String> = self.kills.iter().map(|(stage, count)| format!("{count} {stage}")).collect();
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let share = 100.0 * self.prefill_resent_tokens as f64 / self.prefill_tokens.max(1) as f64;
        let rows = [
            ("requests", self.requests.to_string()),
            ("simulated seconds", format!("{:.0}", self.seconds)),
            ("deaths", format!("{} ({})", self.deaths, kills.join(", "))),
            ("answered as without deaths", self.ok.to_string()),
            ("ended with an error", self.honest_errors.to_string()),
            ("… of those avoidable", self.avoidable_failures.to_string()),
            ("… three engines fell under it", self.like_killers.to_string()),
            ("content doubled or foreign", self.duplicated.to_string()),
            ("cut, but looks finished", self.clean_finish_on_cut.to_string()),
            ("prompt tokens read", self.prefill_tokens.to_string()),
            ("… of those again", format!("{} ({share:.1} %)", self.prefill_resent_tokens)),
        ];
        for (name, value) in rows {
            let _ = writeln!(text, "{name:28} {value}");
        }
        for (error, count) in &self.errors {
            let avoidable = self.avoidable.get(error).copied().unwrap_or_default();
            let _ = writeln!(text, "    {count:6} {error} ({avoidable} avoidable)");
        }
        for history in &self.histories {
            let _ = writeln!(text, "    avoidable: {history}");
        }
        text
    }
}
