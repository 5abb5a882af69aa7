//! A request body: checked once, read by views, written with splices.
//!
//! Why: what the proxy does not touch must reach the backend byte for byte, since a reordered tool schema is another
//! prompt and an unknown member is some engine's feature. So the body is kept as it came, and [`Edits`] say what
//! differs per backend.
//!
//! A request must never be changed by being read, and never be refused for what some backend might accept.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use crate::edit::{self, Edits};
use crate::json::{JsonError, Kind, MAX_DEPTH, Slot, Value};
use crate::message::Message;

/// Top levels with more members than this are walked, not indexed: a body of tiny members must not grow in memory.
const INDEXED_MEMBERS: usize = 256;
/// The same of arrays in it, by elements: no conversation has so many messages.
const INDEXED_ELEMENTS: usize = 4096;

/// The members that limit the answer: chat's newer name, chat's, completions' and messages' name, responses' name.
const LIMITS: [&str; 3] = ["max_completion_tokens", "max_tokens", "max_output_tokens"];

/// Any JSON object that a client sends to an OpenAI-like API: chat, completions, responses, messages, embeddings.
///
/// Clones share the body.
#[derive(Clone)]
pub struct ChatRequest {
    text: Arc<String>,
    /// The same bytes, to be handed out.
    body: Bytes,
    root: (usize, usize),
    slots: Option<Arc<[Slot]>>,
}

/// Lends a shared text to [`Bytes`].
struct Shared(Arc<String>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Why a request is refused. The sentences are for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Nothing but white space.
    #[error("body is empty")]
    Empty,
    /// The place of the first byte that is no UTF-8.
    #[error("body is not utf-8: invalid byte at {0}")]
    NotUtf8(usize),
    /// A byte order mark before the JSON, which RFC 8259 forbids to send and engines refuse.
    #[error("body begins with a byte order mark: send utf-8 without it")]
    ByteOrderMark,
    /// The parser's words, with line and column.
    #[error("body is not valid json: {0}")]
    NotJson(String),
    /// How many containers stand inside each other.
    #[error("body is nested {0} levels deep, the limit is {MAX_DEPTH}")]
    TooDeep(usize),
    /// JSON, but no object.
    #[error("body must be a json object, found {0}")]
    NotObject(Kind),
    /// A member that every backend wants.
    #[error("{0} is missing")]
    Missing(String),
    /// A list that needs an element.
    #[error("{0} is empty")]
    EmptyList(String),
    /// A member of a type that every backend refuses.
    #[error("{param} must be {wanted}, found {found}")]
    WrongType {
        /// The member's path: `messages[3].role`.
        param: String,
        /// With its article: `a string`.
        wanted: &'static str,
        /// What is there.
        found: Kind,
    },
    /// A number with a fraction where tokens are counted.
    #[error("{param} must be an integer, found {found}")]
    NotInteger {
        /// The member's name.
        param: String,
        /// The number as it was sent.
        found: String,
    },
}

impl RequestError {
    /// OpenAI's `param`: the member that is at fault; none when it is the body as such.
    pub fn param(&self) -> Option<&str> {
        match self {
            Self::Missing(param)
            | Self::EmptyList(param)
            | Self::WrongType { param, .. }
            | Self::NotInteger { param, .. } => Some(param),
            Self::Empty
            | Self::NotUtf8(_)
            | Self::ByteOrderMark
            | Self::NotJson(_)
            | Self::TooDeep(_)
            | Self::NotObject(_) => None,
        }
    }
}

impl std::fmt::Debug for ChatRequest {
    /// Without the body, which is large, and private.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatRequest").field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

impl ChatRequest {
    /// Checks that the whole body is UTF-8 and a JSON object. It takes the buffer over, and copies it only if it is
    /// shared.
    ///
    /// # Errors
    /// Where and why it is not.
    pub fn parse(body: Bytes) -> Result<Self, RequestError> {
        let text = String::from_utf8(body.into())
            .map_err(|error| RequestError::NotUtf8(error.utf8_error().valid_up_to()))?;
        if text.starts_with('\u{feff}') {
            return Err(RequestError::ByteOrderMark);
        }
        if text.trim_ascii().is_empty() {
            return Err(RequestError::Empty);
        }
        let root = Value::parse(&text).map_err(|error| match error {
            JsonError::Syntax(error) => RequestError::NotJson(error.to_string()),
            JsonError::TooDeep(depth) => RequestError::TooDeep(depth),
        })?;
        if root.kind() != Kind::Object {
            return Err(RequestError::NotObject(root.kind()));
        }
        let root_range = (root.range().start, root.range().end);
        let slots = root.slots(INDEXED_MEMBERS, INDEXED_ELEMENTS).map(Arc::from);
        let text = Arc::new(text);
        Ok(Self { body: Bytes::from_owner(Shared(text.clone())), text, root: root_range, slots })
    }

    /// The body as it came.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The top-level object.
    pub fn root(&self) -> Value<'_> {
        Value::between(&self.text, self.root, self.slots.as_deref())
    }

    /// `model`, if it is a string.
    pub fn model(&self) -> Option<Cow<'_, str>> {
        self.root().get("model")?.as_str()
    }

    /// Whether the client asked for a stream: `stream` is literally `true`.
    pub fn stream(&self) -> bool {
        self.root().get("stream").and_then(Value::as_bool) == Some(true)
    }

    /// Whether the client asked for the usage of a stream: `stream_options.include_usage` is literally `true`.
    pub fn wants_usage(&self) -> bool {
        self.root().at("/stream_options/include_usage").and_then(Value::as_bool) == Some(true)
    }

    /// The most tokens that the client wants: `max_completion_tokens`, else `max_tokens`, else `max_output_tokens`.
    /// Null and negative numbers, llama.cpp's "no limit", count as absent.
    pub fn output_limit(&self) -> Option<u64> {
        LIMITS.iter().find_map(|name| self.root().get(name)?.as_u64())
    }

    /// The elements of `messages`.
    pub fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        self.root().get("messages").into_iter().flat_map(Value::elements).map(Message)
    }

    /// The elements of `tools`.
    pub fn tools(&self) -> impl Iterator<Item = Value<'_>> {
        self.root().get("tools").into_iter().flat_map(Value::elements)
    }

    /// The body with both edits made, the candidate's last. Without edits it is the body itself, not a copy.
    pub fn write(&self, base: &Edits, candidate: &Edits) -> Bytes {
        if base.is_empty() && candidate.is_empty() {
            return self.body.clone();
        }
        edit::write(self.root(), &self.body, base, candidate)
    }

    /// Refuses what every chat backend refuses, and names the place.
    ///
    /// # Errors
    /// The first such place.
    pub fn check_chat(&self) -> Result<(), RequestError> {
        self.check_member("model", "a string", &[Kind::String])?;
        self.check_member("stream", "a boolean", &[Kind::Bool, Kind::Null])?;
        self.check_member("tools", "an array", &[Kind::Array, Kind::Null])?;
        for name in LIMITS {
            self.check_member(name, "an integer", &[Kind::Number, Kind::Null])?;
            if let Some(limit) =
                self.root().get(name).filter(|v| v.kind() == Kind::Number && v.as_i64().is_none())
            {
                return Err(RequestError::NotInteger {
                    param: name.to_owned(),
                    found: limit.raw().chars().take(40).collect(),
                });
            }
        }
        if self.root().get("messages").is_none() {
            return Err(RequestError::Missing("messages".to_owned()));
        }
        self.check_member("messages", "an array", &[Kind::Array])?;
        if self.messages().next().is_none() {
            return Err(RequestError::EmptyList("messages".to_owned()));
        }
        for (index, Message(message)) in self.messages().enumerate() {
            if message.kind() != Kind::Object {
                return Err(wrong_type(format!("messages[{index}]"), "an object", message));
            }
            match message.get("role") {
                Some(role) if role.kind() == Kind::String => {}
                Some(role) => return Err(wrong_type(format!("messages[{index}].role"), "a string", role)),
                None => return Err(RequestError::Missing(format!("messages[{index}].role"))),
            }
        }
        Ok(())
    }

    /// A member may be absent, or of one of these kinds.
    fn check_member(&self, name: &str, wanted: &'static str, kinds: &[Kind]) -> Result<(), RequestError> {
        match self.root().get(name) {
            Some(value) if !kinds.contains(&value.kind()) => Err(wrong_type(name.to_owned(), wanted, value)),
            _ => Ok(()),
        }
    }
}

fn wrong_type(param: String, wanted: &'static str, value: Value<'_>) -> RequestError {
    RequestError::WrongType { param, wanted, found: value.kind() }
}
