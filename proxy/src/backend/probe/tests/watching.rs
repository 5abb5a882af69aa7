//! What is asked of a backend that was found, and when all is asked again.

use std::sync::Arc;

use switchback_parsers::diagnosis::Engine;
use switchback_policies::facts::BackendState;

use super::super::super::Backend;
use super::super::{CHEAP, probe};
use super::{Page, Site, TIMEOUT, ik_llama, llama_cpp, lm_studio, ollama, sglang, tgi, vllm};

/// A backend after its first probe, with nothing asked yet since.
async fn found(site: &Site) -> Arc<Backend> {
    let backend = site.backend("");
    assert_eq!(probe(&backend, 0, TIMEOUT).await, CHEAP);
    site.asked();
    backend
}

#[tokio::test(start_paused = true)]
async fn later_probes_ask_only_pages_that_answer_beside_a_prefill_and_who_is_there() {
    let cases: [(Site, &[&str]); 7] = [
        (vllm(), &["GET /health", "GET /v1/models", "GET /metrics"]),
        (llama_cpp(), &["GET /health", "GET /v1/models"]),
        (ik_llama(), &["GET /health", "GET /v1/models"]),
        (sglang(), &["GET /v1/models"]),
        (ollama(), &["GET /api/ps"]),
        (lm_studio(), &["GET /api/v1/models"]),
        (tgi(), &["GET /info"]),
    ];
    for (site, pages) in cases {
        let backend = found(&site).await;
        let known = backend.found.read().clone();
        assert_eq!(probe(&backend, 5, TIMEOUT).await, 4);
        assert_eq!(site.asked(), pages);
        assert_eq!((backend.state(), &*backend.found.read()), (BackendState::Up, &known));
    }
}

#[tokio::test(start_paused = true)]
async fn no_probe_ever_asks_what_computes_or_waits_behind_it() {
    for site in [vllm(), llama_cpp(), ik_llama(), sglang(), ollama(), lm_studio(), tgi()] {
        let backend = site.backend("");
        for cheap in [0, 1, 0] {
            probe(&backend, cheap, TIMEOUT).await;
        }
        let engine = backend.found.read().engine;
        for asked in site.asked() {
            let waits = match engine {
                Some(Engine::Sglang | Engine::Tgi) => asked.contains("/health"),
                Some(Engine::LlamaCpp | Engine::IkLlama) => {
                    asked.contains("/slots") || asked.contains("/metrics")
                }
                _ => false,
            };
            // Rendering and tokenising are the server's own work, beside the engine's.
            let posts = ["POST /api/show", "POST /tokenize", "POST /apply-template"];
            assert!(!waits && (asked.starts_with("GET ") || posts.contains(&&*asked)), "{engine:?}: {asked}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_comes_back_on_a_port_is_asked_for_its_name_again() {
    let site = vllm();
    let backend = found(&site).await;
    site.listens(false);
    let left = probe(&backend, 5, TIMEOUT).await;
    assert_eq!(backend.state(), BackendState::Absent);
    assert_eq!(backend.names()[0], "qwen3.6-27b", "kept while it is down");
    site.becomes(&llama_cpp());
    site.listens(true);
    probe(&backend, left, TIMEOUT).await;
    assert_eq!(
        (backend.state(), backend.engine(), backend.facts().window),
        (BackendState::Up, Engine::LlamaCpp, Some(1024))
    );
    assert_eq!((backend.names(), *backend.load.read()), (vec!["small".to_owned()], None));
}

#[tokio::test(start_paused = true)]
async fn a_port_that_comes_back_as_a_web_page_serves_nothing_any_more() {
    let site = vllm();
    let backend = found(&site).await;
    site.listens(false);
    probe(&backend, 5, TIMEOUT).await;
    site.becomes(&Site::new(&[("/v1/models", "<html>")]));
    site.listens(true);
    probe(&backend, 5, TIMEOUT).await;
    assert!(backend.names().is_empty() && backend.facts().window.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_swap_between_two_probes_is_seen_by_the_next() {
    let site = vllm();
    let backend = found(&site).await;
    site.becomes(&llama_cpp());
    probe(&backend, CHEAP, TIMEOUT).await;
    assert_eq!((backend.names(), backend.engine()), (vec!["small".to_owned()], Engine::LlamaCpp));
    assert_eq!(backend.facts().window, Some(1024));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_late_keeps_its_state_and_what_is_known_of_it() {
    let site = ik_llama();
    let backend = found(&site).await;
    let known = backend.found.read().clone();
    site.page("/health", Page::Hangs).page("/props", Page::Hangs);
    probe(&backend, 5, TIMEOUT).await;
    assert_eq!(backend.state(), BackendState::Up);
    let left = probe(&backend, 0, TIMEOUT).await;
    assert!(left < CHEAP, "all is asked again soon");
    assert_eq!((backend.state(), backend.found.read().slots), (BackendState::Up, known.slots));
    assert_eq!(backend.facts().window, known.window);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_loaded_on_request_brings_its_window_with_the_next_probe() {
    let site = ollama();
    site.page("/api/ps", Page::Answer(200, "", r#"{"models":[]}"#.into()));
    let backend = found(&site).await;
    assert_eq!(backend.facts().window, None);
    site.becomes(&ollama());
    probe(&backend, 5, TIMEOUT).await;
    assert_eq!((backend.facts().window, backend.names()[0].as_str()), (Some(8192), "qwen3:8b"));
}

#[tokio::test(start_paused = true)]
async fn a_dead_engine_behind_a_living_port_is_seen_by_the_cheap_probe() {
    let site = vllm();
    let backend = found(&site).await;
    site.page("/health", Page::Answer(503, "", String::new()));
    probe(&backend, 5, TIMEOUT).await;
    assert_eq!((backend.state(), *backend.load.read()), (BackendState::Dead, None));
}
