//! Responses: blocks as its events, and the whole output at the end, which says what the events have said.

use std::collections::BTreeMap;

use bytes::BytesMut;
use serde_json::{Map, Value as Json, json};
use switchback_parsers::api;
use switchback_parsers::json::Value;

use super::blocks::{Block, Kind, Mark, Shape};
use super::items::{Names, Tool, place, reason_of};
use super::{event as write, text_of};

/// Writes blocks as the items of a response.
#[derive(Debug)]
pub(super) struct Responses {
    names: Names,
    seed: String,
    /// The number of the next event, if the backend numbers them.
    number: Option<u64>,
    /// The items that have ended, by their place.
    output: BTreeMap<u64, Json>,
}

impl Responses {
    pub(super) fn new(names: Names, seed: &str) -> Self {
        Self { names, seed: seed.to_owned(), number: None, output: BTreeMap::new() }
    }

    fn send(&mut self, kind: &str, members: Json, out: &mut BytesMut) {
        let kind = format!("response.{kind}");
        let mut event = Map::from_iter([("type".to_owned(), Json::from(kind.clone()))]);
        if let Json::Object(members) = members {
            event.extend(members);
        }
        if let Some(number) = &mut self.number {
            event.insert("sequence_number".to_owned(), (*number).into());
            *number += 1;
        }
        write(&kind, &Json::Object(event), out);
    }

    /// The item's own id: the backend's if it has opened it.
    fn id(&self, block: &Block) -> String {
        let prefix = match block.kind {
            Kind::Text | Kind::Other => "msg",
            Kind::Thought => "rs",
            Kind::Call(_) if self.is_free_text(block) => "ctc",
            Kind::Call(_) => "fc",
        };
        match block.place.as_str() {
            "" => format!("{prefix}_{}_{}", self.seed, block.index),
            place => place.to_owned(),
        }
    }

    fn is_free_text(&self, block: &Block) -> bool {
        matches!(block.kind, Kind::Call(_)) && self.names.get(&block.name) == Some(&Tool::FreeText)
    }

    fn item(&self, block: &Block, status: &str) -> Json {
        let id = self.id(block);
        let begins = status == "in_progress";
        match block.kind {
            Kind::Text | Kind::Other => message(&id, &block.said, status),
            Kind::Thought => thought(&id, &block.said, status),
            Kind::Call(_) => {
                let said = if begins { "" } else { block.said.as_str() };
                call(&self.names, &id, &block.id, &block.name, said, status)
            }
        }
    }

    fn at(&self, block: &Block, more: Json) -> Json {
        let mut members = json!({ "item_id": self.id(block), "output_index": block.index });
        if !matches!(block.kind, Kind::Call(_)) {
            members["content_index"] = 0.into();
        }
        if let (Some(members), Json::Object(more)) = (members.as_object_mut(), more) {
            members.extend(more);
        }
        members
    }
}

fn part(text: &str) -> Json {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// An item of text.
pub(super) fn message(id: &str, text: &str, status: &str) -> Json {
    let content = if status == "in_progress" { json!([]) } else { json!([part(text)]) };
    json!({ "type": "message", "id": id, "role": "assistant", "status": status, "content": content })
}

/// An item of thoughts.
pub(super) fn thought(id: &str, text: &str, status: &str) -> Json {
    let part = json!({ "type": "reasoning_text", "text": text });
    let content = if status == "in_progress" { json!([]) } else { json!([part]) };
    json!({ "type": "reasoning", "id": id, "summary": [], "content": content, "status": status })
}

/// An item that calls a tool.
pub(super) fn call(names: &Names, id: &str, call: &str, name: &str, said: &str, status: &str) -> Json {
    let free_text = || api::free_text(said).unwrap_or_else(|| said.to_owned());
    match names.get(name) {
        Some(Tool::FreeText) => json!({
            "type": "custom_tool_call", "id": id, "call_id": call, "name": name, "input": free_text(),
        }),
        Some(Tool::In(namespace, local)) => json!({
            "type": "function_call", "id": id, "call_id": call, "namespace": namespace, "name": local,
            "arguments": said, "status": status,
        }),
        None => json!({
            "type": "function_call", "id": id, "call_id": call, "name": name, "arguments": said, "status": status,
        }),
    }
}

impl Shape for Responses {
    fn mark(event: Value<'_>) -> Mark {
        let kind = text_of(event, "type").unwrap_or_default();
        match kind.trim_start_matches("response.") {
            "output_item.added" => {
                let item = event.get("item").and_then(|item| text_of(item, "type"));
                let kind = match item.as_deref() {
                    Some("message") => Kind::Text,
                    Some("reasoning") => Kind::Thought,
                    Some("function_call" | "custom_tool_call") => Kind::Call(0),
                    _ => Kind::Other,
                };
                Mark::Opens(kind, place(event), event.get("output_index").and_then(Value::as_u64))
            }
            "output_item.done" => Mark::Closes(place(event)),
            _ if event.get("item_id").is_some() || event.get("output_index").is_some() => {
                Mark::Within(place(event))
            }
            _ => Mark::Outside,
        }
    }

    fn ends_call(event: Value<'_>) -> bool {
        event.get("type").is_some_and(|kind| kind.is_text("response.function_call_arguments.done"))
    }

    fn saw(&mut self, event: Value<'_>) {
        let number = event.get("sequence_number").and_then(Value::as_u64);
        self.number = number.map_or(self.number, |number| Some(number + 1));
    }

    fn forget(&mut self, events: usize) {
        self.number = self.number.map(|number| number.saturating_sub(events as u64));
    }

    fn ended(&mut self, event: Value<'_>, block: &Block) {
        if let Some(item) = event.get("item").and_then(|item| serde_json::from_str(item.raw()).ok()) {
            self.output.insert(block.index, item);
        }
    }

    fn open(&mut self, block: &Block, out: &mut BytesMut) {
        let item = self.item(block, "in_progress");
        self.send("output_item.added", json!({ "output_index": block.index, "item": item }), out);
        if block.kind == Kind::Text {
            let at = self.at(block, json!({ "part": part("") }));
            self.send("content_part.added", at, out);
        }
    }

    fn more(&mut self, block: &Block, piece: &str, out: &mut BytesMut) {
        let kind = match block.kind {
            Kind::Text | Kind::Other => "output_text.delta",
            Kind::Thought => "reasoning_text.delta",
            // Free text stands between the quotes of the arguments: it is sent when they are whole.
            Kind::Call(_) if self.is_free_text(block) => return,
            Kind::Call(_) => "function_call_arguments.delta",
        };
        let at = self.at(block, json!({ "delta": piece }));
        self.send(kind, at, out);
    }

    fn close(&mut self, block: &Block, whole: bool, out: &mut BytesMut) {
        let item = self.item(block, if whole { "completed" } else { "incomplete" });
        match block.kind {
            Kind::Text | Kind::Other => {
                let at = self.at(block, json!({ "text": block.said, "logprobs": [] }));
                self.send("output_text.done", at, out);
                let at = self.at(block, json!({ "part": part(&block.said) }));
                self.send("content_part.done", at, out);
            }
            Kind::Thought => {
                let at = self.at(block, json!({ "text": block.said }));
                self.send("reasoning_text.done", at, out);
            }
            Kind::Call(_) if self.is_free_text(block) => {
                let text = &item["input"];
                let at = self.at(block, json!({ "delta": text }));
                self.send("custom_tool_call_input.delta", at, out);
                let at = self.at(block, json!({ "input": text }));
                self.send("custom_tool_call_input.done", at, out);
            }
            Kind::Call(_) => {
                let at = self.at(block, json!({ "name": item["name"], "arguments": block.said }));
                self.send("function_call_arguments.done", at, out);
            }
        }
        self.send("output_item.done", json!({ "output_index": block.index, "item": item }), out);
        self.output.insert(block.index, item);
    }

    fn pass(&mut self, event: Value<'_>, index: Option<u64>, out: &mut BytesMut) {
        let Ok(Json::Object(mut own)) = serde_json::from_str(event.raw()) else { return };
        let kind = text_of(event, "type").unwrap_or_default();
        if let Some(index) = index {
            own.insert("output_index".to_owned(), index.into());
        }
        own.remove("type");
        match kind.strip_prefix("response.") {
            Some(kind) => self.send(kind, Json::Object(own), out),
            // `ping` and the like have no number.
            None => write(&kind, &serde_json::from_str(event.raw()).unwrap_or_default(), out),
        }
    }

    fn belongs(_: Value<'_>, _: Kind) -> bool {
        false
    }

    fn end(&mut self, event: Option<Value<'_>>, reason: &str, out: &mut BytesMut) {
        let Some(event) = event else { return };
        let Ok(Json::Object(mut own)) = serde_json::from_str(event.raw()) else { return };
        let mut kind = text_of(event, "type").unwrap_or_default();
        if let Some(response) = own.get_mut("response").and_then(Json::as_object_mut) {
            response.insert("output".to_owned(), std::mem::take(&mut self.output).into_values().collect());
            let given = event.get("response").map(|response| reason_of(response, false));
            if let Some(status) = put_status(response, reason, &given.unwrap_or_default()) {
                kind = format!("response.{status}");
            }
        }
        own.remove("type");
        self.send(kind.trim_start_matches("response."), Json::Object(own), out);
    }
}

/// The status of a response that ends for another reason than the backend gave; both in chat's words.
pub(super) fn put_status(
    response: &mut Map<String, Json>,
    reason: &str,
    given: &str,
) -> Option<&'static str> {
    let (status, details) = match (reason, given) {
        ("length", "stop" | "tool_calls") => ("incomplete", json!({ "reason": "max_output_tokens" })),
        ("stop" | "tool_calls", "length") => ("completed", Json::Null),
        _ => return None,
    };
    response.insert("status".to_owned(), status.into());
    response.insert("incomplete_details".to_owned(), details);
    Some(status)
}
