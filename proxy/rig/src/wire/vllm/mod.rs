//! vLLM's routes.
//!
//! Order matters here as there: the head of a stream leaves before the request is even scheduled, so it says nothing
//! about prefill. It must never check a request (`checks.rs`) or write a chunk (`pen.rs`).

mod checks;
mod messages;
mod metrics;
mod pen;
mod responses;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use serde_json::{Value, json};

use checks::Refusal;
use messages::MessagesPen;
use pen::{Shape, VllmPen};
use responses::ResponsesPen;

use super::{
    Accepted, Answered, Body, Broken, CREATED, NotRun, arrived, body, path, refused, relay, relay::Pen,
    submit,
};
use crate::{
    answer::Answer,
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
        ("POST", "/v1/messages") => return infer(backend, request, Shape::Messages).await,
        ("POST", "/v1/responses") => return infer(backend, request, Shape::Responses).await,
        (_, "/health" | "/version" | "/load" | "/v1/models" | "/metrics") => wrong_method("GET"),
        (_, "/tokenize" | "/v1/chat/completions" | "/v1/completions" | "/v1/messages" | "/v1/responses") => {
            wrong_method("POST")
        }
        _ => body::json(StatusCode::NOT_FOUND, &json!({"detail": "Not Found"})),
    })
}

fn wrong_method(allowed: &'static str) -> Response<Body> {
    let mut answer = body::json(StatusCode::METHOD_NOT_ALLOWED, &json!({"detail": "Method Not Allowed"}));
    answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    answer
}

async fn infer(backend: &Arc<Backend>, request: &Request<Bytes>, shape: Shape) -> Answered {
    let checked = match shape {
        Shape::Chat | Shape::Completion => checks::inference(&backend.spec, request, shape),
        Shape::Messages => in_chats_words(request, messages::to_chat)
            .and_then(|request| checks::inference(&backend.spec, &request, Shape::Chat)),
        Shape::Responses => in_chats_words(request, responses::to_chat)
            .and_then(|request| checks::inference(&backend.spec, &request, Shape::Chat)),
    };
    let asked = match checked {
        Ok(asked) => asked,
        Err(refusal) => {
            refused(backend, backend.number(), refusal.status);
            return Ok(refusal.answer_in(shape));
        }
    };
    let id = arrived(backend, &asked);
    if let Err(refusal) = checks::length(&backend.spec, &asked) {
        refused(backend, id, refusal.status);
        return Ok(refusal.answer_in(shape));
    }
    let mut accepted = match submit(backend, id, asked) {
        Ok(accepted) => accepted,
        Err(NotRun::Busy) => return Ok(Refusal::scripted(StatusCode::SERVICE_UNAVAILABLE).answer_in(shape)),
        Err(NotRun::Status(status)) => return Ok(Refusal::scripted(status).answer_in(shape)),
        Err(NotRun::Dead) if backend.spec.aborts() => return Err(Broken),
        Err(NotRun::Dead) => {
            backend.hasten();
            return Ok(Refusal::engine_dead().answer_in(shape));
        }
    };
    let name = name(&mut accepted, request, shape);
    let (model, prompt) = (backend.spec.model.clone(), accepted.asked.prompt_tokens());
    match shape {
        Shape::Chat | Shape::Completion => {
            let pen = VllmPen::new(&backend.spec, shape, name, &accepted.asked);
            say(backend, accepted, pen, shape, |pen, answer| pen.whole(answer)).await
        }
        Shape::Messages => {
            let pen = MessagesPen::new(name, model, prompt);
            say(backend, accepted, pen, shape, |pen, answer| pen.whole(answer)).await
        }
        Shape::Responses => {
            let pen = ResponsesPen::new(name, model, prompt);
            say(backend, accepted, pen, shape, ResponsesPen::whole).await
        }
    }
}

/// The same request with another body.
fn in_chats_words(
    request: &Request<Bytes>,
    to_chat: impl Fn(&Value) -> Value,
) -> Result<Request<Bytes>, Refusal> {
    let body = to_chat(&checks::json(request)?);
    let mut chat = request.clone();
    *chat.body_mut() = Bytes::from(body.to_string());
    Ok(chat)
}

async fn say<P: Pen + Send + 'static>(
    backend: &Arc<Backend>,
    mut accepted: Accepted,
    pen: P,
    shape: Shape,
    whole: impl Fn(P, &Answer) -> Value,
) -> Answered {
    if accepted.asked.stream {
        let backend = Arc::clone(backend);
        let stream = body::stream(|out| relay::relay(backend, accepted, pen, out));
        return Ok(body::typed(StatusCode::OK, "text/event-stream; charset=utf-8", stream));
    }
    Ok(match relay::whole(backend, &mut accepted).await? {
        Some(_) => body::json(StatusCode::OK, &whole(pen, &accepted.answer)),
        // the process takes its sockets with it
        None if backend.spec.aborts() => return std::future::pending().await,
        None => {
            backend.hasten();
            Refusal::engine_dead().answer_in(shape)
        }
    })
}

/// The answer's name: from the client's `X-Request-Id`, or its own.
fn name(accepted: &mut Accepted, request: &Request<Bytes>, shape: Shape) -> String {
    let prefix = match shape {
        Shape::Chat | Shape::Messages => "chatcmpl-",
        Shape::Completion => "cmpl-",
        Shape::Responses => "resp_",
    };
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
