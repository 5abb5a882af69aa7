//! Calls written as Python: `f(a=1, b="x")`, in a list, in tags, or one a line.
//!
//! Literals only: a name or an expression as a value is program text, not a call. Its
//! strings are read in `python_string.rs`.

use super::grammar::{Call, Context, End, Step, blanks, name_length, starts_with_any};
use super::python_string;
use super::values::{DEPTH, Values};

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
    let mut cursor = Cursor { text, at, depth: 1, begun: false, wrapped: !closers.is_empty() };
    let (mut calls, mut good) = (Vec::new(), at);
    match list(&mut cursor, &mut calls, &mut good, ctx) {
        Ok(end) => {
            let after = end + blanks(&text[end..]);
            match starts_with_any(&text[after..], closers) {
                Ok(closer) => Step::Calls(calls, after + closer.len()),
                Err(true) if !ctx.end.is_end() => Step::More,
                Err(_) if after == text.len() && !ctx.end.is_end() && !closers.is_empty() => Step::More,
                Err(true) if after < text.len() => Step::Calls(calls, text.len()),
                Err(_) => Step::Calls(calls, end),
            }
        }
        Err(Stop::Short) if ctx.end == End::Cut && !calls.is_empty() => Step::CutAfter(calls),
        // In tags, the calls before the one that was never closed are good.
        Err(Stop::Short) if ctx.end == End::Stop && !calls.is_empty() && !closers.is_empty() => {
            Step::Before(calls, good, text.len())
        }
        Err(Stop::Short) => Step::More,
        Err(Stop::Bad) if cursor.begun && !closers.is_empty() => Step::Broken(calls, good),
        Err(Stop::Bad) => Step::Not(at.max(1)),
    }
}

/// The end of the calls. `good`: where what follows those that were read begins.
fn list(
    cursor: &mut Cursor<'_>,
    calls: &mut Vec<Call>,
    good: &mut usize,
    ctx: Context<'_>,
) -> Result<usize, Stop> {
    let list = cursor.eat('[');
    loop {
        let end = cursor.at;
        cursor.skip();
        if list && cursor.eat(']') {
            return if calls.is_empty() { Err(Stop::Bad) } else { Ok(cursor.at) };
        }
        if !calls.is_empty() {
            *good = cursor.at;
        }
        if !list && !calls.is_empty() {
            // Bare calls follow each other, one a line, as long as they are calls.
            cursor.begun = false;
            match call(cursor, ctx) {
                Ok(call) => calls.push(call),
                // Cut in tags, or behind its parenthesis, it is no text.
                Err(Stop::Short)
                    if !ctx.end.is_end()
                        || (ctx.end == End::Cut
                            && (cursor.begun || (cursor.wrapped && cursor.at < cursor.text.len()))) =>
                {
                    return Err(Stop::Short);
                }
                Err(_) => return Ok(end),
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
    if name == "print" && ctx.tools.resolve(name).is_none() {
        // Gemma prints what a call gives.
        if cursor.depth >= DEPTH {
            return Err(Stop::Bad);
        }
        cursor.depth += 1;
        cursor.skip();
        let call = call(cursor, ctx)?;
        cursor.depth -= 1;
        cursor.skip();
        return match cursor.eat(')') {
            true => Ok(call),
            false if cursor.rest().is_empty() => Err(Stop::Short),
            false => Err(Stop::Bad),
        };
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
        match bare && values.is_string(key) && !values.is_untyped(key) {
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
    /// In tags.
    wrapped: bool,
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

/// A Python number as JSON: leading zeros, a plus sign and underscores between digits go. What has no digits is none.
fn number(word: &str) -> Option<String> {
    let mantissa = word.split(['e', 'E']).next().unwrap_or(word);
    let separated = word.split('_').collect::<Vec<_>>();
    let between = separated.windows(2).all(|parts| {
        parts[0].ends_with(|c: char| c.is_ascii_digit()) && parts[1].starts_with(|c: char| c.is_ascii_digit())
    });
    if !between || !mantissa.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
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

fn string(cursor: &mut Cursor<'_>, quote: char) -> Result<String, Stop> {
    let (json, used) = python_string::read(cursor.rest(), quote)?;
    cursor.at += used;
    Ok(json)
}
