//! Counting a conversation that grew: only what is new is rendered and counted.
//!
//! The template is run over messages that are read only where it looks into them, written out so that it asks for each round of its loop
//! whether that is known ([`super::template`]). A known round is a number and two short texts; the texts between tokens that nothing can
//! reach over are joined and counted as always. So a turn costs one hash of the body, the template's steps, and its new messages.
//!
//! It must never give another count than the whole way does. Where a request has something that concerns all messages at once (a message
//! that is continued, roles that are merged, what is refused), where anything fails or does not add up, there is no answer here, and the
//! whole way is taken. Each template is tried on some conversations when it is loaded, and is not asked again if the ways ever part.

mod join;
mod memory;
mod proof;

use std::sync::Arc;

use minijinja::Value;
use serde_json::{Map, Value as Json};

pub(super) use self::memory::{Key, Memory, Piece};

use self::join::Join;
use self::memory::Item;
use super::counter::{CountError, Probed, PromptCounter, Sum};
use super::normalise::{Normalisation, has_role, llama_cpp, text, to_value, vllm};
use super::probe::Traits;
use super::stop::Stop;
use super::template::{Lazy, Record};
use super::unsure::{has_odd_arguments, replaces, wide_digits, wide_in_calls};
use crate::json::{Kind, Value as View};
use crate::message::Message;
use crate::request::ChatRequest;

/// What is read: for whom, and with which template.
#[derive(Clone, Copy)]
struct Reading<'a> {
    normalisation: Normalisation,
    traits: &'a Arc<Traits>,
    memory: &'a Memory,
    /// Tells apart what is read for different templates.
    salt: u8,
}

/// What a list of messages or tools has become.
#[derive(Default)]
struct Items {
    values: Vec<Value>,
    hashes: Vec<u8>,
    media: u64,
    wide: u64,
}

impl PromptCounter {
    /// The count by rounds; none if the whole way must be taken.
    ///
    /// # Errors
    /// When it was cancelled.
    pub(super) fn count_by_rounds(
        &self,
        request: &ChatRequest,
        normalisation: Normalisation,
        stop: &Stop,
    ) -> Result<Option<Sum>, CountError> {
        let Some((probed, with_tools)) = self.probed(request, normalisation) else { return Ok(None) };
        if !probed.template.has_rounds() || !self.vocabulary.has_anchors() || replaces(request) {
            return Ok(None);
        }
        let salt = with_tools as u8 * 2 + (normalisation == Normalisation::LlamaCpp) as u8;
        let reading = Reading { normalisation, traits: &probed.traits, memory: &self.memory, salt };
        let Some((context, record, items)) = self.prepare(request, probed, reading) else { return Ok(None) };
        let Ok(rendered) = probed.template.render_rounds(context, request.body().len()) else {
            return Ok(None);
        };
        let bos = match normalisation {
            Normalisation::LlamaCpp if self.vocabulary.around() > 0 => {
                self.special.get("bos_token").and_then(Json::as_str).unwrap_or_default()
            }
            _ => "",
        };
        let mut join = Join::new(&self.vocabulary, &self.memory, normalisation == Normalisation::Vllm, stop);
        let counted = join.count(&rendered.text, record.take(), bos).map_err(CountError::Failed)?;
        let dated = rendered.dated || normalisation == Normalisation::LlamaCpp && probed.traits.names_date;
        let unsure = probed.template.is_unsure();
        Ok(counted.map(|counted| Sum { counted, media: items.media, wide: items.wide, dated, unsure }))
    }

    /// The template's variables, with messages and tools that are not read yet.
    fn prepare(
        &self,
        request: &ChatRequest,
        probed: &Probed,
        reading: Reading<'_>,
    ) -> Option<(Value, Arc<Record>, Items)> {
        let variables = reading.variables(request)?;
        let mut items = Items::default();
        let mut hashed = serde_json::to_vec(&variables).ok()?;
        let tools = request.root().get("tools").filter(|tools| !tools.is_null());
        if let Some(tools) = tools {
            reading.read_all(request, tools, false, &mut items)?;
            hashed.append(&mut items.hashes);
        }
        hashed.push(reading.salt);
        let tools = std::mem::take(&mut items.values);
        reading.read_all(request, request.root().get("messages")?, true, &mut items)?;
        if !reading.takes(request, probed) {
            return None;
        }
        let record = Record::new(self.memory.clone(), self.memory.hash(&hashed));
        let mut context = self.special(reading.normalisation);
        context.extend(variables);
        let mut context: Vec<(String, Value)> =
            context.into_iter().map(|(name, value)| (name, Value::from_serialize(value))).collect();
        context.push(("messages".into(), Value::from(std::mem::take(&mut items.values))));
        match (reading.normalisation, tools.is_empty()) {
            (_, false) => context.push(("tools".into(), Value::from(tools))),
            (Normalisation::Vllm, true) => context.push(("tools".into(), Value::from(()))),
            (Normalisation::LlamaCpp, true) => {}
        }
        context.push(record.variable());
        Some((Value::from_iter(context), record, items))
    }
}

impl Reading<'_> {
    /// The variables besides messages and tools, as the engine gives them; none where a message is continued.
    fn variables(self, request: &ChatRequest) -> Option<Map<String, Json>> {
        match self.normalisation {
            Normalisation::Vllm => {
                let variables = vllm::variables(request).ok()?;
                (!vllm::is_true(variables.get("continue_final_message"))).then_some(variables)
            }
            Normalisation::LlamaCpp => {
                if request.root().get("continue_final_message").is_some_and(|value| !value.is_null()) {
                    return None;
                }
                llama_cpp::check_choice(request).ok()?;
                let mut variables = llama_cpp::variables(request, self.traits).ok()?;
                if llama_cpp::flag(request, "add_generation_prompt").ok()?.unwrap_or(true) {
                    variables.insert("add_generation_prompt".into(), true.into());
                }
                Some(variables)
            }
        }
    }

    /// Whether the engine renders the messages one by one, as they are.
    fn takes(self, request: &ChatRequest, probed: &Probed) -> bool {
        let Some(first) = request.messages().next() else { return false };
        match self.normalisation {
            Normalisation::Vllm => true,
            Normalisation::LlamaCpp => {
                let last = request.messages().last();
                let is = |message: Option<Message<'_>>, role| {
                    message.and_then(Message::role).as_deref() == Some(role)
                };
                !is(last, "assistant")
                    && (probed.traits.system_role
                        || !is(Some(first), "system") && !is(Some(first), "developer"))
            }
        }
    }

    /// Takes in a list; none if it is none, or if one of its elements is not read by itself.
    fn read_all(
        self,
        request: &ChatRequest,
        list: View<'_>,
        messages: bool,
        items: &mut Items,
    ) -> Option<()> {
        if list.kind() != Kind::Array {
            return None;
        }
        let mut keyed = Vec::with_capacity(1 << 14);
        for (index, element) in list.elements().enumerate() {
            let raw = element.raw();
            let hash = self.memory.hash(raw.as_bytes());
            keyed.clear();
            keyed.extend(hash);
            keyed.extend([self.salt, u8::from(messages)]);
            let key = self.memory.hash(&keyed);
            let item = match self.memory.item(key) {
                Some(item) => item,
                None => {
                    let item = Arc::new(self.look_at(element, index, messages)?);
                    self.memory.put_item(key, item.clone());
                    item
                }
            };
            items.media += item.media;
            items.wide += item.wide;
            items.hashes.extend(hash);
            let (whole, range, traits) = (request.clone(), element.range(), self.traits.clone());
            let normalisation = self.normalisation;
            items.values.push(Value::from_object(Lazy::new(hash, item.role.clone(), move || {
                let raw = whole.body().get(range.clone()).unwrap_or_default();
                let read = match messages {
                    true => read_message(raw, normalisation, &traits).map(|(message, _)| to_value(&message)),
                    false => read_tool(raw, normalisation, index).map(Value::from_serialize),
                };
                read.unwrap_or_default()
            })));
        }
        Some(())
    }

    /// What an element is, read for the first time.
    fn look_at(self, element: View<'_>, index: usize, message: bool) -> Option<Item> {
        let raw = element.raw().as_bytes();
        if !message {
            read_tool(raw, self.normalisation, index)?;
            return Some(Item { role: None, media: 0, wide: wide_digits(element.raw()) as u64 });
        }
        let (read, media) = read_message(raw, self.normalisation, self.traits)?;
        let view = Message(element);
        if has_odd_arguments(view) {
            return None;
        }
        Some(Item { role: Some(text(&read, "role")?.into()), media, wide: wide_in_calls(view) as u64 })
    }
}

/// A message as the engine hands it to the template, with its parts that are no text.
fn read_message(
    raw: &[u8],
    normalisation: Normalisation,
    traits: &Traits,
) -> Option<(Map<String, Json>, u64)> {
    let Json::Object(message) = serde_json::from_slice(raw).ok()? else { return None };
    text(&message, "role")?;
    let mut media = 0;
    let read = match normalisation {
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
    Some((read, media))
}

fn read_tool(raw: &[u8], normalisation: Normalisation, index: usize) -> Option<Json> {
    let tool: Json = serde_json::from_slice(raw).ok()?;
    match normalisation {
        Normalisation::Vllm => vllm::read_tool(index, &tool).ok(),
        Normalisation::LlamaCpp => llama_cpp::read_tool(index, &tool).ok(),
    }
}
