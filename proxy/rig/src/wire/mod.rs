//! The wire: HTTP requests in, HTTP answers out, as the real servers send them.
//!
//! Shapes come from captures of vLLM 0.32.0 and of llama.cpp's server (build 11434), member by member, in their
//! order; those of the other engines from their source. One folder an engine; what they share is here. A wire reads a request, refuses what its engine
//! refuses, hands the work to the engine and says the answer. It must never decide how long anything takes.

mod body;
mod control;
mod llama;
mod ollama;
mod relay;
mod sglang;
mod vllm;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde_json::Value;

pub(crate) use body::{Body, json};

use crate::{
    Engine, EventKind,
    answer::{Answer, Token},
    backend::Backend,
    cache::Chain,
    inference::Inference,
    random::Random,
    script::Step,
    ticket::{Job, Ticket},
};

/// The connection breaks here, without an answer or without its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the simulated server broke the connection")
    }
}

impl std::error::Error for Broken {}

/// What a handler comes to; an error breaks the connection.
pub(crate) type Answered = Result<Response<Body>, Broken>;

/// The real servers take more; a rig must not be filled.
const LARGEST_BODY: usize = 64 << 20;

/// A fixed time of birth for all answers, so that equal seeds give equal bytes.
pub(crate) const CREATED: u64 = 1_796_088_446;

/// Answers one HTTP request.
pub(crate) async fn answer(backend: Arc<Backend>, request: Request<Incoming>) -> Answered {
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, LARGEST_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            let message = format!("the rig takes bodies of up to {LARGEST_BODY} bytes");
            return Ok(body::text(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        Err(_) => return Err(Broken),
    };
    let request = Request::from_parts(head, body);
    if let Some(answer) = control::answer(&backend, &request) {
        return Ok(answer);
    }
    let mut answer = match backend.spec.engine {
        Engine::Vllm => vllm::answer(&backend, &request).await,
        Engine::LlamaCpp | Engine::IkLlama => llama::answer(&backend, &request).await,
        Engine::Sglang => sglang::answer(&backend, &request).await,
        Engine::Ollama => ollama::answer(&backend, &request).await,
    }?;
    if let Some(name) = backend.spec.engine.server() {
        answer.headers_mut().insert(header::SERVER, HeaderValue::from_static(name));
    }
    Ok(answer)
}

/// An inference request that its engine accepts, on its way through the backend.
pub(crate) struct Accepted {
    pub(crate) answer: Answer,
    pub(crate) ticket: Ticket,
    pub(crate) asked: Inference,
    /// The boot of the process that runs it.
    pub(crate) boot: u64,
    /// Numbers for the identifiers of this answer.
    pub(crate) random: Random,
}

/// Why an accepted request does not run.
pub(crate) enum NotRun {
    /// The script says so.
    Status(StatusCode),
    /// Too many wait.
    Busy,
    /// The engine is dead.
    Dead,
}

/// Takes the script's step for a request that passed all checks, writes its answer and hands the work in.
pub(crate) fn submit(backend: &Backend, id: u64, asked: Inference) -> Result<Accepted, NotRun> {
    let spec = &backend.spec;
    let step = backend.script.lock().take(!asked.tools.is_empty());
    if let Step::Http(code) = step {
        let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        refused(backend, id, status);
        return Err(NotRun::Status(status));
    }
    if spec.faults.busy_above.is_some_and(|most| backend.gpu.load().waiting >= most) {
        refused(backend, id, StatusCode::SERVICE_UNAVAILABLE);
        return Err(NotRun::Busy);
    }
    let limit = asked.output_limit(spec.window);
    let answer = Answer::new(spec, &asked, &step, limit);
    let chain = match spec.prefix_cache {
        Some(_) => asked.prompt.clone().chain(answer.tokens.iter().map(Token::text)),
        None => Chain::default(),
    };
    let job = Job {
        id,
        prompt_tokens: asked.prompt_tokens(),
        output_tokens: answer.tokens.len(),
        ending: answer.ending,
        seed: answer.seed,
        chain,
        conversation: asked.prompt.conversation,
        deadly: step == Step::Dead,
    };
    let Some(ticket) = backend.gpu.submit(job) else {
        refused(backend, id, StatusCode::INTERNAL_SERVER_ERROR);
        return Err(NotRun::Dead);
    };
    let random = Random::new(spec.seed ^ id.rotate_left(32));
    Ok(Accepted { answer, ticket, asked, boot: backend.life().boot, random })
}

/// Writes the arrival of an inference request down; returns its number.
pub(crate) fn arrived(backend: &Backend, asked: &Inference) -> u64 {
    let id = backend.number();
    let arrived = EventKind::Arrived { prompt_tokens: asked.prompt_tokens(), stream: asked.stream };
    backend.log.write(backend.clock.now(), Some(id), arrived);
    id
}

/// Writes down that it is answered with an error.
pub(crate) fn refused(backend: &Backend, id: u64, status: StatusCode) {
    backend.log.write(backend.clock.now(), Some(id), EventKind::Refused { status: status.as_u16() });
}

/// One server-sent event.
pub(crate) fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// The path without its query.
pub(crate) fn path(request: &Request<Bytes>) -> (&str, &str) {
    (request.method().as_str(), request.uri().path())
}

/// Simulated seconds as the milliseconds that engines report.
pub(crate) fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e3
}
