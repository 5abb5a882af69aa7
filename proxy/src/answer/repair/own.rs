//! Where the repair's frames go: those that it lets go as they came, and those of its own, in the shape of the backend's: the same id,
//! model and time, one choice, one delta.

use bytes::{Bytes, BytesMut};
use memchr::memmem;
use serde_json::{Map, Value as Json, json};
use switchback_parsers::event::Folded;
use switchback_parsers::json::Value;

use super::wire::{Frame, Wire};

/// What all chunks of an answer have in common.
const COMMON: [&str; 5] = ["id", "object", "created", "model", "system_fingerprint"];

/// Writes what leaves.
#[derive(Debug)]
pub(super) struct Writer {
    wire: Wire,
    out: BytesMut,
    common: Option<Map<String, Json>>,
    /// The backend's name for reasoning, once it has used one.
    reasoning: Option<&'static str>,
    /// The calls of the first choice as the client has them.
    calls: Folded,
}

impl Writer {
    pub(super) fn new(wire: Wire) -> Self {
        Self { wire, out: BytesMut::new(), common: None, reasoning: None, calls: Folded::default() }
    }

    /// A frame of the backend in chat's words.
    pub(super) fn read(&mut self, frame: &Bytes, json: &str) -> Frame {
        self.wire.read(frame, json)
    }

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

    /// From here on the answer is not the backend's own.
    pub(super) fn take_over(&mut self) {
        self.wire.take_over();
    }

    /// A frame leaves.
    pub(super) fn frame(&mut self, frame: Frame) {
        if memmem::find(frame.json.as_bytes(), b"\"tool_calls\"").is_some() {
            self.calls.add_chunk(&frame.json, 0);
        }
        self.wire.write(frame, &mut self.out);
    }

    pub(super) fn text(&mut self, choice: u64, text: &str) {
        if !text.is_empty() {
            self.delta(choice, &json!({ "content": text }));
        }
    }

    pub(super) fn reasoning(&mut self, choice: u64, text: &str) {
        if !text.is_empty() {
            let field = self.reasoning.unwrap_or("reasoning_content");
            self.delta(choice, &json!({ field: text }));
        }
    }

    pub(super) fn call_start(&mut self, choice: u64, index: usize, id: &str, name: &str) {
        let call = json!({ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": "" } });
        self.delta(choice, &json!({ "tool_calls": [call] }));
    }

    pub(super) fn call_arguments(&mut self, choice: u64, index: usize, text: &str) {
        let call = json!({ "index": index, "function": { "arguments": text } });
        self.delta(choice, &json!({ "tool_calls": [call] }));
    }

    fn delta(&mut self, choice: u64, delta: &Json) {
        let mut chunk = self.common.clone().unwrap_or_default();
        chunk.insert(
            "choices".to_owned(),
            json!([{ "index": choice, "delta": delta, "finish_reason": null }]),
        );
        self.frame(Frame::own(Json::Object(chunk).to_string()));
    }

    /// The stream has ended: nothing waits any longer.
    pub(super) fn finish(&mut self) {
        self.wire.finish(&mut self.out);
    }

    /// What has left since this was asked last.
    pub(super) fn written(&mut self, out: &mut BytesMut) {
        out.unsplit(std::mem::take(&mut self.out));
    }

    /// The calls of the first choice as the client has them.
    pub(super) fn calls(&self) -> &Folded {
        &self.calls
    }
}
