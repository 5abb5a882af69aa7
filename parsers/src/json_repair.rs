//! One JSON value from what a model wrote, and a list of what had to be mended for it.
//!
//! Why: models write Python, raw line breaks, doubled braces and lost closers where JSON belongs, and a client that
//! parses strictly loses the whole call. Each repair here is deterministic and has a single reading.
//!
//! It must never guess: where two readings exist, or where text was cut off inside a value, the answer is none. Every
//! string and number of the outcome stands in the text.

mod end;
mod lenient;

use std::borrow::Cow;
use std::fmt;

use serde::de::IgnoredAny;

use crate::json::MAX_DEPTH;
pub use end::{ObjectScan, object_end};
pub(crate) use lenient::word as scalar;

/// What was done to text to make JSON of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Repair {
    /// A code fence around it went.
    Unfenced,
    /// `&quot;` and its kind were decoded, once.
    EntitiesDecoded,
    /// `{{` and `}}` became single.
    BracesHalved,
    /// Strings in single quotes.
    SingleQuotes,
    /// Strings in typographic quotes.
    SmartQuotes,
    /// `True`, `False`, `None`.
    PythonLiteral,
    /// A comma before a closer went.
    TrailingComma,
    /// A comment went.
    Comment,
    /// A number in no spelling of JSON's, such as `030`, `.5` or `NaN`, became a string; the schema decides what it is.
    OddNumber,
    /// A line break between values that was written as `\n` went.
    WrittenBreak,
    /// A key without quotes.
    UnquotedKey,
    /// A control character in a string, mostly a line break or a tab, was escaped.
    RawControl,
    /// The backslash of an escape that JSON does not know was doubled.
    InvalidEscape,
    /// Quotes inside a string were escaped.
    InnerQuotes,
    /// Closers that were missing at the end were added.
    ClosersAdded,
    /// Closers behind the end went.
    SurplusClosers,
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unfenced => "code fence removed",
            Self::EntitiesDecoded => "html entities decoded",
            Self::BracesHalved => "doubled braces halved",
            Self::SingleQuotes => "single quotes replaced",
            Self::SmartQuotes => "typographic quotes replaced",
            Self::PythonLiteral => "python literal replaced",
            Self::TrailingComma => "trailing comma removed",
            Self::Comment => "comment removed",
            Self::OddNumber => "number in no JSON spelling quoted",
            Self::WrittenBreak => "written-out line break removed",
            Self::UnquotedKey => "key quoted",
            Self::RawControl => "control character in a string escaped",
            Self::InvalidEscape => "backslash of an invalid escape doubled",
            Self::InnerQuotes => "quotes inside a string escaped",
            Self::ClosersAdded => "missing closers added",
            Self::SurplusClosers => "surplus closers removed",
        })
    }
}

/// Valid JSON, and what was done for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// One JSON value without white space around it; the source bytes where nothing was repaired.
    pub json: String,
    /// Each kind of repair once, in the order in which it was first needed; empty when the text was JSON.
    pub repairs: Vec<Repair>,
}

/// Reads `text` as one JSON value (any kind; what had to be repaired is an object or an array). None when it cannot be
/// read in exactly one way.
///
/// `complete` says that the text ended by itself: with `false`, when it was cut by length, no closer is added and no
/// quote is reinterpreted.
pub fn repair_object(text: &str, complete: bool) -> Option<Repaired> {
    let trimmed = text.trim_matches(|c| is_space(c) || c == '\u{feff}');
    if is_json(trimmed) {
        return Some(Repaired { json: trimmed.to_owned(), repairs: Vec::new() });
    }
    let mut repairs = Vec::new();
    let body = match unfenced(trimmed) {
        Some(inner) => {
            repairs.push(Repair::Unfenced);
            inner
        }
        None => trimmed,
    };
    let mut body = Cow::Borrowed(body);
    if let Some(decoded) = without_entities(&body) {
        repairs.push(Repair::EntitiesDecoded);
        body = Cow::Owned(decoded);
    }
    if is_json(&body) {
        return Some(Repaired { json: body.into_owned(), repairs });
    }
    if body.starts_with("{{") {
        repairs.push(Repair::BracesHalved);
        body = Cow::Owned(single_braced(&body)?);
        if is_json(&body) {
            return Some(Repaired { json: body.into_owned(), repairs });
        }
    }
    let (json, more) = lenient::read(&body, complete)?;
    repairs.extend(more);
    // The reader writes JSON by construction; a value that strict parsers would refuse must not leave all the same.
    is_json(&json).then_some(Repaired { json, repairs })
}

/// Whether it is one JSON value without white space around it, not too deep for this project's own views. Half of a character
/// that needs two escapes is none: strict readers refuse it.
pub(crate) fn is_json(text: &str) -> bool {
    !text.is_empty()
        && serde_json::from_str::<IgnoredAny>(text).is_ok()
        && crate::json::Value::parse(text).is_ok()
        && !has_half(text)
}

fn has_half(json: &str) -> bool {
    let (mut at, bytes) = (0, json.as_bytes());
    while let Some(found) = memchr::memchr(b'\\', &bytes[at..]) {
        at += found;
        at += match bytes.get(at + 1) {
            Some(b'u') => match unicode_escape(&bytes[at..]) {
                Ok(length) => length,
                Err(_) => return true,
            },
            _ => 2,
        };
    }
    false
}

/// Bytes of the escape `\uXXXX` that the text begins with, or of the two that make one character; `Err(true)` while more of it
/// may come.
pub(crate) fn unicode_escape(text: &[u8]) -> Result<usize, bool> {
    let hex = |from: usize| {
        let digits = text.get(from..).unwrap_or_default();
        let digits = &digits[..digits.len().min(4)];
        match digits.iter().all(u8::is_ascii_hexdigit) {
            true if digits.len() == 4 => Ok(digits
                .iter()
                .fold(0_u32, |code, digit| code << 4 | char::from(*digit).to_digit(16).unwrap_or(0))),
            whole => Err(whole),
        }
    };
    match hex(2)? {
        0xdc00..=0xdfff => Err(false),
        0xd800..=0xdbff => match text.get(6..).unwrap_or_default() {
            [b'\\', b'u', ..] => match hex(8)? {
                0xdc00..=0xdfff => Ok(12),
                _ => Err(false),
            },
            rest => Err(matches!(rest, [] | [b'\\'])),
        },
        _ => Ok(6),
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\n' | '\r' | '\t')
}

/// The inside of a fence that is the whole text.
fn unfenced(text: &str) -> Option<&str> {
    let inner = text.strip_prefix("```")?.strip_suffix("```")?;
    let start = inner.find(['\n', '{', '['])?;
    let language = &inner[..start];
    let named =
        language.trim_matches(is_space).chars().all(|c| c.is_ascii_alphanumeric() || "_-+".contains(c));
    named.then(|| inner[start..].trim_matches(is_space))
}

/// The entities decoded once, where they stand for the very quotes of the JSON.
fn without_entities(text: &str) -> Option<String> {
    let escaped = text.starts_with(['{', '[']) && !text.contains('"');
    if !escaped || !(text.contains("&quot;") || text.contains("&#34;")) {
        return None;
    }
    const ENTITIES: [(&str, char); 7] = [
        ("&quot;", '"'),
        ("&#34;", '"'),
        ("&amp;", '&'),
        ("&lt;", '<'),
        ("&gt;", '>'),
        ("&apos;", '\''),
        ("&#39;", '\''),
    ];
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (name, plain) =
            ENTITIES.iter().find(|(name, _)| rest.starts_with(name)).copied().unwrap_or(("&", '&'));
        out.push(plain);
        rest = &rest[name.len()..];
    }
    out.push_str(rest);
    Some(out)
}

/// Braces as they were before a template doubled them: the outer pair only, or all that stand outside strings. None
/// where a string holds doubled braces, too, or a run of them is odd.
fn single_braced(text: &str) -> Option<String> {
    if let Some(inner) = text.get(1..text.len() - 1).filter(|inner| text.ends_with("}}") && is_json(inner)) {
        return Some(inner.to_owned());
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut in_string = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_string => {
                out.push(c);
                out.extend(chars.next());
                continue;
            }
            '"' => in_string = !in_string,
            '{' | '}' => {
                let doubled = chars.next_if_eq(&c).is_some();
                if doubled == in_string {
                    return None;
                }
            }
            _ => {}
        }
        out.push(c);
    }
    Some(out)
}

/// How deep containers may nest, in text that is repaired.
const DEPTH: usize = MAX_DEPTH - 1;
