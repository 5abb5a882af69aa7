//! vLLM's routes.
//!
//! Order matters here as there: the head of a stream leaves before the request is even scheduled, so it says nothing
//! about prefill. It must never check a request (`checks.rs`) or write a chunk (`pen.rs`).

mod checks;
mod metrics;
mod pen;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use serde_json::{Value, json};

use checks::Refusal;
use pen::{Shape, VllmPen};

use super::{Accepted, Answered, Body, Broken, CREATED, NotRun, arrived, body, path, refused, relay, submit};
use crate::{
    backend::{Backend, State},
    inference::Inference,
    random::hash,
    tokens::pieces,
};

pub(super) async fn answer(backend: &Arc<Backend>, request: &Request<Bytes>) -> Answered {
    let dead = backend.life().state != State::Ready;
    Ok(match path(request) {
        ("GET" | "POST", "/ping") | ("GET", "/health") if dead => {
            body::empty(StatusCode::SERVICE_UNAVAILABLE)
        }
        ("GET" | "POST", "/ping") | ("GET", "/health") => body::empty(StatusCode::OK),
        ("GET", "/version") => body::json(StatusCode::OK, &json!({"version": backend.spec.version()})),
        ("GET", "/load") => body::json(StatusCode::OK, &json!({"server_load": 0})),
        ("GET", "/v1/models") => body::json(StatusCode::OK, &models(backend)),
        ("GET", "/metrics") => metrics::answer(backend),
        ("POST", "/tokenize") => tokenize(backend, request),
        ("POST", "/v1/chat/completions") => return infer(backend, request, Shape::Chat).await,
        ("POST", "/v1/completions") => return infer(backend, request, Shape::Completion).await,
        (_, "/health" | "/version" | "/load" | "/v1/models" | "/metrics") => wrong_method("GET"),
        (_, "/tokenize" | "/v1/chat/completions" | "/v1/completions") => wrong_method("POST"),
        _ => body::json(StatusCode::NOT_FOUND, &json!({"detail": "Not Found"})),
    })
}

fn wrong_method(allowed: &'static str) -> Response<Body> {
    let mut answer = body::json(StatusCode::METHOD_NOT_ALLOWED, &json!({"detail": "Method Not Allowed"}));
    answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    answer
}

async fn infer(backend: &Arc<Backend>, request: &Request<Bytes>, shape: Shape) -> Answered {
    let asked = match checks::inference(&backend.spec, request, shape) {
        Ok(asked) => asked,
        Err(refusal) => {
            refused(backend, backend.number(), refusal.status);
            return Ok(refusal.answer());
        }
    };
    let id = arrived(backend, &asked);
    if let Err(refusal) = checks::length(&backend.spec, &asked) {
        refused(backend, id, refusal.status);
        return Ok(refusal.answer());
    }
    let mut accepted = match submit(backend, id, asked) {
        Ok(accepted) => accepted,
        Err(NotRun::Busy) => return Ok(Refusal::scripted(StatusCode::SERVICE_UNAVAILABLE).answer()),
        Err(NotRun::Status(status)) => return Ok(Refusal::scripted(status).answer()),
        Err(NotRun::Dead) if backend.spec.aborts() => return Err(Broken),
        Err(NotRun::Dead) => {
            backend.hasten();
            return Ok(Refusal::engine_dead().answer());
        }
    };
    let pen = VllmPen::new(&backend.spec, shape, name(&mut accepted, request, shape), &accepted.asked);
    if accepted.asked.stream {
        let backend = Arc::clone(backend);
        let stream = body::stream(|out| relay::relay(backend, accepted, pen, out));
        return Ok(body::typed(StatusCode::OK, "text/event-stream; charset=utf-8", stream));
    }
    Ok(match relay::whole(backend, &mut accepted).await? {
        Some(_) => body::json(StatusCode::OK, &pen.whole(&accepted.answer)),
        // the process takes its sockets with it
        None if backend.spec.aborts() => return std::future::pending().await,
        None => {
            backend.hasten();
            Refusal::engine_dead().answer()
        }
    })
}

/// The answer's name: from the client's `X-Request-Id`, or its own.
fn name(accepted: &mut Accepted, request: &Request<Bytes>, shape: Shape) -> String {
    let prefix = if shape == Shape::Chat { "chatcmpl-" } else { "cmpl-" };
    match request.headers().get("x-request-id").and_then(|id| id.to_str().ok()) {
        Some(id) => format!("{prefix}{id}"),
        None => format!("{prefix}{:016x}", accepted.random.next()),
    }
}

fn models(backend: &Backend) -> Value {
    let spec = &backend.spec;
    let card = |id: &String| {
        json!({
            "id": id, "object": "model", "created": CREATED, "owned_by": "vllm", "root": spec.model, "parent": null,
            "max_model_len": spec.window,
            "permission": [{
                "id": format!("modelperm-{:016x}", hash(id.as_bytes())), "object": "model_permission",
                "created": CREATED, "allow_create_engine": false, "allow_sampling": true, "allow_logprobs": true,
                "allow_search_indices": false, "allow_view": true, "allow_fine_tuning": false, "organization": "*",
                "group": null, "is_blocking": false,
            }],
        })
    };
    let cards: Vec<Value> = std::iter::once(&spec.model).chain(&spec.aliases).map(card).collect();
    json!({"object": "list", "data": cards})
}

/// Both forms; without a check of the length, as there.
fn tokenize(backend: &Backend, request: &Request<Bytes>) -> Response<Body> {
    let asked = match checks::json(request) {
        Ok(asked) if asked["messages"].is_array() => Inference::chat(&asked),
        Ok(asked) if asked["prompt"].is_string() => Inference::completion(&asked),
        Ok(_) => return Refusal::missing("prompt").answer(),
        Err(refusal) => return refusal.answer(),
    };
    let template = std::iter::repeat(151_644);
    let tokens: Vec<u64> = pieces(&asked.prompt.text)
        .map(|piece| hash(piece.as_bytes()) % 151_643)
        .chain(template)
        .take(asked.prompt_tokens())
        .collect();
    let answer = json!({
        "count": tokens.len(), "max_model_len": backend.spec.window, "tokens": tokens, "token_strs": null,
    });
    body::json(StatusCode::OK, &answer)
}
