//! The trial of a template when it is loaded: small conversations, counted by rounds and as a whole.
//!
//! That rounds may be remembered follows from the template's syntax. This is the belt to those braces: it costs a millisecond, and a
//! template on which the two ways part, or that remembers nothing, is rendered as a whole from then on.

use bytes::Bytes;

use super::PromptCounter;
use crate::prompt::normalise::Normalisation;
use crate::prompt::stop::Stop;
use crate::request::ChatRequest;

/// What follows on each other in a conversation. Each conversation is one more message of it.
const MESSAGES: [&str; 9] = [
    r#"{"role":"system","content":"be brief"}"#,
    r#"{"role":"user","content":"what is the weather in Berlin?\n"}"#,
    r#"{"role":"assistant","content":null,"reasoning_content":"look it up","tool_calls":[{"id":"call00001","type":"function","function":{"name":"f","arguments":"{\"a\": [1, \"x\"]}"}}]}"#,
    r#"{"role":"tool","tool_call_id":"call00001","content":"  {\"deg\": 21}"}"#,
    r#"{"role":"assistant","content":"<think>\nso\n</think>\n\nwarm "}"#,
    r#"{"role":"user","content":"<tool_response>and</tool_response>"}"#,
    r#"{"role":"assistant","content":"so"}"#,
    r#"{"role":"user","content":[{"type":"text","text":"thanks"},{"type":"text","text":"!"}]}"#,
    r#"{"role":"user","content":"bye"}"#,
];
const TOOLS: &str = r#"{"type":"function","function":{"name":"f","description":"does","parameters":{"type":"object","properties":{"a":{"type":["string","null"]}}}}}"#;

impl PromptCounter {
    /// Forgets to remember where it does not pay, or must not.
    pub(in crate::prompt) fn try_rounds(&mut self) {
        for normalisation in [Normalisation::Vllm, Normalisation::LlamaCpp] {
            if !self.rounds_hold(normalisation) {
                self.without_rounds(normalisation);
            }
        }
    }

    /// Whether both ways agree on everything that has a count, and rounds are met again when a conversation grows.
    fn rounds_hold(&self, normalisation: Normalisation) -> bool {
        let met = self.memory.met();
        for (front, tools) in [(0, false), (0, true), (1, false), (1, true)] {
            for end in front + 1..=MESSAGES.len() {
                let messages = MESSAGES.get(front..end).unwrap_or_default().join(",");
                let tools = if tools { format!(",\"tools\":[{TOOLS},{TOOLS}]") } else { String::new() };
                let body = format!("{{\"messages\":[{messages}]{tools}}}");
                let Ok(request) = ChatRequest::parse(Bytes::from(body)) else { continue };
                let Ok(Some(sum)) = self.count_by_rounds(&request, normalisation, &Stop::default()) else {
                    continue;
                };
                match self.count_whole(&request, normalisation, &Stop::default()) {
                    Ok(whole) if whole == sum => {}
                    _ => return false,
                }
            }
        }
        self.memory.met() > met
    }
}
