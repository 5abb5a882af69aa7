//! Scenario 2: a conversation that grows until it kills the single card, though none of its turns is long by itself.
//!
//! With the proxy it moves to the larger machine before that turn.

use http::uri::Authority;
use serde_json::{Value, json};
use switchback_rig::text_of_tokens;

use super::Stage;
use super::log::{next_event, outage};
use super::wire::{Told, ask, wait_until_up};
use crate::cli::say;

/// Tokens that each turn brings; with the last, a large file, the conversation is above what one card survives.
const TURNS: [usize; 4] = [2_000, 2_000, 2_000, 21_000];

/// Whether it made its point.
pub(super) async fn run(stage: &Stage) -> anyhow::Result<bool> {
    let single = &stage.single;
    say(
        "2. A growing conversation. An agent reads three small files, then a large one: four turns, 27000 tokens in the end.\n",
    );
    say("   Without Switchback, on the single card:");
    let since = next_event(single);
    let without = converse(stage, &stage.of(single)?).await;
    let Some((outage, back)) = outage(single, since).await else { return Ok(false) };
    say(format_args!("{back:>9.1} s  single     serves again: an outage of {outage:.0} s\n"));
    wait_until_up(stage.proxy).await?;

    say("   With Switchback in front, the same conversation:");
    let with = converse(stage, &stage.front()?).await;
    let answered = |results: &[Result<Told, String>]| results.iter().filter(|result| result.is_ok()).count();
    let (without, with) = (answered(&without), answered(&with));
    let all = TURNS.len();
    say(format_args!("   Without: {without} of {all} turns answered. With: {with} of {all}.\n"));
    Ok(with == all && without < all)
}

/// Turn by turn, until one fails; prints each.
async fn converse(stage: &Stage, to: &Authority) -> Vec<Result<Told, String>> {
    let (mut messages, mut tokens, mut results) = (Vec::<Value>::new(), 0, Vec::new());
    for (turn, more) in (1_u64..).zip(TURNS) {
        tokens += more;
        messages.push(json!({ "role": "user", "content": text_of_tokens(more, 20 + turn) }));
        let body = json!({ "model": "qwen3.6-27b", "stream": true, "max_tokens": 40, "messages": messages });
        let told = ask(&stage.clock, to, body.to_string().into(), None).await;
        match &told {
            Ok(told) => {
                messages.push(json!({ "role": "assistant", "content": told.text }));
                say(format_args!(
                    "   turn {turn} of {tokens:>5} tokens  answered by {}, the first word after {:.1} s",
                    told.backend.as_deref().unwrap_or("single"),
                    told.first
                ));
            }
            Err(why) => say(format_args!("   turn {turn} of {tokens:>5} tokens  FAILED: {why}")),
        }
        let failed = told.is_err();
        results.push(told);
        if failed {
            break;
        }
    }
    results
}
