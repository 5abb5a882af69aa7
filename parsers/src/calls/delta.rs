//! One chunk of a stream: its deltas put right, and at a choice's end what its calls still lack.
//!
//! It must never take a chunk apart further than its calls and its finish reason.

use std::sync::Arc;

use super::choice::{Call, Choice};
use super::entry::{Entry, Labels};
use super::finish::Tail;
use super::{ChunkNormaliser, choices, finish, made_id, write};
use crate::edit::Edits;
use crate::json::{Kind, Value};

/// What a delta says of one call: its first element there, and the arguments of all.
struct SaidOfCall<'a> {
    call: usize,
    entry: Entry<'a>,
    arguments: String,
    /// The client gets to know it here.
    begins: bool,
}

impl SaidOfCall<'_> {
    /// Puts it right, with more arguments behind its own. Says whether anything but their text was wrong.
    fn write(&self, call: &Call, more: &str, edits: &mut Edits) -> bool {
        let labels = Labels {
            index: call.index,
            id: self.begins.then_some(&call.id),
            name: self.begins.then_some(&call.name),
        };
        self.entry.relabel(&labels, &format!("{}{more}", self.arguments), edits)
    }
}

impl ChunkNormaliser {
    /// Lays what becomes of a chunk behind the frames that wait.
    pub(super) fn chunk(&mut self, chunk: Value<'_>, json: &str) {
        let mut edits = Edits::new();
        let mut apart = Vec::new();
        for (index, choice) in choices(chunk) {
            let [delta, finish] = choice.get_all(["delta", "finish_reason"]);
            let list =
                delta.and_then(|delta| delta.get("tool_calls")).filter(|list| list.kind() == Kind::Array);
            let mut state = self.choices.remove(&index).unwrap_or_default();
            let mut said = Vec::new();
            if chunk.get("tool_calls_ended").is_some() {
                // The answer goes on behind them, so none of them was cut.
                apart.extend(self.ended(&mut state, index, "tool_calls"));
            }
            if let (Some(delta), Some(list)) = (delta, list) {
                said = self.delta(&mut state, index, list, &mut edits, &mut apart);
                if said.is_empty() {
                    edits.remove(delta, "tool_calls");
                    self.change("empty list of calls removed");
                }
            }
            state.legacy |= delta.is_some_and(|delta| is_object(delta.get("function_call")));
            let reason = finish.and_then(Value::as_str).filter(|reason| !reason.is_empty());
            if let (true, Some(finish)) = (state.ended && reason.is_some(), finish) {
                edits.replace(finish, "null");
                self.change("second finish reason left out");
            } else if let Some(reason) = reason {
                state.ended = true;
                for tail in self.ended(&mut state, index, &reason) {
                    match (said.iter().find(|said| said.call == tail.call), list) {
                        (Some(said), _) => {
                            said.write(&state.calls[tail.call], &tail.text, &mut edits);
                        }
                        (None, Some(list)) if !said.is_empty() => edits.push(list, tail.json().to_string()),
                        _ => apart.push(tail),
                    }
                }
                self.put_reason(&state, finish, &mut edits);
            }
            if !state.calls.is_empty() || state.legacy {
                self.choices.insert(index, state);
            }
        }
        if !apart.is_empty() {
            self.waiting.push(finish::tail_frame(chunk, json, &apart));
        }
        self.waiting.push(write(chunk, json, &edits));
    }

    /// A choice's calls have ended for this reason: what they still lack.
    fn ended(&mut self, state: &mut Choice, index: u64, reason: &str) -> Vec<Tail> {
        let made_id = |number| made_id(self.prefix, &self.seed, index, number);
        let further: Option<&dyn Fn(usize) -> String> = (!self.first_only).then_some(&made_id);
        let (tails, mended) = state.end(index, Some(reason), &self.tools, further);
        if mended {
            self.change("arguments completed");
        }
        tails
    }

    /// The calls of one delta, each once.
    fn delta<'a>(
        &mut self,
        state: &mut Choice,
        index: u64,
        list: Value<'a>,
        edits: &mut Edits,
        apart: &mut Vec<Tail>,
    ) -> Vec<SaidOfCall<'a>> {
        let tools = Arc::clone(&self.tools);
        let mut all: Vec<SaidOfCall<'_>> = Vec::new();
        for (position, element) in list.elements().enumerate() {
            let entry = Entry::read(element);
            let Some(number) =
                state.place(&entry, false, &tools, |number| made_id(self.prefix, &self.seed, index, number))
            else {
                edits.remove_element(list, position);
                self.change("repeated call left out");
                continue;
            };
            let earlier = state.delivered() > 0 || state.calls[..number].iter().any(is_named);
            let call = &mut state.calls[number];
            call.dropped |= self.first_only && call.index.is_none() && earlier;
            if call.dropped {
                edits.remove_element(list, position);
                self.change("further calls left out");
                continue;
            }
            let before = call.arguments.repairs();
            let arguments = call.arguments.push(&entry.arguments, tools.tool(&call.name));
            if call.arguments.repairs() > before {
                self.change("arguments mended");
            }
            call.unsent.push_str(&arguments);
            let begins = call.may_begin(&tools);
            if begins {
                // Those before it that have a name have all of it.
                let before: Vec<_> = (0..number).filter(|before| is_named(&state.calls[*before])).collect();
                apart.extend(before.into_iter().map(|before| Tail::first(index, before, state)));
                state.show(number);
            }
            let call = &mut state.calls[number];
            if call.index.is_none() {
                edits.remove_element(list, position);
                self.change("a name not whole waits");
                continue;
            }
            let arguments = std::mem::take(&mut call.unsent);
            if let Some(first) = all.iter_mut().find(|said| said.call == number) {
                first.arguments.push_str(&arguments);
                first.write(call, "", edits);
                edits.remove_element(list, position);
                self.change("calls put in order");
                continue;
            }
            let said = SaidOfCall { call: number, entry, arguments, begins };
            if said.write(call, "", edits) {
                self.change("calls put in order");
            }
            all.push(said);
        }
        all
    }
}

/// Whether the client does not know it, though it has a name.
fn is_named(call: &Call) -> bool {
    call.index.is_none() && !call.dropped && !call.name.is_empty()
}

/// Whether there is an object.
pub(super) fn is_object(value: Option<Value<'_>>) -> bool {
    value.is_some_and(|value| value.kind() == Kind::Object)
}
