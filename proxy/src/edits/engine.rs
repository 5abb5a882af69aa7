//! Members without a meaning that an engine refuses.
//!
//! Why: clients send what their library fills in, and some servers answer 400 for it. Only what says nothing is left out, and
//! only for the engine that was seen to refuse it.

use switchback_parsers::diagnosis::Engine;
use switchback_parsers::json::{Kind, Value};
use switchback_parsers::request::ChatRequest;

use super::Changes;

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
