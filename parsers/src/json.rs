//! Borrowed views over JSON text: a value is a range of the document, and reading it is reading that text.
//!
//! Why: request bodies are large and mostly passed on as they came. A tree would cost three times their size, sort or
//! drop what it does not know, and lose where a value stood, which is what an edit needs. So the text is checked
//! once, and views walk it with a scanner that trusts it.
//!
//! A view must never allocate for navigation and never panic: on text that was not checked it answers nonsense, no
//! more.

mod scan;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use memchr::memchr;

use scan::{decode, skip_space, skip_value};

/// The most containers that may stand inside each other. Engines and clients stop between 127 and some hundreds.
pub const MAX_DEPTH: usize = 128;

/// Why text is refused.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// No JSON; with line and column.
    #[error("{0}")]
    Syntax(serde_json::Error),
    /// How deep it is.
    #[error("nested {0} levels deep, the limit is {MAX_DEPTH}")]
    TooDeep(usize),
}

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// any number
    Number,
    /// a string
    String,
    /// `[…]`
    Array,
    /// `{…}`
    Object,
}

impl fmt::Display for Kind {
    /// With its article, for sentences: "found a number".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Null => "null",
            Kind::Bool => "a boolean",
            Kind::Number => "a number",
            Kind::String => "a string",
            Kind::Array => "an array",
            Kind::Object => "an object",
        })
    }
}

/// Where the members of one object stand; kept for the top level only, where every reader and editor starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    key: (usize, usize),
    value: (usize, usize),
}

/// A value inside a checked document. It knows its place there, and costs nothing to copy.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    doc: &'a str,
    start: usize,
    end: usize,
    slots: Option<&'a [Slot]>,
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{} {}", self.start, self.end, self.raw())
    }
}

/// A member of an object.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// The key: always a string.
    pub key: Value<'a>,
    /// What stands behind the colon.
    pub value: Value<'a>,
}

impl<'a> Member<'a> {
    /// The key, decoded.
    pub fn name(&self) -> Cow<'a, str> {
        self.key.as_str().unwrap_or_default()
    }
}

impl<'a> Value<'a> {
    /// Checks `text` (white space, one JSON value, white space) and views it.
    ///
    /// # Errors
    /// Where it is no JSON, or how deep it is beyond [`MAX_DEPTH`].
    pub fn parse(text: &'a str) -> Result<Self, JsonError> {
        serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(JsonError::Syntax)?;
        let start = skip_space(text.as_bytes(), 0);
        let (end, depth) = skip_value(text.as_bytes(), start);
        if depth > MAX_DEPTH {
            Err(JsonError::TooDeep(depth))
        } else {
            Ok(Self::between(text, (start, end), None))
        }
    }

    pub(crate) fn starting_at(doc: &'a str, start: usize) -> Self {
        Value { doc, start, end: skip_value(doc.as_bytes(), start).0, slots: None }
    }

    pub(crate) fn between(doc: &'a str, (start, end): (usize, usize), slots: Option<&'a [Slot]>) -> Self {
        Value { doc, start, end, slots }
    }

    /// The value at a known place of this value's document; the top level keeps its index.
    pub(crate) fn same_document(self, at: (usize, usize)) -> Self {
        let slots = if at == (self.start, self.end) { self.slots } else { None };
        Value { doc: self.doc, start: at.0, end: at.1, slots }
    }

    /// The members' places, unless there are more than `limit`.
    pub(crate) fn slots(self, limit: usize) -> Option<Vec<Slot>> {
        let slots: Vec<_> = self
            .members()
            .take(limit + 1)
            .map(|m| Slot { key: (m.key.start, m.key.end), value: (m.value.start, m.value.end) })
            .collect();
        (slots.len() <= limit).then_some(slots)
    }

    /// What this value is.
    pub fn kind(self) -> Kind {
        match self.doc.as_bytes().get(self.start) {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'n') | None => Kind::Null,
            Some(_) => Kind::Number,
        }
    }

    /// Its bytes in the document.
    pub fn range(self) -> Range<usize> {
        self.start..self.end
    }

    /// Its JSON text.
    pub fn raw(self) -> &'a str {
        self.doc.get(self.range()).unwrap_or_default()
    }

    /// A string, decoded; borrowed when it holds no escape. Lone surrogates become U+FFFD.
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        let inner = self.raw().strip_prefix('"')?.strip_suffix('"')?;
        Some(match memchr(b'\\', inner.as_bytes()) {
            None => Cow::Borrowed(inner),
            Some(_) => Cow::Owned(decode(inner)),
        })
    }

    /// A whole number from 0 on, also one written as `1.0` or `1e3`.
    pub fn as_u64(self) -> Option<u64> {
        self.raw().parse().ok().or_else(|| self.integral().and_then(|n| u64::try_from(n).ok()))
    }

    /// A whole number, also one written as `1.0` or `1e3`.
    pub fn as_i64(self) -> Option<i64> {
        self.raw().parse().ok().or_else(|| self.integral().and_then(|n| i64::try_from(n).ok()))
    }

    /// A number written with a fraction or an exponent that is whole all the same, as far as a double is exact.
    fn integral(self) -> Option<i128> {
        const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
        let number = self.as_f64()?;
        (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i128)
    }

    /// A number, as near as a double comes; none for one beyond its range.
    pub fn as_f64(self) -> Option<f64> {
        let number = (self.kind() == Kind::Number).then(|| self.raw().parse::<f64>().ok())??;
        number.is_finite().then_some(number)
    }

    /// `true` or `false`.
    pub fn as_bool(self) -> Option<bool> {
        match self.raw() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// Whether this is `null`.
    pub fn is_null(self) -> bool {
        self.kind() == Kind::Null
    }

    /// The members in document order, duplicates included; none for what is no object.
    pub fn members(self) -> impl Iterator<Item = Member<'a>> {
        let mut known = self.slots.unwrap_or_default().iter();
        let mut at = match (self.kind(), self.slots) {
            (Kind::Object, None) => self.start + 1,
            _ => self.end,
        };
        std::iter::from_fn(move || {
            if let Some(slot) = known.next() {
                let view = |range| Value::between(self.doc, range, None);
                return Some(Member { key: view(slot.key), value: view(slot.value) });
            }
            let key = self.next_in(at)?;
            let colon = skip_space(self.doc.as_bytes(), key.end);
            let value = Value::starting_at(self.doc, skip_space(self.doc.as_bytes(), colon + 1));
            at = value.end;
            Some(Member { key, value })
        })
    }

    /// The elements in order; none for what is no array.
    pub fn elements(self) -> impl Iterator<Item = Value<'a>> {
        let mut at = if self.kind() == Kind::Array { self.start + 1 } else { self.end };
        std::iter::from_fn(move || {
            let element = self.next_in(at)?;
            at = element.end;
            Some(element)
        })
    }

    /// The value that begins at `at`, or behind the comma there; none at this container's closing bracket.
    fn next_in(self, at: usize) -> Option<Value<'a>> {
        let text = self.doc.as_bytes();
        let mut start = skip_space(text, at);
        if text.get(start) == Some(&b',') {
            start = skip_space(text, start + 1);
        }
        if start + 1 >= self.end {
            return None;
        }
        let value = Value::starting_at(self.doc, start);
        (value.end > start && value.end < self.end).then_some(value)
    }

    /// The member called `key`. Of duplicates the last one, as Python's and nlohmann's JSON have it, which is what
    /// engines use.
    pub fn get(self, key: &str) -> Option<Value<'a>> {
        self.members().filter(|m| m.key.is_text(key)).last().map(|m| m.value)
    }

    /// Several members in one pass, each as [`get`](Self::get) gives it.
    pub fn get_all<const N: usize>(self, keys: [&str; N]) -> [Option<Value<'a>>; N] {
        let mut values = [None; N];
        for member in self.members() {
            if let Some(place) = keys.iter().position(|key| member.key.is_text(key)) {
                values[place] = Some(member.value);
            }
        }
        values
    }

    /// Whether this is a string that reads `text`.
    pub fn is_text(self, text: &str) -> bool {
        let Some(inner) = self.raw().strip_prefix('"').and_then(|raw| raw.strip_suffix('"')) else {
            return false;
        };
        // Escapes only make it longer.
        inner == text
            || (inner.len() > text.len()
                && inner.contains('\\')
                && self.as_str().is_some_and(|own| own == text))
    }

    /// The value that an RFC 6901 pointer names: `/messages/0/content`; `""` is this value.
    pub fn at(self, pointer: &str) -> Option<Value<'a>> {
        if pointer.is_empty() {
            return Some(self);
        }
        pointer.strip_prefix('/')?.split('/').try_fold(self, |value, token| match value.kind() {
            Kind::Object => value.get(&token.replace("~1", "/").replace("~0", "~")),
            Kind::Array => {
                let plain = token == "0" || !token.starts_with(['0', '+']);
                plain.then(|| token.parse().ok())?.and_then(|index| value.elements().nth(index))
            }
            _ => None,
        })
    }
}
