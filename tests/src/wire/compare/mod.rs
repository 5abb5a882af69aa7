//! Comparing what was seen with what a case expects. Each file has one group of the format's words.
//!
//! Every rule says what it found, or nothing. A word that is named must be checkable: where the answer lacks what the
//! word speaks of (no event stream, no JSON body), that is a finding and never a pass.

mod answer;
mod body;
mod json;
mod message;
mod request;
mod stream;
mod timing;
mod tools;
mod upstream;

use serde_json::Value;

use super::case::Case;
use super::expect;
use super::message::Message;
use super::observed::{End, Observed, Piece, Reply};
use super::sse::Stream;

/// What is wrong, one sentence each.
#[derive(Debug, Default)]
pub struct Findings {
    /// The sentences.
    pub list: Vec<String>,
    place: String,
}

impl Findings {
    fn say(&mut self, what: impl std::fmt::Display) {
        self.list.push(format!("{}{what}", self.place));
    }

    /// A finding unless `holds`.
    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.say(what());
        }
    }
}

/// All that is wrong with a run of a case.
pub fn compare(case: &Case, seen: &Observed) -> Vec<String> {
    let mut findings = Findings::default();
    for fault in &seen.faults {
        findings.say(fault);
    }
    if seen.replies.len() != case.requests.len() {
        findings.say(format!("{} answers for {} requests", seen.replies.len(), case.requests.len()));
    }
    for (number, ((request, reply), expect)) in
        case.requests.iter().zip(&seen.replies).zip(&case.expect.answers).enumerate()
    {
        if case.requests.len() > 1 {
            findings.place = format!("answer {number}: ");
        }
        compare_answer(expect, &Answer::new(reply, request.wants_stream()), &mut findings);
        findings.place.clear();
    }
    upstream::compare(&case.expect.upstream, seen, &mut findings);
    findings.list
}

fn compare_answer(expect: &expect::Answer, answer: &Answer<'_>, findings: &mut Findings) {
    if answer::compare(expect, answer, findings) {
        body::compare(expect, answer, findings);
        message::compare(expect, answer, findings);
        if let Some(expect) = &expect.stream {
            stream::compare(expect, answer, findings);
        }
    }
}

/// An answer with everything that the rules look at.
struct Answer<'a> {
    reply: &'a Reply,
    /// The request asked for an event stream.
    stream_wanted: bool,
    /// The body's pieces without content encoding; why there are none, if they cannot be decoded.
    pieces: Vec<Piece>,
    undecodable: Option<String>,
    body: Vec<u8>,
    json: Option<Value>,
    /// Set if the answer says that it is an event stream.
    stream: Option<Stream>,
    message: Message,
}

impl<'a> Answer<'a> {
    fn new(reply: &'a Reply, stream_wanted: bool) -> Self {
        let (pieces, undecodable) = match reply.decoded() {
            Ok(pieces) => (pieces, None),
            Err(error) => (reply.pieces.clone(), Some(error.to_string())),
        };
        let body: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes.iter().copied()).collect();
        let kind = reply.headers.get("content-type").unwrap_or_default();
        let is_stream =
            kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"));
        let stream = is_stream.then(|| Stream::read(&pieces));
        let json: Option<Value> = if is_stream { None } else { serde_json::from_slice(&body).ok() };
        let message = match (&stream, &json) {
            (Some(stream), _) => Message::of_stream(stream),
            (None, Some(json)) => Message::of_body(json),
            (None, None) => Message {
                faults: vec!["the body is neither JSON nor an event stream".to_owned()],
                ..Message::default()
            },
        };
        Self { reply, stream_wanted, pieces, undecodable, body, json, stream, message }
    }

    /// Whether the raw body contains a text, also where JSON escapes hide it.
    fn contains(&self, text: &str) -> bool {
        if super::http1::find(&self.body, text.as_bytes()).is_some() {
            return true;
        }
        let hidden = |value: &Value| value.to_string().contains(text);
        self.json.as_ref().is_some_and(hidden)
            || self.stream.as_ref().is_some_and(|stream| stream.chunks().any(hidden))
    }

    /// The beginning of the body, for a finding.
    fn excerpt(&self) -> String {
        let text = self.body.get(..300.min(self.body.len())).unwrap_or_default().escape_ascii().to_string();
        let text = text.replace("\\\"", "\"");
        match &self.reply.end {
            End::Broken(why) => format!("{text} [{why}]"),
            _ => text,
        }
    }
}

/// A value for a finding, not longer than a line or two.
fn short(value: &impl std::fmt::Debug) -> String {
    clipped(format!("{value:?}"))
}

fn clipped(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(240) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// What stands somewhere, for a finding.
fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "absent".to_owned(), |value| clipped(value.to_string()))
}

/// A string as it is, anything else as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod samples {
    use super::super::observed::samples::reply;
    use super::*;

    /// The findings about one answer; `expect` as in a case file.
    pub(super) fn findings(expect: Value, reply: &Reply, stream_wanted: bool) -> Vec<String> {
        let expect: expect::Answer = serde_json::from_value(expect).unwrap();
        let mut findings = Findings::default();
        compare_answer(&expect, &Answer::new(reply, stream_wanted), &mut findings);
        findings.list
    }

    pub(super) fn of_json(expect: Value, body: &Value) -> Vec<String> {
        let text = body.to_string();
        findings(expect, &reply(200, &[("content-type", "application/json")], &[(1, text.as_bytes())]), false)
    }

    /// An event stream of these JSON events, one each millisecond, and the end marker.
    pub(super) fn of_stream(expect: Value, events: &[Value]) -> Vec<String> {
        let mut texts: Vec<String> = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        texts.push("data: [DONE]\n\n".to_owned());
        of_text(expect, &texts.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// An event stream of these pieces, one each millisecond.
    pub(super) fn of_text(expect: Value, pieces: &[&str]) -> Vec<String> {
        let pieces: Vec<(u64, &[u8])> =
            pieces.iter().zip(1..).map(|(text, ms)| (ms, text.as_bytes())).collect();
        findings(expect, &reply(200, &[("content-type", "text/event-stream")], &pieces), true)
    }

    /// A chunk with a delta of choice 0.
    pub(super) fn delta(delta: Value) -> Value {
        serde_json::json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
    }

    /// A chunk that finishes choice 0.
    pub(super) fn finish(reason: &str) -> Value {
        serde_json::json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    }
}
