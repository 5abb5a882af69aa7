//! vLLM's `/v1/responses`: requests put in chat's words, answers in the events of the Responses API.
//!
//! The order of events was captured from 0.32.0: created and in progress at once, the items with the tokens, all of it once more at
//! the end. It must never decide what is said, only how.

use serde_json::{Map, Value, json};

use super::checks::ENGINE_DEAD;
use crate::{
    answer::{Answer, Token},
    random::hash,
    ticket::Progress,
    wire::{
        CREATED,
        relay::{Pen, Piece},
    },
};

/// The request as a chat request.
pub(super) fn to_chat(body: &Value) -> Value {
    let mut messages = Vec::new();
    if !body["instructions"].is_null() {
        messages.push(json!({ "role": "system", "content": body["instructions"] }));
    }
    if let Some(words) = body["input"].as_str() {
        messages.push(json!({ "role": "user", "content": words }));
    }
    for item in body["input"].as_array().into_iter().flatten() {
        match item["type"].as_str() {
            Some("function_call") => messages.push(json!({
                "role": "assistant", "content": null, "tool_calls": [{
                    "id": item["call_id"], "type": "function",
                    "function": { "name": item["name"], "arguments": item["arguments"] },
                }],
            })),
            Some("function_call_output") => messages.push(json!({
                "role": "tool", "tool_call_id": item["call_id"], "content": item["output"],
            })),
            Some("reasoning") => {}
            _ => messages.push(json!({ "role": item["role"], "content": item["content"] })),
        }
    }
    let mut chat = Map::from_iter([("messages".to_owned(), Value::from(messages))]);
    for (member, name) in [
        ("model", "model"),
        ("stream", "stream"),
        ("temperature", "temperature"),
        ("max_output_tokens", "max_tokens"),
        ("chat_template_kwargs", "chat_template_kwargs"),
    ] {
        if !body[member].is_null() {
            chat.insert(name.to_owned(), body[member].clone());
        }
    }
    let function = |tool: &&Value| tool["type"] == "function";
    let tools: Vec<Value> = body["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(function)
        .map(|tool| json!({ "type": "function", "function": { "name": tool["name"], "parameters": tool["parameters"] } }))
        .collect();
    if !tools.is_empty() {
        chat.insert("tools".to_owned(), Value::from(tools));
        let choice = match &body["tool_choice"] {
            Value::Object(choice) => json!({ "type": "function", "function": { "name": choice["name"] } }),
            Value::Null => json!("auto"),
            word => word.clone(),
        };
        chat.insert("tool_choice".to_owned(), choice);
    }
    Value::Object(chat)
}

/// An item of the output that is being said.
#[derive(Clone, Debug, PartialEq)]
enum Item {
    Message(String),
    Reasoning(String),
    Call { name: String, arguments: String },
}

/// Writes one answer.
#[derive(Debug)]
pub(super) struct ResponsesPen {
    id: String,
    model: String,
    prompt_tokens: usize,
    sequence: usize,
    begun: bool,
    open: Option<Item>,
    /// Items that are whole.
    output: Vec<Value>,
}

impl ResponsesPen {
    pub(super) fn new(id: String, model: String, prompt_tokens: usize) -> Self {
        Self { id, model, prompt_tokens, sequence: 0, begun: false, open: None, output: Vec::new() }
    }

    fn event(&mut self, kind: &str, rest: Value) -> String {
        let number = ("sequence_number".to_owned(), json!(self.sequence));
        let mut data = Map::from_iter([("type".to_owned(), json!(kind)), number]);
        self.sequence += 1;
        if let Value::Object(rest) = rest {
            data.extend(rest);
        }
        format!("event: {kind}\ndata: {}\n\n", Value::Object(data))
    }

    fn response(&self, status: &str, tokens: Option<usize>) -> Value {
        let usage = tokens.map(|tokens| {
            json!({
                "input_tokens": self.prompt_tokens, "input_tokens_details": { "cached_tokens": 0 },
                "output_tokens": tokens, "output_tokens_details": { "reasoning_tokens": 0 },
                "total_tokens": self.prompt_tokens + tokens,
            })
        });
        let cut = (status == "incomplete").then(|| json!({ "reason": "max_output_tokens" }));
        json!({
            "id": self.id, "object": "response", "created_at": CREATED, "status": status, "model": self.model,
            "output": self.output, "incomplete_details": cut, "usage": usage,
        })
    }

    fn item_id(&self) -> String {
        format!("msg_{:016x}", hash(format!("{}{}", self.id, self.output.len()).as_bytes()))
    }

    fn item(&self, item: &Item, status: &str) -> Value {
        let id = self.item_id();
        match item {
            Item::Message(text) => {
                let part = json!({ "type": "output_text", "text": text, "annotations": [] });
                let content = if status == "completed" { json!([part]) } else { json!([]) };
                json!({ "type": "message", "id": id, "role": "assistant", "status": status, "content": content })
            }
            Item::Reasoning(text) => {
                let part = json!({ "type": "reasoning_text", "text": text });
                let content = if status == "completed" { json!([part]) } else { json!([]) };
                json!({ "type": "reasoning", "id": id, "summary": [], "status": status, "content": content })
            }
            Item::Call { name, arguments } => json!({
                "type": "function_call", "id": id, "call_id": format!("call_{id}"), "name": name, "arguments": arguments,
                "status": status,
            }),
        }
    }

    fn place(&self) -> Value {
        json!({ "item_id": self.item_id(), "output_index": self.output.len(), "content_index": 0 })
    }

    fn with(&self, more: Value) -> Value {
        let mut place = self.place();
        if let (Some(place), Value::Object(more)) = (place.as_object_mut(), more) {
            place.extend(more);
        }
        place
    }

    fn begin(&mut self, item: Item) -> String {
        let closed = self.close();
        let shown = self.item(&item, "in_progress");
        let mut text = closed
            + &self.event(
                "response.output_item.added",
                json!({ "output_index": self.output.len(), "item": shown }),
            );
        if let Item::Message(_) = item {
            let part = self.with(json!({ "part": { "type": "output_text", "text": "", "annotations": [] } }));
            text += &self.event("response.content_part.added", part);
        }
        self.open = Some(item);
        text
    }

    fn close(&mut self) -> String {
        let Some(item) = self.open.take() else { return String::new() };
        let mut text = String::new();
        match &item {
            Item::Message(words) => {
                let done = self.with(json!({ "text": words }));
                text += &self.event("response.output_text.done", done);
                let part =
                    self.with(json!({ "part": { "type": "output_text", "text": words, "annotations": [] } }));
                text += &self.event("response.content_part.done", part);
            }
            Item::Reasoning(words) => {
                let done = self.with(json!({ "text": words }));
                text += &self.event("response.reasoning_text.done", done);
            }
            Item::Call { name, arguments } => {
                let done = self.with(json!({ "name": name, "arguments": arguments }));
                text += &self.event("response.function_call_arguments.done", done);
            }
        }
        let whole = self.item(&item, "completed");
        text += &self
            .event("response.output_item.done", json!({ "output_index": self.output.len(), "item": whole }));
        self.output.push(whole);
        text
    }

    /// The whole answer.
    pub(super) fn whole(mut self, answer: &Answer) -> Value {
        let items = [
            answer.reasoning().map(Item::Reasoning),
            answer.content().map(Item::Message),
            answer.call().map(|(name, arguments)| Item::Call { name: name.to_owned(), arguments }),
        ];
        for item in items.into_iter().flatten() {
            let whole = self.item(&item, "completed");
            self.output.push(whole);
        }
        let status = if answer.finish() == "length" { "incomplete" } else { "completed" };
        self.response(status, Some(answer.tokens.len()))
    }
}

impl Pen for ResponsesPen {
    fn prefill(&mut self, _: &Progress) -> String {
        if std::mem::replace(&mut self.begun, true) {
            return String::new();
        }
        let response = json!({ "response": self.response("in_progress", None) });
        self.event("response.created", response.clone()) + &self.event("response.in_progress", response)
    }

    fn piece(&mut self, piece: &Piece, _: Option<&'static str>) -> String {
        let mut text = String::new();
        match &piece.token {
            Token::Text(words) => {
                if !matches!(self.open, Some(Item::Message(_))) {
                    text += &self.begin(Item::Message(String::new()));
                }
                if let Some(Item::Message(said)) = &mut self.open {
                    said.push_str(words);
                }
                let delta = self.with(json!({ "delta": words }));
                text += &self.event("response.output_text.delta", delta);
            }
            Token::Reasoning(words) => {
                if !matches!(self.open, Some(Item::Reasoning(_))) {
                    text += &self.begin(Item::Reasoning(String::new()));
                }
                if let Some(Item::Reasoning(said)) = &mut self.open {
                    said.push_str(words);
                }
                let delta = self.with(json!({ "delta": words }));
                text += &self.event("response.reasoning_text.delta", delta);
            }
            Token::Call { name } => {
                text += &self.begin(Item::Call { name: name.clone(), arguments: String::new() });
            }
            Token::Arguments(words) => {
                if let Some(Item::Call { arguments, .. }) = &mut self.open {
                    arguments.push_str(words);
                }
                let delta = self.with(json!({ "delta": words }));
                text += &self.event("response.function_call_arguments.delta", delta);
            }
            Token::End => {}
        }
        text
    }

    fn merges(&self) -> bool {
        true
    }

    fn end(&mut self, answer: &Answer, _: &Progress) -> String {
        let closed = self.close();
        let status = if answer.finish() == "length" { "incomplete" } else { "completed" };
        let response = json!({ "response": self.response(status, Some(answer.tokens.len())) });
        closed + &self.event("response.completed", response)
    }

    fn death(&self) -> Option<String> {
        Some(format!(
            "data: {{\"error\": {{\"message\": \"{ENGINE_DEAD}\", \"type\": \"InternalServerError\", \"param\": null, \
             \"code\": 500}}}}\n\ndata: [DONE]\n\n"
        ))
    }

    fn comment(&self) -> Option<(f64, &'static str)> {
        None
    }
}
