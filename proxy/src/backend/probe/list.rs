//! `/v1/models`, the one page that all engines have: who serves it, under which names, with which window.
//!
//! Must never take an adapter's card, or that of a model that is not loaded, for the backend's window.

use std::collections::HashSet;

use serde_json::Value;
use switchback_parsers::diagnosis::Engine;

use super::ask::Said;

/// A list of models, as far as it is one.
#[derive(Debug, Default)]
pub(super) struct ModelList {
    cards: Vec<Value>,
    /// The program that answered calls itself ik_llama.cpp.
    says_ik: bool,
}

impl ModelList {
    /// Reads an answer; empty if it is no list.
    pub(super) fn read(said: &Said) -> Self {
        let mut cards = match said.json() {
            Some(Value::Object(mut page)) => match page.remove("data") {
                Some(Value::Array(cards)) => cards,
                _ => Vec::new(),
            },
            _ => Vec::new(),
        };
        cards.retain(|card| text(card, "id").is_some_and(|id| !id.is_empty()));
        // llama.cpp as a router of many models: what is loaded first, since any other name costs a load.
        cards.sort_by_key(|card| card.pointer("/status/value").is_some_and(|status| status != "loaded"));
        Self { cards, says_ik: said.server().contains("ik_llama") }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cards.is_empty()
    }

    /// The engine, where the cards carry its mark.
    pub(super) fn engine(&self) -> Option<Engine> {
        let owned_by = |card: &Value| match text(card, "owned_by")? {
            "vllm" => Some(Engine::Vllm),
            "sglang" => Some(Engine::Sglang),
            // ik_llama imitates vLLM's card; llama.cpp has no such member.
            "llamacpp" if self.says_ik || card.get("max_model_len").is_some() => Some(Engine::IkLlama),
            "llamacpp" => Some(Engine::LlamaCpp),
            _ => None,
        };
        self.cards.iter().find_map(owned_by)
    }

    /// All names: of models and adapters, then llama.cpp's aliases.
    pub(super) fn names(&self) -> Vec<String> {
        let aliases = self.cards.iter().filter_map(|card| card.get("aliases")?.as_array()).flatten();
        let ids = self.cards.iter().filter_map(|card| text(card, "id"));
        let mut seen = HashSet::new();
        let names = ids.chain(aliases.filter_map(Value::as_str));
        names.filter(|name| !name.is_empty() && seen.insert(*name)).map(str::to_owned).collect()
    }

    /// The window that the cards tell: of the model asked for, else the smallest. vLLM and SGLang give `max_model_len`,
    /// llama.cpp `meta.n_ctx`, of one slot.
    pub(super) fn window(&self, model: Option<&str>) -> Option<u64> {
        let window = |card: &Value| {
            let told = card.get("max_model_len").or_else(|| card.pointer("/meta/n_ctx"));
            told.and_then(Value::as_u64).filter(|window| *window > 0)
        };
        let own = self.cards.iter().find(|card| model.is_some() && text(card, "id") == model);
        own.and_then(window).or_else(|| self.cards.iter().filter_map(window).min())
    }
}

/// A member that is text.
pub(super) fn text<'a>(value: &'a Value, member: &str) -> Option<&'a str> {
    value.get(member).and_then(Value::as_str)
}
