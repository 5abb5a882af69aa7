//! What a model says, in the order in which it says it.
//!
//! Every dialect of the API is written from these events, so a repair exists once. An event never carries a string or a number
//! that the model did not write: what a parser changed is said in a [`Note`] beside it, and what it took out of the text is kept
//! there too, so that text, reasoning and markup together still are the whole answer.

use std::fmt;

/// One thing that the model said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Text for the user.
    Text(String),
    /// Text of the model's reasoning.
    Reasoning(String),
    /// A tool call begins.
    CallStart {
        /// Place in the answer's list of calls: 0, 1, 2, without gaps.
        index: usize,
        /// The model's own id of the call, where its format has one.
        id: Option<String>,
        /// Name of the tool: the declared spelling where there is exactly one, else as written.
        name: String,
    },
    /// A piece of the arguments' JSON text.
    CallArguments {
        /// Which call.
        index: usize,
        /// The next piece.
        text: String,
    },
    /// The arguments are complete, and are one JSON object.
    CallEnd {
        /// Which call.
        index: usize,
    },
    /// What a parser did. Nothing that a client shows.
    Note(Note),
}

/// What a parser did to the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// Markup that left the text, as it came: wrappers, the calls' own text, leaked special tokens.
    Markup(String),
    /// A call's arguments or grammar were mended.
    Repaired(String),
    /// A tool name was written in another spelling.
    Renamed {
        /// As the model wrote it.
        written: String,
        /// As the request declares it.
        declared: String,
    },
    /// A call in strong markup names a tool that the request does not declare; it is delivered as it is.
    UnknownTool(String),
    /// The answer was cut inside a call; the fragment is no call and no text.
    CutInsideCall,
    /// A further call was left out, since the request forbids parallel calls.
    ParallelCallDropped(String),
    /// The model went on with an invented tool result or turn; all from there on is left out.
    InventedTurnDropped,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Markup(text) => write!(f, "{} bytes of markup left the text", text.len()),
            Self::Repaired(what) => f.write_str(what),
            Self::Renamed { written, declared } => write!(f, "tool name {written} read as {declared}"),
            Self::UnknownTool(name) => write!(f, "the request declares no tool named {name}"),
            Self::CutInsideCall => f.write_str("the answer was cut inside a call; the fragment is left out"),
            Self::ParallelCallDropped(name) => {
                write!(f, "further call of {name} left out: parallel calls are off")
            }
            Self::InventedTurnDropped => {
                f.write_str("an invented tool result or turn after the call is left out")
            }
        }
    }
}

/// One call of a complete answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoldedCall {
    /// The model's own id, where its format has one.
    pub id: Option<String>,
    /// Name of the tool.
    pub name: String,
    /// The arguments' JSON text.
    pub arguments: String,
    /// False where the answer was cut inside a call that had already begun to leave.
    pub closed: bool,
}

/// A complete answer, made of its events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Folded {
    /// Text for the user.
    pub content: String,
    /// Reasoning.
    pub reasoning: String,
    /// Calls in order.
    pub calls: Vec<FoldedCall>,
    /// Finish reason for the client; empty until it is known.
    pub finish_reason: String,
    /// What was done, in order; markup that left in several pieces is one note.
    pub notes: Vec<Note>,
}

impl Folded {
    /// The answer that these events make.
    pub fn of(events: impl IntoIterator<Item = Event>) -> Self {
        let mut folded = Self::default();
        events.into_iter().for_each(|event| folded.fold(event));
        folded
    }

    /// Adds one event.
    pub fn fold(&mut self, event: Event) {
        match event {
            Event::Text(text) => self.content.push_str(&text),
            Event::Reasoning(text) => self.reasoning.push_str(&text),
            Event::CallStart { index: _, id, name } => {
                self.calls.push(FoldedCall { id, name, ..FoldedCall::default() });
            }
            Event::CallArguments { index, text } => {
                if let Some(call) = self.calls.get_mut(index) {
                    call.arguments.push_str(&text);
                }
            }
            Event::CallEnd { index } => {
                if let Some(call) = self.calls.get_mut(index) {
                    call.closed = true;
                }
            }
            Event::Note(note) => match (self.notes.last_mut(), note) {
                (Some(Note::Markup(before)), Note::Markup(text)) => before.push_str(&text),
                (_, note) => self.notes.push(note),
            },
        }
    }
}
