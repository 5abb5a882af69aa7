//! Where one backend's answer goes on with another's: the frames of the rest are made to fit behind those that were shown.
//!
//! They bear the names of the answer that began, say no role again, and count what the client has got, not what the second backend was
//! asked: what was said before is no prompt. A rest that was asked for as a plain completion of the rendered prompt comes in that
//! dialect, and becomes chat chunks, its thoughts apart from its text. Must never show what does not fit.

use bytes::Bytes;
use serde_json::{Map, Value as Json, json};
use switchback_parsers::chunk::Dialect;
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::reasoning::{Piece, ReasoningSplitter};
use switchback_parsers::sse::{SseDecoder, SseFrame, write_data};

use super::join::{Join, Misfit};
use super::spoken::{NAMES, Spoken, THOUGHTS};

/// How the rest comes.
#[derive(Debug)]
enum Rest {
    /// In the answer's own dialect.
    Joined(Join),
    /// As a completion that goes on behind one.
    Plain(Join),
    /// As a completion of the chat's rendered prompt.
    Completion(Join, Thoughts),
}

/// What is made of a completion's text.
#[derive(Debug)]
pub(crate) enum Thoughts {
    /// All of it is text, or is taken apart later.
    Apart,
    /// It goes on within a thought, which ends somewhere in it.
    Within(Box<ReasoningSplitter>),
}

/// Fits the frames of a rest on.
#[derive(Debug)]
pub(crate) struct Seam {
    rest: Rest,
    dialect: Dialect,
    names: Map<String, Json>,
    thinks_in: &'static str,
    /// Tokens that were said before: the second backend counts them as prompt.
    said: u64,
}

impl Seam {
    fn new(spoken: &Spoken, rest: Rest, said: u64) -> Self {
        let Spoken { dialect, names, thinks_in, .. } = spoken;
        Self { rest, dialect: *dialect, names: names.clone(), thinks_in, said }
    }

    /// Behind what was said, for an engine that was asked to go on with it.
    pub(crate) fn behind(spoken: &Spoken, engine: Engine) -> Self {
        Self::new(spoken, Rest::Joined(Join::behind(&spoken.text, engine)), spoken.tokens())
    }

    /// Behind the said text of a completion, which became a part of the prompt, but for the white space at its end.
    pub(crate) fn plain(spoken: &Spoken) -> Self {
        let blank = &spoken.text[spoken.text().len()..];
        Self::new(spoken, Rest::Plain(Join::behind_blank(blank)), spoken.tokens())
    }

    /// Behind what was said in a chat, which became a part of the rendered prompt, but for the white space at its end.
    /// `said`: its tokens.
    pub(crate) fn completion(spoken: &Spoken, blank: &str, thoughts: Thoughts, said: u64) -> Self {
        Self::new(spoken, Rest::Completion(Join::behind_blank(blank), thoughts), said)
    }

    /// A frame as it goes on behind the others; none if it says nothing new.
    pub(crate) fn frame(&mut self, frame: &SseFrame) -> Result<Vec<SseFrame>, Misfit> {
        let Some(data) = frame.data() else { return Ok(vec![frame.clone()]) };
        let Ok(Json::Object(chunk)) = serde_json::from_slice::<Json>(&data) else {
            return Ok(vec![frame.clone()]);
        };
        let written = match self.dialect {
            Dialect::Messages => self.event(chunk)?,
            _ if !chunk.get("choices").is_some_and(Json::is_array) => return Ok(vec![frame.clone()]),
            _ => {
                self.chunk(chunk)?.into_iter().map(|chunk| write_data(chunk.to_string().as_bytes())).collect()
            }
        };
        let mut decoder = SseDecoder::new();
        let whole = written.into_iter().all(|frame| decoder.push(frame).is_ok());
        Ok(std::iter::from_fn(|| decoder.next_frame()).filter(|_| whole).collect())
    }

    /// A chunk as it goes on; `None`: it says nothing new.
    fn chunk(&mut self, mut chunk: Map<String, Json>) -> Result<Option<Json>, Misfit> {
        for name in NAMES {
            match self.names.get(name) {
                Some(value) => chunk.insert(name.to_owned(), value.clone()),
                None => chunk.remove(name),
            };
        }
        let mut new = chunk.get("usage").is_some_and(|usage| !usage.is_null());
        if let Some(usage) = chunk.get_mut("usage").and_then(Json::as_object_mut) {
            self.counts(usage);
        }
        if matches!(self.rest, Rest::Completion(..)) && chunk.contains_key("object") {
            chunk.insert("object".to_owned(), "chat.completion.chunk".into());
        }
        for choice in chunk.get_mut("choices").and_then(Json::as_array_mut).into_iter().flatten() {
            let Some(choice) = choice.as_object_mut() else { continue };
            new |= match &mut self.rest {
                Rest::Joined(join) => joined(choice, join)?,
                Rest::Plain(join) => plain(choice, join)?,
                Rest::Completion(join, thoughts) => as_chat(choice, join, thoughts, self.thinks_in)?,
            };
        }
        Ok(new.then_some(Json::Object(chunk)))
    }

    /// What was said is counted as said.
    fn counts(&self, usage: &mut Map<String, Json>) {
        let number = |usage: &Map<String, Json>, name: &str| usage.get(name).and_then(Json::as_u64);
        if let Some(prompt) = number(usage, "prompt_tokens") {
            let said = self.said.min(prompt);
            usage.insert("prompt_tokens".to_owned(), (prompt - said).into());
            if let Some(answer) = number(usage, "completion_tokens") {
                usage.insert("completion_tokens".to_owned(), (answer + said).into());
            }
        }
    }

    /// The events of a message's rest.
    fn event(&mut self, mut event: Map<String, Json>) -> Result<Vec<Bytes>, Misfit> {
        let at = |event: &Map<String, Json>, member: &str, name: &str| {
            event.get(member).and_then(|value| value.get(name)).and_then(Json::as_str).map(str::to_owned)
        };
        let kind = event.get("type").and_then(Json::as_str).unwrap_or_default().to_owned();
        let is_first = event.get("index").and_then(Json::as_u64) == Some(0);
        let Rest::Joined(join) = &mut self.rest else { return Ok(Vec::new()) };
        match kind.as_str() {
            "message_start" | "ping" => return Ok(Vec::new()),
            "content_block_start" if is_first => match at(&event, "content_block", "type").as_deref() {
                Some("text") => return Ok(Vec::new()),
                Some("thinking" | "redacted_thinking") => return Err(Misfit::Thinks),
                _ => return Err(Misfit::BeganAnew),
            },
            "content_block_delta" if is_first => {
                let text = join.push(&at(&event, "delta", "text").unwrap_or_default(), false)?;
                return Ok(if text.is_empty() { Vec::new() } else { vec![text_delta(&text)] });
            }
            "content_block_stop" if is_first => {
                let text = join.push("", true)?;
                let mut events = if text.is_empty() { Vec::new() } else { vec![text_delta(&text)] };
                events.push(named(&kind, &event));
                return Ok(events);
            }
            "message_delta" => {
                let output = event.get_mut("usage").and_then(|usage| usage.get_mut("output_tokens"));
                if let Some(output) = output {
                    *output = (output.as_u64().unwrap_or(0) + self.said).into();
                }
            }
            _ => {}
        }
        Ok(vec![named(&kind, &event)])
    }
}

fn says(value: Option<&Json>) -> bool {
    value.and_then(Json::as_str).is_some_and(|text| !text.is_empty())
}

/// One choice of a chunk of the same dialect; whether it says anything new.
fn joined(choice: &mut Map<String, Json>, join: &mut Join) -> Result<bool, Misfit> {
    let ends = choice.get("finish_reason").is_some_and(|reason| !reason.is_null());
    let mut none = Map::new();
    let delta = choice.get_mut("delta").and_then(Json::as_object_mut).unwrap_or(&mut none);
    delta.remove("role");
    if THOUGHTS.iter().any(|name| says(delta.get(*name))) {
        return Err(Misfit::Thinks);
    }
    let calls = delta.get("tool_calls").and_then(Json::as_array).is_some_and(|calls| !calls.is_empty());
    let text = delta.get("content").and_then(Json::as_str).unwrap_or_default();
    // A call ends the text, too.
    let text = join.push(text, ends || calls)?;
    let new = ends || calls || !text.is_empty();
    if delta.contains_key("content") || !text.is_empty() {
        delta.insert("content".to_owned(), text.into());
    }
    Ok(new)
}

/// One choice of a completion behind another; whether it says anything new.
fn plain(choice: &mut Map<String, Json>, join: &mut Join) -> Result<bool, Misfit> {
    let ends = choice.get("finish_reason").is_some_and(|reason| !reason.is_null());
    let text = join.push(choice.get("text").and_then(Json::as_str).unwrap_or_default(), ends)?;
    let new = ends || !text.is_empty();
    choice.insert("text".to_owned(), text.into());
    Ok(new)
}

/// One choice of a completion as one of a chat; whether it says anything new.
fn as_chat(
    choice: &mut Map<String, Json>,
    join: &mut Join,
    thoughts: &mut Thoughts,
    thinks_in: &str,
) -> Result<bool, Misfit> {
    let ends = choice.get("finish_reason").is_some_and(|reason| !reason.is_null());
    let text = choice.remove("text");
    let text = join.push(text.as_ref().and_then(Json::as_str).unwrap_or_default(), ends)?;
    let mut delta = Map::new();
    let (mut thought, mut said) = (String::new(), String::new());
    match thoughts {
        Thoughts::Apart => said.push_str(&text),
        Thoughts::Within(splitter) => {
            let mut pieces = splitter.push(&text);
            if ends {
                pieces.extend(splitter.finish());
            }
            for piece in pieces {
                match piece {
                    Piece::Reasoning(text) => thought.push_str(&text),
                    Piece::Text(text) => said.push_str(&text),
                }
            }
        }
    }
    for (name, text) in [(thinks_in, thought), ("content", said)] {
        if !text.is_empty() {
            delta.insert(name.to_owned(), text.into());
        }
    }
    let new = ends || !delta.is_empty();
    // Members of completions only.
    for name in ["prompt_logprobs", "prompt_token_ids", "routed_experts"] {
        choice.remove(name);
    }
    choice.insert("delta".to_owned(), Json::Object(delta));
    Ok(new)
}

fn text_delta(text: &str) -> Bytes {
    let delta = json!({ "type": "text_delta", "text": text });
    let event = json!({ "type": "content_block_delta", "index": 0, "delta": delta });
    named("content_block_delta", event.as_object().unwrap_or(&Map::new()))
}

fn named(kind: &str, event: &Map<String, Json>) -> Bytes {
    let data = write_data(Json::Object(event.clone()).to_string().as_bytes());
    [b"event: ", kind.as_bytes(), b"\n", &data[..]].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(bytes: &str) -> SseFrame {
        let mut decoder = SseDecoder::new();
        decoder.push(Bytes::copy_from_slice(bytes.as_bytes())).expect("short");
        decoder.next_frame().expect("a frame")
    }

    fn data(json: &str) -> SseFrame {
        frame(&format!("data: {json}\n\n"))
    }

    fn chunks(seam: &mut Seam, json: &str) -> Result<Vec<Json>, Misfit> {
        let frames = seam.frame(&data(json))?;
        Ok(frames
            .iter()
            .map(|frame| serde_json::from_slice(&frame.data().expect("data")).expect("JSON"))
            .collect())
    }

    fn spoken(chunk: &str) -> Spoken {
        Spoken::new(Dialect::Chat).with(chunk.as_bytes()).expect("text")
    }

    const FIRST: &str = r#"{"id":"a","created":7,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"}}]}"#;

    #[test]
    fn chunks_of_the_rest_bear_the_names_of_those_before_and_say_no_role_again() {
        let mut seam = Seam::behind(&spoken(FIRST), Engine::Vllm);
        let role = r#"{"id":"b","created":9,"model":"n","system_fingerprint":"x","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#;
        assert_eq!(chunks(&mut seam, role), Ok(vec![]));
        let text = r#"{"id":"b","created":9,"model":"n","system_fingerprint":"x","choices":[{"index":0,"delta":{"content":" you"},"finish_reason":"stop"}]}"#;
        let chunk = chunks(&mut seam, text).expect("it fits").remove(0);
        assert_eq!((&chunk["id"], &chunk["created"], &chunk["model"]), (&"a".into(), &7.into(), &"m".into()));
        assert!(chunk.get("system_fingerprint").is_none());
        assert_eq!(chunk["choices"][0]["delta"]["content"], " you");
        let thought = r#"{"choices":[{"index":0,"delta":{"reasoning":"Hm"}}]}"#;
        assert_eq!(chunks(&mut seam, thought), Err(Misfit::Thinks));
    }

    #[test]
    fn a_completion_goes_on_within_the_thought_and_ends_it() {
        let begun = spoken(r#"{"id":"a","choices":[{"index":0,"delta":{"reasoning":"I think"}}]}"#);
        let splitter = ReasoningSplitter::amid_thought();
        let mut seam = Seam::completion(&begun, "", Thoughts::Within(Box::new(splitter)), 2);
        let (mut thought, mut text) = (String::new(), String::new());
        for said in [" of", " Paris.\n</thi", "nk>\n\nIt is", " Paris."] {
            let chunk = json!({ "object": "text_completion", "choices": [{ "index": 0, "text": said, "finish_reason": null }] });
            for chunk in chunks(&mut seam, &chunk.to_string()).expect("it fits") {
                assert_eq!(chunk["object"], "chat.completion.chunk");
                thought.push_str(
                    chunk.pointer("/choices/0/delta/reasoning").and_then(Json::as_str).unwrap_or_default(),
                );
                text.push_str(
                    chunk.pointer("/choices/0/delta/content").and_then(Json::as_str).unwrap_or_default(),
                );
            }
        }
        let end = json!({ "choices": [{ "index": 0, "text": "", "finish_reason": "stop" }],
            "usage": { "prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17 } });
        let last = chunks(&mut seam, &end.to_string()).expect("it fits").remove(0);
        assert_eq!((thought.as_str(), text.as_str()), (" of Paris.", "It is Paris."));
        assert_eq!(last["choices"][0]["finish_reason"], "stop");
        assert_eq!(last["usage"], json!({ "prompt_tokens": 10, "completion_tokens": 7, "total_tokens": 17 }));
    }

    #[test]
    fn the_rest_of_a_message_has_no_second_beginning() {
        let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"The capital of"}}"#;
        let begun = Spoken::new(Dialect::Messages).with(delta.as_bytes()).expect("text");
        let mut seam = Seam::behind(&begun, Engine::LlamaCpp);
        let mut events = Vec::new();
        for event in [
            json!({ "type": "message_start", "message": {} }),
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": " France" } }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 2 } }),
            json!({ "type": "message_stop" }),
        ] {
            let kind = event["type"].as_str().expect("a type").to_owned();
            let frames = seam.frame(&frame(&format!("event: {kind}\ndata: {event}\n\n"))).expect("it fits");
            events.extend(frames.iter().map(|frame| {
                assert!(frame.event().is_some());
                serde_json::from_slice::<Json>(&frame.data().expect("data")).expect("JSON")
            }));
        }
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
        assert_eq!(kinds, ["content_block_delta", "content_block_stop", "message_delta", "message_stop"]);
        assert_eq!(events[0]["delta"]["text"], " France");
        assert_eq!(events[2]["usage"]["output_tokens"], 4);
        let mut seam = Seam::behind(&begun, Engine::LlamaCpp);
        let thinks =
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#;
        assert_eq!(
            seam.frame(&frame(&format!("event: content_block_start\ndata: {thinks}\n\n"))).map(|_| ()),
            Err(Misfit::Thinks)
        );
    }
}
