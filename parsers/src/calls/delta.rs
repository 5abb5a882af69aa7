//! One chunk of a stream: its deltas put right, and at a choice's end what its calls still lack.
//!
//! It must never take a chunk apart further than its calls and its finish reason.

use std::sync::Arc;

use super::choice::{Call, Choice, Placed};
use super::entry::{Entry, Labels};
use super::{ChunkNormaliser, choices, finish, made_id, write};
use crate::edit::Edits;
use crate::json::{Kind, Value};

/// What a delta says of one call: its first element there, and the arguments of all.
struct SaidOfCall<'a> {
    call: usize,
    entry: Entry<'a>,
    arguments: String,
    begins: bool,
    named: bool,
}

impl SaidOfCall<'_> {
    /// Puts it right, with more arguments behind its own. Says whether anything but their text was wrong.
    fn write(&self, call: &Call, more: &str, edits: &mut Edits) -> bool {
        let labels = Labels {
            index: Some(self.call),
            id: self.begins.then_some(&call.id),
            name: self.named.then_some(&call.name),
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
            if let (Some(delta), Some(list)) = (delta, list) {
                said = self.delta(&mut state, index, list, &mut edits);
                if said.is_empty() {
                    edits.remove(delta, "tool_calls");
                    self.change("empty list of calls removed");
                }
            }
            if let Some(reason) = finish.and_then(Value::as_str).filter(|reason| !reason.is_empty()) {
                let (tails, mended) = state.end(index, Some(&reason), &self.tools);
                if mended {
                    self.change("arguments completed");
                }
                for tail in tails {
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
            if !state.calls.is_empty() {
                self.choices.insert(index, state);
            }
        }
        if !apart.is_empty() {
            self.waiting.push(finish::tail_frame(chunk, json, &apart));
        }
        self.waiting.push(write(chunk, json, &edits));
    }

    /// The calls of one delta, each once.
    fn delta<'a>(
        &mut self,
        state: &mut Choice,
        index: u64,
        list: Value<'a>,
        edits: &mut Edits,
    ) -> Vec<SaidOfCall<'a>> {
        let tools = Arc::clone(&self.tools);
        let mut all: Vec<SaidOfCall<'_>> = Vec::new();
        for (position, element) in list.elements().enumerate() {
            let entry = Entry::read(element);
            let Some(placed) =
                state.place(&entry, false, &tools, |number| made_id(&self.seed, index, number))
            else {
                edits.remove_element(list, position);
                self.change("repeated call left out");
                continue;
            };
            let call = &mut state.calls[placed.number];
            call.dropped |= self.first_only && placed.number > 0;
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
            if let Some(first) = all.iter_mut().find(|said| said.call == placed.number) {
                first.named |= placed.named;
                first.arguments.push_str(&arguments);
                first.write(call, "", edits);
                edits.remove_element(list, position);
                self.change("calls put in order");
                continue;
            }
            let Placed { number, begins, named } = placed;
            let said = SaidOfCall { call: number, entry, arguments, begins, named };
            if said.write(call, "", edits) {
                self.change("calls put in order");
            }
            all.push(said);
        }
        all
    }
}
