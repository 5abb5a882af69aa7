//! The arguments of one structured call, mended while they pass.
//!
//! Why: a client that got half of the arguments can't take them back, and holding a whole file back makes clients time
//! out. So what can be mended where it stands is (`read.rs`): a raw line break is escaped, the backslash of an invalid escape is
//! doubled, a closer too many goes, a value gets the type of its schema. Anything else that is no JSON is held from there to the call's end, when the whole
//! can be read: in exactly one way, or it leaves as it came.
//!
//! It must never change arguments that are JSON and fit their schema, never add a closer to what was cut by length, and any cut of the same
//! text must give the same outcome, joined.

use super::read::{Change, Reader};
use super::reading::{further, is_markup, read_whole, split_keys, unwrapped};
use crate::schema::Tool;

/// The most that is held for the call's end, in bytes; beyond that it leaves as it came.
const HELD: usize = 16 << 10;

/// Arguments on their way.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    /// All that came.
    source: String,
    reader: Reader,
    /// What was mended in its place.
    changes: Vec<Change>,
    /// Where it stopped to be JSON; what follows is held.
    broken: Option<usize>,
    /// Too much was held: the rest passes as it comes.
    given_up: bool,
    /// How often something was mended at the end.
    completed: usize,
    /// The arguments of further calls of the tool, which came behind its own.
    further: Vec<String>,
}

impl Arguments {
    /// Takes the next stretch, and gives what may leave.
    pub(super) fn push(&mut self, text: &str, tool: Option<&Tool>) -> String {
        self.source.push_str(text);
        let mut out = String::new();
        self.read(tool, false, &mut out);
        if self.given_up || self.source.len() - self.broken.unwrap_or(self.reader.at) > HELD {
            self.given_up = true;
            out.push_str(&self.give_up());
        }
        out
    }

    fn read(&mut self, tool: Option<&Tool>, ended: bool, out: &mut String) {
        if self.broken.is_none() && self.reader.read(&self.source, tool, ended, out, &mut self.changes) {
            self.broken = Some(self.reader.at);
        }
    }

    /// The call has ended: what must still leave. `complete`: not cut by length.
    pub(super) fn end(&mut self, complete: bool, tool: Option<&Tool>) -> String {
        if self.given_up || !complete && self.is_empty() {
            return self.source[self.reader.at..].to_owned();
        }
        if self.is_empty() || complete && self.is_nothing() {
            self.settle("{}".to_owned());
            return "{}".to_owned();
        }
        let mut out = String::new();
        if complete {
            self.read(tool, true, &mut out);
        }
        let rest = self.source[self.reader.at..].to_owned();
        if let Some(broken) = self.broken
            && self.reader.is_closed()
            && complete
            && let Some(further) = is_markup(&self.source[broken..])
                .then(Vec::new)
                .or_else(|| further(&self.source, broken, tool))
        {
            self.further = further;
            self.source.truncate(broken);
            self.settle(self.source.clone());
            return out;
        }
        if self.broken.is_some() {
            let whole = split_keys(&self.source, tool)
                .or_else(|| unwrapped(&self.source, tool))
                .or_else(|| read_whole(&self.source, complete))
                .map(|whole| tool.map_or_else(|| whole.clone(), |tool| tool.coerce(&whole).json));
            if let Some(whole) = whole
                && let Some(tail) = whole.strip_prefix(&*self.sent())
            {
                let tail = tail.to_owned();
                match tail == rest {
                    true => self.reader.settle(self.source.len()),
                    false => self.settle(whole),
                }
                self.broken = None;
                return out + &tail;
            }
        } else if let Some(closers) = self.reader.closers().filter(|_| complete) {
            out.push_str(&closers);
            self.settle(format!("{}{closers}", self.source));
            return out;
        }
        self.reader.at = self.source.len();
        out + &rest
    }

    /// What has left so far.
    fn sent(&self) -> String {
        let (mut out, mut done) = (String::new(), 0);
        for (range, text) in &self.changes {
            out.push_str(&self.source[done..range.start]);
            out.push_str(text);
            done = range.end;
        }
        out.push_str(&self.source[done..self.reader.at]);
        out
    }

    /// Nothing is held any longer: gives what was, and lets the rest pass as it comes.
    pub(super) fn give_up(&mut self) -> String {
        let rest = self.source[self.reader.at..].to_owned();
        self.given_up |= !rest.is_empty();
        self.broken = self.broken.or((!rest.is_empty()).then_some(self.reader.at));
        self.reader.at = self.source.len();
        rest
    }

    /// They are this object now, which is not what came.
    fn settle(&mut self, source: String) {
        self.completed += 1;
        self.reader.settle(source.len());
        self.source = source;
        self.broken = None;
    }

    /// The arguments of further calls, once.
    pub(super) fn further(&mut self) -> Vec<String> {
        std::mem::take(&mut self.further)
    }

    /// Whether something is held back.
    pub(super) fn is_holding(&self) -> bool {
        self.reader.at < self.source.len()
    }

    /// How often anything was mended so far.
    pub(super) fn repairs(&self) -> usize {
        self.changes.len() + self.completed
    }

    /// Whether what the model wrote had to be mended; that it wrote nothing where nothing is to be said is no flaw.
    pub(super) fn was_mended(&self) -> bool {
        !self.changes.is_empty() || (self.completed > 0 && self.source != "{}")
    }

    /// Whether nothing but white space has come.
    pub(super) fn is_empty(&self) -> bool {
        self.source.trim_ascii().is_empty()
    }

    /// Whether they say that there are none.
    fn is_nothing(&self) -> bool {
        self.reader.at == 0 && matches!(self.source.trim_ascii(), "null" | "[]" | "\"\"")
    }

    /// Whether they are a whole object.
    pub(super) fn is_whole(&self) -> bool {
        self.reader.is_closed() && self.broken.is_none()
    }

    /// All that came.
    pub(super) fn source(&self) -> &str {
        &self.source
    }
}
