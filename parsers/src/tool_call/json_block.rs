//! Calls written as JSON: one object, several in a row, or an array, in any wrapper.
//!
//! The end of an object is found by reading JSON, so a closing tag inside a string is data. Only where that fails is the text up
//! to the closing tag mended as a whole. What the model left open is closed only if it ended its turn itself.

use super::formats;
use super::grammar::{
    Call, Context, End, Step, blanks, find_any, loose_blanks, may_be_blank, starts_with_any, window,
};
use super::normalise;

/// Longest comment behind a call, in bytes.
const COMMENT: usize = 256;

/// Where a JSON value ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scan {
    /// After these many bytes it is balanced.
    End(usize),
    /// A closing marker stands here, outside of any string, before the value is balanced.
    Closer(usize),
    /// It goes on beyond the text.
    Open,
}

/// Finds the end of the JSON (or nearly JSON: single quotes) value at the start of the text.
pub(crate) fn scan(text: &str, closers: &[&str]) -> Scan {
    let bytes = text.as_bytes();
    let (mut depth, mut at, mut before) = (0usize, 0, b'{');
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => match string_end(bytes, at) {
                Some(end) => at = end - 1,
                None => return Scan::Open,
            },
            b'\'' if matches!(before, b'{' | b'[' | b',' | b':') => match single_quoted_end(bytes, at) {
                Some(end) => at = end - 1,
                None => return Scan::Open,
            },
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Scan::End(at + 1);
                }
            }
            b'<' | b'`' if starts_with_any(&text[at..], closers).is_ok() => return Scan::Closer(at),
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            before = byte;
        }
        at += 1;
    }
    Scan::Open
}

/// End (exclusive) of the string that opens at `at`.
pub(crate) fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// End of a single-quoted string: an apostrophe inside is followed by something else than punctuation.
fn single_quoted_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at += memchr::memchr2(b'\'', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'\\' {
            at += 2;
            continue;
        }
        let next = bytes[at + 1..].iter().find(|byte| !byte.is_ascii_whitespace())?;
        if matches!(next, b',' | b':' | b'}' | b']') {
            return Some(at + 1);
        }
        at += 1;
    }
}

/// Reads calls from `at` on: `{…}`, `{…} {…}`, `{…}; {…}`, `[{…}, {…}]`, then one of the closers, if the format has any.
pub(crate) fn list(text: &str, at: usize, closers: &[&str], ctx: Context<'_>) -> Step {
    let fenced = text[..at].contains("```");
    let (mut calls, mut at, mut array) = (Vec::new(), at, false);
    if text[at..].starts_with('[') {
        array = true;
        at += 1;
    }
    loop {
        at += passed(&text[at..], &[',', ';']);
        let rest = &text[at..];
        if rest.starts_with('{') {
            match item(rest, closers, ctx) {
                Item::Calls(found, used) => {
                    calls.extend(found);
                    at += used;
                }
                Item::Closed(found, used) => {
                    calls.extend(found);
                    return Step::Calls(calls, at + used);
                }
                Item::More if ctx.end == End::Cut && !calls.is_empty() => return Step::CutAfter(calls),
                Item::More => return Step::More,
                Item::Bad => return Step::Broken(calls, at),
            }
        } else if may_be_blank(rest) {
            return if ctx.end.is_end() && !calls.is_empty() { Step::Calls(calls, at) } else { Step::More };
        } else if array && rest.starts_with(']') {
            at += 1;
            return closed(text, at, calls, closers, fenced, ctx);
        } else if calls.is_empty() {
            return Step::Not(at);
        } else {
            return closed(text, at, calls, closers, fenced, ctx);
        }
    }
}

/// Bytes of these characters and of blanks, also written out, at the start.
fn passed(text: &str, characters: &[char]) -> usize {
    let mut rest = text;
    loop {
        let blank = loose_blanks(rest);
        let behind = rest[blank..].trim_start_matches(characters);
        if behind.len() == rest.len() {
            return text.len() - rest.len();
        }
        rest = behind;
    }
}

/// What follows the last object: surplus closers, the end of a fence, the wrapper's closer; all else is not ours.
fn closed(text: &str, at: usize, calls: Vec<Call>, closers: &[&str], fenced: bool, ctx: Context<'_>) -> Step {
    if closers.is_empty() && !fenced {
        return Step::Calls(calls, at);
    }
    let mut end = at;
    loop {
        let rest = &text[end..];
        end += passed(rest, &['}', ']']);
        let rest = &text[end..];
        match starts_with_any(rest, closers) {
            Ok(closer) => return Step::Calls(calls, end + closer.len()),
            Err(true) if !ctx.end.is_end() => return Step::More,
            // Half of the closer, at the end of the answer.
            Err(true) => return Step::Calls(calls, text.len()),
            Err(false) => {}
        }
        match comment(rest, closers, ctx) {
            Ok(0) => {}
            Ok(used) => {
                end += used;
                continue;
            }
            Err(()) => return Step::More,
        }
        if let Some(after) = rest.strip_prefix("```").filter(|_| fenced) {
            end = text.len() - after.len();
        } else if !ctx.end.is_end() && (may_be_blank(rest) || (fenced && "```".starts_with(rest))) {
            return Step::More;
        } else {
            // Blanks before foreign text are that text's own.
            return Step::Calls(calls, if rest.is_empty() { end } else { at });
        }
    }
}

/// Bytes of a comment behind the last object, if the wrapper's closer stands on the next line. `Err` while that is open.
fn comment(text: &str, closers: &[&str], ctx: Context<'_>) -> Result<usize, ()> {
    let (open, near) = (!ctx.end.is_end(), window(text, COMMENT));
    if closers.is_empty() || !near.starts_with("//") {
        return if open && !closers.is_empty() && text == "/" { Err(()) } else { Ok(0) };
    }
    let Some(line) = near.find('\n') else {
        return if open && near.len() == text.len() { Err(()) } else { Ok(0) };
    };
    let behind = &text[line + blanks(&text[line..])..];
    match starts_with_any(behind, closers) {
        Ok(_) => Ok(text.len() - behind.len()),
        Err(true) if open => Err(()),
        Err(_) => Ok(0),
    }
}

enum Item {
    /// Calls, and the bytes of the object.
    Calls(Vec<Call>, usize),
    /// Calls, and the bytes up to the end of the wrapper's closer.
    Closed(Vec<Call>, usize),
    More,
    /// No call.
    Bad,
}

fn item(text: &str, closers: &[&str], ctx: Context<'_>) -> Item {
    let read = |json: &str, complete| normalise::calls(json, complete, ctx);
    match scan(text, closers) {
        Scan::End(end) => match read(&text[..end], true) {
            Some(calls) => Item::Calls(calls, end),
            None => {
                ended(text, next_opener(&text[..end]), ctx).unwrap_or_else(|| whole(text, end, closers, ctx))
            }
        },
        Scan::Closer(at) => {
            ended(text, next_opener(&text[..at]), ctx).unwrap_or_else(|| whole(text, 0, closers, ctx))
        }
        Scan::Open if ctx.end == End::Stop => match read(text, false) {
            Some(calls) => Item::Calls(calls, text.len()),
            None => {
                let end = next_opener(text).unwrap_or(text.len());
                ended(text, Some(end), ctx).unwrap_or_else(|| whole(text, 0, closers, ctx))
            }
        },
        Scan::Open => Item::More,
    }
}

/// An object whose last closers are missing where the next call begins, or where the model ended its turn: with all values
/// closed and all required arguments there.
fn ended(text: &str, end: Option<usize>, ctx: Context<'_>) -> Option<Item> {
    let body = text[..end?].trim_end();
    if !body.ends_with(['}', ']']) || scan(body, &[]) != Scan::Open {
        return None;
    }
    let calls = normalise::calls(body, true, ctx)?;
    let complete = |call: &Call| !call.declared || normalise::has_required(call, ctx.tools);
    calls.iter().all(complete).then_some(Item::Calls(calls, body.len()))
}

/// Where the opener of another call stands, outside of any string.
fn next_opener(text: &str) -> Option<usize> {
    let (bytes, mut at) = (text.as_bytes(), 0);
    loop {
        at += memchr::memchr2(b'"', b'<', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            at = string_end(bytes, at)?;
        } else if formats::at(&text[at..]).is_ok() {
            return Some(at);
        } else {
            at += 1;
        }
    }
}

/// Mends everything up to the closing marker, where reading JSON did not find the end.
fn whole(text: &str, from: usize, closers: &[&str], ctx: Context<'_>) -> Item {
    if closers.is_empty() {
        return Item::Bad;
    }
    let Some((at, closer)) = find_any(&text[from..], closers) else {
        return if ctx.end.is_end() { Item::Bad } else { Item::More };
    };
    let body = text[..from + at].trim_end();
    let body = body.strip_suffix("```").unwrap_or(body);
    match normalise::calls(body, true, ctx) {
        Some(calls) => Item::Closed(calls, from + at + closer.len()),
        None => Item::Bad,
    }
}

/// One object of arguments at the start of the text, for formats that name the tool beside it.
#[derive(Debug)]
pub(crate) enum Body {
    More,
    Bad,
    /// Its JSON, the notes, and the bytes it takes (with a fence around it).
    Object(String, Vec<crate::event::Note>, usize),
}

/// Reads the arguments of a named call: an object, in a fence or not, up to one of the closers.
pub(crate) fn arguments(text: &str, closers: &[&str], ctx: Context<'_>) -> Body {
    let Ok(start) = skip_fence(text) else {
        return if ctx.end == End::Stop { Body::Bad } else { Body::More };
    };
    let rest = &text[start..];
    if rest.is_empty() {
        return Body::More;
    }
    let object = |json: &str, complete, used: usize| match normalise::object_text(json, complete) {
        Some((json, notes)) => Body::Object(json, notes, used),
        None => Body::Bad,
    };
    if !rest.starts_with('{') {
        // A call without arguments, closed at once.
        return match starts_with_any(rest, closers) {
            Ok(_) => Body::Object("{}".to_owned(), Vec::new(), start),
            Err(true) if !ctx.end.is_end() => Body::More,
            Err(_) => Body::Bad,
        };
    }
    match scan(rest, closers) {
        Scan::End(end) => {
            let mut used = start + end;
            if start > blanks(text) {
                let after = text[used..].trim_start();
                if let Some(after) = after.strip_prefix("```") {
                    used = text.len() - after.len();
                } else if "```".starts_with(after) && !ctx.end.is_end() {
                    return Body::More;
                }
            }
            object(&rest[..end], true, used)
        }
        Scan::Closer(at) => object(rest[..at].trim_end().trim_end_matches('`'), true, start + at),
        Scan::Open if ctx.end == End::Stop => match find_any(rest, closers) {
            Some((at, _)) => object(&rest[..at], true, start + at),
            None => object(rest, false, text.len()),
        },
        Scan::Open => Body::More,
    }
}

/// Bytes before the body: blanks and the opening line of a fence. `Err` while that line is not complete.
pub(crate) fn skip_fence(text: &str) -> Result<usize, ()> {
    let start = blanks(text);
    let rest = &text[start..];
    if !rest.starts_with('`') {
        return Ok(start);
    }
    if !rest.starts_with("```") {
        return if "```".starts_with(rest) { Err(()) } else { Ok(start) };
    }
    let label = rest.trim_start_matches('`');
    let body = label.find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '-')).ok_or(())?;
    let at = text.len() - label.len() + body;
    Ok(at + blanks(&text[at..]))
}
