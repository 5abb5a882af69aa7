//! What became of a request: one [`Outcome`] each, written exactly once, when the request is dropped.
//!
//! The producer of the answer owns it, so a finished answer, a refusal and a client that left all end here. One log line
//! and the metrics are made of it; nobody else counts requests. Prompts and answers never get into it.

use std::sync::Arc;
use std::time::Duration;

use switchback_parsers::chunk::Usage;
use switchback_policies::affinity::{Drift, Place};
use switchback_policies::facts::PromptSize;
use switchback_policies::failover::Fault;
use tokio::time::Instant;

use crate::answer::grade::Grade;
use crate::app::App;
use crate::call::Call;
use crate::measure::{How, Measured};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// Answered to its end.
    Answered,
    /// Refused with an error before any content.
    Refused,
    /// Ended with an error after content was shown.
    Cut,
    /// The client left.
    Left,
}

impl End {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Cut => "cut",
            Self::Left => "client-left",
        }
    }
}

/// Tokens that are computed again for nothing, and are worth a warning.
const WORTH_TELLING: u64 = 1000;

/// The record of one request.
#[derive(Debug)]
pub(crate) struct Outcome {
    app: Arc<App>,
    id: String,
    path: String,
    model: Option<String>,
    stream: bool,
    accepted: Instant,
    end: End,
    code: Option<&'static str>,
    pub(crate) client: String,
    pub(crate) backend: Option<String>,
    pub(crate) reason: String,
    /// What differs from what the client asked for, or from what the backend answered first.
    pub(crate) adjusted: Vec<String>,
    /// The answer said nothing at all.
    pub(crate) empty: bool,
    /// What the answer was worth, if one backend has written it to its end.
    pub(crate) grade: Option<Grade>,
    pub(crate) measured: Option<Measured>,
    pub(crate) usage: Option<Usage>,
    /// For a place at a backend.
    pub(crate) waited: Duration,
    attempts: Vec<(String, Fault)>,
    first_content: Option<Duration>,
    /// Several backends have written the answer.
    joined: bool,
}

impl Outcome {
    /// Opens the record. Until told otherwise, the client has left.
    pub(crate) fn open(app: &Arc<App>, call: &Call) -> Self {
        app.metrics.began();
        Self {
            app: app.clone(),
            id: call.id.clone(),
            path: call.endpoint.path.clone(),
            model: call.model.as_ref().map(|model| model.chars().take(120).collect()),
            stream: call.stream,
            accepted: call.accepted,
            end: End::Left,
            code: None,
            client: String::new(),
            backend: None,
            reason: String::new(),
            adjusted: Vec::new(),
            empty: false,
            grade: None,
            measured: None,
            usage: None,
            waited: Duration::ZERO,
            attempts: Vec::new(),
            first_content: None,
            joined: false,
        }
    }

    /// It goes on under another configuration.
    pub(crate) fn under(&mut self, app: &Arc<App>, client: &str) {
        self.app = app.clone();
        client.clone_into(&mut self.client);
    }

    /// An attempt failed.
    pub(crate) fn failed(&mut self, backend: &str, fault: Fault) {
        self.app.metrics.fault(backend, fault);
        self.attempts.push((backend.to_owned(), fault));
    }

    /// The prompt differs early from the one before it in its conversation: what stood behind is computed again.
    pub(crate) fn drifted(&self, backend: &str, drift: Drift, prompt: u64) {
        let Place { message, line } = drift.place;
        let tokens = (drift.share * prompt as f64) as u64;
        if tokens < WORTH_TELLING {
            return;
        }
        self.app.metrics.drifted(backend, tokens);
        tracing::warn!(
            id = self.id,
            client = self.client,
            backend,
            message,
            line,
            tokens,
            "about {tokens} tokens are computed again because of line {line} of message {message}, which is not what it was in \
             the turn before; message 0: the tools",
        );
    }

    /// The first content is about to be shown, or the first of another backend that goes on.
    pub(crate) fn begins(&mut self, backend: &str) {
        self.backend = Some(backend.to_owned());
        self.first_content.get_or_insert(self.accepted.elapsed());
    }

    /// A backend goes on with what another has begun: its count is of more than the client's prompt.
    pub(crate) fn goes_on(&mut self, backend: &str) {
        self.app.metrics.goes_on(backend);
        self.joined = true;
    }

    /// How it has ended, so far.
    pub(crate) fn end(&self) -> End {
        self.end
    }

    /// It came to an end that is not the client's leaving.
    pub(crate) fn ends(&mut self, end: End, code: Option<&'static str>) {
        self.end = end;
        self.code = code;
    }
}

impl Outcome {
    /// The backend's own count is the truth: one that differs from ours says that the vocabulary is not this model's, or the template
    /// not the server's. A difference that stays is learned.
    fn check_count(&self, backend: &str) {
        let measured =
            self.measured.as_ref().filter(|measured| measured.how == How::Vocabulary && !self.joined);
        let Some(backend) = self.app.fleet.all().iter().find(|known| known.name() == backend) else { return };
        let counted = measured.and_then(|measured| measured.counted_for(backend.name()));
        let Some(PromptSize::Exact(ours)) = counted else { return };
        let Some(theirs) = self.usage.and_then(|usage| usage.prompt_tokens) else { return };
        let name = backend.name();
        let correction = backend.on_count(ours, theirs);
        self.app.metrics.counted(
            name,
            ours == theirs,
            correction.map_or(0, |correction| correction.of(ours)),
        );
        if ours != theirs {
            let learned = correction.map(|correction| correction.of(ours));
            tracing::warn!(
                id = self.id,
                backend = name,
                ours,
                theirs,
                learned,
                "the backend counted the prompt differently"
            );
        }
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        let took = self.accepted.elapsed();
        let backend = self.backend.as_deref().unwrap_or("none");
        self.app.metrics.ended(self.end, backend, took, self.first_content, self.usage);
        self.app.metrics.waited(backend, self.waited);
        self.check_count(backend);
        let faults: Vec<String> =
            self.attempts.iter().map(|(name, fault)| format!("{name}: {fault}")).collect();
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        tracing::info!(
            id = self.id,
            path = self.path,
            model = self.model.as_deref(),
            client = self.client,
            stream = self.stream,
            outcome = self.end.name(),
            code = self.code,
            backend,
            tokens = self.measured.as_ref().map(|measured| measured.size.to_string()),
            counted_by = self.measured.as_ref().map(|measured| measured.how.name()),
            prompt_tokens = self.usage.and_then(|usage| usage.prompt_tokens),
            completion_tokens = self.usage.and_then(|usage| usage.completion_tokens),
            waited_ms = millis(self.waited),
            first_content_ms = self.first_content.map(millis),
            took_ms = millis(took),
            faults = some(faults.join("; ")),
            reason = some(std::mem::take(&mut self.reason)),
            adjusted = some(self.adjusted.join("; ")),
            "request",
        );
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
