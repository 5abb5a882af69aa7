//! Scenario 7: somebody reads an answer while another client sends a large file to the same machine.
//!
//! The engine takes the file's prompt in pieces of seconds, and the stream gets a word between two of them. The proxy lets the
//! file wait until the stream has ended, since it ends soon.

use http::uri::Authority;
use switchback_rig::text_of_tokens;
use tokio::sync::oneshot;

use super::Stage;
use super::log::watching;
use super::wire::{Told, ask};
use crate::cli::say;

/// Tokens of the file.
const FILE: usize = 90_000;
/// Tokens of the answer that is read: a quarter of a minute.
const ANSWER: usize = 1000;

struct Seen {
    chat: Told,
    file: Told,
}

impl Seen {
    /// The gap that one in twenty is longer than, simulated seconds. The longest would show this computer, too.
    fn p95(&self) -> f64 {
        let mut gaps = self.chat.gaps.clone();
        gaps.sort_by(f64::total_cmp);
        gaps.get(gaps.len() * 95 / 100).copied().unwrap_or(0.0)
    }
}

/// Whether it made its point.
pub(super) async fn run(stage: &Stage) -> anyhow::Result<bool> {
    say(
        "7. A file beside a chat, on one machine. While somebody reads an answer, an agent sends 90000 tokens.\n",
    );
    say("   Without Switchback, both to the dual cards:");
    let without = watching(&[&stage.dual], both(stage, &stage.of(&stage.dual)?, "qwen3.6-27b", 11)).await?;
    report(&without);
    say("\n   With Switchback in front, the same two requests:");
    let with = watching(&[&stage.dual], both(stage, &stage.front()?, "dual", 12)).await?;
    report(&with);
    let (before, after) = (without.p95(), with.p95());
    say(format_args!(
        "   Between the chat's words, p95: without {before:.2} s, with {after:.2} s. The file waited until the chat had ended.\n"
    ));
    Ok(after < before / 2.0)
}

/// The chat, and the file as soon as the chat streams; another file each time, since the engine remembers.
async fn both(stage: &Stage, to: &Authority, model: &str, file: u64) -> anyhow::Result<Seen> {
    let (streams, file_may_start) = oneshot::channel();
    let chat = async {
        let question = "Tell me about mountain passes.";
        let body = format!(
            r#"{{"model":"{model}","stream":true,"max_tokens":{ANSWER},"ignore_eos":true,"messages":[{{"role":"user","content":"{question}"}}]}}"#
        );
        ask(&stage.clock, to, body.into(), Some(streams)).await
    };
    let sends = async {
        // A chat that failed at once starts it, too.
        let _ = file_may_start.await;
        let prompt = serde_json::Value::from(text_of_tokens(FILE, file));
        let body = format!(
            r#"{{"model":"{model}","stream":true,"max_tokens":60,"messages":[{{"role":"user","content":{prompt}}}]}}"#
        );
        ask(&stage.clock, to, body.into(), None).await
    };
    let (chat, file) = tokio::join!(chat, sends);
    Ok(Seen { chat: chat.map_err(anyhow::Error::msg)?, file: file.map_err(anyhow::Error::msg)? })
}

fn report(seen: &Seen) {
    say(format_args!(
        "   chat   {} chunks, between them p95 {:.2} s\n   file   the first word after {:.0} s",
        seen.chat.chunks,
        seen.p95(),
        seen.file.first
    ));
}
