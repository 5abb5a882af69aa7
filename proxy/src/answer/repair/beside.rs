//! Text beside structured calls. The structured ones win: a call in the text that is one of them goes, another one is
//! text again, and so is a draft in a thought. What a backend's parser left of a call's markup, an opener with nothing in
//! it, is no text.
//!
//! Plain answers and streams come here with the same events, so that they say the same.

use switchback_parsers::event::{Event, Note};

use super::RepairTerms;

/// Longest opener or closer that is looked for, in bytes.
const MARKER: usize = 48;

/// The events of an answer's text that has structured calls beside it. `is_sent` knows the structured ones by name and
/// arguments; `in_thought`: the text stood in a thought so far.
pub(super) fn without_calls(
    events: Vec<Event>,
    mut in_thought: bool,
    is_sent: impl Fn(&str, &str) -> bool,
    terms: &RepairTerms,
) -> Vec<Event> {
    // What is text again stands apart: nothing in it is a remnant.
    let mut out: Vec<Vec<Event>> = vec![Vec::new()];
    let mut run = Run::default();
    for event in events {
        match event {
            Event::Text(_) | Event::Reasoning(_) => {
                if let Some(markup) = run.end(in_thought, &is_sent) {
                    out.extend([vec![markup], Vec::new()]);
                }
                in_thought = matches!(event, Event::Reasoning(_));
                push(event, &mut out);
            }
            Event::CallStart { name, .. } => run.calls.push((name, String::new())),
            Event::CallArguments { text, .. } => {
                if let Some((_, arguments)) = run.calls.last_mut() {
                    arguments.push_str(&text);
                }
            }
            Event::CallEnd { .. } => {}
            Event::Note(Note::Markup(text)) => run.markup.push_str(&text),
            Event::Note(note) => push(Event::Note(note), &mut out),
        }
    }
    out.extend(run.end(in_thought, &is_sent).map(|markup| vec![markup]));
    for event in out.iter_mut().step_by(2).flatten() {
        if let Event::Text(text) = event {
            *text = without_shells(text, terms);
        }
    }
    out.into_iter().flatten().collect()
}

/// Markup and calls with no text between them.
#[derive(Default)]
struct Run {
    markup: String,
    calls: Vec<(String, String)>,
}

impl Run {
    /// What of it is text again.
    fn end(&mut self, in_thought: bool, is_sent: &impl Fn(&str, &str) -> bool) -> Option<Event> {
        let Self { markup, calls } = std::mem::take(self);
        if calls.iter().all(|(name, arguments)| is_sent(name, arguments)) {
            return None;
        }
        tracing::debug!("a call in the text beside structured ones stays text");
        Some(if in_thought { Event::Reasoning(markup) } else { Event::Text(markup) })
    }
}

/// Behind others of its kind.
fn push(event: Event, out: &mut [Vec<Event>]) {
    let Some(out) = out.last_mut() else { return };
    match (out.last_mut(), event) {
        (Some(Event::Text(before)), Event::Text(text))
        | (Some(Event::Reasoning(before)), Event::Reasoning(text)) => before.push_str(&text),
        (_, event) => out.push(event),
    }
}

/// The text without openers, alone at the beginning of a line, that hold nothing up to their closer or the end, and
/// without a closer alone in the last line.
fn without_shells(text: &str, terms: &RepairTerms) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['<', '[']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let begins = out.is_empty() || out.ends_with('\n');
        let used = match shell_at(rest, terms).filter(|_| begins) {
            Some(used) => used,
            None if begins && is_last_closer(rest, terms) => {
                // The line break before it is its own.
                out.pop();
                rest.len()
            }
            None => {
                out.push_str(&rest[..1]);
                1
            }
        };
        rest = &rest[used..];
    }
    out + rest
}

/// The bytes of an empty wrapper at the start of the text.
fn shell_at(text: &str, terms: &RepairTerms) -> Option<usize> {
    let opener = marker(text)?;
    let behind = text[opener..].trim_start();
    let closer = if behind.is_empty() { 0 } else { marker(behind).filter(|_| behind.starts_with("</"))? };
    let used = text.len() - behind.len() + closer;
    wraps(&text[..opener], &behind[..closer], terms).then_some(used)
}

/// Whether the text is the closing half of a wrapper and nothing else.
fn is_last_closer(text: &str, terms: &RepairTerms) -> bool {
    let closer = text.trim_end();
    let name = closer.strip_prefix("</").filter(|_| marker(closer) == Some(closer.len()));
    name.is_some_and(|name| wraps(&format!("<{name}"), closer, terms))
}

/// Whether the parser reads a call between these, and nothing else.
fn wraps(opener: &str, closer: &str, terms: &RepairTerms) -> bool {
    let read = terms.read(&format!("{opener}\n{{\"name\": \"x\", \"arguments\": {{}}}}\n{closer}"), "stop");
    read.calls.len() == 1 && read.content.trim().is_empty()
}

/// The length of the marker that the text may begin with.
fn marker(text: &str) -> Option<usize> {
    let end = text.find(['>', ']', '\n']).filter(|end| *end < MARKER && !text[*end..].starts_with('\n'))?;
    Some(end + 1)
}
