//! vLLM's `/v1/messages`: requests put in chat's words, answers in Anthropic's events, as its own conversion does.
//!
//! Shapes: the public ones of the API, with what was captured from 0.32.0: the error of a death, no comments, no `[DONE]`. It must
//! never decide what is said, only how.

use serde_json::{Map, Value, json};

use super::checks::ENGINE_DEAD;
use crate::{
    answer::{Answer, Token},
    random::hash,
    ticket::Progress,
    wire::relay::{Pen, Piece},
};

/// The request as a chat request.
pub(super) fn to_chat(body: &Value) -> Value {
    let mut messages = Vec::new();
    if !body["system"].is_null() {
        messages.push(json!({ "role": "system", "content": body["system"] }));
    }
    for message in body["messages"].as_array().into_iter().flatten() {
        turn(message, &mut messages);
    }
    let mut chat = Map::from_iter([("messages".to_owned(), Value::from(messages))]);
    for member in ["model", "max_tokens", "stream", "temperature", "top_p", "chat_template_kwargs"] {
        if !body[member].is_null() {
            chat.insert(member.to_owned(), body[member].clone());
        }
    }
    if let Some(tools) = body["tools"].as_array().filter(|tools| !tools.is_empty()) {
        let tool = |tool: &Value| {
            let function = json!({ "name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"] });
            json!({ "type": "function", "function": function })
        };
        chat.insert("tools".to_owned(), tools.iter().map(tool).collect());
        let choice = match body["tool_choice"]["type"].as_str() {
            Some("any") => json!("required"),
            Some("none") => json!("none"),
            Some("tool") => {
                json!({ "type": "function", "function": { "name": body["tool_choice"]["name"] } })
            }
            _ => json!("auto"),
        };
        chat.insert("tool_choice".to_owned(), choice);
    }
    Value::Object(chat)
}

/// A message may hold results of tools beside words: each is a message of its own in chat.
fn turn(message: &Value, messages: &mut Vec<Value>) {
    let Some(parts) = message["content"].as_array() else { return messages.push(message.clone()) };
    let mut words = Vec::new();
    let mut calls = Vec::new();
    for part in parts {
        match part["type"].as_str() {
            Some("tool_use") => calls.push(json!({
                "id": part["id"], "type": "function",
                "function": { "name": part["name"], "arguments": part["input"].to_string() },
            })),
            Some("tool_result") => messages.push(json!({
                "role": "tool", "tool_call_id": part["tool_use_id"], "content": part["content"],
            })),
            _ => words.push(part.clone()),
        }
    }
    if words.is_empty() && calls.is_empty() {
        return;
    }
    let mut turn = json!({ "role": message["role"], "content": words });
    if !calls.is_empty() {
        turn["tool_calls"] = Value::from(calls);
    }
    messages.push(turn);
}

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Text,
    Thinking,
    Tool,
}

/// Writes one answer.
#[derive(Debug)]
pub(super) struct MessagesPen {
    id: String,
    model: String,
    prompt_tokens: usize,
    open: Option<Block>,
    /// Blocks that have begun.
    blocks: usize,
}

impl MessagesPen {
    pub(super) fn new(id: String, model: String, prompt_tokens: usize) -> Self {
        Self { id, model, prompt_tokens, open: None, blocks: 0 }
    }

    fn event(kind: &str, rest: Value) -> String {
        let mut data = Map::from_iter([("type".to_owned(), json!(kind))]);
        if let Value::Object(rest) = rest {
            data.extend(rest);
        }
        format!("event: {kind}\ndata: {}\n\n", Value::Object(data))
    }

    fn tool_id(&self) -> String {
        format!("chatcmpl-tool-{:016x}", hash(self.id.as_bytes()))
    }

    fn close(&mut self) -> String {
        match self.open.take() {
            Some(_) => Self::event("content_block_stop", json!({ "index": self.blocks - 1 })),
            None => String::new(),
        }
    }

    fn begin(&mut self, block: Block, content: Value) -> String {
        if self.open == Some(block) && block != Block::Tool {
            return String::new();
        }
        let closed = self.close();
        self.open = Some(block);
        self.blocks += 1;
        closed
            + &Self::event(
                "content_block_start",
                json!({ "index": self.blocks - 1, "content_block": content }),
            )
    }

    fn delta(&self, delta: Value) -> String {
        Self::event("content_block_delta", json!({ "index": self.blocks - 1, "delta": delta }))
    }

    fn stop_reason(finish: &str) -> &'static str {
        match finish {
            "length" => "max_tokens",
            "tool_calls" => "tool_use",
            _ => "end_turn",
        }
    }

    /// The whole answer.
    pub(super) fn whole(&self, answer: &Answer) -> Value {
        let mut content = Vec::new();
        if let Some(thought) = answer.reasoning() {
            content.push(json!({ "type": "thinking", "thinking": thought, "signature": "" }));
        }
        if let Some(text) = answer.content() {
            content.push(json!({ "type": "text", "text": text }));
        }
        if let Some((name, arguments)) = answer.call() {
            let input: Value = serde_json::from_str(&arguments).unwrap_or_default();
            content.push(json!({ "type": "tool_use", "id": self.tool_id(), "name": name, "input": input }));
        }
        json!({
            "id": self.id, "type": "message", "role": "assistant", "content": content, "model": self.model,
            "stop_reason": Self::stop_reason(answer.finish()), "stop_sequence": null,
            "usage": { "input_tokens": self.prompt_tokens, "output_tokens": answer.tokens.len() },
        })
    }
}

impl Pen for MessagesPen {
    fn prefill(&mut self, _: &Progress) -> String {
        String::new()
    }

    fn piece(&mut self, piece: &Piece, _: Option<&'static str>) -> String {
        let mut text = String::new();
        if piece.at == 0 {
            let usage = json!({ "input_tokens": self.prompt_tokens, "output_tokens": 0 });
            text = Self::event(
                "message_start",
                json!({ "message": {
                    "id": self.id, "type": "message", "role": "assistant", "content": [], "model": self.model,
                    "stop_reason": null, "stop_sequence": null, "usage": usage,
                }}),
            );
        }
        match &piece.token {
            Token::Text(words) => {
                text += &self.begin(Block::Text, json!({ "type": "text", "text": "" }));
                text += &self.delta(json!({ "type": "text_delta", "text": words }));
            }
            Token::Reasoning(words) => {
                let empty = json!({ "type": "thinking", "thinking": "", "signature": "" });
                text += &self.begin(Block::Thinking, empty);
                text += &self.delta(json!({ "type": "thinking_delta", "thinking": words }));
            }
            Token::Call { name } => {
                let call = json!({ "type": "tool_use", "id": self.tool_id(), "name": name, "input": {} });
                text += &self.begin(Block::Tool, call);
            }
            Token::Arguments(words) => {
                text += &self.delta(json!({ "type": "input_json_delta", "partial_json": words }));
            }
            Token::End => {}
        }
        text
    }

    fn merges(&self) -> bool {
        true
    }

    fn end(&mut self, answer: &Answer, _: &Progress) -> String {
        let delta = json!({ "stop_reason": Self::stop_reason(answer.finish()), "stop_sequence": null });
        let usage = json!({ "input_tokens": self.prompt_tokens, "output_tokens": answer.tokens.len() });
        self.close()
            + &Self::event("message_delta", json!({ "delta": delta, "usage": usage }))
            + &Self::event("message_stop", json!({}))
    }

    fn death(&self) -> Option<String> {
        let error = json!({ "type": "internal_error", "message": ENGINE_DEAD });
        Some(Self::event("error", json!({ "error": error })))
    }

    fn comment(&self) -> Option<(f64, &'static str)> {
        None
    }
}
