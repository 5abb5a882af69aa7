//! Asking a backend whether it is there and what it is: cheap, on a clock, one task a backend.
//!
//! The first probe identifies ([`identify()`]): engine, names, window and all that [`Found`] holds. Later ones ask one cheap
//! question. All is asked again when a backend comes back, since a port is no identity, and now and then while it stays.
//! What is not answered in time says nothing: engines answer late while they read a long prompt. Must never ask what an
//! engine computes, or what waits behind a prefill.

mod ask;
mod found;
mod identify;
mod list;
mod llama;
mod lm_studio;
mod needs;
mod ollama;
mod prometheus;
mod sglang;
#[cfg(test)]
mod tests;
mod tgi;
mod vllm;

use std::sync::Arc;
use std::time::Duration;

use switchback_parsers::diagnosis::Engine;
use switchback_policies::facts::BackendState;
use switchback_policies::health::Health;
use tokio::time::Instant;

pub(crate) use self::found::{ChatTemplate, Found, Load};

use super::Backend;
use ask::Ask;
use identify::{identify, still_there};

/// Cheap probes between two that ask everything.
const CHEAP: u32 = 11;

/// The same where an answer was late: something is still to be learned.
const CHEAP_IF_LATE: u32 = 2;

/// Between two looks at what an engine runs.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Probes for ever. Cancelled by dropping.
pub(crate) async fn watch(backend: Arc<Backend>, interval: Duration, timeout: Duration) {
    once(&backend, timeout).await;
    // All is asked again soon: the first time may have met a busy backend.
    let mut cheap = CHEAP_IF_LATE;
    loop {
        let pause = backend.health.get().next_probe(interval);
        // A fault that a request met cuts the pause short: whether the backend is really gone is worth knowing at once.
        let changed = backend.health.changed();
        let changed = async {
            changed.await;
            tokio::time::sleep(Health::default().next_probe(interval)).await;
        };
        tokio::select! {
            biased;
            () = tokio::time::sleep(pause) => {}
            () = changed => {}
            () = backend.doubt.notified() => {}
        }
        cheap = probe(&backend, cheap, timeout).await;
    }
}

/// Asks everything once and tells the backend.
pub(crate) async fn once(backend: &Backend, timeout: Duration) {
    probe(backend, 0, timeout).await;
}

/// Probes once, cheaply if any cheap probe is left and the backend was up; returns how many are left then.
async fn probe(backend: &Backend, cheap: u32, timeout: Duration) -> u32 {
    if backend.is_anothers_place() {
        return 0;
    }
    let mut ask = Ask::new(backend, Instant::now() + timeout);
    let known = backend.found.read().clone();
    let was_up = backend.state() == BackendState::Up;
    let (mut outcome, left) = if was_up && cheap > 0 {
        (still_there(&mut ask, speaks(backend, &known), configured(backend), &known).await, cheap - 1)
    } else {
        let mut outcome = identify(&mut ask, configured(backend)).await;
        if was_up {
            // It has been there all the time: what it has no time to tell now, it told before.
            outcome.found = outcome.found.filter(|found| found.engine.is_some());
            outcome.found = outcome.found.map(|found| if ask.was_late() { found.or(&known) } else { found });
        }
        (outcome, if ask.was_late() { CHEAP_IF_LATE } else { CHEAP })
    };
    if outcome.load.is_none() && backend.is_quiet() && speaks(backend, &known) == Engine::LlamaCpp {
        outcome.load = llama::load(&mut ask).await;
    }
    if let Some(probe) = backend.verify(outcome.probe).await {
        backend.on_probe(probe, outcome.found);
    }
    backend.on_load(outcome.load);
    left
}

/// What an engine runs by its own account, if it shows that: vLLM, llama.cpp and its fork.
pub(crate) async fn load(backend: &Backend, within: Duration) -> Option<Load> {
    let mut ask = Ask::new(backend, Instant::now() + within);
    match backend.engine() {
        Engine::Vllm => vllm::load(&mut ask).await,
        Engine::LlamaCpp | Engine::IkLlama => llama::load(&mut ask).await,
        Engine::Sglang | Engine::Ollama | Engine::LmStudio | Engine::Tgi | Engine::Other => None,
    }
}

/// Waits until an engine that shows what it runs has let go of a request on which the proxy has hung up, but no longer than
/// `within`. `left`: requests of the proxy that go on there. Others do not tell, and are not waited for.
pub(crate) async fn until_let_go(backend: &Backend, left: u64, within: Duration) {
    let known = backend.found().engine;
    let until = Instant::now() + within;
    while known == Some(Engine::Vllm) && Instant::now() < until {
        match vllm::load(&mut Ask::new(backend, until)).await {
            Some(load) if load.running + load.waiting > left => tokio::time::sleep(LOOK_AGAIN).await,
            Some(_) | None => return,
        }
    }
}

/// The engine whose pages a backend has: what its answers say, else what the operator says.
fn speaks(backend: &Backend, known: &Found) -> Engine {
    let told = known.engine.filter(|engine| *engine != Engine::Other);
    told.or_else(|| configured(backend)).unwrap_or(Engine::Other)
}

/// The engine that the operator names, or the preset that he chose.
fn configured(backend: &Backend) -> Option<Engine> {
    backend.config.engine.or_else(|| Some(backend.config.preset?.engine))
}
