//! What one request tells of its sender.
//!
//! Gathered by whoever has read the request, and borrowed from it: names, numbers and words, no JSON. What the client did
//! not send is `None`, which differs from a default: some clients are known by what they leave out.

use std::fmt;

/// Which API the request speaks, by its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `/chat/completions`.
    Chat,
    /// `/completions`.
    Completions,
    /// `/messages`.
    Messages,
    /// `/responses`.
    Responses,
    /// Anything else.
    #[default]
    Other,
}

/// Which member carries the output limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CapField {
    /// `max_tokens`.
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
    /// `max_output_tokens`.
    MaxOutputTokens,
}

impl fmt::Display for CapField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::MaxOutputTokens => "max_output_tokens",
        })
    }
}

/// The output limit that the client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputCap {
    /// Under which name.
    pub field: CapField,
    /// How many tokens.
    pub tokens: u64,
}

/// What the body tells. `Default` is an empty body.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BodyClues<'a> {
    /// Length of the body in bytes, as it came.
    pub bytes: u64,
    /// The output limit; the first of the three members that is sent as a number.
    pub cap: Option<OutputCap>,
    /// `temperature`.
    pub temperature: Option<f64>,
    /// `parallel_tool_calls`.
    pub parallel_tool_calls: Option<bool>,
    /// `tool_choice`, if it is a word.
    pub tool_choice: Option<&'a str>,
    /// `stream` is true.
    pub stream: bool,
    /// `stream_options.include_usage` is true.
    pub include_usage: bool,
    /// The conversation stands in `input`, not in `messages`.
    pub input: bool,
    /// `store`.
    pub store: Option<bool>,
    /// `reasoning_effort`.
    pub reasoning_effort: Option<&'a str>,
    /// `prompt_cache_key`.
    pub prompt_cache_key: Option<&'a str>,
    /// `session_id` in the JSON text that Claude Code sends as `metadata.user_id`.
    pub metadata_session: Option<&'a str>,
    /// The answer must follow a schema: `output_config.format`, `response_format` or `text.format` of the kind `json_schema`.
    pub structured: bool,
    /// Number of entries of `messages`, or of `input` if that is a list.
    pub messages: usize,
    /// Text of the first user message; its first hundred bytes are enough.
    pub first_user: Option<&'a str>,
}

/// All that is known of a request's sender.
#[derive(Clone, Copy)]
pub struct Clues<'a> {
    /// A header's value by its lower-case name; `None` if it is absent or no text.
    pub headers: &'a dyn Fn(&str) -> Option<&'a str>,
    /// The operator's name for the API key that came with the request.
    pub key_name: Option<&'a str>,
    /// Which API it speaks.
    pub dialect: Dialect,
    /// The names of its tools as sent, in any dialect; a tool without a name (a built-in one) gives its `type`.
    pub tools: &'a [&'a str],
    /// What the body tells.
    pub body: BodyClues<'a>,
}

impl<'a> Clues<'a> {
    /// A header that says something. `name` in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        (self.headers)(name).map(str::trim).filter(|value| !value.is_empty())
    }
}

impl fmt::Debug for Clues<'_> {
    /// Without the headers: they hold keys, and cannot be listed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clues")
            .field("key_name", &self.key_name)
            .field("dialect", &self.dialect)
            .field("tools", &self.tools)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}
