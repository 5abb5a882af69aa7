//! How long the prompt is: from the model's vocabulary, else from a backend's own counting, else as bounds.
//!
//! Counted only as well as the decision needs: bounds that fit every backend settle it without asking anybody. A
//! vocabulary is used on threads of its own, so that no stream waits for a count; the count ends when the client leaves. Two engines
//! that render a request differently have two counts of it. The result says how it was made.

mod ask;
mod rendered;
mod vocabularies;

use std::sync::Arc;

use switchback_parsers::chunk::Dialect;
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::needs::Need;
use switchback_parsers::prompt::{self, CountError, Normalisation, PromptCounter, Stop, TokenCount};
use switchback_parsers::request::ChatRequest;
use switchback_policies::facts::{BackendFacts, PromptSize};

pub(crate) use self::ask::by_backend;
pub(crate) use self::rendered::{Prompt, prompt_of, tail_of, tokens_of};
pub(crate) use self::vocabularies::{Running, Vocabularies};
use crate::aside::{LONG, aside};
use crate::backend::{Backend, ChatTemplate};
use crate::call::Call;
use crate::edits;

/// Past so many times the largest limit the rest of a count decides nothing.
const FAR_BEYOND: u64 = 4;

/// A count, and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) size: PromptSize,
    /// No tokenizer yields fewer.
    pub(crate) least: u64,
    pub(crate) how: How,
    /// What the vocabulary counts for each of the backends, by name, before anything that was learned.
    pub(crate) counts: Vec<(String, PromptSize)>,
}

impl Measured {
    /// What the vocabulary counted for a backend.
    pub(crate) fn counted_for(&self, backend: &str) -> Option<PromptSize> {
        self.counts.iter().find(|(name, _)| name == backend).map(|(_, size)| *size)
    }
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
        return Measured {
            size: PromptSize::Between { low: 0, high: 0 },
            least: 0,
            how: How::Bounds,
            counts: Vec::new(),
        };
    };
    let bounds = size(aside(request, prompt::bounds).await);
    let counted = |size: PromptSize, how: How| Measured {
        size,
        least: bounds.low().min(size.high()),
        how,
        counts: Vec::new(),
    };
    if let Some(counter) = vocabularies.get(model) {
        let is_long = request.body().len() >= LONG;
        let _place = if is_long { vocabularies.place().await } else { None };
        let running = vocabularies.running().clone();
        let counts = by_vocabulary(counter, running, call, request, backends, limit(facts)).await;
        let measured = Measured { counts, ..counted(bounds, How::Vocabulary) };
        // The most that any of the backends will see, with what their own counts have taught.
        let seen = backends.iter().filter_map(|backend| {
            let size = measured.counted_for(backend.name())?;
            Some(backend.correction().map_or(size, |correction| correction.apply(size)))
        });
        if let Some(size) = seen.max_by_key(|size| size.high()) {
            return Measured { size, least: measured.least.min(size.high()), ..measured };
        }
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
            if let Some(tokens) = by_backend(backend, call.endpoint.dialect, &request).await {
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

/// Where a count may end: no backend takes anywhere near as much. None if one of them may take anything.
fn limit(facts: &[BackendFacts]) -> Option<u64> {
    let limits = facts.iter().map(|backend| backend.window.or(backend.prompt_limit()));
    let largest = limits.collect::<Option<Vec<u64>>>()?.into_iter().max()?;
    Some(largest.saturating_mul(FAR_BEYOND))
}

/// What each of the backends will see. Those for which the request cannot be counted are left out.
async fn by_vocabulary(
    counter: Arc<PromptCounter>,
    running: Arc<Running>,
    call: &Call,
    request: &Arc<ChatRequest>,
    backends: &[Arc<Backend>],
    limit: Option<u64>,
) -> Vec<(String, PromptSize)> {
    // Backends with the same engine, the same needs and the same template see the same prompt.
    let seeing =
        |backend: &Arc<Backend>| (normalisation(backend.engine()), backend.needs(), backend.chat_template());
    let mut kinds: Vec<(Normalisation, Vec<Need>, Option<ChatTemplate>)> = Vec::new();
    for kind in backends.iter().map(seeing) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let asked: Vec<(Normalisation, Option<ChatTemplate>, Arc<ChatRequest>)> = kinds
        .iter()
        .map(|(kind, needs, template)| (*kind, template.clone(), edits::readable(call, request, needs)))
        .collect();
    let dialect = call.endpoint.dialect;
    let cancelled = Cancel(Stop::at(limit));
    let stop = cancelled.0.clone();
    let counting = tokio::task::spawn_blocking(move || {
        let count = |kind, template: Option<&ChatTemplate>, request: &ChatRequest| match dialect {
            Some(Dialect::Chat) => running
                .counter(&counter, template)
                .map(|counter| counter.count_chat_until(request, kind, &stop))
                .transpose(),
            Some(Dialect::Completions) => Ok::<_, CountError>(counter.count_completion(request, kind)),
            Some(Dialect::Messages | Dialect::Responses) | None => Ok(None),
        };
        let counts = asked.iter().map(|(kind, template, request)| {
            count(*kind, template.as_ref(), request).unwrap_or_else(|error| {
                tracing::debug!(%error, ?kind, "prompt not counted by the vocabulary");
                None
            })
        });
        counts.map(|count| count.map(size)).collect::<Vec<Option<PromptSize>>>()
    });
    let counts = counting.await.unwrap_or_else(|error| {
        tracing::error!(%error, "counting failed");
        Vec::new()
    });
    let seen = |backend: &Arc<Backend>| {
        let at = kinds.iter().position(|kind| *kind == seeing(backend))?;
        Some((backend.name().to_owned(), counts.get(at).copied().flatten()?))
    };
    backends.iter().filter_map(seen).collect()
}

/// Ends the count when nobody waits for it any more.
struct Cancel(Stop);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// How an engine reads a request.
pub(crate) fn normalisation(engine: Engine) -> Normalisation {
    match engine {
        Engine::LlamaCpp | Engine::IkLlama | Engine::Ollama | Engine::LmStudio => Normalisation::LlamaCpp,
        Engine::Vllm | Engine::Sglang | Engine::Tgi | Engine::Other => Normalisation::Vllm,
    }
}
