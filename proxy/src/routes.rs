//! Which path leads where.
//!
//! Clients put `/v1` before a path once, twice (their base URL ends in it already) or not at all; all three mean the same.
//! What is not served natively goes to a backend that serves the model, if it is a POST below `/v1` or one of the known
//! endpoints. Everything else is 404: a proxy that answers `/api/version` or `/api/show` is taken for Ollama or LM Studio.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use http::Uri;
use tower_http::catch_panic::CatchPanicLayer;

use crate::app::Live;
use crate::error::ApiError;
use crate::guard::guard;
use crate::handlers::{forward, ops};

/// Endpoints that are known without their `/v1`.
const ENDPOINTS: [&str; 10] = [
    "/chat/completions",
    "/completions",
    "/responses",
    "/messages",
    "/messages/count_tokens",
    "/embeddings",
    "/rerank",
    "/score",
    "/classify",
    "/moderations",
];

/// The path was written with `/v1` before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BelowV1;

/// All routes, over paths that have lost their `/v1` (see [`strip_v1`]).
pub(crate) fn router(live: Arc<Live>) -> Router {
    Router::new()
        .route("/health", get(ops::health))
        .route("/ready", get(ops::ready))
        .route("/metrics", get(ops::metrics))
        .route("/models", get(ops::models))
        .route("/models/{*name}", get(ops::model))
        .fallback(forward::forward)
        .method_not_allowed_fallback(forward::wrong_method)
        .layer(from_fn_with_state(live.clone(), guard))
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(live)
}

/// A fault of the proxy's own. What it was is in the log; the process goes on.
fn panicked(_: Box<dyn std::any::Any + Send>) -> axum::response::Response {
    ApiError::own_fault().response(None)
}

/// A path without the `/v1` that stands before it once or twice.
pub(crate) fn without_v1(mut path: &str) -> &str {
    for _ in 0..2 {
        match path.strip_prefix("/v1") {
            Some(rest) if rest.starts_with('/') => path = rest,
            _ => break,
        }
    }
    // A slash at the end means the same to every client that writes it.
    if path.len() > 1 { path.strip_suffix('/').unwrap_or(path) } else { path }
}

/// Takes `/v1` off a request's path, and remembers that it was there.
pub(crate) fn strip_v1<B>(mut request: http::Request<B>) -> http::Request<B> {
    let path = without_v1(request.uri().path());
    if path.len() < request.uri().path().len() {
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        let mut parts = request.uri().clone().into_parts();
        // A part of a valid path is one, too.
        parts.path_and_query = format!("{path}{query}").parse().ok();
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
            request.extensions_mut().insert(BelowV1);
        }
    }
    request
}

/// Words in the paths of what changes a server instead of asking it: vLLM's and SGLang's adapters, sleep, weights and
/// caches, llama.cpp's slots and model loading.
const ADMINISTERS: [&str; 20] = [
    "load",
    "adapter",
    "lora",
    "sleep",
    "wake",
    "reset",
    "collective",
    "slot",
    "pause",
    "resume",
    "abort",
    "cache",
    "weight",
    "profile",
    "shutdown",
    "admin",
    "control",
    "scale",
    "session",
    "update",
];

/// Whether a path may go to a backend: plain words, none of which administers a server, and known or below `/v1`.
/// Whatever another program could decode into something else (escapes, dots, empty parts) is no such path.
pub(crate) fn goes_to_a_backend(request: &Request) -> bool {
    let path = request.uri().path();
    let plain = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte))
    };
    let parts = path.strip_prefix('/').unwrap_or_default();
    if !parts.split('/').all(plain) || ADMINISTERS.iter().any(|word| path.contains(word)) {
        return false;
    }
    let known = ENDPOINTS.contains(&path) || path.starts_with("/audio/") || path.starts_with("/images/");
    known || request.extensions().get::<BelowV1>().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v1_is_taken_off_once_or_twice_and_never_from_a_name() {
        for (written, path) in [
            ("/v1/chat/completions", "/chat/completions"),
            ("/v1/v1/models?x=1", "/models"),
            ("/chat/completions", "/chat/completions"),
            ("/v1beta/models", "/v1beta/models"),
            ("/v1", "/v1"),
            ("/v1/chat/completions/", "/chat/completions"),
        ] {
            let request = strip_v1(http::Request::builder().uri(written).body(()).unwrap());
            assert_eq!(request.uri().path(), path);
            assert_eq!(request.uri().query(), written.split_once('?').map(|(_, query)| query));
        }
    }
}
