//! Arguments that came as named texts, put together as one JSON object.
//!
//! The schema alone gives a value its type; a parameter that it does not know stays text. A repeated parameter keeps its first
//! place and its last value.

use crate::json::MAX_DEPTH;
use crate::schema::{Tool, ToolSet};

use super::grammar::Call;
use super::normalise::{self, quoted};

/// Containers inside each other at most, the arguments' own object being the first: readers that call themselves stop here,
/// since the stack is finite; strict JSON parsers of clients do as well.
pub(crate) const DEPTH: usize = MAX_DEPTH - 1;

/// The arguments of one call, in order.
#[derive(Debug)]
pub(crate) struct Values<'a> {
    name: String,
    tools: &'a ToolSet,
    tool: Option<&'a Tool>,
    members: Vec<(String, String)>,
}

impl<'a> Values<'a> {
    pub(crate) fn new(written: &str, tools: &'a ToolSet) -> Self {
        let tool = tools.resolve(written).and_then(|name| tools.tool(name));
        Self { name: written.to_owned(), tools, tool, members: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn has_parameter(&self, key: &str) -> bool {
        self.tool.is_some_and(|tool| tool.has_parameter(key))
    }

    /// A value of this name has come.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.members.iter().any(|(known, _)| known == key)
    }

    pub(crate) fn is_string(&self, key: &str) -> bool {
        self.tool.is_some_and(|tool| tool.is_string(key))
    }

    /// The schema knows the parameter and says nothing of its type: a literal that has one keeps it.
    pub(crate) fn is_untyped(&self, key: &str) -> bool {
        self.tool.is_some_and(|tool| tool.is_untyped(key))
    }

    /// A value as the text that the model wrote.
    pub(crate) fn push(&mut self, key: &str, text: &str) {
        let json = match self.tool {
            Some(tool) if tool.has_parameter(key) => tool.value_from_text(key, text),
            _ => quoted(text),
        };
        self.push_json(key, json);
    }

    /// A value that the model calls a string: it is one where the schema allows any.
    pub(crate) fn push_string(&mut self, key: &str, text: &str) {
        match self.tool.is_some_and(|tool| tool.takes_string(key)) {
            true => self.push_json(key, quoted(text)),
            false => self.push(key, text),
        }
    }

    /// A value whose text is meant as JSON if the schema does not say otherwise.
    pub(crate) fn push_loose(&mut self, key: &str, text: &str) {
        if self.has_parameter(key) || crate::json::Value::parse(text).is_err() {
            self.push(key, text);
        } else {
            self.push_json(key, text.trim().to_owned());
        }
    }

    /// An element with nothing in it: an empty list or object where the schema wants one.
    pub(crate) fn push_empty(&mut self, key: &str, text: &str) {
        let tool = self.tool.filter(|tool| tool.has_parameter(key) && !tool.takes_string(key));
        let fits = |empty: &&str| tool.is_some_and(|tool| tool.value_from_text(key, empty) == *empty);
        match ["[]", "{}"].into_iter().find(fits) {
            Some(empty) => self.push_json(key, empty.to_owned()),
            None => self.push(key, text),
        }
    }

    /// A value that is JSON.
    pub(crate) fn push_json(&mut self, key: &str, json: String) {
        match self.members.iter_mut().find(|(known, _)| known == key) {
            Some((_, value)) => *value = json,
            None => self.members.push((key.to_owned(), json)),
        }
    }

    /// True if every required argument is there.
    pub(crate) fn has_required(&self) -> bool {
        self.tool.is_some_and(|tool| tool.required().all(|key| self.has(key)))
    }

    pub(crate) fn json(&self) -> String {
        let members: Vec<_> =
            self.members.iter().map(|(key, value)| format!("{}: {value}", quoted(key))).collect();
        format!("{{{}}}", members.join(", "))
    }

    pub(crate) fn call(&self) -> Call {
        normalise::call(&self.name, &self.json(), self.tools)
    }
}
