//! Requests of known sizes.
//!
//! The model is small and says anything; so requests never depend on what it says, only on how long it talks. It may not
//! end by itself (`ignore_eos`), or an answer could be empty.

use serde_json::{Value, json};

/// A chat request of about so many tokens, each word being one.
pub(crate) fn chat(words: usize, stream: bool) -> Value {
    let text =
        ["road", "hill", "rain", "load"].iter().cycle().take(words).copied().collect::<Vec<_>>().join(" ");
    json!({"model": "smollm2", "messages": [{"role": "user", "content": text}], "max_tokens": 8, "ignore_eos": true, "stream": stream})
}

/// A short chat request whose answer has exactly so many tokens.
pub(crate) fn talk(tokens: usize, stream: bool) -> Value {
    let messages = json!([{"role": "user", "content": "Tell me a long story."}]);
    json!({"model": "smollm2", "messages": messages, "max_tokens": tokens, "ignore_eos": true, "stream": stream})
}
