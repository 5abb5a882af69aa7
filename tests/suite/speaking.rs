//! Backends that speak Messages or Responses, and clients that read them: the same requests and answers in each dialect.
//!
//! The events are those of vLLM 0.32 (captured); llama.cpp's differ in having no numbers.

use std::time::Duration;

use serde_json::{Map, Value, json};
use switchback_tests::wire::message::Message;
use switchback_tests::wire::observed::Piece;
use switchback_tests::wire::sse::Stream;

use crate::harness::{Answer, Reply, Step, World};

/// A dialect with calls besides chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    Messages,
    Responses,
}

pub(crate) const APIS: [Api; 2] = [Api::Messages, Api::Responses];

/// A part of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part<'a> {
    Thought(&'a str),
    Text(&'a str),
    /// Name and arguments.
    Call(&'a str, &'a str),
}

impl Api {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Messages => "/v1/messages",
            Self::Responses => "/v1/responses",
        }
    }

    /// A request with the tools of a chat request, and more members of its own.
    pub(crate) fn request(self, tools: &Value, stream: bool, more: &Value) -> String {
        let own = |tool: &Value| {
            let function = tool.get("function").unwrap_or(tool);
            let (name, schema) = (&function["name"], &function["parameters"]);
            match self {
                Self::Messages => json!({ "name": name, "input_schema": schema }),
                Self::Responses => json!({ "type": "function", "name": name, "parameters": schema }),
            }
        };
        let tools: Vec<Value> = tools.as_array().into_iter().flatten().map(own).collect();
        let mut request = match self {
            Self::Messages => {
                json!({ "model": "m", "max_tokens": 500, "messages": [{ "role": "user", "content": "go" }] })
            }
            Self::Responses => json!({ "model": "m", "input": "go" }),
        };
        request["stream"] = stream.into();
        request["tools"] = tools.into();
        let members: Map<String, Value> = more.as_object().cloned().unwrap_or_default();
        request.as_object_mut().expect("an object").extend(members);
        request.to_string()
    }

    /// A whole answer. `finish`: in chat's words.
    pub(crate) fn answer(self, parts: &[Part<'_>], finish: &str) -> Value {
        let whole: Vec<Value> = parts.iter().enumerate().map(|(at, part)| self.whole(at, *part)).collect();
        match self {
            Self::Messages => json!({
                "id": "m1", "type": "message", "role": "assistant", "content": whole, "model": "m",
                "stop_reason": stop_reason(finish), "stop_sequence": null,
                "usage": { "input_tokens": 5, "output_tokens": 7 },
            }),
            Self::Responses => response(finish, &whole),
        }
    }

    fn whole(self, at: usize, part: Part<'_>) -> Value {
        match (self, part) {
            (Self::Messages, Part::Text(text)) => json!({ "type": "text", "text": text }),
            (Self::Messages, Part::Thought(text)) => {
                json!({ "type": "thinking", "thinking": text, "signature": "s1" })
            }
            (Self::Messages, Part::Call(name, arguments)) => {
                let input: Value = serde_json::from_str(arguments).expect("JSON");
                json!({ "type": "tool_use", "id": format!("t{at}"), "name": name, "input": input })
            }
            (Self::Responses, Part::Text(text)) => item(at, "message", Some(text)),
            (Self::Responses, Part::Thought(text)) => item(at, "reasoning", Some(text)),
            (Self::Responses, Part::Call(name, arguments)) => call(at, name, arguments, "completed"),
        }
    }

    /// A streamed answer in pieces of so many characters.
    pub(crate) fn steps(self, parts: &[Part<'_>], piece: usize, finish: &str) -> Vec<Step> {
        let mut events = match self {
            Self::Messages => {
                let usage = json!({ "input_tokens": 5, "output_tokens": 0 });
                vec![json!({ "type": "message_start", "message": {
                    "id": "m1", "type": "message", "role": "assistant", "content": [], "model": "m", "usage": usage } })]
            }
            Self::Responses => {
                let begun =
                    json!({ "id": "r1", "object": "response", "status": "in_progress", "output": [] });
                let event = |kind: &str| json!({ "type": kind, "response": begun });
                vec![event("response.created"), event("response.in_progress")]
            }
        };
        for (at, part) in parts.iter().enumerate() {
            match self {
                Self::Messages => self.block(at, *part, piece, &mut events),
                Self::Responses => self.item(at, *part, piece, &mut events),
            }
        }
        match self {
            Self::Messages => {
                let delta = json!({ "stop_reason": stop_reason(finish), "stop_sequence": null });
                events.push(
                    json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": 7 } }),
                );
                events.push(json!({ "type": "message_stop" }));
            }
            Self::Responses => {
                let whole: Vec<Value> =
                    parts.iter().enumerate().map(|(at, part)| self.whole(at, *part)).collect();
                events.push(json!({ "type": "response.completed", "response": response(finish, &whole) }));
            }
        }
        for (number, event) in events.iter_mut().enumerate().filter(|_| self == Self::Responses) {
            event["sequence_number"] = number.into();
        }
        events.iter().map(event).collect()
    }

    fn block(self, at: usize, part: Part<'_>, piece: usize, events: &mut Vec<Value>) {
        let (block, kind, member, text) = match part {
            Part::Text(text) => (json!({ "type": "text", "text": "" }), "text_delta", "text", text),
            Part::Thought(text) => {
                let block = json!({ "type": "thinking", "thinking": "", "signature": "" });
                (block, "thinking_delta", "thinking", text)
            }
            Part::Call(name, arguments) => {
                let block = json!({ "type": "tool_use", "id": format!("t{at}"), "name": name, "input": {} });
                (block, "input_json_delta", "partial_json", arguments)
            }
        };
        events.push(json!({ "type": "content_block_start", "index": at, "content_block": block }));
        let delta = |delta: Value| json!({ "type": "content_block_delta", "index": at, "delta": delta });
        events.extend(pieces(text, piece).map(|text| delta(json!({ "type": kind, member: text }))));
        if let Part::Thought(_) = part {
            events.push(delta(json!({ "type": "signature_delta", "signature": "s1" })));
        }
        events.push(json!({ "type": "content_block_stop", "index": at }));
    }

    fn item(self, at: usize, part: Part<'_>, piece: usize, events: &mut Vec<Value>) {
        let whole = self.whole(at, part);
        let (begun, kind, done, text) = match part {
            Part::Text(text) => (item(at, "message", None), "output_text", json!({ "text": text }), text),
            Part::Thought(text) => {
                (item(at, "reasoning", None), "reasoning_text", json!({ "text": text }), text)
            }
            Part::Call(name, arguments) => {
                let done = json!({ "arguments": arguments });
                (call(at, name, "", "in_progress"), "function_call_arguments", done, arguments)
            }
        };
        let at_item = |kind: &str, more: Value| {
            let mut event = json!({ "type": kind, "item_id": whole["id"], "output_index": at });
            event.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
            event
        };
        events.push(json!({ "type": "response.output_item.added", "output_index": at, "item": begun }));
        let output = |text: &str| json!({ "part": { "type": "output_text", "text": text } });
        if let Part::Text(_) = part {
            events.push(at_item("response.content_part.added", output("")));
        }
        let delta = format!("response.{kind}.delta");
        events.extend(pieces(text, piece).map(|text| at_item(&delta, json!({ "delta": text }))));
        events.push(at_item(&format!("response.{kind}.done"), done));
        if let Part::Text(text) = part {
            events.push(at_item("response.content_part.done", output(text)));
        }
        events.push(json!({ "type": "response.output_item.done", "output_index": at, "item": whole }));
    }

    /// The message of a stream, as a strict client has it.
    pub(crate) fn assembled(self, answer: &Answer) -> Message {
        let piece = Piece { at: Duration::ZERO, bytes: answer.body.clone().into() };
        let stream = Stream::read(&[piece]);
        match self {
            Self::Messages => Message::of_message_events(&stream),
            Self::Responses => Message::of_response_events(&stream),
        }
    }

    /// The message of a whole answer.
    pub(crate) fn of_body(self, answer: &Value) -> Message {
        match self {
            Self::Messages => Message::of_message(answer),
            Self::Responses => Message::of_response(answer),
        }
    }

    /// What a client gets if a backend says this as a stream.
    pub(crate) async fn streamed(self, world: &World, request: &str, steps: Vec<Step>) -> Answer {
        world.backend("b").then(Reply::stream(steps));
        world.post(self.path(), request).await
    }
}

/// An event, named as its type says.
pub(crate) fn event(json: &Value) -> Step {
    Step::Send(format!("event: {}\ndata: {json}\n\n", json["type"].as_str().unwrap_or_default()))
}

/// The bytes of all steps.
pub(crate) fn sent(steps: &[Step]) -> String {
    steps
        .iter()
        .filter_map(|step| if let Step::Send(text) = step { Some(text.as_str()) } else { None })
        .collect()
}

fn pieces(text: &str, piece: usize) -> impl Iterator<Item = String> {
    let characters: Vec<char> = text.chars().collect();
    let pieces: Vec<String> = characters.chunks(piece).map(|piece| piece.iter().collect()).collect();
    pieces.into_iter()
}

fn stop_reason(finish: &str) -> &str {
    match finish {
        "stop" => "end_turn",
        "length" => "max_tokens",
        "tool_calls" => "tool_use",
        other => other,
    }
}

/// vLLM's event of what was cut is `response.completed` all the same.
fn response(finish: &str, output: &[Value]) -> Value {
    let cut = finish == "length";
    json!({
        "id": "r1", "object": "response", "status": if cut { "incomplete" } else { "completed" },
        "incomplete_details": cut.then(|| json!({ "reason": "max_output_tokens" })), "output": output,
        "usage": { "input_tokens": 5, "output_tokens": 7, "total_tokens": 12 },
    })
}

fn item(at: usize, kind: &str, text: Option<&str>) -> Value {
    let part = |text: &str| match kind {
        "message" => json!({ "type": "output_text", "text": text, "annotations": [] }),
        _ => json!({ "type": "reasoning_text", "text": text }),
    };
    let content: Vec<Value> = text.map(part).into_iter().collect();
    let status = if text.is_some() { "completed" } else { "in_progress" };
    let mut item = json!({ "type": kind, "id": format!("{kind}{at}"), "status": status, "content": content });
    let (name, value) = if kind == "message" { ("role", json!("assistant")) } else { ("summary", json!([])) };
    item[name] = value;
    item
}

fn call(at: usize, name: &str, arguments: &str, status: &str) -> Value {
    json!({
        "type": "function_call", "id": format!("fc{at}"), "call_id": format!("t{at}"), "name": name,
        "arguments": arguments, "status": status,
    })
}
