//! What a backend has said of an answer so far, as far as another one could go on from there: thoughts and text in one choice.
//!
//! It is kept raw, as the backend wrote it, before any repair. As soon as there is more to the answer (a call, a refusal, a second choice,
//! log probabilities, a block behind the text), nothing is kept: half of that cannot be continued. Must never grow without a bound.

use serde_json::{Map, Value as Json};
use switchback_parsers::chunk::Dialect;
use switchback_parsers::json::{Kind, Value};

/// The most that is kept of what was said, in bytes: a longer answer is not continued.
const MOST_SAID: usize = 256 << 10;

/// Members of a chunk that name the answer: those of the first backend stay.
pub(super) const NAMES: [&str; 4] = ["id", "created", "model", "system_fingerprint"];

/// Members of a delta that carry thoughts.
pub(super) const THOUGHTS: [&str; 2] = ["reasoning_content", "reasoning"];

/// Members of a delta besides text and thoughts that say something.
const OTHERS: [&str; 4] = ["tool_calls", "function_call", "refusal", "audio"];

/// What was said.
#[derive(Clone, Debug)]
pub(crate) struct Spoken {
    pub(super) dialect: Dialect,
    pub(super) text: String,
    /// What was thought before it, where the backend tells them apart, and the member in which it does.
    thought: String,
    pub(super) thinks_in: &'static str,
    /// Chunks with text or thoughts: a token has come with each at the least.
    chunks: u64,
    pub(super) names: Map<String, Json>,
}

impl Spoken {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            text: String::new(),
            thought: String::new(),
            thinks_in: THOUGHTS[0],
            chunks: 0,
            names: Map::new(),
        }
    }

    /// With a further chunk; `None`: there is more to the answer than text, and it cannot be continued.
    pub(crate) fn with(mut self, data: &[u8]) -> Option<Self> {
        self.takes(data).then_some(self)
    }

    /// Whether nothing but text has come with this chunk, too.
    pub(super) fn takes(&mut self, data: &[u8]) -> bool {
        let Some(chunk) = std::str::from_utf8(data).ok().and_then(|text| Value::parse(text).ok()) else {
            // Not a chunk: the end marker.
            return true;
        };
        let fits = match self.dialect {
            Dialect::Chat | Dialect::Completions => self.takes_chunk(chunk),
            Dialect::Messages => self.takes_event(chunk),
            Dialect::Responses => false,
        };
        fits && self.text.len() + self.thought.len() <= MOST_SAID
    }

    fn takes_chunk(&mut self, chunk: Value<'_>) -> bool {
        if self.names.is_empty() {
            let value = |name: &str| serde_json::from_str(chunk.get(name)?.raw()).ok();
            self.names = NAMES.iter().filter_map(|name| Some(((*name).to_owned(), value(name)?))).collect();
        }
        for choice in chunk.get("choices").into_iter().flat_map(Value::elements) {
            let [index, delta, logprobs, text] = choice.get_all(["index", "delta", "logprobs", "text"]);
            if index.and_then(Value::as_u64).unwrap_or(0) != 0 || logprobs.is_some_and(|said| !said.is_null())
            {
                return false;
            }
            if self.dialect == Dialect::Completions {
                self.says(text);
                continue;
            }
            let Some(delta) = delta else { continue };
            if OTHERS.iter().any(|name| delta.get(name).is_some_and(holds)) {
                return false;
            }
            let said = THOUGHTS.iter().find_map(|name| Some((name, delta.get(name)?.as_str()?)));
            if let Some((name, thought)) = said.filter(|(_, thought)| !thought.is_empty()) {
                if !self.text.is_empty() {
                    return false;
                }
                self.thinks_in = name;
                self.thought.push_str(&thought);
                self.chunks += 1;
            }
            self.says(delta.get("content"));
        }
        true
    }

    /// Only the first block can be gone on with, as long as it is open.
    fn takes_event(&mut self, event: Value<'_>) -> bool {
        let is_first = event.get("index").and_then(Value::as_u64) == Some(0);
        match event.get("type").and_then(Value::as_str).as_deref() {
            Some("content_block_start") => {
                let block = event.get("content_block");
                self.says(block.and_then(|block| block.get("text")));
                is_first && block.and_then(|block| block.get("type")).is_some_and(|kind| kind.is_text("text"))
            }
            Some("content_block_delta") => {
                let delta = event.get("delta");
                self.says(delta.and_then(|delta| delta.get("text")));
                is_first
                    && delta
                        .and_then(|delta| delta.get("type"))
                        .is_some_and(|kind| kind.is_text("text_delta"))
            }
            Some("content_block_stop") => false,
            _ => true,
        }
    }

    fn says(&mut self, text: Option<Value<'_>>) {
        if let Some(text) = text.and_then(Value::as_str).filter(|text| !text.is_empty()) {
            self.text.push_str(&text);
            self.chunks += 1;
        }
    }

    /// What was said, without the white space at its end.
    pub(crate) fn text(&self) -> &str {
        self.text.trim_end()
    }

    /// The same as it came.
    pub(crate) fn raw_text(&self) -> &str {
        &self.text
    }

    /// What was thought before it, where the backend tells that apart.
    pub(crate) fn thought(&self) -> &str {
        &self.thought
    }

    /// Whether a thought is a part of it.
    pub(crate) fn thinks(&self) -> bool {
        let opens = [
            "<think",
            "<seed:think>",
            "<mm:think>",
            "[THINK]",
            "◁think▷",
            "<|channel>",
            "<|START_THINKING|>",
        ];
        !self.thought.is_empty() || opens.iter().any(|tag| self.text.trim_start().starts_with(tag))
    }

    /// Bytes of all of it.
    pub(crate) fn length(&self) -> usize {
        self.text.len() + self.thought.len()
    }

    /// Tokens that it has cost, about: of a limit they are used up.
    pub(crate) fn tokens(&self) -> u64 {
        self.chunks.max(self.length() as u64 / 5)
    }
}

fn holds(value: Value<'_>) -> bool {
    match value.kind() {
        Kind::String => value.raw().len() > 2,
        Kind::Array => value.elements().next().is_some(),
        Kind::Object => true,
        Kind::Number | Kind::Null | Kind::Bool => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dialect: Dialect, chunks: &[&str]) -> Option<Spoken> {
        chunks.iter().try_fold(Spoken::new(dialect), |spoken, chunk| spoken.with(chunk.as_bytes()))
    }

    #[test]
    fn what_is_more_than_thoughts_and_text_is_not_continued() {
        for chunk in [
            r#"{"choices":[{"index":1,"delta":{"content":"two"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"x"},"logprobs":{"content":[]}}]}"#,
        ] {
            assert!(of(Dialect::Chat, &[chunk]).is_none(), "{chunk}");
        }
        let plain = r#"{"choices":[{"index":0,"delta":{"content":"x","tool_calls":[],"reasoning":null},"logprobs":null}]}"#;
        assert!(of(Dialect::Chat, &[plain]).is_some());
        let thought = r#"{"choices":[{"index":0,"delta":{"reasoning":"Hm"}}]}"#;
        let spoken = of(Dialect::Chat, &[thought, plain]).expect("a thought and a text");
        assert_eq!((spoken.thought(), spoken.text(), spoken.thinks_in), ("Hm", "x", "reasoning"));
        assert!(of(Dialect::Chat, &[plain, thought]).is_none(), "thoughts between texts have no place");
    }

    #[test]
    fn of_a_message_only_the_open_first_block_is_continued() {
        let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":5}}}"#;
        let block = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
        let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}}"#;
        let stop = r#"{"type":"content_block_stop","index":0}"#;
        let spoken = of(Dialect::Messages, &[start, block, delta, delta]).expect("text");
        assert_eq!((spoken.text(), spoken.tokens()), ("HelHel", 2));
        assert!(of(Dialect::Messages, &[start, block, delta, stop]).is_none());
        let thought = block.replace("\"text\",\"text\"", "\"thinking\",\"thinking\"");
        assert!(of(Dialect::Messages, &[start, &thought]).is_none());
    }
}
