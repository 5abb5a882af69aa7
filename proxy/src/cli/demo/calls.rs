//! Scenario 3: tool calls that come as text, since the server's parser does not know how this model writes them.
//!
//! Without the proxy an agent shows the markup to its user and stops; with it the agent gets a call that fits its schema.

use serde_json::{Value, json};
use switchback_rig::Script;

use super::Stage;
use super::wire::{Called, Told, ask};
use crate::cli::say;

/// How the model writes the same call, one answer each, and what that is in words.
const FORMS: [(&str, &str); 3] = [
    ("write qwen-xml", "as XML"),
    ("write hermes:trailing-comma", "a comma too many"),
    ("write qwen-xml:unclosed", "never closed"),
];
/// Characters of the markup that are shown.
const SHOWN: usize = 52;

/// Whether it made its point.
pub(super) async fn run(stage: &Stage) -> anyhow::Result<bool> {
    say(
        "3. Tool calls as text. An agent offers read_file(path: string, lines: integer); the model calls it three times.\n",
    );
    let mut kept = true;
    for (where_to, to, wanted) in [
        ("Without Switchback:", stage.of(&stage.coder)?, false),
        ("With Switchback in front, the same three requests:", stage.front()?, true),
    ] {
        say(format_args!("   {where_to}"));
        let steps = FORMS.iter().map(|(step, _)| step.parse()).collect::<Result<Vec<_>, _>>()?;
        stage.coder.script(Script::new(steps));
        let mut calls = 0;
        for (_, form) in FORMS {
            let told = ask(&stage.clock, &to, request().into(), None).await;
            let called = told.as_ref().ok().and_then(call).is_some();
            calls += usize::from(called);
            kept &= called == wanted;
            say(format_args!("   {form:17} {}", sentence(&told)));
        }
        say(format_args!("   {calls} of {} calls arrived.\n", FORMS.len()));
    }
    Ok(kept)
}

fn request() -> String {
    json!({
        "model": "qwen3-coder",
        "stream": true,
        "messages": [{ "role": "user", "content": "How does the README begin?" }],
        "tools": [{ "type": "function", "function": { "name": "read_file", "parameters": {
            "type": "object",
            "properties": { "path": { "type": "string" }, "lines": { "type": "integer", "minimum": 20 } },
            "required": ["path", "lines"],
        } } }],
    })
    .to_string()
}

/// The one call of an answer, if an agent could run it: nothing of it left in the text, the arguments as declared.
fn call(told: &Told) -> Option<&Called> {
    let [call] = told.calls.as_slice() else { return None };
    let arguments: Value = serde_json::from_str(&call.arguments).ok()?;
    let path = arguments.get("path").is_some_and(Value::is_string);
    let lines = arguments.get("lines").is_some_and(Value::is_u64);
    let whole = told.reason == "tool_calls" && !told.text.contains('<') && call.name == "read_file";
    (whole && path && lines).then_some(call)
}

fn sentence(told: &Result<Told, String>) -> String {
    match told {
        Err(why) => format!("FAILED: {why}"),
        Ok(told) => match call(told) {
            Some(Called { name, arguments }) => format!("a call: {name} {arguments}"),
            None => {
                let text: String = told.text.chars().take(SHOWN).collect();
                format!("FAILED: {} calls, but text, {text:?}…", told.calls.len())
            }
        },
    }
}
