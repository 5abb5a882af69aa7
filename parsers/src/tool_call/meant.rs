//! Whether a call that could be read was meant, or only shown.
//!
//! The place raises the doubt, what follows the call settles it: prose behind an indented example, the end of inline code or of a
//! quotation, a sentence that goes on. While that is open the call is held, never longer than the doubt needs.

use super::Settings;
use super::formats::{self, Format, Grammar, INVENTED, LEAKS, SURPLUS};
use super::grammar::{End, Step, starts_with_any, window};
use super::lead::Lead;
use super::lines::closes_showing;
use super::long::HELD;
use super::machine::{Look, Machine};
use super::weak;

/// The end of inline code, or of a line, is looked for in so many bytes.
const SPAN: usize = 512;
/// No word has so many bytes.
const WORD: usize = 64;
/// As many calls in a row may follow a doubtful one before it is believed.
const ROW: usize = 64;

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

impl Machine {
    /// What a call of this format needs here in order to be one.
    pub(super) fn doubt_of(&self, format: &Format) -> Doubt {
        let least = if format.grammar == Grammar::Loose { Doubt::Alone } else { Doubt::None };
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

    /// The same for weak evidence, which stands at the beginning of a line. `json`: it is a bare object.
    pub(super) fn weakly_meant(&self, rest: &str, step: Step, end: End, settings: &Settings) -> Look {
        let used = match &step {
            Step::Calls(calls, used) if !calls.is_empty() && !self.gap => *used,
            _ => return Look::Read(step, false),
        };
        let doubt = self.doubt();
        if !weak::is_closed(&rest[..used]) {
            // Nothing follows it. A bare object may be announced; a list is documentation then.
            let announced = || self.place.lead(&self.text) == Lead::Announced && !weak::is_list(rest);
            let meant = doubt <= Doubt::Line || (doubt == Doubt::Led && announced());
            return if meant { Look::Read(step, false) } else { Look::Shown(used) };
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
            Doubt::Led | Doubt::Alone => self.ends_turn(self.behind_calls(behind, end, settings)?),
            Doubt::Sentence => sentence(self.behind_calls(behind, end, settings)?),
            Doubt::Span => span(behind),
        }
    }

    /// The text behind further calls: of one place, all are meant or none.
    fn behind_calls<'t>(&self, behind: &'t str, end: End, settings: &Settings) -> Option<&'t str> {
        let mut rest = closed(behind)?;
        for _ in 0..ROW {
            let next = rest.trim_start();
            if next.is_empty() {
                return None;
            }
            rest = match formats::at(next) {
                // What is shown is short.
                Ok((format, opener))
                    if next.len() > HELD
                        && format.read(window(next, HELD), opener, self.context(End::Open, settings))
                            == Step::More =>
                {
                    return Some(rest);
                }
                Ok((format, opener)) => match format.read(next, opener, self.context(end, settings)) {
                    Step::Calls(_, used) | Step::Opener(used) => closed(&next[used..])?,
                    Step::More | Step::CutAfter(_) => return None,
                    _ => return Some(rest),
                },
                Err(true) => return None,
                Err(_) => return Some(rest),
            };
        }
        Some(rest)
    }

    /// The model's turn ends here, but for what leaks, or goes on as a turn that it invents.
    fn ends_turn(&self, behind: &str) -> Option<bool> {
        let mut rest = behind.trim_start();
        while !rest.is_empty() {
            if formats::at(rest).is_ok()
                || starts_with_any(rest, INVENTED).is_ok()
                || rest.starts_with("<think>")
                || rest.starts_with(">>>")
            {
                return Some(true);
            }
            let mut open = "<think>".starts_with(rest)
                || ">>>".starts_with(rest)
                || matches!(formats::at(rest), Err(true));
            let mut used = None;
            for markers in [LEAKS, SURPLUS, self.shell, INVENTED] {
                match starts_with_any(rest, markers) {
                    Ok(marker) => used = Some(marker.len()),
                    Err(may) => open |= may,
                }
            }
            match (used, formats::closer_at(rest)) {
                (Some(used), _) | (None, Ok(used)) => rest = rest[used..].trim_start(),
                (None, Err(may)) if may || open => return None,
                (None, Err(_)) => match rest.strip_prefix(['}', ']']) {
                    Some(behind) => rest = behind.trim_start(),
                    None => return Some(false),
                },
            }
        }
        None
    }

    /// Weak evidence behind words that deny it, or ask.
    pub(super) fn is_denied(&self, rest: &str, step: &Step) -> bool {
        let Step::Calls(calls, used) = step else { return false };
        !self.gap && !weak::is_closed(&rest[..*used]) && !calls.is_empty() && self.place.denies(&self.text)
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

/// The call is no subject of a sentence: its line does not go on in small letters, nor does the next one to a sentence's end.
/// None while that is open. A line of one word is the label of a turn whose tokens were lost.
fn subject(behind: &str, end: End) -> Option<bool> {
    let mut rest = behind;
    loop {
        let next = rest.trim_start();
        match formats::closer_at(next) {
            Ok(closer) if !next.starts_with('`') => rest = &next[closer..],
            Err(true) if !next.is_empty() => return None,
            _ => break,
        }
    }
    rest = rest.trim_start_matches([' ', '\t']);
    let same = rest.trim_start_matches([',', ';', ':', '-', '–', '—']);
    if same.len() < rest.len() {
        rest = same.trim_start_matches([' ', '\t']);
        return rest.chars().next().map(|c| !c.is_alphabetic());
    }
    let next = rest.trim_start_matches('\r').strip_prefix('\n');
    if let Some(next) = next {
        rest = next.trim_start_matches([' ', '\t']);
    }
    if rest.chars().next().is_some_and(|c| !c.is_lowercase()) {
        return Some(true);
    }
    let word = rest.find(|c: char| !c.is_alphabetic() && !"'’".contains(c));
    match word.filter(|end| *end <= WORD) {
        None => return (rest.len() > WORD).then_some(true),
        Some(end) if !rest[end..].starts_with([' ', ',']) => return Some(true),
        // A sentence of the model's own, in small letters.
        Some(end) if next.is_some() && begins(&rest[..end]) => return Some(true),
        Some(_) if next.is_none() => return Some(false),
        Some(_) => {}
    }
    let line = window(rest, SPAN);
    match line.find(['\n', '<']) {
        Some(end) => Some(!line[..end].trim_end().ends_with(['.', '!', '?'])),
        None if end.is_end() => Some(!line.trim_end().ends_with(['.', '!', '?'])),
        None => (line.len() < rest.len()).then_some(true),
    }
}

/// This word begins a sentence, and goes on in none: what the model says of itself, or does.
fn begins(word: &str) -> bool {
    const WORDS: [&str; 9] = ["i", "i'll", "i'm", "let", "let's", "we", "ok", "okay", "done"];
    const NOUNS: [&str; 3] = ["thing", "string", "during"];
    let acts = word.ends_with("ing") && !NOUNS.iter().any(|noun| word.ends_with(noun));
    WORDS.contains(&&*word.replace('’', "'")) || (acts && word.len() > 5)
}

/// What stands behind a call on its line begins a sentence.
fn sentence(behind: &str) -> Option<bool> {
    let c = behind.chars().next()?;
    Some(!(c.is_alphanumeric() && !c.is_uppercase() || ",.;:)?!\"`'”».–—-".contains(c)))
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
