//! Structured calls of a backend, made what a client expects: dense indexes, one id, one name, arguments in a string,
//! and a finish reason that tells the truth.
//!
//! Why: every fifth stream of public engines breaks one of these, and clients merge calls, run them with nothing, or
//! stop. What is right leaves as it came: the caller sends the very bytes on.
//!
//! It must never invent arguments, never close what was cut by length, and never hold a frame longer than its calls
//! are unreadable.

mod arguments;
mod choice;
mod delta;
mod entry;
mod finish;
mod read;
mod reading;
mod whole;

use std::collections::BTreeMap;
use std::sync::Arc;

use memchr::memmem;

use crate::edit::{self, Edits};
use crate::json::{Kind, Value};
use crate::schema::ToolSet;
use choice::Choice;

/// The most that waits, in bytes of JSON; beyond that it leaves, mended as far as it is.
const WAITING: usize = 64 << 10;

/// What becomes of a frame, and of those that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewritten {
    /// Those that wait and this one leave as they came, in order.
    Same,
    /// It can't be said yet: keep the frame; what is said next holds for it, too.
    Wait,
    /// The JSON of the frames that leave instead of those that wait and this one.
    Replace(Vec<String>),
}

/// Puts the calls of one streamed answer right, frame by frame.
#[derive(Clone, Debug)]
pub struct ChunkNormaliser {
    tools: Arc<ToolSet>,
    seed: Box<str>,
    /// How the ids begin that are made here.
    prefix: &'static str,
    first_only: bool,
    choices: BTreeMap<u64, Choice>,
    /// The frames that wait, as they would leave, and whether they say anything else than what came.
    waiting: Vec<String>,
    changed: bool,
    notes: Vec<&'static str>,
}

impl ChunkNormaliser {
    /// `seed` makes the ids of calls that have none: something unique to this answer.
    pub fn new(tools: Arc<ToolSet>, seed: &str) -> Self {
        Self {
            tools,
            seed: seed.into(),
            prefix: "call",
            first_only: false,
            choices: BTreeMap::new(),
            waiting: Vec::new(),
            changed: false,
            notes: Vec::new(),
        }
    }

    /// Ids that are made here begin with this and an underscore, `call` if nothing is said.
    #[must_use]
    pub fn ids_begin_with(mut self, prefix: &'static str) -> Self {
        self.prefix = prefix;
        self
    }

    /// The client forbids parallel calls (`parallel_tool_calls: false`): only the first call of a choice passes.
    #[must_use]
    pub fn first_call_only(mut self, first_only: bool) -> Self {
        self.first_only = first_only;
        self
    }

    /// Reads the JSON of one frame. What is no chunk of a chat stream stays. A member `tool_calls_ended`, which no backend sends, says that
    /// the calls so far are over: chats do not tell that, other dialects do.
    pub fn frame(&mut self, json: &str) -> Rewritten {
        if self.waiting.is_empty() && !self.concerns(json) {
            return Rewritten::Same;
        }
        let shaped = Value::parse(json).ok().and_then(|chunk| shaped(chunk, json));
        if shaped.is_some() {
            self.change("calls put in order");
        }
        let json = shaped.as_deref().unwrap_or(json);
        match Value::parse(json).ok().filter(|_| self.concerns(json)) {
            Some(chunk) => self.chunk(chunk, json),
            None => self.waiting.push(json.to_owned()),
        }
        if !self.is_holding() {
            return self.release();
        }
        if self.waiting.iter().map(String::len).sum::<usize>() <= WAITING {
            return Rewritten::Wait;
        }
        self.give_up();
        self.release()
    }

    /// The stream has ended: what becomes of the frames that wait. Where no finish reason came, nothing is completed.
    pub fn finish(&mut self) -> Rewritten {
        self.give_up();
        self.release()
    }

    /// Whether frames wait: silence is the keep-alive's business.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Index and id for a call that was found in the text of a choice. It counts for the finish reason. `id`: the model's own,
    /// which it keeps unless another call of the choice has it.
    pub fn allot(&mut self, choice: u64, id: Option<String>, name: &str) -> (usize, String) {
        let (prefix, seed) = (self.prefix, &self.seed);
        let state = self.choices.entry(choice).or_default();
        let number = state.begin(id, |number| made_id(prefix, seed, choice, number));
        let call = &mut state.calls[number];
        call.from_text = true;
        name.clone_into(&mut call.name);
        let id = call.id.clone();
        (state.show(number), id)
    }

    /// How many calls of a choice reach the client.
    pub fn calls(&self, choice: u64) -> usize {
        self.choices.get(&choice).map_or(0, Choice::delivered)
    }

    /// Whether the backend has sent this very call in a choice: the same name, and arguments of the same value.
    pub fn has_call(&self, choice: u64, name: &str, arguments: &str) -> bool {
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        let Some(wanted) = value(arguments) else { return false };
        let mut calls = self.choices.get(&choice).into_iter().flat_map(|choice| &choice.calls);
        calls.any(|call| {
            let own = if call.arguments.is_empty() { "{}" } else { call.arguments.source() };
            !call.from_text && call.name == name && value(own).as_ref() == Some(&wanted)
        })
    }

    /// Whether the arguments of a structured call had to be mended so far.
    pub fn was_mended(&self) -> bool {
        let mut calls = self.choices.values().flat_map(|choice| &choice.calls);
        calls.any(|call| !call.from_text && call.arguments.was_mended())
    }

    /// What was put right so far, one sentence each.
    pub fn notes(&self) -> &[&'static str] {
        &self.notes
    }

    /// Whether a text can matter: it speaks of calls, or ends a choice that has some.
    fn concerns(&self, json: &str) -> bool {
        let has = |needle: &str| memmem::find(json.as_bytes(), needle.as_bytes()).is_some();
        has("tool_calls")
            || has("\"function_call\"")
            || (!self.choices.is_empty() && has("\"finish_reason\""))
    }

    fn is_holding(&self) -> bool {
        self.choices
            .values()
            .flat_map(|choice| &choice.calls)
            .any(|call| call.index.is_some() && call.arguments.is_holding())
    }

    fn release(&mut self) -> Rewritten {
        let frames = std::mem::take(&mut self.waiting);
        if std::mem::take(&mut self.changed) { Rewritten::Replace(frames) } else { Rewritten::Same }
    }

    /// What is held of the calls goes behind the frames that wait, as it came.
    fn give_up(&mut self) {
        let tails: Vec<_> =
            self.choices.iter_mut().flat_map(|(index, choice)| choice.give_up(*index)).collect();
        let chunk = |json: &String| Value::parse(json).is_ok_and(|chunk| chunk.get("choices").is_some());
        if let Some(last) = self.waiting.iter().rposition(chunk).filter(|_| !tails.is_empty())
            && let Ok(chunk) = Value::parse(&self.waiting[last])
        {
            let frame = finish::tail_frame(chunk, &self.waiting[last], &tails);
            self.waiting.insert(last + 1, frame);
        }
    }

    fn change(&mut self, note: &'static str) {
        self.changed = true;
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn put_reason(&mut self, state: &Choice, finish: Option<Value<'_>>, edits: &mut Edits) {
        let reason = finish.and_then(Value::as_str).unwrap_or_default();
        if let (Some(reason), Some(finish)) = (state.true_reason(&reason), finish) {
            edits.replace(finish, format!("\"{reason}\""));
            self.change("finish reason made to fit the calls");
        }
    }
}

/// The choices with their index, else their position.
fn choices(answer: Value<'_>) -> impl Iterator<Item = (u64, Value<'_>)> {
    let list = answer.get("choices").into_iter().flat_map(Value::elements);
    list.enumerate().map(|(position, choice)| {
        (choice.get("index").and_then(Value::as_u64).unwrap_or(position as u64), choice)
    })
}

/// A chunk with `message` where `delta` belongs, or with one call where a list of them does, as it should be.
fn shaped(chunk: Value<'_>, json: &str) -> Option<String> {
    let mut edits = Edits::new();
    for (_, choice) in choices(chunk) {
        let [delta, message] = choice.get_all(["delta", "message"]);
        let delta = delta.filter(|delta| !delta.is_null());
        let said = delta.or(message).and_then(|said| said.get("tool_calls"));
        if let Some(call) = said.filter(|call| call.kind() == Kind::Object) {
            edits.replace(call, format!("[{}]", call.raw()));
        }
        if let (None, Some(message), Some(_)) = (delta, message, said) {
            edits.set(choice, "delta", message.raw().to_owned());
            edits.remove(choice, "message");
        }
    }
    (!edits.is_empty()).then(|| write(chunk, json, &edits))
}

fn made_id(prefix: &str, seed: &str, choice: u64, number: usize) -> String {
    match choice {
        0 => format!("{prefix}_{seed}_{number}"),
        _ => format!("{prefix}_{seed}_{choice}_{number}"),
    }
}

/// The document with the edits made.
fn write(root: Value<'_>, json: &str, edits: &Edits) -> String {
    let bytes = edit::write(root, json.as_bytes(), edits, &Edits::new());
    String::from_utf8(bytes.into()).unwrap_or_else(|_| json.to_owned())
}
