//! llama.cpp's chunks and whole answers, member by member as captured from build 11434.
//!
//! The role chunk says `content: null`; the finish chunk has an empty delta; usage and timings come last. It must
//! never end a stream after a death: the process aborts, and its sockets are reset.

use serde_json::{Value, json};

use crate::{
    Engine, Spec,
    answer::{Answer, Token},
    inference::Inference,
    random::Random,
    ticket::Progress,
    wire::{
        CREATED, event, milliseconds,
        relay::{Pen, Piece},
    },
};

/// Writes one answer.
#[derive(Debug)]
pub(super) struct LlamaPen {
    chat: bool,
    id: String,
    call_id: String,
    model: String,
    build: String,
    reasoning_field: String,
    prompt_tokens: usize,
    include_usage: bool,
    return_progress: bool,
    /// Prompt tokens that the last progress chunk told of.
    told: Option<usize>,
    /// None: ik_llama says nothing while it works.
    comment_after: Option<f64>,
}

impl LlamaPen {
    pub(super) fn new(spec: &Spec, asked: &Inference, random: &mut Random) -> Self {
        let ik = spec.engine == Engine::IkLlama;
        let ping = asked.ping_interval.filter(|&seconds| seconds > 0.0);
        Self {
            chat: asked.chat,
            id: format!("chatcmpl-{}", letters(random)),
            call_id: letters(random),
            model: spec.model.clone(),
            build: spec.version().to_owned(),
            reasoning_field: spec.reasoning_field.clone().unwrap_or_else(|| "reasoning_content".to_owned()),
            prompt_tokens: asked.prompt_tokens(),
            include_usage: asked.include_usage,
            return_progress: asked.return_progress && asked.chat && !ik,
            told: None,
            comment_after: if ik { None } else { Some(ping.or(spec.keep_alive).unwrap_or(30.0)) },
        }
    }

    fn chunk(&self, delta: &Value, finish: Option<&str>) -> Value {
        let choice = json!({"finish_reason": finish, "index": 0, "delta": delta});
        self.framed(json!([choice]))
    }

    fn framed(&self, choices: Value) -> Value {
        json!({
            "choices": choices, "created": CREATED, "id": self.id, "model": self.model, "system_fingerprint": self.build,
            "object": "chat.completion.chunk",
        })
    }

    fn text_chunk(&self, text: &str, finish: Option<&str>) -> Value {
        let choice = json!({"text": text, "index": 0, "logprobs": null, "finish_reason": finish});
        json!({
            "choices": [choice], "created": CREATED, "model": self.model, "system_fingerprint": self.build,
            "object": "text_completion", "id": self.id,
        })
    }

    fn usage(&self, completion_tokens: usize, progress: &Progress) -> Value {
        json!({
            "completion_tokens": completion_tokens, "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + completion_tokens, "prompt_tokens_details": {"cached_tokens": progress.cached},
        })
    }

    fn timings(&self, progress: &Progress) -> Value {
        let prompt_ms = milliseconds(progress.decode_from - progress.prefill_from);
        let predicted_ms = milliseconds(progress.at - progress.decode_from);
        let computed = self.prompt_tokens - progress.cached.min(self.prompt_tokens);
        let (prompt_n, predicted_n) = (computed as f64, progress.decoded as f64);
        let per = |amount: f64, of: f64| if of > 0.0 { (amount / of * 1e6).round() / 1e6 } else { 0.0 };
        json!({
            "cache_n": progress.cached, "prompt_n": computed, "prompt_ms": prompt_ms,
            "prompt_per_token_ms": per(prompt_ms, prompt_n), "prompt_per_second": per(prompt_n * 1e3, prompt_ms),
            "predicted_n": progress.decoded, "predicted_ms": predicted_ms,
            "predicted_per_token_ms": per(predicted_ms, predicted_n),
            "predicted_per_second": per(predicted_n * 1e3, predicted_ms),
        })
    }

    /// The whole answer.
    pub(super) fn whole(&self, answer: &Answer, progress: &Progress) -> Value {
        let (choice, object) = if self.chat {
            (
                json!({"finish_reason": answer.finish(), "index": 0, "message": self.message(answer)}),
                "chat.completion",
            )
        } else {
            let text = answer.content().unwrap_or_default();
            (
                json!({"text": text, "index": 0, "logprobs": null, "finish_reason": answer.finish()}),
                "text_completion",
            )
        };
        json!({
            "choices": [choice], "created": CREATED, "model": self.model, "system_fingerprint": self.build,
            "object": object, "usage": self.usage(answer.tokens.len(), progress), "id": self.id,
            "timings": self.timings(progress),
        })
    }

    fn message(&self, answer: &Answer) -> Value {
        let call = answer.call();
        let content =
            if call.is_some() { answer.content() } else { Some(answer.content().unwrap_or_default()) };
        let mut message = json!({"role": "assistant", "content": content});
        if let Some(reasoning) = answer.reasoning() {
            message[&self.reasoning_field] = json!(reasoning);
        }
        if let Some((name, arguments)) = call {
            message["tool_calls"] = json!([{
                "type": "function", "function": {"name": name, "arguments": arguments}, "id": self.call_id,
            }]);
        }
        message
    }
}

impl Pen for LlamaPen {
    fn prefill(&mut self, progress: &Progress) -> String {
        if !self.return_progress || self.told.is_some_and(|told| progress.prefilled <= told) {
            return String::new();
        }
        self.told = Some(progress.prefilled);
        let mut chunk = self.chunk(&json!({"role": "assistant", "content": null}), None);
        let since = if progress.decoded > 0 { progress.decode_from } else { progress.at };
        chunk["prompt_progress"] = json!({
            "total": self.prompt_tokens, "cache": progress.cached, "processed": progress.prefilled,
            "time_ms": ((since - progress.prefill_from) * 1e3).round() as u64,
        });
        event(&chunk)
    }

    fn piece(&mut self, piece: &Piece, _: Option<&'static str>) -> String {
        let Piece { at, token, .. } = piece;
        if !self.chat {
            return if let Token::Text(text) = token {
                event(&self.text_chunk(text, None))
            } else {
                String::new()
            };
        }
        let role = if *at == 0 {
            event(&self.chunk(&json!({"role": "assistant", "content": null}), None))
        } else {
            String::new()
        };
        let delta = match token {
            Token::Text(text) => json!({"content": text}),
            Token::Reasoning(text) => json!({&self.reasoning_field: text}),
            Token::Call { name } => json!({"tool_calls": [{
                "index": 0, "id": self.call_id, "type": "function", "function": {"name": name, "arguments": ""},
            }]}),
            Token::Arguments(text) => json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}),
            Token::End => return role,
        };
        role + &event(&self.chunk(&delta, None))
    }

    fn merges(&self) -> bool {
        false
    }

    fn end(&mut self, answer: &Answer, progress: &Progress) -> String {
        let (finish, usage, timings) =
            (answer.finish(), self.usage(answer.tokens.len(), progress), self.timings(progress));
        let text = if !self.chat {
            let mut last = self.text_chunk("", Some(finish));
            if let Some(members) = last.as_object_mut() {
                let id = members.shift_remove("id").unwrap_or_default();
                members.extend([("usage", usage), ("id", id), ("timings", timings)].map(owned));
            }
            event(&last)
        } else {
            let mut last = self.chunk(&json!({}), Some(finish));
            if self.include_usage {
                let mut totals = self.framed(json!([]));
                totals["usage"] = usage;
                totals["timings"] = timings;
                event(&last) + &event(&totals)
            } else {
                last["timings"] = timings;
                event(&last)
            }
        };
        text + "data: [DONE]\n\n"
    }

    fn death(&self) -> Option<String> {
        None
    }

    fn comment(&self) -> Option<(f64, &'static str)> {
        self.comment_after.map(|seconds| (seconds, ":\n\n"))
    }
}

fn owned((name, value): (&str, Value)) -> (String, Value) {
    (name.to_owned(), value)
}

/// 32 letters and digits.
fn letters(random: &mut Random) -> String {
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    (0..32).map(|_| char::from(ALPHABET[(random.next() % 62) as usize])).collect()
}
