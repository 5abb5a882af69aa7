//! The blocks of an answer (content blocks of a message, items of a response) on their way to the client.
//!
//! As long as nothing was changed the backend's own events leave, and only what they open and close is noted. From the first change
//! on blocks are opened, numbered and closed here, one after the other, and of the backend's events those alone pass that speak of
//! something else. A block of text is shown when it has text: white space before a call is none.

use bytes::{Bytes, BytesMut};
use switchback_parsers::json::Value;

use super::{CallPiece, Frame, Said};

/// White space that waits for a word, in bytes: more of it is shown, as a model that writes nothing else must be seen to do so.
const BLANK: usize = 256;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Thought,
    /// The call of this number.
    Call(usize),
    /// Nothing that the repair knows.
    Other,
}

/// A block that the client knows of and that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) kind: Kind,
    /// Its place in the answer.
    pub(super) index: u64,
    /// The backend's own word for it; empty: it has none.
    pub(super) place: String,
    /// Of a call: its id and its name.
    pub(super) id: String,
    pub(super) name: String,
    /// What it says so far: text, thoughts, arguments.
    pub(super) said: String,
}

/// What an event of the backend does.
pub(super) enum Mark {
    /// It opens a block: what kind, its place, and its index if the backend tells it.
    Opens(Kind, String, Option<u64>),
    /// It says something within a block.
    Within(String),
    /// It ends a block.
    Closes(String),
    /// It speaks of the answer as a whole.
    Outside,
}

/// How a dialect writes blocks.
pub(super) trait Shape {
    fn mark(event: Value<'_>) -> Mark;
    /// Whether an event within a call says that its arguments are whole.
    fn ends_call(event: Value<'_>) -> bool;
    /// An event leaves as it came.
    fn saw(&mut self, event: Value<'_>);
    /// The last of those do not leave after all.
    fn forget(&mut self, events: usize);
    /// The backend's own event has ended a block.
    fn ended(&mut self, event: Value<'_>, block: &Block);
    fn open(&mut self, block: &Block, out: &mut BytesMut);
    fn more(&mut self, block: &Block, piece: &str, out: &mut BytesMut);
    fn close(&mut self, block: &Block, whole: bool, out: &mut BytesMut);
    /// An event of the backend that is not about text, thoughts or calls; `index`: of the block of which it speaks.
    fn pass(&mut self, event: Value<'_>, index: Option<u64>, out: &mut BytesMut);
    /// Whether an event within a block of text or thoughts belongs to it, beside what it says.
    fn belongs(event: Value<'_>, kind: Kind) -> bool;
    /// The answer ends, for a reason in chat's words; `event` is the backend's end.
    fn end(&mut self, event: Option<Value<'_>>, reason: &str, out: &mut BytesMut);
}

/// The blocks of one answer.
#[derive(Debug)]
pub(super) struct Blocks<S> {
    shape: S,
    /// The answer is not the backend's own any more.
    own: bool,
    /// Events that open a block of text which says nothing yet but white space.
    waiting: Vec<Bytes>,
    blank: String,
    open: Vec<Block>,
    next: u64,
    /// Numbers of calls that have ended.
    ended: Vec<usize>,
    has_calls: bool,
}

impl<S: Shape> Blocks<S> {
    pub(super) fn new(shape: S) -> Self {
        Self {
            shape,
            own: false,
            waiting: Vec::new(),
            blank: String::new(),
            open: Vec::new(),
            next: 0,
            ended: Vec::new(),
            has_calls: false,
        }
    }

    pub(super) fn write(&mut self, frame: Frame, out: &mut BytesMut) {
        let Some(said) = Said::of(&frame.json) else {
            // What is no JSON is for the client to read.
            return out.extend_from_slice(&frame.came.unwrap_or_default());
        };
        match frame.came.filter(|_| !self.own) {
            Some(bytes) => self.leave(bytes, &said, out),
            None => {
                self.take_over();
                self.say(said, out);
            }
        }
    }

    pub(super) fn take_over(&mut self) {
        if !self.own && !self.waiting.is_empty() {
            // The block that waits was never opened.
            self.next = self.open.pop().map_or(self.next, |block| block.index);
            self.shape.forget(self.waiting.drain(..).count());
        }
        self.own = true;
    }

    /// What waits leaves.
    pub(super) fn flush(&mut self, out: &mut BytesMut) {
        if !self.waiting.is_empty() {
            self.waiting.drain(..).for_each(|bytes| out.extend_from_slice(&bytes));
            self.blank.clear();
        }
    }

    /// An event leaves as it came.
    fn leave(&mut self, bytes: Bytes, said: &Said<'_>, out: &mut BytesMut) {
        let Some(event) = said.event else {
            self.flush(out);
            return out.extend_from_slice(&bytes);
        };
        let mut ended = None;
        let mut waits = false;
        match S::mark(event) {
            Mark::Opens(kind, place, index) => {
                self.flush(out);
                let kind = said.calls.first().map_or(kind, |call| Kind::Call(call.index));
                let index = index.unwrap_or(self.next);
                self.next = self.next.max(index + 1);
                let of_call = |part: fn(&CallPiece) -> &Option<String>| {
                    said.calls.first().and_then(|call| part(call).clone()).unwrap_or_default()
                };
                let (id, name) = (of_call(|call| &call.id), of_call(|call| &call.name));
                self.open.push(Block { kind, index, place, id, name, said: String::new() });
                self.has_calls |= matches!(kind, Kind::Call(_));
                waits = kind == Kind::Text && said.text.trim().is_empty();
            }
            Mark::Within(place) if S::ends_call(event) && self.breaks_off(&place) => return self.take_over(),
            Mark::Within(_) => {
                let is_short = self.blank.len() + said.text.len() <= BLANK;
                waits = !self.waiting.is_empty() && said.text.trim().is_empty() && is_short;
            }
            Mark::Closes(place) => {
                self.note(said);
                if self.breaks_off(&place) {
                    // It may still be mended, when all is said.
                    return self.take_over();
                }
                let at = self.open.iter().rposition(|block| block.place == place);
                ended = at.map(|at| self.open.remove(at));
            }
            Mark::Outside => {}
        }
        if ended.is_none() {
            self.note(said);
        }
        self.shape.saw(event);
        if let Some(block) = ended {
            if let Kind::Call(number) = block.kind {
                self.ended.push(number);
            }
            self.shape.ended(event, &block);
        }
        if waits {
            self.blank.push_str(&said.text);
            return self.waiting.push(bytes);
        }
        self.flush(out);
        out.extend_from_slice(&bytes);
    }

    /// Whether a call ends here whose arguments are not whole.
    fn breaks_off(&self, place: &str) -> bool {
        let block = self.open.iter().rfind(|block| block.place == place);
        block.is_some_and(|block| matches!(block.kind, Kind::Call(_)) && !is_whole(&block.said))
    }

    /// Remembers what was said.
    fn note(&mut self, said: &Said<'_>) {
        let mut add = |kind: Kind, text: &str| {
            if let Some(block) = self.open.iter_mut().rfind(|block| block.kind == kind) {
                block.said.push_str(text);
            }
        };
        add(Kind::Text, &said.text);
        add(Kind::Thought, &said.thought);
        said.calls.iter().for_each(|call| add(Kind::Call(call.index), &call.arguments));
    }

    /// Says it in events of our own.
    fn say(&mut self, said: Said<'_>, out: &mut BytesMut) {
        if said.is_nothing() {
            return self.pass(said.event, out);
        }
        if !said.thought.is_empty() {
            self.words(Kind::Thought, &said.thought, out);
        }
        if !said.text.is_empty() {
            self.text(&said.text, out);
        }
        for call in said.calls {
            self.call(call, out);
        }
        if let Some(reason) = said.finish {
            let blank = std::mem::take(&mut self.blank);
            if !self.has_calls && !blank.is_empty() {
                self.words(Kind::Text, &blank, out);
            }
            self.close(reason != "length", out);
            self.shape.end(said.event, &reason, out);
        }
    }

    fn text(&mut self, text: &str, out: &mut BytesMut) {
        if self.open.last().is_none_or(|block| block.kind != Kind::Text) {
            self.blank.push_str(text);
            if self.blank.trim().is_empty() {
                return;
            }
            let text = std::mem::take(&mut self.blank);
            return self.words(Kind::Text, &text, out);
        }
        self.words(Kind::Text, text, out);
    }

    /// Text or thoughts, behind others of their kind or in a block of their own.
    fn words(&mut self, kind: Kind, text: &str, out: &mut BytesMut) {
        if self.open.last().is_none_or(|block| block.kind != kind) {
            self.close(true, out);
            self.begin(kind, String::new(), String::new(), out);
        }
        if let Some(block) = self.open.last_mut() {
            block.said.push_str(text);
            self.shape.more(block, text, out);
        }
    }

    fn call(&mut self, piece: CallPiece, out: &mut BytesMut) {
        let kind = Kind::Call(piece.index);
        if self.ended.contains(&piece.index) {
            return;
        }
        if !self.open.iter().any(|block| block.kind == kind) {
            self.close(true, out);
            self.has_calls = true;
            self.begin(kind, piece.id.unwrap_or_default(), piece.name.unwrap_or_default(), out);
        }
        let block = self.open.iter_mut().find(|block| block.kind == kind);
        if let Some(block) = block.filter(|_| !piece.arguments.is_empty()) {
            block.said.push_str(&piece.arguments);
            self.shape.more(block, &piece.arguments, out);
        }
    }

    fn begin(&mut self, kind: Kind, id: String, name: String, out: &mut BytesMut) {
        let block = Block { kind, index: self.next, place: String::new(), id, name, said: String::new() };
        self.next += 1;
        self.shape.open(&block, out);
        self.open.push(block);
    }

    /// Ends what is open. `whole`: nothing was cut.
    fn close(&mut self, whole: bool, out: &mut BytesMut) {
        for block in std::mem::take(&mut self.open) {
            if let Kind::Call(number) = block.kind {
                self.ended.push(number);
            }
            self.shape.close(&block, whole, out);
        }
    }

    /// An event of the backend that says nothing which the repair reads.
    fn pass(&mut self, event: Option<Value<'_>>, out: &mut BytesMut) {
        let Some(event) = event else { return };
        match S::mark(event) {
            Mark::Outside => self.shape.pass(event, None, out),
            Mark::Opens(Kind::Other, place, _) => {
                self.close(true, out);
                let (index, kind) = (self.next, Kind::Other);
                self.next += 1;
                let (id, name, said) = Default::default();
                self.open.push(Block { kind, index, place, id, name, said });
                self.shape.pass(event, Some(index), out);
            }
            Mark::Opens(..) => {}
            Mark::Within(place) => {
                let belongs = |block: &&Block| match block.kind {
                    Kind::Other => block.place == place,
                    kind => S::belongs(event, kind),
                };
                if let Some(index) = self.open.iter().rfind(belongs).map(|block| block.index) {
                    self.shape.pass(event, Some(index), out);
                }
            }
            Mark::Closes(place) => {
                let is = |block: &Block| block.kind == Kind::Other && block.place == place;
                if let Some(at) = self.open.iter().rposition(is) {
                    let block = self.open.remove(at);
                    self.shape.pass(event, Some(block.index), out);
                    self.shape.ended(event, &block);
                }
            }
        }
    }
}

fn is_whole(arguments: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok()
}
