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

/// Where something begins in the document, and where it ends.
type Place = (usize, usize);

/// Where a member of one object stands, and the elements of its array; kept for the top level only, where every reader and editor
/// starts: a conversation is walked through many times, and is long.
#[derive(Debug)]
pub(crate) struct Slot {
    key: Place,
    value: Place,
    /// Empty for what is no array, or one of too many elements.
    elements: Box<[Place]>,
}

/// What is known of the inside of a value.
#[derive(Clone, Copy)]
enum Inside<'a> {
    Unknown,
    Members(&'a [Slot]),
    Elements(&'a [Place]),
}

/// A value inside a checked document. It knows its place there, and costs nothing to copy.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    doc: &'a str,
    start: usize,
    end: usize,
    inside: Inside<'a>,
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
        Value { doc, start, end: skip_value(doc.as_bytes(), start).0, inside: Inside::Unknown }
    }

    /// The value at a place; an object's members may be known.
    pub(crate) fn between(doc: &'a str, (start, end): (usize, usize), slots: Option<&'a [Slot]>) -> Self {
        Value { doc, start, end, inside: slots.map_or(Inside::Unknown, Inside::Members) }
    }

    /// The value at a known place of this value's document; the top level keeps its index.
    pub(crate) fn same_document(self, at: (usize, usize)) -> Self {
        let inside = if at == (self.start, self.end) { self.inside } else { Inside::Unknown };
        Value { doc: self.doc, start: at.0, end: at.1, inside }
    }

    /// The places of an object's members, unless there are more than `limit`, and of their arrays' elements, unless an array has more
    /// than `most`. One walk through the text.
    pub(crate) fn slots(self, limit: usize, most: usize) -> Option<Vec<Slot>> {
        let (mut slots, mut at) = (Vec::new(), self.start + 1);
        while let Some(key) = self.next_in(at) {
            if slots.len() == limit {
                return None;
            }
            let colon = skip_space(self.doc.as_bytes(), key.end);
            let start = skip_space(self.doc.as_bytes(), colon + 1);
            let (value, elements) = self.member_at(start, most);
            at = value.1;
            slots.push(Slot { key: (key.start, key.end), value, elements });
        }
        Some(slots)
    }

    /// Where the value that begins at `start` ends, and its elements.
    fn member_at(self, start: usize, most: usize) -> (Place, Box<[Place]>) {
        let text = self.doc.as_bytes();
        if text.get(start) == Some(&b'[') {
            let (mut elements, mut at) = (Vec::new(), start + 1);
            while let Some(element) = self.next_in(at).filter(|_| elements.len() < most) {
                at = element.end;
                elements.push((element.start, element.end));
            }
            let end = skip_space(text, at);
            if text.get(end) == Some(&b']') {
                return ((start, end + 1), elements.into_boxed_slice());
            }
        }
        ((start, skip_value(text, start).0), Box::default())
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
        let (mut known, mut at) = match (self.kind(), self.inside) {
            (Kind::Object, Inside::Members(slots)) => (slots.iter(), self.end),
            (Kind::Object, _) => ([].iter(), self.start + 1),
            _ => ([].iter(), self.end),
        };
        std::iter::from_fn(move || {
            if let Some(slot) = known.next() {
                let key = Value::between(self.doc, slot.key, None);
                let mut value = Value::between(self.doc, slot.value, None);
                if !slot.elements.is_empty() {
                    value.inside = Inside::Elements(&slot.elements);
                }
                return Some(Member { key, value });
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
        let (mut known, mut at) = match (self.kind(), self.inside) {
            (Kind::Array, Inside::Elements(places)) => (places.iter(), self.end),
            (Kind::Array, _) => ([].iter(), self.start + 1),
            _ => ([].iter(), self.end),
        };
        std::iter::from_fn(move || {
            if let Some(place) = known.next() {
                return Some(Value::between(self.doc, *place, None));
            }
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

#[cfg(test)]
mod tests {
    use super::Value;

    #[test]
    fn elements_are_the_same_whether_they_were_found_before_or_not() {
        let body = r#" { "a":[ ] , "messages" : [1 , {"x":"]\""},"q\"]",[[2], 3]], "b": {"c":[4]}, "d":"[5", "e":[6,7,8,9,10], "a":[11] } "#;
        let plain = Value::parse(body).unwrap();
        let slots = plain.slots(16, 4).unwrap();
        let indexed = Value::between(body, (plain.start, plain.end), Some(&slots));
        for name in ["a", "messages", "b", "d", "e", "none"] {
            let of = |root: Value<'_>| {
                let value = root.get(name)?;
                let elements: Vec<_> = value.elements().map(Value::range).collect();
                Some((value.range(), elements))
            };
            assert_eq!(of(indexed), of(plain), "{name}");
        }
        assert_eq!(indexed.get("messages").unwrap().elements().count(), 4);
        assert_eq!(indexed.at("/messages/3/1").unwrap().raw(), "3");
        assert!(plain.slots(5, 4).is_none());
    }
}
