//! The arguments of one structured call, mended while they pass.
//!
//! Why: a client that got half of the arguments can't take them back, and holding a whole file back makes clients time
//! out. So what can be mended where it stands is: a raw line break is escaped, the backslash of an invalid escape is
//! doubled, a closer too many goes. Anything else that is no JSON is held from there to the call's end, when the whole
//! can be read: in exactly one way, or it leaves as it came.
//!
//! It must never change arguments that are JSON, never add a closer to what was cut by length, and any cut of the same
//! text must give the same outcome, joined.

use super::reading::{begins_wrapper, is_markup, read_whole, split_keys, unwrapped};
use crate::json_repair::is_json;
use crate::schema::Tool;

/// The most that is held for the call's end, in bytes; beyond that it leaves as it came.
const HELD: usize = 16 << 10;

/// Arguments on their way.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    /// All that came.
    source: String,
    /// As much of it is read.
    at: usize,
    /// The containers that are open.
    open: Vec<u8>,
    want: Want,
    /// Where it stopped to be JSON; what follows is held.
    broken: Option<usize>,
    /// Too much was held: the rest passes as it comes.
    given_up: bool,
    /// How often something was mended.
    repairs: usize,
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
    /// Inside a number or a word, which began at `from`.
    Word {
        from: usize,
    },
    /// Behind the last brace.
    End,
}

/// What one byte asks for.
enum Step {
    /// It leaves as it is.
    Pass,
    /// This leaves instead of it.
    Write(&'static str),
    /// This leaves before it, and it is looked at again.
    Insert(&'static str),
    /// A control character, to be escaped.
    Control(u8),
    /// It can't be judged before more has come.
    Wait,
    /// It is no JSON.
    Broken,
}

impl Arguments {
    /// Takes the next stretch, and gives what may leave.
    pub(super) fn push(&mut self, text: &str, tool: Option<&Tool>) -> String {
        self.source.push_str(text);
        let mut out = String::new();
        if self.broken.is_none() {
            self.read(tool, &mut out);
        }
        if let Some(broken) = self.broken
            && (self.given_up || self.source.len() - broken > HELD)
        {
            self.given_up = true;
            out.push_str(&self.source[self.at..]);
            self.at = self.source.len();
        }
        out
    }

    /// The call has ended: what must still leave. `complete`: not cut by length.
    pub(super) fn end(&mut self, complete: bool, tool: Option<&Tool>) -> String {
        let mut rest = self.source[self.at..].to_owned();
        if self.given_up || !complete && self.is_empty() {
            return rest;
        }
        if self.is_empty() || complete && self.is_nothing() {
            self.repairs += 1;
            self.settle("{}".to_owned());
            return "{}".to_owned();
        }
        if let Some(broken) = self.broken
            && self.want == Want::End
            && complete
            && is_markup(&self.source[broken..])
        {
            self.repairs += 1;
            self.source.truncate(broken);
            self.settle(self.source.clone());
            return String::new();
        }
        if let Some(broken) = self.broken {
            let whole = split_keys(&self.source, tool)
                .or_else(|| unwrapped(&self.source, tool))
                .or_else(|| read_whole(&self.source, complete));
            let sent = Self::mend(&self.source[..broken]);
            if let Some(whole) = whole
                && let Some(tail) = whole.strip_prefix(&*sent)
            {
                self.repairs += usize::from(tail != rest);
                rest = tail.to_owned();
                self.settle(whole);
            }
        } else if complete && self.is_only_open() {
            let closers = self.open.iter().rev().map(|opener| if *opener == b'{' { '}' } else { ']' });
            rest.extend(closers);
            self.repairs += 1;
            self.settle(format!("{}{rest}", self.source));
        }
        self.at = self.source.len();
        rest
    }

    /// Nothing is held any longer: gives what was, and lets the rest pass as it comes.
    pub(super) fn give_up(&mut self) -> String {
        let rest = self.source[self.at..].to_owned();
        self.given_up |= !rest.is_empty();
        self.broken = self.broken.or((!rest.is_empty()).then_some(self.at));
        self.at = self.source.len();
        rest
    }

    /// They are this object now.
    fn settle(&mut self, source: String) {
        self.at = source.len();
        self.source = source;
        self.want = Want::End;
        self.broken = None;
    }

    /// Whether something is held back.
    pub(super) fn is_holding(&self) -> bool {
        self.at < self.source.len()
    }

    /// How often anything was mended so far.
    pub(super) fn repairs(&self) -> usize {
        self.repairs
    }

    /// Whether nothing but white space has come.
    pub(super) fn is_empty(&self) -> bool {
        self.source.trim_ascii().is_empty()
    }

    /// Whether they say that there are none.
    fn is_nothing(&self) -> bool {
        self.at == 0 && matches!(self.source.trim_ascii(), "null" | "[]" | "\"\"")
    }

    /// Whether they are a whole object.
    pub(super) fn is_whole(&self) -> bool {
        self.want == Want::End && self.broken.is_none()
    }

    /// All that came.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// What leaves of a text that is JSON as far as it goes.
    fn mend(text: &str) -> String {
        let mut out = String::new();
        let mut fresh = Self { source: text.to_owned(), ..Self::default() };
        fresh.read(None, &mut out);
        out
    }

    /// Whether all that is missing is closers.
    fn is_only_open(&self) -> bool {
        match self.want {
            Want::After => true,
            Want::Word { from } => is_json(&self.source[from..]),
            _ => false,
        }
    }

    fn read(&mut self, tool: Option<&Tool>, out: &mut String) {
        while let Some(&byte) = self.source.as_bytes().get(self.at) {
            let start = self.at;
            let step = self.step(byte, tool);
            match step {
                Step::Pass => {
                    self.at += 1;
                    // What stands in a string mostly passes.
                    if let Want::String { key: false, .. } = self.want {
                        let rest = &self.source.as_bytes()[self.at..];
                        let special = |b: &u8| matches!(b, b'"' | b'\\' | 0..=0x1f);
                        self.at += rest.iter().position(special).unwrap_or(rest.len());
                    }
                    // A character of several bytes passes with all of them.
                    while !self.source.is_char_boundary(self.at) {
                        self.at += 1;
                    }
                    out.push_str(&self.source[start..self.at]);
                    continue;
                }
                Step::Insert(text) => {
                    out.push_str(text);
                    self.repairs += 1;
                    continue;
                }
                Step::Write(text) => out.push_str(text),
                Step::Control(b'\n') => out.push_str("\\n"),
                Step::Control(b'\r') => out.push_str("\\r"),
                Step::Control(b'\t') => out.push_str("\\t"),
                Step::Control(other) => out.push_str(&format!("\\u{other:04x}")),
                Step::Wait => return,
                Step::Broken => {
                    self.broken = Some(self.at);
                    return;
                }
            }
            self.repairs += 1;
            self.at += 1;
        }
    }

    fn step(&mut self, byte: u8, tool: Option<&Tool>) -> Step {
        match self.want {
            Want::String { from, key } => return self.in_string(byte, from, key, tool),
            Want::Escape { from, key } => return self.in_escape(byte, from, key),
            Want::Word { from } => {
                if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.') {
                    return if may_be_word(&self.source[from..=self.at]) { Step::Pass } else { Step::Broken };
                }
                if !is_json(&self.source[from..self.at]) {
                    return Step::Broken;
                }
                self.want = Want::After;
            }
            _ => {}
        }
        if let (Want::Start, b'{', Some(tool)) = (self.want, byte, tool) {
            match begins_wrapper(&self.source[self.at + 1..], tool) {
                Some(true) => return Step::Broken,
                None => return Step::Wait,
                Some(false) => {}
            }
        }
        let in_object = self.open.last() == Some(&b'{');
        self.want = match (self.want, byte) {
            (want, b' ' | b'\n' | b'\r' | b'\t') => want,
            (Want::Start, b'{') | (Want::Value | Want::ValueOrEnd, b'{' | b'[') => {
                self.open.push(byte);
                if byte == b'{' { Want::KeyOrEnd } else { Want::ValueOrEnd }
            }
            (Want::Key | Want::KeyOrEnd, b'"') => Want::String { from: self.at + 1, key: true },
            (Want::Colon, b':') => Want::Value,
            (Want::Value | Want::ValueOrEnd, b'"') => Want::String { from: self.at + 1, key: false },
            (Want::Value | Want::ValueOrEnd, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                Want::Word { from: self.at }
            }
            (Want::After, b',') => {
                if in_object {
                    Want::Key
                } else {
                    Want::Value
                }
            }
            (Want::After | Want::KeyOrEnd, b'}') if in_object => self.leave(),
            (Want::After | Want::ValueOrEnd, b']') if !in_object => self.leave(),
            (Want::End, b'}' | b']') => return Step::Write(""),
            _ => return Step::Broken,
        };
        Step::Pass
    }

    fn leave(&mut self) -> Want {
        self.open.pop();
        if self.open.is_empty() { Want::End } else { Want::After }
    }

    fn in_string(&mut self, byte: u8, from: usize, key: bool, tool: Option<&Tool>) -> Step {
        match byte {
            b'"' => self.want = if key { Want::Colon } else { Want::After },
            b'\\' => self.want = Want::Escape { from, key },
            0..=0x1f => return Step::Control(byte),
            // `{"command=ls": ""}`, as speculative decoding leaves it: judged when all is there.
            b'=' if key && self.open.len() == 1 => {
                let name = &self.source[from..self.at];
                if tool.is_some_and(|tool| tool.has_parameter(name)) {
                    return Step::Broken;
                }
            }
            _ => {}
        }
        Step::Pass
    }

    /// Behind a backslash that has left.
    fn in_escape(&mut self, byte: u8, from: usize, key: bool) -> Step {
        let valid = match byte {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => true,
            b'u' => {
                let digits = self.source.as_bytes()[self.at + 1..].iter().take(4);
                let (count, good) =
                    digits.fold((0, true), |(n, good), b| (n + 1, good && b.is_ascii_hexdigit()));
                if good && count < 4 {
                    return Step::Wait;
                }
                good
            }
            _ => false,
        };
        self.want = Want::String { from, key };
        if valid { Step::Pass } else { Step::Insert("\\") }
    }
}

/// Whether it may still become a JSON number or word.
fn may_be_word(text: &str) -> bool {
    match text.as_bytes().first() {
        Some(b't' | b'f' | b'n') => ["true", "false", "null"].iter().any(|word| word.starts_with(text)),
        _ => text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')),
    }
}
