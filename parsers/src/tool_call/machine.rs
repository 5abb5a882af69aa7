//! The text of an answer, after its reasoning: finds markers, holds back what may be one, hands it to its grammar.
//!
//! What stands at the front decides; nothing is looked at twice except a candidate that is still open. Text leaves in order:
//! what is held is text, a call or markup, and never two of them. Plain text costs one search for `<`, `[` and newlines.

use crate::event::{Event, Note};

use super::Settings;
use super::formats::{Format, LEAKS, THOUGHTS};
use super::grammar::{Call, Context, End, Step, blanks, find_any, held_suffix};
use super::long::{Flow, Long};
use super::place::Place;

/// A candidate may be held up to so many bytes; beyond that it is text.
pub(super) const LONGEST: usize = 8 << 20;
/// From here on an open candidate is looked at again only when it has grown by a sixteenth.
const OFTEN: usize = 4096;
/// After so many candidates that came to nothing, weak evidence counts no longer.
pub(super) const PATIENCE: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Machine {
    held: String,
    /// Blanks and section openers in front of `held`: what follows decides what they are.
    pub(super) pending: String,
    /// Text that is certain, on its way into one event.
    pub(super) text: String,
    pub(super) events: Vec<Event>,
    pub(super) place: Place,
    /// At the start, or right behind reasoning, a call or markup.
    pub(super) gap: bool,
    pub(super) thought: Option<&'static [&'static str]>,
    long: Option<Long>,
    /// A long call was one of a list, which may go on.
    pub(super) list: Option<&'static Format>,
    pub(super) shell: &'static [&'static str],
    /// Length of `held` below which it need not be looked at again.
    retry: usize,
    pub(super) rejected: usize,
    pub(super) calls: usize,
    /// A call that is only shown was said last: what follows it at once is shown too.
    pub(super) shown: bool,
    /// Some call of the answer was only shown.
    pub(super) showed: bool,
    /// The backend has sent a call itself, beside the text.
    beside: bool,
    pub(super) said: bool,
    pub(super) reasoned: bool,
    pub(super) lost: bool,
    /// Markup of a call that nobody can read has become text.
    pub(super) unread: bool,
    stopped: bool,
}

/// What stands at the front.
pub(super) enum Look {
    Text(usize),
    Drop(usize),
    Hold,
    /// The mark of a fence, so many bytes; whether it shows a call.
    Fence(usize, bool),
    /// These many bytes are calls that are only shown.
    Shown(usize),
    Stop,
    Shell(usize, &'static [&'static str]),
    Read(Step, bool),
    Long(Long, Vec<Event>, usize),
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self { gap: true, ..Self::default() }
    }

    /// Bytes held back.
    pub(crate) fn held(&self) -> usize {
        self.held.len() + self.pending.len()
    }

    /// Calls so far.
    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// True if something was lost to a cut.
    pub(crate) fn lost(&self) -> bool {
        self.lost
    }

    /// True if markup of a call became text, since nobody can read it.
    pub(crate) fn unread(&self) -> bool {
        self.unread
    }

    /// True if a call, and no text, was last.
    pub(crate) fn ends_in_call(&self) -> bool {
        self.calls > 0 && self.gap && self.thought.is_none()
    }

    /// The backend has sent a call itself: what its parser left of the markup is surplus.
    pub(crate) fn call_beside(&mut self) {
        (self.beside, self.gap) = (true, true);
        self.place.fresh();
    }

    /// A call stood before, in this text or beside it.
    pub(super) fn has_call(&self) -> bool {
        self.calls > 0 || self.beside
    }

    /// Reasoning stood before this text.
    pub(crate) fn after_reasoning(&mut self) {
        self.reasoned = true;
    }

    /// Delivers calls that were found elsewhere (in the reasoning).
    pub(crate) fn lift(&mut self, calls: Vec<Call>, settings: &Settings) -> Vec<Event> {
        self.deliver(calls, settings);
        std::mem::take(&mut self.events)
    }

    /// Takes the next text, and gives what is certain.
    pub(crate) fn push(&mut self, text: &str, settings: &Settings) -> Vec<Event> {
        if self.held.is_empty() {
            let used = self.walk(text, End::Open, settings);
            self.held.push_str(&text[used..]);
        } else {
            self.held.push_str(text);
            if self.held.len() < self.retry {
                return Vec::new();
            }
            self.settle(End::Open, settings);
        }
        self.retry = if self.held.len() > OFTEN { self.held.len() + self.held.len() / 16 } else { 0 };
        self.flush();
        std::mem::take(&mut self.events)
    }

    /// Takes the last text, and gives all that is left. What the text alone decides is decided before what its end does, so that
    /// it is the same whether the end was known when the text came.
    pub(crate) fn finish(&mut self, text: &str, end: End, settings: &Settings) -> Vec<Event> {
        self.held.push_str(text);
        self.settle(End::Open, settings);
        self.settle(end, settings);
        if let Some(long) = self.long.take() {
            self.stream(long, "", end, settings);
        }
        let pending = std::mem::take(&mut self.pending);
        let framed = end == End::Cut && !pending.trim().is_empty();
        match self.said || self.has_call() || self.reasoned || self.lost || framed {
            true => self.markup(&pending),
            false => self.text.push_str(&pending),
        }
        self.flush();
        std::mem::take(&mut self.events)
    }

    /// Steps over what is held; what is done leaves the front once.
    fn settle(&mut self, end: End, settings: &Settings) {
        let mut held = std::mem::take(&mut self.held);
        held.drain(..self.walk(&held, end, settings));
        self.held = held;
    }

    /// Steps over the text; the bytes that are done.
    fn walk(&mut self, text: &str, end: End, settings: &Settings) -> usize {
        let mut at = 0;
        while at < text.len() {
            match self.step(&text[at..], end, settings) {
                Some(used) => at += used,
                None => break,
            }
        }
        at
    }

    pub(super) fn flush(&mut self) {
        if !self.text.is_empty() {
            self.place.left(&self.text);
            self.events.push(Event::Text(std::mem::take(&mut self.text)));
        }
    }

    pub(super) fn markup(&mut self, text: &str) {
        if !text.is_empty() {
            self.flush();
            self.events.push(Event::Note(Note::Markup(text.to_owned())));
        }
    }

    /// One step; the bytes that are done, or none while the text is undecided.
    fn step(&mut self, rest: &str, end: End, settings: &Settings) -> Option<usize> {
        if self.stopped {
            self.markup(rest);
            return Some(rest.len());
        }
        if let Some(closers) = self.thought {
            return self.think(rest, closers, end);
        }
        if let Some(long) = self.long.take() {
            return self.stream(long, rest, end, settings);
        }
        if self.gap {
            let blank = blanks(rest);
            if blank > 0 {
                self.pending.push_str(&rest[..blank]);
                return Some(blank);
            }
        }
        if !self.gap {
            // What a piece begins with is passed over as it would be in the midst of one.
            let words = self.place.next(rest, 0);
            if words > 0 {
                return self.say_exactly(rest, words);
            }
        }
        match self.look(rest, end, settings) {
            Look::Text(used) => self.say(rest, used),
            Look::Hold if end.is_end() => self.say(rest, rest.len()),
            Look::Hold => None,
            Look::Drop(used) => self.drop(&rest[..used]),
            Look::Fence(run, shows) => {
                self.showed |= shows;
                let opened = rest.bytes().next().map(|mark| (mark, run));
                self.place.fence = if self.place.fence.is_some() { None } else { opened };
                self.say(rest, run)
            }
            Look::Shown(used) => {
                let used = self.say_exactly(rest, used);
                (self.shown, self.showed) = (true, true);
                used
            }
            Look::Stop => {
                let pending = std::mem::take(&mut self.pending);
                self.markup(&pending);
                self.events.push(Event::Note(Note::InventedTurnDropped));
                self.stopped = true;
                Some(0)
            }
            Look::Shell(used, closers) => {
                self.shell = closers;
                self.drop(&rest[..used])
            }
            Look::Long(long, events, used) => {
                self.drop(&rest[..used]);
                self.events.extend(events);
                self.long = Some(long);
                self.calls += 1;
                Some(used)
            }
            Look::Read(step, strong) => self.take(rest, step, strong, end, settings),
        }
    }

    /// Reasoning up to the closer.
    fn think(&mut self, rest: &str, closers: &'static [&'static str], end: End) -> Option<usize> {
        let found = find_any(rest, closers);
        let (spoken, closer) = match found {
            Some((at, closer)) => (at, Some(closer)),
            None if end.is_end() => (rest.len(), None),
            None => (rest.len() - held_suffix(rest, closers), None),
        };
        if spoken > 0 {
            self.flush();
            self.events.push(Event::Reasoning(rest[..spoken].to_owned()));
        }
        let Some(closer) = closer else { return (spoken > 0).then_some(spoken) };
        self.thought = None;
        self.gap = true;
        self.reasoned = true;
        self.place.fresh();
        let own = THOUGHTS.iter().any(|(_, closers)| closers.contains(&closer));
        if !own && !LEAKS.contains(&closer) {
            return Some(spoken);
        }
        self.markup(closer);
        Some(spoken + closer.len())
    }

    /// A long call goes on.
    fn stream(&mut self, mut long: Long, rest: &str, end: End, settings: &Settings) -> Option<usize> {
        self.flush();
        match long.push(rest, end, &settings.tools, &mut self.events) {
            Flow::Used(used) => {
                self.markup(&rest[..used]);
                self.long = Some(long);
                Some(used)
            }
            Flow::Done(used) => {
                self.markup(&rest[..used]);
                self.list = long.list();
                Some(used)
            }
            Flow::Hold if !end.is_end() => {
                self.long = Some(long);
                None
            }
            // What has left cannot be taken back: the call stays open, and the rest is lost with it.
            Flow::Hold | Flow::Broken => {
                self.cut(rest);
                self.stopped = true;
                Some(rest.len())
            }
        }
    }

    pub(super) fn context<'a>(&self, end: End, settings: &'a Settings) -> Context<'a> {
        let named = settings.named.as_deref();
        Context { tools: &settings.tools, end, demanded: settings.demanded, named, keyed: false }
    }
}
