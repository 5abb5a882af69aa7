//! Repair of an answer that came whole. It gives the very message that the same answer gives as a stream.

use bytes::Bytes;
use serde_json::{Map, Value as Json, json};
use switchback_parsers::calls::ChunkNormaliser;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::event::{Event, Folded, Note};

use super::RepairTerms;
use super::beside::without_calls;
use super::wire::Plain;
use crate::answer::grade::Traces;

/// The answer as the client gets it; the same bytes where nothing is to be repaired. And what the repair came upon.
pub(crate) fn whole(body: Bytes, terms: &RepairTerms) -> (Bytes, Traces) {
    let Ok(text) = std::str::from_utf8(&body) else { return (body, Traces::default()) };
    let (repaired, traces) = match terms.plain() {
        None => repaired(text, terms),
        Some(plain) => match plain.in_chat(text) {
            Some(chat) => {
                let (repaired, traces) = repaired(&chat, terms);
                (repaired.and_then(|chat| plain.back(text, &chat)), traces)
            }
            None => (None, Traces::default()),
        },
    };
    (repaired.map_or(body, Bytes::from), traces)
}

/// An answer of another dialect in chat's words; `None` if it is in them, or no answer.
pub(crate) fn in_chat(body: &[u8], dialect: Dialect) -> Option<String> {
    Plain::of(dialect, None, "")?.in_chat(std::str::from_utf8(body).ok()?)
}

/// A chat answer as the client gets it; `None`: as it is.
fn repaired(text: &str, terms: &RepairTerms) -> (Option<String>, Traces) {
    let mut normaliser = terms.normaliser();
    let normalised = if terms.calls { normaliser.answer(text) } else { None };
    let text = normalised.as_deref().unwrap_or(text);
    let mut traces = Traces { mended: normaliser.was_mended(), ..Traces::default() };
    let repaired =
        if terms.reads_text() { from_text(text, terms, &mut normaliser, &mut traces) } else { None };
    (repaired.or(normalised), traces)
}

fn from_text(
    text: &str,
    terms: &RepairTerms,
    normaliser: &mut ChunkNormaliser,
    traces: &mut Traces,
) -> Option<String> {
    let mut answer: Json = serde_json::from_str(text).ok()?;
    let mut changed = false;
    for choice in answer.get_mut("choices")?.as_array_mut()? {
        changed |=
            choice.as_object_mut().is_some_and(|choice| repair_choice(choice, terms, normaliser, traces));
    }
    changed.then(|| answer.to_string())
}

fn repair_choice(
    choice: &mut Map<String, Json>,
    terms: &RepairTerms,
    normaliser: &mut ChunkNormaliser,
    traces: &mut Traces,
) -> bool {
    let index = choice.get("index").and_then(Json::as_u64).unwrap_or(0);
    let finish = choice.get("finish_reason").and_then(Json::as_str).unwrap_or_default().to_owned();
    let Some(message) = choice.get_mut("message").and_then(Json::as_object_mut) else { return false };
    let field = ["reasoning_content", "reasoning"]
        .into_iter()
        .find(|field| message.get(*field).is_some_and(Json::is_string));
    let string = |member: &str| message.get(member).and_then(Json::as_str).unwrap_or_default().to_owned();
    let (content, reasoning) = (string("content"), field.map(string).unwrap_or_default());

    let mut parser = terms.parser();
    let mut events = Vec::new();
    let structured = normaliser.calls(index);
    if structured > 0 {
        parser.call_beside();
    } else if !reasoning.is_empty() {
        events.extend(parser.push_reasoning(&reasoning));
    }
    events.extend(parser.push(&content));
    let (last, reason) = parser.finish(&finish);
    events.extend(last);
    traces.unread |= parser.is_unread();
    if structured > 0 {
        let is_sent = |name: &str, arguments: &str| normaliser.has_call(index, name, arguments);
        events = without_calls(events, false, is_sent, terms);
        // A draft in a thought before a real call is thought.
        events.insert(0, Event::Reasoning(reasoning.clone()));
    }
    let folded = Folded::of(events);
    traces.cut_call |= folded.notes.contains(&Note::CutInsideCall);
    traces.mended |= folded.notes.iter().any(|note| matches!(note, Note::Repaired(_)));
    if folded.calls.is_empty() && folded.content == content && folded.reasoning == reasoning {
        return false;
    }
    let calls: Vec<Json> = folded
        .calls
        .iter()
        .map(|call| {
            let (_, id) = normaliser.allot(index, call.id.clone(), &call.name);
            json!({ "id": id, "type": "function", "function": { "name": call.name, "arguments": call.arguments } })
        })
        .collect();
    let has_calls = structured > 0 || !calls.is_empty();
    let text = if folded.content.is_empty() && has_calls { Json::Null } else { folded.content.into() };
    message.insert("content".to_owned(), text);
    if !folded.reasoning.is_empty() || !reasoning.is_empty() {
        message.insert(field.unwrap_or("reasoning_content").to_owned(), folded.reasoning.into());
    }
    if !calls.is_empty() {
        match message.get_mut("tool_calls").and_then(Json::as_array_mut) {
            Some(list) => list.extend(calls),
            None => {
                message.insert("tool_calls".to_owned(), calls.into());
            }
        }
    }
    let reason = if structured > 0 && finish == "tool_calls" { finish } else { reason };
    choice.insert("finish_reason".to_owned(), reason.into());
    true
}
