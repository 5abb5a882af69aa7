//! Calls of tools whose input is free text: the model called a function with one string, the client gets the text.
//!
//! Why: no server here knows such tools, so they were declared as functions when the request was read. A call is kept until
//! its choice ends and then sent in one piece, in the envelope that the client takes. All other frames leave as they came.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value as Json, json};
use switchback_parsers::api;
use switchback_parsers::sse::{SseDecoder, write_data};
use switchback_policies::client::FreeTextCalls;

/// The calls of one answer.
#[derive(Debug)]
pub(crate) struct FreeText {
    names: Vec<String>,
    envelope: FreeTextCalls,
    /// Those that have begun, by choice and index: id, name, and the arguments so far.
    open: BTreeMap<(u64, u64), (Json, String, String)>,
}

impl FreeText {
    /// For an answer to a request that declares such tools; `None` if it declares none.
    pub(crate) fn of(names: &[String], envelope: FreeTextCalls) -> Option<Self> {
        (!names.is_empty()).then(|| Self { names: names.to_vec(), envelope, open: BTreeMap::new() })
    }

    /// A whole answer.
    pub(crate) fn answer(&self, body: Bytes) -> Bytes {
        let Ok(mut answer) = serde_json::from_slice::<Json>(&body) else { return body };
        let mut changed = false;
        let choices = answer.get_mut("choices").and_then(Json::as_array_mut);
        for choice in choices.into_iter().flatten() {
            let calls = choice.pointer_mut("/message/tool_calls").and_then(Json::as_array_mut);
            for call in calls.into_iter().flatten() {
                let text = |place: &str| call.pointer(place).and_then(Json::as_str).map(str::to_owned);
                let (Some(name), Some(arguments)) = (text("/function/name"), text("/function/arguments"))
                else {
                    continue;
                };
                if self.names.contains(&name) {
                    let id = call.get("id").cloned().unwrap_or_default();
                    *call = self.call(&id, &name, &arguments).into();
                    changed = true;
                }
            }
        }
        if changed { answer.to_string().into() } else { body }
    }

    /// Whole frames.
    pub(crate) fn frames(&mut self, bytes: Bytes) -> Bytes {
        let mut decoder = SseDecoder::new();
        if decoder.push(bytes.clone()).is_err() {
            return bytes;
        }
        let mut out = BytesMut::with_capacity(bytes.len());
        while let Some(frame) = decoder.next_frame() {
            let read = frame.data().and_then(|data| serde_json::from_slice::<Json>(&data).ok());
            match read.and_then(|chunk| self.chunk(chunk)) {
                Some(chunks) => {
                    chunks
                        .iter()
                        .for_each(|chunk| out.extend_from_slice(&write_data(chunk.to_string().as_bytes())));
                }
                None => out.extend_from_slice(frame.bytes()),
            }
        }
        out.freeze()
    }

    /// What leaves instead of a chunk; `None`: the chunk itself.
    fn chunk(&mut self, mut chunk: Json) -> Option<Vec<Json>> {
        let mut taken = false;
        let mut ended = Vec::new();
        for choice in chunk.get_mut("choices")?.as_array_mut()? {
            let index = choice.get("index").and_then(Json::as_u64).unwrap_or(0);
            let finished = choice.get("finish_reason").is_some_and(|reason| !reason.is_null());
            if let Some(delta) = choice.get_mut("delta").and_then(Json::as_object_mut) {
                taken |= self.take(index, delta);
            }
            if finished {
                let calls: Vec<_> =
                    self.open.range((index, 0)..=(index, u64::MAX)).map(|(at, _)| *at).collect();
                ended.extend(calls.into_iter().filter_map(|at| Some((at, self.open.remove(&at)?))));
            }
        }
        if !taken && ended.is_empty() {
            return None;
        }
        let mut chunks = Vec::new();
        for ((choice, at), (id, name, arguments)) in ended {
            let mut call = self.call(&id, &name, &arguments);
            call.insert("index".to_owned(), at.into());
            let mut own = chunk.clone();
            own.as_object_mut().map(|own| own.remove("usage"));
            own["choices"] =
                json!([{ "index": choice, "delta": { "tool_calls": [call] }, "finish_reason": null }]);
            chunks.push(own);
        }
        let says = |choice: &Json| {
            !choice.get("finish_reason").is_none_or(Json::is_null)
                || choice.get("delta").and_then(Json::as_object).is_some_and(|delta| !delta.is_empty())
        };
        if chunk["choices"].as_array().is_some_and(|choices| choices.iter().any(says)) {
            chunks.push(chunk);
        }
        Some(chunks)
    }

    /// Takes the pieces of such calls out of a delta.
    fn take(&mut self, choice: u64, delta: &mut Map<String, Json>) -> bool {
        let Some(calls) = delta.get_mut("tool_calls").and_then(Json::as_array_mut) else { return false };
        let before = calls.len();
        calls.retain(|call| {
            let at = (choice, call.get("index").and_then(Json::as_u64).unwrap_or(0));
            let text = |place: &str| call.pointer(place).and_then(Json::as_str).unwrap_or_default();
            let name = text("/function/name");
            if self.names.iter().any(|own| own == name) {
                let id = call.get("id").cloned().unwrap_or_default();
                self.open.insert(at, (id, name.to_owned(), String::new()));
            }
            let Some((.., arguments)) = self.open.get_mut(&at) else { return true };
            arguments.push_str(text("/function/arguments"));
            false
        });
        let (after, empty) = (calls.len(), calls.is_empty());
        if empty {
            delta.remove("tool_calls");
        }
        after < before
    }

    fn call(&self, id: &Json, name: &str, arguments: &str) -> Map<String, Json> {
        let text = api::free_text(arguments).unwrap_or_else(|| arguments.to_owned());
        let call = match self.envelope {
            FreeTextCalls::Custom => {
                json!({ "id": id, "type": "custom", "custom": { "name": name, "input": text } })
            }
            FreeTextCalls::Function => {
                json!({ "id": id, "type": "function", "function": { "name": name, "arguments": text } })
            }
        };
        match call {
            Json::Object(members) => members,
            _ => Map::new(),
        }
    }
}
