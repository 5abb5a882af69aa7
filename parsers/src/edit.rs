//! Edits of a request body: intentions, resolved to splices when the body is written.
//!
//! Why: a rule says what it wants ("this object's `model` is that"), and several rules may want something of one
//! object, of a value and of what is inside it, for all backends and for one. Commas and overlaps are settled once,
//! at write-out, where all is known.
//!
//! What no edit touches must leave byte for byte, and whatever the edits are, the outcome must be valid JSON.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde::de::IgnoredAny;

use crate::json::{Kind, Value};

/// What is to be changed in one document. An edit of a value of another kind than it needs is ignored.
///
/// Later edits win over earlier ones, candidate edits over base edits, and an edit of a value over edits of what is
/// inside it. They hold places, no text: use them with the document that they were made for.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    edits: Vec<Edit>,
}

#[derive(Clone, Debug)]
struct Edit {
    /// Where the value stands that is replaced, or the container that is changed.
    at: (usize, usize),
    change: Change,
}

#[derive(Clone, Debug)]
enum Change {
    Replace(Bytes),
    Set(Box<str>, Bytes),
    Remove(Box<str>),
    RemoveElement(usize),
    Push(Bytes),
}

impl Edits {
    /// No edits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.edits.len()
    }

    /// Puts `json`, the text of one JSON value, where `value` stands.
    pub fn replace(&mut self, value: Value<'_>, json: impl Into<Bytes>) {
        self.add(value, Change::Replace(json.into()));
    }

    /// Gives the member `key` the value `json`: where its last duplicate stands (earlier ones go), else as a new last
    /// member.
    pub fn set(&mut self, object: Value<'_>, key: &str, json: impl Into<Bytes>) {
        if object.kind() == Kind::Object {
            self.add(object, Change::Set(key.into(), json.into()));
        }
    }

    /// Takes out all members called `key`.
    pub fn remove(&mut self, object: Value<'_>, key: &str) {
        if object.kind() == Kind::Object {
            self.add(object, Change::Remove(key.into()));
        }
    }

    /// Takes out the element that is at `index` in the document, whatever else is taken out.
    pub fn remove_element(&mut self, array: Value<'_>, index: usize) {
        if array.kind() == Kind::Array {
            self.add(array, Change::RemoveElement(index));
        }
    }

    /// Appends an element.
    pub fn push(&mut self, array: Value<'_>, json: impl Into<Bytes>) {
        if array.kind() == Kind::Array {
            self.add(array, Change::Push(json.into()));
        }
    }

    fn add(&mut self, value: Value<'_>, change: Change) {
        if let Change::Replace(json) | Change::Set(_, json) | Change::Push(json) = &change {
            debug_assert!(
                serde_json::from_slice::<IgnoredAny>(json).is_ok(),
                "an edit must be json: {json:?}"
            );
        }
        let range = value.range();
        self.edits.push(Edit { at: (range.start, range.end), change });
    }
}

/// What becomes of a value of the document; the place where it begins names it.
enum Fate {
    Removed,
    /// Its end, and what stands there instead.
    Replaced(usize, Bytes),
}

/// A member or an element: where it begins (a member's key), and where its value does and ends.
#[derive(Clone, Copy)]
struct Item {
    start: usize,
    value: usize,
    end: usize,
}

/// A container that loses or gains something.
struct Container<'a> {
    items: Vec<Item>,
    /// The key, if it is an object, and the new value.
    appended: Vec<(Option<&'a str>, &'a Bytes)>,
}

/// All edits, resolved to what becomes of values and what is appended to containers, both named by where they begin.
#[derive(Default)]
struct Plan<'a> {
    fates: BTreeMap<usize, Fate>,
    containers: BTreeMap<usize, Container<'a>>,
}

/// A piece of the document and what stands there instead.
struct Splice {
    start: usize,
    end: usize,
    text: Bytes,
}

/// Writes the document of `root` with the edits made, in one pass.
pub(crate) fn write(root: Value<'_>, body: &[u8], base: &Edits, candidate: &Edits) -> Bytes {
    let mut plan = Plan::default();
    for edit in base.edits.iter().chain(&candidate.edits) {
        plan.add(root, edit);
    }
    let splices = plan.splices();
    let mut out = Vec::with_capacity(body.len() + splices.iter().map(|s| s.text.len()).sum::<usize>());
    let mut done = 0;
    for splice in splices {
        // What stands inside a value that is taken out or replaced is gone with it.
        if splice.start < done {
            continue;
        }
        out.extend_from_slice(body.get(done..splice.start).unwrap_or_default());
        out.extend_from_slice(&splice.text);
        done = splice.end;
    }
    out.extend_from_slice(body.get(done..).unwrap_or_default());
    out.into()
}

impl<'a> Plan<'a> {
    fn add(&mut self, root: Value<'_>, edit: &'a Edit) {
        let (start, end) = edit.at;
        if let Change::Replace(json) = &edit.change {
            self.fates.insert(start, Fate::Replaced(end, json.clone()));
            return;
        }
        let value = root.same_document(edit.at);
        let container = self.containers.entry(start).or_insert_with(|| Container::of(value));
        match &edit.change {
            Change::Replace(_) => {}
            Change::Set(key, json) => {
                let own = value.members().zip(&container.items).filter(|(m, _)| m.key.is_text(key));
                let mut last = None;
                for (_, item) in own {
                    self.fates.insert(item.value, Fate::Removed);
                    last = Some(item);
                }
                match last {
                    Some(item) => {
                        self.fates.insert(item.value, Fate::Replaced(item.end, json.clone()));
                    }
                    None => match container.appended.iter_mut().find(|(name, _)| *name == Some(key)) {
                        Some((_, value)) => *value = json,
                        None => container.appended.push((Some(key), json)),
                    },
                }
            }
            Change::Remove(key) => {
                let own = value.members().zip(&container.items).filter(|(m, _)| m.key.is_text(key));
                self.fates.extend(own.map(|(_, item)| (item.value, Fate::Removed)));
                container.appended.retain(|(name, _)| *name != Some(key));
            }
            Change::RemoveElement(index) => {
                self.fates.extend(container.items.get(*index).map(|item| (item.value, Fate::Removed)));
            }
            Change::Push(json) => container.appended.push((None, json)),
        }
    }

    /// The splices in document order; of two that begin together, the larger first.
    fn splices(&self) -> Vec<Splice> {
        let mut splices = Vec::new();
        for (start, fate) in &self.fates {
            if let Fate::Replaced(end, text) = fate {
                splices.push(Splice { start: *start, end: *end, text: text.clone() });
            }
        }
        for (start, container) in &self.containers {
            self.splice_container(*start, container, &mut splices);
        }
        splices.sort_by_key(|splice| (splice.start, Reverse(splice.end)));
        splices
    }

    /// Takes items out of a container and appends others, each with the comma that it needs.
    fn splice_container(&self, start: usize, container: &Container<'a>, splices: &mut Vec<Splice>) {
        let items = &container.items;
        let mut kept = false;
        let mut before: Option<Item> = None;
        for (index, item) in items.iter().enumerate() {
            if matches!(self.fates.get(&item.value), Some(Fate::Removed)) {
                // The comma before it goes too if something stays before it, else the one behind it.
                let (start, end) = match (before.filter(|_| kept), items.get(index + 1)) {
                    (Some(before), _) => (before.end, item.end),
                    (None, Some(behind)) => (item.start, behind.start),
                    (None, None) => (item.start, item.end),
                };
                splices.push(Splice { start, end, text: Bytes::new() });
            } else {
                kept = true;
            }
            before = Some(*item);
        }
        let mut text = Vec::new();
        for (key, json) in &container.appended {
            if kept {
                text.push(b',');
            }
            if let Some(key) = key {
                text.extend_from_slice(serde_json::Value::from(*key).to_string().as_bytes());
                text.push(b':');
            }
            text.extend_from_slice(json);
            kept = true;
        }
        if !text.is_empty() {
            let at = before.map_or(start + 1, |last| last.end);
            splices.push(Splice { start: at, end: at, text: text.into() });
        }
    }
}

impl Container<'_> {
    fn of(value: Value<'_>) -> Self {
        let item = |first: Value<'_>, value: Value<'_>| Item {
            start: first.range().start,
            value: value.range().start,
            end: value.range().end,
        };
        let items = match value.kind() {
            Kind::Object => value.members().map(|m| item(m.key, m.value)).collect(),
            _ => value.elements().map(|e| item(e, e)).collect(),
        };
        Container { items, appended: Vec::new() }
    }
}
