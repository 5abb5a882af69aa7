//! Ollama's chunks and whole answers, from the source of fb30760.
//!
//! Every delta names the role. A call arrives whole in one delta, when it is complete; one that is cut never arrives. It
//! must never end a stream after a death.

use serde_json::{Value, json};

use crate::{
    Spec,
    answer::{Answer, Token},
    inference::Inference,
    random::Random,
    ticket::Progress,
    wire::{
        CREATED, event,
        relay::{Pen, Piece},
    },
};

/// Writes one answer.
#[derive(Debug)]
pub(super) struct OllamaPen {
    chat: bool,
    id: String,
    call_id: String,
    model: String,
    reasoning_field: String,
    prompt_tokens: usize,
    include_usage: bool,
    /// The call so far.
    call: Option<(String, String)>,
}

impl OllamaPen {
    pub(super) fn new(spec: &Spec, asked: &Inference, random: &mut Random) -> Self {
        Self {
            chat: asked.chat,
            id: format!("{}-{}", if asked.chat { "chatcmpl" } else { "cmpl" }, random.below(1_000)),
            call_id: format!("call_{:08x}", random.next() as u32),
            model: spec.model.clone(),
            reasoning_field: spec.reasoning_field.clone().unwrap_or_else(|| "reasoning".to_owned()),
            prompt_tokens: asked.prompt_tokens(),
            include_usage: asked.include_usage,
            call: None,
        }
    }

    fn usage(&self, completion_tokens: usize) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens, "completion_tokens": completion_tokens,
            "total_tokens": self.prompt_tokens + completion_tokens,
        })
    }

    fn framed(&self, choices: &Value) -> Value {
        let object = if self.chat { "chat.completion.chunk" } else { "text_completion" };
        json!({
            "id": self.id, "object": object, "created": CREATED, "model": self.model,
            "system_fingerprint": "fp_ollama", "choices": choices,
        })
    }

    fn chunk(&self, delta: &Value, finish: Option<&str>) -> String {
        event(&self.framed(&json!([{"index": 0, "delta": delta, "finish_reason": finish}])))
    }

    fn calls(&self, name: &str, arguments: &str) -> Value {
        json!([{"id": self.call_id, "index": 0, "type": "function",
            "function": {"name": name, "arguments": arguments}}])
    }

    /// The whole answer.
    pub(super) fn whole(&self, answer: &Answer) -> Value {
        let content = answer.content().unwrap_or_default();
        let (object, choice) = if self.chat {
            let mut message = json!({"role": "assistant", "content": content});
            if let Some(reasoning) = answer.reasoning() {
                message[&self.reasoning_field] = json!(reasoning);
            }
            if let Some((name, arguments)) = answer.call() {
                message["tool_calls"] = self.calls(name, &arguments);
            }
            ("chat.completion", json!({"index": 0, "message": message, "finish_reason": answer.finish()}))
        } else {
            ("text_completion", json!({"text": content, "index": 0, "finish_reason": answer.finish()}))
        };
        json!({
            "id": self.id, "object": object, "created": CREATED, "model": self.model,
            "system_fingerprint": "fp_ollama", "choices": [choice], "usage": self.usage(answer.tokens.len()),
        })
    }
}

impl Pen for OllamaPen {
    fn prefill(&mut self, _: &Progress) -> String {
        String::new()
    }

    fn piece(&mut self, piece: &Piece, finish: Option<&'static str>) -> String {
        if !self.chat {
            let text = if let Token::Text(text) = &piece.token { text.as_str() } else { "" };
            let choice = json!({"text": text, "index": 0, "finish_reason": finish});
            return event(&self.framed(&json!([choice])));
        }
        let mut said = match &piece.token {
            Token::Text(text) => self.chunk(&json!({"role": "assistant", "content": text}), None),
            Token::Reasoning(text) => {
                self.chunk(&json!({"role": "assistant", "content": "", &self.reasoning_field: text}), None)
            }
            Token::Call { name } => {
                self.call = Some((name.clone(), String::new()));
                String::new()
            }
            Token::Arguments(text) => {
                if let Some((_, arguments)) = &mut self.call {
                    arguments.push_str(text);
                }
                String::new()
            }
            Token::End => match self.call.take() {
                Some((name, arguments)) => {
                    let calls = self.calls(&name, &arguments);
                    self.chunk(&json!({"role": "assistant", "content": "", "tool_calls": calls}), None)
                }
                None => String::new(),
            },
        };
        if finish.is_some() {
            said.push_str(&self.chunk(&json!({"role": "assistant", "content": ""}), finish));
        }
        said
    }

    fn merges(&self) -> bool {
        false
    }

    fn end(&mut self, answer: &Answer, _: &Progress) -> String {
        let mut text = String::new();
        if self.include_usage {
            let mut last = self.framed(&json!([]));
            last["usage"] = self.usage(answer.tokens.len());
            text = event(&last);
        }
        text + "data: [DONE]\n\n"
    }

    fn death(&self) -> Option<String> {
        None
    }

    fn comment(&self) -> Option<(f64, &'static str)> {
        None
    }
}
