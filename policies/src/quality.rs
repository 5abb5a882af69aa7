//! Whether a backend still answers as well as it used to: its last answers against its own earlier ones.
//!
//! An engine can live, compute and answer under status 200, and yet be of no use: after an event in its memory its calls fall apart,
//! or every other answer is empty. No single answer shows that, since models err, and some backends never wrote a call
//! that needed no repair. So nothing is held against a backend but what it did better before, for the same kind of request: one client
//! with a schema that no model can fill, or one conversation that went astray, says nothing of it.
//!
//! What follows is the caller's. Must never call a backend collapsed that has always been as it is, nor on the word of one
//! conversation.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

/// The last answers, which are compared with all before them.
const WINDOW: usize = 20;

/// Answers before those, without which there is nothing to compare with.
const BEFORE: f64 = 20.0;

/// What was long ago counts less and less: beyond so many answers each counts half.
const MEMORY: f64 = 400.0;

/// By so much the part of the flawed must have grown. One that is flawed every other time cannot be told from chance.
const GROWN: f64 = 0.5;

/// The part has grown by no more than this: it has recovered.
const RECOVERED: f64 = 0.1;

/// Conversations that must have met flawed answers.
const CONVERSATIONS: usize = 3;

/// Sound answers after which a kind of request is known to work there.
const WORKS: u32 = 3;

/// Kinds of requests that are remembered.
const KINDS: usize = 64;

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flaw {
    /// It says nothing.
    Empty,
    /// It is one exclamation mark after the other.
    Garbage,
    /// It has the markup of a call that nobody can read.
    Unreadable,
    /// It calls a tool that was not declared.
    Undeclared,
    /// A call's arguments are no JSON, or do not fit the tool's schema.
    Invalid,
    /// A call had to be mended.
    Mended,
}

/// What of an answer is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// That it says something.
    Answers,
    /// Its calls.
    Calls,
}

/// One answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Graded {
    /// What is wrong with it.
    pub flaw: Option<Flaw>,
    /// The conversation, as a number.
    pub conversation: u64,
    /// The kind of request, as a number: who asks, with which tools.
    pub kind: u64,
}

/// A backend that answers worse than it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collapse {
    /// What is worse.
    pub subject: Subject,
    /// What is wrong with most of them.
    pub flaw: Flaw,
    /// Of so many of the last answers …
    pub of: usize,
    /// … so many are flawed, …
    pub flawed: usize,
    /// … which were so many in a hundred before.
    pub before: u32,
}

impl fmt::Display for Collapse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, flaw, of, flawed, before } = self;
        let subject = match subject {
            Subject::Answers => "answers",
            Subject::Calls => "answers with calls",
        };
        let flaw = match flaw {
            Flaw::Empty => "empty",
            Flaw::Garbage => "garbage",
            Flaw::Unreadable => "calls that cannot be read",
            Flaw::Undeclared => "calls of tools that do not exist",
            Flaw::Invalid => "calls with invalid arguments",
            Flaw::Mended => "calls that had to be mended",
        };
        write!(
            f,
            "{flawed} of its last {of} {subject} are flawed (mostly {flaw}), which {before} in 100 were before"
        )
    }
}

/// What an answer changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing.
    Same,
    /// It has collapsed.
    Collapsed(Collapse),
    /// It answers as it used to again.
    Recovered,
}

/// What a backend's answers were like. Bounded, and without a clock.
#[derive(Clone, Debug, Default)]
pub struct Record {
    answers: Track,
    calls: Track,
}

impl Record {
    /// Takes an answer.
    pub fn took(&mut self, subject: Subject, graded: Graded) -> Finding {
        let others = match subject {
            Subject::Answers => self.calls.collapsed,
            Subject::Calls => self.answers.collapsed,
        };
        let track = match subject {
            Subject::Answers => &mut self.answers,
            Subject::Calls => &mut self.calls,
        };
        match track.took(subject, graded) {
            // The other half of it is still ill.
            Finding::Recovered if others.is_some() => Finding::Same,
            found => found,
        }
    }

    /// What has become worse, if anything has.
    #[must_use]
    pub fn collapsed(&self) -> Option<Collapse> {
        self.calls.collapsed.or(self.answers.collapsed)
    }

    /// It has proved itself, or was restarted: what it did last is forgotten, what it used to be like is not.
    pub fn release(&mut self) {
        for track in [&mut self.answers, &mut self.calls] {
            track.window.clear();
            track.collapsed = None;
        }
    }
}

/// The answers of one subject.
#[derive(Clone, Debug, Default)]
struct Track {
    window: VecDeque<Graded>,
    /// What has left the window: flawed ones, and all.
    before: (f64, f64),
    /// Kinds of requests, and how often they were answered soundly; the latest last.
    kinds: VecDeque<(u64, u32)>,
    collapsed: Option<Collapse>,
}

impl Track {
    fn took(&mut self, subject: Subject, graded: Graded) -> Finding {
        if !self.works(graded) {
            return Finding::Same;
        }
        self.window.push_back(graded);
        if self.window.len() > WINDOW
            && let Some(old) = self.window.pop_front()
            // What an ill engine does is not what it is like.
            && self.collapsed.is_none()
        {
            self.before.0 += f64::from(u8::from(old.flaw.is_some()));
            self.before.1 += 1.0;
            if self.before.1 > MEMORY {
                self.before = (self.before.0 / 2.0, self.before.1 / 2.0);
            }
        }
        let (flawed, all) = self.before;
        if self.window.len() < WINDOW || all < BEFORE {
            return Finding::Same;
        }
        let grown = self.flawed().count() as f64 / WINDOW as f64 - flawed / all;
        match self.collapsed {
            Some(_) if grown <= RECOVERED => {
                self.collapsed = None;
                Finding::Recovered
            }
            None if grown >= GROWN && self.is_general() => {
                let collapse = self.collapse(subject);
                self.collapsed = Some(collapse);
                Finding::Collapsed(collapse)
            }
            _ => Finding::Same,
        }
    }

    /// Whether requests of this kind are known to work here: others say nothing of the backend.
    fn works(&mut self, graded: Graded) -> bool {
        let known = self.kinds.iter().position(|(kind, _)| *kind == graded.kind);
        let (kind, mut sound) = known.and_then(|at| self.kinds.remove(at)).unwrap_or((graded.kind, 0));
        let works = sound >= WORKS || graded.flaw.is_none();
        sound = sound.saturating_add(u32::from(graded.flaw.is_none()));
        if sound > 0 {
            self.kinds.push_back((kind, sound));
        }
        if self.kinds.len() > KINDS {
            self.kinds.pop_front();
        }
        works
    }

    fn flawed(&self) -> impl Iterator<Item = &Graded> {
        self.window.iter().filter(|graded| graded.flaw.is_some())
    }

    /// Whether the flawed ones have nothing in common but the backend: several conversations, and of several kinds of requests no
    /// single one.
    fn is_general(&self) -> bool {
        let conversations: BTreeSet<u64> = self.flawed().map(|graded| graded.conversation).collect();
        let kinds: BTreeSet<u64> = self.window.iter().map(|graded| graded.kind).collect();
        let flawed: BTreeSet<u64> = self.flawed().map(|graded| graded.kind).collect();
        conversations.len() >= CONVERSATIONS && (flawed.len() > 1 || kinds.len() == 1)
    }

    fn collapse(&self, subject: Subject) -> Collapse {
        let count = |flaw: Flaw| self.flawed().filter(|graded| graded.flaw == Some(flaw)).count();
        let flaws: BTreeSet<Flaw> = self.flawed().filter_map(|graded| graded.flaw).collect();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share, 0 to 1")]
        let before = (self.before.0 / self.before.1 * 100.0).round() as u32;
        Collapse {
            subject,
            flaw: flaws.into_iter().max_by_key(|flaw| count(*flaw)).unwrap_or(Flaw::Invalid),
            of: WINDOW,
            flawed: self.flawed().count(),
            before,
        }
    }
}
