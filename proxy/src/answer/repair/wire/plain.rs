//! Whole answers of the other dialects: in chat's words, and back with what the repair has changed.
//!
//! What was not changed stays the very block or item that it was, and what is no text, thought or call stays whatever it is.

use serde_json::{Map, Value as Json, json};
use switchback_parsers::chunk::Dialect;
use switchback_parsers::json::Value;
use switchback_parsers::request::ChatRequest;

use super::items::{Names, reason_of as status_of, text_of_parts};
use super::messages::{reason_of, stop_reason};
use super::responses::{call, message, put_status, thought};
use super::text_of;

/// How whole answers are read and written.
#[derive(Debug)]
pub(in crate::answer::repair) struct Plain {
    dialect: Dialect,
    names: Names,
    seed: String,
}

/// A part of an answer, as it came.
enum Part {
    Thought(Json, String),
    Text(Json, String),
    /// A call, and the same in chat's words.
    Call(Json, Json),
    Other(Json),
}

impl Part {
    fn as_call(&self) -> Option<(Json, Json)> {
        if let Self::Call(own, chat) = self { Some((own.clone(), chat.clone())) } else { None }
    }
}

impl Plain {
    /// For answers to this request; `None`: they are in chat's words already.
    pub(in crate::answer::repair) fn of(
        dialect: Dialect,
        request: Option<&ChatRequest>,
        seed: &str,
    ) -> Option<Self> {
        let names = request.map(Names::of).unwrap_or_default();
        let other = matches!(dialect, Dialect::Messages | Dialect::Responses);
        other.then(|| Self { dialect, names, seed: seed.to_owned() })
    }

    /// An answer in chat's words; `None` if it is none.
    pub(in crate::answer::repair) fn in_chat(&self, answer: &str) -> Option<String> {
        let answer = Value::parse(answer).ok()?;
        let (mut said, mut thoughts, mut calls) = (String::new(), String::new(), Vec::new());
        for part in self.parts(answer)? {
            match part {
                Part::Thought(_, text) => thoughts.push_str(&text),
                Part::Text(_, text) => said.push_str(&text),
                Part::Call(_, call) => calls.push(call),
                Part::Other(_) => {}
            }
        }
        let reason = self.reason(answer, !calls.is_empty());
        let mut message = json!({ "role": "assistant", "content": said });
        if !thoughts.is_empty() {
            message["reasoning_content"] = thoughts.into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        Some(json!({ "choices": [{ "index": 0, "message": message, "finish_reason": reason }] }).to_string())
    }

    /// The answer with the message that was made of it.
    pub(in crate::answer::repair) fn back(&self, answer: &str, chat: &str) -> Option<String> {
        let read = Value::parse(answer).ok()?;
        let chat: Json = serde_json::from_str(chat).ok()?;
        let choice = chat.pointer("/choices/0")?;
        let text = |member: &str| choice["message"][member].as_str().unwrap_or_default().to_owned();
        let calls = choice["message"]["tool_calls"].as_array().cloned().unwrap_or_default();
        let reason = choice["finish_reason"].as_str()?;
        let parts = self.written(self.parts(read)?, text("reasoning_content"), text("content"), &calls);
        let mut own: Map<String, Json> = serde_json::from_str(answer).ok()?;
        own.insert(self.member().to_owned(), parts.into());
        if self.dialect == Dialect::Messages {
            let given = text_of(read, "stop_reason").unwrap_or_default();
            if let Some(word) = stop_reason(reason, &given) {
                own.insert("stop_reason".to_owned(), word.into());
                own.insert("stop_sequence".to_owned(), Json::Null);
            }
        } else {
            put_status(&mut own, reason, &status_of(read, false));
        }
        Some(Json::Object(own).to_string())
    }

    fn member(&self) -> &'static str {
        if self.dialect == Dialect::Messages { "content" } else { "output" }
    }

    fn reason(&self, answer: Value<'_>, has_calls: bool) -> String {
        if self.dialect == Dialect::Messages {
            reason_of(&text_of(answer, "stop_reason").unwrap_or_default()).to_owned()
        } else {
            status_of(answer, has_calls)
        }
    }

    fn parts(&self, answer: Value<'_>) -> Option<Vec<Part>> {
        let list = answer.get(self.member())?;
        list.elements().map(|part| self.part(part)).collect()
    }

    fn part(&self, part: Value<'_>) -> Option<Part> {
        let own: Json = serde_json::from_str(part.raw()).ok()?;
        let text = |member: &str| text_of(part, member).unwrap_or_default();
        let in_chat = |id: String, name: String, arguments: String| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
        Some(match text("type").as_str() {
            "thinking" => Part::Thought(own, text("thinking")),
            "reasoning" => Part::Thought(own, text_of_parts(part)),
            "text" => Part::Text(own, text("text")),
            "message" => Part::Text(own, text_of_parts(part)),
            "tool_use" => {
                let input = part.get("input").filter(|input| !input.is_null());
                // A string is a whole input that was written once too often.
                let input =
                    input.map(|input| input.as_str().map_or_else(|| input.raw().to_owned(), Into::into));
                Part::Call(own, in_chat(text("id"), text("name"), input.unwrap_or_default()))
            }
            "function_call" => {
                Part::Call(own, in_chat(text("call_id"), self.names.flat(part), text("arguments")))
            }
            "custom_tool_call" => {
                let arguments = json!({ "input": text("input") }).to_string();
                Part::Call(own, in_chat(text("call_id"), text("name"), arguments))
            }
            _ => Part::Other(own),
        })
    }

    /// The parts of the message: thoughts and text where they stood, then the calls.
    fn written(&self, parts: Vec<Part>, thoughts: String, said: String, calls: &[Json]) -> Vec<Json> {
        let joined = |of: fn(&Part) -> Option<&str>| parts.iter().filter_map(of).collect::<String>();
        let old_thoughts = joined(|part| if let Part::Thought(_, text) = part { Some(text) } else { None });
        let old_text = joined(|part| if let Part::Text(_, text) = part { Some(text) } else { None });
        // White space before a call is no text.
        let blank = said.trim().is_empty() && !calls.is_empty();
        let given: Vec<(Json, Json)> = parts.iter().filter_map(Part::as_call).collect();
        let mut thought = (thoughts != old_thoughts).then_some(thoughts);
        let mut text = (blank || said != old_text).then(|| if blank { String::new() } else { said });
        let (keeps_thoughts, keeps_text) = (thought.is_none(), text.is_none());
        let mut written = Vec::new();
        if old_thoughts.is_empty() {
            written.extend(self.new_thought(thought.take(), 0));
        }
        for part in parts {
            match part {
                Part::Thought(own, _) if keeps_thoughts => written.push(own),
                Part::Text(own, _) if keeps_text => written.push(own),
                Part::Thought(..) => written.extend(self.new_thought(thought.take(), written.len())),
                Part::Text(..) => written.extend(self.new_text(text.take(), written.len())),
                Part::Call(..) => {}
                Part::Other(own) => written.push(own),
            }
        }
        written.extend(self.new_text(text.take(), written.len()));
        for call in calls {
            let same = given.iter().find(|(_, chat)| chat == call).map(|(own, _)| own.clone());
            written.push(same.unwrap_or_else(|| self.call(call, written.len())));
        }
        written
    }

    fn new_thought(&self, text: Option<String>, at: usize) -> Option<Json> {
        let text = text.filter(|text| !text.is_empty())?;
        Some(match self.dialect {
            Dialect::Messages => json!({ "type": "thinking", "thinking": text, "signature": "" }),
            _ => thought(&format!("rs_{}_{at}", self.seed), &text, "completed"),
        })
    }

    fn new_text(&self, text: Option<String>, at: usize) -> Option<Json> {
        let text = text.filter(|text| !text.is_empty())?;
        Some(match self.dialect {
            Dialect::Messages => json!({ "type": "text", "text": text }),
            _ => message(&format!("msg_{}_{at}", self.seed), &text, "completed"),
        })
    }

    fn call(&self, chat: &Json, at: usize) -> Json {
        let text = |place: &str| chat.pointer(place).and_then(Json::as_str).unwrap_or_default();
        let (id, name, arguments) = (text("/id"), text("/function/name"), text("/function/arguments"));
        match self.dialect {
            Dialect::Messages => {
                let input: Json = serde_json::from_str(arguments).unwrap_or_else(|_| arguments.into());
                json!({ "type": "tool_use", "id": id, "name": name, "input": input })
            }
            _ => call(&self.names, &format!("fc_{}_{at}", self.seed), id, name, arguments, "completed"),
        }
    }
}
