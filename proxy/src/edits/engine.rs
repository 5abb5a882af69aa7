//! Members that an engine refuses though they mean nothing, or passes over though they mean something.
//!
//! Why: clients send what their library fills in, and some servers answer 400 for it; others know a limit by one name only. Only for
//! the engine that was seen to do so.

use switchback_parsers::diagnosis::Engine;
use switchback_parsers::json::{Kind, Value};
use switchback_parsers::request::ChatRequest;

use super::Changes;

/// Ollama reads the output limit as `max_tokens` only (its source, openai/openai.go). `limit`: the one that is sent, tokens.
pub(super) fn name_limit(request: &ChatRequest, engine: Engine, limit: Option<u64>, changes: &mut Changes) {
    let (old, new) = ("max_tokens", "max_completion_tokens");
    let root = request.root();
    let has = |name: &str| root.get(name).is_some_and(|limit| !limit.is_null());
    let Some(limit) = limit.filter(|_| engine == Engine::Ollama && has(new) && !has(old)) else { return };
    changes.make("max_completion_tokens sent as max_tokens", |edits| {
        edits.remove(root, new);
        edits.set(root, old, limit.to_string());
    });
}

/// vLLM: no tools at all (open-webui#26655), options of a stream that is none (BerriAI/litellm#29431).
pub(super) fn without_the_meaningless(
    request: &ChatRequest,
    engine: Engine,
    stream: bool,
    changes: &mut Changes,
) {
    if engine != Engine::Vllm {
        return;
    }
    let root = request.root();
    let is_empty = |tools: Value<'_>| tools.kind() == Kind::Array && tools.elements().next().is_none();
    changes.make("members without a meaning left out", |edits| {
        if root.get("tools").is_some_and(is_empty) {
            for member in ["tools", "tool_choice", "parallel_tool_calls"] {
                edits.remove(root, member);
            }
        }
        if !stream && root.get("stream_options").is_some() {
            edits.remove(root, "stream_options");
        }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};
    use switchback_parsers::edit::Edits;

    use super::*;

    #[test]
    fn ollama_gets_the_limit_under_the_name_that_it_reads_and_nobody_else_does() {
        let body = json!({ "max_completion_tokens": 9000, "messages": [] });
        let request = ChatRequest::parse(body.to_string().into()).expect("a request");
        let sent = |engine: Engine| -> Json {
            let mut changes = Changes::default();
            name_limit(&request, engine, Some(4000), &mut changes);
            serde_json::from_slice(&request.write(&Edits::new(), &changes.edits)).expect("JSON")
        };
        assert_eq!(sent(Engine::Ollama), json!({ "max_tokens": 4000, "messages": [] }));
        assert_eq!(sent(Engine::Vllm), body);
    }
}
