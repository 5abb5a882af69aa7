//! From a JSON value that stands for a call to the call itself.
//!
//! Models write the same call under many keys: `name`/`tool`/`function`, `arguments`/`parameters`/`input`, nested in `function`
//! or in `tool_calls`, arguments as a string, the name as the key. Each is one listed reading. What is no call stays none: a
//! name is never guessed, arguments are never invented.

use crate::event::Note;
use crate::json::{Kind, Value};
use crate::json_repair::{self, Repaired};
use crate::schema::{Tool, ToolSet};

use super::grammar::{Call, Context, name_length};

/// Keys under which a tool's name stands.
pub(crate) const NAMES: [&str; 4] = ["name", "tool_name", "tool", "function"];
/// Keys under which arguments stand.
pub(crate) const ARGUMENTS: [&str; 5] = ["arguments", "parameters", "args", "input", "tool_input"];
/// Further keys of a call.
pub(crate) const OTHERS: [&str; 6] = ["type", "id", "tool_call_id", "tool_calls", "index", "function_call"];
/// What a whole message of the model begins with, and the only values that go with nothing but calls.
pub(crate) const MESSAGE: [(&str, &[&str]); 2] =
    [("role", &["\"assistant\""]), ("content", &["null", "\"\""])];
/// Deepest nesting of call objects: `tool_calls` holds objects that hold `function`.
const DEPTH: usize = 4;

/// The calls that this text of one JSON value holds, or none if any part of it is no call.
pub(crate) fn calls(text: &str, complete: bool, ctx: Context<'_>) -> Option<Vec<Call>> {
    let repaired = json_repair::repair_object(text, complete)?;
    let value = Value::parse(&repaired.json).ok()?;
    let mut found = collect(value, ctx, DEPTH)?;
    if let Some(first) = found.first_mut() {
        let notes = repaired.repairs.iter().map(|repair| Note::Repaired(repair.to_string()));
        first.notes.splice(0..0, notes);
    }
    Some(found)
}

fn collect(value: Value<'_>, ctx: Context<'_>, depth: usize) -> Option<Vec<Call>> {
    let depth = depth.checked_sub(1)?;
    match value.kind() {
        Kind::Array => {
            let lists: Option<Vec<_>> =
                value.elements().map(|element| collect(element, ctx, depth)).collect();
            Some(lists?.into_iter().flatten().collect())
        }
        Kind::Object => object(value, ctx, depth),
        _ => None,
    }
}

fn object(value: Value<'_>, ctx: Context<'_>, depth: usize) -> Option<Vec<Call>> {
    let [list, nested, older] = value.get_all(["tool_calls", "function", "function_call"]);
    if let Some(list) = list.filter(|list| list.kind() == Kind::Array) {
        return if says_more(value) { None } else { collect(list, ctx, depth) };
    }
    if let Some(nested) = [nested, older].into_iter().flatten().find(|nested| nested.kind() == Kind::Object) {
        return collect(nested, ctx, depth);
    }
    let name = value.get_all(NAMES).into_iter().flatten().find(|name| name.kind() == Kind::String);
    let Some(name) = name.and_then(Value::as_str) else { return named_by_key(value, ctx) };
    let name = name.trim();
    if name.is_empty() || name.len() > 256 || name.contains(char::is_whitespace) {
        return None;
    }
    if ambiguous(value, name) {
        return None;
    }
    let mut all = value.get_all(ARGUMENTS).into_iter().flatten();
    let first = all.next();
    let arguments =
        first.filter(|first| is_filled(first.raw())).or_else(|| all.find(|other| is_filled(other.raw())));
    let arguments = arguments.or(first);
    let known = |key: &str| NAMES.contains(&key) || ARGUMENTS.contains(&key) || OTHERS.contains(&key);
    let all_known = value.members().all(|member| known(&member.name()));
    let (json, mut notes) = match arguments {
        Some(arguments) => arguments_of(arguments)?,
        // A bare name is a call of a declared tool.
        None if all_known => ctx.tools.resolve(name).map(|_| ("{}".to_owned(), Vec::new()))?,
        None => (beside_name(value, ctx.tools.tool(ctx.tools.resolve(name)?)?)?, vec![beside_note()]),
    };
    let mut call = call(name, &json, ctx.tools);
    notes.append(&mut call.notes);
    let plain = arguments.is_some() && all_known;
    Some(vec![Call { notes, plain, ..call }])
}

/// Whether a message says anything but its calls: whoever took the calls alone would lose it.
fn says_more(message: Value<'_>) -> bool {
    message.members().any(|member| match &*member.name() {
        "role" => member.value.as_str().is_none_or(|role| role != "assistant"),
        "content" | "refusal" | "reasoning_content" | "reasoning" => {
            member.value.kind() != Kind::Null
                && member.value.as_str().is_none_or(|text| !text.trim().is_empty())
        }
        _ => false,
    })
}

/// Whether it names two tools, or holds arguments twice: nobody can tell which are meant.
fn ambiguous(value: Value<'_>, name: &str) -> bool {
    let mut arguments = None;
    value.members().any(|member| {
        let (key, raw) = (member.name(), member.value.raw());
        if NAMES.contains(&&*key) && member.value.kind() == Kind::String {
            return member.value.as_str().is_some_and(|other| other.trim() != name);
        }
        let filled = ARGUMENTS.contains(&&*key) && is_filled(raw);
        filled && arguments.replace(raw).is_some_and(|other| other != raw)
    })
}

fn is_filled(arguments: &str) -> bool {
    !matches!(arguments, "null" | "{}" | "\"\"")
}

/// `{"name": "N", "a": 1}`: the arguments of a declared tool beside its name, if all other keys are its parameters and none
/// that it requires is missing.
fn beside_name(value: Value<'_>, tool: &Tool) -> Option<String> {
    let mut members = Vec::new();
    for member in value.members() {
        let key = member.name();
        let names = NAMES.contains(&&*key);
        if tool.has_parameter(&key) == names {
            return None;
        }
        if !names {
            members.push(format!("{}: {}", quoted(&key), member.value.raw()));
        }
    }
    let complete = tool.required().all(|key| value.get(key).is_some());
    complete.then(|| format!("{{{}}}", members.join(", ")))
}

fn beside_note() -> Note {
    Note::Repaired("arguments beside the name were gathered".to_owned())
}

/// `{"tool": {…}}`: the only key is the name of a declared tool, or of any where the family writes calls so.
fn named_by_key(value: Value<'_>, ctx: Context<'_>) -> Option<Vec<Call>> {
    let mut members = value.members();
    let only = members.next().filter(|_| members.next().is_none())?;
    let name = only.name();
    let is_name =
        |name: &str| !name.is_empty() && name_length(name) == name.len() && !ARGUMENTS.contains(&name);
    let named = ctx.tools.resolve(&name).is_some() || (ctx.keyed && is_name(&name));
    (named && only.value.kind() == Kind::Object).then(|| {
        let call = call(&name, only.value.raw(), ctx.tools);
        vec![Call { plain: false, ..call }]
    })
}

/// Arguments as one JSON object: null and the empty string are none, a string is decoded once.
fn arguments_of(value: Value<'_>) -> Option<(String, Vec<Note>)> {
    match value.kind() {
        Kind::Object => Some((value.raw().to_owned(), Vec::new())),
        Kind::Null => Some(("{}".to_owned(), Vec::new())),
        Kind::Array if value.elements().next().is_none() => Some(("{}".to_owned(), Vec::new())),
        Kind::String => {
            let text = value.as_str()?;
            if text.trim().is_empty() || text.trim() == "null" {
                return Some(("{}".to_owned(), Vec::new()));
            }
            let (json, mut notes) = object_text(&text, true)?;
            notes.push(Note::Repaired("arguments written as a string were decoded once".to_owned()));
            Some((json, notes))
        }
        _ => None,
    }
}

/// Text that is one JSON object, mended where it needs to be.
pub(crate) fn object_text(text: &str, complete: bool) -> Option<(String, Vec<Note>)> {
    let Repaired { json, repairs } = json_repair::repair_object(text.trim(), complete)?;
    let is_object = Value::parse(&json).is_ok_and(|value| value.kind() == Kind::Object);
    is_object.then(|| (json, repairs.iter().map(|repair| Note::Repaired(repair.to_string())).collect()))
}

/// A call of `written` with these arguments: the declared name where there is exactly one, values typed by its schema.
pub(crate) fn call(written: &str, arguments: &str, tools: &ToolSet) -> Call {
    let Some(declared) = tools.resolve(written) else {
        let notes = vec![Note::UnknownTool(written.to_owned())];
        let (name, arguments) = (written.to_owned(), arguments.to_owned());
        return Call { id: None, name, arguments, declared: false, plain: true, notes };
    };
    let mut notes = Vec::new();
    if declared != written {
        notes.push(Note::Renamed { written: written.to_owned(), declared: declared.to_owned() });
    }
    let mut json = arguments.to_owned();
    if let Some(tool) = tools.tool(declared) {
        if let Some(inner) = unwrapped(arguments, |key| tool.has_parameter(key)) {
            notes.push(Note::Repaired("arguments wrapped once more were unwrapped".to_owned()));
            json = inner;
        }
        let coerced = tool.coerce(&json);
        notes.extend(coerced.notes.into_iter().map(Note::Repaired));
        json = coerced.json;
    }
    Call { id: None, name: declared.to_owned(), arguments: json, declared: true, plain: true, notes }
}

/// `{"arguments": {…}}`, if the key is no parameter and the keys inside are.
fn unwrapped(arguments: &str, is_parameter: impl Fn(&str) -> bool) -> Option<String> {
    let first = arguments.trim_start_matches(|c: char| matches!(c, '{' | '"') || c.is_whitespace());
    if !ARGUMENTS.iter().any(|key| first.starts_with(key)) && !first.starts_with('\\') {
        return None;
    }
    let value = Value::parse(arguments).ok()?;
    let mut members = value.members();
    let only = members.next().filter(|_| members.next().is_none())?;
    let key = only.name();
    if !ARGUMENTS.contains(&key.as_ref()) || is_parameter(&key) {
        return None;
    }
    let inner = match only.value.kind() {
        Kind::Object => only.value.raw().to_owned(),
        Kind::String => object_text(&only.value.as_str()?, true)?.0,
        _ => return None,
    };
    let parsed = Value::parse(&inner).ok()?;
    let fits =
        parsed.members().next().is_some() && parsed.members().all(|member| is_parameter(&member.name()));
    fits.then_some(inner)
}

/// True if the call has every required argument.
pub(crate) fn has_required(call: &Call, tools: &ToolSet) -> bool {
    let Some(tool) = tools.tool(&call.name) else { return false };
    let Ok(arguments) = Value::parse(&call.arguments) else { return false };
    tool.required().all(|key| arguments.get(key).is_some())
}

/// The text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
