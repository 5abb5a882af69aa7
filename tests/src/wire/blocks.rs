//! The message as a client of Messages or Responses puts it together, from a whole body or from events, in the words of a chat.
//!
//! Stricter than any client: blocks come one after the other, each is opened and ended, numbers have no gaps, and what is told twice
//! (text and its end, items and the whole output) must be the same. Whatever is not is kept as a fault.

use serde_json::{Value, json};

use super::message::{Call, Message};
use super::sse::Stream;

impl Message {
    /// The message of a whole body of `/v1/messages`.
    pub fn of_message(body: &Value) -> Self {
        let mut message = Self { role: text(body, "/role"), ..Self::default() };
        for block in list(body, "/content") {
            message.add_block(block);
        }
        message.finish = text(body, "/stop_reason").map(|reason| in_chat(&reason));
        message
    }

    /// The message of a stream of `/v1/messages`.
    pub fn of_message_events(stream: &Stream) -> Self {
        let mut message = Self::default();
        let mut blocks: Vec<Value> = Vec::new();
        let mut open = false;
        let mut ended = false;
        for event in stream.chunks() {
            let index = event["index"].as_u64();
            let kind = event["type"].as_str().unwrap_or_default();
            let last = blocks.len().checked_sub(1).map(|last| last as u64);
            if ended && kind != "message_stop" {
                message.faults.push(format!("{kind} behind the end"));
            }
            match kind {
                "content_block_start" => {
                    if open || index != Some(blocks.len() as u64) {
                        message.faults.push(format!("block {index:?} begins as number {}", blocks.len()));
                    }
                    open = true;
                    let mut block = event["content_block"].clone();
                    if block["type"] == "tool_use" {
                        if block["input"] != json!({}) {
                            message.faults.push("a call begins with an input".to_owned());
                        }
                        block["input"] = "".into();
                    }
                    blocks.push(block);
                }
                "content_block_delta" => {
                    if !open || index != last {
                        message.faults.push(format!("delta for block {index:?}, the last is {last:?}"));
                    }
                    let Some(block) = blocks.last_mut() else { continue };
                    let delta = &event["delta"];
                    let (member, piece) = match delta["type"].as_str() {
                        Some("text_delta") => ("text", &delta["text"]),
                        Some("thinking_delta") => ("thinking", &delta["thinking"]),
                        Some("input_json_delta") => ("input", &delta["partial_json"]),
                        Some("signature_delta") => ("signature", &delta["signature"]),
                        _ => ("", &Value::Null),
                    };
                    match (block[member].as_str().map(str::to_owned), piece.as_str()) {
                        (Some(before), Some(piece)) => block[member] = (before + piece).into(),
                        _ => message.faults.push(format!("{delta} in {block}")),
                    }
                }
                "content_block_stop" => {
                    if !open || index != last {
                        message.faults.push(format!("block {index:?} ends, the last is {last:?}"));
                    }
                    open = false;
                }
                "message_delta" => {
                    ended = true;
                    message.finish = text(event, "/delta/stop_reason").map(|reason| in_chat(&reason));
                }
                "message_start" => message.role = text(event, "/message/role"),
                "message_stop" | "ping" => {}
                other => message.faults.push(format!("an event {other}: {event}")),
            }
        }
        if open {
            message.faults.push("the last block is open".to_owned());
        }
        for mut block in blocks {
            if block["type"] == "tool_use" {
                // As the client's library does it.
                let input = block["input"].as_str().unwrap_or_default();
                let read = if input.is_empty() { Ok(json!({})) } else { serde_json::from_str(input) };
                block["input"] = read.unwrap_or_else(|_| input.into());
            }
            message.add_block(&block);
        }
        message
    }

    fn add_block(&mut self, block: &Value) {
        let own = |member: &str| block[member].as_str().unwrap_or_default();
        match own("type") {
            "text" => {
                if own("text").trim().is_empty() {
                    self.faults.push("an empty block of text".to_owned());
                }
                self.content.push_str(own("text"));
            }
            "thinking" => self.reasoning.push_str(own("thinking")),
            "tool_use" => {
                let arguments = match &block["input"] {
                    Value::String(text) => text.clone(),
                    input => input.to_string(),
                };
                self.add_call(own("id"), own("name"), &arguments);
            }
            other => self.faults.push(format!("a block {other}")),
        }
    }

    fn add_call(&mut self, id: &str, name: &str, arguments: &str) {
        let (id, name, arguments) = (id.to_owned(), name.to_owned(), arguments.to_owned());
        self.calls.push(Call { index: self.calls.len() as i64, id, name, arguments });
    }

    /// The message of a whole response.
    pub fn of_response(response: &Value) -> Self {
        let mut message = Self::default();
        for item in list(response, "/output") {
            message.add_item(item);
        }
        let cut = text(response, "/incomplete_details/reason");
        message.finish = match (text(response, "/status").as_deref(), cut.as_deref()) {
            (Some("completed"), None) if message.calls.is_empty() => Some("stop".to_owned()),
            (Some("completed"), None) => Some("tool_calls".to_owned()),
            (Some("incomplete"), Some("max_output_tokens")) => Some("length".to_owned()),
            (status, _) => status.map(str::to_owned),
        };
        message
    }

    /// The message of a stream of `/v1/responses`.
    pub fn of_response_events(stream: &Stream) -> Self {
        let mut faults = Vec::new();
        let mut items: Vec<Value> = Vec::new();
        // What the open item says, by its deltas.
        let mut open: Option<(Value, String)> = None;
        let mut whole = Value::Null;
        let mut number = 0;
        for event in stream.chunks() {
            let kind = event["type"].as_str().unwrap_or_default();
            if let Some(own) = event["sequence_number"].as_u64() {
                if own != number {
                    faults.push(format!("event {own} is number {number}"));
                }
                number += 1;
            }
            let told = event["output_index"].as_u64();
            if told.is_some_and(|told| told != items.len() as u64) {
                faults.push(format!("{kind} of item {told:?}, which is number {}", items.len()));
            }
            let (before, said) = open.clone().unwrap_or_default();
            let id = event.get("item_id").is_none_or(|id| *id == before["id"] || *id == before["call_id"]);
            if !id {
                faults.push(format!("{kind} of {}, not {}", event["item_id"], before["id"]));
            }
            match kind {
                "response.output_item.added" => {
                    if open.is_some() {
                        faults.push("an item begins in another one".to_owned());
                    }
                    open = Some((event["item"].clone(), String::new()));
                }
                kind if kind.ends_with(".delta") => match (&mut open, event["delta"].as_str()) {
                    (Some((_, said)), Some(piece)) => said.push_str(piece),
                    _ => faults.push(format!("{event} outside of an item")),
                },
                "response.output_text.done" | "response.reasoning_text.done" => {
                    same(&event["text"], &said, kind, &mut faults);
                }
                "response.function_call_arguments.done" => {
                    same(&event["arguments"], &said, kind, &mut faults)
                }
                "response.custom_tool_call_input.done" => same(&event["input"], &said, kind, &mut faults),
                "response.content_part.done" => same(&event["part"]["text"], &said, kind, &mut faults),
                "response.output_item.done" => {
                    let item = event["item"].clone();
                    if open.take().is_none() || item["id"] != before["id"] || item["type"] != before["type"] {
                        faults.push(format!("{item} ends, {before} began"));
                    }
                    let own =
                        ["/content/0/text", "/arguments", "/input"].iter().find_map(|at| text(&item, at));
                    same(&own.unwrap_or_default().into(), &said, kind, &mut faults);
                    items.push(item);
                }
                "response.completed" | "response.incomplete" => whole = event["response"].clone(),
                _ => {}
            }
        }
        if open.is_some() {
            faults.push("the last item is open".to_owned());
        }
        if whole["output"] != Value::from(items) {
            faults.push(format!("the output at the end is {}", whole["output"]));
        }
        let message = Self::of_response(&whole);
        Self { faults: [faults, message.faults.clone()].concat(), ..message }
    }

    fn add_item(&mut self, item: &Value) {
        let own = |member: &str| item[member].as_str().unwrap_or_default();
        let words =
            list(item, "/content").iter().filter_map(|part| part["text"].as_str()).collect::<String>();
        match own("type") {
            "message" => {
                if words.trim().is_empty() {
                    self.faults.push("an empty item of text".to_owned());
                }
                self.content.push_str(&words);
            }
            "reasoning" => self.reasoning.push_str(&words),
            "function_call" => self.add_call(own("call_id"), own("name"), own("arguments")),
            "custom_tool_call" => self.add_call(own("call_id"), own("name"), own("input")),
            other => self.faults.push(format!("an item {other}")),
        }
    }
}

fn same(told: &Value, said: &str, kind: &str, faults: &mut Vec<String>) {
    if told.as_str() != Some(said) {
        faults.push(format!("{kind} says {told}, the deltas {said:?}"));
    }
}

fn text(value: &Value, at: &str) -> Option<String> {
    value.pointer(at).and_then(Value::as_str).map(str::to_owned)
}

fn list<'a>(value: &'a Value, at: &str) -> &'a [Value] {
    value.pointer(at).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn in_chat(reason: &str) -> String {
    match reason {
        "end_turn" => "stop",
        "max_tokens" => "length",
        "tool_use" => "tool_calls",
        other => other,
    }
    .to_owned()
}
