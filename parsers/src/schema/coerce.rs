//! Values brought to the types that a schema allows: raw text (XML formats), and JSON arguments.
//!
//! It must never invent a string or a number, never pass one through a double, and never touch a value whose type the
//! schema allows.

use serde_json::Value as Schema;

use super::Coerced;
use super::branches::{Branches, Types};
use crate::json::{Kind, MAX_DEPTH, Value};
use crate::json_repair::repair_object;

/// As many notes are kept, since a list may need thousands.
const NOTES: usize = 16;

/// A piece of the arguments, and what stands there instead.
type Splice = (std::ops::Range<usize>, String);

/// Whether text is a string there, whatever it reads.
pub(super) fn text_is_string(schema: &Branches<'_>) -> bool {
    let types = schema.types();
    types.any || types == Types { string: true, ..Types::default() }
}

/// Whether any value is allowed there.
pub(super) fn is_untyped(schema: &Branches<'_>) -> bool {
    schema.types().any
}

/// Whether a JSON string stays one there.
pub(super) fn takes_text(schema: &Branches<'_>) -> bool {
    let types = schema.types();
    types.any || types.string
}

/// What a JSON scalar becomes, `depth` containers deep in the arguments, if the schema does not allow it as it is.
pub(super) fn coerce_scalar(schema: &Branches<'_>, json: &str, depth: usize) -> Option<String> {
    scalar(schema, Value::parse(json).ok()?, MAX_DEPTH.checked_sub(depth)?)
}

/// The JSON of a text value; a string when the schema says nothing.
pub(super) fn value_from_text(schema: &Branches<'_>, text: &str) -> String {
    if !text_is_string(schema)
        && let Some(json) = read_text(schema, text)
        && let Some(coerced) = coerce_value(schema, &json, MAX_DEPTH - 1)
    {
        return coerced.json;
    }
    Schema::from(text).to_string()
}

/// The first type but string that is allowed and that the text reads as. A text that the schema lists as such is a
/// string.
fn read_text(schema: &Branches<'_>, text: &str) -> Option<String> {
    let types = schema.types();
    let trimmed = text.trim_ascii();
    if types.string && schema.lists(&Schema::from(text)) == Some(true) {
        return None;
    }
    if types.null && trimmed.eq_ignore_ascii_case("null") {
        return Some("null".to_owned());
    }
    if types.integer
        && let Some(number) = integer(trimmed, !types.string)
    {
        return Some(number);
    }
    if types.number
        && let Some(number) = number(trimmed, !types.string)
    {
        return Some(number);
    }
    if types.boolean {
        let word = trimmed.to_ascii_lowercase();
        match word.as_str() {
            "true" | "false" => return Some(word),
            "1" if !types.string => return Some("true".to_owned()),
            "0" if !types.string => return Some("false".to_owned()),
            _ => {}
        }
    }
    if (types.object && trimmed.starts_with(['{', '`'])) || (types.array && trimmed.starts_with(['[', '`'])) {
        let json = repair_object(trimmed, true)?.json;
        let fits = (types.object && json.starts_with('{')) || (types.array && json.starts_with('['));
        return fits.then_some(json);
    }
    None
}

/// A whole number: `5`, `-3`; with `lax`, where text can't be meant, also `5.0`, `5.`, `+5` and `007`.
fn integer(text: &str, lax: bool) -> Option<String> {
    let whole = match text.split_once('.') {
        Some((whole, fraction)) if lax && fraction.bytes().all(|b| b == b'0') => whole,
        Some(_) => return None,
        None => text,
    };
    let (sign, digits) = match whole.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", whole.strip_prefix('+').filter(|_| lax).unwrap_or(whole)),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let plain = digits.trim_start_matches('0');
    let plain = if plain.is_empty() { "0" } else { plain };
    (lax || plain == digits).then(|| format!("{sign}{plain}"))
}

/// Any number in JSON's spelling; with `lax` also `+5`, `.5`, `5.` and `007.5`.
fn number(text: &str, lax: bool) -> Option<String> {
    let is_number = |text: &str| {
        text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
            && Value::parse(text).is_ok_and(|value| value.kind() == Kind::Number && value.raw() == text)
    };
    if is_number(text) {
        return Some(text.to_owned());
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.strip_suffix('.').unwrap_or(digits);
    let plain = digits.trim_start_matches('0');
    let zero = if plain.starts_with(|c: char| c.is_ascii_digit()) || digits.is_empty() { "" } else { "0" };
    let spelled = format!("{sign}{zero}{plain}");
    (lax && is_number(&spelled)).then_some(spelled)
}

/// The arguments with the types of the schema; unchanged when they are no JSON object.
pub(super) fn coerce(schema: &Branches<'_>, arguments: &str) -> Coerced {
    match Value::parse(arguments) {
        Ok(value) if value.kind() == Kind::Object => coerce_value(schema, arguments, MAX_DEPTH),
        _ => None,
    }
    .unwrap_or_else(|| Coerced { json: arguments.to_owned(), notes: Vec::new() })
}

/// `room`: so many levels may it have; `None` where it has more. Strings inside strings count, too: with them there is no
/// end to how deep a value can be.
fn coerce_value(schema: &Branches<'_>, json: &str, room: usize) -> Option<Coerced> {
    let mut splices = Vec::new();
    let mut notes = Vec::new();
    if let Ok(value) = Value::parse(json) {
        walk(schema, value, "", room, &mut splices, &mut notes)?;
    }
    let mut out = String::with_capacity(json.len());
    let mut done = 0;
    for (range, text) in splices {
        out.push_str(&json[done..range.start]);
        out.push_str(&text);
        done = range.end;
    }
    out.push_str(&json[done..]);
    Some(Coerced { json: out, notes })
}

fn walk(
    schema: &Branches<'_>,
    value: Value<'_>,
    path: &str,
    room: usize,
    splices: &mut Vec<Splice>,
    notes: &mut Vec<String>,
) -> Option<()> {
    match value.kind() {
        Kind::Object => {
            let room = room.checked_sub(1)?;
            for member in value.members() {
                let name = member.name();
                let path = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
                walk(&schema.property(&name), member.value, &path, room, splices, notes)?;
            }
        }
        Kind::Array => {
            let room = room.checked_sub(1)?;
            for (index, element) in value.elements().enumerate() {
                walk(&schema.element(index), element, &format!("{path}[{index}]"), room, splices, notes)?;
            }
        }
        _ => {
            if let Some(json) = scalar(schema, value, room) {
                if notes.len() < NOTES {
                    notes.push(format!("{path}: {} became {}", value.kind(), kind_of(&json)));
                }
                splices.push((value.range(), json));
            }
        }
    }
    Some(())
}

/// What a scalar becomes, if the schema does not allow it as it is.
fn scalar(schema: &Branches<'_>, value: Value<'_>, room: usize) -> Option<String> {
    let types = schema.types();
    if types.any {
        return None;
    }
    match value.kind() {
        Kind::String if !types.string => {
            let json = read_text(schema, &value.as_str()?)?;
            Some(coerce_value(schema, &json, room)?.json)
        }
        Kind::Number if !types.number && !types.integer => match value.raw() {
            raw if types.string => Some(format!("\"{raw}\"")),
            "1" if types.boolean => Some("true".to_owned()),
            "0" if types.boolean => Some("false".to_owned()),
            _ => None,
        },
        Kind::Bool if !types.boolean && types.string => Some(format!("\"{}\"", value.raw())),
        _ => None,
    }
}

fn kind_of(json: &str) -> Kind {
    Value::parse(json).map_or(Kind::Null, Value::kind)
}
