//! The rest of a chat answer asked for as a plain completion: of the very prompt that the chat has there, and what was said behind it.
//!
//! Chat endpoints go on with text at the best, never with a thought, and templates put something between (an empty thought in Qwen's).
//! The prompt is what the engine itself makes of the request: vLLM and SGLang tell its tokens (`/tokenize`), llama.cpp its text
//! (`/apply-template`); neither computes anything. What a completion loses, since nobody parses it there, is found here: thoughts by
//! their tags, calls by their markup.
//!
//! Must never guess: a thought is continued only if its tags are known to be the model's, and nothing is where a part of the prompt is no text.

use bytes::Bytes;
use serde_json::{Map, Value as Json, json};
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::json::Value;
use switchback_parsers::reasoning::ReasoningSplitter;
use switchback_parsers::request::ChatRequest;
use switchback_parsers::tool_call::{Options, ToolChoice};

use super::rest::Mode;
use crate::answer::seam::Thoughts;
use crate::answer::spoken::Spoken;
use crate::backend::Backend;
use crate::measure::{Prompt, prompt_of, tail_of, tokens_of};

/// What passes from the chat to the completion: how words are drawn. All else is about messages, or of another meaning there.
const PASSES: [&str; 34] = [
    "model",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "top_n_sigma",
    "typical_p",
    "seed",
    "stop",
    "stop_token_ids",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "repeat_penalty",
    "repeat_last_n",
    "logit_bias",
    "bad_words",
    "min_tokens",
    "ignore_eos",
    "dynatemp_range",
    "dynatemp_exponent",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "xtc_probability",
    "xtc_threshold",
    "mirostat",
    "mirostat_tau",
    "samplers",
    "priority",
    "cache_salt",
    "user",
];

/// Families whose markup of calls no engine takes for special tokens, which a completion leaves out.
const PLAIN: [&str; 2] = ["hermes", "qwen_xml"];

/// The tags of thoughts, where nobody says others.
const TAGS: [&str; 2] = ["<think>", "</think>"];

/// Whether the rest of an answer to this request could be asked for as a completion of this backend. `finds_calls`: the text is read for calls.
pub(super) fn may_be(request: &ChatRequest, backend: &Backend, finds_calls: bool) -> bool {
    let renders = matches!(backend.engine(), Engine::Vllm | Engine::Sglang | Engine::LlamaCpp);
    let is_text = |content: Value<'_>| {
        content.as_str().is_some()
            || content.is_null()
            || content.elements().all(|part| part.get("type").is_some_and(|kind| kind.is_text("text")))
    };
    let only_text = request
        .root()
        .get("messages")
        .into_iter()
        .flat_map(Value::elements)
        .all(|message| message.get("content").is_none_or(is_text));
    let plain = backend.family().or(backend.config.format).is_some_and(|family| PLAIN.contains(&family));
    let calls = !may_call(request) || (finds_calls && (plain || backend.engine() == Engine::Vllm));
    renders && backend.family() != Some("harmony") && only_text && calls
}

/// Whether the answer may hold calls.
pub(super) fn may_call(request: &ChatRequest) -> bool {
    let options = Options::of(request);
    !options.tools.is_empty() && options.tool_choice != ToolChoice::None
}

/// What asks for the rest.
pub(super) struct Exact {
    pub(super) body: Bytes,
    pub(super) thoughts: Thoughts,
    /// White space that was said at the end, and is left to be said again: a prompt that ends so is split into other tokens than the model's own.
    pub(super) blank: String,
    /// Tokens of what was said.
    pub(super) said: u64,
}

/// Asks a backend what its prompt is, and writes the request. `sent`: the chat as that backend would get it; `None`: it cannot be done.
pub(super) async fn written(
    sent: &ChatRequest,
    spoken: &Spoken,
    mode: Mode,
    backend: &Backend,
    window: Option<u64>,
) -> Option<Exact> {
    let prompt = prompt_of(backend, sent).await?;
    let tail = tail_of(backend, &prompt).await?;
    let [open, close] = match &backend.config.thinking_tags {
        Some([open, close]) => [open.as_str(), close.as_str()],
        None => TAGS,
    };
    // An answer that begins with channels is more than thoughts and text, and vLLM renders such prompts in another way than it tells.
    if ["<|start|>assistant", "<|channel|>", "<|message|>"].iter().any(|mark| tail.contains(mark)) {
        return None;
    }
    let opened = tail.trim_end().ends_with(open);
    let told_apart = mode == Mode::ThoughtsApart && spoken.thinks();
    if told_apart && !opened && tokens_of(backend, open).await.is_none_or(|tokens| tokens.len() != 1) {
        return None;
    }
    let said = match mode {
        Mode::ThoughtsApart => said(spoken, &tail, opened, [open, close]),
        Mode::Raw => spoken.raw_text().to_owned(),
    };
    let kept = said.trim_end().len();
    let (said, blank) = (&said[..kept], said[kept..].to_owned());
    let within = mode == Mode::ThoughtsApart && spoken.raw_text().is_empty();
    let thoughts = match within {
        true => Thoughts::Within(Box::new(
            ReasoningSplitter::amid_thought().between(backend.config.thinking_tags.clone()),
        )),
        false => Thoughts::Apart,
    };
    let mut body: Map<String, Json> = PASSES
        .iter()
        .filter_map(|name| {
            let value = sent.root().get(name).filter(|value| !value.is_null())?;
            Some(((*name).to_owned(), serde_json::from_str(value.raw()).ok()?))
        })
        .collect();
    let (prompt, length, tokens) = prompt.followed_by(backend, said).await?;
    let used = tokens.unwrap_or_else(|| spoken.tokens());
    let left = sent.output_limit().map(|limit| limit.saturating_sub(used).max(1));
    // Without a limit, completions end after sixteen tokens.
    let room = || Some(window?.saturating_sub(length?).max(1));
    if let Some(limit) = left.or_else(room) {
        body.insert("max_tokens".to_owned(), limit.into());
    } else if backend.engine() != Engine::LlamaCpp {
        return None;
    }
    if may_call(sent) && backend.engine() == Engine::Vllm {
        body.insert("skip_special_tokens".to_owned(), false.into());
    }
    body.insert("prompt".to_owned(), prompt);
    body.insert("stream".to_owned(), true.into());
    body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
    Some(Exact { body: Json::Object(body).to_string().into(), thoughts, blank, said: used })
}

/// What the model wrote, its thoughts between their tags again.
fn said(spoken: &Spoken, tail: &str, opened: bool, [open, close]: [&str; 2]) -> String {
    let (thought, text) = (spoken.thought(), spoken.raw_text());
    let mut said = String::new();
    if thought.is_empty() {
        if opened {
            said.push_str(&format!("\n{close}\n\n"));
        }
        said.push_str(text);
        return said;
    }
    let begins = if opened { tail } else { open };
    if !opened {
        said.push_str(open);
    }
    // Parsers take away the line break behind the tag, or leave it.
    if !begins.ends_with('\n') && !thought.starts_with('\n') {
        said.push('\n');
    }
    said.push_str(thought);
    if !text.is_empty() {
        said.truncate(said.trim_end().len());
        said.push_str(&format!("\n{close}\n\n{}", text.trim_start()));
    }
    said
}

impl Prompt {
    /// The prompt with more behind it, as a completion takes it; its length and that of the rest in tokens, where they are known.
    async fn followed_by(self, backend: &Backend, said: &str) -> Option<(Json, Option<u64>, Option<u64>)> {
        let more = tokens_of(backend, said).await;
        match self {
            Self::Text(prompt) => {
                let tokens = more.map(|more| more.len() as u64);
                Some((format!("{prompt}{said}").into(), None, tokens))
            }
            Self::Tokens(mut tokens) => {
                let more = more?;
                let said = more.len() as u64;
                tokens.extend(more);
                let length = tokens.len() as u64;
                Some((tokens.into(), Some(length), Some(said)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use switchback_parsers::chunk::Dialect;

    use super::*;

    fn spoken(thought: &str, text: &str) -> Spoken {
        let mut spoken = Spoken::new(Dialect::Chat);
        for (member, said) in [("reasoning", thought), ("content", text)] {
            let chunk = json!({ "choices": [{ "index": 0, "delta": { member: said } }] });
            spoken = spoken.with(chunk.to_string().as_bytes()).expect("thoughts and text");
        }
        spoken
    }

    #[test]
    fn what_was_thought_stands_between_its_tags_again_as_the_model_wrote_it() {
        for (thought, text, tail, opened, whole) in [
            ("\nHm. Fr", "", "assistant\n", false, "<think>\nHm. Fr"),
            ("Hm. Fr", "", "assistant\n", false, "<think>\nHm. Fr"),
            ("Hm. Fr", "", "assistant\n<think>\n", true, "Hm. Fr"),
            ("\nHm.\n", "\n\nParis ", "assistant\n", false, "<think>\nHm.\n</think>\n\nParis "),
            ("Hm.", "Paris", "assistant\n<think>\n", true, "Hm.\n</think>\n\nParis"),
            ("", "Paris", "assistant\n", false, "Paris"),
            ("", "Paris", "assistant\n<think>\n", true, "\n</think>\n\nParis"),
        ] {
            assert_eq!(said(&spoken(thought, text), tail, opened, TAGS), whole);
        }
    }
}
