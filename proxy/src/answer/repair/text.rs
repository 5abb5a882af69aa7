//! The text of one choice on its way through the parser: either the backend's own frames leave, held back while they may
//! become a call, or, once anything else was found, frames of our own.

use std::collections::{BTreeMap, VecDeque};

use switchback_parsers::calls::ChunkNormaliser;
use switchback_parsers::event::{Event, Note};
use switchback_parsers::tool_call::TextParser;

use super::RepairTerms;
use super::beside::without_calls;
use super::own::Writer;
use super::wire::Frame;

/// The most that waits for the choice's end, in bytes of text; beyond that its calls leave.
const WAITING: usize = 64 << 10;

/// A frame of the backend that has not left yet, and what it says.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) frame: Frame,
    /// Its number in the stream.
    pub(super) number: usize,
    pub(super) text: String,
    pub(super) reasoning: String,
    /// It carries structured calls.
    pub(super) calls: bool,
    /// Its beginning has left already, in a frame of our own.
    pub(super) split: bool,
}

/// What leaves, in order.
#[derive(Debug)]
pub(super) enum Leaving {
    /// A frame as it came.
    Frame(Held),
    /// What is said in frames of our own.
    Events(Vec<Event>),
}

/// The text of one choice.
#[derive(Debug)]
pub(super) struct ChoiceText {
    pub(super) parser: TextParser,
    /// Frames that wait for the parser's word.
    queue: VecDeque<Held>,
    /// What the parser has let go of those frames.
    text: String,
    reasoning: String,
    /// Nothing but the backend's own text was found so far.
    exact: bool,
    /// The parser's numbers of calls → those of the answer. `None`: a call that the backend has sent itself, too.
    calls: BTreeMap<usize, Option<usize>>,
    /// Names and arguments of the calls that the text had.
    found: Vec<(String, String)>,
    /// What waits for the choice's end: calls, which structured ones may outrank, and all that is said behind them.
    waiting: Option<Vec<Event>>,
    /// Calls of the text have left: the next ones need not wait.
    shown: bool,
    /// The text has said something, and whether that was a thought.
    in_thought: bool,
    said: bool,
    /// The answer was cut inside a call, of which nothing is left.
    cut: bool,
    mended: bool,
}

impl ChoiceText {
    pub(super) fn new(parser: TextParser) -> Self {
        Self {
            parser,
            queue: VecDeque::new(),
            text: String::new(),
            reasoning: String::new(),
            exact: true,
            calls: BTreeMap::new(),
            found: Vec::new(),
            waiting: None,
            shown: false,
            in_thought: false,
            said: false,
            cut: false,
            mended: false,
        }
    }

    /// Whether a frame must wait for others: only while nothing but text was found.
    pub(super) fn is_exact(&self) -> bool {
        self.exact
    }

    /// Whether it was cut inside a call, of which nothing is left then.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    /// Whether a call of it had to be mended.
    pub(super) fn is_mended(&self) -> bool {
        self.mended
    }

    /// Whether something of it has not left.
    pub(super) fn holds(&self) -> bool {
        !self.queue.is_empty() || !self.exact || self.waiting.is_some()
    }

    /// Takes the next content, and gives what is certain.
    pub(super) fn push(&mut self, text: &str) -> Vec<Event> {
        let events = self.parser.push(text);
        self.said |= !text.trim().is_empty();
        if self.waiting.is_none() {
            let before = events.iter().take_while(|event| !matches!(event, Event::CallStart { .. }));
            let said = before.filter(|event| matches!(event, Event::Text(_) | Event::Reasoning(_)));
            self.in_thought = said.last().map_or(self.in_thought, |last| matches!(last, Event::Reasoning(_)));
        }
        events
    }

    /// The backend has sent a structured call here: a draft in the thought before it was one. What of the text may still be
    /// the beginning of markup waits for the end.
    pub(super) fn call_beside(&mut self, terms: &RepairTerms) -> Vec<Event> {
        let mut events = Vec::new();
        if self.exact {
            let draft = self.queue.iter().map(|held| held.reasoning.as_str()).collect::<String>();
            let draft = draft.get(self.reasoning.len()..).unwrap_or_default();
            if !draft.is_empty() && !self.said {
                self.parser = terms.parser();
                events.push(Event::Reasoning(draft.to_owned()));
            }
            let text = self.queue.iter().map(|held| held.text.as_str()).collect::<String>();
            if !text.get(self.text.len()..).unwrap_or_default().trim().is_empty() {
                self.waiting = Some(Vec::new());
            }
        }
        self.parser.call_beside();
        events
    }

    /// The choice has ended: what waited, as calls where the backend has sent none itself.
    pub(super) fn settle(
        &mut self,
        choice: u64,
        terms: &RepairTerms,
        normaliser: &ChunkNormaliser,
    ) -> Vec<Event> {
        let Some(events) = self.waiting.take() else { return Vec::new() };
        if normaliser.calls(choice) == 0 {
            return events;
        }
        let is_sent = |name: &str, arguments: &str| normaliser.has_call(choice, name, arguments);
        without_calls(events, self.in_thought, is_sent, terms)
    }

    /// Whether calls of its text have left.
    pub(super) fn has_calls(&self) -> bool {
        !self.found.is_empty()
    }

    /// Their names and arguments.
    pub(super) fn found(&self) -> &[(String, String)] {
        &self.found
    }

    pub(super) fn hold(&mut self, held: Held) {
        self.queue.push_back(held);
    }

    /// Text was let go that is only a part of the frame that it came in.
    pub(super) fn has_part(&self) -> bool {
        self.exact && !(self.text.is_empty() && self.reasoning.is_empty())
    }

    /// Lets that part leave by itself: its frame may have to wait for long.
    pub(super) fn send_part(&mut self, choice: u64, writer: &mut Writer) {
        let Some(front) = self.queue.front_mut().filter(|_| self.exact) else { return };
        let (text, reasoning) = (std::mem::take(&mut self.text), std::mem::take(&mut self.reasoning));
        if front.text.starts_with(&text) && front.reasoning.starts_with(&reasoning) {
            front.text.drain(..text.len());
            front.reasoning.drain(..reasoning.len());
            front.split = true;
            writer.reasoning(choice, &reasoning);
            writer.text(choice, &text);
        } else {
            (self.text, self.reasoning) = (text, reasoning);
        }
    }

    /// Takes the parser's events. Gives what may leave, in order.
    pub(super) fn take(&mut self, events: Vec<Event>) -> Vec<Leaving> {
        let plain = |event: &Event| matches!(event, Event::Text(_) | Event::Reasoning(_));
        if !self.exact {
            return vec![Leaving::Events(self.due(events))];
        }
        let upto = events.iter().position(|event| !plain(event)).unwrap_or(events.len());
        for event in &events[..upto] {
            match event {
                Event::Text(text) => self.text.push_str(text),
                Event::Reasoning(text) => self.reasoning.push_str(text),
                _ => {}
            }
        }
        let mut leaving: Vec<_> = self.released().into_iter().map(Leaving::Frame).collect();
        if upto < events.len() || !self.still_exact() || self.waiting.is_some() {
            self.exact = false;
            let (text, reasoning) = (std::mem::take(&mut self.text), std::mem::take(&mut self.reasoning));
            leaving.push(Leaving::Events(vec![Event::Reasoning(reasoning), Event::Text(text)]));
            // Frames without any text of their own (a role, structured calls) are not the parser's to take away.
            let bare = self.queue.drain(..).filter(|held| held.text.is_empty() && held.reasoning.is_empty());
            leaving.extend(bare.map(Leaving::Frame));
            leaving.push(Leaving::Events(self.due(events.into_iter().skip(upto).collect())));
        }
        leaving
    }

    /// What of these may leave: all, or nothing from the first call on, as long as none has left, and no more than 64 KiB.
    fn due(&mut self, events: Vec<Event>) -> Vec<Event> {
        let call = events.iter().position(|event| matches!(event, Event::CallStart { .. }));
        if self.shown || (self.waiting.is_none() && call.is_none()) {
            return events;
        }
        let waiting = self.waiting.get_or_insert_default();
        waiting.extend(events);
        let open = |event: &Event| match event {
            Event::CallStart { index, .. } => {
                !waiting.iter().any(|end| matches!(end, Event::CallEnd { index: ended } if ended == index))
            }
            _ => false,
        };
        // A call too long to be held has begun.
        if waiting.iter().any(open) || waiting.iter().map(length).sum::<usize>() > WAITING {
            self.shown = true;
            return self.waiting.take().unwrap_or_default();
        }
        Vec::new()
    }

    /// The frames at the front whose whole text was let go.
    fn released(&mut self) -> Vec<Held> {
        let mut leaving = Vec::new();
        while let Some(front) = self.queue.front()
            && self.text.starts_with(&front.text)
            && self.reasoning.starts_with(&front.reasoning)
        {
            self.text.drain(..front.text.len());
            self.reasoning.drain(..front.reasoning.len());
            leaving.extend(self.queue.pop_front());
        }
        leaving
    }

    /// Whether what was let go is still the beginning of what the waiting frames say.
    fn still_exact(&self) -> bool {
        let begins = |said: &str, of: fn(&Held) -> &str| {
            let mut rest = said;
            for held in &self.queue {
                let part = of(held);
                match rest.strip_prefix(part) {
                    Some(after) => rest = after,
                    None => return part.starts_with(rest),
                }
            }
            rest.is_empty()
        };
        begins(&self.text, |held| &held.text) && begins(&self.reasoning, |held| &held.reasoning)
    }

    /// Says events in frames of our own.
    pub(super) fn write(
        &mut self,
        choice: u64,
        events: &[Event],
        writer: &mut Writer,
        normaliser: &mut ChunkNormaliser,
    ) {
        for (at, event) in events.iter().enumerate() {
            match event {
                Event::Text(text) => writer.text(choice, text),
                Event::Reasoning(text) => writer.reasoning(choice, text),
                Event::CallEnd { .. } => {}
                Event::CallStart { index, id, name } => {
                    let sent_already = whole_arguments(&events[at..], *index)
                        .is_some_and(|arguments| normaliser.has_call(choice, name, &arguments));
                    if sent_already {
                        self.calls.insert(*index, None);
                        continue;
                    }
                    let (number, id) = normaliser.allot(choice, id.clone(), name);
                    self.calls.insert(*index, Some(number));
                    self.found.push((name.clone(), String::new()));
                    writer.call_start(choice, number, &id, name);
                }
                Event::CallArguments { index, text } => {
                    if let Some(Some(number)) = self.calls.get(index) {
                        writer.call_arguments(choice, *number, text);
                        if let Some((_, arguments)) = self.found.last_mut() {
                            arguments.push_str(text);
                        }
                    }
                }
                Event::Note(Note::Markup(_)) => {}
                Event::Note(note) => {
                    self.cut |= *note == Note::CutInsideCall;
                    self.mended |= matches!(note, Note::Repaired(_));
                    tracing::debug!(%note, "answer repaired");
                }
            }
        }
    }
}

/// The bytes of text in an event.
fn length(event: &Event) -> usize {
    match event {
        Event::Text(text) | Event::Reasoning(text) | Event::CallArguments { text, .. } => text.len(),
        Event::Note(Note::Markup(text)) => text.len(),
        _ => 0,
    }
}

/// The arguments of a call that begins and ends within these events.
fn whole_arguments(events: &[Event], call: usize) -> Option<String> {
    let mut arguments = String::new();
    for event in events {
        match event {
            Event::CallArguments { index, text } if *index == call => arguments.push_str(text),
            Event::CallEnd { index } if *index == call => return Some(arguments),
            _ => {}
        }
    }
    None
}
