//! Scenario 4: a machine that fails before it has said anything. The proxy asks another one; the client sees one answer.

use http::uri::Authority;
use serde_json::json;
use switchback_rig::{EventKind, Rig, Script, Step};

use super::Stage;
use super::log::{next_event, ready, watching};
use super::wire::{Told, ask, wait_until_up};
use crate::cli::say;

/// What the machine does with each request, and what the request asks about: another thing each time, since a
/// conversation goes where its beginning went.
const REQUESTS: [(&str, Option<Step>, &str); 3] = [
    ("answers 500", Some(Step::Http(500)), "lakes"),
    ("engine dies", Some(Step::Dead), "passes"),
    ("port refuses", None, "glaciers"),
];

/// Whether it made its point.
pub(super) async fn run(stage: &Stage) -> anyhow::Result<bool> {
    let single = &stage.single;
    say("4. Failures. Three chats meet a card that answers 500, then dies while it reads, then is away.\n");
    say("   Without Switchback, all to the single card:");
    let without = watching(&[single], chats(stage, &stage.of(single)?)).await;
    report(&without);
    say("   … the card restarts and loads its model again\n");
    ready(single).await;
    wait_until_up(stage.proxy).await?;

    say("   With Switchback in front, the same three chats:");
    let with = watching(&[single], chats(stage, &stage.front()?)).await;
    report(&with);
    let answered = |results: &[Result<Told, String>]| results.iter().filter(|result| result.is_ok()).count();
    say(format_args!("   Without: {} of 3 answered. With: {} of 3.\n", answered(&without), answered(&with)));
    Ok(answered(&with) == 3 && answered(&without) == 0)
}

/// One after the other.
async fn chats(stage: &Stage, to: &Authority) -> Vec<Result<Told, String>> {
    let mut results = Vec::new();
    for (_, step, subject) in REQUESTS {
        let since = next_event(&stage.single);
        let dies = step == Some(Step::Dead);
        stage.single.script(Script::new(step));
        let body = json!({
            "model": "qwen3.6-27b",
            "stream": true,
            "max_tokens": 60,
            "messages": [{ "role": "user", "content": format!("Tell me about {subject}.") }],
        });
        results.push(ask(&stage.clock, to, body.to_string().into(), None).await);
        if dies {
            gone(&stage.single, since).await;
        }
    }
    results
}

/// Waits until a card that has died is away; one that lives is not waited for.
async fn gone(rig: &Rig, since: u64) {
    if rig.events_since(since).iter().any(|event| matches!(event.kind, EventKind::Died { .. })) {
        rig.event_since(since, |event| matches!(event.kind, EventKind::Down)).await;
    }
}

fn report(results: &[Result<Told, String>]) {
    for ((what, ..), result) in REQUESTS.iter().zip(results) {
        match result {
            Ok(told) => say(format_args!(
                "   {what:12} answered by {}, the first word after {:.1} s",
                told.backend.as_deref().unwrap_or("single"),
                told.first
            )),
            Err(why) => say(format_args!("   {what:12} FAILED: {why}")),
        }
    }
}
