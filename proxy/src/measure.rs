//! How long the prompt is: from the model's vocabulary, else from a backend's own counting, else as bounds.
//!
//! Counted only as well as the decision needs: bounds that fit every backend settle it without asking anybody. A
//! vocabulary is used on threads of its own, so that no stream waits for a count. The result says how it was made.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::Value;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::needs::Need;
use switchback_parsers::prompt::{self, Normalisation, PromptCounter, TokenCount};
use switchback_parsers::request::ChatRequest;
use switchback_policies::facts::{BackendFacts, PromptSize};
use tokio::sync::watch;

use crate::backend::{Backend, headers};
use crate::call::Call;
use crate::config::Model;
use crate::edits;

/// How long a backend may take to count. vLLM needs 0.6 s for 125,000 tokens.
const COUNT_WITHIN: Duration = Duration::from_secs(5);

/// The longest answer to a counting request that is read: vLLM sends every token.
const COUNT_LIMIT: usize = 64 << 20;

/// A vocabulary that is being loaded.
type Loading = watch::Receiver<Loaded>;

#[derive(Clone, Debug)]
enum Loaded {
    NotYet,
    /// `None`: it cannot be loaded; the log says why.
    Done(Option<Arc<PromptCounter>>),
}

/// The vocabularies of the configured models. Loading takes seconds and happens aside; until then backends are asked.
#[derive(Debug, Default)]
pub(crate) struct Vocabularies {
    by_path: HashMap<PathBuf, Loading>,
    by_model: Vec<Option<Loading>>,
}

impl Vocabularies {
    /// Starts to load those that are configured, each file once, and none that `former` has.
    pub(crate) fn load(models: &[Model], former: Option<&Self>) -> Self {
        let mut all = Self::default();
        for model in models {
            let loading = model.tokenizer.as_ref().map(|path| {
                let known =
                    all.by_path.get(path).or_else(|| former.and_then(|former| former.by_path.get(path)));
                let loading =
                    known.cloned().unwrap_or_else(|| start_loading(path.clone(), model.name.clone()));
                all.by_path.insert(path.clone(), loading.clone());
                loading
            });
            all.by_model.push(loading);
        }
        all
    }

    fn get(&self, model: Option<usize>) -> Option<Arc<PromptCounter>> {
        match &*self.by_model.get(model?)?.as_ref()?.borrow() {
            Loaded::Done(counter) => counter.clone(),
            Loaded::NotYet => None,
        }
    }

    /// Waits until all are loaded, or have failed.
    pub(crate) async fn loaded(&self) {
        for loading in self.by_path.values() {
            // An error means that the loader is gone, so there is nothing to wait for.
            let _ = loading.clone().wait_for(|loaded| matches!(loaded, Loaded::Done(_))).await;
        }
    }
}

fn start_loading(path: PathBuf, model: String) -> Loading {
    let (loaded, loading) = watch::channel(Loaded::NotYet);
    tokio::task::spawn_blocking(move || {
        let counter = match PromptCounter::load(&path) {
            Ok(counter) => {
                tracing::info!(model, tokenizer = counter.describe(), "vocabulary loaded");
                Some(Arc::new(counter))
            }
            Err(error) => {
                tracing::error!(model, path = %path.display(), %error, "vocabulary not loaded: backends are asked to count");
                None
            }
        };
        // Nobody listens any more if the configuration has changed meanwhile.
        let _ = loaded.send(Loaded::Done(counter));
    });
    loading
}

/// A count, and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) size: PromptSize,
    /// No tokenizer yields fewer.
    pub(crate) least: u64,
    pub(crate) how: How,
}

/// Where a count comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Vocabulary,
    Backend,
    Bounds,
}

impl How {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Vocabulary => "vocabulary",
            Self::Backend => "backend",
            Self::Bounds => "bounds",
        }
    }
}

/// Measures a call's prompt for the backends that may get it. Above `exact_above` tokens bounds will not do if anybody can
/// count.
pub(crate) async fn measure(
    call: &Call,
    vocabularies: &Vocabularies,
    model: Option<usize>,
    backends: &[Arc<Backend>],
    facts: &[BackendFacts],
    exact_above: u64,
) -> Measured {
    let Some(request) = &call.request else {
        // A form: audio or a picture. What it costs is not known, and no window stands against it.
        return Measured { size: PromptSize::Between { low: 0, high: 0 }, least: 0, how: How::Bounds };
    };
    let bounds = size(prompt::bounds(request));
    let counted = |size: PromptSize, how: How| Measured { size, least: bounds.low().min(size.high()), how };
    if let Some(counter) = vocabularies.get(model)
        && let Some(size) = by_vocabulary(counter, call, request, backends).await
    {
        return counted(size, How::Vocabulary);
    }
    let output = request.output_limit().unwrap_or(0);
    let fits_all = facts.iter().all(|backend| {
        backend.prompt_limit().is_none_or(|limit| bounds.high() <= limit)
            && backend.window.is_none_or(|window| bounds.high().saturating_add(output) <= window)
            && backend.learned.least_tokens().is_none_or(|limit| bounds.high() <= limit)
    });
    // What may meet a cliff that nobody knows yet is counted exactly, so that the cliff is learned where it is.
    if !fits_all || bounds.high() > exact_above {
        for backend in backends.iter().filter(|backend| !backend.state().is_gone()) {
            let request = edits::readable(call, request, &backend.needs());
            if let Some(tokens) = by_backend(backend, call, &request).await {
                return counted(PromptSize::Exact(tokens), How::Backend);
            }
        }
    }
    counted(bounds, How::Bounds)
}

fn size(count: TokenCount) -> PromptSize {
    match count {
        TokenCount::Exact(tokens) => PromptSize::Exact(tokens),
        TokenCount::Between { low, high } => PromptSize::Between { low, high },
    }
}

/// The larger of what the engines among the backends will see: they render the same request differently.
async fn by_vocabulary(
    counter: Arc<PromptCounter>,
    call: &Call,
    request: &Arc<ChatRequest>,
    backends: &[Arc<Backend>],
) -> Option<PromptSize> {
    let mut kinds: Vec<(Normalisation, Vec<Need>)> =
        backends.iter().map(|backend| (normalisation(backend.engine()), backend.needs())).collect();
    kinds.dedup();
    let mut seen: Vec<(Normalisation, Arc<ChatRequest>)> =
        kinds.into_iter().map(|(kind, needs)| (kind, edits::readable(call, request, &needs))).collect();
    seen.dedup_by(|one, other| one.0 == other.0 && Arc::ptr_eq(&one.1, &other.1));
    let (dialect, request) = (call.endpoint.dialect, request.clone());
    let counting = tokio::task::spawn_blocking(move || match dialect {
        Some(Dialect::Chat) => {
            let counts = seen.into_iter().map(|(kind, request)| counter.count_chat(&request, kind).map(size));
            counts
                .collect::<Result<Vec<_>, _>>()
                .map(|counts| counts.into_iter().max_by_key(|size| size.high()))
        }
        Some(Dialect::Completions) => {
            let prompt = request.root().get("prompt").and_then(|prompt| prompt.as_str());
            Ok(prompt.map(|prompt| PromptSize::Exact(counter.count_text(&prompt))))
        }
        Some(Dialect::Messages | Dialect::Responses) | None => Ok(None),
    });
    match counting.await {
        Ok(Ok(size)) => size,
        Ok(Err(error)) => {
            tracing::debug!(%error, "prompt not counted by the vocabulary");
            None
        }
        Err(error) => {
            tracing::error!(%error, "counting failed");
            None
        }
    }
}

fn normalisation(engine: Engine) -> Normalisation {
    match engine {
        Engine::LlamaCpp | Engine::IkLlama | Engine::Ollama | Engine::LmStudio => Normalisation::LlamaCpp,
        Engine::Vllm | Engine::Sglang | Engine::Tgi | Engine::Other => Normalisation::Vllm,
    }
}

/// Asks a backend that can count. `None` if it cannot, or not in time.
async fn by_backend(backend: &Backend, call: &Call, request: &ChatRequest) -> Option<u64> {
    let (path, body, answer) = counting_request(backend, call, request)?;
    let mut sent = headers::to_backend(&HeaderMap::new(), &backend.config);
    sent.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let asking = async {
        let mut reply = backend.send(Method::POST, path, sent, body).await.ok()?;
        if reply.head.status != StatusCode::OK {
            return None;
        }
        let mut bytes = Vec::new();
        while let Some(piece) = reply.body.next().await {
            bytes.extend_from_slice(&piece.ok()?);
            if bytes.len() > COUNT_LIMIT {
                return None;
            }
        }
        read_count(bytes.into(), answer)
    };
    tokio::time::timeout(COUNT_WITHIN, asking).await.ok().flatten()
}

/// Path, body and the member of the answer that holds the count.
fn counting_request(
    backend: &Backend,
    call: &Call,
    request: &ChatRequest,
) -> Option<(&'static str, Bytes, &'static str)> {
    let llama = matches!(backend.engine(), Engine::LlamaCpp);
    let vllm_like = matches!(backend.engine(), Engine::Vllm | Engine::Sglang);
    let whole = || request.body().clone();
    match call.endpoint.dialect? {
        Dialect::Chat if llama => Some(("/v1/chat/completions/input_tokens", whole(), "input_tokens")),
        Dialect::Chat if vllm_like => {
            let members = [
                "messages",
                "tools",
                "chat_template_kwargs",
                "add_generation_prompt",
                "continue_final_message",
            ];
            Some(("/tokenize", picked(backend, call, request, &members)?, "count"))
        }
        Dialect::Completions if vllm_like => {
            Some(("/tokenize", picked(backend, call, request, &["prompt"])?, "count"))
        }
        Dialect::Responses if llama => Some(("/v1/responses/input_tokens", whole(), "input_tokens")),
        Dialect::Messages if llama || vllm_like || matches!(backend.engine(), Engine::IkLlama) => {
            Some(("/v1/messages/count_tokens", whole(), "input_tokens"))
        }
        Dialect::Chat | Dialect::Completions | Dialect::Responses | Dialect::Messages => None,
    }
}

/// The members that a counting endpoint takes, as they came, under the backend's own model name.
fn picked(backend: &Backend, call: &Call, request: &ChatRequest, members: &[&str]) -> Option<Bytes> {
    let mut body = String::from("{");
    let model = backend.name_for(call.model.as_deref()).or_else(|| call.model.clone());
    if let Some(model) = model {
        body.push_str(&format!("\"model\":{}", Value::from(model)));
    }
    for member in members {
        // `tools: []` is refused by vLLM, and adds nothing to a prompt.
        let value = request.root().get(member).filter(|value| !value.is_null() && value.raw() != "[]");
        if let Some(value) = value {
            let comma = if body.len() > 1 { "," } else { "" };
            body.push_str(&format!("{comma}\"{member}\":{}", value.raw()));
        }
    }
    body.push('}');
    Some(body.into())
}

fn read_count(body: Bytes, member: &str) -> Option<u64> {
    // vLLM sends every token beside the count: a checked view skips them without building a tree.
    ChatRequest::parse(body).ok()?.root().get(member)?.as_u64()
}
