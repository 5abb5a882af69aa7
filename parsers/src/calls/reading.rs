//! The readings of arguments that are no plain object, once all of them are there.
//!
//! It must never give a second reading where there is one already, nor add to what the model wrote.

use crate::json::{Kind, Value};
use crate::json_repair::repair_object;
use crate::schema::Tool;

/// Keys of a whole call.
const WRAPPER: [&str; 3] = ["name", "arguments", "parameters"];

/// Whether what follows the first brace is the key of a whole call and no parameter; none while that is open.
pub(super) fn begins_wrapper(text: &str, tool: &Tool) -> Option<bool> {
    let text = text.trim_ascii_start();
    let Some(key) = text.strip_prefix('"') else { return (!text.is_empty()).then_some(false) };
    let mut keys = WRAPPER.iter().filter(|key| !tool.has_parameter(key));
    match key.split_once('"') {
        Some((key, _)) => Some(keys.any(|wrapper| *wrapper == key)),
        None => (!keys.any(|wrapper| wrapper.starts_with(key))).then_some(false),
    }
}

/// The arguments out of a whole call of this very tool, or out of another layer of themselves.
pub(super) fn unwrapped(text: &str, tool: Option<&Tool>) -> Option<String> {
    let (tool, object) = (tool?, Value::parse(text).ok()?);
    if object.kind() != Kind::Object || !object.members().all(|member| WRAPPER.contains(&&*member.name())) {
        return None;
    }
    let [name, arguments, parameters] = object.get_all(WRAPPER);
    let inner = arguments.xor(parameters)?;
    let inner = inner.as_str().map_or_else(|| inner.raw().to_owned(), String::from);
    let members = Value::parse(&inner).ok().filter(|inner| inner.kind() == Kind::Object)?;
    let fits = match name {
        Some(name) => name.is_text(tool.name()),
        None => members.members().all(|member| tool.has_parameter(&member.name())),
    };
    fits.then_some(inner)
}

/// Whether a text is nothing but closing tags and special tokens.
pub(super) fn is_markup(text: &str) -> bool {
    let mut rest = text.trim_ascii();
    while let Some(tag) = rest.strip_prefix("</").or_else(|| rest.strip_prefix("<|")) {
        let Some((name, behind)) = tag.split_once('>') else { return false };
        if name.contains(['<', '"', '\n']) {
            return false;
        }
        rest = behind.trim_ascii_start();
    }
    rest.is_empty()
}

/// The objects behind the one that ends at `first`, as servers write two calls of a tool under one index: each is a call's arguments
/// if every one of them, the first too, has all that the tool requires and nothing that it does not know. One that says the same as
/// the one before it was said twice.
pub(super) fn further(text: &str, first: usize, tool: Option<&Tool>) -> Option<Vec<String>> {
    let tool = tool?;
    let fits = |object: &serde_json::Map<String, serde_json::Value>| {
        tool.required().all(|key| object.contains_key(key))
            && object.keys().all(|key| tool.has_parameter(key))
    };
    let mut last: serde_json::Map<_, _> = serde_json::from_str(&text[..first]).ok().filter(fits)?;
    let (mut rest, mut further) = (&text[first..], Vec::new());
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || matches!(c, ',' | ';'));
        if rest.is_empty() {
            return Some(further);
        }
        let mut objects = serde_json::Deserializer::from_str(rest).into_iter();
        let object = objects.next()?.ok().filter(fits)?;
        let (own, behind) = rest.split_at(objects.byte_offset());
        if object != last {
            // Nothing before something may only hold its place.
            if object.is_empty() || last.is_empty() {
                return None;
            }
            further.push(own.to_owned());
        }
        (last, rest) = (object, behind);
    }
}

/// Arguments that are an object after repair; one that is in a JSON string is taken out, once.
pub(super) fn read_whole(text: &str, complete: bool) -> Option<String> {
    let repaired = repair_object(text, complete)?.json;
    let decoded = Value::parse(&repaired).ok()?.as_str().map(|inner| repair_object(&inner, complete));
    let object = match decoded {
        Some(inner) => inner?.json,
        None => repaired.clone(),
    };
    object.starts_with('{').then_some(object)
}

/// `{"command=ls": ""}` as `{"command": "ls"}`: only where the key is declared up to its first `=`, is not declared as
/// a whole, has nothing as its value, and is given nowhere else.
pub(super) fn split_keys(text: &str, tool: Option<&Tool>) -> Option<String> {
    let tool = tool?;
    let object = Value::parse(text).ok().filter(|value| value.kind() == Kind::Object)?;
    let mut out = String::new();
    let mut done = 0;
    for member in object.members() {
        let name = member.name();
        let Some((parameter, value)) = name.split_once('=') else { continue };
        if tool.has_parameter(&name) || !tool.has_parameter(parameter) {
            continue;
        }
        if member.value.raw() != "\"\"" || object.get(parameter).is_some() {
            return None;
        }
        let json = tool.value_from_text(parameter, value);
        out.push_str(&text[done..member.key.range().start]);
        out.push_str(&format!("{}: {json}", serde_json::Value::from(parameter)));
        done = member.value.range().end;
    }
    out.push_str(&text[done..]);
    (done > 0).then_some(out)
}
