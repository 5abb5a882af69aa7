//! Scenario 1: a long prompt kills the single card and the chat beside it; with the proxy it goes to the larger machine.

use http::uri::Authority;
use switchback_rig::{Rig, text_of_tokens};

use super::Stage;
use super::log::{next_event, outage, watching};
use super::wire::{Told, ask, wait_until_up};
use crate::cli::say;

/// The prompt of a coding agent that has read a few files: above what one card survives, well within its window.
const LONG: usize = 62_000;

type Results = [Result<Told, String>; 2];

/// Whether it made its point.
pub(super) async fn run(stage: &Stage) -> anyhow::Result<bool> {
    let Stage { single, dual, .. } = stage;
    say("1. A long prompt. A chat streams; beside it a coding agent sends a prompt of about 62000 tokens.\n");
    say("   Without Switchback, both to the single card:");
    let since = next_event(single);
    let without = both(stage, &stage.of(single)?, &[single]).await;
    report(&without);
    say("   … the card restarts and loads its model again");
    let Some((outage, back)) = outage(single, since).await else { return Ok(false) };
    say(format_args!("{back:>9.1} s  single     serves again: an outage of {outage:.0} s\n"));
    wait_until_up(stage.proxy).await?;

    say("   With Switchback in front, the same two requests:");
    let with = both(stage, &stage.front()?, &[single, dual]).await;
    report(&with);
    let answered = |results: &Results| results.iter().filter(|result| result.is_ok()).count();
    say(format_args!(
        "   Without: {} of 2 answered, and nobody served for {outage:.0} s. With: {} of 2 answered.\n",
        answered(&without),
        answered(&with)
    ));
    Ok(answered(&with) == 2 && answered(&without) == 0)
}

/// The chat, and the long prompt as soon as the chat streams.
async fn both(stage: &Stage, to: &Authority, rigs: &[&Rig]) -> Results {
    let (streams, long_may_start) = tokio::sync::oneshot::channel();
    let chat = async {
        let body = r#"{"model":"qwen3.6-27b","stream":true,"max_tokens":600,"ignore_eos":true,"messages":[{"role":"user","content":"Tell me about mountain roads."}]}"#;
        ask(&stage.clock, to, body.into(), Some(streams)).await
    };
    let agent = async {
        // A chat that failed at once starts it, too.
        let _ = long_may_start.await;
        let prompt = serde_json::Value::from(text_of_tokens(LONG, 7));
        let body = format!(
            r#"{{"model":"qwen3.6-27b","stream":true,"max_tokens":120,"messages":[{{"role":"user","content":{prompt}}}]}}"#
        );
        ask(&stage.clock, to, body.into(), None).await
    };
    watching(rigs, async { tokio::join!(chat, agent) }).await.into()
}

fn report(results: &Results) {
    for (who, result) in ["chat", "agent"].iter().zip(results) {
        match result {
            Ok(told) => say(format_args!(
                "   {who:6} answered by {}: {} chunks, the first after {:.1} s",
                told.backend.as_deref().unwrap_or("single"),
                told.chunks,
                told.first
            )),
            Err(why) => say(format_args!("   {who:6} FAILED: {why}")),
        }
    }
}
