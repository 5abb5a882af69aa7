//! Who a backend is: its list of models first, then the pages that only its engine has.
//!
//! The list carries the mark of vLLM, SGLang and the llama.cpp family; what carries none is asked for the pages of LM Studio,
//! TGI and Ollama, and is `Other` if it has none of them. A port says nothing. Whether it is ready is asked where a list
//! does not tell: ik_llama answers it while it loads, vLLM with a dead engine.

use http::StatusCode;
use switchback_parsers::diagnosis::Engine;
use switchback_policies::health::Probe;

use super::ask::{Answer, Ask};
use super::found::{Counting, Found, Load};
use super::list::ModelList;
use super::{llama, lm_studio, needs, ollama, sglang, tgi, vllm};

/// What one probe brings.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) probe: Probe,
    /// `None`: nothing to change.
    pub(super) found: Option<Found>,
    pub(super) load: Option<Load>,
}

impl From<Probe> for Outcome {
    fn from(probe: Probe) -> Self {
        Self { probe, found: None, load: None }
    }
}

/// Asks everything. `configured` is the engine that the operator named, believed where answers carry no mark.
pub(super) async fn identify(ask: &mut Ask<'_>, configured: Option<Engine>) -> Outcome {
    let answer = ask.get("/v1/models").await;
    let probe = answer.liveness();
    let (Probe::Ready, Answer::Said(said)) = (probe, answer) else { return probe.into() };
    let list = ModelList::read(&said);
    let marked = list.engine();
    let has_health = matches!(marked.or(configured), Some(Engine::Vllm | Engine::LlamaCpp | Engine::IkLlama));
    if has_health {
        match ask.get_in_half("/health").await.liveness() {
            // While they load they answer at once; only what is ready keeps one waiting.
            Probe::Ready | Probe::TimedOut => {}
            not_ready => return not_ready.into(),
        }
    }
    if list.is_empty() {
        // A page, or an engine with nothing to serve: there is nothing to ask of. One that only will not tell may be the same
        // as before.
        let tells = !said.status.is_server_error()
            && !matches!(
                said.status,
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS
            );
        return Outcome { probe, found: tells.then(Found::default), load: None };
    }
    let mut found = Found { names: list.names(), window: list.window(ask.model()), ..Found::default() };
    let mut load = None;
    let engine = match marked {
        Some(engine) => engine,
        None if lm_studio::describe(ask, &mut found).await => Engine::LmStudio,
        None if tgi::describe(ask, &mut found).await => Engine::Tgi,
        None if ollama::describe(ask, &mut found).await => Engine::Ollama,
        None => Engine::Other,
    };
    found.engine = Some(engine);
    let speaks = if engine == Engine::Other { configured.unwrap_or(engine) } else { engine };
    match speaks {
        Engine::Vllm => load = vllm::describe(ask, &mut found).await,
        Engine::LlamaCpp => llama::describe(ask, false, &mut found).await,
        Engine::IkLlama => llama::describe(ask, true, &mut found).await,
        Engine::Sglang => sglang::describe(ask, &mut found).await,
        Engine::Ollama | Engine::LmStudio | Engine::Tgi | Engine::Other => {}
    }
    found.counting = Counting::of(speaks);
    found.needs = match speaks {
        Engine::Vllm | Engine::Sglang => needs::ask(ask, "/tokenize").await,
        Engine::LlamaCpp | Engine::IkLlama => needs::ask(ask, "/apply-template").await,
        Engine::Ollama | Engine::LmStudio | Engine::Tgi | Engine::Other => None,
    };
    Outcome { probe, found: Some(found), load }
}

/// Whether somebody else answers here than was found: another engine, or other models. Between two probes is time for a swap.
async fn is_another(ask: &mut Ask<'_>, known: &Found) -> bool {
    let Answer::Said(said) = ask.get_in_half("/v1/models").await else { return false };
    let list = ModelList::read(&said);
    !list.is_empty() && (list.names() != known.names || list.engine() != known.engine)
}

/// Asks the cheapest questions that tell whether a backend that was up still is. `known` is what was found of it.
pub(super) async fn still_there(
    ask: &mut Ask<'_>,
    speaks: Engine,
    configured: Option<Engine>,
    known: &Found,
) -> Outcome {
    let path = match speaks {
        Engine::Vllm | Engine::LlamaCpp | Engine::IkLlama => "/health",
        Engine::Ollama => "/api/ps",
        Engine::Tgi => "/info",
        Engine::LmStudio => {
            // Its one page tells what is loaded now, and that it is there.
            let mut found = known.clone();
            let described = lm_studio::describe(ask, &mut found).await;
            return if described {
                Outcome { probe: Probe::Ready, found: Some(found), load: None }
            } else {
                ask.get("/v1/models").await.liveness().into()
            };
        }
        Engine::Sglang | Engine::Other => "/v1/models",
    };
    let answer = ask.get(path).await;
    let mut outcome = Outcome::from(answer.liveness());
    if path == "/health" && outcome.probe == Probe::Ready && is_another(ask, known).await {
        return identify(ask, configured).await;
    }
    match (speaks, outcome.probe, answer) {
        (Engine::Vllm, Probe::Ready, _) if known.engine == Some(Engine::Vllm) => {
            outcome.load = vllm::load(ask).await;
        }
        (Engine::Ollama, Probe::Ready, Answer::Said(said)) => {
            if let Some(page) = said.json() {
                let mut found = known.clone();
                ollama::loaded(&page, ask.model(), &mut found);
                outcome.found = Some(found);
            }
        }
        _ => {}
    }
    outcome
}
