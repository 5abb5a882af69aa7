//! Matching the calls of one assistant message with the results behind it.
//!
//! Why: ids are lost or empty on either side, and after a compaction results stay whose call is gone; strict backends
//! refuse both. A result without a call becomes text of the user's, so that nothing is lost.
//!
//! It must never change an id that fits, and never match by anything but id, name and order.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{Mended, id_of, is_role};
use crate::json::{Kind, Value};
use crate::message::Message;

/// What stands before a result whose call is gone.
const ORPHAN: &str = "Result of a tool call that is no longer part of this conversation:\n";

/// An assistant message's calls, and the results up to the next assistant message.
#[derive(Default)]
pub(super) struct Block<'a> {
    calls: Vec<Call<'a>>,
    results: Vec<Answer<'a>>,
    /// The calls' ids.
    given: HashSet<String>,
}

struct Call<'a> {
    place: String,
    made: String,
    value: Value<'a>,
    name: Option<String>,
    given: Option<String>,
    /// The id that it has in the end.
    id: Option<String>,
    answered: bool,
}

struct Answer<'a> {
    place: String,
    message: Message<'a>,
    name: Option<String>,
    given: Option<String>,
    /// The call that it answers.
    call: Option<usize>,
}

impl<'a> Block<'a> {
    /// The call number `number` of the message at `at`.
    pub(super) fn call(&mut self, at: usize, number: usize, value: Value<'a>) {
        let given = id_of(value.get("id"));
        let repeated = given.clone().is_some_and(|given| !self.given.insert(given));
        self.calls.push(Call {
            place: format!("messages[{at}].tool_calls[{number}]"),
            made: format!("call_{at}_{number}"),
            value,
            name: value.at("/function/name").and_then(Value::as_str).map(String::from),
            id: given.clone().filter(|_| !repeated),
            given,
            answered: false,
        });
    }

    /// A message behind the calls; what is no result is left alone.
    pub(super) fn result(&mut self, at: usize, message: Message<'a>) {
        if is_role(message, "tool") {
            self.results.push(Answer {
                place: format!("messages[{at}]"),
                message,
                name: message.0.get("name").and_then(Value::as_str).map(String::from),
                given: id_of(message.0.get("tool_call_id")),
                call: None,
            });
        }
    }

    /// The ids that its calls have in the end.
    pub(super) fn ids(&self) -> impl Iterator<Item = String> {
        self.calls.iter().filter_map(|call| call.id.clone())
    }

    /// Matches, and writes what must be changed. `known`: ids of earlier calls. Later ones do not matter, so that the
    /// past is mended alike each turn.
    pub(super) fn settle(&mut self, known: &HashSet<String>, mended: &mut Mended) {
        self.match_up(known);
        let results = self.results.iter().filter_map(|result| result.given.clone());
        let mut own: HashSet<_> = results.chain(self.given.iter().cloned()).collect();
        for call in &mut self.calls {
            if call.id.is_none() {
                let mut made = call.made.clone();
                while known.contains(&made) || !own.insert(made.clone()) {
                    made.push('_');
                }
                call.id = Some(made);
            }
            let is_string = call.value.get("id").is_some_and(|id| id.kind() == Kind::String);
            if let Some(id) = call.id.as_deref().filter(|id| !is_string || call.given.as_deref() != Some(*id))
            {
                mended.edits.set(call.value, "id", serde_json::Value::from(id).to_string());
                mended.note(&call.place, "id filled in");
            }
        }
        for result in &self.results {
            let own = result.call.and_then(|call| self.calls.get(call)?.id.as_deref());
            let earlier = result.given.as_deref().filter(|given| known.contains(*given));
            match own.or(earlier) {
                Some(id) if result.message.0.get("tool_call_id").is_some_and(|own| own.is_text(id)) => {}
                Some(id) => {
                    let json = serde_json::Value::from(id).to_string();
                    mended.edits.set(result.message.0, "tool_call_id", json);
                    mended.note(&result.place, "matched with its call");
                }
                None => result.become_text(mended),
            }
        }
    }

    /// By id; then calls without an id take that of a result; then by name and by order; then the only two left.
    fn match_up(&mut self, known: &HashSet<String>) {
        let strange = |result: &Answer<'_>| result.given.as_ref().is_some_and(|given| !known.contains(given));
        let nameless = |fits: bool| fits.then(String::new);
        let named = |fits: bool, name: &Option<String>| name.clone().filter(|_| fits);
        self.pair(|result| result.given.clone(), |call| call.given.clone());
        self.pair(
            |result| named(strange(result), &result.name),
            |call| named(call.given.is_none(), &call.name),
        );
        self.pair(|result| nameless(strange(result)), |call| nameless(call.given.is_none()));
        self.pair(|result| named(result.given.is_none(), &result.name), |call| call.name.clone());
        self.pair(|result| nameless(result.given.is_none()), |_| nameless(true));
        let left = self.results.iter().filter(|result| result.call.is_none() && strange(result)).count();
        if left == 1 && self.calls.iter().filter(|call| !call.answered).count() == 1 {
            self.pair(|result| nameless(strange(result)), |_| nameless(true));
        }
    }

    /// Each result without a call takes the first call without a result that has its key. A call without an id takes
    /// the result's, unless another has it.
    fn pair(
        &mut self,
        result_key: impl Fn(&Answer<'_>) -> Option<String>,
        call_key: impl Fn(&Call<'_>) -> Option<String>,
    ) {
        let mut ids: HashSet<_> =
            self.calls.iter().flat_map(|call| [call.id.clone(), call.given.clone()]).collect();
        let mut open: HashMap<String, VecDeque<usize>> = HashMap::new();
        for (number, call) in self.calls.iter().enumerate().filter(|(_, call)| !call.answered) {
            if let Some(key) = call_key(call) {
                open.entry(key).or_default().push_back(number);
            }
        }
        for result in self.results.iter_mut().filter(|result| result.call.is_none()) {
            let queue = result_key(result).and_then(|key| open.get_mut(&key));
            let Some(number) = queue.and_then(VecDeque::pop_front) else { continue };
            result.call = Some(number);
            let call = &mut self.calls[number];
            call.answered = true;
            if call.given.is_none() && ids.insert(result.given.clone()) {
                call.id.clone_from(&result.given);
            }
        }
    }
}

impl Answer<'_> {
    fn become_text(&self, mended: &mut Mended) {
        let message = self.message.0;
        let text = match message.get("content").filter(|content| content.kind() == Kind::Array) {
            Some(parts) => {
                let first = serde_json::json!({"type": "text", "text": ORPHAN}).to_string();
                let parts = parts.elements().map(|part| part.raw());
                format!("[{}]", std::iter::once(&*first).chain(parts).collect::<Vec<_>>().join(","))
            }
            None => serde_json::Value::from(ORPHAN.to_owned() + &self.message.text()).to_string(),
        };
        mended.edits.set(message, "role", r#""user""#);
        mended.edits.set(message, "content", text);
        mended.edits.remove(message, "tool_call_id");
        mended.edits.remove(message, "name");
        mended.note(&self.place, "result without a call became text");
    }
}
