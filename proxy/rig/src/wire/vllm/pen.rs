//! vLLM's chunks and whole answers, member by member as captured from 0.32.0.
//!
//! The role chunk leaves with the first token, not before. A stream's last token carries the finish reason. A death
//! is one `error` event with Python's spacing, then `[DONE]`, as if all were well.

use serde_json::{Map, Value, json};

use super::checks::ENGINE_DEAD;
use crate::{
    Spec,
    answer::{Answer, Token},
    inference::Inference,
    random::hash,
    ticket::Progress,
    wire::{
        CREATED, event,
        relay::{Pen, Piece},
    },
};

/// Which of the APIs an answer is for. The last two are put in chat's words before they are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Chat,
    Completion,
    Messages,
    Responses,
}

/// Writes one answer.
#[derive(Debug)]
pub(super) struct VllmPen {
    shape: Shape,
    id: String,
    model: String,
    fingerprint: String,
    reasoning_field: String,
    parses: bool,
    prompt_tokens: usize,
    reasoning_tokens: usize,
    include_usage: bool,
    continuous_usage: bool,
    keep_alive: Option<f64>,
}

impl VllmPen {
    pub(super) fn new(spec: &Spec, shape: Shape, id: String, asked: &Inference) -> Self {
        let default_field = if spec.is_old_vllm() { "reasoning_content" } else { "reasoning" };
        Self {
            shape,
            id,
            model: spec.model.clone(),
            fingerprint: format!("vllm-{}-{:08x}", spec.version(), hash(spec.name.as_bytes()) as u32),
            reasoning_field: spec.reasoning_field.clone().unwrap_or_else(|| default_field.to_owned()),
            parses: spec.tool_parser,
            prompt_tokens: asked.prompt_tokens(),
            reasoning_tokens: 0,
            include_usage: asked.include_usage,
            continuous_usage: asked.continuous_usage,
            keep_alive: spec.keep_alive,
        }
    }

    fn usage(&self, completion_tokens: usize) -> Value {
        let mut usage = json!({
            "prompt_tokens": self.prompt_tokens, "total_tokens": self.prompt_tokens + completion_tokens,
            "completion_tokens": completion_tokens,
        });
        if self.shape == Shape::Chat {
            usage["completion_tokens_details"] = json!({"reasoning_tokens": self.reasoning_tokens});
        }
        usage
    }

    /// One chunk; `completion_tokens` for the running usage.
    fn chunk(&self, choice: Value, completion_tokens: usize, first: bool) -> String {
        let object = if self.shape == Shape::Chat { "chat.completion.chunk" } else { "text_completion" };
        let last = !choice["finish_reason"].is_null();
        let mut chunk = json!({
            "id": self.id, "object": object, "created": CREATED, "model": self.model, "choices": [choice],
        });
        if self.continuous_usage {
            chunk["usage"] = self.usage(completion_tokens);
        }
        if last && !self.include_usage {
            chunk["system_fingerprint"] = json!(self.fingerprint);
        }
        if first {
            chunk["prompt_token_ids"] = Value::Null;
            chunk["prompt_text"] = Value::Null;
        }
        event(&chunk)
    }

    fn chat_choice(&self, delta: Value, finish: Option<&str>) -> Value {
        let mut choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish});
        if finish.is_some() {
            choice["stop_reason"] = Value::Null;
        }
        choice["token_ids"] = Value::Null;
        choice
    }

    fn delta(&self, token: &Token) -> Value {
        match token {
            Token::Text(text) => json!({"content": text}),
            Token::Reasoning(text) => json!({&self.reasoning_field: text}),
            Token::Call { name } => json!({"content": null, "tool_calls": [{
                "id": self.call_id(), "type": "function", "index": 0, "function": {"name": name},
            }]}),
            Token::Arguments(text) => json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}),
            Token::End if self.parses => json!({}),
            Token::End => json!({"content": ""}),
        }
    }

    fn call_id(&self) -> String {
        format!("chatcmpl-tool-{:016x}", hash(self.id.as_bytes()))
    }

    /// The whole answer, with its many null members.
    pub(super) fn whole(&self, answer: &Answer) -> Value {
        let mut choice = Map::from_iter([("index".to_owned(), json!(0))]);
        if self.shape == Shape::Chat {
            choice.insert("message".to_owned(), self.message(answer));
        } else {
            choice.insert("text".to_owned(), json!(answer.content().unwrap_or_default()));
        }
        for (member, value) in [
            ("logprobs", Value::Null),
            ("finish_reason", json!(answer.finish())),
            ("stop_reason", Value::Null),
            ("token_ids", Value::Null),
        ] {
            choice.insert(member.to_owned(), value);
        }
        let reasoning = answer.tokens.iter().filter(|token| matches!(token, Token::Reasoning(_))).count();
        let mut usage = self.usage(answer.tokens.len());
        usage["prompt_tokens_details"] = Value::Null;
        let details =
            if self.shape == Shape::Chat { json!({"reasoning_tokens": reasoning}) } else { Value::Null };
        usage["completion_tokens_details"] = details;
        if self.shape == Shape::Completion {
            choice.insert("prompt_logprobs".to_owned(), Value::Null);
            choice.insert("prompt_token_ids".to_owned(), Value::Null);
        }
        choice.insert("routed_experts".to_owned(), Value::Null);
        let object = if self.shape == Shape::Chat { "chat.completion" } else { "text_completion" };
        let mut whole = json!({
            "id": self.id, "object": object, "created": CREATED, "model": self.model, "choices": [choice],
            "service_tier": null, "system_fingerprint": self.fingerprint, "usage": usage,
        });
        let nulls: &[&str] = match self.shape {
            Shape::Chat => &["prompt_logprobs", "prompt_token_ids", "prompt_text"],
            Shape::Completion | Shape::Messages | Shape::Responses => &[],
        };
        for &member in nulls.iter().chain(&["kv_transfer_params", "ec_transfer_params", "metrics"]) {
            whole[member] = Value::Null;
        }
        whole
    }

    fn message(&self, answer: &Answer) -> Value {
        let call = answer.call();
        let mut message = json!({
            "role": "assistant", "content": answer.content(), "refusal": null, "annotations": null, "audio": null,
            "function_call": null,
        });
        if let Some((name, arguments)) = call {
            message["tool_calls"] = json!([{
                "id": self.call_id(), "type": "function", "function": {"name": name, "arguments": arguments},
            }]);
        }
        message[&self.reasoning_field] = json!(answer.reasoning());
        message
    }
}

impl Pen for VllmPen {
    fn prefill(&mut self, _: &Progress) -> String {
        String::new()
    }

    fn piece(&mut self, piece: &Piece, finish: Option<&'static str>) -> String {
        let Piece { at, count, token } = piece;
        if matches!(token, Token::Reasoning(_)) {
            self.reasoning_tokens += count;
        }
        if self.shape == Shape::Completion {
            let text = if let Token::Text(text) = token { text.as_str() } else { "" };
            let choice = json!({
                "index": 0, "text": text, "logprobs": null, "finish_reason": finish, "stop_reason": null,
                "prompt_token_ids": null, "token_ids": null,
            });
            return self.chunk(choice, at + count, false);
        }
        let chunk = self.chunk(self.chat_choice(self.delta(token), finish), at + count, false);
        if *at > 0 {
            return chunk;
        }
        let role = json!({"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null,
            "finish_reason": null});
        self.chunk(role, 0, true) + &chunk
    }

    fn merges(&self) -> bool {
        true
    }

    fn end(&mut self, answer: &Answer, _: &Progress) -> String {
        let mut text = String::new();
        if self.include_usage {
            let object = if self.shape == Shape::Chat { "chat.completion.chunk" } else { "text_completion" };
            text = event(&json!({
                "id": self.id, "object": object, "created": CREATED, "model": self.model, "choices": [],
                "usage": self.usage(answer.tokens.len()), "system_fingerprint": self.fingerprint,
            }));
        }
        text + "data: [DONE]\n\n"
    }

    fn death(&self) -> Option<String> {
        Some(format!(
            "data: {{\"error\": {{\"message\": \"{ENGINE_DEAD}\", \"type\": \"InternalServerError\", \"param\": null, \
             \"code\": 500}}}}\n\ndata: [DONE]\n\n"
        ))
    }

    fn comment(&self) -> Option<(f64, &'static str)> {
        self.keep_alive.map(|seconds| (seconds, ": keep-alive\n\n"))
    }
}
