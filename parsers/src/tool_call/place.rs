//! Where the text stands: in a fence, in code, in a quotation, a diff, a log, a transcript, or on its own.
//!
//! The place decides as much as the bytes. Some places are talk whatever stands there; in others it takes what follows the call
//! to tell whether it was meant ([`Doubt`]). A model that indents its call, or speaks on the same line, must still be served.
//! Nothing of this may cost plain text more than one look at each line.

use memchr::{memchr, memchr_iter, memchr3_iter, memrchr};

use super::grammar::window;
use super::lead::{self, Lead};
use super::lines::{
    COMMENT_END, SHOWING, columns, comments, encloses, ends_open, goes_on_as_diff, is_gutter, is_turn, opens,
    showing, starts_diff,
};
use super::markers;

/// As much of a line, and of the text before a candidate, is remembered, in bytes.
const NEAR: usize = 256;
/// Quotation marks and their partners.
const QUOTES: &[(char, char)] =
    &[('"', '"'), ('\'', '\''), ('“', '”'), ('‘', '’'), ('„', '“'), ('«', '»'), ('»', '«'), ('「', '」')];
/// What the text so far tells of the place where it ends.
#[derive(Debug)]
pub(super) struct Place {
    /// The mark of the fence that is open, and its length.
    pub(super) fence: Option<(u8, usize)>,
    /// Only blanks so far on this line.
    pub(super) start: bool,
    /// Columns of blanks before the line's first other character.
    indent: usize,
    /// The beginning of this line, and whether the line is longer.
    head: String,
    longer: bool,
    /// What closes the element that a longer line opens at its beginning, until it does.
    opened: Option<&'static str>,
    /// The last character said.
    last: char,
    /// Hyphens at the end of the text: half of `-->`.
    hyphens: usize,
    /// An odd number of backticks on this line.
    ticks: bool,
    /// An odd number of backticks on earlier lines of the paragraph.
    pub(super) span: bool,
    /// The line before is blank, or there is none.
    blank: bool,
    /// The line before is part of an indented block.
    indented: bool,
    /// The closing tag of the element that shows what is in it, open since the beginning of a line.
    element: Option<&'static str>,
    /// Lines of a diff.
    diff: bool,
    /// What ends a block that an earlier line has opened: any element, a string or comment of many lines, a heredoc.
    enclosed: Option<String>,
    /// Something was said on an earlier line.
    spoken: bool,
    /// A turn of somebody else was among it.
    turns: bool,
    /// `<s>` without its end so far.
    pub(super) struck: usize,
    /// The end of the text that has left.
    tail: String,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            fence: None,
            start: true,
            indent: 0,
            head: String::new(),
            longer: false,
            opened: None,
            last: '\n',
            hyphens: 0,
            ticks: false,
            span: false,
            blank: true,
            indented: false,
            element: None,
            diff: false,
            enclosed: None,
            spoken: false,
            turns: false,
            struck: 0,
            tail: String::new(),
        }
    }
}

impl Place {
    /// A call or other markup ends here: what follows stands on its own.
    pub(super) fn fresh(&mut self) {
        self.begin_line();
        (self.span, self.blank, self.indented) = (false, true, false);
    }

    /// A quoted line.
    pub(super) fn quoted(&self) -> bool {
        let line = self.head.trim_start();
        // In an item of a list, too.
        let item = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let item = item.strip_prefix(['*', '-', '+', '.', ')']).filter(|item| item.starts_with(' '));
        item.unwrap_or(line).trim_start().starts_with('>')
    }

    /// All is text here: a fence, a quoted line, inline code, a showing element.
    pub(super) fn is_talk(&self) -> bool {
        self.fence.is_some() || (self.ticks && !self.span) || self.element.is_some() || self.quoted()
    }

    /// A call here is talk, whatever follows. `blanks`: what stands before it and is not yet text.
    pub(super) fn is_shown(&self, blanks: &str) -> bool {
        let context = || self.diff && self.start && self.indent + columns(last_line(last_bytes(blanks))) > 0;
        self.is_talk() || showing(&self.head).is_some() || is_gutter(&self.head) || context()
    }

    /// Indented as code is.
    pub(super) fn is_code(&self, blanks: &str) -> bool {
        // Only near by: openers may pile up without end.
        let blanks = last_bytes(blanks);
        let line = last_line(blanks);
        // A section's opener may stand behind the blanks.
        let column = columns(&line[..line.len() - line.trim_start().len()]);
        let (indent, blank) = match blanks.contains('\n') {
            true => (column, self.blank || blanks.matches('\n').count() > 1),
            false => (self.indent + column, self.blank),
        };
        self.start && indent >= 4 && (blank || self.indented)
    }

    /// A block is open that an earlier line has opened, or this one right before.
    pub(super) fn is_enclosed(&self) -> bool {
        ends_open(&self.head)
            || self.enclosed.as_ref().is_some_and(|closer| !self.head.to_ascii_lowercase().contains(closer))
    }

    /// Somebody else's turn was told before.
    pub(super) fn has_turns(&self) -> bool {
        self.turns || (self.spoken && is_turn(&self.head))
    }

    /// How the text before this place leads to it. `text`: what has not left yet.
    pub(super) fn lead(&self, text: &str) -> Lead {
        self.last_line(text, lead::of)
    }

    /// The mark that closes the quotation opened right before this place.
    pub(super) fn quotation(&self) -> Option<char> {
        QUOTES.iter().find(|(open, _)| *open == self.last && !self.head.is_empty()).map(|(_, close)| *close)
    }

    /// An element is open on this line that shows what is in it.
    pub(super) fn shows(&self) -> bool {
        SHOWING.iter().any(|name| opens(&self.head, name)) || comments(&self.head)
    }

    /// The last line that is not blank denies that a candidate at the end of an answer is meant, or asks. `text`: what has not
    /// left yet.
    pub(super) fn denies(&self, text: &str) -> bool {
        self.last_line(text, lead::denies)
    }

    /// What that line says against a call in tags of its own, in doubts.
    pub(super) fn doubts(&self, text: &str) -> usize {
        self.last_line(text, lead::doubts)
    }

    fn last_line<T>(&self, text: &str, says: impl Fn(&str) -> T) -> T {
        let mut near = self.tail.clone();
        near.push_str(last_bytes(text));
        // As much as is surely there, however much more is.
        let near = last_bytes(&near).trim_end();
        says(last_line(near))
    }

    /// Text has left.
    pub(super) fn left(&mut self, text: &str) {
        if text.len() >= NEAR {
            self.tail.clear();
        }
        self.tail.push_str(last_bytes(text));
        if self.tail.len() > 2 * NEAR {
            self.tail = last_bytes(&self.tail).to_owned();
        }
    }

    /// The next place, at `least` or behind it, that has to be looked at: where a marker of any kind may begin, or a line with
    /// something that tells more than words.
    pub(super) fn next(&self, text: &str, least: usize) -> usize {
        let bytes = text.as_bytes();
        let (mut start, line) = match memrchr(b'\n', &bytes[..least]) {
            Some(end) => (true, end + 1),
            None => (self.start, 0),
        };
        start &= bytes[line..least].iter().all(indents);
        let mut at = least;
        let mut places = memchr3_iter(b'\n', b'<', b'[', &bytes[least..]).map(|at| least + at);
        loop {
            if start {
                at += bytes[at..].iter().take_while(|byte| indents(byte)).count();
                match bytes.get(at) {
                    None => return at,
                    Some(b'{' | b'[' | b'`' | b'~' | b'>') => return at,
                    // `functools[`, `function call`, `Action:`
                    Some(b'f') if bytes.get(at + 1).is_none_or(|next| *next == b'u') => return at,
                    Some(b'A') if bytes.get(at + 1).is_none_or(|next| *next == b'c') => return at,
                    Some(b'<') if self.fence.is_none() => return at,
                    Some(_) => {}
                }
            }
            let Some(place) = places.find(|place| *place >= at) else {
                // MiniMax M3's marker begins one byte before its `<`.
                return bytes.len() - usize::from(bytes.len() > least && bytes.ends_with(b"]"));
            };
            start = bytes[place] == b'\n';
            at = place + 1;
            match bytes[place] {
                _ if start => {}
                _ if self.fence.is_some() => {}
                b'<' if place > least && bytes[place - 1] == b']' => return place - 1,
                b'<' if markers::may_begin(&bytes[place..]) => return place,
                // `[TOOL_CALLS]`, `[/INST]`
                b'[' if bytes.get(at).is_none_or(|next| matches!(next, b'T' | b'/')) => return place,
                _ => {}
            }
        }
    }

    /// Goes on over text.
    pub(super) fn advance(&mut self, text: &str) {
        let mut rest = text;
        while let Some(end) = memchr(b'\n', rest.as_bytes()) {
            let part = &rest[..end];
            if self.head.is_empty() && part.len() <= NEAR {
                self.part(part);
                self.end_line(part);
            } else {
                self.remember(part);
                self.part(part);
                let head = std::mem::take(&mut self.head);
                self.end_line(&head);
                self.head = head;
            }
            self.begin_line();
            rest = &rest[end + 1..];
        }
        self.remember(rest);
        self.part(rest);
        if let Some(last) = text.chars().next_back() {
            self.last = last;
        }
    }

    fn begin_line(&mut self) {
        self.head.clear();
        (self.start, self.indent, self.ticks, self.hyphens) = (true, 0, false, 0);
        (self.longer, self.opened) = (false, None);
    }

    /// A part of a line.
    fn part(&mut self, part: &str) {
        if part.is_empty() {
            return;
        }
        if self.start && !part.starts_with(|first: char| first.is_ascii_graphic()) {
            let blanks = part.bytes().take_while(indents).count();
            self.indent += columns(&part[..blanks]);
            self.start = blanks == part.len();
        } else {
            self.start = false;
        }
        self.ticks ^= memchr_iter(b'`', part.as_bytes()).count() % 2 == 1;
        let ends = |closer: &str| part.contains(closer) || self.ends_comment(part, closer);
        if self.element.is_some_and(ends) {
            self.element = None;
        }
        let hyphens = part.bytes().rev().take_while(|byte| *byte == b'-').count();
        self.hyphens = if hyphens == part.len() { self.hyphens + hyphens } else { hyphens };
        if part.starts_with('<') && !self.is_talk() {
            // `</s>` ends what was struck through before it is taken for a leak.
            self.struck = match part {
                part if part.starts_with("<s>") => self.struck + 1,
                part if part.starts_with("</s>") => self.struck.saturating_sub(1),
                _ => self.struck,
            };
        }
    }

    /// The end of a comment whose first bytes have come before this part.
    fn ends_comment(&self, part: &str, closer: &str) -> bool {
        let missing = (1..COMMENT_END.len()).find(|at| part.starts_with(&COMMENT_END[*at..]));
        closer == COMMENT_END && missing.is_some_and(|before| self.hyphens >= before)
    }

    /// Keeps the beginning of the line.
    fn remember(&mut self, part: &str) {
        let near = if self.longer { "" } else { window(part, NEAR - self.head.len()) };
        self.head.push_str(near);
        if !self.longer && near.len() < part.len() {
            self.longer = true;
            self.opened = showing(&self.head);
        }
        let closes = |closer: &str| {
            let mut ends = part.match_indices(closer).map(|(at, _)| at + closer.len());
            ends.any(|end| end > near.len()) || self.ends_comment(part, closer)
        };
        if self.opened.is_some_and(closes) {
            self.opened = None;
        }
    }

    /// The line that begins with `head` is complete.
    fn end_line(&mut self, line: &str) {
        if self.start {
            (self.blank, self.span) = (true, false);
            return;
        }
        if self.fence.is_none() {
            let head = line.trim_start();
            match head.as_bytes().first() {
                Some(b'<') if self.element.is_none() => {
                    self.element = if self.longer { self.opened } else { showing(head) };
                }
                Some(b'@' | b'd' | b'-') if starts_diff(line) => self.diff = true,
                _ => {}
            }
            if self.diff {
                self.diff = goes_on_as_diff(line);
            }
            self.turns |= is_turn(head) && (self.spoken || !head.starts_with('<'));
            self.enclosed = match self.enclosed.take() {
                Some(closer) => Some(closer).filter(|closer| !head.to_ascii_lowercase().contains(closer)),
                None => encloses(head),
            };
            self.spoken = true;
            self.span = !head.starts_with("```") && self.span != self.ticks;
        }
        self.indented = self.indent >= 4 && (self.blank || self.indented);
        self.blank = false;
    }
}

/// Blanks that a line may begin with. One rule for what is looked at and what has been said: else a cut behind such a blank would
/// tell another place.
fn indents(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

fn last_line(text: &str) -> &str {
    text.rsplit('\n').next().unwrap_or_default()
}

fn last_bytes(text: &str) -> &str {
    let from = text.len().saturating_sub(NEAR);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    &text[from..]
}
