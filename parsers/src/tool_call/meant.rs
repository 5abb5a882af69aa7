//! Whether a call that could be read was meant, or only shown.
//!
//! The place raises the doubt, what follows the call settles it: prose behind an indented example, the end of inline code or of a
//! quotation, a sentence that goes on. While that is open the call is held, never longer than the doubt needs.

use super::Settings;
use super::formats::{self, Format, Grammar, SURPLUS};
use super::grammar::{End, Step, name_length, starts_with_any};
use super::lines::closes_showing;
use super::machine::{Look, Machine};
use super::place::Doubt;
use super::weak;

/// The end of inline code is looked for in so many bytes.
const SPAN: usize = 512;
/// Longest name of an element around calls, in bytes.
const ELEMENT: usize = 64;
/// As many calls in a row may follow an indented one before it is believed.
const ROW: usize = 64;

impl Machine {
    /// What a call of this format needs here in order to be one.
    pub(super) fn doubt(&self, format: &Format, rest: &str) -> Doubt {
        if self.shown {
            return Doubt::Talk;
        }
        let doubt = match self.place.doubt(&self.pending, format.token) {
            Doubt::None if !self.gap && self.place.start && self.place.exemplifies(&self.text) => {
                Doubt::Alone
            }
            doubt if !self.gap || doubt == Doubt::Talk => doubt,
            // Behind a call, and at the very start, only an indented one may be an example.
            Doubt::Alone if !self.has_call() => Doubt::Alone,
            _ => Doubt::None,
        };
        let element = doubt == Doubt::None && format.grammar == Grammar::Function && is_xml(rest);
        if element { Doubt::Element } else { doubt }
    }

    /// Delivers calls, or not, as what follows them tells.
    pub(super) fn meant(&self, rest: &str, step: Step, doubt: Doubt, end: End, settings: &Settings) -> Look {
        let used = match &step {
            Step::Calls(calls, used) | Step::Before(calls, _, used) if !calls.is_empty() => *used,
            Step::Calls(..) | Step::Before(..) | Step::Not(_) | Step::Opener(_) => {
                return Look::Read(step, true);
            }
            Step::More if doubt == Doubt::Talk && end.is_end() => return Look::Text(rest.len()),
            Step::CutAfter(_) | Step::Shell(..) | Step::Reasoning(..) if doubt == Doubt::Talk => {
                return Look::Text(1);
            }
            _ => return Look::Read(step, true),
        };
        match self.is_meant(&rest[used..], doubt, end, settings) {
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
        let doubt = if self.shown { Doubt::Talk } else { self.place.doubt("", false) };
        match self.is_meant(&rest[used..], doubt, end, settings) {
            Some(false) => Look::Shown(used),
            None if !end.is_end() => Look::Hold,
            _ => Look::Read(step, false),
        }
    }

    /// `None` while that is open.
    fn is_meant(&self, behind: &str, doubt: Doubt, end: End, settings: &Settings) -> Option<bool> {
        let partner = self.place.quotation().filter(|_| !self.gap);
        if partner.is_some() || self.place.shows() {
            let behind = self.behind_calls(behind, true, end, settings)?;
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
            Doubt::Sentence { token } => sentence(self.behind_calls(behind, false, end, settings)?, token),
            Doubt::Alone => self.stands_alone(behind, end, settings),
            Doubt::Span => span(behind),
            Doubt::Element => ends_element(self.behind_calls(behind, true, end, settings)?).map(|ends| !ends),
        }
    }

    /// The text behind further calls: of one place, all are meant or none. `lines`: they may stand on lines of their own.
    fn behind_calls<'t>(
        &self,
        behind: &'t str,
        lines: bool,
        end: End,
        settings: &Settings,
    ) -> Option<&'t str> {
        let mut rest = closed(behind)?;
        for _ in 0..ROW {
            let next = if lines { rest.trim_start() } else { rest };
            if next.is_empty() {
                return None;
            }
            rest = match formats::at(next) {
                Ok((format, opener)) => match format.read(next, opener, self.context(end, settings)) {
                    Step::Calls(_, used) | Step::Opener(used) => closed(&next[used..])?,
                    Step::More if !end.is_end() => return None,
                    _ => return Some(rest),
                },
                Err(true) if !end.is_end() => return None,
                Err(_) => return Some(rest),
            };
        }
        Some(rest)
    }

    /// Nothing but further calls follows.
    fn stands_alone(&self, behind: &str, end: End, settings: &Settings) -> Option<bool> {
        let mut rest = behind;
        for _ in 0..ROW {
            rest = closed(rest)?.trim_start();
            if rest.is_empty() {
                return None;
            }
            match formats::at(rest) {
                Ok((format, opener)) => match format.read(rest, opener, self.context(end, settings)) {
                    Step::Calls(_, used) | Step::Opener(used) => rest = &rest[used..],
                    Step::More | Step::CutAfter(_) => return None,
                    _ => return Some(false),
                },
                Err(true) => return None,
                Err(false) => return Some(formats::is_leak(rest)),
            }
        }
        Some(true)
    }

    /// Weak evidence behind words that deny it, or ask.
    pub(super) fn is_denied(&self, rest: &str, step: &Step) -> bool {
        let Step::Calls(calls, used) = step else { return false };
        let closed = weak::ORPHANS.iter().any(|closer| rest[..*used].ends_with(closer));
        !self.gap && !closed && !calls.is_empty() && self.place.denies(&self.text)
    }
}

/// The text behind closers that are surplus; none while it may be one.
fn closed(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        match formats::closer_at(rest) {
            Ok(closer) if !rest.starts_with('`') => rest = &rest[closer..],
            Err(true) if !rest.is_empty() => return None,
            _ => return Some(rest),
        }
    }
}

/// A bare block that any XML document may have: `<function name="N">`.
fn is_xml(text: &str) -> bool {
    let plain = ["<function", "<invoke"].iter().find_map(|tag| text.strip_prefix(tag));
    plain.is_some_and(|rest| rest.trim_start().starts_with("name"))
}

/// The element around the blocks ends behind them.
fn ends_element(behind: &str) -> Option<bool> {
    let rest = behind.trim_start();
    let Some(name) = rest.strip_prefix("</") else { return (!"</".starts_with(rest)).then_some(false) };
    let length = name_length(name);
    if length == name.len() && length < ELEMENT {
        return None;
    }
    Some(
        name[length..].starts_with('>')
            && formats::closer_at(rest).is_err()
            && starts_with_any(rest, SURPLUS).is_err(),
    )
}

/// Words stand before the call: those that follow on its line make it talk. A token's sentence must go on through it.
fn sentence(behind: &str, token: bool) -> Option<bool> {
    match closed(behind)?.chars().next()? {
        '\n' | '\r' | '<' | '[' => Some(true),
        c if token => Some(!(c.is_alphanumeric() && !c.is_uppercase() || ",.;:)?!\"`'”».".contains(c))),
        _ => Some(false),
    }
}

/// Inline code that began on an earlier line ends behind the call, in the same paragraph.
fn span(behind: &str) -> Option<bool> {
    let blank = |at: usize| behind[at + 1..].trim_start_matches([' ', '\t', '\r']).starts_with('\n');
    for (at, c) in behind.char_indices().take_while(|(at, _)| *at < SPAN) {
        match c {
            '`' => return Some(false),
            '\n' if blank(at) => return Some(true),
            _ => {}
        }
    }
    (behind.len() >= SPAN).then_some(true)
}
