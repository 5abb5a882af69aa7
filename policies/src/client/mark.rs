//! What can be seen in a request: single marks, and signs made of several.
//!
//! A mark is one observation that holds or does not; a sign is a set of marks that together speak for a client, with the
//! weight of that evidence. Both are data, so that a profile is a table and can be printed. A header's value is compared but
//! never repeated: it may be a key.

use super::clues::{CapField, Clues, Dialect};

/// How sure it is. Ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// Nothing speaks for any client.
    Unknown,
    /// The library is known, the program that uses it is not.
    Library,
    /// The body has a shape that only this client is known to send.
    Guessed,
    /// The tools or headers are those of this client.
    Likely,
    /// The client names itself.
    Certain,
}

/// Marks that together speak for a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sign {
    /// How sure the client is if all marks hold.
    pub confidence: Confidence,
    /// All of them must hold.
    pub marks: &'static [Mark],
}

impl Sign {
    /// Whether all of its marks hold.
    #[must_use]
    pub fn holds(&self, clues: &Clues<'_>) -> bool {
        all_hold(self.marks, clues)
    }
}

/// Whether every one of them holds.
pub(super) fn all_hold(marks: &[Mark], clues: &Clues<'_>) -> bool {
    marks.iter().all(|mark| mark.holds(clues))
}

/// What a header must say; letter case does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Anything.
    Any,
    /// Exactly this.
    Is(&'static str),
    /// This, and perhaps more.
    Starts(&'static str),
}

impl Value {
    fn fits(self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Is(wanted) => text.eq_ignore_ascii_case(wanted),
            Self::Starts(wanted) => starts(text, wanted),
        }
    }
}

/// One observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mark {
    /// The user agent begins so.
    UserAgent(&'static str),
    /// This stands somewhere in the user agent.
    UserAgentHas(&'static str),
    /// Sent with the bare `fetch` of Node or Electron: no library's headers, and no user agent of the client's own.
    BareFetch,
    /// A header (lower case) says this.
    Header(&'static str, Value),
    /// It speaks this API.
    Speaks(Dialect),
    /// One of its tools has this name.
    Tool(&'static str),
    /// It has tools, and none but these.
    OnlyTools(&'static [&'static str]),
    /// It has no tools.
    NoTools,
    /// The output limit stands in this member and lies between the two numbers (tokens, both included).
    Cap(CapField, u64, u64),
    /// There is no output limit.
    NoCap,
    /// `temperature` is sent, whatever it is.
    TemperatureSent,
    /// `temperature` is this.
    Temperature(f64),
    /// `parallel_tool_calls` is sent, whatever it is.
    ParallelSent,
    /// `tool_choice` is one of these words.
    ToolChoice(&'static [&'static str]),
    /// A stream is asked for, or is not.
    Streamed(bool),
    /// Usage is asked for in the stream, or is not.
    UsageAsked(bool),
    /// `store` is this.
    Store(bool),
    /// `reasoning_effort` is this.
    ReasoningEffort(&'static str),
    /// The conversation stands in `input`.
    Input,
    /// The answer must follow a schema.
    Structured,
    /// The number of messages lies between the two, both included.
    Messages(usize, usize),
    /// The body has at most so many bytes.
    BytesUpTo(u64),
    /// The first user message begins so.
    UserStarts(&'static str),
}

impl Mark {
    /// Whether it holds.
    #[must_use]
    pub fn holds(&self, clues: &Clues<'_>) -> bool {
        let body = &clues.body;
        match *self {
            Self::UserAgent(start) => clues.header("user-agent").is_some_and(|agent| starts(agent, start)),
            Self::UserAgentHas(part) => clues.header("user-agent").is_some_and(|agent| agent.contains(part)),
            Self::BareFetch => {
                let own = |agent: &str| {
                    !(starts(agent, "node") || starts(agent, "undici") || agent.contains("Electron/"))
                };
                !clues.header("user-agent").is_some_and(own) && clues.header("x-stainless-lang").is_none()
            }
            Self::Header(name, value) => clues.header(name).is_some_and(|text| value.fits(text)),
            Self::Speaks(dialect) => clues.dialect == dialect,
            Self::Tool(name) => clues.tools.contains(&name),
            Self::OnlyTools(names) => {
                !clues.tools.is_empty() && clues.tools.iter().all(|tool| names.contains(tool))
            }
            Self::NoTools => clues.tools.is_empty(),
            Self::Cap(field, low, high) => {
                body.cap.is_some_and(|cap| cap.field == field && (low..=high).contains(&cap.tokens))
            }
            Self::NoCap => body.cap.is_none(),
            Self::TemperatureSent => body.temperature.is_some(),
            Self::Temperature(wanted) => body.temperature == Some(wanted),
            Self::ParallelSent => body.parallel_tool_calls.is_some(),
            Self::ToolChoice(words) => body.tool_choice.is_some_and(|word| words.contains(&word)),
            Self::Streamed(wanted) => body.stream == wanted,
            Self::UsageAsked(wanted) => body.include_usage == wanted,
            Self::Store(wanted) => body.store == Some(wanted),
            Self::ReasoningEffort(wanted) => body.reasoning_effort == Some(wanted),
            Self::Input => body.input,
            Self::Structured => body.structured,
            Self::Messages(low, high) => (low..=high).contains(&body.messages),
            Self::BytesUpTo(limit) => body.bytes <= limit,
            Self::UserStarts(start) => body.first_user.is_some_and(|text| text.starts_with(start)),
        }
    }

    /// What was seen, in words and with the request's own numbers; only asked where it holds.
    pub(super) fn seen(&self, clues: &Clues<'_>) -> String {
        let body = &clues.body;
        match *self {
            Self::UserAgent(_) | Self::UserAgentHas(_) => "its user agent".to_owned(),
            Self::BareFetch => "no user agent of its own".to_owned(),
            Self::Header(name, _) => format!("header {name}"),
            Self::Speaks(dialect) => format!("the {dialect:?} API"),
            Self::Tool(name) => format!("a tool {name}"),
            Self::OnlyTools(names) => format!("no tools but {}", names.join(", ")),
            Self::NoTools => "no tools".to_owned(),
            Self::Cap(field, ..) => format!("{field} {}", body.cap.map_or(0, |cap| cap.tokens)),
            Self::NoCap => "no output limit".to_owned(),
            Self::TemperatureSent | Self::Temperature(_) => {
                format!("temperature {}", body.temperature.unwrap_or_default())
            }
            Self::ParallelSent => {
                format!("parallel_tool_calls {}", body.parallel_tool_calls.unwrap_or_default())
            }
            Self::ToolChoice(_) => format!("tool_choice {}", body.tool_choice.unwrap_or_default()),
            Self::Streamed(streamed) => if streamed { "a stream" } else { "no stream" }.to_owned(),
            Self::UsageAsked(asked) => {
                if asked { "usage asked for" } else { "usage not asked for" }.to_owned()
            }
            Self::Store(store) => format!("store {store}"),
            Self::ReasoningEffort(effort) => format!("reasoning_effort {effort}"),
            Self::Input => "input instead of messages".to_owned(),
            Self::Structured => "a schema for the answer".to_owned(),
            Self::Messages(..) => format!("{} messages", body.messages),
            Self::BytesUpTo(_) => format!("{} bytes", body.bytes),
            Self::UserStarts(start) => format!("a message that begins with {start:?}"),
        }
    }
}

/// Whether `text` begins with `start`; letter case does not matter.
fn starts(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}
