//! An answer that was not streamed.
//!
//! It must give the very calls that the same answer gives as a stream.

use std::sync::Arc;

use super::choice::Choice;
use super::delta::is_object;
use super::entry::{Entry, Labels};
use super::{ChunkNormaliser, choices, made_id, write};
use crate::edit::Edits;
use crate::json::{Kind, Value};

impl ChunkNormaliser {
    /// A whole answer, one that was not streamed, put right; none when nothing was wrong. It leaves the calls known
    /// to [`has_call`](Self::has_call).
    pub fn answer(&mut self, json: &str) -> Option<String> {
        if let Some(listed) = Value::parse(json).ok().and_then(|answer| listed(answer, json)) {
            return self.answer(&listed).or(Some(listed));
        }
        let answer = Value::parse(json).ok().filter(|_| self.concerns(json))?;
        let mut edits = Edits::new();
        for (index, choice) in choices(answer) {
            let [message, finish] = choice.get_all(["message", "finish_reason"]);
            let reason = finish.and_then(Value::as_str).unwrap_or_default();
            let mut state = self.choices.remove(&index).unwrap_or_default();
            state.legacy |= is_object(message.and_then(|message| message.get("function_call")));
            if let Some(message) = message {
                self.message(&mut state, index, message, &reason, &mut edits);
            }
            self.put_reason(&state, finish, &mut edits);
            self.choices.insert(index, state);
        }
        (!edits.is_empty()).then(|| write(answer, json, &edits))
    }

    /// The calls of a whole message.
    fn message(
        &mut self,
        state: &mut Choice,
        index: u64,
        message: Value<'_>,
        reason: &str,
        edits: &mut Edits,
    ) {
        let Some(list) = message.get("tool_calls").filter(|list| list.kind() == Kind::Array) else { return };
        let tools = Arc::clone(&self.tools);
        let mut begun = Vec::new();
        for (position, element) in list.elements().enumerate() {
            if self.first_only && state.delivered() > 0 {
                edits.remove_element(list, position);
                self.change("further calls left out");
                continue;
            }
            let entry = Entry::read(element);
            if entry.name.is_none() {
                edits.remove_element(list, position);
                self.change("call without a name left out");
                continue;
            }
            let Some(number) =
                state.place(&entry, true, &tools, |number| made_id(self.prefix, &self.seed, index, number))
            else {
                edits.remove_element(list, position);
                self.change("repeated call left out");
                continue;
            };
            state.show(number);
            let call = &mut state.calls[number];
            let text = call.arguments.push(&entry.arguments, tools.tool(&call.name));
            begun.push((number, entry, text));
        }
        let made = |number| made_id(self.prefix, &self.seed, index, number);
        let further: Option<&dyn Fn(usize) -> String> = (!self.first_only).then_some(&made);
        let (tails, _) = state.end(index, Some(reason), &tools, further);
        for tail in tails.iter().filter(|tail| begun.iter().all(|(number, ..)| *number != tail.call)) {
            edits.push(list, tail.whole().to_string());
        }
        for (number, entry, mut text) in begun {
            text.extend(tails.iter().filter(|tail| tail.call == number).map(|tail| tail.text.as_str()));
            let call = &state.calls[number];
            let labels = Labels { index: None, id: Some(&call.id), name: Some(&call.name) };
            if entry.relabel(&labels, &text, edits) || call.arguments.repairs() > 0 {
                self.change("calls put in order");
            }
        }
        if state.calls.is_empty() {
            edits.remove(message, "tool_calls");
            self.change("empty list of calls removed");
        }
    }
}

/// The answer with a list of calls where it has one call in its place.
fn listed(answer: Value<'_>, json: &str) -> Option<String> {
    let mut edits = Edits::new();
    for (_, choice) in choices(answer) {
        let call = choice.at("/message/tool_calls").filter(|call| call.kind() == Kind::Object);
        if let Some(call) = call {
            edits.replace(call, format!("[{}]", call.raw()));
        }
    }
    (!edits.is_empty()).then(|| write(answer, json, &edits))
}
