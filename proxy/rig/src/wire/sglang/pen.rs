//! SGLang's chunks and whole answers, from the source of 0.5.23: every member is there, null or not.
//!
//! It must never end a stream after a death: the whole process tree is killed, and its sockets are reset.

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

/// The end-of-text token that stopped an answer.
const END: u64 = 151_645;

/// Writes one answer.
#[derive(Debug)]
pub(super) struct SglangPen {
    chat: bool,
    id: String,
    call_id: String,
    model: String,
    reasoning_field: String,
    prompt_tokens: usize,
    include_usage: bool,
    continuous_usage: bool,
}

impl SglangPen {
    pub(super) fn new(spec: &Spec, asked: &Inference, random: &mut Random) -> Self {
        Self {
            chat: asked.chat,
            id: format!("{:016x}{:016x}", random.next(), random.next()),
            call_id: format!("call_{:024x}", u128::from(random.next())),
            model: spec.model.clone(),
            reasoning_field: spec.reasoning_field.clone().unwrap_or_else(|| "reasoning_content".to_owned()),
            prompt_tokens: asked.prompt_tokens(),
            include_usage: asked.include_usage,
            continuous_usage: asked.continuous_usage,
        }
    }

    fn usage(&self, completion_tokens: usize) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens, "total_tokens": self.prompt_tokens + completion_tokens,
            "completion_tokens": completion_tokens, "prompt_tokens_details": null,
        })
    }

    fn framed(&self, choices: &Value, usage: &Value) -> String {
        let object = if self.chat { "chat.completion.chunk" } else { "text_completion" };
        event(&json!({
            "id": self.id, "object": object, "created": CREATED, "model": self.model, "choices": choices,
            "usage": usage,
        }))
    }

    fn chunk(&self, delta: &Value, finish: Option<&str>, completion_tokens: usize) -> String {
        let choice = json!({
            "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish, "matched_stop": matched(finish),
        });
        let usage = if self.continuous_usage { self.usage(completion_tokens) } else { Value::Null };
        self.framed(&json!([choice]), &usage)
    }

    fn delta(&self, role: Option<&str>, content: Option<&str>) -> Value {
        let mut delta = json!({"role": role, "content": content});
        delta[&self.reasoning_field] = Value::Null;
        delta["tool_calls"] = Value::Null;
        delta
    }

    /// The whole answer.
    pub(super) fn whole(&self, answer: &Answer) -> Value {
        let finish = answer.finish();
        let (object, mut choice) = if self.chat {
            let mut message = json!({"role": "assistant", "content": answer.content()});
            message[&self.reasoning_field] = json!(answer.reasoning());
            message["tool_calls"] = answer.call().map_or(Value::Null, |(name, arguments)| {
                json!([{"id": self.call_id, "index": 0, "type": "function",
                    "function": {"name": name, "arguments": arguments}}])
            });
            ("chat.completion", json!({"index": 0, "message": message}))
        } else {
            ("text_completion", json!({"index": 0, "text": answer.content().unwrap_or_default()}))
        };
        choice["logprobs"] = Value::Null;
        choice["finish_reason"] = json!(finish);
        choice["matched_stop"] = matched(Some(finish));
        json!({
            "id": self.id, "object": object, "created": CREATED, "model": self.model, "choices": [choice],
            "usage": self.usage(answer.tokens.len()), "metadata": {"weight_version": "default"},
        })
    }
}

fn matched(finish: Option<&str>) -> Value {
    finish.filter(|reason| *reason != "length").map_or(Value::Null, |_| json!(END))
}

impl Pen for SglangPen {
    fn prefill(&mut self, _: &Progress) -> String {
        String::new()
    }

    fn piece(&mut self, piece: &Piece, finish: Option<&'static str>) -> String {
        let Piece { at, count, token } = piece;
        if !self.chat {
            let text = if let Token::Text(text) = token { text.as_str() } else { "" };
            let choice = json!({"index": 0, "text": text, "logprobs": null, "finish_reason": finish,
                "matched_stop": matched(finish)});
            return self.framed(&json!([choice]), &Value::Null);
        }
        let mut said = String::new();
        if *at == 0 {
            said = self.chunk(&self.delta(Some("assistant"), Some("")), None, 0);
        }
        let mut delta = self.delta(None, None);
        match token {
            Token::Text(text) => delta["content"] = json!(text),
            Token::Reasoning(text) => delta[&self.reasoning_field] = json!(text),
            Token::Call { name } => {
                delta["tool_calls"] = json!([{"id": self.call_id, "index": 0, "type": "function",
                    "function": {"name": name, "arguments": ""}}]);
            }
            Token::Arguments(text) => {
                delta["tool_calls"] = json!([{"id": null, "index": 0, "type": "function",
                    "function": {"name": null, "arguments": text}}]);
            }
            Token::End => {}
        }
        let tokens = at + count;
        if *token != Token::End {
            said.push_str(&self.chunk(&delta, None, tokens));
        }
        if finish.is_some() {
            said.push_str(&self.chunk(&self.delta(None, None), finish, tokens));
        }
        said
    }

    fn merges(&self) -> bool {
        true
    }

    fn end(&mut self, answer: &Answer, _: &Progress) -> String {
        let mut text = String::new();
        if self.include_usage {
            text = self.framed(&json!([]), &self.usage(answer.tokens.len()));
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
