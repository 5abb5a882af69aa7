//! A chat answer put together as its client does it, from a whole body or from the chunks of a stream.
//!
//! Why: whether an answer is what was asked for (its calls as declared, a call where one is demanded) can only be said of
//! the message that the client will have. It reads what leaves the proxy, so indexes are dense and ids are there.
//!
//! It looks at one choice, and must never fail: what it cannot read is not there.

use crate::event::{Folded, FoldedCall};
use crate::json::Value;
use crate::schema::ToolSet;
use crate::sse::SseFrame;

/// Members of a message that carry reasoning, in the words of engines and clients.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];

impl Folded {
    /// The first choice of a whole chat answer.
    pub fn of_answer(json: &str) -> Self {
        let mut folded = Self::default();
        if let Some(choice) = choice_of(json, 0) {
            folded.choice(choice, "message");
        }
        folded
    }

    /// Adds a frame of a chat stream; true when it ends the first choice.
    pub fn add_frame(&mut self, frame: &SseFrame) -> bool {
        let before = self.finish_reason.is_empty();
        if let Some(data) = frame.data()
            && let Ok(json) = std::str::from_utf8(&data)
        {
            self.add_chunk(json, 0);
        }
        before && !self.finish_reason.is_empty()
    }

    /// Adds what a chunk says of one choice.
    pub fn add_chunk(&mut self, json: &str, choice: u64) {
        if let Some(choice) = choice_of(json, choice) {
            self.choice(choice, "delta");
        }
    }

    /// What is wrong with its calls by the declared tools: the call's place and a sentence for the model.
    pub fn wrong_calls(&self, tools: &ToolSet) -> Vec<(usize, String)> {
        let wrong = |(place, call): (usize, &FoldedCall)| {
            let error = match tools.tool(&call.name) {
                Some(tool) => tool.check(&call.arguments).err()?,
                None => "there is no tool of this name".to_owned(),
            };
            Some((place, error))
        };
        self.calls.iter().enumerate().filter_map(wrong).collect()
    }

    fn choice(&mut self, choice: Value<'_>, body: &str) {
        if let Some(message) = choice.get(body) {
            let text = |name: &str| message.get(name).and_then(Value::as_str);
            self.content.extend(text("content"));
            self.reasoning.extend(REASONING.into_iter().find_map(text));
            for (place, call) in message.get("tool_calls").into_iter().flat_map(Value::elements).enumerate() {
                let index = call.get("index").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
                self.call(index.unwrap_or(place), call);
            }
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.finish_reason = reason.into_owned();
        }
    }

    fn call(&mut self, index: usize, said: Value<'_>) {
        if index == self.calls.len() {
            self.calls.push(FoldedCall::default());
        }
        let Some(call) = self.calls.get_mut(index) else { return };
        let text = |at: &str| said.at(at).and_then(Value::as_str);
        call.name.extend(text("/function/name"));
        call.arguments.extend(text("/function/arguments"));
        call.id = call.id.take().or_else(|| text("/id").map(String::from));
        call.closed = true;
    }
}

fn choice_of(json: &str, index: u64) -> Option<Value<'_>> {
    let choices = Value::parse(json).ok()?.get("choices")?;
    choices.elements().find(|choice| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sse::SseDecoder;

    const TOOLS: &str = r#"[{"type":"function","function":{"name":"read","parameters":{"type":"object","properties":{"lines":{"type":"integer"}},"required":["path"]}}}]"#;

    #[test]
    fn a_stream_and_a_whole_answer_make_the_same_message() {
        let whole = r#"{"choices":[{"index":1,"message":{"content":"no"}},{"index":0,"finish_reason":"tool_calls","message":{"content":"So.","reasoning":"Hm.","tool_calls":[{"id":"a","function":{"name":"read","arguments":"{\"lines\":\"x\"}"}}]}}]}"#;
        let stream = concat!(
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"So\",\"reasoning_text\":\"Hm.\"}}]}\n\n: comment\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\".\",\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"read\",\"arguments\":\"{\\\"li\"}}]}}]}\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"nes\\\":\\\"x\\\"}\"}},{\"index\":7}]}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n",
        );
        let mut decoder = SseDecoder::new();
        decoder.push(stream.into()).expect("short frames");
        let mut folded = Folded::default();
        let mut ends = 0;
        while let Some(frame) = decoder.next_frame() {
            ends += usize::from(folded.add_frame(&frame));
        }
        assert_eq!((ends, &folded), (1, &Folded::of_answer(whole)));
        let wrong = folded.wrong_calls(&ToolSet::from_json(TOOLS));
        assert_eq!(wrong, [(0, "path is required".to_owned())]);
        let unknown = folded.wrong_calls(&ToolSet::default());
        assert_eq!(unknown, [(0, "there is no tool of this name".to_owned())]);
    }

    #[test]
    fn what_cannot_be_read_is_not_there() {
        for json in
            ["", "no json", "{}", r#"{"choices":5}"#, r#"{"choices":[{"message":{"tool_calls":[5]}}]}"#]
        {
            assert!(Folded::of_answer(json).content.is_empty(), "{json}");
        }
    }
}
