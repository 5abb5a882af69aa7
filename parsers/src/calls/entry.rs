//! One element of `tool_calls`, read and relabelled.
//!
//! It must never touch a member that is right already, nor one that it does not know.

use crate::edit::Edits;
use crate::json::{Kind, Value};
use crate::schema::ToolSet;

/// What an element of `tool_calls` says.
pub(super) struct Entry<'a> {
    value: Value<'a>,
    /// Where name and arguments stand: in `function`, or beside it where a server leaves that out.
    function: Option<Value<'a>>,
    pub(super) index: Option<i64>,
    /// Never empty.
    pub(super) id: Option<String>,
    /// Never empty.
    pub(super) name: Option<String>,
    /// The text of the arguments; of an object its JSON.
    pub(super) arguments: String,
}

/// What it should say.
pub(super) struct Labels<'a> {
    /// In streams.
    pub(super) index: Option<usize>,
    /// In the call's first element.
    pub(super) id: Option<&'a str>,
    /// In the first element that has one.
    pub(super) name: Option<&'a str>,
}

impl<'a> Entry<'a> {
    pub(super) fn read(value: Value<'a>) -> Self {
        let function = value.get("function").filter(|function| function.kind() == Kind::Object);
        let [name, arguments] = function.unwrap_or(value).get_all(["name", "arguments"]);
        let [index, id] = value.get_all(["index", "id"]);
        let text = |value: Option<Value<'_>>| {
            let value = value.filter(|value| !value.is_null())?;
            Some(value.as_str().map_or_else(|| value.raw().to_owned(), String::from))
        };
        Self {
            value,
            function,
            index: index.and_then(Value::as_i64),
            id: text(id).filter(|id| !id.is_empty()),
            name: text(name).filter(|name| !name.is_empty()),
            arguments: text(arguments).unwrap_or_default(),
        }
    }

    /// Gives it these labels and these arguments. Says whether anything but the arguments' text was wrong.
    pub(super) fn relabel(&self, labels: &Labels<'_>, arguments: &str, edits: &mut Edits) -> bool {
        let Some(function) = self.function else {
            return self.rebuild(labels, arguments, edits);
        };
        let mut wrong = false;
        let mut put = |object: Value<'_>, key: &str, wanted: Option<serde_json::Value>| {
            let own = object.get(key);
            match wanted {
                Some(wanted) if own.is_some_and(|own| is_same(own, &wanted)) => return,
                Some(wanted) => edits.set(object, key, wanted.to_string()),
                None if own.is_none() => return,
                None => edits.remove(object, key),
            }
            wrong = true;
        };
        if let Some(index) = labels.index {
            put(self.value, "index", Some(index.into()));
        }
        put(self.value, "id", labels.id.map(Into::into));
        let kind = self.value.get("type");
        if labels.id.is_some() || kind.is_some_and(|kind| !kind.is_text("function")) {
            put(self.value, "type", labels.id.map(|_| "function".into()));
        }
        put(function, "name", labels.name.map(Into::into));
        let own = function.get("arguments");
        wrong |= own.is_some_and(|own| own.kind() != Kind::String);
        let differs = wrong || arguments != self.arguments;
        if differs && (own.is_some() || !arguments.is_empty()) {
            edits.set(function, "arguments", serde_json::Value::from(arguments).to_string());
        }
        wrong
    }

    /// It has no `function`: written anew, if there is anything in it.
    fn rebuild(&self, labels: &Labels<'_>, arguments: &str, edits: &mut Edits) -> bool {
        let mut function = serde_json::Map::new();
        if let Some(name) = labels.name {
            function.insert("name".into(), name.into());
        }
        if !arguments.is_empty() || labels.index.is_none() {
            function.insert("arguments".into(), arguments.into());
        }
        let mut entry = serde_json::Map::new();
        if let Some(index) = labels.index {
            entry.insert("index".into(), index.into());
        }
        if let Some(id) = labels.id {
            entry.insert("id".into(), id.into());
            entry.insert("type".into(), "function".into());
        }
        entry.insert("function".into(), function.into());
        edits.replace(self.value, serde_json::Value::from(entry).to_string());
        true
    }
}

fn is_same(value: Value<'_>, wanted: &serde_json::Value) -> bool {
    match wanted {
        serde_json::Value::String(text) => value.is_text(text),
        other => serde_json::from_str::<serde_json::Value>(value.raw()).is_ok_and(|own| own == *other),
    }
}

/// The declared name that a backend's name means, also one with remains of its markup: `<<function=run_shell`. The
/// name as it came when it means none.
pub(super) fn real_name(tools: &ToolSet, written: &str) -> String {
    let bare = written.trim_matches(|c: char| c.is_whitespace() || "<>\"'".contains(c));
    let inner = bare.rsplit_once('=').map(|(markup, name)| (markup.trim(), name.trim_matches(['"', '\''])));
    let marked = inner.filter(|(markup, _)| markup.starts_with("function") || markup.starts_with("invoke"));
    let found = tools.resolve(written).or_else(|| tools.resolve(bare));
    found.or_else(|| tools.resolve(marked?.1)).unwrap_or(written).to_owned()
}
