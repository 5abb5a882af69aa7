//! Calls written as Python: `f(a=1, b="x")`, in a list, in tags, or one a line.
//!
//! Literals only: a name or an expression as a value is program text, not a call. A quote inside a string of the same quotes is
//! read as one that ends nothing unless punctuation follows, which leaves one reading.

use super::grammar::{Call, Context, Step, blanks, name_length, starts_with_any};
use super::normalise::quoted;
use super::values::Values;

/// Why reading stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The text ends here.
    Short,
    /// This is no call.
    Bad,
}

/// Reads calls from `at` on: `[f(…), g(…)]`, or one or several bare ones; then one of the closers, if there are any.
pub(crate) fn calls(text: &str, at: usize, closers: &[&str], ctx: Context<'_>) -> Step {
    match read(text, at, ctx) {
        Ok((calls, end)) => {
            let after = end + blanks(&text[end..]);
            match starts_with_any(&text[after..], closers) {
                Ok(closer) => Step::Calls(calls, after + closer.len()),
                Err(true) if !ctx.end.is_end() => Step::More,
                Err(_) if after == text.len() && !ctx.end.is_end() && !closers.is_empty() => Step::More,
                Err(_) => Step::Calls(calls, end),
            }
        }
        Err(Stop::Short) => Step::More,
        Err(Stop::Bad) => Step::Not(at.max(1)),
    }
}

fn read(text: &str, at: usize, ctx: Context<'_>) -> Result<(Vec<Call>, usize), Stop> {
    let mut cursor = Cursor { text, at };
    let list = cursor.eat('[');
    let mut calls = Vec::new();
    loop {
        let end = cursor.at;
        cursor.skip();
        if list && cursor.eat(']') {
            return if calls.is_empty() { Err(Stop::Bad) } else { Ok((calls, cursor.at)) };
        }
        if !list && !calls.is_empty() {
            // Bare calls follow each other, one a line, as long as they are calls.
            match call(&mut cursor, ctx) {
                Ok(call) => calls.push(call),
                Err(Stop::Short) if !ctx.end.is_end() => return Err(Stop::Short),
                Err(_) => return Ok((calls, end)),
            }
            continue;
        }
        calls.push(call(&mut cursor, ctx)?);
        cursor.skip();
        if list && !cursor.eat(',') && !cursor.rest().starts_with(']') {
            return Err(if cursor.rest().is_empty() { Stop::Short } else { Stop::Bad });
        }
    }
}

/// `name(k=v, …)` or `name.call(k=v, …)`.
fn call(cursor: &mut Cursor<'_>, ctx: Context<'_>) -> Result<Call, Stop> {
    let length = name_length(cursor.rest());
    let name = &cursor.rest()[..length];
    if length == cursor.rest().len() {
        return Err(Stop::Short);
    }
    cursor.at += length;
    if length == 0 || name.starts_with(|c: char| c.is_ascii_digit()) || !cursor.eat('(') {
        return Err(Stop::Bad);
    }
    let name = name.strip_suffix(".call").filter(|_| ctx.tools.resolve(name).is_none()).unwrap_or(name);
    let mut values = Values::new(name, ctx.tools);
    loop {
        cursor.skip();
        if cursor.eat(')') {
            return Ok(values.call());
        }
        let length = name_length(cursor.rest());
        let key = &cursor.rest()[..length];
        cursor.at += length;
        cursor.skip();
        if cursor.rest().is_empty() {
            return Err(Stop::Short);
        }
        if key.is_empty() || !cursor.eat('=') {
            return Err(Stop::Bad);
        }
        cursor.skip();
        let start = cursor.at;
        let json = value(cursor)?;
        let source = &cursor.text[start..cursor.at];
        let bare = !source.starts_with(['"', '\'', '[', '{', '(']);
        match bare && values.is_string(key) {
            true => values.push(key, source),
            false => values.push_json(key, json),
        }
        cursor.skip();
        if !cursor.eat(',') && !cursor.rest().starts_with(')') {
            return Err(if cursor.rest().is_empty() { Stop::Short } else { Stop::Bad });
        }
    }
}

struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Cursor<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip(&mut self) {
        self.at += blanks(self.rest());
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.rest().starts_with(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }
}

/// A literal, as JSON.
fn value(cursor: &mut Cursor<'_>) -> Result<String, Stop> {
    match cursor.rest().chars().next() {
        None => Err(Stop::Short),
        Some(quote @ ('"' | '\'')) => string(cursor, quote),
        Some('[') => sequence(cursor, ']'),
        Some('(') => sequence(cursor, ')'),
        Some('{') => dictionary(cursor),
        Some(_) => scalar(cursor),
    }
}

fn sequence(cursor: &mut Cursor<'_>, closer: char) -> Result<String, Stop> {
    cursor.at += 1;
    let mut items = Vec::new();
    loop {
        cursor.skip();
        if cursor.eat(closer) {
            return Ok(format!("[{}]", items.join(", ")));
        }
        items.push(value(cursor)?);
        cursor.skip();
        if !cursor.eat(',') && !cursor.rest().starts_with(closer) {
            return Err(if cursor.rest().is_empty() { Stop::Short } else { Stop::Bad });
        }
    }
}

fn dictionary(cursor: &mut Cursor<'_>) -> Result<String, Stop> {
    cursor.at += 1;
    let mut members = Vec::new();
    loop {
        cursor.skip();
        if cursor.eat('}') {
            return Ok(format!("{{{}}}", members.join(", ")));
        }
        let Some(quote @ ('"' | '\'')) = cursor.rest().chars().next() else {
            return Err(if cursor.rest().is_empty() { Stop::Short } else { Stop::Bad });
        };
        let key = string(cursor, quote)?;
        cursor.skip();
        if !cursor.eat(':') {
            return Err(if cursor.rest().is_empty() { Stop::Short } else { Stop::Bad });
        }
        cursor.skip();
        members.push(format!("{key}: {}", value(cursor)?));
        cursor.skip();
        if !cursor.eat(',') && !cursor.rest().starts_with('}') {
            return Err(if cursor.rest().is_empty() { Stop::Short } else { Stop::Bad });
        }
    }
}

/// A number, True, False, None, and their JSON spellings.
fn scalar(cursor: &mut Cursor<'_>) -> Result<String, Stop> {
    let rest = cursor.rest();
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_');
    let length = rest.find(|c| !part(c)).ok_or(Stop::Short)?;
    let word = &rest[..length];
    let json = match word {
        "True" | "true" => "true".to_owned(),
        "False" | "false" => "false".to_owned(),
        "None" | "null" => "null".to_owned(),
        _ => number(word).ok_or(Stop::Bad)?,
    };
    cursor.at += length;
    Ok(json)
}

/// A Python number as JSON: leading zeros, a plus sign and underscores between digits go.
fn number(word: &str) -> Option<String> {
    let plain = word.replace('_', "");
    let (sign, digits) = match plain.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let whole = digits.trim_start_matches('0');
    let digits = if whole.starts_with(|c: char| c.is_ascii_digit()) {
        whole.to_owned()
    } else {
        format!("0{}", whole.strip_prefix("0").unwrap_or(whole))
    };
    let json = format!("{sign}{digits}");
    let json = json.strip_suffix('.').map_or(json.clone(), |whole| format!("{whole}.0"));
    serde_json::from_str::<serde_json::Number>(&json).is_ok().then_some(json)
}

/// A string literal, with Python's escapes; triple quotes too.
fn string(cursor: &mut Cursor<'_>, quote: char) -> Result<String, Stop> {
    let triple = [quote; 3].iter().collect::<String>();
    if cursor.rest().starts_with(&triple) {
        let body = &cursor.rest()[3..];
        let end = body.find(&triple).ok_or(Stop::Short)?;
        cursor.at += end + 6;
        return Ok(quoted(&unescape(&body[..end])));
    }
    let start = cursor.at + 1;
    let bytes = cursor.text.as_bytes();
    let mut at = start;
    loop {
        let found = bytes.get(at..).and_then(|rest| memchr::memchr2(quote as u8, b'\\', rest));
        at += found.ok_or(Stop::Short)?;
        if bytes[at] == b'\\' {
            at += 2;
            continue;
        }
        let next = bytes[at + 1..].iter().find(|byte| !byte.is_ascii_whitespace()).ok_or(Stop::Short)?;
        if matches!(next, b',' | b')' | b']' | b'}' | b':') {
            break;
        }
        at += 1;
    }
    cursor.at = at + 1;
    Ok(quoted(&unescape(&cursor.text[start..at])))
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(c) = rest.chars().next() else {
            plain.push('\\');
            break;
        };
        let digits = match c {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        let code = (digits > 0).then(|| rest.get(1..=digits)).flatten();
        let code = code.and_then(|code| u32::from_str_radix(code, 16).ok()).and_then(char::from_u32);
        rest = &rest[c.len_utf8()..];
        match (c, code) {
            (_, Some(code)) => {
                plain.push(code);
                rest = &rest[digits..];
            }
            ('n', _) => plain.push('\n'),
            ('t', _) => plain.push('\t'),
            ('r', _) => plain.push('\r'),
            ('\\' | '\'' | '"', _) => plain.push(c),
            ('\n', _) => {}
            // Python keeps the backslash of an escape that it does not know.
            (c, _) => plain.extend(['\\', c]),
        }
    }
    plain.push_str(rest);
    plain
}
