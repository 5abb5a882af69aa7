//! What an engine makes of a request before it renders it.
//!
//! Why: an exact count needs the very context that the engine hands to the template. vLLM parses the arguments of past calls,
//! flattens content parts, renames roles and writes tools anew; llama.cpp does its own variants. Rendering the request as it came is
//! wrong by a few tokens on most agent traffic. Each engine has its file here, with the version that it was read from.
//!
//! What an engine refuses is refused here too: a count of a request that will not run would be a lie. Three things are read as if they
//! were mended, since every request with them is mended before it is sent: an empty list of tools and null contents, which vLLM
//! refuses, and arguments that are an object already.

pub(super) mod llama_cpp;
#[cfg(test)]
mod tests;
pub(super) mod vllm;

use minijinja::Value;
use serde_json::{Map, Value as Json};

use crate::request::ChatRequest;

/// Which engine's preparation a prompt goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Normalisation {
    /// vLLM 0.32: Python's Jinja2, tools and messages written anew.
    Vllm,
    /// llama.cpp's server, build 11434: its own Jinja, a trailing assistant message is continued.
    LlamaCpp,
}

/// The context of a template, and how the prompt ends.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The template's variables.
    pub(super) context: Map<String, Json>,
    /// What is done with the last message.
    pub(super) ending: Ending,
    /// Parts that are not text: images, sounds, videos.
    pub(super) media: u64,
    /// The engine does more with such a request than is mirrored.
    pub(super) unsure: bool,
}

/// How a prompt ends.
#[derive(Debug)]
pub(super) enum Ending {
    /// As the template ends it.
    Rendered,
    /// vLLM, `continue_final_message`: rendered with a mark behind the last message's text, and cut there.
    CutAtMark {
        /// The last message's text, without the mark.
        said: String,
    },
    /// llama.cpp: the last message is empty; the prompt ends with the one before, and the model begins a turn by itself.
    LeftOut,
    /// llama.cpp: the last message is not rendered, but stands behind the generation prompt.
    Continued {
        /// What the assistant had thought so far.
        reasoning: String,
        /// What it had said so far; none if it is still thinking.
        content: Option<String>,
    },
}

/// A request that the engine would refuse, in our words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused(pub(super) String);

impl Refused {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// The context as the template engine takes it.
pub(super) fn to_value(context: &Map<String, Json>) -> Value {
    Value::from_serialize(context)
}

/// A member of the request's body as a tree; none if it is absent or null.
pub(super) fn member(request: &ChatRequest, name: &str) -> Result<Option<Json>, Refused> {
    let Some(value) = request.root().get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    // The body was checked as JSON; what fails here is a lone surrogate or a number beyond a double, which engines refuse as well.
    serde_json::from_str(value.raw())
        .map(Some)
        .map_err(|e| Refused::new(format!("{name} cannot be read: {e}")))
}

/// The messages as trees.
pub(super) fn messages(request: &ChatRequest) -> Result<Vec<Map<String, Json>>, Refused> {
    let Some(Json::Array(messages)) = member(request, "messages")? else {
        return Err(Refused::new("messages must be an array"));
    };
    let object = |(index, message)| match message {
        Json::Object(message) if message.get("role").is_some_and(Json::is_string) => Ok(message),
        _ => Err(Refused::new(format!("messages[{index}] must be an object with a role"))),
    };
    messages.into_iter().enumerate().map(object).collect()
}

/// A member's text.
pub(super) fn text<'a>(object: &'a Map<String, Json>, key: &str) -> Option<&'a str> {
    object.get(key).and_then(Json::as_str)
}

/// Whether a message has this role.
pub(super) fn has_role(message: &Map<String, Json>, role: &str) -> bool {
    text(message, "role") == Some(role)
}

/// What Python takes for false.
pub(super) fn is_nothing(value: &Json) -> bool {
    match value {
        Json::Array(items) => items.is_empty(),
        Json::Object(members) => members.is_empty(),
        Json::Number(number) => number.as_f64() == Some(0.0),
        other => *other == false,
    }
}
