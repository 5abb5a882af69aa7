//! The end of a choice: what its calls still lack, and which finish reason is true.
//!
//! Why: some backends stop with `stop` after calls, so that agents end the turn without running anything, and some
//! with `tool_calls` without any, so that agents loop.
//!
//! It must never promote what was cut: length and errors outrank calls.

use super::choice::Choice;
use crate::edit::Edits;
use crate::json::Value;
use crate::schema::ToolSet;

/// What is still to be sent of one call's arguments.
pub(super) struct Tail {
    choice: u64,
    pub(super) call: usize,
    index: Option<usize>,
    pub(super) text: String,
    /// Id and name, where the client does not know it yet.
    first: Option<(String, String)>,
}

impl Tail {
    /// A call that the client gets to know here.
    pub(super) fn first(choice: u64, call: usize, state: &mut Choice) -> Self {
        let index = Some(state.show(call));
        let own = &mut state.calls[call];
        let text = std::mem::take(&mut own.unsent);
        Self { choice, call, index, text, first: Some((own.id.clone(), own.name.clone())) }
    }

    /// As an element of the `tool_calls` of a whole message.
    pub(super) fn whole(&self) -> serde_json::Value {
        let mut json = self.json();
        if let Some(call) = json.as_object_mut() {
            call.remove("index");
        }
        json
    }

    /// As an element of `tool_calls`.
    pub(super) fn json(&self) -> serde_json::Value {
        let (index, text) = (self.index, &self.text);
        match &self.first {
            None => serde_json::json!({"index": index, "function": {"arguments": text}}),
            Some((id, name)) => serde_json::json!({"index": index, "id": id, "type": "function",
                "function": {"name": name, "arguments": text}}),
        }
    }
}

impl Choice {
    /// The choice has ended for this reason, or the stream has without any: what its calls still lack. Says, too,
    /// whether that is anything that the backend did not send. `made_id`: of a further call that stood in the arguments of another;
    /// none where the client wants no further ones.
    pub(super) fn end(
        &mut self,
        index: u64,
        reason: Option<&str>,
        tools: &ToolSet,
        made_id: Option<&dyn Fn(usize) -> String>,
    ) -> (Vec<Tail>, bool) {
        let well = reason
            .is_some_and(|reason| matches!(reason, "stop" | "tool_calls" | "function_call" | "eos_token"));
        let last = self.calls.iter().rposition(|call| !call.from_text);
        let mut tails = Vec::new();
        let mut mended = false;
        for number in 0..self.calls.len() {
            let call = &mut self.calls[number];
            if call.from_text || call.dropped || call.name.is_empty() {
                continue;
            }
            let before = call.arguments.repairs();
            // The model went on behind all but the last: those are not cut.
            let complete = well || (reason.is_some() && Some(number) != last);
            let text = call.arguments.end(complete, tools.tool(&call.name));
            mended |= call.arguments.repairs() > before;
            if call.index.is_none() {
                call.unsent.push_str(&text);
                tails.push(Tail::first(index, number, self));
            } else if !text.is_empty() {
                tails.push(Tail { choice: index, call: number, index: call.index, text, first: None });
            }
            let further = self.calls[number].arguments.further();
            for (json, made_id) in further.iter().filter_map(|json| Some((json, made_id?))) {
                let name = self.calls[number].name.clone();
                let own = self.begin(None, made_id);
                let call = &mut self.calls[own];
                call.unsent = call.arguments.push(json, tools.tool(&name));
                call.name = name;
                tails.push(Tail::first(index, own, self));
            }
        }
        (tails, mended)
    }

    /// What is held, given up.
    pub(super) fn give_up(&mut self, index: u64) -> Vec<Tail> {
        let calls = self.calls.iter_mut().enumerate();
        calls
            .filter(|(_, call)| !call.from_text && !call.dropped && call.index.is_some())
            .map(|(call, state)| {
                let text = state.arguments.give_up();
                Tail { choice: index, call, index: state.index, text, first: None }
            })
            .filter(|tail| !tail.text.is_empty())
            .collect()
    }

    /// The true finish reason, where it is another one.
    pub(super) fn true_reason(&self, reason: &str) -> Option<&'static str> {
        let whole =
            |call: &super::choice::Call| call.index.is_none() || call.from_text || call.arguments.is_whole();
        match (reason, self.delivered()) {
            ("tool_calls", 0) => Some("stop"),
            ("function_call", 0) if !self.legacy => Some("stop"),
            ("stop" | "function_call" | "eos_token", 1..) if self.calls.iter().all(whole) => {
                Some("tool_calls")
            }
            _ => None,
        }
    }
}

/// A frame like `chunk` that says nothing but these.
pub(super) fn tail_frame(chunk: Value<'_>, json: &str, tails: &[Tail]) -> String {
    let mut choices: Vec<(u64, Vec<serde_json::Value>)> = Vec::new();
    for tail in tails {
        let entry = tail.json();
        match choices.iter_mut().find(|(choice, _)| *choice == tail.choice) {
            Some((_, entries)) => entries.push(entry),
            None => choices.push((tail.choice, vec![entry])),
        }
    }
    let choices: Vec<_> = choices
        .into_iter()
        .map(|(index, calls)| {
            serde_json::json!({"index": index, "delta": {"tool_calls": calls}, "finish_reason": null})
        })
        .collect();
    let mut edits = Edits::new();
    edits.set(chunk, "choices", serde_json::Value::from(choices).to_string());
    edits.remove(chunk, "usage");
    edits.remove(chunk, "timings");
    super::write(chunk, json, &edits)
}
