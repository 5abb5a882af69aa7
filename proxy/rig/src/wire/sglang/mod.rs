//! SGLang's routes and refusals, from the source of 0.5.23.
//!
//! The head of a stream leaves with the first token. Errors are flat, without an `error` around them. Prompt and answer
//! together must fit the window, and nothing is clamped. Without a tool parser a call is plain content, and nothing is
//! refused. It must never write a chunk (`pen.rs`).

mod pen;

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};

use pen::SglangPen;

use super::{Answered, Body, CREATED, NotRun, arrived, body, path, refused, relay, submit};
use crate::{
    backend::{Backend, State},
    inference::Inference,
    random::hash,
    tokens::pieces,
};

/// Simulated seconds that a health check takes at least: it is a request of one token, looked after once a second.
const HEALTH: f64 = 1.0;
/// What the tokenizer says it can take, whatever is served.
const TOKENIZER_WINDOW: usize = 262_144;

pub(super) async fn answer(backend: &Arc<Backend>, request: &Request<Bytes>) -> Answered {
    let spec = &backend.spec;
    let ready = backend.life().state == State::Ready;
    Ok(match path(request) {
        ("GET", "/health" | "/health_generate" | "/ready") if !ready => {
            body::empty(StatusCode::SERVICE_UNAVAILABLE)
        }
        ("GET", "/health" | "/health_generate") => {
            backend.clock.sleep(HEALTH).await;
            backend.gpu.between_steps().await;
            body::empty(StatusCode::OK)
        }
        ("GET", "/ready") => body::empty(StatusCode::OK),
        ("GET", "/v1/models") => {
            let card = json!({"id": spec.model, "object": "model", "created": CREATED, "owned_by": "sglang",
                "root": spec.model, "parent": null, "max_model_len": spec.window});
            body::json(StatusCode::OK, &json!({"object": "list", "data": [card]}))
        }
        ("GET", "/model_info" | "/get_model_info") => {
            let info = json!({"model_path": spec.model, "tokenizer_path": spec.model, "is_generation": true});
            body::json(StatusCode::OK, &info)
        }
        ("GET", "/server_info" | "/get_server_info") => {
            let info = json!({"model_path": spec.model, "context_length": spec.window,
                "max_running_requests": spec.slots, "chunked_prefill_size": spec.batch_tokens,
                "max_total_num_tokens": spec.kv_pool(), "version": spec.version()});
            body::json(StatusCode::OK, &info)
        }
        ("GET", "/v1/loads") => {
            let load = backend.gpu.load();
            let usage = load.resident_tokens as f64 / spec.kv_pool() as f64;
            let rank = json!({"dp_rank": 0, "num_running_reqs": load.running, "num_waiting_reqs": load.waiting,
                "num_used_tokens": load.resident_tokens, "max_total_num_tokens": spec.kv_pool(),
                "token_usage": usage});
            body::json(StatusCode::OK, &json!({"loads": [rank]}))
        }
        ("GET", "/metrics") => metrics(backend),
        ("POST", "/tokenize" | "/v1/tokenize") => tokenize(request),
        ("POST", "/v1/chat/completions" | "/v1/completions") if !ready => {
            flat(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "The server is starting.")
        }
        ("POST", "/v1/chat/completions") => return infer(backend, request, true).await,
        ("POST", "/v1/completions") => return infer(backend, request, false).await,
        _ => body::json(StatusCode::NOT_FOUND, &json!({"detail": "Not Found"})),
    })
}

/// An error, without an `error` around it.
fn flat(status: StatusCode, kind: &str, message: impl Into<String>) -> Response<Body> {
    let error = json!({"object": "error", "message": message.into(), "type": kind, "param": null,
        "code": status.as_u16()});
    body::json(status, &error)
}

/// Reads an inference request, or says what is wrong with it.
fn read(backend: &Backend, request: &Request<Bytes>, chat: bool) -> Result<Inference, String> {
    let body: Value =
        serde_json::from_slice(request.body()).map_err(|error| format!("JSON decode error: {error}"))?;
    let needed = if chat { "messages" } else { "prompt" };
    if body[needed].is_null() || (chat && !body[needed].is_array()) {
        return Err(format!("[{{'type': 'missing', 'loc': ('body', '{needed}'), 'msg': 'Field required'}}]"));
    }
    let asked = if chat { Inference::chat(&body) } else { Inference::completion(&body) };
    let (prompt, window) = (asked.prompt_tokens(), backend.spec.window);
    if prompt >= window {
        return Err(format!(
            "The input ({prompt} tokens) is longer than the model's context length ({window} tokens)."
        ));
    }
    let wanted = asked.max_tokens.and_then(|tokens| usize::try_from(tokens).ok()).unwrap_or(0);
    let total = prompt.saturating_add(wanted);
    if total > window {
        return Err(format!(
            "Requested token count exceeds the model's maximum context length of {window} tokens. You requested a total \
             of {total} tokens: {prompt} tokens from the input messages and {wanted} tokens for the completion. Please \
             reduce the number of tokens in the input messages or the completion to fit within the limit."
        ));
    }
    Ok(asked)
}

async fn infer(backend: &Arc<Backend>, request: &Request<Bytes>, chat: bool) -> Answered {
    let asked = match read(backend, request, chat) {
        Ok(asked) => asked,
        Err(message) => {
            refused(backend, backend.number(), StatusCode::BAD_REQUEST);
            return Ok(flat(StatusCode::BAD_REQUEST, "BadRequestError", message));
        }
    };
    let id = arrived(backend, &asked);
    let mut accepted = match submit(backend, id, asked) {
        Ok(accepted) => accepted,
        Err(NotRun::Status(status)) => {
            let kind = if status.is_server_error() { "InternalServerError" } else { "BadRequestError" };
            return Ok(flat(status, kind, "The request was refused by the script."));
        }
        Err(NotRun::Busy) => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Ok(flat(status, "SERVICE_UNAVAILABLE", "The request queue is full."));
        }
        // the process takes its sockets with it
        Err(NotRun::Dead) => return std::future::pending().await,
    };
    let pen = SglangPen::new(&backend.spec, &accepted.asked, &mut accepted.random);
    if !accepted.asked.stream {
        return match relay::whole(backend, &mut accepted).await? {
            Some(_) => Ok(body::json(StatusCode::OK, &pen.whole(&accepted.answer))),
            None => std::future::pending().await,
        };
    }
    relay::from_decode(backend, accepted, pen, "text/event-stream; charset=utf-8").await
}

/// Both forms, as the chat would count it.
fn tokenize(request: &Request<Bytes>) -> Response<Body> {
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    let asked =
        if body["messages"].is_array() { Inference::chat(&body) } else { Inference::completion(&body) };
    let tokens: Vec<u64> = pieces(&asked.prompt.text)
        .map(|piece| hash(piece.as_bytes()) % 151_643)
        .chain(std::iter::repeat(151_644))
        .take(asked.prompt_tokens())
        .collect();
    let answer = json!({"tokens": tokens, "count": tokens.len(), "max_model_len": TOKENIZER_WINDOW});
    body::json(StatusCode::OK, &answer)
}

fn metrics(backend: &Backend) -> Response<Body> {
    let (spec, load, totals) = (&backend.spec, backend.gpu.load(), backend.gpu.totals());
    let (pool, count) = (spec.kv_pool() as f64, |number: usize| number as f64);
    let hits = if totals.prompt_tokens > 0 {
        count(totals.cached_tokens) / count(totals.prompt_tokens)
    } else {
        0.0
    };
    let rows = [
        ("num_running_reqs", "gauge", count(load.running)),
        ("num_queue_reqs", "gauge", count(load.waiting)),
        ("num_used_tokens", "gauge", count(load.resident_tokens)),
        ("token_usage", "gauge", (count(load.resident_tokens) / pool).min(1.0)),
        ("max_total_num_tokens", "gauge", pool),
        ("context_len", "gauge", count(spec.window)),
        ("cache_hit_rate", "gauge", hits),
        ("num_retracted_reqs", "gauge", count(totals.preemptions)),
        ("prompt_tokens_total", "counter", count(totals.prompt_tokens)),
        ("cached_tokens_total", "counter", count(totals.cached_tokens)),
        ("generation_tokens_total", "counter", count(totals.output_tokens)),
    ];
    let row = |(name, kind, value): &(&str, &str, f64)| {
        format!("# TYPE sglang:{name} {kind}\nsglang:{name}{{model_name=\"{}\"}} {value:?}\n", spec.model)
    };
    let text: String = rows.iter().map(row).collect();
    body::whole(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
}
