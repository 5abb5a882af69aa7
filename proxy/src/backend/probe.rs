//! Asking a backend whether it is there and what it is: cheap, on a clock, one task a backend.
//!
//! `/health` first, because ik_llama answers `/v1/models` while it loads; then `/v1/models` for names and window, and
//! llama.cpp's `/props` where that has no window. What cannot be answered in time says nothing: engines answer late while
//! they read a long prompt. Must never send anything that an engine computes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use serde_json::Value;
use switchback_parsers::diagnosis::Engine;
use switchback_policies::health::{Health, Probe};

use super::client::ClientError;
use super::{Backend, Found, headers};

/// The longest answer to a probe that is read: model lists of routers are long, but not longer.
const ANSWER_LIMIT: usize = 4 << 20;

/// Probes for ever. Cancelled by dropping.
pub(crate) async fn watch(backend: Arc<Backend>, interval: Duration, timeout: Duration) {
    loop {
        once(&backend, timeout).await;
        let pause = backend.health.borrow().next_probe(interval);
        // A fault that a request met cuts the pause short: whether the backend is really gone is worth knowing at once.
        let mut health = backend.health.subscribe();
        health.mark_unchanged();
        let changed = async {
            let _ = health.changed().await;
            tokio::time::sleep(Health::default().next_probe(interval)).await;
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = changed => {}
        }
    }
}

/// Probes once and tells the backend.
pub(crate) async fn once(backend: &Backend, timeout: Duration) {
    match tokio::time::timeout(timeout, probe(backend)).await {
        Ok((probe, found)) => backend.on_probe(probe, found),
        Err(_) => backend.on_probe(Probe::TimedOut, None),
    }
}

async fn probe(backend: &Backend) -> (Probe, Option<Found>) {
    match get(backend, "/health").await {
        Asked::Gone => return (Probe::Gone, None),
        Asked::Answered(StatusCode::SERVICE_UNAVAILABLE, body) => {
            let loading = body.windows(7).any(|part| part.eq_ignore_ascii_case(b"loading"));
            return (if loading { Probe::Loading } else { Probe::Gone }, None);
        }
        // Absent on Ollama and LM Studio: the list of models tells as much.
        Asked::Answered(..) => {}
    }
    match get(backend, "/v1/models").await {
        Asked::Gone => (Probe::Gone, None),
        Asked::Answered(StatusCode::SERVICE_UNAVAILABLE, _) => (Probe::Loading, None),
        Asked::Answered(StatusCode::OK, body) => {
            let mut found = read_models(&body);
            if found.engine == Some(Engine::LlamaCpp) && found.window.is_none() {
                found.window = window_from_props(backend).await;
            }
            (Probe::Ready, Some(found))
        }
        // It answers HTTP; that it has no list (or wants another key) shows at the first request.
        Asked::Answered(..) => (Probe::Ready, None),
    }
}

enum Asked {
    Gone,
    Answered(StatusCode, Vec<u8>),
}

async fn get(backend: &Backend, path: &str) -> Asked {
    let headers = headers::to_backend(&HeaderMap::new(), &backend.config);
    let mut reply = match backend.send(Method::GET, path, headers, Bytes::new()).await {
        Ok(reply) => reply,
        Err(ClientError::Connect(_) | ClientError::Lost(_)) => return Asked::Gone,
    };
    let mut body = Vec::new();
    while let Some(Ok(bytes)) = reply.body.next().await {
        body.extend_from_slice(&bytes);
        if body.len() > ANSWER_LIMIT {
            break;
        }
    }
    Asked::Answered(reply.head.status, body)
}

async fn window_from_props(backend: &Backend) -> Option<u64> {
    let Asked::Answered(StatusCode::OK, body) = get(backend, "/props").await else { return None };
    serde_json::from_slice::<Value>(&body).ok()?.pointer("/default_generation_settings/n_ctx")?.as_u64()
}

/// What a model list tells. vLLM and SGLang give `max_model_len`, llama.cpp `meta.n_ctx` (per slot), others nothing.
fn read_models(body: &[u8]) -> Found {
    let Ok(list) = serde_json::from_slice::<Value>(body) else { return Found::default() };
    let cards = list.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let text = |card: &Value, key: &str| card.get(key).and_then(Value::as_str).map(str::to_owned);
    let engine = cards.iter().find_map(|card| match card.get("owned_by").and_then(Value::as_str)? {
        "vllm" => Some(Engine::Vllm),
        "llamacpp" => Some(Engine::LlamaCpp),
        "sglang" => Some(Engine::Sglang),
        _ => None,
    });
    let window = |card: &Value| {
        let told = card.get("max_model_len").or_else(|| card.pointer("/meta/n_ctx"));
        told.and_then(Value::as_u64).filter(|window| *window > 0)
    };
    // Adapters of vLLM are listed beside their model and have no window of their own.
    Found {
        engine,
        names: cards.iter().filter_map(|card| text(card, "id")).collect(),
        window: cards.iter().filter_map(window).min(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_read_where_each_engine_puts_it() {
        let vllm = br#"{"object":"list","data":[{"id":"tiny","owned_by":"vllm","max_model_len":2048},{"id":"lora","owned_by":"vllm","parent":"tiny"}]}"#;
        assert_eq!(
            read_models(vllm),
            Found {
                engine: Some(Engine::Vllm),
                names: vec!["tiny".into(), "lora".into()],
                window: Some(2048)
            }
        );
        let llama =
            br#"{"data":[{"id":"smollm2","owned_by":"llamacpp","meta":{"n_ctx":4096,"n_ctx_train":8192}}]}"#;
        assert_eq!(
            read_models(llama),
            Found { engine: Some(Engine::LlamaCpp), names: vec!["smollm2".into()], window: Some(4096) }
        );
        assert_eq!(read_models(b"<html>"), Found::default());
    }
}
