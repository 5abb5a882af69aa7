//! Mending the calls in a request's history, before it reaches a backend.
//!
//! Why: a broken call that a client has kept makes strict backends refuse every later request of the conversation.
//! Mended here, and in the same way each turn, the conversation goes on and the backend's cached prefix stays.
//!
//! It must never turn broken arguments into empty ones, never lose what a tool has answered, and never touch a message
//! that is well: a mended history differs only where it was broken.

mod results;

use std::collections::HashSet;

use crate::edit::Edits;
use crate::json::{Kind, Value};
use crate::json_repair::{is_json, repair_object};
use crate::message::Message;
use crate::request::ChatRequest;
use results::Block;

/// The member under which arguments that can't be read are kept.
pub const UNREADABLE: &str = "unreadable_arguments";

/// As many notes are kept: a request may be broken in a thousand places.
const NOTES: usize = 16;

/// What is to be changed, and why.
#[derive(Clone, Debug, Default)]
pub struct Mended {
    /// Base edits of the request that was read.
    pub edits: Edits,
    /// One sentence for each change, the first sixteen: `messages[2].tool_calls[0]: arguments could not be read, kept as text`.
    pub notes: Vec<String>,
}

/// Reads the history of a chat request. The same messages are mended in the same way, whatever follows them.
pub fn mend(request: &ChatRequest) -> Mended {
    let messages: Vec<_> = request.messages().collect();
    let mut mended = Mended::default();
    // The ids of calls that came before.
    let mut known = HashSet::new();
    let mut at = 0;
    while let Some(message) = messages.get(at) {
        let behind = &messages[at + 1..];
        let next = behind.iter().position(|message| is_role(*message, "assistant")).unwrap_or(behind.len());
        let mut block = Block::default();
        if is_role(*message, "assistant") {
            mended.calls(at, *message, &mut block);
        } else {
            block.result(at, *message);
        }
        for (offset, message) in behind[..next].iter().enumerate() {
            block.result(at + 1 + offset, *message);
        }
        block.settle(&known, &mut mended);
        known.extend(block.ids());
        at += 1 + next;
    }
    mended
}

impl Mended {
    fn note(&mut self, place: &str, what: &str) {
        if self.notes.len() < NOTES {
            self.notes.push(format!("{place}: {what}"));
        }
    }

    /// What each call of a message needs by itself; the calls go into the block, to be matched with their results.
    fn calls<'a>(&mut self, at: usize, message: Message<'a>, block: &mut Block<'a>) {
        let Some(list) = message.0.get("tool_calls").filter(|list| list.kind() == Kind::Array) else {
            return;
        };
        if list.elements().next().is_none() {
            self.edits.remove(message.0, "tool_calls");
            self.note(&format!("messages[{at}]"), "empty list of calls removed");
        }
        let mut left = 0;
        for (number, call) in list.elements().enumerate() {
            let place = format!("messages[{at}].tool_calls[{number}]");
            let function = call.get("function").filter(|function| function.kind() == Kind::Object);
            if !is_name(function.unwrap_or(call).get("name")) && !is_custom(call) {
                self.edits.remove_element(list, number);
                self.note(&place, "call without a name left out");
                continue;
            }
            left += 1;
            if call.get("type").is_none_or(Value::is_null) {
                self.edits.set(call, "type", r#""function""#);
                self.note(&place, "type added");
            }
            if function.is_none() && !is_custom(call) {
                self.put_into_function(call);
                self.note(&place, "name and arguments put into function");
            }
            if let Some(function) = function
                && let Some((arguments, what)) = mend_arguments(function.get("arguments"))
            {
                self.edits.set(function, "arguments", serde_json::Value::from(arguments).to_string());
                self.note(&place, &what);
            }
            block.call(at, number, call);
        }
        if left == 0 && list.elements().next().is_some() {
            self.edits.remove(message.0, "tool_calls");
            if message.0.get("content").is_none_or(Value::is_null) {
                self.edits.set(message.0, "content", r#""""#);
            }
        }
    }

    /// A call whose name and arguments stand beside where they belong.
    fn put_into_function(&mut self, call: Value<'_>) {
        let [name, arguments] = call.get_all(["name", "arguments"]);
        let mended =
            mend_arguments(arguments).map(|(arguments, _)| serde_json::Value::from(arguments).to_string());
        let arguments = mended.as_deref().or(arguments.map(Value::raw)).unwrap_or("null");
        let name = name.map_or("null", Value::raw);
        self.edits.set(call, "function", format!("{{\"name\":{name},\"arguments\":{arguments}}}"));
        self.edits.remove(call, "name");
        self.edits.remove(call, "arguments");
    }
}

fn is_name(value: Option<Value<'_>>) -> bool {
    value.and_then(Value::as_str).is_some_and(|name| !name.is_empty())
}

/// A call of a kind of its own, which is none of a function.
fn is_custom(call: Value<'_>) -> bool {
    call.get("type").and_then(Value::as_str).is_some_and(|kind| kind != "function")
}

/// The text of the arguments as it must be, and what was done; none when it is so.
fn mend_arguments(arguments: Option<Value<'_>>) -> Option<(String, String)> {
    let Some(arguments) = arguments.filter(|arguments| !arguments.is_null()) else {
        return Some(("{}".to_owned(), "missing arguments became {}".to_owned()));
    };
    let Some(text) = arguments.as_str() else {
        return Some(match arguments.kind() {
            Kind::Object => (arguments.raw().to_owned(), "arguments became a string".to_owned()),
            _ => (wrapped(arguments.raw()), "arguments that are no object kept as text".to_owned()),
        });
    };
    if matches!(text.trim_ascii(), "" | "null") {
        return Some(("{}".to_owned(), "empty arguments became {}".to_owned()));
    }
    if text.trim_ascii_start().starts_with('{') && is_json(text.trim_ascii()) {
        return None;
    }
    // Text inside text: an object that was encoded twice.
    let inner = Value::parse(&text).ok().and_then(Value::as_str);
    let repaired = repair_object(inner.as_deref().unwrap_or(&text), true);
    Some(match repaired.filter(|repaired| repaired.json.starts_with('{')) {
        Some(repaired) => {
            let repairs: Vec<_> = repaired.repairs.iter().map(ToString::to_string).collect();
            let what = if repairs.is_empty() { "decoded".to_owned() } else { repairs.join(", ") };
            (repaired.json, format!("arguments mended: {what}"))
        }
        None => (wrapped(&text), "arguments could not be read, kept as text".to_owned()),
    })
}

/// What can't be read, as it is, inside an object.
fn wrapped(text: &str) -> String {
    serde_json::json!({ UNREADABLE: text }).to_string()
}

fn is_role(message: Message<'_>, role: &str) -> bool {
    message.0.get("role").is_some_and(|own| own.is_text(role))
}

/// A text that is not empty; a number by its digits.
fn id_of(value: Option<Value<'_>>) -> Option<String> {
    let value = value.filter(|value| matches!(value.kind(), Kind::String | Kind::Number))?;
    let id = value.as_str().map_or_else(|| value.raw().to_owned(), String::from);
    (!id.is_empty()).then_some(id)
}
