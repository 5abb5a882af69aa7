//! The prompt that a backend makes of a chat, by its own account: vLLM and SGLang tell its tokens, llama.cpp its text.
//!
//! Asked only where an answer is continued, since what the engine says of itself cannot be wrong about its template. Nothing is computed
//! for it. Must never be taken for exact where the engine renders in another way than it tells (gpt-oss under vLLM).

use bytes::Bytes;
use serde_json::{Value as Json, json};
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::request::ChatRequest;

use super::ask::{answer_of, chat};
use crate::backend::Backend;

/// Tokens whose text tells how a prompt ends.
const TAIL: usize = 32;

/// A rendered prompt.
#[derive(Debug)]
pub(crate) enum Prompt {
    Text(String),
    Tokens(Vec<u64>),
}

/// What the backend makes of a chat; `None`: it does not tell.
pub(crate) async fn prompt_of(backend: &Backend, request: &ChatRequest) -> Option<Prompt> {
    match backend.engine() {
        Engine::Vllm | Engine::Sglang => {
            let answer = json_of(backend, "/tokenize", chat(backend, request)).await?;
            tokens(&answer).map(Prompt::Tokens)
        }
        Engine::LlamaCpp => {
            let answer = json_of(backend, "/apply-template", request.body().clone()).await?;
            Some(Prompt::Text(answer.get("prompt")?.as_str()?.to_owned()))
        }
        Engine::IkLlama | Engine::Ollama | Engine::LmStudio | Engine::Tgi | Engine::Other => None,
    }
}

/// The tokens of a text that stands in the midst of a prompt.
pub(crate) async fn tokens_of(backend: &Backend, text: &str) -> Option<Vec<u64>> {
    let body = match backend.engine() {
        Engine::LlamaCpp => json!({ "content": text, "add_special": false, "parse_special": true }),
        _ => json!({ "model": backend.name_for(None), "prompt": text, "add_special_tokens": false }),
    };
    tokens(&json_of(backend, "/tokenize", body.to_string().into()).await?)
}

/// The text at the end of a prompt.
pub(crate) async fn tail_of(backend: &Backend, prompt: &Prompt) -> Option<String> {
    match prompt {
        Prompt::Text(text) => {
            let from = text.len().saturating_sub(TAIL * 4);
            let from = (from..=text.len()).find(|at| text.is_char_boundary(*at))?;
            Some(text[from..].to_owned())
        }
        Prompt::Tokens(tokens) => {
            let last = &tokens[tokens.len().saturating_sub(TAIL)..];
            let body = json!({ "model": backend.name_for(None), "tokens": last });
            let answer = json_of(backend, "/detokenize", body.to_string().into()).await?;
            let text = answer.get("prompt").or_else(|| answer.get("text"))?;
            Some(text.as_str()?.to_owned())
        }
    }
}

fn tokens(answer: &Json) -> Option<Vec<u64>> {
    answer.get("tokens")?.as_array()?.iter().map(Json::as_u64).collect()
}

async fn json_of(backend: &Backend, path: &str, body: Bytes) -> Option<Json> {
    serde_json::from_slice(&answer_of(backend, path, body).await?).ok()
}
