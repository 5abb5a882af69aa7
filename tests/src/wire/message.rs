//! The message as a client puts it together, from a whole body or from deltas.
//!
//! Deltas are joined as the common client libraries do it: by index, with names and arguments appended. So damage
//! that would reach a user (two calls glued together, a doubled name) shows here; what no client can read at all is
//! kept as a fault. Nothing is forgiven.

use std::time::Duration;

use serde_json::Value;

use super::sse::Stream;

/// An answer put together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// Role.
    pub role: Option<String>,
    /// Content.
    pub content: String,
    /// Reasoning, under either name of the field.
    pub reasoning: String,
    /// Calls in order of first appearance.
    pub calls: Vec<Call>,
    /// Finish reason.
    pub finish: Option<String>,
    /// What no client can make sense of.
    pub faults: Vec<String>,
}

/// A call put together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// Index in the deltas; its place in a whole body.
    pub index: i64,
    /// Id; empty if there was none.
    pub id: String,
    /// Name.
    pub name: String,
    /// Arguments as they were written.
    pub arguments: String,
}

impl Message {
    /// The message of a whole body.
    pub fn of_body(body: &Value) -> Self {
        let mut message = Self::default();
        let Some(choice) = first_choice(body) else {
            message.faults.push("the body has no choice 0".to_owned());
            return message;
        };
        let said = choice.get("message").unwrap_or(&Value::Null);
        message.add_texts(said);
        for (place, entry) in entries(said).iter().enumerate() {
            let mut call = Call { index: place as i64, ..Call::default() };
            message.faults.extend(add_entry(&mut call, entry));
            message.calls.push(call);
        }
        message.add_finish(choice);
        message
    }

    /// The message of a stream.
    pub fn of_stream(stream: &Stream) -> Self {
        let mut message = Self::default();
        for chunk in stream.chunks() {
            let Some(choice) = first_choice(chunk) else { continue };
            let delta = choice.get("delta").unwrap_or(&Value::Null);
            message.add_texts(delta);
            for entry in entries(delta) {
                message.add_delta(entry);
            }
            message.add_finish(choice);
        }
        message
    }

    fn add_texts(&mut self, said: &Value) {
        match said.get("role") {
            None | Some(Value::Null) => {}
            Some(Value::String(role)) if self.role.as_ref().is_none_or(|known| known == role) => {
                self.role = Some(role.clone());
            }
            Some(other) => self.faults.push(format!("role {other} after {:?}", self.role)),
        }
        let content = self.text(said, "content");
        self.content.push_str(&content);
        let (one, other) = (self.text(said, "reasoning_content"), self.text(said, "reasoning"));
        if !one.is_empty() && !other.is_empty() && one != other {
            self.faults.push(format!("reasoning says {other:?}, reasoning_content says {one:?}"));
        }
        self.reasoning.push_str(if one.is_empty() { &other } else { &one });
    }

    fn text(&mut self, said: &Value, field: &str) -> String {
        match said.get(field) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => {
                self.faults.push(format!("{field} is no text: {other}"));
                String::new()
            }
        }
    }

    fn add_delta(&mut self, entry: &Value) {
        let Some(index) = entry.get("index").and_then(Value::as_i64) else {
            self.faults.push(format!("a call's delta without an index: {entry}"));
            return;
        };
        let place = match self.calls.iter().position(|call| call.index == index) {
            Some(place) => place,
            None => {
                self.calls.push(Call { index, ..Call::default() });
                self.calls.len() - 1
            }
        };
        let faults = add_entry(&mut self.calls[place], entry);
        self.faults.extend(faults);
    }

    fn add_finish(&mut self, choice: &Value) {
        match choice.get("finish_reason") {
            None | Some(Value::Null) => {}
            Some(Value::String(reason)) => {
                if let Some(before) = self.finish.replace(reason.clone())
                    && before != *reason
                {
                    self.faults.push(format!("finish reason {reason} after {before}"));
                }
            }
            Some(other) => self.faults.push(format!("finish reason is no text: {other}")),
        }
    }
}

/// The choice with index 0; one without an index counts as such.
pub fn first_choice(chunk: &Value) -> Option<&Value> {
    let choices = chunk.get("choices")?.as_array()?;
    choices.iter().find(|choice| choice.get("index").is_none_or(|index| *index == 0))
}

/// The call entries of a message or delta.
pub fn entries(said: &Value) -> &[Value] {
    said.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn add_entry(call: &mut Call, entry: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut text = |value: Option<&Value>, what: &str| match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => {
            faults.push(format!("a call's {what} is no text: {other}"));
            String::new()
        }
    };
    let id = text(entry.get("id"), "id");
    let name = text(entry.pointer("/function/name"), "name");
    let arguments = text(entry.pointer("/function/arguments"), "arguments");
    if call.id.is_empty() {
        call.id = id;
    } else if !id.is_empty() && id != call.id {
        faults.push(format!("index {} has id {} and then {id}", call.index, call.id));
    }
    call.name.push_str(&name);
    call.arguments.push_str(&arguments);
    faults
}

/// The text that a user of any dialect sees grow, with the time at which it had grown so far.
pub fn visible(stream: &Stream) -> Vec<(Duration, String)> {
    let mut text = String::new();
    let mut grown = Vec::new();
    for (at, event) in stream.events() {
        let Some(json) = &event.json else { continue };
        let kind = json.get("type").and_then(Value::as_str);
        let new = match kind {
            Some("response.output_text.delta") => json.get("delta"),
            Some("content_block_delta") => json.pointer("/delta/text"),
            _ => first_choice(json)
                .and_then(|choice| choice.pointer("/delta/content").or_else(|| choice.get("text"))),
        };
        if let Some(new) = new.and_then(Value::as_str).filter(|new| !new.is_empty()) {
            text.push_str(new);
            grown.push((at, text.clone()));
        }
    }
    grown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sse::samples::stream;
    use super::*;

    fn fold(deltas: &[Value]) -> Message {
        let events: Vec<String> = deltas
            .iter()
            .map(|delta| {
                format!(
                    "data: {}\n\n",
                    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
                )
            })
            .collect();
        Message::of_stream(&stream(&events.concat()))
    }

    #[test]
    fn deltas_and_a_body_of_the_same_answer_give_the_same_message() {
        let whole = json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": "ab", "reasoning": "r",
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{\"x\":1}"}}]}}]});
        let streamed = [
            json!({"choices": [{"delta": {"role": "assistant", "content": "a", "reasoning_content": "r"}}]}),
            json!({"choices": [{"delta": {"content": "b", "tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]}}]}),
            json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{\"x\":"}}]}}]}),
            json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}, "finish_reason": "tool_calls"}]}),
            json!({"choices": [], "usage": {}}),
        ];
        let text: String = streamed.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
        let message = Message::of_body(&whole);
        assert_eq!(message.faults, [""; 0]);
        assert_eq!(Message::of_stream(&stream(&text)), message);
    }

    #[test]
    fn damage_is_not_forgiven() {
        let call = |id: &str, name: &str| json!({"tool_calls": [{"index": 0, "id": id, "function": {"name": name, "arguments": "{}"}}]});
        let glued = fold(&[call("a", "f"), call("b", "f")]);
        assert_eq!((glued.calls[0].name.as_str(), glued.calls[0].arguments.as_str()), ("ff", "{}{}"));
        assert_eq!(glued.faults.len(), 1);
        for delta in [
            json!({"tool_calls": [{"id": "a", "function": {"name": "f"}}]}),
            json!({"tool_calls": [{"index": 0, "function": {"arguments": {}}}]}),
            json!({"content": ["x"]}),
            json!({"reasoning": "a", "reasoning_content": "b"}),
        ] {
            assert_eq!(fold(std::slice::from_ref(&delta)).faults.len(), 1, "{delta}");
        }
        assert!(!Message::of_body(&json!({"error": {}})).faults.is_empty());
    }

    #[test]
    fn visible_text_is_known_in_every_dialect() {
        let text = concat!(
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
            "data: {\"type\":\"response.output_text.delta\",\"delta\":\"b\"}\n\n",
            "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"c\"}}\n\n",
        );
        let grown: Vec<String> = visible(&stream(text)).into_iter().map(|(_, text)| text).collect();
        assert_eq!(grown, ["a", "ab", "abc"]);
    }
}
