//! One question to a backend, one answer, within what is left of the probe's time.
//!
//! Answers are bounded, unpacked, and may be anything: a page, a redirect (not followed, since requests are not either),
//! half a body. Must never wait beyond the probe's end, and never hand out more than it has read.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::Value;
use switchback_policies::health::Probe;
use tokio::time::Instant;

use super::super::decode::Decoder;
use super::super::{Backend, headers};

/// The longest answer that is read: the model lists of routers are long, but not longer.
pub(super) const ANSWER_LIMIT: usize = 4 << 20;

/// One probe's questions.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    backend: &'a Backend,
    until: Instant,
    late: bool,
}

/// What came of a question.
#[derive(Debug)]
pub(super) enum Answer {
    /// Nobody listens, or the connection ended before a head came.
    Gone,
    /// No answer in time.
    Late,
    /// Something was said.
    Said(Said),
}

/// An answer.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl<'a> Ask<'a> {
    pub(super) fn new(backend: &'a Backend, until: Instant) -> Self {
        Self { backend, until, late: false }
    }

    /// Whether a question of this probe was not answered in time.
    pub(super) fn was_late(&self) -> bool {
        self.late
    }

    /// The model that this backend is configured to be asked for.
    pub(super) fn model(&self) -> Option<&'a str> {
        self.backend.config.model.as_deref()
    }

    pub(super) async fn get(&mut self, path: &str) -> Answer {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// The same within half of the time that is left, so that the rest can still be asked if this one hangs.
    pub(super) async fn get_in_half(&mut self, path: &str) -> Answer {
        let now = Instant::now();
        let until = now + self.until.saturating_duration_since(now) / 2;
        ask_until(until, self.backend, Method::GET, path, Bytes::new()).await
    }

    /// A question with a JSON body.
    pub(super) async fn post(&mut self, path: &str, body: String) -> Answer {
        self.ask(Method::POST, path, body.into()).await
    }

    /// The JSON of a page; `None` if there is none.
    pub(super) async fn json(&mut self, path: &str) -> Option<Value> {
        self.get(path).await.json()
    }

    /// The same for a question with a body.
    pub(super) async fn post_json(&mut self, path: &str, body: &Value) -> Option<Value> {
        self.post(path, body.to_string()).await.json()
    }

    async fn ask(&mut self, method: Method, path: &str, body: Bytes) -> Answer {
        let answer = ask_until(self.until, self.backend, method, path, body).await;
        self.late |= matches!(answer, Answer::Late);
        answer
    }
}

async fn ask_until(until: Instant, backend: &Backend, method: Method, path: &str, body: Bytes) -> Answer {
    match tokio::time::timeout_at(until, send(backend, method, path, body)).await {
        Ok(Some(said)) => Answer::Said(said),
        Ok(None) => Answer::Gone,
        Err(_) => Answer::Late,
    }
}

async fn send(backend: &Backend, method: Method, path: &str, body: Bytes) -> Option<Said> {
    let mut sent = headers::to_backend(&HeaderMap::new(), &backend.config);
    if !body.is_empty() {
        sent.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let mut reply = backend.send(method, path, sent, body).await.ok()?;
    let mut decoder = Decoder::of(&reply.head.headers).ok();
    let mut body = Vec::new();
    while let (Some(decoder), Some(Ok(bytes))) = (&mut decoder, reply.body.next().await) {
        let Ok(plain) = decoder.push(bytes) else { break };
        let room = ANSWER_LIMIT - body.len();
        body.extend_from_slice(&plain[..plain.len().min(room)]);
        if plain.len() >= room {
            break;
        }
    }
    Some(Said { status: reply.head.status, headers: reply.head.headers, body })
}

impl Answer {
    fn json(self) -> Option<Value> {
        match self {
            Self::Said(said) => said.json(),
            Self::Gone | Self::Late => None,
        }
    }

    /// What the answer says of the backend, if the question was whether it is there. Any answer will do but those that say
    /// that it loads, that its engine is dead, or (from a server in between) that nobody is behind.
    pub(super) fn liveness(&self) -> Probe {
        match self {
            Self::Gone => Probe::Gone,
            Self::Late => Probe::TimedOut,
            Self::Said(said) => match said.status {
                StatusCode::SERVICE_UNAVAILABLE if said.speaks_of_loading() => Probe::Loading,
                StatusCode::SERVICE_UNAVAILABLE => Probe::Dead,
                StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => Probe::Gone,
                _ => Probe::Ready,
            },
        }
    }
}

impl Said {
    /// Its body as JSON, if it is a good answer.
    pub(super) fn json(&self) -> Option<Value> {
        (self.status == StatusCode::OK).then(|| serde_json::from_slice(&self.body).ok()).flatten()
    }

    /// The start of its body that is text.
    pub(super) fn text(&self) -> &str {
        self.body.utf8_chunks().next().map_or("", |chunk| chunk.valid())
    }

    /// The program's own name for itself.
    pub(super) fn server(&self) -> &str {
        self.headers.get(header::SERVER).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    fn speaks_of_loading(&self) -> bool {
        self.body.windows(7).any(|part| part.eq_ignore_ascii_case(b"loading"))
    }
}
