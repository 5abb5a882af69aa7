//! Messages: the events of its streams in chat's words, and blocks as its events.

use std::collections::BTreeMap;

use bytes::BytesMut;
use serde_json::{Value as Json, json};
use switchback_parsers::json::{Kind as JsonKind, Value};

use super::blocks::{Block, Kind, Mark, Shape};
use super::{call_delta, chunk, event as write, quoted, text_of};

/// Reads the events of one stream.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// The calls by the index of their block.
    calls: BTreeMap<u64, Call>,
}

#[derive(Debug)]
struct Call {
    number: usize,
    /// The input with which it began, if that has something.
    input: Option<String>,
    /// Its arguments have begun.
    begun: bool,
}

impl Events {
    /// What an event says, and whether it may leave as it came.
    pub(super) fn read(&mut self, event: Value<'_>) -> (String, bool) {
        let index = event.get("index").and_then(Value::as_u64).unwrap_or(0);
        let said = |value: Option<Value<'_>>, member: &str, name: &str| {
            let text =
                value.and_then(|value| value.get(member)).filter(|text| text.kind() == JsonKind::String);
            text.map_or_else(|| "{}".to_owned(), |text| format!(r#"{{"{name}":{}}}"#, text.raw()))
        };
        let mut stays = true;
        let mut finish = None;
        let kind = text_of(event, "type");
        let ended = kind.as_deref() == Some("content_block_start") && !self.calls.is_empty();
        let delta = match kind.as_deref() {
            Some("content_block_start") => {
                let block = event.get("content_block");
                match block.and_then(|block| text_of(block, "type")).as_deref() {
                    Some("text") => said(block, "text", "content"),
                    Some("thinking") => said(block, "thinking", "reasoning_content"),
                    Some("tool_use") => self.begin(index, block),
                    _ => "{}".to_owned(),
                }
            }
            Some("content_block_delta") => {
                let delta = event.get("delta");
                match delta.and_then(|delta| text_of(delta, "type")).as_deref() {
                    Some("text_delta") => said(delta, "text", "content"),
                    Some("thinking_delta") => said(delta, "thinking", "reasoning_content"),
                    Some("input_json_delta") => {
                        self.go_on(index, delta.and_then(|delta| text_of(delta, "partial_json")))
                    }
                    _ => "{}".to_owned(),
                }
            }
            Some("content_block_stop") => match self.calls.get(&index).filter(|call| !call.begun) {
                Some(call) => {
                    // Clients take the input from the deltas: one that came whole with the start is lost to them.
                    stays = call.input.is_none();
                    call_delta(call.number, call.input.as_deref().unwrap_or("{}"))
                }
                None => "{}".to_owned(),
            },
            Some("message_delta") => {
                finish = event.at("/delta/stop_reason").and_then(Value::as_str);
                "{}".to_owned()
            }
            _ => "{}".to_owned(),
        };
        (chunk(&delta, finish.as_deref().map(reason_of), ended, event), stays)
    }

    fn begin(&mut self, index: u64, block: Option<Value<'_>>) -> String {
        let number = self.calls.len();
        let input = block.and_then(|block| block.get("input"));
        let input =
            input.filter(|input| input.kind() == JsonKind::Object && input.members().next().is_some());
        self.calls
            .insert(index, Call { number, input: input.map(|input| input.raw().to_owned()), begun: false });
        let text = |member: &str| block.and_then(|block| text_of(block, member)).unwrap_or_default();
        format!(
            r#"{{"tool_calls":[{{"index":{number},"id":{},"type":"function","function":{{"name":{},"arguments":""}}}}]}}"#,
            quoted(&text("id")),
            quoted(&text("name"))
        )
    }

    fn go_on(&mut self, index: u64, piece: Option<String>) -> String {
        let piece = piece.filter(|piece| !piece.is_empty());
        match (self.calls.get_mut(&index), piece) {
            (Some(call), Some(piece)) => {
                call.begun = true;
                call_delta(call.number, &piece)
            }
            _ => "{}".to_owned(),
        }
    }
}

/// A stop reason in chat's words.
pub(super) fn reason_of(word: &str) -> &str {
    match word {
        "end_turn" | "stop_sequence" => "stop",
        "max_tokens" => "length",
        "tool_use" => "tool_calls",
        other => other,
    }
}

/// A finish reason in the words of Messages, where it is another one than the backend gave.
pub(super) fn stop_reason(reason: &str, given: &str) -> Option<&'static str> {
    let word = match reason {
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        "stop" => "end_turn",
        _ => return None,
    };
    (reason_of(given) != reason).then_some(word)
}

/// Writes blocks as the events of a message.
#[derive(Debug)]
pub(super) struct Messages;

impl Messages {
    fn delta(block: &Block, delta: &Json, out: &mut BytesMut) {
        let event = json!({ "type": "content_block_delta", "index": block.index, "delta": delta });
        write("content_block_delta", &event, out);
    }
}

impl Shape for Messages {
    fn mark(event: Value<'_>) -> Mark {
        let index = event.get("index").and_then(Value::as_u64);
        let place = || index.unwrap_or(0).to_string();
        match text_of(event, "type").as_deref() {
            Some("content_block_start") => {
                let kind = event.get("content_block").and_then(|block| text_of(block, "type"));
                let kind = match kind.as_deref() {
                    Some("text") => Kind::Text,
                    Some("thinking") => Kind::Thought,
                    Some("tool_use") => Kind::Call(0),
                    _ => Kind::Other,
                };
                Mark::Opens(kind, place(), index)
            }
            Some("content_block_delta") => Mark::Within(place()),
            Some("content_block_stop") => Mark::Closes(place()),
            _ => Mark::Outside,
        }
    }

    fn ends_call(_: Value<'_>) -> bool {
        false
    }

    fn saw(&mut self, _: Value<'_>) {}

    fn forget(&mut self, _: usize) {}

    fn ended(&mut self, _: Value<'_>, _: &Block) {}

    fn open(&mut self, block: &Block, out: &mut BytesMut) {
        let content = match block.kind {
            Kind::Text | Kind::Other => json!({ "type": "text", "text": "" }),
            Kind::Thought => json!({ "type": "thinking", "thinking": "", "signature": "" }),
            Kind::Call(_) => json!({ "type": "tool_use", "id": block.id, "name": block.name, "input": {} }),
        };
        let event = json!({ "type": "content_block_start", "index": block.index, "content_block": content });
        write("content_block_start", &event, out);
    }

    fn more(&mut self, block: &Block, piece: &str, out: &mut BytesMut) {
        let delta = match block.kind {
            Kind::Text | Kind::Other => json!({ "type": "text_delta", "text": piece }),
            Kind::Thought => json!({ "type": "thinking_delta", "thinking": piece }),
            Kind::Call(_) => json!({ "type": "input_json_delta", "partial_json": piece }),
        };
        Self::delta(block, &delta, out);
    }

    fn close(&mut self, block: &Block, _: bool, out: &mut BytesMut) {
        let event = json!({ "type": "content_block_stop", "index": block.index });
        write("content_block_stop", &event, out);
    }

    fn pass(&mut self, event: Value<'_>, index: Option<u64>, out: &mut BytesMut) {
        let Ok(mut own) = serde_json::from_str::<Json>(event.raw()) else { return };
        if let (Some(index), Some(own)) = (index, own.as_object_mut()) {
            own.insert("index".to_owned(), index.into());
        }
        write(&text_of(event, "type").unwrap_or_default(), &own, out);
    }

    fn belongs(event: Value<'_>, kind: Kind) -> bool {
        let delta = event.get("delta").and_then(|delta| text_of(delta, "type"));
        match kind {
            Kind::Thought => delta.as_deref() == Some("signature_delta"),
            Kind::Text => delta.as_deref() == Some("citations_delta"),
            Kind::Call(_) | Kind::Other => false,
        }
    }

    fn end(&mut self, event: Option<Value<'_>>, reason: &str, out: &mut BytesMut) {
        let given = event.and_then(|event| event.at("/delta/stop_reason")?.as_str()).unwrap_or_default();
        let event = event.and_then(|event| serde_json::from_str::<Json>(event.raw()).ok());
        let mut event = event.unwrap_or_else(|| json!({ "type": "message_delta", "delta": {} }));
        if let Some(word) = stop_reason(reason, &given) {
            event["delta"]["stop_reason"] = word.into();
            event["delta"]["stop_sequence"] = Json::Null;
        }
        write("message_delta", &event, out);
    }
}
