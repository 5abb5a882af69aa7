//! Whether a backend makes progress, and what follows if it does not: doubt, one token asked for, work again or none.
//!
//! Doubt comes from the engine's own counters against the proxy's open requests, from failures in a row, from a death, and
//! from answers that are no answers. Whoever is doubted counts as dead until it has produced a token (the half-open breaker);
//! whoever then still says nothing, or garbage, is drained until it has been restarted. Only an engine's own words are
//! believed against it: silence alone is what a long prefill looks like.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use serde_json::{Value, json};
use switchback_parsers::chunk::Dialect;
use switchback_parsers::diagnosis::{Diagnosis, diagnose};
use switchback_policies::facts::BackendState;
use switchback_policies::failover::Fault;
use switchback_policies::health::Probe;
use switchback_policies::liveness::{Breaker, Finding, Look, QUIET, Quality, Watch, Worth};
use tokio::time::Instant;

use super::decode::Decoder;
use super::{Backend, Load, headers};

/// How long a token may take: an engine that has just started may have to compile first.
const TOKEN_WITHIN: Duration = Duration::from_secs(30);

/// The longest answer to that that is read.
const TOKEN_LIMIT: usize = 1 << 20;

/// Tokens that are asked for: enough to see whether they are all the same.
const TOKENS: u32 = 16;

/// A backend's pulse.
#[derive(Debug)]
pub(super) struct Pulse {
    started: Instant,
    watch: Mutex<Watch>,
    breaker: Mutex<Breaker>,
    quality: Mutex<Quality>,
    /// It has to produce a token before it gets work.
    doubted: AtomicBool,
    /// Why it needs a restart.
    sick: Mutex<Option<&'static str>>,
}

impl Pulse {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            watch: Mutex::default(),
            breaker: Mutex::default(),
            quality: Mutex::default(),
            doubted: AtomicBool::new(false),
            sick: Mutex::new(None),
        }
    }

    /// It is to be asked for a token once it is there.
    pub(super) fn doubt(&self) {
        self.doubted.store(true, Ordering::Relaxed);
    }
}

/// What became of the token that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    /// It came; or the backend does not serve chats, and says so.
    Came,
    Nothing,
    Worthless(Worth),
}

impl Backend {
    /// Why it needs a restart, if it does.
    pub(crate) fn needs_restart(&self) -> Option<&'static str> {
        *self.pulse.sick.lock()
    }

    /// It is there, but has to produce a token before it gets work: whoever asks it all the same waits for nothing.
    pub(crate) fn is_doubted(&self) -> bool {
        self.state() == BackendState::Dead && self.pulse.doubted.load(Ordering::Relaxed)
    }

    /// It gets no work until it has produced a token.
    fn doubt(&self, why: &'static str) {
        tracing::warn!(
            backend = self.name(),
            why,
            "backend is doubted: it is asked for a token before it gets work"
        );
        self.pulse.doubt();
        *self.died_at.lock() = Some(Instant::now());
        self.change(|health| health.on_seen(BackendState::Dead));
        self.doubt.notify_one();
    }

    /// Whether its counters are worth a question that would cost an engine something.
    pub(super) fn is_quiet(&self) -> bool {
        let (own, quiet) = self.open.quiet();
        own > 0 && quiet >= QUIET
    }

    /// Takes what an engine says that it carries.
    pub(super) fn look(&self, load: Load) {
        let (own, quiet) = self.open.quiet();
        let look = Look { own, quiet, running: load.running, waiting: load.waiting, steps: load.steps };
        match self.pulse.watch.lock().look(&look) {
            Finding::Well => return,
            Finding::Vanished => self.doubt("it does not know the requests that it was sent"),
            Finding::Wedged => self.doubt("it computes nothing, and requests wait"),
            Finding::Still => self.doubt("it says that it computes, and has made no step for minutes"),
        }
        self.open.lose();
    }

    /// A request failed here.
    pub(super) fn failed(&self, fault: Fault) {
        let counts = matches!(
            fault,
            Fault::ConnectionLost | Fault::Aborted | Fault::NoFirstToken | Fault::Stalled | Fault::Other
        );
        let now = self.pulse.started.elapsed();
        if counts && self.pulse.breaker.lock().failed(now) {
            self.doubt("it failed several times in a row");
        }
    }

    /// A request was answered here.
    pub(super) fn answered(&self, worth: Worth) {
        self.pulse.breaker.lock().answered();
        if self.pulse.quality.lock().answered(worth) {
            *self.pulse.quality.lock() = Quality::default();
            self.doubt("several answers in a row were empty or garbage");
        }
    }

    /// A good probe of a backend that is doubted is worth what the token says that it is asked for now; one that needs a
    /// restart gets no work although it is there.
    pub(super) async fn verify(&self, probe: Probe) -> Option<Probe> {
        if probe == Probe::TimedOut {
            return Some(probe);
        }
        if probe != Probe::Ready {
            // Whatever comes back is another process.
            *self.pulse.sick.lock() = None;
            self.pulse.breaker.lock().is_replaced();
            return Some(probe);
        }
        if self.needs_restart().is_some() {
            return None;
        }
        if !self.pulse.doubted.load(Ordering::Relaxed) {
            let _ = tokio::time::timeout(TOKEN_WITHIN, self.prove()).await;
            return Some(probe);
        }
        if !self.pulse.breaker.lock().is_half_open(self.pulse.started.elapsed()) {
            return Some(Probe::Dead);
        }
        let asked = tokio::time::timeout(TOKEN_WITHIN, self.ask_for_token()).await;
        match asked.unwrap_or(Token::Nothing) {
            Token::Came => {
                tracing::info!(backend = self.name(), "backend has produced a token: it gets work again");
                self.pulse.doubted.store(false, Ordering::Relaxed);
                Some(Probe::Ready)
            }
            Token::Nothing => Some(Probe::Dead),
            Token::Worthless(worth) => {
                let why =
                    if worth == Worth::Empty { "its answers are empty" } else { "its answers are garbage" };
                tracing::error!(
                    backend = self.name(),
                    why,
                    "backend needs a restart: it gets no work until then"
                );
                *self.pulse.sick.lock() = Some(why);
                self.pulse.doubted.store(false, Ordering::Relaxed);
                self.change(|health| health.on_seen(BackendState::Draining));
                None
            }
        }
    }

    async fn ask_for_token(&self) -> Token {
        let body = json!({ "max_tokens": TOKENS, "messages": [{ "role": "user", "content": "." }] });
        let Some((status, bytes)) = self.ask_by_itself(body).await else { return Token::Nothing };
        if status.is_client_error() {
            // It serves something else than chats, or under other names: it is alive.
            let told = diagnose(self.engine(), status.as_u16(), &bytes).diagnosis;
            return if told == Diagnosis::OutOfMemory { Token::Nothing } else { Token::Came };
        }
        let said = Dialect::Chat.read_answer(&bytes);
        if !status.is_success() || said.error || said.unreadable {
            return Token::Nothing;
        }
        match (said.content, said.marks) {
            (false, _) => Token::Worthless(Worth::Empty),
            (true, marks) if marks >= u64::from(TOKENS / 2) => Token::Worthless(Worth::Garbage),
            (true, _) => Token::Came,
        }
    }

    /// Asks for a whole answer that no client wants. `None`: there was none.
    pub(super) async fn ask_by_itself(&self, mut body: Value) -> Option<(StatusCode, Bytes)> {
        body["model"] = self.name_for(None).into();
        let mut sent = headers::to_backend(&HeaderMap::new(), &self.config);
        sent.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = Bytes::from(body.to_string());
        let mut reply = self.send(Method::POST, "/v1/chat/completions", sent, body).await.ok()?;
        let mut decoder = Decoder::of(&reply.head.headers).ok()?;
        let mut bytes = Vec::new();
        while let Some(piece) = reply.body.next().await {
            bytes.extend_from_slice(&decoder.push(piece.ok()?).ok()?);
            if bytes.len() > TOKEN_LIMIT {
                return None;
            }
        }
        Some((reply.head.status, bytes.into()))
    }
}
