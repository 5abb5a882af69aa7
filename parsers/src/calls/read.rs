//! Arguments read as JSON while they come: what may leave, what is mended in its place, and where they stop to be JSON.
//!
//! Text of strings leaves at once. Numbers and words leave when they are whole, and so do strings where the schema wants
//! something else than text: until then nobody can say what they are.
//!
//! It must never change what is JSON and of the type that the schema asks for, and the outcome must not depend on the pieces.

use std::ops::Range;

use crate::json_repair::{is_json, scalar, unicode_escape};
use crate::schema::{PathPart, Tool};

use super::reading::begins_wrapper;

/// A place of the source, and what leaves instead.
pub(super) type Change = (Range<usize>, String);

/// Where reading stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Reader {
    /// As much of the source is read.
    pub(super) at: usize,
    /// The containers that are open, with the key or the number of the element that is open in each.
    open: Vec<(u8, PathPart)>,
    want: Want,
}

/// What may stand next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Want {
    /// The arguments' own brace.
    #[default]
    Start,
    Key,
    /// A key or a closer.
    KeyOrEnd,
    Colon,
    Value,
    ValueOrEnd,
    /// A comma or a closer.
    After,
    /// Inside a string. It began at `from`; a key or a value.
    String {
        from: usize,
        key: bool,
    },
    /// Behind a backslash in it.
    Escape {
        from: usize,
        key: bool,
    },
    /// Behind the last brace.
    End,
}

/// What one place asks for.
enum Step {
    /// These many bytes leave as they are.
    Pass(usize),
    /// This leaves instead of these many bytes.
    Write(usize, String),
    /// It can't be judged before more has come.
    Wait,
    /// It is no JSON.
    Broken,
}

impl Reader {
    /// Reads on; what may leave is appended to `out`. `ended`: nothing more comes. True: it stopped to be JSON.
    pub(super) fn read(
        &mut self,
        source: &str,
        tool: Option<&Tool>,
        ended: bool,
        out: &mut String,
        changes: &mut Vec<Change>,
    ) -> bool {
        while self.at < source.len() {
            match self.step(source, tool, ended) {
                Step::Pass(length) => {
                    out.push_str(&source[self.at..self.at + length]);
                    self.at += length;
                }
                Step::Write(length, text) => {
                    out.push_str(&text);
                    changes.push((self.at..self.at + length, text));
                    self.at += length;
                }
                Step::Wait => return false,
                Step::Broken => return true,
            }
        }
        false
    }

    /// Whether the arguments' own brace is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.want == Want::End
    }

    /// The closers that are missing, if nothing else is.
    pub(super) fn closers(&self) -> Option<String> {
        let closers = self.open.iter().rev().map(|(opener, _)| if *opener == b'{' { '}' } else { ']' });
        (self.want == Want::After).then(|| closers.collect())
    }

    /// All of the source is read, and is an object.
    pub(super) fn settle(&mut self, length: usize) {
        (self.at, self.want) = (length, Want::End);
    }

    fn step(&mut self, source: &str, tool: Option<&Tool>, ended: bool) -> Step {
        let byte = source.as_bytes()[self.at];
        match self.want {
            Want::String { from, key } => return self.in_string(source, from, key, tool),
            Want::Escape { from, key } => return self.in_escape(source, from, key),
            _ => {}
        }
        if let (Want::Start, b'{', Some(tool)) = (self.want, byte, tool) {
            match begins_wrapper(&source[self.at + 1..], tool) {
                Some(true) => return Step::Broken,
                None if !ended => return Step::Wait,
                _ => {}
            }
        }
        let in_object = self.open.last().is_some_and(|(opener, _)| *opener == b'{');
        self.want = match (self.want, byte) {
            (want, b' ' | b'\n' | b'\r' | b'\t') => want,
            (Want::Start, b'{') | (Want::Value | Want::ValueOrEnd, b'{' | b'[') => {
                let first = if byte == b'{' { PathPart::Key(String::new()) } else { PathPart::Element(0) };
                self.open.push((byte, first));
                if byte == b'{' { Want::KeyOrEnd } else { Want::ValueOrEnd }
            }
            (Want::Key | Want::KeyOrEnd, b'"') => Want::String { from: self.at, key: true },
            (Want::Colon, b':') => Want::Value,
            (Want::Value | Want::ValueOrEnd, b'"') => return self.begin_string(source, tool, ended),
            (Want::Value | Want::ValueOrEnd, b']') if self.want == Want::ValueOrEnd && !in_object => {
                self.leave()
            }
            (Want::Value | Want::ValueOrEnd, _) => return self.word(source, tool, ended),
            (Want::After, b',') => match self.open.last_mut() {
                Some((_, PathPart::Element(number))) => {
                    *number += 1;
                    Want::Value
                }
                _ => Want::Key,
            },
            (Want::After | Want::KeyOrEnd, b'}') if in_object => self.leave(),
            (Want::After, b']') if !in_object => self.leave(),
            (Want::End, b'}' | b']') => return Step::Write(1, String::new()),
            _ => return Step::Broken,
        };
        Step::Pass(1)
    }

    fn leave(&mut self) -> Want {
        self.open.pop();
        if self.open.is_empty() { Want::End } else { Want::After }
    }

    /// Where the value stands that is open.
    fn path(&self) -> Vec<&PathPart> {
        self.open.iter().map(|(_, part)| part).collect()
    }

    /// The beginning of a string that is a value.
    fn begin_string(&mut self, source: &str, tool: Option<&Tool>, ended: bool) -> Step {
        let passes = Want::String { from: self.at, key: false };
        if tool.is_none_or(|tool| tool.takes_text(&self.path())) {
            self.want = passes;
            return Step::Pass(1);
        }
        let Some(length) = string_length(&source[self.at..]) else {
            if ended {
                self.want = passes;
                return Step::Pass(1);
            }
            return Step::Wait;
        };
        let string = &source[self.at..self.at + length];
        let coerced = tool.filter(|_| is_json(string)).and_then(|tool| tool.scalar(&self.path(), string));
        match coerced {
            Some(json) => {
                self.want = Want::After;
                Step::Write(length, json)
            }
            None => {
                self.want = passes;
                Step::Pass(1)
            }
        }
    }

    /// A number or a word, once it is whole.
    fn word(&mut self, source: &str, tool: Option<&Tool>, ended: bool) -> Step {
        let rest = &source[self.at..];
        let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_');
        let Some(length) = rest.find(|c| !part(c)).or(ended.then_some(rest.len())) else {
            return Step::Wait;
        };
        let word = &rest[..length];
        let Some((json, _)) = scalar(word) else { return Step::Broken };
        let coerced = tool.and_then(|tool| tool.scalar(&self.path(), &json)).unwrap_or(json.into_owned());
        self.want = Want::After;
        if coerced == word { Step::Pass(length) } else { Step::Write(length, coerced) }
    }

    fn in_string(&mut self, source: &str, from: usize, key: bool, tool: Option<&Tool>) -> Step {
        let rest = &source[self.at..];
        match rest.as_bytes()[0] {
            b'"' => {
                if let (true, Some((_, part))) = (key, self.open.last_mut()) {
                    let name = serde_json::from_str(&source[from..=self.at]).unwrap_or_default();
                    *part = PathPart::Key(name);
                }
                self.want = if key { Want::Colon } else { Want::After };
                Step::Pass(1)
            }
            b'\\' => {
                self.want = Want::Escape { from, key };
                Step::Pass(1)
            }
            b'\n' => Step::Write(1, "\\n".to_owned()),
            b'\r' => Step::Write(1, "\\r".to_owned()),
            b'\t' => Step::Write(1, "\\t".to_owned()),
            other @ 0..=0x1f => Step::Write(1, format!("\\u{other:04x}")),
            // `{"command=ls": ""}`, as speculative decoding leaves it: judged when all is there.
            b'=' if key
                && self.open.len() == 1
                && tool.is_some_and(|tool| tool.has_parameter(&source[from + 1..self.at])) =>
            {
                Step::Broken
            }
            _ => {
                // What stands in a string mostly passes; a character of several bytes with all of them.
                let special = |c: char| matches!(c, '"' | '\\' | '\0'..='\x1f') || (key && c == '=');
                let plain = rest.char_indices().skip(1).find(|(_, c)| special(*c));
                Step::Pass(plain.map_or(rest.len(), |(at, _)| at))
            }
        }
    }

    /// Behind a backslash, which has left.
    fn in_escape(&mut self, source: &str, from: usize, key: bool) -> Step {
        let escape = &source.as_bytes()[self.at - 1..];
        let length = match escape[1] {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
            b'u' => match unicode_escape(escape) {
                Err(true) => return Step::Wait,
                length => length.ok(),
            },
            _ => None,
        };
        self.want = Want::String { from, key };
        length.map_or_else(|| Step::Write(0, "\\".to_owned()), |length| Step::Pass(length - 1))
    }
}

/// Bytes of the JSON string at the start of the text, quotes included.
fn string_length(text: &str) -> Option<usize> {
    let mut bytes = text.bytes().enumerate().skip(1);
    loop {
        match bytes.next()? {
            (at, b'"') => return Some(at + 1),
            (_, b'\\') => bytes.next()?.0,
            (at, _) => at,
        };
    }
}
