//! Calls written as Python: `f(a=1, b="x")`, in a list, in tags, or one a line.
//!
//! Literals only: a name or an expression as a value is program text, not a call. A quote inside a string of the same quotes is
//! read as text only if that leaves one reading: it stands in a word, or is one of a pair around text, no punctuation follows
//! it, and Python could not go on there.

use super::grammar::{Call, Context, Step, blanks, name_length, starts_with_any};
use super::normalise::quoted;
use super::values::{DEPTH, Values};

/// What may stand behind or before a string in an expression.
const KEYWORDS: &[&str] = &["if", "else", "or", "and", "in", "not", "is", "for", "await", "lambda"];

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
                Err(true) if after < text.len() => Step::Calls(calls, text.len()),
                Err(_) => Step::Calls(calls, end),
            }
        }
        Err((Stop::Short, _)) => Step::More,
        Err((Stop::Bad, true)) if !closers.is_empty() => Step::Broken(Vec::new(), at),
        Err((Stop::Bad, _)) => Step::Not(at.max(1)),
    }
}

/// The calls and their end; or why not, and whether one had begun.
fn read(text: &str, at: usize, ctx: Context<'_>) -> Result<(Vec<Call>, usize), (Stop, bool)> {
    let mut cursor = Cursor { text, at, depth: 1, begun: false };
    list(&mut cursor, ctx).map_err(|stop| (stop, cursor.begun))
}

fn list(cursor: &mut Cursor<'_>, ctx: Context<'_>) -> Result<(Vec<Call>, usize), Stop> {
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
            match call(cursor, ctx) {
                Ok(call) => calls.push(call),
                Err(Stop::Short) if !ctx.end.is_end() => return Err(Stop::Short),
                Err(_) => return Ok((calls, end)),
            }
            continue;
        }
        calls.push(call(cursor, ctx)?);
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
    cursor.skip();
    if cursor.rest().is_empty() {
        return Err(Stop::Short);
    }
    if length == 0 || name.starts_with(|c: char| c.is_ascii_digit()) || !cursor.eat('(') {
        return Err(Stop::Bad);
    }
    cursor.begun = true;
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
    /// Containers that are open, the call's own arguments among them.
    depth: usize,
    /// A name and its parenthesis were read.
    begun: bool,
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
        Some('[' | '(' | '{') if cursor.depth >= DEPTH => Err(Stop::Bad),
        Some(opener @ ('[' | '(' | '{')) => {
            cursor.depth += 1;
            let json = match opener {
                '[' => sequence(cursor, ']'),
                '(' => sequence(cursor, ')'),
                _ => dictionary(cursor),
            }?;
            cursor.depth -= 1;
            Ok(json)
        }
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
        if cursor.eat(',') {
            continue;
        }
        if !cursor.rest().starts_with(closer) {
            return Err(if cursor.rest().is_empty() { Stop::Short } else { Stop::Bad });
        }
        // Parentheses around one value, without a comma, are just that value.
        if let ([_], ')') = (items.as_slice(), closer) {
            cursor.at += 1;
            return Ok(items.remove(0));
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
    // Behind the inner quote that has no partner yet.
    let mut open = None;
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
        let (before, behind) = (&cursor.text[..at], &cursor.text[at + 1..]);
        open = match open {
            None if quote == '\'' && in_word(before, behind)? => None,
            None if behind.starts_with(|c: char| c.is_whitespace() || matches!(c, '"' | '\'')) => {
                return Err(Stop::Bad);
            }
            None => Some(at + 1),
            Some(from) => {
                let inner = &cursor.text[from..at];
                if inner.ends_with(char::is_whitespace) || joins(inner) {
                    return Err(Stop::Bad);
                }
                None
            }
        };
        at += 1;
    }
    if open.is_some() {
        return Err(Stop::Bad);
    }
    cursor.at = at + 1;
    Ok(quoted(&unescape(&cursor.text[start..at])))
}

/// Whether an apostrophe stands inside a word: not where a keyword, or the prefix of a string, follows instead.
fn in_word(before: &str, behind: &str) -> Result<bool, Stop> {
    if !before.ends_with(char::is_alphanumeric) || !behind.starts_with(char::is_alphanumeric) {
        return Ok(false);
    }
    let length = behind.find(|c: char| !c.is_alphanumeric()).ok_or(Stop::Short)?;
    let (word, rest) = behind.split_at(length);
    let program = KEYWORDS.contains(&word) || (rest.starts_with(['"', '\'']) && is_prefix(word));
    Ok(!program)
}

/// Whether Python would read this text between two strings as what makes one expression of them: `+`, `if x ==`, `.join(`, `f`.
fn joins(text: &str) -> bool {
    let joint = |c: char| "+-*/%@&|^<>=!.,:;([{~".contains(c);
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let (first, behind) = text.split_at(text.find(|c| !word(c)).unwrap_or(text.len()));
    // `3or` is a number and a keyword.
    let last = text[text.trim_end_matches(word).len()..].trim_start_matches(|c: char| c.is_ascii_digit());
    let string = behind.starts_with(['"', '\'']) && is_prefix(first);
    let goes_on = text.starts_with(joint) || KEYWORDS.contains(&first) || string;
    let expects = text.ends_with(|c| joint(c) || matches!(c, '"' | '\''))
        || KEYWORDS.contains(&last)
        || is_prefix(last);
    is_prefix(text) || (goes_on && expects)
}

/// The letters before a string that change how it is read.
fn is_prefix(word: &str) -> bool {
    matches!(
        word.to_ascii_lowercase().as_str(),
        "r" | "b" | "u" | "f" | "t" | "br" | "rb" | "fr" | "rf" | "tr" | "rt"
    )
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
