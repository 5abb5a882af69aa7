//! Function blocks, while they stream: text parameters leave as they come, all else at their closing tag.

use memchr::memchr_iter;

use super::formats::Format;
use super::grammar::{End, loose_blanks, may_become, starts_with_any};
use super::long::{Flow, Target};
use super::normalise::quoted;
use super::xml_block::{closed_by, strip_newlines};
use super::xml_head::{Head, PARAMETERS, head};

/// A closing tag, or the opening of the next parameter, is shorter than this.
const TAG: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Between parameters.
    Between,
    /// In a text value; `begun`: its first newline has been looked at.
    Text { begun: bool },
    /// In a value that is typed at its end.
    Value(String),
}

#[derive(Debug)]
pub(crate) struct XmlStream {
    pub(crate) name: String,
    state: State,
    first: bool,
    /// One newline on each side of a value is framing.
    framed: bool,
    opened: bool,
    function: String,
    parameters: [String; 2],
    format: &'static Format,
}

/// Where the parameters begin.
pub(crate) fn start(text: &str, at: usize) -> usize {
    at + loose_blanks(&text[at..])
}

impl XmlStream {
    pub(crate) fn new(prefix: &str, element: &str, opened: bool, format: &'static Format) -> Self {
        Self {
            name: String::new(),
            state: State::Between,
            first: true,
            framed: element == "function",
            opened,
            function: format!("</{prefix}{element}>"),
            parameters: PARAMETERS.map(|parameter| format!("</{prefix}{parameter}>")),
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
            State::Text { begun: true } => self.text(rest, target, out),
            State::Value(key) => {
                let Some((length, used)) = self.value_end(rest, target) else { return Flow::Hold };
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
        if inner.starts_with(&self.function) {
            return close(at + self.function.len(), out);
        }
        if let Some(surplus) = self.parameters.iter().find(|surplus| inner.starts_with(surplus.as_str())) {
            return Flow::Used(at + surplus.len());
        }
        let closers = starts_with_any(inner, self.format.closers);
        if self.opened && (closers.is_ok() || starts_with_any(inner, self.format.openers).is_ok()) {
            return close(at, out);
        }
        if end == End::Stop && (inner.is_empty() || may_become(inner, &self.function)) {
            return close(rest.len(), out);
        }
        match head(inner, PARAMETERS, |key| target.tool.is_some_and(|tool| tool.has_parameter(key))) {
            Head::Is { name, length, attributes, .. } => {
                let separator = if self.first { "" } else { ", " };
                out.push_str(&format!("{separator}{}: ", quoted(&name)));
                self.first = false;
                let loose = attributes.iter().any(|(key, flag)| key == "string" && flag == "false");
                if target.is_string(&name) && !loose {
                    out.push('"');
                    self.state = State::Text { begun: false };
                } else {
                    self.state = State::Value(name);
                }
                Flow::Used(at + length)
            }
            Head::Bad => Flow::Broken,
            Head::More => Flow::Hold,
            Head::No => {
                let tags = self.parameters.iter().map(String::as_str).chain([self.function.as_str(), "\\n"]);
                let tags = tags.chain(self.format.closers.iter().copied());
                let undecided = inner.is_empty() || tags.into_iter().any(|tag| may_become(inner, tag));
                if undecided { Flow::Hold } else { Flow::Broken }
            }
        }
    }

    /// Bytes of the value, and bytes with its closing tag.
    fn value_end(&self, rest: &str, target: Target<'_>) -> Option<(usize, usize)> {
        let declared = |key: &str| target.tool.is_some_and(|tool| tool.has_parameter(key));
        for at in memchr_iter(b'<', rest.as_bytes()) {
            let tag = &rest[at..];
            if let Some(length) = self.parameters.iter().find_map(|closer| closed_by(tag, closer)) {
                return Some((at, at + length));
            }
            let line_start = rest[..at].trim_end_matches([' ', '\t']).ends_with('\n');
            if line_start
                && matches!(head(tag, PARAMETERS, declared), Head::Is { name, .. } if declared(&name))
            {
                return Some((at, at));
            }
        }
        None
    }

    /// As much of a text value as is certain; the last newline waits for what follows it.
    fn text(&mut self, rest: &str, target: Target<'_>, out: &mut String) -> Flow {
        let mut escape = |text: &str| {
            let json = quoted(text);
            out.push_str(&json[1..json.len() - 1]);
        };
        if let Some((length, used)) = self.value_end(rest, target) {
            let value = &rest[..length];
            let value = if self.framed { strip_last_newline(value) } else { value };
            escape(value);
            out.push('"');
            self.state = State::Between;
            return Flow::Used(used);
        }
        let declared = |key: &str| target.tool.is_some_and(|tool| tool.has_parameter(key));
        let near = rest.len().saturating_sub(TAG);
        let near = (near..=rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
        let open = memchr_iter(b'<', &rest.as_bytes()[near..]).map(|at| near + at).find(|at| {
            let tag = &rest[*at..];
            let closing =
                |closer: &String| tag.starts_with(closer.trim_end_matches('>')) && !tag.contains(['>', '\n']);
            self.parameters.iter().any(|closer| may_become(tag, closer) || closing(closer))
                || matches!(head(tag, PARAMETERS, declared), Head::More)
        });
        let certain = &rest[..open.unwrap_or(rest.len())];
        let certain = strip_last_newline(certain.trim_end_matches([' ', '\t']));
        if certain.is_empty() {
            return Flow::Hold;
        }
        escape(certain);
        Flow::Used(certain.len())
    }
}

fn strip_last_newline(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}
