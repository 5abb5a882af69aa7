//! What is known of one client: how to recognise it, and what it needs.
//!
//! Plain data. A member stands here only if somebody captured it, read it in the client's source or reported it with a
//! reproduction; what nobody knows has the value of [`PLAIN`](super::PLAIN), the client of which nothing is known. Numbers
//! are those of the version named beside the profile: versions drift, so nothing may break if one is off.

use std::time::Duration;

use super::clues::Clues;
use super::mark::{Mark, Sign};

/// A client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Its name in configurations and headers: lower case, `a-z`, `0-9`, `-`, and `sdk:` before a library.
    pub id: &'static str,
    /// Its name for people.
    pub name: &'static str,
    /// What gives it away, each sign by itself.
    pub signs: &'static [Sign],
    /// The tools of its first turn; a majority of them in a request speaks for it. Empty if it has none of its own.
    pub tools: &'static [&'static str],
    /// Where it names its conversation, best first. Empty: it does not, and the prompt's beginning must serve.
    pub session: &'static [SessionSource],
    /// What keeps it from going away while nothing can be said.
    pub keep_alive: KeepAlive,
    /// Whether it gets the usage of a chat stream.
    pub usage: Usage,
    /// Which member of a chat answer it takes for reasoning.
    pub reasoning: ReasoningField,
    /// An output limit of exactly so many tokens is no wish: it is what is left when the client's own arithmetic finds the
    /// window full. `None`: every limit is meant.
    pub no_limit_at: Option<u64>,
    /// What it does when told that the prompt is too long.
    pub on_overflow: OnOverflow,
    /// It reads a plain answer behind leading blanks, so that these can keep it waiting, and an error that comes so under status 200 is
    /// one for it. Tried: LiteLLM does both; OpenAI's SDK for Python takes the error for an answer without choices; the one for
    /// JavaScript gives up all the same.
    pub blanks: bool,
    /// In which envelope it takes the calls of tools whose input is free text.
    pub free_text: FreeTextCalls,
    /// Requests that nobody waits for.
    pub side_traffic: &'static [SideTraffic],
    /// Length of a first turn in tokens (system prompt, tools, a short question), ±25 %: what to expect before counting.
    pub first_turn: Option<u64>,
    /// It refuses to start with a model whose window is smaller, tokens.
    pub needs_window: Option<u64>,
    /// It gives up, or sends everything again, after so long without a head or, later, without a byte; the shorter of both.
    pub silence: Option<Duration>,
}

impl Profile {
    /// Whether a first turn is longer than so many tokens: then a backend with a cliff there is no place for it at all.
    #[must_use]
    pub fn starts_above(&self, tokens: u64) -> bool {
        self.first_turn.is_some_and(|first| first > tokens)
    }

    /// The client's own name for the conversation, from the first source that has one.
    #[must_use]
    pub fn conversation<'a>(&self, clues: &Clues<'a>) -> Option<&'a str> {
        self.session.iter().find_map(|source| source.read(clues))
    }
}

/// Where a client names its conversation. The same over all turns, and over compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionSource {
    /// A header, lower case.
    Header(&'static str),
    /// The body's `prompt_cache_key`.
    PromptCacheKey,
    /// `session_id` in the JSON text of the body's `metadata.user_id`.
    MetadataUserId,
}

impl SessionSource {
    fn read<'a>(self, clues: &Clues<'a>) -> Option<&'a str> {
        match self {
            Self::Header(name) => clues.header(name),
            Self::PromptCacheKey => clues.body.prompt_cache_key,
            Self::MetadataUserId => clues.body.metadata_session,
        }
        .filter(|name| !name.is_empty())
    }
}

/// What is written into a stream that has nothing to say yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeepAlive {
    /// A comment: a lone `:` and a blank line. Accepted by all captured clients, but not progress for each of them.
    Comment,
    /// A chat chunk with an empty `content` delta. All captured chat clients accept it before the first text.
    EmptyDelta,
    /// `event: ping` with `data: {"type":"ping"}`, in the Messages and Responses dialects.
    Ping,
    /// Nothing.
    None,
}

/// Whether a client gets the usage chunk of a chat stream. The other dialects always carry usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Usage {
    /// If it asked: some break on a chunk that they did not ask for.
    IfAsked,
    /// Always: some compute their compaction from it and forget to ask servers that they do not know.
    Always,
}

/// Which member of a chat answer a client takes for reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReasoningField {
    /// `reasoning_content` and `reasoning` alike, or it passes all members on.
    Either,
    /// `reasoning_content` only.
    ReasoningContent,
    /// `reasoning` only.
    Reasoning,
    /// `reasoning_text` only.
    ReasoningText,
}

impl ReasoningField {
    /// The member's name; `None` where any will do.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Either => None,
            Self::ReasoningContent => Some("reasoning_content"),
            Self::Reasoning => Some("reasoning"),
            Self::ReasoningText => Some("reasoning_text"),
        }
    }
}

/// In which envelope a call of a tool with free text is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FreeTextCalls {
    /// `type: custom`, as OpenAI has it.
    Custom,
    /// `type: function`, with the text itself as arguments.
    Function,
}

/// What a client does on the error `context_length_exceeded`, worded so that all clients know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnOverflow {
    /// Asks the model for a summary, in a request that is usually larger than the refused one, and goes on.
    Compacts,
    /// Drops messages by itself and sends again: no larger request follows.
    Drops,
    /// Shows the cause to its user and ends.
    Stops,
    /// Nobody looked.
    Unknown,
}

impl OnOverflow {
    /// Tokens that an agent's ordinary turn leaves free below the longest prompt that any backend takes, so that the compaction
    /// call still fits: it was seen to be up to 6.5 KB larger than the refused request. Never more than an eighth.
    #[must_use]
    pub fn headroom(self, longest: u64) -> u64 {
        const ROOM: u64 = 3_000;
        match self {
            Self::Compacts => ROOM.min(longest / 8),
            Self::Drops | Self::Stops | Self::Unknown => 0,
        }
    }
}

/// A kind of request that nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SideTraffic {
    /// What it is, in a word or two.
    pub what: &'static str,
    /// All of them must hold, given that the client is the profile's.
    pub marks: &'static [Mark],
}
