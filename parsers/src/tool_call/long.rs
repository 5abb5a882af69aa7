//! Calls that are too long to be held: their string values stream.
//!
//! A file that a model writes through a call may be megabytes; a client that sees nothing for minutes gives up. So a call that
//! has not closed within [`HELD`] bytes begins to leave, if its tool is certain. Whether it does depends on the text alone,
//! never on its pieces. What has left cannot be taken back: where such a call is cut or cannot be read on, it stays open.

use crate::event::{Event, Note};
use crate::schema::{Tool, ToolSet};

use super::formats::{Format, Grammar};
use super::grammar::{End, blanks, loose_blanks, name_length, window};
use super::json_block::skip_fence;
use super::long_json::{self, JsonStream};
use super::long_xml::{self, XmlStream};
use super::xml_head::{FUNCTIONS, Head, behind_repeats, head};
use super::xml_tags::Kind;

/// A call that closes within so many bytes is held until it does. Fuzzers find long calls only where these are short.
pub(crate) const HELD: usize = if cfg!(fuzzing) { 192 } else { 4096 };

/// What a stream did with the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// These many bytes are done.
    Used(usize),
    /// More text is needed.
    Hold,
    /// The arguments are complete, and these many bytes are done.
    Done(usize),
    /// It cannot be read on.
    Broken,
}

#[derive(Debug)]
enum Stream {
    Json(JsonStream),
    Xml(XmlStream),
}

/// A call on its way.
#[derive(Debug)]
pub(crate) struct Long {
    index: usize,
    name: String,
    stream: Stream,
    format: &'static Format,
}

/// What is known of the tool while its arguments stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) tool: Option<&'a Tool>,
}

impl Target<'_> {
    /// True if the value is text for certain, whatever it looks like.
    pub(crate) fn is_string(&self, key: &str) -> bool {
        self.tool.is_none_or(|tool| tool.is_string(key) || !tool.has_parameter(key))
    }
}

impl Long {
    /// Begins a long call, if the first bytes of the candidate leave no doubt what it is. Gives the bytes of its head.
    pub(crate) fn begin(
        text: &str,
        opener: &str,
        format: &'static Format,
        tools: &ToolSet,
        index: usize,
    ) -> Option<(Self, Vec<Event>, usize)> {
        let text = window(text, HELD);
        let (name, id, stream, used) = match format.grammar {
            Grammar::Wrapper => {
                let at = opener.len() + loose_blanks(&text[opener.len()..]);
                let body = at + skip_fence(&text[at..]).ok()?;
                if text[body..].starts_with('<') {
                    xml(text, body, true, format, tools)?
                } else {
                    let (name, used) = long_json::head(text, body)?;
                    (name, None, Stream::Json(JsonStream::new(true, body > at)), used)
                }
            }
            Grammar::Function => xml(text, 0, false, format, tools)?,
            Grammar::Mistral if text[opener.len()..].trim_start().starts_with(['[', '{']) => {
                let at = opener.len() + blanks(&text[opener.len()..]);
                let (name, used) = long_json::head(text, at)?;
                (name, None, Stream::Json(JsonStream::new(true, false)), used)
            }
            Grammar::Named | Grammar::Mistral | Grammar::Harmony => named(text, opener, format)?,
            _ => return None,
        };
        let resolved = tools.resolve(&name);
        if resolved.is_none() && format.grammar == Grammar::Function {
            return None;
        }
        let mut events = Vec::new();
        match resolved {
            None => events.push(Event::Note(Note::UnknownTool(name.clone()))),
            Some(declared) if declared != name => {
                let (written, declared) = (name.clone(), declared.to_owned());
                events.push(Event::Note(Note::Renamed { written, declared }));
            }
            Some(_) => {}
        }
        let name = resolved.map_or(name, str::to_owned);
        let tool = tools.tool(&name);
        // A single parameter that wraps the real ones can only be told at its end.
        let wrapped = |key: &str| text[used..].trim_start().trim_start_matches(['"', '<']).starts_with(key);
        if tool.is_some_and(|tool| {
            ["arguments", "input"].iter().any(|key| wrapped(key) && !tool.has_parameter(key))
        }) {
            return None;
        }
        events.push(Event::CallStart { index, id, name: name.clone() });
        events.push(Event::CallArguments { index, text: "{".to_owned() });
        Some((Self { index, name, stream, format }, events, used))
    }

    /// The format, if the call may be one of a list.
    pub(crate) fn list(&self) -> Option<&'static Format> {
        let listed = matches!(self.format.grammar, Grammar::Wrapper | Grammar::Mistral)
            && matches!(self.stream, Stream::Json(_));
        listed.then_some(self.format)
    }

    /// Takes the next text.
    pub(crate) fn push(&mut self, rest: &str, end: End, tools: &ToolSet, events: &mut Vec<Event>) -> Flow {
        // What is certain now leaves in one piece, however many escapes and members it has.
        let (mut out, mut used) = (String::new(), 0);
        let target = Target { tool: tools.tool(&self.name) };
        let flow = loop {
            let flow = match &mut self.stream {
                Stream::Json(stream) => stream.push(&rest[used..], end, target, &mut out),
                Stream::Xml(stream) => stream.push(&rest[used..], end, target, &mut out),
            };
            match flow {
                Flow::Used(more) => used += more,
                Flow::Done(more) => break Flow::Done(used + more),
                Flow::Hold | Flow::Broken if used > 0 => break Flow::Used(used),
                flow => break flow,
            }
        };
        if !out.is_empty() {
            events.push(Event::CallArguments { index: self.index, text: out });
        }
        if matches!(flow, Flow::Done(_)) {
            events.push(Event::CallEnd { index: self.index });
        }
        flow
    }
}

type Begun = (String, Option<String>, Stream, usize);

fn xml(text: &str, at: usize, opened: bool, format: &'static Format, tools: &ToolSet) -> Option<Begun> {
    let declared = |name: &str| tools.resolve(name).is_some();
    let Head::Is { name, prefix, element, attributes, closed: false, length } =
        head(&text[at..], FUNCTIONS, declared)
    else {
        return None;
    };
    if !attributes.is_empty() {
        return None;
    }
    let used = behind_repeats(text, at, at + length)?;
    // JSON inside the block, or anything else but parameters, is not for this path.
    let inside = used + loose_blanks(&text[used..]);
    let written = text[used..].trim_start().starts_with('\\');
    // A CDATA section has to be seen whole.
    let section = text[inside..].starts_with("<param ");
    if !text[inside..].starts_with('<') || written || section {
        return None;
    }
    let stream = XmlStream::new(Kind::of(prefix, element), opened, format);
    Some((name.to_owned(), None, Stream::Xml(stream), long_xml::start(text, used)))
}

fn named(text: &str, opener: &str, format: &'static Format) -> Option<Begun> {
    let at = opener.len() + blanks(&text[opener.len()..]);
    let body = at + text[at..].find('{')?;
    let header = &text[at..body];
    if header.contains('[') && !header.contains("[ARGS]") {
        return None;
    }
    let fenced = header.contains("```");
    let (name, id) = super::named::header(header, format.grammar)?;
    let plain = name_length(&name) == name.len() && !name.chars().all(|c| c.is_ascii_digit());
    plain.then(|| (name, id, Stream::Json(JsonStream::new(false, fenced)), body + 1))
}
