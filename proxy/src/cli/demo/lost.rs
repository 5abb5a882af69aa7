//! Scenario 8: calls that vLLM loses when it guesses tokens ahead (MTP), streams, and must call (vllm#39598: 13 of 20).
//!
//! The proxy asks such a backend for the whole answer and writes the stream itself: the operator's `streamed_required = "whole"`.

use http::uri::Authority;
use serde_json::{Value, json};

use super::Stage;
use super::wire::ask;
use crate::cli::say;

/// Requests that must be answered with a call, each about another file.
const FILES: [&str; 8] = ["main", "lib", "error", "config", "server", "client", "model", "tests"];

/// Whether it made its point.
pub(super) async fn run(stage: &Stage) -> anyhow::Result<bool> {
    let all = FILES.len();
    say(format_args!(
        "8. Lost calls. {all} streamed requests with tool_choice \"required\", to a vLLM with speculative decoding.\n"
    ));
    let without = arrived(stage, &stage.of(&stage.dual)?, &stage.dual.spec().model).await;
    say(format_args!("   Without Switchback:  {without} of {all} calls arrived"));
    let with = arrived(stage, &stage.front()?, "dual").await;
    say(format_args!("   With it in front:    {with} of {all} calls arrived\n"));
    Ok(with == all && without < all)
}

/// How many were answered with a call that an agent could run.
async fn arrived(stage: &Stage, to: &Authority, model: &str) -> usize {
    let mut arrived = 0;
    for file in FILES {
        let told = ask(&stage.clock, to, request(model, file).into(), None).await;
        let calls = told.map(|told| told.calls).unwrap_or_default();
        let runs =
            |arguments: &str| serde_json::from_str::<Value>(arguments).is_ok_and(|read| read.is_object());
        arrived +=
            usize::from(matches!(&calls[..], [call] if call.name == "read_file" && runs(&call.arguments)));
    }
    arrived
}

fn request(model: &str, file: &str) -> String {
    json!({
        "model": model,
        "stream": true,
        "messages": [{ "role": "user", "content": format!("What is in src/{file}.rs?") }],
        "tool_choice": "required",
        "tools": [{ "type": "function", "function": { "name": "read_file", "parameters": {
            "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"],
        } } }],
    })
    .to_string()
}
