//! Ollama's routes and refusals, from the source of fb30760.
//!
//! A prompt that is too long loses its oldest messages without a word; `max_completion_tokens` and `tool_choice` are
//! ignored; the model loads inside the first request, in silence; the head of a stream leaves with the first token. It
//! must never write a chunk (`pen.rs`).

mod pen;

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};

use pen::OllamaPen;

use super::{Answered, Body, CREATED, NotRun, arrived, body, path, refused, relay, submit};
use crate::{
    backend::{Backend, State},
    inference::Inference,
};

pub(super) async fn answer(backend: &Arc<Backend>, request: &Request<Bytes>) -> Answered {
    let spec = &backend.spec;
    let names = || std::iter::once(&spec.model).chain(&spec.aliases);
    Ok(match path(request) {
        ("GET" | "HEAD", "/") => body::text(StatusCode::OK, "Ollama is running".to_owned()),
        ("GET", "/api/version") => body::json(StatusCode::OK, &json!({"version": spec.version()})),
        ("GET", "/v1/models") => {
            let card =
                |id: &String| json!({"id": id, "object": "model", "created": CREATED, "owned_by": "library"});
            let cards: Vec<Value> = names().map(card).collect();
            body::json(StatusCode::OK, &json!({"object": "list", "data": cards}))
        }
        ("GET", "/api/tags") => {
            let models: Vec<Value> = names().map(|name| tag(name)).collect();
            body::json(StatusCode::OK, &json!({"models": models}))
        }
        ("GET", "/api/ps") => {
            let loaded = backend.life().state == State::Ready;
            let models: Vec<Value> = if loaded { vec![running(backend)] } else { Vec::new() };
            body::json(StatusCode::OK, &json!({"models": models}))
        }
        ("POST", "/api/show") => body::json(StatusCode::OK, &show(backend)),
        ("POST", "/v1/chat/completions") => return infer(backend, request, true).await,
        ("POST", "/v1/completions") => return infer(backend, request, false).await,
        _ => body::whole(StatusCode::NOT_FOUND, "text/plain", "404 page not found".to_owned()),
    })
}

fn tag(name: &str) -> Value {
    json!({"name": name, "model": name, "modified_at": "2026-08-21T00:00:00Z", "size": 16_000_000_000_u64,
        "digest": "", "details": details()})
}

fn details() -> Value {
    json!({"parent_model": "", "format": "gguf", "family": "qwen3", "families": ["qwen3"],
        "parameter_size": "27B", "quantization_level": "Q4_K_M"})
}

fn running(backend: &Backend) -> Value {
    let mut tag = tag(&backend.spec.model);
    tag["expires_at"] = json!("2318-12-01T00:00:00Z");
    tag["size_vram"] = json!(16_000_000_000_u64);
    tag["context_length"] = json!(backend.spec.window);
    tag
}

fn show(backend: &Backend) -> Value {
    let mut capabilities = vec!["completion"];
    capabilities.extend(backend.spec.tool_parser.then_some("tools"));
    capabilities.extend(backend.spec.vision.then_some("vision"));
    capabilities.extend(backend.spec.thinks.then_some("thinking"));
    json!({"modelfile": "", "template": "", "details": details(), "capabilities": capabilities,
        "model_info": {"general.architecture": "qwen3", "qwen3.context_length": backend.spec.window.max(262_144)}})
}

/// An error: status, type, message.
type Refusal = (StatusCode, &'static str, String);

fn refuse((status, kind, message): Refusal) -> Response<Body> {
    let error = json!({"message": message, "type": kind, "param": null, "code": null});
    body::json(status, &json!({"error": error}))
}

/// Reads an inference request, or says what is wrong with it.
fn read(backend: &Backend, request: &Request<Bytes>, chat: bool) -> Result<Inference, Refusal> {
    let invalid = |message: String| (StatusCode::BAD_REQUEST, "invalid_request_error", message);
    let mut body: Value =
        serde_json::from_slice(request.body()).map_err(|error| invalid(error.to_string()))?;
    let spec = &backend.spec;
    let model = body["model"].as_str().unwrap_or_default();
    if model.is_empty() {
        return Err(invalid("model is required".to_owned()));
    }
    if model != spec.model && !spec.aliases.iter().any(|alias| alias == model) {
        return Err((StatusCode::NOT_FOUND, "not_found_error", format!("model '{model}' not found")));
    }
    if let Some(members) = body.as_object_mut() {
        members.remove("max_completion_tokens");
        members.remove("tool_choice");
    }
    if !chat {
        return Ok(clipped(Inference::completion(&body), spec.window));
    }
    if body["messages"].as_array().is_none_or(Vec::is_empty) {
        return Err(invalid("[] is too short - 'messages'".to_owned()));
    }
    if body["tools"].as_array().is_some_and(|tools| !tools.is_empty()) && !spec.tool_parser {
        return Err(invalid(format!("{} does not support tools", spec.model)));
    }
    Ok(clipped(shortened(&body, spec.window), spec.window))
}

/// The chat without its oldest messages, as far as it must be: the system's and the last one stay.
fn shortened(body: &Value, window: usize) -> Inference {
    let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let last = messages.len().saturating_sub(1);
    let may_go: Vec<usize> = (0..last).filter(|at| messages[*at]["role"] != "system").collect();
    let without = |gone: usize| {
        let kept = (0..messages.len()).filter(|at| may_go[..gone].binary_search(at).is_err());
        let mut shorter = json!({"messages": kept.map(|at| &messages[at]).collect::<Vec<_>>()});
        for (member, value) in
            body.as_object().into_iter().flatten().filter(|(member, _)| *member != "messages")
        {
            shorter[member] = value.clone();
        }
        Inference::chat(&shorter)
    };
    let (mut fits, mut too_long) = (may_go.len(), 0);
    let whole = without(0);
    if whole.prompt_tokens() < window {
        return whole;
    }
    // the fewest that make it fit, by halving: counting is dear
    while fits - too_long > 1 {
        let middle = usize::midpoint(too_long, fits);
        if without(middle).prompt_tokens() < window {
            fits = middle;
        } else {
            too_long = middle;
        }
    }
    without(fits)
}

/// What does not fit even so is cut.
fn clipped(mut asked: Inference, window: usize) -> Inference {
    asked.prompt.clip(window.saturating_sub(1));
    asked
}

async fn infer(backend: &Arc<Backend>, request: &Request<Bytes>, chat: bool) -> Answered {
    let asked = match read(backend, request, chat) {
        Ok(asked) => asked,
        Err(refusal) => {
            refused(backend, backend.number(), refusal.0);
            return Ok(refuse(refusal));
        }
    };
    // the model loads inside the request
    backend.until(|life| life.state != State::Loading).await;
    let id = arrived(backend, &asked);
    let mut accepted = match submit(backend, id, asked) {
        Ok(accepted) => accepted,
        Err(NotRun::Status(status)) => {
            return Ok(refuse((status, "api_error", "the request was refused by the script".to_owned())));
        }
        Err(NotRun::Busy) => {
            let message = "server busy, please try again.  maximum pending requests exceeded".to_owned();
            return Ok(refuse((StatusCode::SERVICE_UNAVAILABLE, "api_error", message)));
        }
        // the process takes its sockets with it
        Err(NotRun::Dead) => return std::future::pending().await,
    };
    let pen = OllamaPen::new(&backend.spec, &accepted.asked, &mut accepted.random);
    if !accepted.asked.stream {
        return match relay::whole(backend, &mut accepted).await? {
            Some(_) => Ok(body::json(StatusCode::OK, &pen.whole(&accepted.answer))),
            None => std::future::pending().await,
        };
    }
    relay::from_decode(backend, accepted, pen, "text/event-stream").await
}
