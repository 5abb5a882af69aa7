//! The methods of strings, as the engine's language has them.
//!
//! Why not pycompat's: it counts bytes where Python counts letters, knows Rust's white space and line ends, and drops arguments by name. What
//! of Python's tables of letters is not mirrored here (what is upper case, a digit or a title beyond ASCII) fails, so that nothing is counted. llama.cpp's
//! own are fewer; what it takes differently is told by the dialect. Whatever makes more than it is given is charged before it is made.

use std::collections::HashSet;

use minijinja::value::{Kwargs, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::budget::{self, Budget};
use super::text::Text;
use crate::prompt::normalise::Normalisation;

/// Where `str.splitlines` cuts.
const LINE_ENDS: [char; 10] =
    ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];

/// So many bytes are looked through one by one.
const FEW: usize = 32;

fn wrong(reason: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// Calls a method of `value`, or of the text `text` that it is.
pub(super) fn method(
    dialect: Normalisation,
    state: &State,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let budget = Budget::of(state);
    args.iter().try_for_each(|arg| budget.charge(budget::weight(arg)))?;
    let Some(text) = value.as_str() else {
        if matches!(name, "count" | "index") {
            budget::charge_all(&budget, value)?;
        }
        return pycompat::unknown_method_callback(state, value, name, args);
    };
    if let Some(result) = of_both(dialect, state, text, name, args) {
        return result;
    }
    match dialect {
        Normalisation::Vllm => of_python(state, text, name, args),
        Normalisation::LlamaCpp => pycompat::unknown_method_callback(state, value, name, args),
    }
}

/// Methods that both engines have. None: there is none of that name.
fn of_both(
    dialect: Normalisation,
    state: &State,
    text: &str,
    name: &str,
    args: &[Value],
) -> Option<Result<Value, Error>> {
    let word = |at: usize| args.get(at).and_then(Value::as_str);
    let needed = |at: usize| word(at).ok_or_else(|| wrong("the method takes a text"));
    let stripped = |left, right| match args.first() {
        Some(chars) if !chars.is_none() && chars.as_str().is_none() => {
            Err(wrong("only the letters of a text can be stripped"))
        }
        _ => Ok(Value::from(strip(dialect, text, word(0), left, right))),
    };
    Some(match name {
        "strip" => stripped(true, true),
        "lstrip" => stripped(true, false),
        "rstrip" => stripped(false, true),
        "split" => split_by(dialect, state, text, args, false),
        "rsplit" => split_by(dialect, state, text, args, true),
        "replace" => match (word(0), word(1)) {
            (Some(from), Some(to)) => replace(state, text, from, to, args.get(2).and_then(Value::as_i64)),
            _ => Err(Error::new(ErrorKind::MissingArgument, "replace takes two strings")),
        },
        "removeprefix" => needed(0).map(|prefix| Value::from(text.strip_prefix(prefix).unwrap_or(text))),
        "removesuffix" => needed(0).map(|suffix| Value::from(text.strip_suffix(suffix).unwrap_or(text))),
        "count" => needed(0).map(|part| Value::from(text.matches(part).count())),
        "join" => match args.first() {
            Some(items) => joined(dialect, state, items, text),
            None => Err(Error::new(ErrorKind::MissingArgument, "join takes a list")),
        },
        // A width in a format makes as much as it says.
        "format" if text.contains(':') => Err(wrong("formats with a specification are not rendered")),
        _ => return None,
    })
}

fn of_python(state: &State, text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let word = || args.first().and_then(Value::as_str).ok_or_else(|| wrong("the method takes a text"));
    let place = |found: Option<usize>| match found {
        Some(at) => Value::from(text.get(..at).unwrap_or_default().chars().count()),
        None => Value::from(-1),
    };
    let letters = |holds: fn(&str) -> bool| match text.is_ascii() {
        true => Ok(Value::from(holds(text))),
        false => Err(wrong("letters beyond ASCII are told apart by Python's own tables")),
    };
    let changed = |change: fn(&str) -> String| match text.is_ascii() {
        true => Ok(Value::from(change(text))),
        false => Err(wrong("letters beyond ASCII are written by Python's own tables")),
    };
    match name {
        "upper" => Ok(Value::from(text.to_uppercase())),
        "lower" => Ok(Value::from(text.to_lowercase())),
        "startswith" => word().map(|prefix| Value::from(text.starts_with(prefix))),
        "endswith" => word().map(|suffix| Value::from(text.ends_with(suffix))),
        "find" => word().map(|part| place(text.find(part))),
        "rfind" => word().map(|part| place(text.rfind(part))),
        "splitlines" if args.is_empty() => {
            let text = text.replace("\r\n", "\n");
            let mut lines: Vec<&str> = text.split(LINE_ENDS).collect();
            if lines.last().is_some_and(|last| last.is_empty()) {
                lines.pop();
            }
            Budget::of(state).charge(lines.len() as u64 * 48)?;
            Ok(lines.into_iter().map(Value::from).collect())
        }
        "format" => formatted(state, text, args),
        "capitalize" => changed(capitalized),
        "title" => changed(titled),
        "isascii" => Ok(Value::from(text.is_ascii())),
        "isspace" => Ok(Value::from(!text.is_empty() && text.chars().all(is_python_space))),
        "isdigit" | "isnumeric" => letters(|text| all(text, |byte| byte.is_ascii_digit())),
        "isalpha" => letters(|text| all(text, |byte| byte.is_ascii_alphabetic())),
        "isalnum" => letters(|text| all(text, |byte| byte.is_ascii_alphanumeric())),
        "isupper" => letters(|text| cased(text, |byte| byte.is_ascii_lowercase())),
        "islower" => letters(|text| cased(text, |byte| byte.is_ascii_uppercase())),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn all(text: &str, holds: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(holds)
}

/// Whether there is a letter and none of the other case.
fn cased(text: &str, other: impl Fn(u8) -> bool) -> bool {
    text.bytes().any(|byte| byte.is_ascii_alphabetic()) && !text.bytes().any(other)
}

/// `str.capitalize` of ASCII.
pub(super) fn capitalized(text: &str) -> String {
    let mut text = text.to_ascii_lowercase();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text
}

/// `str.title` of ASCII: a word is a run of letters.
fn titled(text: &str) -> String {
    let mut within = false;
    let letter = |c: char| {
        let changed = if within { c.to_ascii_lowercase() } else { c.to_ascii_uppercase() };
        within = c.is_ascii_alphabetic();
        changed
    };
    text.chars().map(letter).collect()
}

/// `str.format` with texts and whole numbers in places that have no name, number or form.
fn formatted(state: &State, text: &str, args: &[Value]) -> Result<Value, Error> {
    let parts: Vec<&str> = text.split("{}").collect();
    let is_plain = |arg: &Value| arg.as_str().is_some() || arg.is_integer();
    if parts.iter().any(|part| part.contains(['{', '}']))
        || parts.len() > args.len() + 1
        || !args.iter().all(is_plain)
    {
        return Err(wrong("only {} is formatted, with texts and whole numbers"));
    }
    let mut out = Text::new(Normalisation::Vllm, Budget::of(state));
    for (at, part) in parts.iter().enumerate() {
        if let Some(arg) = at.checked_sub(1).and_then(|before| args.get(before)) {
            out.put_value(arg)?;
        }
        out.put(part)?;
    }
    Ok(Value::from(out.finish()))
}

/// What Python takes for white space: all that Unicode does, and the separators of ASCII.
fn is_python_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// `str.strip()`; C++ `isspace` knows the white space of ASCII.
pub(super) fn strip<'a>(
    dialect: Normalisation,
    text: &'a str,
    chars: Option<&str>,
    left: bool,
    right: bool,
) -> &'a str {
    let many: Option<HashSet<char>> =
        chars.filter(|chars| chars.len() > FEW).map(|chars| chars.chars().collect());
    let goes = |c: char| match (chars, dialect) {
        (Some(chars), _) => many.as_ref().map_or_else(|| chars.contains(c), |many| many.contains(&c)),
        (None, Normalisation::Vllm) => is_python_space(c),
        (None, Normalisation::LlamaCpp) => matches!(c, ' ' | '\t'..='\r'),
    };
    let text = if left { text.trim_start_matches(goes) } else { text };
    if right { text.trim_end_matches(goes) } else { text }
}

fn split_by(
    dialect: Normalisation,
    state: &State,
    text: &str,
    args: &[Value],
    from_right: bool,
) -> Result<Value, Error> {
    let (by, most, named): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let by = by.or(named.get("sep")?).filter(|by| !by.is_none());
    let most = most.or(named.get("maxsplit")?);
    named.assert_all_used()?;
    match &by {
        Some(by) if by.as_str().is_none() => Err(wrong("a text can be split by a text")),
        _ => split(dialect, state, text, by.as_ref().and_then(Value::as_str), most, from_right),
    }
}

pub(super) fn split(
    dialect: Normalisation,
    state: &State,
    text: &str,
    by: Option<&str>,
    most: Option<i64>,
    from_right: bool,
) -> Result<Value, Error> {
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX - 1);
    // llama.cpp has no split at white space: without a separator it cuts at each blank.
    let by = by.or((dialect == Normalisation::LlamaCpp).then_some(" "));
    let Some(by) = by else {
        if most != usize::MAX - 1 || from_right {
            return Err(wrong("a split at white space takes no limit"));
        }
        Budget::of(state).charge(text.len() as u64 * 16)?;
        return Ok(text.split(is_python_space).filter(|word| !word.is_empty()).map(Value::from).collect());
    };
    if by.is_empty() {
        return Err(wrong("empty separator"));
    }
    Budget::of(state).charge((text.matches(by).count().min(most) as u64 + 1) * 48)?;
    if from_right {
        let mut parts: Vec<Value> = text.rsplitn(most + 1, by).map(Value::from).collect();
        parts.reverse();
        return Ok(Value::from(parts));
    }
    Ok(text.splitn(most + 1, by).map(Value::from).collect())
}

pub(super) fn replace(
    state: &State,
    text: &str,
    from: &str,
    to: &str,
    most: Option<i64>,
) -> Result<Value, Error> {
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let found = text.matches(from).take(most).count() as u64;
    Budget::of(state).charge(found.saturating_mul(to.len() as u64).saturating_add(text.len() as u64))?;
    Ok(Value::from(text.replacen(from, to, most)))
}

/// `str.join`, which Python refuses for what is no text.
fn joined(dialect: Normalisation, state: &State, items: &Value, by: &str) -> Result<Value, Error> {
    let mut text = Text::new(dialect, Budget::of(state));
    for (at, item) in items.try_iter()?.enumerate() {
        if dialect == Normalisation::Vllm && item.as_str().is_none() {
            return Err(wrong("only texts are joined"));
        }
        text.put(if at > 0 { by } else { "" })?;
        text.put_value(&item)?;
    }
    Ok(Value::from(text.finish()))
}

/// The filter `indent`. To Python a line may end in many ways; all are line feeds afterwards.
pub(super) fn indent(
    dialect: Normalisation,
    state: &State,
    text: &str,
    width: &Value,
    first: bool,
    blank: bool,
) -> Result<String, Error> {
    let by = match width.as_str() {
        Some(by) => by.to_owned(),
        None => {
            let width = u64::try_from(width.clone())?;
            Budget::of(state).charge(width)?;
            " ".repeat(width as usize)
        }
    };
    let breaks = match dialect {
        Normalisation::Vllm => &LINE_ENDS[..],
        Normalisation::LlamaCpp => &['\n'],
    };
    let text = &if dialect == Normalisation::Vllm { text.replace("\r\n", "\n") } else { text.to_owned() };
    let lines = text.split(breaks).count() as u64;
    Budget::of(state).charge(lines.saturating_mul(by.len() as u64).saturating_add(text.len() as u64))?;
    let mut out = String::with_capacity(text.len());
    for (at, line) in text.split(breaks).enumerate() {
        if at > 0 {
            out.push('\n');
        }
        if if at == 0 { first } else { blank || !line.is_empty() } {
            out.push_str(&by);
        }
        out.push_str(line);
    }
    Ok(out)
}
