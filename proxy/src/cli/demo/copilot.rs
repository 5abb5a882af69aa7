//! Scenario 5: Copilot's hello. Its arithmetic takes characters for tokens, finds the window full, and asks for 64 tokens; what
//! it means is "no limit".
//!
//! Without the proxy a large card breaks the call off after 64 tokens, and a small one, whose window the prompt nearly fills,
//! after fewer (older vLLM refuses that request for one token too many).
//! Source of the numbers: club-3090 issue 2, and issue 74 of the extension.

use http::uri::Authority;
use serde_json::{Value, json};
use switchback_rig::{EventKind, Script, Step, text_of_tokens};

use super::Stage;
use super::wire::{Told, ask};
use crate::cli::say;

/// Tools that VS Code offers with every request.
const TOOLS: usize = 50;
/// Tokens of each tool's description: with names and schemas the prompt has 19,9xx tokens, and fits 20,000 only without
/// an answer.
const DESCRIPTION: usize = 299;
/// What the model wants to write: far more than 64 tokens.
const FILE: usize = 300;

/// Whether it made its point.
pub(super) async fn run(stage: &Stage) -> anyhow::Result<bool> {
    say(
        "5. Copilot's hello. 50 tools make 20000 tokens of one word; the extension asks for 64 tokens, the floor of its budget.\n",
    );
    say("   Without Switchback:");
    let small = greet(stage, &stage.of(&stage.coder)?, &stage.coder.spec().model).await;
    let arrived = stage.coder.events().into_iter().rev().find_map(|event| match event.kind {
        EventKind::Arrived { prompt_tokens, .. } => Some(prompt_tokens),
        _ => None,
    });
    say(format_args!("   one card        {}", sentence(&small)));
    let large = greet(stage, &stage.of(&stage.dual)?, &stage.dual.spec().model).await;
    say(format_args!("   two cards       {}\n", sentence(&large)));
    say("   With Switchback in front of both:");
    let with = greet(stage, &stage.front()?, "copilot").await;
    say(format_args!("                   {}\n", sentence(&with)));
    let whole = |told: &Result<Told, String>| told.as_ref().ok().and_then(written).is_some();
    let window = stage.coder.spec().window;
    let by_the_answer_only = arrived.is_some_and(|prompt| prompt < window && prompt + 64 > window);
    Ok(whole(&with) && !whole(&small) && !whole(&large) && by_the_answer_only)
}

async fn greet(stage: &Stage, to: &Authority, model: &str) -> Result<Told, String> {
    let arguments =
        json!({ "filePath": "/home/me/project/docs/notes.md", "content": text_of_tokens(FILE, 3) });
    let call = Step::Call { name: "tool_0".to_owned(), arguments: arguments.to_string() };
    for rig in [&stage.coder, &stage.dual] {
        rig.script(Script::new([call.clone()]));
    }
    let told = ask(&stage.clock, to, request(model).into(), None).await;
    for rig in [&stage.coder, &stage.dual] {
        // Whoever was not asked must not keep its step for the next scenario.
        rig.script(Script::default());
    }
    told
}

/// As the extension sends it.
fn request(model: &str) -> String {
    let tool = |number: u64| {
        json!({ "type": "function", "function": {
            "name": format!("tool_{number}"),
            "description": text_of_tokens(DESCRIPTION, number),
            "parameters": { "type": "object", "required": ["filePath"], "properties": {
                "filePath": { "type": "string" }, "content": { "type": "string" },
            } },
        } })
    };
    json!({
        "model": model,
        "messages": [{ "role": "user", "content": "hello" }],
        "max_tokens": 64,
        "temperature": 0.0,
        "stream": true,
        "stream_options": { "include_usage": true },
        "tools": (0..TOOLS as u64).map(tool).collect::<Vec<_>>(),
        "tool_choice": "auto",
        "parallel_tool_calls": true,
    })
    .to_string()
}

/// The length of the file that an answer's one call writes, if the call is whole.
fn written(told: &Told) -> Option<usize> {
    let [call] = told.calls.as_slice() else { return None };
    let arguments: Value = serde_json::from_str(&call.arguments).ok()?;
    Some(arguments.get("content")?.as_str()?.len())
}

fn sentence(told: &Result<Told, String>) -> String {
    match told {
        Err(why) => format!("FAILED: {why}"),
        Ok(told) => match (written(told), told.calls.first()) {
            (Some(length), _) => format!(
                "a call that writes {length} characters, answered by {}",
                told.backend.as_deref().unwrap_or("it")
            ),
            (None, Some(call)) => {
                format!(
                    "FAILED: a call broken off in its arguments after {} characters",
                    call.arguments.len()
                )
            }
            (None, None) => "FAILED: no call".to_owned(),
        },
    }
}
