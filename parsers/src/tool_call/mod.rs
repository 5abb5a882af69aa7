//! Tool calls that a model wrote as text, found and delivered as calls; all else stays text, byte for byte.
//!
//! A wrong call runs something that nobody asked for, a missed one costs a turn. So markers are strong evidence, everything else
//! is weak and must prove itself (`weak.rs`); fences, quotes and inline code are talk; a call that was cut never runs. Families
//! are data (`formats.rs`), grammars are few. The cases are numbered in `CASES.md`.
//!
//! The folded answer does not depend on the pieces in which the text came. Nothing is parsed that the request did not allow.

mod behind;
mod braces;
mod channels;
mod family;
mod fence;
mod formats;
mod grammar;
mod inner;
mod json_block;
mod keyed;
mod lead;
mod leaks;
mod lines;
mod long;
mod long_json;
mod long_xml;
mod look;
mod machine;
mod markers;
mod meant;
mod named;
mod normalise;
mod options;
mod outcome;
mod own_tags;
mod place;
mod python_string;
mod pythonic;
mod tags;
mod thought;
mod utf8;
mod values;
mod weak;
mod wrapper;
mod xml_block;
mod xml_head;
mod xml_tags;
mod xml_value;

pub use family::{family_of_parser, family_of_template};
pub use options::{Options, ToolChoice};
pub use utf8::Utf8;

use crate::event::Event;
use crate::reasoning::{Piece, ReasoningSplitter};
use crate::schema::ToolSet;

use formats::{Format, Narrow, Weak};
use grammar::End;
use machine::Machine;
use thought::Thought;

/// What the machine needs of the options.
#[derive(Debug)]
struct Settings {
    tools: ToolSet,
    parallel: bool,
    weak: Weak,
    demanded: bool,
    named: Option<String>,
    /// The family, if it is known.
    narrow: Option<Narrow>,
}

impl Settings {
    /// The answer is looked through for this format.
    fn looks_for(&self, format: &Format) -> bool {
        self.looks_for_name(format.name)
    }

    /// The same, by the family's name.
    fn looks_for_name(&self, name: &str) -> bool {
        self.narrow.as_ref().is_none_or(|narrow| narrow.holds(name))
    }
}

/// Reads one answer, piece by piece.
#[derive(Debug)]
pub struct TextParser {
    settings: Settings,
    /// False where the request allows no calls: all passes as it is.
    active: bool,
    /// Splits off the reasoning until the first text behind it.
    splitter: Option<ReasoningSplitter>,
    /// Calls are looked for in thoughts, too.
    in_thoughts: bool,
    thought: Thought,
    machine: Machine,
    /// Blanks behind a draft in the reasoning: whether they matter depends on what follows.
    blanks: String,
    /// The thought was closed, or came in a field of its own.
    closed: bool,
}

impl TextParser {
    /// A parser for one answer.
    pub fn new(options: Options) -> Self {
        let Options { tools, tool_choice, parallel, thinking_open, response_format, .. } = options;
        let Options { thinking_tags, thoughts_stay, format, family, .. } = options;
        let active = !tools.is_empty() && tool_choice != ToolChoice::None;
        let demanded = matches!(tool_choice, ToolChoice::Required | ToolChoice::Named(_));
        let narrow = format.as_deref().and_then(Narrow::to);
        let weak = match (&narrow, family.as_deref()) {
            _ if response_format => Weak::None,
            _ if demanded => Weak::Any,
            (Some(narrow), _) => narrow.weak,
            (None, Some(family)) => formats::weak_beside(family),
            (None, None) => Weak::Any,
        };
        let named = match tool_choice {
            ToolChoice::Named(name) => tools.resolve(&name).map(str::to_owned),
            _ => None,
        };
        Self {
            settings: Settings { tools, parallel, weak, demanded, named, narrow },
            active,
            splitter: (active || thinking_open || thinking_tags.is_some())
                .then(|| ReasoningSplitter::new(thinking_open).between(thinking_tags)),
            in_thoughts: active && !thoughts_stay,
            thought: Thought::default(),
            machine: Machine::new(),
            blanks: String::new(),
            closed: true,
        }
    }

    /// Takes the next content, and gives what is certain.
    pub fn push(&mut self, text: &str) -> Vec<Event> {
        let mut events = Vec::new();
        let mut rest = text;
        while let Some(splitter) = self.splitter.as_mut().filter(|_| !rest.is_empty()) {
            // In small steps: behind the reasoning the splitter must not see a byte, since a call may speak of its tags.
            let length = step(rest, splitter.is_reasoning(), splitter.closes_with());
            let pieces = splitter.push(&rest[..length]);
            rest = &rest[length..];
            self.pieces(pieces, &mut events);
        }
        if !rest.is_empty() {
            self.content(rest, &mut events);
        }
        events
    }

    /// Takes reasoning that the backend gave in a field of its own.
    pub fn push_reasoning(&mut self, text: &str) -> Vec<Event> {
        self.reasoning(text)
    }

    /// The backend has sent a structured call at this point of the answer. The closing half of its markup, which some parsers
    /// let through behind it (QwenLM/qwen-code#10700, ggml-org/llama.cpp#16378), is no text then.
    pub fn call_beside(&mut self) {
        self.machine.call_beside();
    }

    /// Ends the answer. `finish` is the backend's finish reason; the second value is the client's.
    pub fn finish(&mut self, finish: &str) -> (Vec<Event>, String) {
        let end = match finish {
            "" | "stop" | "tool_calls" | "function_call" | "eos" | "eos_token" | "stop_sequence" => End::Stop,
            _ => End::Cut,
        };
        let mut events = Vec::new();
        if let Some(mut splitter) = self.splitter.take() {
            let open = splitter.is_reasoning();
            self.closed = !open;
            let pieces = splitter.finish();
            self.pieces(pieces, &mut events);
        }
        let rest = self.thought.finish(end, !self.closed, &self.settings);
        events.extend(rest.events);
        events.extend(self.machine.lift(rest.calls, &self.settings));
        let text = std::mem::take(&mut self.blanks) + &rest.text;
        if self.active {
            events.extend(self.machine.finish(&text, end, &self.settings));
        }
        let lost = rest.lost || self.machine.lost();
        let calls = self.machine.calls() > 0;
        let reason = match end {
            End::Cut if finish == "length" && calls && !lost && self.machine.ends_in_call() => "tool_calls",
            End::Cut => finish,
            // A long call that could not be read to its end stays open, and must not look finished.
            End::Stop | End::Open if self.machine.lost() => "length",
            End::Stop | End::Open if calls => "tool_calls",
            End::Stop | End::Open => "stop",
        };
        (events, reason.to_owned())
    }

    /// Bytes held back at the moment.
    pub fn held(&self) -> usize {
        let splitter = self.splitter.as_ref().map_or(0, ReasoningSplitter::held);
        splitter + self.thought.held() + self.machine.held() + self.blanks.len()
    }

    /// Whether the text has the markup of a call that nobody can read, and that stayed text.
    pub fn is_unread(&self) -> bool {
        self.machine.unread()
    }

    fn pieces(&mut self, pieces: Vec<Piece>, events: &mut Vec<Event>) {
        for piece in pieces {
            match piece {
                Piece::Reasoning(text) => {
                    self.machine.after_reasoning();
                    events.extend(self.reasoning(&text));
                }
                Piece::Text(text) => {
                    if let Some(mut splitter) = self.splitter.take() {
                        let late = splitter.finish();
                        self.content(&text, events);
                        self.pieces(late, events);
                    } else {
                        self.content(&text, events);
                    }
                }
            }
        }
    }

    fn reasoning(&mut self, text: &str) -> Vec<Event> {
        if self.in_thoughts {
            self.thought.push(text, &self.settings)
        } else {
            vec![Event::Reasoning(text.to_owned())]
        }
    }

    fn content(&mut self, text: &str, events: &mut Vec<Event>) {
        if !self.active {
            events.push(Event::Text(text.to_owned()));
            return;
        }
        if self.thought.held() > 0 {
            self.blanks.push_str(text);
            if self.blanks.trim().is_empty() {
                return;
            }
            events.extend(self.thought.release());
            let text = std::mem::take(&mut self.blanks);
            events.extend(self.machine.push(&text, &self.settings));
            return;
        }
        events.extend(self.machine.push(text, &self.settings));
    }
}

/// The bytes that the splitter may see at once: up to the end of a possible tag in a thought, else one character.
fn step(text: &str, reasoning: bool, closes_with: Option<char>) -> usize {
    let mut chars = text.char_indices();
    let closes = |c: char| closes_with.map_or_else(|| matches!(c, '>' | ']' | '▷'), |last| c == last);
    let last = if reasoning { chars.find(|(_, c)| closes(*c)) } else { chars.next() };
    last.map_or(text.len(), |(at, c)| at + c.len_utf8())
}

/// Names of all formats, each once.
pub fn format_names() -> Vec<&'static str> {
    let mut names: Vec<_> = formats::FORMATS.iter().map(|format| format.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}
