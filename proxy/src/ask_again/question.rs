//! The second question, as a request of the same client: whatever rules hold for requests to that backend hold for it, too.
//!
//! It begins with the very prompt of the first, so that the backend's prefix cache holds. Must never demand more of the
//! model than the client did: it is held to a call only where the client demanded one.

use serde_json::json;
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::edit::Edits;
use switchback_parsers::event::Folded;
use switchback_parsers::request::ChatRequest;

use crate::edits::set_output;

/// Whether an engine can be held to a call through `response_format` while the tools stay in the prompt: vLLM (0.6 and
/// newer; `guided_json` is silently ignored by now) and llama.cpp (a grammar of its own is refused beside tools), both with
/// `tool_choice: none`. The others leave the tools out then, or were not tried.
pub(super) fn can_constrain(engine: Engine) -> bool {
    matches!(engine, Engine::Vllm | Engine::LlamaCpp)
}

/// The conversation goes on: the answer, and for each of its calls what is wrong with it.
pub(super) fn corrected(
    request: &ChatRequest,
    answer: &Folded,
    wrong: &[(usize, String)],
    edits: &mut Edits,
) {
    let Some(messages) = request.root().get("messages") else { return };
    let id = |place: usize| match answer.calls.get(place).and_then(|call| call.id.clone()) {
        Some(id) => id,
        None => format!("call_{place}"),
    };
    let calls = answer.calls.iter().enumerate().map(|(place, call)| {
        let function = json!({ "name": call.name, "arguments": call.arguments });
        json!({ "id": id(place), "type": "function", "function": function })
    });
    let content = Some(&answer.content).filter(|text| !text.is_empty());
    let said = json!({ "role": "assistant", "content": content, "tool_calls": calls.collect::<Vec<_>>() });
    edits.push(messages, said.to_string());
    for place in 0..answer.calls.len() {
        let error = wrong.iter().find(|(wrong, _)| *wrong == place);
        let text = error.map_or_else(
            || "Not run, because another call of this turn was invalid. Make this call again, too.".to_owned(),
            |(_, error)| {
                format!("Not run. The call is invalid: {error}. Make it again with arguments that fit the tool's schema.")
            },
        );
        let result = json!({ "role": "tool", "tool_call_id": id(place), "content": text });
        edits.push(messages, result.to_string());
    }
}

/// The same with so many output tokens.
pub(super) fn longer(request: &ChatRequest, tokens: u64, edits: &mut Edits) {
    set_output(request, tokens, edits);
}

/// The answer goes on behind this text, for so many tokens at the most. `raw`: it stands in the midst of markup, so all that
/// follows is to come as text.
pub(super) fn continued(
    request: &ChatRequest,
    text: &str,
    tokens: Option<u64>,
    raw: bool,
    edits: &mut Edits,
) {
    let root = request.root();
    if let Some(messages) = root.get("messages") {
        edits.push(messages, json!({ "role": "assistant", "content": text }).to_string());
    }
    edits.set(root, "continue_final_message", "true");
    // vLLM refuses the one without the other.
    edits.set(root, "add_generation_prompt", "false");
    if raw {
        edits.set(root, "tool_choice", "\"none\"");
    }
    limited(request, tokens, edits);
}

/// The answer ends after so many tokens.
pub(super) fn limited(request: &ChatRequest, tokens: Option<u64>, edits: &mut Edits) {
    if let Some(tokens) = tokens {
        set_output(request, tokens, edits);
    }
}

/// The same without a stream.
pub(super) fn continued_whole(request: &ChatRequest, text: &str, tokens: u64, edits: &mut Edits) {
    continued(request, text, Some(tokens), true, edits);
    edits.set(request.root(), "stream", "false");
    edits.remove(request.root(), "stream_options");
}

/// Nothing is thought before the rest of an answer. Templates think nothing into it by themselves then, vLLM's parsers take it for
/// text, and llama.cpp takes a beginning at all.
pub(super) fn thoughtless(request: &ChatRequest, edits: &mut Edits) {
    match request.root().get("chat_template_kwargs").filter(|kwargs| !kwargs.is_null()) {
        Some(kwargs) => edits.set(kwargs, "enable_thinking", "false"),
        None => edits.set(request.root(), "chat_template_kwargs", r#"{"enable_thinking":false}"#),
    }
}
