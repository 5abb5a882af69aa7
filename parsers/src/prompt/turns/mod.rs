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
mod lazy;
mod memory;
mod proof;
mod sequence;

use std::sync::{Arc, OnceLock};

use minijinja::Value;
use serde_json::{Map, Value as Json};

pub(super) use self::lazy::Lazy;
pub(super) use self::memory::{Key, Memory, Piece};
pub(super) use self::sequence::Sequence;

use self::join::Join;
use self::lazy::{Source, read_message, read_tool};
use self::memory::Item;
use super::counter::{CountError, Probed, PromptCounter, Sum};
use super::normalise::{Normalisation, llama_cpp, text, to_value, vllm};
use super::probe::Traits;
use super::stop::Stop;
use super::template::Record;
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

impl Items {
    fn add(
        &mut self,
        source: &Arc<Source>,
        item: &Item,
        element: &View<'_>,
        hash: Key,
        value: OnceLock<Value>,
    ) {
        self.media += item.media;
        self.wide += item.wide;
        self.hashes.extend(hash);
        self.values.push(Value::from_object(Lazy {
            source: source.clone(),
            range: element.range(),
            index: self.values.len(),
            hash,
            role: item.role.clone(),
            value,
        }));
    }
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
        let record = probed.template.record(&self.memory, self.memory.hash(&hashed))?;
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
        context.extend(record.variables());
        Some((Value::from_iter(context), record, items))
    }
}

impl Reading<'_> {
    /// The variables besides messages and tools, as the engine gives them; none where a message is continued.
    fn variables(self, request: &ChatRequest) -> Option<Map<String, Json>> {
        match self.normalisation {
            Normalisation::Vllm => {
                let mut variables = vllm::variables(request).ok()?;
                let go_on = variables.shift_remove("continue_final_message");
                (!vllm::is_true(go_on.as_ref())).then_some(variables)
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
        let source = Arc::new(Source {
            body: request.body().clone(),
            normalisation: self.normalisation,
            traits: self.traits.clone(),
            messages,
        });
        let elements: Vec<(View<'_>, Key)> =
            list.elements().map(|element| (element, self.memory.hash(element.raw().as_bytes()))).collect();
        items.values.reserve(elements.len());
        // A list that grew is known by its first two elements, as far as it is the same.
        let hashes = || elements.iter().map(|(_, hash)| *hash);
        let name = elements.get(1).map(|_| self.key(hashes().take(2), messages));
        let known = name.and_then(|name| self.memory.items(name)).unwrap_or_default();
        let same = known.iter().zip(hashes()).take_while(|((before, _), now)| before == now).count();
        for ((hash, item), (element, _)) in known.iter().take(same).zip(&elements) {
            items.add(&source, item, element, *hash, OnceLock::new());
        }
        let mut new = Vec::new();
        for (element, hash) in elements.iter().skip(same) {
            let key = self.key([*hash], messages);
            let (item, value) = match self.memory.items(key).as_deref() {
                Some([(_, item)]) => (item.clone(), OnceLock::new()),
                _ => {
                    let (item, value) = self.look_at(*element, items.values.len(), messages)?;
                    self.memory.put_items(key, Arc::new([(*hash, item.clone())]));
                    (item, OnceLock::from(value))
                }
            };
            items.add(&source, &item, element, *hash, value);
            new.push((*hash, item));
        }
        if let (Some(name), false) = (name, new.is_empty()) {
            self.memory.put_items(name, known.iter().take(same).cloned().chain(new).collect());
        }
        Some(())
    }

    /// The key of some elements that follow each other.
    fn key(self, hashes: impl IntoIterator<Item = Key>, messages: bool) -> Key {
        let mut told = Vec::with_capacity(2 * size_of::<Key>() + 2);
        told.extend(hashes.into_iter().flatten());
        told.extend([self.salt, u8::from(messages)]);
        self.memory.hash(&told)
    }

    /// What an element is, read for the first time.
    fn look_at(self, element: View<'_>, index: usize, message: bool) -> Option<(Item, Value)> {
        let raw = element.raw().as_bytes();
        if !message {
            let tool = read_tool(raw, self.normalisation, index)?;
            let item = Item { role: None, media: 0, wide: wide_digits(element.raw()) as u64 };
            return Some((item, Value::from_serialize(tool)));
        }
        let read = read_message(raw, self.normalisation, self.traits)?;
        // To look for calls in a long text takes longer than to read it.
        let calls = Some(Message(element)).filter(|_| read.has_calls);
        if calls.is_some_and(has_odd_arguments) {
            return None;
        }
        let role = Some(text(&read.message, "role")?.into());
        let wide = calls.map_or(0, wide_in_calls) as u64;
        Some((Item { role, media: read.media, wide }, to_value(&read.message)))
    }
}
