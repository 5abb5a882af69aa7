//! What a backend cannot read, put as it can: by its engine, and by what the operator says that its template needs.
//!
//! Why: templates add `content` to a string and fail on a list or print `None`; vLLM refuses a request for members that mean
//! nothing. Only where it is needed: every other backend gets the client's own bytes.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value as Json;
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::edit::Edits;
use switchback_parsers::json::{Kind, Value};
use switchback_parsers::message::Message;
use switchback_parsers::request::ChatRequest;

use super::Changes;

/// A need of a backend's chat template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Need {
    /// Content is a string: lists that hold only text are joined, nothing is added between (vllm-project/vllm#16245).
    StringContent,
    /// Content is never null: an empty string stands beside calls (vllm-project/vllm#54337).
    NoNullContent,
    /// Ids of calls are nine letters or digits: the templates of Mistral's family (vllm-project/vllm#9019).
    NineCharacterIds,
}

impl Need {
    /// What is done about it.
    fn name(self) -> &'static str {
        match self {
            Self::StringContent => "content joined to strings",
            Self::NoNullContent => "null content made empty",
            Self::NineCharacterIds => "call ids shortened",
        }
    }
}

/// Puts a chat request as the backend can read it.
pub(super) fn meet(
    request: &ChatRequest,
    engine: Engine,
    needs: &[Need],
    stream: bool,
    changes: &mut Changes,
) {
    if engine == Engine::Vllm {
        changes.make("members without a meaning left out", |edits| {
            without_the_meaningless(request, stream, edits);
        });
    }
    for need in needs {
        changes.make(need.name(), |edits| {
            request.messages().for_each(|message| meet_one(*need, message, edits));
        });
    }
}

fn meet_one(need: Need, message: Message<'_>, edits: &mut Edits) {
    let content = message.content();
    match need {
        Need::StringContent => content.into_iter().for_each(|content| join(content, edits)),
        Need::NoNullContent => match content {
            Some(content) if content.is_null() => edits.replace(content, "\"\""),
            Some(_) => {}
            None if message.role().is_some() => edits.set(message.0, "content", "\"\""),
            None => {}
        },
        Need::NineCharacterIds => {
            let calls = message.0.get("tool_calls").into_iter().flat_map(Value::elements);
            let ids = calls.filter_map(|call| call.get("id"));
            for id in ids.chain(message.0.get("tool_call_id")) {
                if let Some(written) = id.as_str().filter(|id| !is_nine(id)) {
                    edits.replace(id, Json::from(nine(&written)).to_string());
                }
            }
        }
    }
}

/// Members without a meaning that vLLM refuses: no tools at all (open-webui#26655), options of a stream that is none
/// (BerriAI/litellm#29431).
fn without_the_meaningless(request: &ChatRequest, stream: bool, edits: &mut Edits) {
    let root = request.root();
    let is_empty = |tools: Value<'_>| tools.kind() == Kind::Array && tools.elements().next().is_none();
    if root.get("tools").is_some_and(is_empty) {
        for member in ["tools", "tool_choice", "parallel_tool_calls"] {
            edits.remove(root, member);
        }
    }
    if !stream && root.get("stream_options").is_some() {
        edits.remove(root, "stream_options");
    }
}

fn join(content: Value<'_>, edits: &mut Edits) {
    if content.kind() != Kind::Array {
        return;
    }
    if let Some(texts) = content.elements().map(text).collect::<Option<Vec<_>>>() {
        edits.replace(content, Json::from(texts.concat()).to_string());
    }
}

fn text(part: Value<'_>) -> Option<Cow<'_, str>> {
    let is_text = part.get("type").and_then(Value::as_str).as_deref() == Some("text");
    part.get("text").and_then(Value::as_str).filter(|_| is_text)
}

fn is_nine(id: &str) -> bool {
    id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Nine letters and digits, the same for the same id: FNV-1a in base 62.
fn nine(id: &str) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut digit = || {
        let digit = DIGITS[(hash % 62) as usize];
        hash /= 62;
        char::from(digit)
    };
    (0..9).map(|_| digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(body: &str, engine: Engine, needs: &[Need]) -> Json {
        let request = ChatRequest::parse(body.to_owned().into()).expect("a request");
        let mut changes = Changes::default();
        meet(&request, engine, needs, false, &mut changes);
        serde_json::from_slice(&request.write(&Edits::new(), &changes.edits)).expect("JSON")
    }

    #[test]
    fn the_same_id_becomes_the_same_nine_characters_and_good_ones_stay() {
        let body = r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"call_1"},{"id":"abcdefghi"}]},{"role":"tool","tool_call_id":"call_1","content":"x"}]}"#;
        let met = met(body, Engine::LlamaCpp, &[Need::NineCharacterIds]);
        let id = met["messages"][0]["tool_calls"][0]["id"].as_str().expect("an id");
        assert!(is_nine(id));
        assert_eq!(met["messages"][1]["tool_call_id"], id);
        assert_eq!(met["messages"][0]["tool_calls"][1]["id"], "abcdefghi");
    }

    #[test]
    fn content_with_a_picture_stays_a_list() {
        let body = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:"}}]},{"role":"assistant","content":null}]}"#;
        let met = met(body, Engine::Vllm, &[Need::StringContent, Need::NoNullContent]);
        assert!(met["messages"][0]["content"].is_array());
        assert_eq!(met["messages"][1]["content"], "");
    }
}
