//! Whether a call that could be read was meant, or only shown.
//!
//! The place raises the doubt, what follows the call settles it (`behind.rs`): prose behind an indented example, the end of inline
//! code or of a quotation, a sentence that goes on. While that is open the call is held, never longer than the doubt needs.

use super::Settings;
use super::behind::{sentence, span, subject};
use super::formats::Format;
use super::grammar::{End, Step};
use super::lead::Lead;
use super::lines::closes_showing;
use super::machine::{Look, Machine};
use super::outcome::encloses;
use super::weak;

/// What it takes behind a call for it to be one, from little to much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doubt {
    /// Nothing.
    None,
    /// It begins its line: neither that line nor the next may go on in a sentence that it began.
    Line,
    /// The line before goes on into it: nothing but further calls may follow. What is shown is short: a long call may leave.
    Led,
    /// A sentence has ended before it on its line: what follows on that line must begin another.
    Sentence,
    /// Inline code is open since an earlier line of the paragraph: it must not be closed behind it.
    Span,
    /// One thing speaks against it: nothing but further calls may follow.
    Alone,
    /// Whatever follows, it is talk.
    Talk,
}

impl Doubt {
    /// It takes the end of the turn to lift it, or nothing does.
    fn is_open(self) -> bool {
        matches!(self, Self::Led | Self::Alone | Self::Talk)
    }
}

impl Machine {
    /// What a call of this format needs here in order to be one.
    pub(super) fn doubt_of(&self, format: &Format) -> Doubt {
        let least = if format.is_loose() { Doubt::Alone } else { Doubt::None };
        self.doubt().max(least)
    }

    /// What any call needs here.
    pub(super) fn doubt(&self) -> Doubt {
        let place = &self.place;
        if self.shown || place.is_shown(&self.pending) {
            return Doubt::Talk;
        }
        let code = place.is_code(&self.pending);
        if self.gap {
            // Behind a call all is meant; at the very start an indented one may be an example.
            return match (self.has_call(), code) {
                (true, _) => Doubt::None,
                (false, true) => Doubt::Alone,
                (false, false) => Doubt::Line,
            };
        }
        let lead = place.lead(&self.text);
        // Behind a call that was meant, the text before counts no more.
        let counts = !(place.start && self.has_call());
        let led = lead != Lead::Ended && counts;
        let words = if counts { place.doubts(&self.text) } else { 0 };
        let others = [
            code,
            lead == Lead::Prompt,
            place.is_enclosed(),
            place.has_turns(),
            // In the part of an answer that is written for the reader.
            !self.shell.is_empty(),
            // A call before this one was only shown.
            self.showed,
        ];
        match (led, others.iter().filter(|other| **other).count() + words) {
            (false, 0) if place.span => Doubt::Span,
            (false, 0) if place.start => Doubt::Line,
            (false, 0) => Doubt::Sentence,
            (true, 0) if place.start => Doubt::Led,
            (true, 0) | (false, 1) => Doubt::Alone,
            _ => Doubt::Talk,
        }
    }

    /// Delivers calls, or not, as what follows them tells.
    pub(super) fn meant(&self, rest: &str, step: Step, doubt: Doubt, end: End, settings: &Settings) -> Look {
        let used = match &step {
            Step::Calls(calls, used) | Step::Before(calls, _, used) if !calls.is_empty() => *used,
            // A call that nobody can read, where one would leave a doubt: what it shows is no better a lead than what led to it.
            Step::Not(used) if doubt.is_open() && encloses(rest, *used) => {
                return Look::Read(Step::Shown(*used), true);
            }
            Step::Calls(..) | Step::Before(..) | Step::Not(_) | Step::Opener(_) => {
                return Look::Read(step, true);
            }
            Step::More if doubt == Doubt::Talk && end.is_end() => return Look::Text(rest.len()),
            Step::CutAfter(_) | Step::Shell(..) | Step::Reasoning(..) if doubt == Doubt::Talk => {
                return Look::Text(1);
            }
            _ => return Look::Read(step, true),
        };
        // Blanks that the grammar has passed over are a part of what follows.
        let behind = rest[..used].trim_end().len();
        match self.is_meant(&rest[behind..], doubt, end, settings) {
            Some(true) => Look::Read(step, true),
            Some(false) => Look::Shown(used),
            None if end.is_end() => Look::Read(step, true),
            None => Look::Hold,
        }
    }

    /// The same for weak evidence, which stands at the beginning of a line.
    pub(super) fn weakly_meant(&self, rest: &str, step: Step, end: End, settings: &Settings) -> Look {
        let used = match &step {
            Step::Calls(calls, used) if !calls.is_empty() && !self.gap => *used,
            _ => return Look::Read(step, false),
        };
        let doubt = self.doubt();
        if !weak::is_closed(&rest[..used]) {
            // Nothing follows it, so nothing lifts a doubt.
            return if doubt <= Doubt::Line { Look::Read(step, false) } else { Look::Shown(used) };
        }
        match self.is_meant(&rest[used..], doubt, end, settings) {
            Some(false) => Look::Shown(used),
            None if !end.is_end() => Look::Hold,
            _ => Look::Read(step, false),
        }
    }

    /// `None` while that is open.
    fn is_meant(&self, behind: &str, doubt: Doubt, end: End, settings: &Settings) -> Option<bool> {
        if doubt == Doubt::Talk {
            return Some(false);
        }
        let partner = self.place.quotation().filter(|_| !self.gap);
        if partner.is_some() || self.place.shows() {
            let behind = self.behind_calls(behind, end, settings)?;
            match behind.chars().next() {
                None => return None,
                next if next == partner => return Some(false),
                _ => {}
            }
            match closes_showing(behind.trim_start()) {
                Ok(()) => return Some(false),
                Err(true) => return None,
                Err(false) => {}
            }
        }
        match doubt {
            Doubt::None => Some(true),
            Doubt::Talk => Some(false),
            Doubt::Line => subject(self.behind_calls(behind, end, settings)?, end),
            Doubt::Led | Doubt::Alone => self.ends_turn(behind, end, settings),
            Doubt::Sentence => sentence(self.behind_calls(behind, end, settings)?),
            Doubt::Span => span(behind),
        }
    }

    /// Weak evidence behind words that deny it, or ask.
    pub(super) fn is_denied(&self, rest: &str, step: &Step) -> bool {
        let Step::Calls(calls, used) = step else { return false };
        !self.gap && !weak::is_closed(&rest[..*used]) && !calls.is_empty() && self.place.denies(&self.text)
    }
}
