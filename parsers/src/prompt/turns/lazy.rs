//! A message or a tool that is read only if the template looks into it.
//!
//! Why: of a conversation that grew, most rounds of the template are known by the hash of their message, and print without it. Reading a
//! message means parsing it, preparing it as the engine does, and making it a value of the template's: far more than the hash. It must
//! never be another value than the whole way has.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use minijinja::Value;
use minijinja::value::{Enumerator, Object, ObjectRepr};
use serde_json::{Map, Value as Json};

use super::memory::Key;
use crate::prompt::normalise::{Normalisation, has_role, llama_cpp, text, to_value, vllm};
use crate::prompt::probe::Traits;

/// What a list of messages or of tools is read from, and for whom.
pub(super) struct Source {
    pub(super) body: Bytes,
    pub(super) normalisation: Normalisation,
    pub(super) traits: Arc<Traits>,
    /// They are messages, and no tools.
    pub(super) messages: bool,
}

/// A message or a tool.
pub(in crate::prompt) struct Lazy {
    pub(super) source: Arc<Source>,
    pub(super) range: Range<usize>,
    pub(super) index: usize,
    /// Of its bytes.
    pub(super) hash: Key,
    /// Of a message; known without reading it.
    pub(super) role: Option<Value>,
    pub(super) value: OnceLock<Value>,
}

impl std::fmt::Debug for Lazy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lazy").finish_non_exhaustive()
    }
}

impl Lazy {
    /// What stands for it in the key of a round.
    pub(in crate::prompt) fn hash(&self) -> Key {
        self.hash
    }

    /// The role of a message.
    pub(in crate::prompt) fn role(&self) -> Option<&Value> {
        self.role.as_ref()
    }

    fn value(&self) -> &Value {
        self.value.get_or_init(|| {
            let raw = self.source.body.get(self.range.clone()).unwrap_or_default();
            let Source { normalisation, traits, messages, .. } = &*self.source;
            let read = match messages {
                true => read_message(raw, *normalisation, traits).map(|read| to_value(&read.message)),
                false => read_tool(raw, *normalisation, self.index).map(Value::from_serialize),
            };
            read.unwrap_or_default()
        })
    }
}

impl Object for Lazy {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        match &self.role {
            Some(role) if key == "role" => Some(role.clone()),
            _ => self.value().as_object()?.get_value_by_str(key),
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.value().try_iter().map_or(Enumerator::Empty, |keys| Enumerator::Values(keys.collect()))
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.role.is_some() || self.value().is_true()
    }
}

/// A message as the engine hands it to the template.
pub(super) struct ReadMessage {
    pub(super) message: Map<String, Json>,
    /// Parts that are no text.
    pub(super) media: u64,
    /// Whether it came with calls.
    pub(super) has_calls: bool,
}

/// A message as the engine hands it to the template; none if it is not read by itself.
pub(super) fn read_message(raw: &[u8], normalisation: Normalisation, traits: &Traits) -> Option<ReadMessage> {
    let Json::Object(message) = serde_json::from_slice(raw).ok()? else { return None };
    text(&message, "role")?;
    let has_calls = message.contains_key("tool_calls");
    let mut media = 0;
    let message = match normalisation {
        Normalisation::Vllm => {
            // Such messages are renamed, and may be merged with others.
            if has_role(&message, "developer") && !traits.names_developer {
                return None;
            }
            vllm::read_message(message, traits.list_in_vllm, &mut media).ok()?
        }
        Normalisation::LlamaCpp => {
            let mut read = llama_cpp::read_message(&message, &mut media).ok()?;
            if traits.list_content && has_role(&read, "tool") && read["content"].is_array() {
                return None;
            }
            llama_cpp::fit(&mut read, traits).ok()?;
            read
        }
    };
    Some(ReadMessage { message, media, has_calls })
}

/// A tool as the engine hands it to the template.
pub(super) fn read_tool(raw: &[u8], normalisation: Normalisation, index: usize) -> Option<Json> {
    let tool: Json = serde_json::from_slice(raw).ok()?;
    match normalisation {
        Normalisation::Vllm => vllm::read_tool(index, &tool).ok(),
        Normalisation::LlamaCpp => llama_cpp::read_tool(index, &tool).ok(),
    }
}
