//! Calls inside reasoning.
//!
//! A model that forgets to end its thought calls from within it; one that thinks aloud drafts calls that it does not mean. A call
//! in a thought counts only if it is complete, of a declared tool, in strong markup on its own line (or of special tokens), and
//! nothing is said behind it: no further thought and no answer. Until that is known it is held; else it stays reasoning.

use crate::event::{Event, Note};

use super::Settings;
use super::formats::{self, Weak};
use super::grammar::{self, Call, Context, End, Step, blanks, loose_blanks, may_become, name_length};
use super::{named, normalise};

/// As much thought may follow a draft until it is only thought.
const AFTER: usize = 4096;
/// Longest open candidate, in bytes.
const LONGEST: usize = 1 << 20;
/// From here on an open candidate is looked at again only when it has grown by a sixteenth.
const OFTEN: usize = 4096;
/// After so many candidates that came to nothing, all is thought.
const PATIENCE: usize = 16;
/// A call has at most so many openers: a doubled wrapper, a section.
const OPENERS: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Thought {
    held: String,
    /// Calls of the draft at the front of `held`, and its bytes.
    draft: Option<(Vec<Call>, usize)>,
    retry: usize,
    rejected: usize,
    /// The line of thought that was given out last is not empty.
    inside_line: bool,
}

/// What became of a held draft at the end.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    pub(crate) events: Vec<Event>,
    pub(crate) calls: Vec<Call>,
    /// What the model said behind the calls, no thought any more.
    pub(crate) text: String,
    /// The answer was cut inside a call.
    pub(crate) lost: bool,
}

impl Thought {
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Takes more reasoning, and gives what is certain.
    pub(crate) fn push(&mut self, text: &str, settings: &Settings) -> Vec<Event> {
        self.held.push_str(text);
        let mut events = Vec::new();
        if self.held.len() >= self.retry {
            self.run(End::Open, settings, &mut events);
            self.retry = if self.held.len() > OFTEN { self.held.len() + self.held.len() / 16 } else { 0 };
        }
        events
    }

    /// An answer follows: all that is held is thought.
    pub(crate) fn release(&mut self) -> Vec<Event> {
        self.draft = None;
        let mut events = Vec::new();
        let all = self.held.len();
        self.give(all, &mut events);
        events
    }

    /// Nothing follows. `open`: the thought was never closed.
    pub(crate) fn finish(&mut self, end: End, open: bool, settings: &Settings) -> Rest {
        let mut rest = Rest::default();
        // What the text alone decides is decided before what its end does.
        self.run(End::Open, settings, &mut rest.events);
        self.run(end, settings, &mut rest.events);
        if let Some((calls, used)) = self.draft.take() {
            let behind = self.held.split_off(used);
            // A fence that closes right behind the draft makes it an example.
            let fenced = ["```", "~~~"].iter().any(|fence| behind.trim_start().starts_with(fence));
            if behind.trim().is_empty() || (open && !fenced) {
                rest.events.push(Event::Note(Note::Markup(std::mem::take(&mut self.held))));
                rest.calls = calls;
                rest.text = behind;
                return rest;
            }
            self.held.push_str(&behind);
        } else if end == End::Cut && !self.held.is_empty() {
            rest.events.push(Event::Note(Note::Markup(std::mem::take(&mut self.held))));
            rest.events.push(Event::Note(Note::CutInsideCall));
            rest.lost = true;
            return rest;
        }
        rest.events.extend(self.release());
        rest
    }

    fn run(&mut self, end: End, settings: &Settings, events: &mut Vec<Event>) {
        while !self.held.is_empty() {
            if let Some((_, used)) = self.draft {
                if !self.extend(used, end, settings, events) {
                    return;
                }
            } else if !self.search(end, settings, events) {
                return;
            }
        }
    }

    /// Looks behind the draft: a further call, or so much thought that the draft is only thought.
    fn extend(&mut self, used: usize, end: End, settings: &Settings, events: &mut Vec<Event>) -> bool {
        let at = used + blanks(&self.held[used..]);
        // Closers of a section belong to the draft.
        match formats::closer_at(&self.held[at..]) {
            Ok(closer) if !self.held[at..].starts_with('`') => {
                if let Some((_, used)) = &mut self.draft {
                    *used = at + closer;
                }
                return true;
            }
            Err(true) if !end.is_end() => return false,
            Ok(_) | Err(_) => {}
        }
        if at < self.held.len() {
            // One that is none is counted when it is passed, not each time that more comes behind it.
            match self.look(at, end, settings) {
                Found::Calls(more, bytes) => {
                    if let Some((calls, used)) = &mut self.draft {
                        calls.extend(more);
                        *used = at + bytes;
                    }
                    return true;
                }
                Found::Open if !end.is_end() && self.held.len() - at < LONGEST => return false,
                Found::Open | Found::No | Found::Rejected | Found::Talk(_) => {}
            }
        }
        if self.held.len() - used > AFTER {
            self.draft = None;
            self.give(used, events);
            return true;
        }
        false
    }

    /// Gives out thought up to the next candidate. False: the rest is undecided.
    fn search(&mut self, end: End, settings: &Settings, events: &mut Vec<Event>) -> bool {
        let mut at = 0;
        while let Some(place) = self.next(at) {
            at = place;
            match self.candidate(at, end, settings) {
                Found::No | Found::Rejected => at += 1,
                Found::Talk(bytes) => at += bytes,
                Found::Open => {
                    let long = self.held.len() - at >= LONGEST;
                    if long || end == End::Stop {
                        at += 1;
                        continue;
                    }
                    self.give(at, events);
                    return false;
                }
                Found::Calls(calls, bytes) => {
                    self.give(at, events);
                    self.draft = Some((calls, bytes));
                    return true;
                }
            }
        }
        let all = self.held.len();
        self.give(all, events);
        false
    }

    /// The next place, at `from` or behind it, where a call may begin: a tag, or a line that opens one with a word.
    fn next(&self, from: usize) -> Option<usize> {
        let bytes = self.held.as_bytes();
        let (mut at, mut start) = (from, self.own_line(from));
        loop {
            if start {
                at += bytes[at..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
                // `functools[`, `function call`, `Action:`, `>>>`
                let second = |known: &u8| bytes.get(at + 1).is_none_or(|byte| byte == known);
                match bytes.get(at) {
                    Some(b'f') if second(&b'u') => return Some(at),
                    Some(b'A') if second(&b'c') => return Some(at),
                    Some(b'>') if second(&b'>') => return Some(at),
                    _ => {}
                }
            }
            let Some(found) = memchr::memchr3(b'\n', b'<', b'[', &bytes[at..]) else {
                // MiniMax M3's marker begins one byte before its `<`.
                return (bytes.len() > at && bytes.ends_with(b"]")).then(|| bytes.len() - 1);
            };
            at += found;
            start = bytes[at] == b'\n';
            match bytes[at] {
                b'\n' => at += 1,
                b'<' if at > from && bytes[at - 1] == b']' => return Some(at - 1),
                _ => return Some(at),
            }
        }
    }

    /// What stands at `at`.
    fn candidate(&mut self, at: usize, end: End, settings: &Settings) -> Found {
        let found = self.look(at, end, settings);
        if matches!(found, Found::Rejected) || (matches!(found, Found::Open) && end == End::Stop) {
            self.rejected += 1;
        }
        found
    }

    /// Nothing but blanks stands before this place on its line.
    fn own_line(&self, at: usize) -> bool {
        let before = self.held[..at].trim_end_matches([' ', '\t', '\r']);
        if before.is_empty() { !self.inside_line } else { before.ends_with('\n') }
    }

    fn look(&self, at: usize, end: End, settings: &Settings) -> Found {
        if self.rejected > PATIENCE {
            return Found::No;
        }
        let context = Context { tools: &settings.tools, end, demanded: false, named: None, keyed: false };
        if self.held[at..].starts_with('>') {
            let counts = settings.weak == Weak::Any && settings.looks_for_name("functionary");
            return if counts { quoted(&self.held[at..], context) } else { Found::No };
        }
        let mut from = at;
        for _ in 0..OPENERS {
            let rest = &self.held[from..];
            match formats::at(rest) {
                Ok((format, _)) if !settings.looks_for(format) => return Found::No,
                Ok((format, _))
                    if !format.token && from == at && self.draft.is_none() && !self.own_line(at) =>
                {
                    return self.talk(from, context);
                }
                Ok((format, opener)) => match format.read(rest, opener, context) {
                    Step::More => return Found::Open,
                    Step::Opener(used) => from += used + loose_blanks(&rest[used..]),
                    Step::Shell(..) | Step::Reasoning(..) => return Found::No,
                    Step::Calls(calls, used) => {
                        let declared = !calls.is_empty() && calls.iter().all(|call| call.declared);
                        return if declared {
                            Found::Calls(calls, from - at + used)
                        } else {
                            Found::Rejected
                        };
                    }
                    Step::CutAfter(_)
                    | Step::Not(_)
                    | Step::Shown(_)
                    | Step::Broken(..)
                    | Step::Before(..) => {
                        return Found::Rejected;
                    }
                },
                Err(true) if !end.is_end() => return Found::Open,
                Err(_) => return Found::No,
            }
        }
        Found::Rejected
    }

    /// A call in the middle of a line is talk with all that it encloses.
    fn talk(&self, at: usize, context: Context<'_>) -> Found {
        let rest = &self.held[at..];
        let Ok((format, opener)) = formats::at(rest) else { return Found::No };
        match format.read(rest, opener, context) {
            Step::More if context.end.is_end() => Found::Talk(rest.len()),
            Step::More => Found::Open,
            Step::Not(_) if format.is_loose() => Found::Rejected,
            Step::Calls(_, used) | Step::Not(used) | Step::Before(_, _, used) => Found::Talk(used.max(1)),
            Step::Opener(used) => {
                let from = used + loose_blanks(&rest[used..]);
                match self.talk(at + from, context) {
                    Found::Talk(bytes) => Found::Talk(from + bytes),
                    found => found,
                }
            }
            _ => Found::Talk(rest.len()),
        }
    }

    /// The first bytes are thought.
    fn give(&mut self, bytes: usize, events: &mut Vec<Event>) {
        if bytes == 0 {
            return;
        }
        let given: String = self.held.drain(..bytes).collect();
        self.inside_line = match given.rsplit_once('\n') {
            Some((_, line)) => !line.trim().is_empty(),
            None => self.inside_line || !given.trim().is_empty(),
        };
        events.push(Event::Reasoning(given));
    }
}

/// `>>>NAME` and its arguments: weak evidence, so the tool is declared and nothing that it requires is missing.
fn quoted(text: &str, context: Context<'_>) -> Found {
    let Some(header) = text.strip_prefix(">>>") else {
        return if may_become(text, ">>>") && !context.end.is_end() { Found::Open } else { Found::No };
    };
    let (name, behind) = header.split_at(name_length(header));
    let line = behind.trim_start_matches([' ', '\t', '\r']);
    if line.is_empty() && !context.end.is_end() {
        return Found::Open;
    }
    if !line.starts_with('\n') || context.tools.resolve(name).is_none() {
        return Found::No;
    }
    match grammar::settle(named::functionary(text, 3, context), text, &[], &[], context) {
        Step::More => Found::Open,
        Step::Calls(calls, used) if calls.iter().all(|call| normalise::has_required(call, context.tools)) => {
            if calls.is_empty() {
                Found::No
            } else {
                Found::Calls(calls, used)
            }
        }
        _ => Found::No,
    }
}

enum Found {
    No,
    /// A marker, but no call behind it.
    Rejected,
    Open,
    /// So many bytes are talk, whatever they show.
    Talk(usize),
    Calls(Vec<Call>, usize),
}
