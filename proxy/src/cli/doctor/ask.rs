//! One small request to a backend, and what came of it: the doctor's stethoscope.
//!
//! It reads as a careful client does, whole answers and streams alike, and it always ends: time and bytes are bounded.
//! Must never judge what it hears.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::Value as Json;
use switchback_parsers::chunk::{Dialect, Usage};
use switchback_parsers::diagnosis::{BackendError, diagnose};
use switchback_parsers::event::Folded;
use switchback_parsers::sse::{SseDecoder, SseFrame};
use tokio::time::Instant;

use crate::backend::client::Reply;
use crate::backend::decode::Decoder;
use crate::backend::{Backend, headers};

/// The longest answer that is read: what is asked for is a few hundred tokens.
const ANSWER_LIMIT: usize = 4 << 20;

/// A backend that is examined.
#[derive(Debug)]
pub(super) struct Patient {
    pub(super) backend: Arc<Backend>,
    /// How long one answer may take.
    pub(super) patience: Duration,
}

/// What one request brought.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The head's status; `None`: no head came.
    pub(super) status: Option<u16>,
    /// A status above 399 with its body, or an error event.
    pub(super) error: Option<BackendError>,
    /// Why it did not come to its end.
    pub(super) broken: Option<String>,
    /// The message, as the client would have it.
    pub(super) answer: Folded,
    pub(super) usage: Option<Usage>,
    /// The member that carried thoughts.
    pub(super) thoughts_in: Option<&'static str>,
    /// Exclamation marks in text that is nothing else.
    pub(super) marks: u64,
    /// From the question to the first token of a stream.
    pub(super) first: Option<Duration>,
    pub(super) took: Duration,
}

impl Heard {
    /// The engine's refusal, if it said no to the request itself.
    pub(super) fn refused(&self) -> Option<&BackendError> {
        self.error.as_ref().filter(|error| error.status.is_some_and(|status| (400..500).contains(&status)))
    }

    /// Why there is no answer, in words.
    pub(super) fn failure(&self) -> Option<String> {
        let error = self.error.as_ref().map(|error| {
            let status = error.status.map(|status| format!("{status} ")).unwrap_or_default();
            format!("{status}{}", short(&error.message))
        });
        error.or_else(|| self.broken.clone())
    }

    fn frame(&mut self, frame: &SseFrame, began: Instant, backend: &Backend) {
        let said = Dialect::Chat.read_frame(frame);
        if said.token && self.first.is_none() {
            self.first = Some(began.elapsed());
        }
        if let Some(data) = frame.data() {
            if said.error {
                self.error = Some(diagnose(backend.engine(), 200, &data));
            }
            self.look_for_thoughts(&data, "delta");
        }
        self.marks += said.marks;
        self.usage = said.usage.or(self.usage);
        self.answer.add_frame(frame);
    }

    fn look_for_thoughts(&mut self, json: &[u8], body: &str) {
        let json: Json = serde_json::from_slice(json).unwrap_or_default();
        let message = &json["choices"][0][body];
        let carries = |name: &&str| message[*name].as_str().is_some_and(|thought| !thought.is_empty());
        let found = ["reasoning_content", "reasoning", "thinking"].into_iter().find(carries);
        self.thoughts_in = self.thoughts_in.or(found);
    }
}

impl Patient {
    /// Asks for a chat answer; `body` lacks only the model's name.
    pub(super) async fn ask(&self, body: Json) -> Heard {
        let began = Instant::now();
        let mut heard = Heard::default();
        match tokio::time::timeout(self.patience, self.listen(body, began, &mut heard)).await {
            Ok(Ok(())) if heard.error.is_none() && heard.answer.finish_reason.is_empty() => {
                heard.broken = Some("the answer has no finish reason".to_owned());
            }
            Ok(Ok(())) => {}
            Ok(Err(problem)) => heard.broken = Some(problem),
            Err(_) => heard.broken = Some(format!("no end within {} s", self.patience.as_secs())),
        }
        heard.took = began.elapsed();
        heard
    }

    async fn listen(&self, body: Json, began: Instant, heard: &mut Heard) -> Result<(), String> {
        let streams = body["stream"] == true;
        let mut reply = self.send(body).await?;
        let mut decoder = Decoder::of(&reply.head.headers).map_err(|error| error.to_string())?;
        let status = reply.head.status.as_u16();
        heard.status = Some(status);
        let streams = streams && reply.head.status.is_success();
        let (mut whole, mut frames, mut read) = (Vec::new(), SseDecoder::new(), 0);
        while let Some(piece) = reply.body.next().await {
            let piece = piece.map_err(|error| format!("connection lost: {error}"))?;
            let plain = decoder.push(piece).map_err(|error| error.to_string())?;
            read += plain.len();
            if read > ANSWER_LIMIT {
                return Err(format!("more than {ANSWER_LIMIT} bytes came"));
            }
            if streams {
                frames.push(plain).map_err(|error| error.to_string())?;
                while let Some(frame) = frames.next_frame() {
                    heard.frame(&frame, began, &self.backend);
                }
            } else {
                whole.extend_from_slice(&plain);
            }
        }
        if streams {
            if let Some(frame) = frames.finish() {
                heard.frame(&frame, began, &self.backend);
            }
        } else if reply.head.status.is_success() {
            let said = Dialect::Chat.read_answer(&whole);
            if said.error {
                heard.error = Some(diagnose(self.backend.engine(), status, &whole));
            }
            (heard.marks, heard.usage) = (said.marks, said.usage);
            heard.look_for_thoughts(&whole, "message");
            let text = std::str::from_utf8(&whole).map_err(|error| error.to_string())?;
            heard.answer = Folded::of_answer(text);
        } else {
            heard.error = Some(diagnose(self.backend.engine(), status, &whole));
        }
        Ok(())
    }

    /// Asks for a stream and hangs up at its first token.
    pub(super) async fn hang_up(&self, body: Json) -> Result<(), String> {
        let first = async {
            let mut reply = self.send(body).await?;
            if !reply.head.status.is_success() {
                return Err(format!("it answers {}", reply.head.status.as_u16()));
            }
            let mut frames = SseDecoder::new();
            while let Some(piece) = reply.body.next().await {
                frames.push(piece.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
                while let Some(frame) = frames.next_frame() {
                    if Dialect::Chat.read_frame(&frame).token {
                        return Ok(());
                    }
                }
            }
            Err("the stream ended before its first token".to_owned())
        };
        let waited = tokio::time::timeout(self.patience, first).await;
        waited.unwrap_or_else(|_| Err(format!("no token within {} s", self.patience.as_secs())))
    }

    async fn send(&self, mut body: Json) -> Result<Reply, String> {
        if let Some(name) = self.backend.name_for(None) {
            body["model"] = name.into();
        }
        let mut sent = headers::to_backend(&HeaderMap::new(), &self.backend.config);
        sent.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = Bytes::from(body.to_string());
        let sending = self.backend.send(Method::POST, "/v1/chat/completions", sent, body);
        sending.await.map_err(|error| error.to_string())
    }
}

/// A sentence of an engine, short enough for a table.
pub(super) fn short(text: &str) -> String {
    const MOST: usize = 120;
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= MOST {
        return line;
    }
    let cut: String = line.chars().take(MOST).collect();
    format!("{cut}…")
}
