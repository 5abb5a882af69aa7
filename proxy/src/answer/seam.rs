//! Where one backend's answer goes on with another's: what was said up to there, and how the rest is fitted on.
//!
//! The next backend is given what was said as the beginning of its own answer. Engines differ in what they make of that:
//! vLLM says only what follows, llama.cpp says the beginning again, and a server that does not know the wish begins anew. So
//! nothing of the rest is passed on before it is clear which of these it is. A beginning that is repeated whole is taken off;
//! one that is begun anew in other words, and a rest that comes as a thought, break the seam.
//!
//! Templates trim the end of what is to be continued, so it is given without the white space at its end, and as much of that as
//! the rest begins with is taken off. Must never take off what the model may have meant, nor repeat what was shown.

use std::fmt;

use bytes::Bytes;
use serde_json::{Map, Value as Json};
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::json::{Kind, Value};
use switchback_parsers::sse::{SseDecoder, SseFrame, write_data};

/// The most that is kept of what was said, in bytes: a longer answer is not continued.
const MOST_SAID: usize = 256 << 10;

/// So much of a beginning, in bytes, is no coincidence.
const NO_COINCIDENCE: usize = 16;

/// Members of a chunk that name the answer: those of the first backend stay.
const NAMES: [&str; 4] = ["id", "created", "model", "system_fingerprint"];

/// Members of a delta besides text that say something.
const OTHERS: [&str; 6] =
    ["tool_calls", "function_call", "refusal", "audio", "reasoning", "reasoning_content"];

/// The text of a stream, as long as nothing but text has come in one choice.
#[derive(Debug, Default)]
pub(crate) struct Spoken {
    text: String,
    /// Chunks with text: a token has come with each at the least.
    chunks: u64,
    names: Map<String, Json>,
}

impl Spoken {
    /// With a further chunk; `None`: there is more to the answer than text, and it cannot be continued.
    pub(crate) fn with(mut self, data: &[u8]) -> Option<Self> {
        self.takes(data).then_some(self)
    }

    /// Whether nothing but text has come with this chunk, too.
    fn takes(&mut self, data: &[u8]) -> bool {
        let Some(chunk) = std::str::from_utf8(data).ok().and_then(|text| Value::parse(text).ok()) else {
            // Not a chunk: the end marker.
            return true;
        };
        if self.names.is_empty() {
            let value = |name: &str| serde_json::from_str(chunk.get(name)?.raw()).ok();
            self.names = NAMES.iter().filter_map(|name| Some(((*name).to_owned(), value(name)?))).collect();
        }
        for choice in chunk.get("choices").into_iter().flat_map(Value::elements) {
            let [index, delta, logprobs] = choice.get_all(["index", "delta", "logprobs"]);
            if index.and_then(Value::as_u64).unwrap_or(0) != 0 || logprobs.is_some_and(|said| !said.is_null())
            {
                return false;
            }
            let Some(delta) = delta else { continue };
            if OTHERS.iter().any(|name| delta.get(name).is_some_and(says)) {
                return false;
            }
            if let Some(text) = delta.get("content").and_then(Value::as_str).filter(|text| !text.is_empty()) {
                self.text.push_str(&text);
                self.chunks += 1;
            }
        }
        self.text.len() <= MOST_SAID && !self.text.trim_start().starts_with("<think")
    }

    /// What was said, without the white space at its end.
    pub(crate) fn text(&self) -> &str {
        self.text.trim_end()
    }

    /// Tokens that it has cost, about: of a limit they are used up.
    pub(crate) fn tokens(&self) -> u64 {
        self.chunks.max(self.text.len() as u64 / 5)
    }
}

fn says(value: Value<'_>) -> bool {
    match value.kind() {
        Kind::String => value.raw().len() > 2,
        Kind::Array => value.elements().next().is_some(),
        Kind::Object => true,
        Kind::Number | Kind::Null | Kind::Bool => false,
    }
}

/// Why a rest does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    BeganAnew,
    Thinks,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeganAnew => "it began its answer anew",
            Self::Thinks => "it took the rest of the answer for a thought",
        })
    }
}

/// Fits the text of a rest on.
#[derive(Debug)]
pub(crate) struct Join {
    /// What was said, as long as it may be repeated.
    said: Option<String>,
    /// The engine always repeats it.
    repeats: bool,
    /// White space that was said behind it, and may be said again.
    blank: String,
    /// What has come, and is not clear yet.
    pending: String,
}

impl Join {
    /// Behind this text, of an engine of this kind.
    pub(crate) fn behind(text: &str, engine: Engine) -> Self {
        let said = text.trim_end();
        Self {
            said: Some(said.to_owned()),
            repeats: matches!(engine, Engine::LlamaCpp | Engine::IkLlama),
            blank: text[said.len()..].to_owned(),
            pending: String::new(),
        }
    }

    /// Takes more of the rest; gives what of it is new. `ends`: nothing follows.
    pub(crate) fn push(&mut self, text: &str, ends: bool) -> Result<String, Misfit> {
        self.pending.push_str(text);
        if let Some(said) = &self.said {
            let same = common(&self.pending, said);
            if same == self.pending.len() && same < said.len() && !ends {
                return Ok(String::new());
            }
            let is_chance = same < NO_COINCIDENCE && !self.repeats;
            if same == said.len() && !is_chance {
                self.pending.drain(..same);
            } else if !is_chance && same >= NO_COINCIDENCE.min(said.len()) && same > 0 {
                return Err(Misfit::BeganAnew);
            }
            self.said = None;
        }
        let again = common(&self.pending, &self.blank);
        self.pending.drain(..again);
        self.blank.drain(..again);
        if !self.pending.is_empty() {
            self.blank.clear();
        }
        Ok(std::mem::take(&mut self.pending))
    }

    /// The whole of a rest at once.
    pub(crate) fn whole(mut self, rest: &str) -> Result<String, Misfit> {
        self.push(rest, true)
    }
}

/// Bytes that both begin with, whole characters.
fn common(one: &str, other: &str) -> usize {
    let same = one.chars().zip(other.chars()).take_while(|(one, other)| one == other);
    same.map(|(same, _)| same.len_utf8()).sum()
}

/// Fits the chunks of a rest on: they look like those before.
#[derive(Debug)]
pub(crate) struct Seam {
    join: Join,
    names: Map<String, Json>,
}

impl Seam {
    /// Behind what was said.
    pub(crate) fn behind(spoken: &Spoken, engine: Engine) -> Self {
        Self { join: Join::behind(&spoken.text, engine), names: spoken.names.clone() }
    }

    /// The payload of a chunk as it goes on behind the others; `None`: it says nothing new.
    fn chunk(&mut self, data: &[u8]) -> Result<Option<Bytes>, Misfit> {
        let Ok(Json::Object(mut chunk)) = serde_json::from_slice::<Json>(data) else {
            return Ok(Some(Bytes::copy_from_slice(data)));
        };
        if !chunk.get("choices").is_some_and(Json::is_array) {
            return Ok(Some(Bytes::copy_from_slice(data)));
        }
        for name in NAMES {
            match self.names.get(name) {
                Some(value) => chunk.insert(name.to_owned(), value.clone()),
                None => chunk.remove(name),
            };
        }
        let mut new = chunk.get("usage").is_some_and(|usage| !usage.is_null());
        for choice in chunk.get_mut("choices").and_then(Json::as_array_mut).into_iter().flatten() {
            let ends = choice.get("finish_reason").is_some_and(|reason| !reason.is_null());
            new |= ends;
            let delta = choice.get_mut("delta").and_then(Json::as_object_mut);
            let mut none = Map::new();
            let delta = delta.unwrap_or(&mut none);
            delta.remove("role");
            let thinks =
                |name: &str| delta.get(name).and_then(Json::as_str).is_some_and(|text| !text.is_empty());
            if thinks("reasoning") || thinks("reasoning_content") {
                return Err(Misfit::Thinks);
            }
            let calls =
                delta.get("tool_calls").and_then(Json::as_array).is_some_and(|calls| !calls.is_empty());
            let text = delta.get("content").and_then(Json::as_str).unwrap_or_default();
            // A call ends the text, too.
            let text = self.join.push(text, ends || calls)?;
            new |= calls || !text.is_empty();
            if delta.contains_key("content") || !text.is_empty() {
                delta.insert("content".to_owned(), text.into());
            }
        }
        Ok(new.then(|| Json::Object(chunk).to_string().into()))
    }

    /// A frame as it goes on behind the others; `None`: it says nothing new.
    pub(crate) fn frame(&mut self, frame: &SseFrame) -> Result<Option<SseFrame>, Misfit> {
        let Some(data) = frame.data() else { return Ok(Some(frame.clone())) };
        let Some(chunk) = self.chunk(&data)? else { return Ok(None) };
        let mut decoder = SseDecoder::new();
        let whole = decoder.push(write_data(&chunk)).is_ok();
        Ok(decoder.next_frame().filter(|_| whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "The capital of France is";

    /// The rest as it comes in these pieces.
    fn joined(said: &str, engine: Engine, pieces: &[&str]) -> Result<String, Misfit> {
        let mut join = Join::behind(said, engine);
        let mut rest = String::new();
        for piece in pieces {
            rest.push_str(&join.push(piece, false)?);
        }
        rest.push_str(&join.push("", true)?);
        Ok(format!("{said}{rest}"))
    }

    #[test]
    fn a_rest_is_joined_alike_whether_the_engine_repeats_the_beginning_or_not() {
        let whole = Ok("The capital of France is Paris.".to_owned());
        assert_eq!(joined(SAID, Engine::Vllm, &[" Paris", "."]), whole);
        assert_eq!(joined(SAID, Engine::LlamaCpp, &["The capital of France is Paris", "."]), whole);
        assert_eq!(joined(SAID, Engine::LlamaCpp, &["The cap", "ital of France", " is Par", "is."]), whole);
        // A build that does not repeat.
        assert_eq!(joined(SAID, Engine::LlamaCpp, &[" Paris", "."]), whole);
        // A server that began anew and came to the same words.
        assert_eq!(joined(SAID, Engine::Vllm, &["The capital of ", "France is", " Paris."]), whole);
    }

    #[test]
    fn white_space_at_the_seam_is_neither_lost_nor_doubled() {
        for (said, rest, whole) in [
            ("One. ", " Two", "One. Two"),
            ("One. ", "Two", "One. Two"),
            ("One.", " Two", "One. Two"),
            ("One.\n\n", "\n\nTwo", "One.\n\nTwo"),
            ("One.\n\n", "\nTwo", "One.\n\nTwo"),
            ("One.\n", "\n\nTwo", "One.\n\nTwo"),
            ("One. ", "\nTwo", "One. \nTwo"),
        ] {
            assert_eq!(joined(said, Engine::Vllm, &[rest]).as_deref(), Ok(whole), "{said:?} {rest:?}");
            let pieces: Vec<String> = rest.chars().map(String::from).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            assert_eq!(joined(said, Engine::Vllm, &pieces).as_deref(), Ok(whole), "{said:?} {rest:?}");
        }
    }

    #[test]
    fn what_the_model_says_twice_is_not_taken_off() {
        assert_eq!(joined("ha", Engine::Vllm, &["ha", "ha"]).as_deref(), Ok("hahaha"));
        assert_eq!(
            joined(SAID, Engine::Vllm, &[" The", " best"]).as_deref(),
            Ok("The capital of France is The best")
        );
        assert_eq!(joined(SAID, Engine::Vllm, &["The", "n"]).as_deref(), Ok("The capital of France isThen"));
    }

    #[test]
    fn an_answer_that_is_begun_anew_in_other_words_breaks_the_seam() {
        assert_eq!(
            joined(SAID, Engine::Vllm, &["The capital of Fr", "ench cooking"]),
            Err(Misfit::BeganAnew)
        );
        assert_eq!(
            joined(SAID, Engine::LlamaCpp, &["The capital of Fr", "ench cooking"]),
            Err(Misfit::BeganAnew)
        );
    }

    #[test]
    fn chunks_of_the_rest_bear_the_names_of_those_before_and_say_no_role_again() {
        let mut spoken = Spoken::default();
        let first = br#"{"id":"a","created":7,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"}}]}"#;
        assert!(spoken.takes(first) && spoken.takes(b"[DONE]"));
        let mut seam = Seam::behind(&spoken, Engine::Vllm);
        let role = br#"{"id":"b","created":9,"model":"n","system_fingerprint":"x","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#;
        assert_eq!(seam.chunk(role), Ok(None));
        let text = br#"{"id":"b","created":9,"model":"n","system_fingerprint":"x","choices":[{"index":0,"delta":{"content":" you"},"finish_reason":"stop"}]}"#;
        let chunk = seam.chunk(text).expect("it fits").expect("it says something");
        let chunk: Json = serde_json::from_slice(&chunk).expect("JSON");
        assert_eq!((&chunk["id"], &chunk["created"], &chunk["model"]), (&"a".into(), &7.into(), &"m".into()));
        assert!(chunk.get("system_fingerprint").is_none());
        assert_eq!(chunk["choices"][0]["delta"]["content"], " you");
        let thought = br#"{"choices":[{"index":0,"delta":{"reasoning":"Hm"}}]}"#;
        assert_eq!(seam.chunk(thought), Err(Misfit::Thinks));
    }

    #[test]
    fn what_is_more_than_text_is_not_continued() {
        for chunk in [
            r#"{"choices":[{"index":0,"delta":{"reasoning_content":"Hm"}}]}"#,
            r#"{"choices":[{"index":1,"delta":{"content":"two"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"x"},"logprobs":{"content":[]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"<think>\nHm"}}]}"#,
        ] {
            assert!(!Spoken::default().takes(chunk.as_bytes()), "{chunk}");
        }
        let plain = r#"{"choices":[{"index":0,"delta":{"content":"x","tool_calls":[],"reasoning":null},"logprobs":null}]}"#;
        assert!(Spoken::default().takes(plain.as_bytes()));
    }

    #[test]
    fn however_the_rest_is_cut_it_is_joined_alike() {
        for said in ["One two three four. ", "ab", "", "a\n\n", "One two three four five\nsix"] {
            for rest in ["", " and on", "\n\nTwo", "ab", said] {
                for (engine, echo) in [(Engine::Vllm, ""), (Engine::LlamaCpp, said.trim_end())] {
                    let rest = format!("{echo}{rest}");
                    let whole = joined(said, engine, &[&rest]);
                    for step in 1..=rest.len() {
                        let chars: Vec<char> = rest.chars().collect();
                        let pieces: Vec<String> =
                            chars.chunks(step).map(|piece| piece.iter().collect()).collect();
                        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
                        assert_eq!(joined(said, engine, &pieces), whole, "{said:?} {rest:?} by {step}");
                    }
                }
            }
        }
    }
}
