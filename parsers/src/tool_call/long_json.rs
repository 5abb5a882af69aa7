//! Arguments written as JSON, while they stream: strings leave as they come, all else when it is complete.
//!
//! Inside a string the same damage is mended as in a held call, character by character: raw control characters are escaped,
//! unknown escapes keep their backslash, and a quote that neither `,` nor `}` follows is part of the text.

use memchr::memchr;

use crate::json::Value;
use crate::json_repair;

use super::grammar::{End, window};
use super::json_block::{self, Scan};
use super::long::{Flow, Target};
use super::normalise::{ARGUMENTS, NAMES, OTHERS, quoted};

/// A member behind a call's arguments is looked for in so many bytes.
const NEAR: usize = 256;

/// `{"name": "N", "arguments": {`: the tool's name, and the bytes up to behind the brace of its arguments.
pub(crate) fn head(text: &str, at: usize) -> Option<(String, usize)> {
    let mut rest = text[at..].strip_prefix('[').unwrap_or(&text[at..]).trim_start().strip_prefix('{')?;
    let mut name = None;
    loop {
        rest = rest.trim_start().trim_start_matches(',').trim_start();
        let (key, behind) = string(rest)?;
        let value = behind.trim_start().strip_prefix(':')?.trim_start();
        if ARGUMENTS.contains(&key.as_str()) {
            let body = value.strip_prefix('{')?;
            return Some((name?, text.len() - body.len()));
        }
        let (word, behind) = string(value)?;
        match key.as_str() {
            key if NAMES.contains(&key) => name = Some(word),
            "type" | "id" | "tool_call_id" => {}
            _ => return None,
        }
        rest = behind;
    }
}

/// A JSON string at the start of the text, decoded, and what follows it.
fn string(text: &str) -> Option<(String, &str)> {
    let end = string_end(text)?;
    Some((serde_json::from_str(&text[..end]).ok()?, &text[end..]))
}

/// End (exclusive) of the JSON string at the start of the text.
fn string_end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before a key or the closing brace.
    Key,
    /// Inside a string value.
    Text,
    /// Behind the arguments, in the object of the call: `, "id": "x"` may follow.
    Outer,
    /// Behind the closing brace, where the end of a fence may follow.
    Tail,
}

#[derive(Debug)]
pub(crate) struct JsonStream {
    state: State,
    first: bool,
    /// The arguments stand in the object of the call.
    nested: bool,
    fenced: bool,
}

impl JsonStream {
    pub(crate) fn new(nested: bool, fenced: bool) -> Self {
        Self { state: State::Key, first: true, nested, fenced }
    }

    pub(crate) fn push(&mut self, rest: &str, end: End, target: Target<'_>, out: &mut String) -> Flow {
        match self.state {
            State::Key => self.member(rest, end, target, out),
            State::Text => self.text(rest, out),
            State::Outer => match further_member(rest) {
                Some(0) => self.leave(),
                Some(used) => Flow::Used(used),
                None if end.is_end() => self.leave(),
                None => Flow::Hold,
            },
            State::Tail if !self.fenced => Flow::Done(0),
            State::Tail => {
                let at = rest.len() - rest.trim_start_matches(['}', ']', ' ', '\n', '\r', '\t']).len();
                let behind = &rest[at..];
                if behind.starts_with("```") {
                    Flow::Done(at + 3)
                } else if "```".starts_with(behind) && !end.is_end() {
                    Flow::Hold
                } else {
                    Flow::Done(0)
                }
            }
        }
    }

    fn close(&mut self, used: usize, out: &mut String) -> Flow {
        out.push('}');
        self.state = if self.nested { State::Outer } else { State::Tail };
        Flow::Used(used)
    }

    /// Behind the call.
    fn leave(&mut self) -> Flow {
        self.state = State::Tail;
        Flow::Used(0)
    }

    fn member(&mut self, rest: &str, end: End, target: Target<'_>, out: &mut String) -> Flow {
        let at = rest.len() - rest.trim_start_matches([',', ' ', '\n', '\r', '\t']).len();
        let inner = &rest[at..];
        match inner.as_bytes().first() {
            // Every value is closed and the model ended its turn: only braces are missing.
            None if end == End::Stop => return self.close(at, out),
            None => return Flow::Hold,
            Some(b'}') => return self.close(at + 1, out),
            Some(b'"') => {}
            Some(_) => return Flow::Broken,
        }
        let Some(key_end) = string_end(inner) else { return Flow::Hold };
        let Ok(key) = serde_json::from_str::<String>(&inner[..key_end]) else { return Flow::Broken };
        let behind = inner[key_end..].trim_start();
        let Some(value) = behind.strip_prefix(':').map(str::trim_start) else {
            return if behind.is_empty() { Flow::Hold } else { Flow::Broken };
        };
        let from = rest.len() - value.len();
        let separator = if self.first { "" } else { ", " };
        let json = match value.as_bytes().first() {
            None => return Flow::Hold,
            Some(b'"') if target.is_string(&key) => {
                out.push_str(&format!("{separator}{}: \"", quoted(&key)));
                (self.first, self.state) = (false, State::Text);
                return Flow::Used(from + 1);
            }
            Some(b'"') => string_end(value),
            Some(b'{' | b'[') => match json_block::scan(value, &[]) {
                Scan::End(end) => Some(end),
                _ => None,
            },
            Some(_) => value.find([',', '}', '\n']),
        };
        let Some(length) = json else { return Flow::Hold };
        let member = format!("{{{}: {}}}", quoted(&key), value[..length].trim_end());
        let Some(repaired) = json_repair::repair_object(&member, true) else { return Flow::Broken };
        let json = target.tool.map_or_else(|| repaired.json.clone(), |tool| tool.coerce(&repaired.json).json);
        let Some(member) = only_member(&json) else { return Flow::Broken };
        out.push_str(separator);
        out.push_str(&member);
        self.first = false;
        Flow::Used(from + length)
    }

    /// As much of a string as is certain.
    fn text(&mut self, rest: &str, out: &mut String) -> Flow {
        let bytes = rest.as_bytes();
        let plain =
            bytes.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)).unwrap_or(bytes.len());
        if plain > 0 {
            out.push_str(&rest[..plain]);
            return Flow::Used(plain);
        }
        let behind = rest.get(1..).unwrap_or_default();
        match bytes.first() {
            None => Flow::Hold,
            Some(b'"') => match behind.trim_start().chars().next() {
                None => Flow::Hold,
                Some(',' | '}') => {
                    out.push('"');
                    self.state = State::Key;
                    Flow::Used(1)
                }
                Some(_) => {
                    out.push_str("\\\"");
                    Flow::Used(1)
                }
            },
            Some(b'\\') => match behind.chars().next() {
                None => Flow::Hold,
                Some('u') => match json_repair::unicode_escape(bytes) {
                    // The halves of one character leave together.
                    Ok(length) => {
                        out.push_str(&rest[..length]);
                        Flow::Used(length)
                    }
                    Err(true) => Flow::Hold,
                    Err(false) => {
                        out.push_str("\\\\");
                        Flow::Used(1)
                    }
                },
                Some('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => {
                    out.push_str(&rest[..2]);
                    Flow::Used(2)
                }
                Some(_) => {
                    out.push_str("\\\\");
                    Flow::Used(1)
                }
            },
            Some(_) => {
                let escaped = quoted(&rest[..1]);
                out.push_str(&escaped[1..escaped.len() - 1]);
                Flow::Used(1)
            }
        }
    }
}

/// Bytes of a further member of a call's object, behind its arguments; `None` while that is open.
fn further_member(text: &str) -> Option<usize> {
    let near = window(text, NEAR);
    let open = || if near.len() < text.len() { Some(0) } else { None };
    let behind = near.trim_start();
    let Some(member) = behind.strip_prefix(',').map(str::trim_start) else {
        return if behind.is_empty() { open() } else { Some(0) };
    };
    if !member.starts_with('"') {
        return if member.is_empty() { open() } else { Some(0) };
    }
    let Some((key, value)) = string(member) else { return open() };
    let Some(value) = value.trim_start().strip_prefix(':').map(str::trim_start) else {
        return if value.trim_start().is_empty() { open() } else { Some(0) };
    };
    let end = match value.as_bytes().first() {
        Some(b'"') => string_end(value),
        _ => value.find([',', '}']),
    };
    match end {
        None => open(),
        Some(end) if OTHERS.contains(&key.as_str()) => Some(near.len() - value.len() + end),
        Some(_) => Some(0),
    }
}

/// The text of an object's members, without its braces.
fn only_member(object: &str) -> Option<String> {
    let value = Value::parse(object).ok()?;
    let raw = value.raw();
    memchr(b'{', raw.as_bytes())?;
    Some(raw.strip_prefix('{')?.strip_suffix('}')?.trim().to_owned())
}
