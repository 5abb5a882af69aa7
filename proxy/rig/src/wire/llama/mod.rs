//! llama.cpp's routes and refusals, and where ik_llama.cpp's (from source) differ.
//!
//! While it loads, every path answers 503. The head of a stream leaves when a slot takes the request: later than
//! vLLM's under load, still before prefill; ik_llama's comes with the first token. It must never write a chunk
//! (`pen.rs`) or show slots (`state.rs`).

mod pen;
mod state;

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};

use pen::LlamaPen;

use super::{Answered, Body, Broken, NotRun, arrived, body, path, refused, relay, submit};
use crate::{
    Engine, Phase,
    backend::{Backend, State},
    inference::{Inference, ToolChoice},
    random::hash,
    ticket::End,
    tokens::pieces,
};

const JSON: &str = "application/json; charset=utf-8";

pub(super) async fn answer(backend: &Arc<Backend>, request: &Request<Bytes>) -> Answered {
    let ik = backend.spec.engine == Engine::IkLlama;
    match backend.life().state {
        State::Ready => {}
        State::Loading if ik && matches!(path(request).1, "/v1/models" | "/models") => {}
        State::Loading => {
            let error = json!({"message": "Loading model", "type": "unavailable_error", "code": 503});
            return Ok(say(StatusCode::SERVICE_UNAVAILABLE, &json!({"error": error})));
        }
        State::Down | State::Dead { .. } => return Err(Broken),
    }
    Ok(match path(request) {
        ("GET", "/health") if ik => {
            // it goes through the engine's own queue
            backend.gpu.between_steps().await;
            say(StatusCode::OK, &state::ik_health(backend))
        }
        ("GET", "/version") if ik => {
            say(StatusCode::OK, &json!({"version": backend.spec.version(), "features": {}}))
        }
        ("GET", "/health" | "/v1/health") => say(StatusCode::OK, &json!({"status": "ok"})),
        ("GET", "/v1/models" | "/models") => say(StatusCode::OK, &state::models(&backend.spec)),
        ("GET", "/props") => say(StatusCode::OK, &state::props(&backend.spec)),
        ("GET", "/slots") => state::slots(backend, request.uri().query()),
        ("GET", "/metrics") => state::metrics(backend),
        ("POST", "/tokenize") => tokenize(request),
        ("POST", "/v1/chat/completions/input_tokens" | "/chat/completions/input_tokens") if !ik => {
            count(backend, request)
        }
        ("POST", "/v1/chat/completions" | "/chat/completions") => return infer(backend, request, true).await,
        ("POST", "/v1/completions") => return infer(backend, request, false).await,
        _ => {
            let error = json!({"message": "File Not Found", "type": "not_found_error", "code": 404});
            say(StatusCode::NOT_FOUND, &json!({"error": error}))
        }
    })
}

/// A JSON answer.
pub(super) fn say(status: StatusCode, value: &Value) -> Response<Body> {
    body::whole(status, JSON, value.to_string())
}

/// An error: status, type, message.
type Refusal = (StatusCode, &'static str, String);

fn refuse((status, kind, message): Refusal) -> Response<Body> {
    say(status, &json!({"error": {"code": status.as_u16(), "message": message, "type": kind}}))
}

fn invalid(message: impl Into<String>) -> Refusal {
    (StatusCode::BAD_REQUEST, "invalid_request_error", message.into())
}

/// Reads an inference request, or says what is wrong with it.
fn read(backend: &Backend, request: &Request<Bytes>, chat: bool) -> Result<Inference, Refusal> {
    let body: Value = serde_json::from_slice(request.body()).map_err(|error| {
        invalid(format!(
            "[json.exception.parse_error.101] parse error at line {}, column {}: syntax error while parsing value",
            error.line(),
            error.column()
        ))
    })?;
    let needed = if chat { "messages" } else { "prompt" };
    match &body[needed] {
        Value::Null => return Err(invalid(format!("'{needed}' is required"))),
        Value::Array(_) => {}
        _ if chat => return Err(invalid("Expected 'messages' to be an array")),
        _ => {}
    }
    if body["max_tokens"].is_string() {
        let message =
            "Field 'max_tokens': [json.exception.type_error.302] type must be number, but is string";
        return Err(invalid(message));
    }
    if !chat {
        return Ok(Inference::completion(&body));
    }
    if let Some(choice) = body["tool_choice"].as_str()
        && !["auto", "required", "none"].contains(&choice)
    {
        return Err(invalid(format!("Invalid tool_choice: {choice}")));
    }
    let mut asked = Inference::chat(&body);
    if body["tool_choice"].is_object() {
        // a named function has the wrong type there, and silently becomes the default
        asked.tool_choice = ToolChoice::Auto;
    }
    if asked.images > 0 && !backend.spec.vision {
        let hint =
            "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj";
        return Err((StatusCode::INTERNAL_SERVER_ERROR, "server_error", hint.to_owned()));
    }
    Ok(asked)
}

async fn infer(backend: &Arc<Backend>, request: &Request<Bytes>, chat: bool) -> Answered {
    let asked = match read(backend, request, chat) {
        Ok(asked) => asked,
        Err(refusal) => {
            refused(backend, backend.number(), refusal.0);
            return Ok(refuse(refusal));
        }
    };
    let id = arrived(backend, &asked);
    let (tokens, window) = (asked.prompt_tokens(), backend.spec.window);
    let ik = backend.spec.engine == Engine::IkLlama;
    if tokens >= window && ik {
        refused(backend, id, StatusCode::INTERNAL_SERVER_ERROR);
        let message = "the request exceeds the available context size, try increasing it".to_owned();
        return Ok(refuse((StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)));
    }
    if tokens >= window {
        refused(backend, id, StatusCode::BAD_REQUEST);
        let message = format!(
            "request ({tokens} tokens) exceeds the available context size ({window} tokens), try increasing it"
        );
        let error = json!({
            "code": 400, "message": message, "type": "exceed_context_size_error", "n_prompt_tokens": tokens,
            "n_ctx": window,
        });
        return Ok(say(StatusCode::BAD_REQUEST, &json!({"error": error})));
    }
    let mut accepted = match submit(backend, id, asked) {
        Ok(accepted) => accepted,
        Err(NotRun::Status(status)) => return Ok(refuse(scripted(status))),
        Err(NotRun::Busy) => return Ok(refuse(scripted(StatusCode::SERVICE_UNAVAILABLE))),
        Err(NotRun::Dead) => return Err(Broken),
    };
    let pen = LlamaPen::new(&backend.spec, &accepted.asked, &mut accepted.random);
    if !accepted.asked.stream {
        return match relay::whole(backend, &mut accepted).await? {
            Some(progress) => Ok(say(StatusCode::OK, &pen.whole(&accepted.answer, &progress))),
            // the process takes its sockets with it
            None => std::future::pending().await,
        };
    }
    let headed = if ik { Phase::Decode } else { Phase::Prefill };
    let begun = accepted.ticket.until(|progress| progress.phase >= headed).await;
    if begun.end == Some(End::Died) {
        return std::future::pending().await;
    }
    let backend = Arc::clone(backend);
    let stream = body::stream(|out| relay::relay(backend, accepted, pen, out));
    Ok(body::typed(StatusCode::OK, "text/event-stream", stream))
}

fn scripted(status: StatusCode) -> Refusal {
    let kind = match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        501 => "not_supported_error",
        503 => "unavailable_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    let message = match status.as_u16() {
        503 => "Loading model",
        500.. => "Compute error.",
        _ => "The request was refused by the script.",
    };
    (status, kind, message.to_owned())
}

/// The exact count of a chat request.
fn count(backend: &Backend, request: &Request<Bytes>) -> Response<Body> {
    match read(backend, request, true) {
        Ok(asked) => {
            let counted = json!({"input_tokens": asked.prompt_tokens(), "object": "response.input_tokens"});
            say(StatusCode::OK, &counted)
        }
        Err(refusal) => refuse(refusal),
    }
}

/// `{content, with_pieces}`, without a template.
fn tokenize(request: &Request<Bytes>) -> Response<Body> {
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    let number = |piece: &str| hash(piece.as_bytes()) % 151_643;
    let tokens: Vec<Value> = pieces(body["content"].as_str().unwrap_or_default())
        .map(|piece| match body["with_pieces"] {
            Value::Bool(true) => json!({"id": number(piece), "piece": piece}),
            _ => json!(number(piece)),
        })
        .collect();
    say(StatusCode::OK, &json!({"tokens": tokens}))
}
