//! What all grammars share: a grammar looks at the text from its marker on, and says what stands there.
//!
//! Every grammar is a pure function of the text so far, and *prefix-stable*: once it has an answer, more text never changes it.
//! That is what makes an answer independent of the pieces in which it arrives. A grammar never guesses: text that it cannot
//! read in exactly one way is [`Step::Not`].

use crate::event::Note;
use crate::schema::ToolSet;

use super::json_block::{self, Scan};

/// How the text ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// More may come.
    Open,
    /// The model ended its turn.
    Stop,
    /// The answer was cut, by length or otherwise.
    Cut,
}

impl End {
    /// True where nothing more comes.
    pub(crate) fn is_end(self) -> bool {
        self != Self::Open
    }
}

/// One call, ready to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    /// One JSON object.
    pub(crate) arguments: String,
    /// True if the request declares the tool.
    pub(crate) declared: bool,
    /// It has a key for its arguments, and no keys that a call does not have: what weak evidence needs.
    pub(crate) plain: bool,
    pub(crate) notes: Vec<Note>,
}

/// What a grammar says of the text at its marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Undecided. At the end of the answer: a call that was never closed.
    More,
    /// Calls (or only markup, if there are none), and the bytes that they take.
    Calls(Vec<Call>, usize),
    /// Like `Calls`, but the rest of the text was lost to a cut inside a call.
    CutAfter(Vec<Call>),
    /// A call had begun for certain behind these bytes, and cannot be read; the calls before it are good. Of use only inside
    /// a grammar: [`settle`] finds out where it ends.
    Broken(Vec<Call>, usize),
    /// Calls, the bytes that they take, and where the text behind them ends that nothing may be read from.
    Before(Vec<Call>, usize, usize),
    /// These many bytes only open what follows: markup if that is a call, else text.
    Opener(usize),
    /// These many bytes are text.
    Not(usize),
    /// These many bytes are a call that is only shown, since words follow: text.
    Shown(usize),
    /// These many bytes are markup, and so is the first of the closers; what stands between is text.
    Shell(usize, &'static [&'static str]),
    /// These many bytes are markup; what follows up to the first of the closers is reasoning.
    Reasoning(usize, &'static [&'static str]),
}

/// What a grammar knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) tools: &'a ToolSet,
    pub(crate) end: End,
    /// The request names this tool or demands one, so that weak evidence is enough.
    pub(crate) demanded: bool,
    /// The tool that the request demands by name.
    pub(crate) named: Option<&'a str>,
    /// The family writes a tool's name as the key of its arguments.
    pub(crate) keyed: bool,
}

/// Bytes of white space at the start; byte order marks are some.
pub(crate) fn blanks(text: &str) -> usize {
    text.len() - text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}').len()
}

/// White space, and the two characters `\n` written out, as small models put between tags.
pub(crate) fn loose_blanks(text: &str) -> usize {
    let mut at = blanks(text);
    while text[at..].starts_with("\\n") {
        at += 2;
        at += blanks(&text[at..]);
    }
    at
}

/// True if the text may become loose white space: nothing at all, or the first half of a written-out `\n`.
pub(crate) fn may_be_blank(text: &str) -> bool {
    matches!(text, "" | "\\")
}

/// True if the text is too short to tell whether it starts with `marker`.
pub(crate) fn may_become(text: &str, marker: &str) -> bool {
    text.len() < marker.len() && marker.starts_with(text)
}

/// The first of the markers that the text starts with; `Err(true)` if it may still become one.
pub(crate) fn starts_with_any<'m>(text: &str, markers: &[&'m str]) -> Result<&'m str, bool> {
    // The longest one counts: a marker may be the start of another.
    let longest =
        markers.iter().filter(|marker| text.starts_with(**marker)).max_by_key(|marker| marker.len());
    longest.copied().ok_or_else(|| markers.iter().any(|marker| may_become(text, marker)))
}

/// Place and text of the first of the markers in the text.
pub(crate) fn find_any<'m>(text: &str, markers: &[&'m str]) -> Option<(usize, &'m str)> {
    let places = markers.iter().filter_map(|marker| text.find(marker).map(|at| (at, *marker)));
    places.min_by_key(|(at, marker)| (*at, usize::MAX - marker.len()))
}

/// What a call that cannot be read encloses is text: none of it may run. Without a closer that is all the rest.
pub(crate) fn settle(step: Step, text: &str, openers: &[&str], closers: &[&str], ctx: Context<'_>) -> Step {
    let Step::Broken(calls, at) = step else { return step };
    let until =
        if closers.is_empty() { balanced(&text[at..]) } else { extent(&text[at..], openers, closers) };
    match until.map(|length| at + length) {
        None if !ctx.end.is_end() => Step::More,
        until if calls.is_empty() => Step::Not(until.unwrap_or(text.len())),
        until => Step::Before(calls, at, until.unwrap_or(text.len())),
    }
}

/// Bytes up to the closer that closes what stands here; those of what begins in it are counted.
pub(crate) fn extent(text: &str, openers: &[&str], closers: &[&str]) -> Option<usize> {
    let mut depth = 0usize;
    for at in memchr::memchr2_iter(b'<', b'`', text.as_bytes()) {
        let rest = &text[at..];
        if let Ok(closer) = starts_with_any(rest, closers) {
            if depth == 0 {
                return Some(at + closer.len());
            }
            depth -= 1;
        } else if starts_with_any(rest, openers).is_ok() {
            depth += 1;
        }
    }
    None
}

fn balanced(text: &str) -> Option<usize> {
    match json_block::scan(text, &[]) {
        Scan::End(end) => Some(end),
        _ => None,
    }
}

/// Bytes at the end of the text that may become one of the markers.
pub(crate) fn held_suffix(text: &str, markers: &[&str]) -> usize {
    let longest = markers.iter().map(|marker| marker.len()).max().unwrap_or(0);
    let from = text.len().saturating_sub(longest);
    let starts = (from..text.len()).filter(|at| text.is_char_boundary(*at));
    let held = |at: usize| markers.iter().any(|marker| may_become(&text[at..], marker));
    starts.into_iter().find(|at| held(*at)).map_or(0, |at| text.len() - at)
}

/// Bytes of a tool's name at the start of the text.
pub(crate) fn name_length(text: &str) -> usize {
    let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':');
    text.find(|c| !part(c)).unwrap_or(text.len())
}

/// The first bytes of the text, at most so many.
pub(crate) fn window(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}
