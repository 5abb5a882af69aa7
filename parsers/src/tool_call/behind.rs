//! What stands behind a call: further calls, the end of the turn, or words that show that it was none.
//!
//! Each answer is `None` while it may still change, and never changes once it is given: what follows a call must not depend on
//! the pieces in which it arrives. A marker proves nothing here: only what turned out to be a call, or leaks, is passed over.

use super::Settings;
use super::formats::{self, INVENTED, LEAKS, SURPLUS};
use super::grammar::{End, Step, find_any, starts_with_any, window};
use super::long::HELD;
use super::look::HALF;
use super::machine::Machine;
use super::named;

/// The end of inline code, or of a line, is looked for in so many bytes.
const SPAN: usize = 512;
/// No word has so many bytes.
const WORD: usize = 64;
/// As many calls in a row may follow a doubtful one before it is believed.
const ROW: usize = 64;

/// What stands at a place behind a call.
enum Next {
    /// A further call, or what belongs to one: so many bytes.
    Call(usize),
    /// A call or a thought has begun, and is long or not yet complete.
    Begun(Size),
    /// It may become one of these.
    Open,
    /// Neither.
    Other,
    /// A marker, so many bytes, that turned out to be none.
    Marker(usize),
}

/// Of a call that is not complete.
enum Size {
    Short,
    /// What is shown is short.
    Long,
}

impl Machine {
    /// What stands at the start of this text.
    fn next(&self, text: &str, end: End, settings: &Settings) -> Next {
        let (format, opener) = match formats::at(text) {
            Ok(found) => found,
            Err(true) => return Next::Open,
            Err(false) => return Next::Other,
        };
        let context = self.context(End::Open, settings);
        if text.len() > HELD && format.read(window(text, HELD), opener, context) == Step::More {
            return Next::Begun(Size::Long);
        }
        match format.read(text, opener, self.context(end, settings)) {
            Step::Calls(_, used) | Step::Opener(used) | Step::Shell(used, _) => Next::Call(used),
            Step::Reasoning(used, closers) => thought(text, used, closers),
            Step::More | Step::CutAfter(_) => Next::Begun(Size::Short),
            Step::Not(used) => Next::Marker(used),
            _ => Next::Other,
        }
    }

    /// The text behind further calls: of one place, all are meant or none. So is it behind a marker amid a line that is only
    /// mentioned.
    pub(super) fn behind_calls<'t>(&self, behind: &'t str, end: End, settings: &Settings) -> Option<&'t str> {
        let mut rest = closed(behind)?;
        for _ in 0..ROW {
            let next = rest.trim_start();
            if next.is_empty() {
                return None;
            }
            let same = !rest[..rest.len() - next.len()].contains('\n');
            rest = match self.next(next, end, settings) {
                Next::Call(used) => closed(&next[used..])?,
                Next::Marker(used) if same && !next[..used].contains('\n') => closed(&next[used..])?,
                Next::Begun(Size::Short) | Next::Open => return None,
                _ => return Some(rest),
            };
        }
        Some(rest)
    }

    /// The model's turn ends here, but for further calls, thoughts and what leaks, or goes on as a turn that it invents. Where the
    /// answer was cut nobody knows what would have followed.
    pub(super) fn ends_turn(&self, behind: &str, end: End, settings: &Settings) -> Option<bool> {
        let (mut rest, mut ended) = (behind.trim_start(), false);
        let undecided = |known: bool| (end == End::Cut).then_some(known);
        for _ in 0..ROW {
            if rest.is_empty() {
                return undecided(ended);
            }
            let mut open = match starts_with_any(rest, INVENTED) {
                Ok(opener) => return turn(&rest[opener.len()..], end),
                Err(may) => may,
            };
            let next = match starts_with_any(rest, &["<think>", ">>>"]) {
                Ok(">>>") => self.prompted(rest, end, settings),
                Ok(opener) => thought(rest, opener.len(), &["</think>"]),
                Err(may) => {
                    open |= may;
                    self.next(rest, end, settings)
                }
            };
            let (mut used, mut is_none) = (None, false);
            match next {
                Next::Call(bytes) => used = Some(bytes),
                Next::Begun(Size::Long) => return Some(true),
                // It never ends, or was cut.
                Next::Begun(Size::Short) if end == End::Stop => return Some(false),
                Next::Begun(Size::Short) => return undecided(true),
                Next::Marker(_) => is_none = true,
                Next::Open => open = true,
                Next::Other => {}
            }
            for markers in [LEAKS, SURPLUS, self.shell] {
                match starts_with_any(rest, markers) {
                    Ok(marker) => {
                        ended |= LEAKS.contains(&marker);
                        used = Some(marker.len());
                    }
                    Err(may) => open |= may,
                }
            }
            // It may yet become a token that begins alike.
            if is_none {
                return (!open || end.is_end()).then_some(false);
            }
            match (used, formats::closer_at(rest)) {
                (Some(used), _) | (None, Ok(used)) => rest = rest[used..].trim_start(),
                (None, Err(may)) if may || open => return undecided(ended || rest.len() >= HALF),
                (None, Err(_)) => match rest.strip_prefix(['}', ']']) {
                    Some(behind) => rest = behind.trim_start(),
                    None => return Some(false),
                },
            }
        }
        Some(true)
    }

    /// What stands at functionary's marker.
    fn prompted(&self, text: &str, end: End, settings: &Settings) -> Next {
        match named::functionary(text, 3, self.context(end, settings)) {
            Step::Calls(_, used) => Next::Call(used),
            Step::More | Step::CutAfter(_) => Next::Begun(Size::Short),
            _ => Next::Marker(3),
        }
    }
}

/// A thought behind an opener of so many bytes.
fn thought(text: &str, opener: usize, closers: &[&str]) -> Next {
    match find_any(&text[opener..], closers) {
        Some((at, closer)) => Next::Call(opener + at + closer.len()),
        None => Next::Begun(Size::Short),
    }
}

/// A turn that the model invents stands behind its token, and no sentence that speaks of the token.
fn turn(behind: &str, end: End) -> Option<bool> {
    let rest = behind.trim_start_matches([' ', '\t']);
    match rest.chars().next() {
        None => end.is_end().then_some(true),
        Some(c) if rest.len() < behind.len() => Some(!c.is_alphabetic() || c.is_uppercase()),
        Some(c) => Some(!",.;:)?!\"`'”».".contains(c)),
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
pub(super) fn subject(behind: &str, end: End) -> Option<bool> {
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
pub(super) fn sentence(behind: &str) -> Option<bool> {
    let c = behind.chars().next()?;
    Some(!(c.is_alphanumeric() && !c.is_uppercase() || ",.;:)?!\"`'”».–—-".contains(c)))
}

/// Inline code that began on an earlier line ends behind the call, in the same paragraph.
pub(super) fn span(behind: &str) -> Option<bool> {
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
