//! Frames of the proxy's own, in the shape of the backend's: the same id, model and time, one choice, one delta.

use bytes::BytesMut;
use serde_json::{Map, Value as Json, json};
use switchback_parsers::json::Value;
use switchback_parsers::sse::write_data;

/// What all chunks of an answer have in common.
const COMMON: [&str; 5] = ["id", "object", "created", "model", "system_fingerprint"];

/// Writes chunks like those of the backend.
#[derive(Debug, Default)]
pub(super) struct Writer {
    common: Option<Map<String, Json>>,
    /// The backend's name for reasoning, once it has used one.
    reasoning: Option<&'static str>,
}

impl Writer {
    /// Remembers what the backend's chunks look like.
    pub(super) fn learn(&mut self, chunk: Value<'_>) {
        if self.common.is_none() {
            let member =
                |name: &str| Some((name.to_owned(), serde_json::from_str(chunk.get(name)?.raw()).ok()?));
            self.common = Some(COMMON.iter().filter_map(|name| member(name)).collect());
        }
    }

    /// Remembers under which name the backend sends reasoning.
    pub(super) fn reasons_as(&mut self, field: &'static str) {
        self.reasoning = Some(field);
    }

    pub(super) fn text(&self, choice: u64, text: &str, out: &mut BytesMut) {
        if text.is_empty() {
            return;
        }
        self.delta(choice, &json!({ "content": text }), out);
    }

    pub(super) fn reasoning(&self, choice: u64, text: &str, out: &mut BytesMut) {
        if text.is_empty() {
            return;
        }
        let field = self.reasoning.unwrap_or("reasoning_content");
        self.delta(choice, &json!({ field: text }), out);
    }

    pub(super) fn call_start(&self, choice: u64, index: usize, id: &str, name: &str, out: &mut BytesMut) {
        let call = json!({ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": "" } });
        self.delta(choice, &json!({ "tool_calls": [call] }), out);
    }

    pub(super) fn call_arguments(&self, choice: u64, index: usize, text: &str, out: &mut BytesMut) {
        let call = json!({ "index": index, "function": { "arguments": text } });
        self.delta(choice, &json!({ "tool_calls": [call] }), out);
    }

    fn delta(&self, choice: u64, delta: &Json, out: &mut BytesMut) {
        let mut chunk = self.common.clone().unwrap_or_default();
        chunk.insert(
            "choices".to_owned(),
            json!([{ "index": choice, "delta": delta, "finish_reason": null }]),
        );
        out.extend_from_slice(&write_data(Json::Object(chunk).to_string().as_bytes()));
    }
}
