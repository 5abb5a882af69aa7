//! Function blocks, while they stream: text parameters leave as they come, all else at their closing tag.

use memchr::memchr_iter;

use super::formats::{Format, LEAKS};
use super::grammar::{End, loose_blanks, may_be_blank, may_become, starts_with_any, window};
use super::long::{Flow, HELD, Target};
use super::normalise::quoted;
use super::xml_block::strip_newlines;
use super::xml_head::{FUNCTIONS, Head, PARAMETERS, assigns, head, shown_head};
use super::xml_tags::{Kind, Next, closers, may_close};

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Between parameters.
    Between,
    /// In a text value; `begun`: its first newline has been looked at.
    Text { begun: bool },
    /// In a value that is typed at its end.
    Value(String),
}

/// What is open inside the value.
#[derive(Debug, Clone, Copy, Default)]
struct Inside {
    blocks: usize,
    parameters: usize,
    /// A closer came that nothing had opened, and the value went on.
    closed: bool,
}

/// Where a value ends.
enum Scan {
    /// Its bytes, and those with its closing tag.
    Ends(usize, usize),
    /// So many bytes are certain to be in it; what is open behind them.
    Certain(usize, Inside),
    /// It cannot be read behind so many bytes; what is open there.
    Broken(usize, Inside),
}

#[derive(Debug)]
pub(crate) struct XmlStream {
    state: State,
    first: bool,
    inside: Inside,
    /// The parameters so far.
    keys: Vec<String>,
    /// The open one's name follows an `=` at once.
    assigned: bool,
    kind: &'static Kind,
    /// One newline on each side of a value is framing.
    framed: bool,
    opened: bool,
    format: &'static Format,
}

/// Where the parameters begin.
pub(crate) fn start(text: &str, at: usize) -> usize {
    at + loose_blanks(&text[at..])
}

impl XmlStream {
    pub(crate) fn new(kind: &'static Kind, opened: bool, format: &'static Format) -> Self {
        Self {
            state: State::Between,
            first: true,
            inside: Inside::default(),
            keys: Vec::new(),
            assigned: false,
            kind,
            framed: kind.element == "function",
            opened,
            format,
        }
    }

    pub(crate) fn push(&mut self, rest: &str, end: End, target: Target<'_>, out: &mut String) -> Flow {
        match self.state.clone() {
            State::Between => self.between(rest, end, target, out),
            State::Text { begun: false } => {
                let framing = if rest.starts_with("\r\n") { 2 } else { usize::from(rest.starts_with('\n')) };
                if rest.is_empty() || rest == "\r" {
                    return Flow::Hold;
                }
                self.state = State::Text { begun: true };
                Flow::Used(if self.framed { framing } else { 0 })
            }
            State::Text { begun: true } => self.text(rest, end, target, out),
            State::Value(key) => {
                let (length, used) = match self.scan(rest, end, target) {
                    Scan::Ends(length, used) => (length, used),
                    Scan::Certain(..) => return Flow::Hold,
                    Scan::Broken(..) => return Flow::Broken,
                };
                let value = &rest[..length];
                let value = if self.framed { strip_newlines(value) } else { value };
                let typed = target.tool.map(|tool| tool.value_from_text(&key, value));
                out.push_str(&typed.unwrap_or_else(|| quoted(value)));
                self.state = State::Between;
                Flow::Used(used)
            }
        }
    }

    fn between(&mut self, rest: &str, end: End, target: Target<'_>, out: &mut String) -> Flow {
        let at = loose_blanks(rest);
        let inner = &rest[at..];
        let close = |used: usize, out: &mut String| {
            out.push('}');
            Flow::Done(used)
        };
        if inner.starts_with(&self.kind.function) {
            return close(at + self.kind.function.len(), out);
        }
        if let Some(surplus) = self.kind.parameters.iter().find(|surplus| inner.starts_with(surplus.as_str()))
        {
            return Flow::Used(at + surplus.len());
        }
        let closers = starts_with_any(inner, self.format.closers);
        if self.opened && (closers.is_ok() || starts_with_any(inner, self.format.openers).is_ok()) {
            return close(at, out);
        }
        if end == End::Stop && (inner.is_empty() || may_become(inner, &self.kind.function)) {
            return close(rest.len(), out);
        }
        match head(inner, PARAMETERS, |key| target.tool.is_some_and(|tool| tool.has_parameter(key))) {
            Head::Is { closed: true, .. } => Flow::Broken,
            Head::Is { name, length, attributes, .. } => {
                let separator = if self.first { "" } else { ", " };
                out.push_str(&format!("{separator}{}: ", quoted(name)));
                self.first = false;
                self.inside = Inside::default();
                self.assigned = assigns(&inner[..length]);
                if !self.is_known(name) {
                    self.keys.push(name.to_owned());
                }
                let flag = attributes.iter().find(|(key, _)| *key == "string").map(|(_, flag)| *flag);
                let is_string = match flag {
                    Some("false") => false,
                    Some("true") => {
                        target.is_string(name) || target.tool.is_some_and(|tool| tool.takes_string(name))
                    }
                    _ => target.is_string(name),
                };
                if is_string {
                    out.push('"');
                    self.state = State::Text { begun: false };
                } else {
                    self.state = State::Value(name.to_owned());
                }
                Flow::Used(at + length)
            }
            Head::Bad => Flow::Broken,
            Head::More => Flow::Hold,
            Head::No => {
                let closers = self.kind.parameters.iter().chain([&self.kind.function]).map(String::as_str);
                let tags = closers.chain(["\\n"]);
                let tags = tags.chain(self.format.closers.iter().chain(self.format.openers).copied());
                let undecided = inner.is_empty() || tags.into_iter().any(|tag| may_become(inner, tag));
                if undecided { Flow::Hold } else { Flow::Broken }
            }
        }
    }

    fn is_known(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known == key)
    }

    /// What stands behind the closing tag of a parameter, as for short calls.
    fn next(&self, rest: &str, end: End, target: Target<'_>) -> Next {
        let closers = starts_with_any(rest, self.format.closers);
        let openers = starts_with_any(rest, self.format.openers);
        let stopped = end == End::Stop && (rest.is_empty() || may_become(rest, &self.kind.function));
        if rest.starts_with(&self.kind.function)
            || stopped
            || (self.opened && (closers.is_ok() || openers.is_ok()))
        {
            return Next::Ends;
        }
        let declared = |key: &str| target.tool.is_some_and(|tool| tool.has_parameter(key));
        match head(rest, PARAMETERS, declared) {
            Head::Is { name, .. } if self.is_known(name) => Next::Repeats,
            Head::Is { .. } => Next::Goes,
            Head::More => Next::Open,
            Head::Bad => Next::Other,
            Head::No => {
                let mut tags = self.kind.parameters.iter().chain([&self.kind.function]);
                let partial = may_be_blank(rest) || closers == Err(true) || openers == Err(true);
                if partial || tags.any(|tag| may_close(rest, tag)) { Next::Open } else { Next::Other }
            }
        }
    }

    /// The block ends here, and nothing follows it; none while that is open.
    fn ends_answer(&self, rest: &str, end: End) -> Option<bool> {
        let Some(after) = rest.strip_prefix(&self.kind.function).map(str::trim_start) else {
            return Some(false);
        };
        let behind = match starts_with_any(after, self.format.closers) {
            Ok(closer) => after[closer.len()..].trim_start(),
            Err(true) if !end.is_end() => return None,
            Err(_) => after,
        };
        match starts_with_any(behind, LEAKS) {
            _ if behind.is_empty() => (end == End::Stop).then_some(true),
            Ok(_) => Some(true),
            Err(may) => (!may).then_some(false),
        }
    }

    /// A block of the same kind begins here, as it stands in a value that shows one; none while that is open.
    fn opens_block(&self, tag: &str) -> Option<bool> {
        if !tag.starts_with(&self.kind.opening) {
            return (!may_become(tag, &self.kind.opening)).then_some(false);
        }
        let length = match shown_head(tag, FUNCTIONS, |_| false) {
            Head::Is { length, .. } => length,
            Head::More => return None,
            _ => return Some(false),
        };
        let inside = &tag[length + loose_blanks(&tag[length..])..];
        match shown_head(inside, PARAMETERS, |_| false) {
            _ if inside.starts_with(&self.kind.function) => Some(true),
            _ if may_be_blank(inside) || may_become(inside, &self.kind.function) => None,
            Head::More => None,
            shown => Some(matches!(shown, Head::Is { .. })),
        }
    }

    /// The parameter that begins in front of this text ends the value, which has lost its closing tag; none while that is open.
    fn is_lost(&self, key: &str, body: &str, end: End, target: Target<'_>) -> Option<bool> {
        let near = window(body, HELD);
        for at in memchr_iter(b'<', near.as_bytes()) {
            let Some(length) = self.kind.closer(&near[at..]) else { continue };
            let behind = at + length + loose_blanks(&body[at + length..]);
            // Two closers: one is that of the parameter which the value shows.
            return match self.next(&body[behind..], end, target) {
                _ if self.kind.closer(&body[behind..]).is_some() => Some(false),
                Next::Open => None,
                next => Some(!matches!(next, Next::Other)),
            };
        }
        let required = target.tool.is_some_and(|tool| tool.required().any(|known| known == key));
        (near.len() < body.len()).then_some(required)
    }

    /// Looks for the end of the value.
    fn scan(&self, rest: &str, end: End, target: Target<'_>) -> Scan {
        let declared = |key: &str| target.tool.is_some_and(|tool| tool.has_parameter(key));
        let (mut inside, mut skip) = (self.inside, 0);
        for at in memchr_iter(b'<', rest.as_bytes()) {
            let tag = &rest[at..];
            if at < skip {
                continue;
            }
            if let Some(length) = self.kind.closer(tag) {
                let (chain, behind) = closers(rest, at, length, |rest| self.kind.closer(rest));
                skip = chain[chain.len() - 1].1;
                let nth = inside.parameters.min(chain.len() - 1);
                match self.next(behind, end, target) {
                    Next::Open => return Scan::Certain(at, inside),
                    Next::Ends if inside.blocks > 0 => match self.ends_answer(behind, end) {
                        None => return Scan::Certain(at, inside),
                        Some(true) => return Scan::Ends(chain[0].0, chain[0].1),
                        Some(false) => {}
                    },
                    _ if inside.blocks > 0 => {}
                    Next::Ends | Next::Unwrapped | Next::Goes => {
                        return Scan::Ends(chain[nth].0, chain[nth].1);
                    }
                    Next::Repeats if inside.parameters < chain.len() => {
                        return Scan::Ends(chain[nth].0, chain[nth].1);
                    }
                    Next::Repeats | Next::Other => {
                        inside.closed |= inside.parameters < chain.len();
                        inside.parameters = inside.parameters.saturating_sub(chain.len());
                    }
                }
                continue;
            }
            if let Some(after) = tag.strip_prefix(&self.kind.function).map(str::trim_start) {
                if inside.blocks > 0 {
                    inside.blocks -= 1;
                } else if inside.closed {
                    // A closer with words behind it, then the block's end: nobody can tell where the value ended.
                    match starts_with_any(after, self.format.closers) {
                        Ok(_) => return Scan::Broken(at, inside),
                        Err(may) if self.opened && (may || after.is_empty()) => {
                            return Scan::Certain(at, inside);
                        }
                        Err(_) if !self.opened => return Scan::Broken(at, inside),
                        Err(_) => {}
                    }
                }
                continue;
            }
            if may_become(tag, &self.kind.function)
                || self.kind.parameters.iter().any(|closer| may_close(tag, closer))
            {
                return Scan::Certain(at, inside);
            }
            match self.opens_block(tag) {
                None => return Scan::Certain(at, inside),
                Some(true) => inside.blocks += 1,
                Some(false) => match shown_head(tag, PARAMETERS, declared) {
                    Head::More => return Scan::Certain(at, inside),
                    Head::Is { name, length, .. } if inside.blocks == 0 => {
                        let line_start = rest[..at].trim_end_matches([' ', '\t']).ends_with('\n');
                        let own = tag.starts_with(&self.kind.own) && assigns(&tag[..length]) == self.assigned;
                        // The closing tag was lost: a parameter that is still to come begins on a line of its own.
                        let may = line_start && own && !inside.closed;
                        if may && declared(name) && !self.is_known(name) {
                            match self.is_lost(name, &tag[length..], end, target) {
                                None => return Scan::Certain(at, inside),
                                Some(true) => return Scan::Ends(at, at),
                                Some(false) => {}
                            }
                        }
                        inside.parameters += 1;
                    }
                    _ => {}
                },
            }
        }
        Scan::Certain(rest.len(), inside)
    }

    /// As much of a text value as is certain; the last newline waits for what follows it.
    fn text(&mut self, rest: &str, end: End, target: Target<'_>, out: &mut String) -> Flow {
        let mut escape = |text: &str| {
            let json = quoted(text);
            out.push_str(&json[1..json.len() - 1]);
        };
        let scan = self.scan(rest, end, target);
        let broken = matches!(scan, Scan::Broken(..));
        match scan {
            Scan::Ends(length, used) => {
                let value = &rest[..length];
                escape(if self.framed { strip_last_newline(value) } else { value });
                out.push('"');
                self.state = State::Between;
                Flow::Used(used)
            }
            Scan::Certain(length, inside) | Scan::Broken(length, inside) => {
                let certain = strip_last_newline(rest[..length].trim_end_matches([' ', '\t']));
                if certain.is_empty() {
                    return if broken { Flow::Broken } else { Flow::Hold };
                }
                escape(certain);
                self.inside = inside;
                Flow::Used(certain.len())
            }
        }
    }
}

fn strip_last_newline(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}
