//! A whole chat answer, written as the stream that the client asked for.
//!
//! Why: some backends lose in streams what they keep in whole answers. The frames are those that an engine would send: the
//! role, thoughts, text, each call in one piece, the finish reason, and usage if the client wants it.
//!
//! It must never add anything to the answer, and never leave anything out that a client shows.

use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value as Json, json};
use switchback_parsers::chunk::Dialect;
use switchback_parsers::event::Folded;
use switchback_parsers::sse::{SseFrame, write_data};

/// Members of a message that are text, in the order in which they are shown.
const TEXTS: [&str; 5] = ["reasoning_content", "reasoning", "reasoning_text", "content", "refusal"];

/// The frames; `None` if the answer is not read as one of chat.
pub(crate) fn unfold(answer: &[u8], usage: bool) -> Option<Bytes> {
    let Json::Object(answer) = serde_json::from_slice(answer).ok()? else { return None };
    let mut common = answer.clone();
    common.retain(|name, _| matches!(name.as_str(), "id" | "created" | "model" | "system_fingerprint"));
    common.insert("object".to_owned(), "chat.completion.chunk".into());
    let mut out = BytesMut::new();
    for choice in answer.get("choices")?.as_array()? {
        let index = choice.get("index").and_then(Json::as_u64).unwrap_or(0);
        let message = choice.get("message")?.as_object()?;
        let mut write = |delta: Json, finish: Json| {
            let choice = json!([{ "index": index, "delta": delta, "finish_reason": finish }]);
            frame(&common, "choices", choice, &mut out);
        };
        write(json!({ "role": "assistant", "content": "" }), Json::Null);
        for name in TEXTS {
            if let Some(text) = message.get(name).filter(|text| text.as_str().is_some_and(|t| !t.is_empty()))
            {
                write(json!({ name: text }), Json::Null);
            }
        }
        for (number, call) in
            message.get("tool_calls").and_then(Json::as_array).into_iter().flatten().enumerate()
        {
            let mut call = call.clone();
            call.as_object_mut()?.insert("index".to_owned(), number.into());
            write(json!({ "tool_calls": [call] }), Json::Null);
        }
        write(json!({}), choice.get("finish_reason").cloned().unwrap_or_default());
    }
    if let Some(said) = answer.get("usage").filter(|said| usage && said.is_object()) {
        let mut last = common.clone();
        last.insert("usage".to_owned(), said.clone());
        frame(&last, "choices", json!([]), &mut out);
    }
    out.extend_from_slice(Dialect::Chat.end_marker().unwrap_or_default());
    Some(out.freeze())
}

/// What is still to be sent of a whole answer of which the text was shown: its further calls, and its end, which looks like `end`, the chunk that ended the part. `seed` makes ids for calls without one.
pub(crate) fn rest(end: &SseFrame, shown: &Folded, whole: &Folded, seed: &str) -> BytesMut {
    let mut out = BytesMut::new();
    let data = end.data().unwrap_or_default();
    let Ok(Json::Object(like)) = serde_json::from_slice::<Json>(&data) else { return out };
    let mut write = |delta: Json, finish: Json| {
        let choice = json!([{ "index": 0, "delta": delta, "finish_reason": finish }]);
        frame(&like, "choices", choice, &mut out);
    };
    for (index, call) in whole.calls.iter().enumerate().skip(shown.calls.len()) {
        let id = call.id.clone().unwrap_or_else(|| format!("call_{seed}_{index}"));
        let function = json!({ "name": call.name, "arguments": call.arguments });
        let call = json!({ "index": index, "id": id, "type": "function", "function": function });
        write(json!({ "tool_calls": [call] }), Json::Null);
    }
    write(json!({}), whole.finish_reason.as_str().into());
    out
}

fn frame(common: &Map<String, Json>, name: &str, value: Json, out: &mut BytesMut) {
    let mut chunk = common.clone();
    chunk.insert(name.to_owned(), value);
    out.extend_from_slice(&write_data(Json::Object(chunk).to_string().as_bytes()));
}
