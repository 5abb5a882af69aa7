//! Errors for clients: the one place that chooses a status and words a refusal, in every dialect.
//!
//! An error says what happened, the number, the limit and the way out. It never shows a backend's internals, a key, or a
//! path of this machine. Before the head it is a response with a true status; after the head an event of the dialect.
//!
//! Codes, besides those of OpenAI (`context_length_exceeded`, `model_not_found`, `invalid_api_key`):
//!
//! | code | status | meaning |
//! |---|---|---|
//! | `invalid_body` | 400 | the body is no JSON object, or a member has the wrong kind |
//! | `body_too_large` | 413 | longer than `max_body`, or than every backend takes |
//! | `body_timeout` | 408 | the body stopped arriving |
//! | `headers_too_large` | 431 | too many header fields |
//! | `model_not_allowed` | 403 | the client may use none of the backends that serve the model |
//! | `host_not_allowed`, `origin_not_allowed` | 403 | a web page or a name that this proxy was not opened for |
//! | `not_found`, `method_not_allowed` | 404, 405 | no such path, or not with that method |
//! | `images_not_supported` | 400 | no backend reads images |
//! | `overflow_loop`, `failure_loop` | 400 | the session overflowed, or failed, again and again |
//! | `refused_by_backend` | 400 | a backend found a mistake in the request; its words follow |
//! | `no_backend` | 503 | nobody who could serve this is up |
//! | `not_loaded` | 503 | who could serve this is not loaded: the load failed, takes too long, or is not this request's to ask for |
//! | `queue_full`, `wait_too_long` | 503 | no place at a backend within the bounds; `Retry-After` is the expected wait |
//! | `budget_spent` | 429 | the client has used up its tokens; `Retry-After` says until when |
//! | `own_fault` | 500 | a fault of the proxy itself |
//! | `goes_in_circles` | 508 | backends are proxies that point at each other |
//! | `backend_failed` | 502 | all attempts failed |
//! | `backend_refuses_key` | 502 | the backends do not take the key that they are asked with |
//! | `backend_timeout` | 504 | no token in time, and nobody else left |
//! | `answer_cut` | in a stream | the backend failed after content was shown |

mod admission;
mod event;
mod loading;
mod presentable;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use switchback_parsers::chunk::Dialect;
use switchback_policies::failover::Fault;

use self::presentable::presentable;
use crate::answer::body::{Body, full};

/// An error as a client gets it.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    pub(crate) code: &'static str,
    // Boxed, since every fallible step carries it.
    words: Box<Words>,
}

/// What a refusal's response carries for the log.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

#[derive(Clone, Debug)]
struct Words {
    kind: &'static str,
    param: Option<String>,
    message: String,
    hint: Option<String>,
    /// Seconds.
    retry_after: Option<u64>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    param: Option<&'a str>,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        let words = Words { kind, param: None, message: message.into(), hint: None, retry_after: None };
        Self { status, code, words: Box::new(words) }
    }

    fn invalid(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", code, message)
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.words.hint = Some(hint.into());
        self
    }

    fn param(mut self, param: Option<impl Into<String>>) -> Self {
        self.words.param = param.map(Into::into);
        self
    }

    /// The body is not what the path takes.
    pub(crate) fn invalid_body(message: impl Into<String>, param: Option<String>) -> Self {
        Self::invalid(StatusCode::BAD_REQUEST, "invalid_body", message).param(param)
    }

    /// The body is longer than the limit (both in bytes; the size is known only if the client announced it).
    pub(crate) fn body_too_large(size: Option<u64>, limit: usize) -> Self {
        let size = size.map_or_else(|| format!("more than {limit}"), |size| size.to_string());
        let message = format!("body has {size} bytes, the limit is {limit}");
        Self::invalid(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
            .hint("shorten the conversation, or raise max_body in [server]")
    }

    /// Longer than every backend takes.
    pub(crate) fn body_refused(size: usize) -> Self {
        let message = format!("body has {size} bytes, and no backend takes so many: each answered 413");
        Self::invalid(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
            .hint("shorten the conversation, or raise the limit of the server that stands before the backend")
    }

    /// No byte of the body for too long.
    pub(crate) fn body_timeout(seconds: f64) -> Self {
        let message = format!("no byte of the body arrived for {seconds} s");
        Self::invalid(StatusCode::REQUEST_TIMEOUT, "body_timeout", message)
    }

    /// More header fields than any client sends.
    pub(crate) fn headers_too_large(fields: usize, limit: usize) -> Self {
        let message = format!("request has {fields} header fields, the limit is {limit}");
        Self::invalid(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", message)
    }

    /// The body ended before it was complete.
    pub(crate) fn body_broken() -> Self {
        Self::invalid(
            StatusCode::BAD_REQUEST,
            "invalid_body",
            "the connection failed before the body was complete",
        )
    }

    /// No key, or a wrong one.
    pub(crate) fn unauthorized(offered: bool) -> Self {
        let message =
            if offered { "the api key is not one of this proxy's keys" } else { "no api key was sent" };
        Self::invalid(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
            .hint("send it as `authorization: Bearer KEY` or `x-api-key: KEY`")
    }

    /// A Host name that is not this machine's, while no keys are set.
    pub(crate) fn host_not_allowed(host: &str) -> Self {
        let host: String = host.chars().filter(|c| !c.is_control()).take(80).collect();
        let message = format!("host `{host}` is not served: without api keys only loopback names are");
        Self::invalid(StatusCode::FORBIDDEN, "host_not_allowed", message)
            .hint("use http://127.0.0.1, set api keys, or set open = true in [server]")
    }

    /// A web page from elsewhere.
    pub(crate) fn origin_not_allowed(origin: &str) -> Self {
        let origin: String = origin.chars().filter(|c| !c.is_control()).take(120).collect();
        let message = format!("web pages from `{origin}` are not allowed");
        Self::invalid(StatusCode::FORBIDDEN, "origin_not_allowed", message)
            .hint("add it to allowed_origins in [server]")
    }

    /// No such path.
    pub(crate) fn not_found(path: &str) -> Self {
        let path: String = path.chars().filter(|c| !c.is_control()).take(120).collect();
        Self::invalid(StatusCode::NOT_FOUND, "not_found", format!("there is no path `{path}`"))
            .hint("the base url ends in /v1, e.g. http://127.0.0.1:4000/v1")
    }

    /// The path exists, with another method.
    pub(crate) fn method_not_allowed(method: &str, path: &str) -> Self {
        let path: String = path.chars().filter(|c| !c.is_control()).take(120).collect();
        Self::invalid(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            format!("`{path}` does not take {method}"),
        )
    }

    /// A model that nobody serves; `known` are the names that are served.
    pub(crate) fn model_not_found(model: &str, known: &[String], near: Option<&str>) -> Self {
        let model: String = model.chars().filter(|c| !c.is_control()).take(120).collect();
        let message = format!("model `{model}` is not served here; served: {}", known.join(", "));
        let hint = near.map_or_else(
            || "`auto` takes the first backend that fits".to_owned(),
            |near| format!("did you mean `{near}`?"),
        );
        Self::invalid(StatusCode::NOT_FOUND, "model_not_found", message).param(Some("model")).hint(hint)
    }

    /// The client may use none of the backends that serve the model.
    pub(crate) fn not_for_client() -> Self {
        let message = "this client may use none of the backends that serve the model";
        Self::invalid(StatusCode::FORBIDDEN, "model_not_allowed", message)
            .param(Some("model"))
            .hint("see backends under [[client]] in the configuration")
    }

    /// Another model would have to be loaded in place of the one that runs, and the client may not do that.
    pub(crate) fn may_not_swap(model: Option<&str>) -> Self {
        let model = presentable(model.unwrap_or("the model"));
        let message =
            format!("{model} is not loaded, and this client may not have another model unloaded for it");
        Self::invalid(StatusCode::FORBIDDEN, "model_not_allowed", message)
            .param(Some("model"))
            .hint("ask for a model that is loaded, or set may_swap = true under [[client]]")
    }

    /// The prompt is longer than any backend carries. The wording holds both phrases that clients look for before they
    /// shorten a conversation by themselves; the numbers are plain, since clients parse them.
    pub(crate) fn context_length_exceeded(tokens: u64, limit: u64, hint: Option<String>) -> Self {
        let message = format!(
            "prompt is too long: {tokens} tokens > {limit} maximum. This model's maximum context length is {limit} tokens. \
             However, your messages resulted in {tokens} tokens. Please reduce the length of the messages."
        );
        let mut error = Self::invalid(StatusCode::BAD_REQUEST, "context_length_exceeded", message)
            .param(Some("messages"));
        error.words.hint = hint;
        error
    }

    /// A session that overflowed again and again: in words that no client takes for an overflow.
    pub(crate) fn overflow_loop(count: usize, seconds: u64) -> Self {
        let message = format!(
            "this session had {count} refusals within {seconds} s because it does not fit; shortening it did not help, so it \
             is stopped here"
        );
        Self::invalid(StatusCode::BAD_REQUEST, "overflow_loop", message)
            .hint("start a new conversation, or use a backend with a larger window")
    }

    /// A session that failed again and again. Not a 5xx: the client would send the same prompt again.
    pub(crate) fn failure_loop(count: usize, seconds: u64) -> Self {
        let message = format!(
            "this session failed {count} times within {seconds} s; it is stopped here, so that the same prompt is not read \
             again and again"
        );
        Self::invalid(StatusCode::BAD_REQUEST, "failure_loop", message)
            .hint("look at the backends' logs, and send it again then")
    }

    /// Only images stand in the way.
    pub(crate) fn images_not_supported() -> Self {
        Self::invalid(
            StatusCode::BAD_REQUEST,
            "images_not_supported",
            "no backend of this model reads images",
        )
        .param(Some("messages"))
    }

    /// A backend found a mistake in the request.
    pub(crate) fn refused_by_backend(message: &str, param: Option<&str>) -> Self {
        let param = param.filter(|param| {
            param.len() <= 64
                && param.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-[]".contains(&byte))
        });
        Self::invalid(StatusCode::BAD_REQUEST, "refused_by_backend", presentable(message)).param(param)
    }

    /// Nobody serves this path.
    pub(crate) fn path_not_served(path: &str) -> Self {
        let message = format!("no backend of this model serves `{path}`");
        Self::invalid(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// Nobody who could serve the request is up.
    pub(crate) fn no_backend(message: impl Into<String>, hint: impl Into<String>, retry_after: u64) -> Self {
        let mut error =
            Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "no_backend", message).hint(hint);
        error.words.retry_after = Some(retry_after);
        error
    }

    /// There is no backend at all: nothing is configured, and nobody was found.
    pub(crate) fn nobody_configured(ports: &[u16]) -> Self {
        let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
        let message = format!("no backend was found; looked on the local ports {}", ports.join(", "));
        Self::no_backend(
            message,
            "start one, or name it in switchback.toml; `switchback demo` needs none",
            10,
        )
    }

    /// A fault of the proxy itself.
    pub(crate) fn own_fault() -> Self {
        let message = "the proxy failed on this request; its log says where";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "own_fault", message)
    }

    /// A request that has been here before: backends that are proxies point at each other.
    pub(crate) fn goes_in_circles(hops: usize) -> Self {
        let message = format!(
            "the request came through {hops} proxies of this kind: their backends point at each other"
        );
        Self::new(StatusCode::LOOP_DETECTED, "server_error", "goes_in_circles", message)
            .hint("a backend's url must be an inference server's, not this proxy's")
    }

    /// All attempts failed.
    pub(crate) fn backend_failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "server_error", "backend_failed", message)
    }

    /// The backends do not take the key that the operator gave for them.
    pub(crate) fn backend_refuses_key(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "server_error", "backend_refuses_key", message)
            .hint("see api_key_env under [[backend]]")
    }

    /// Nobody produced a token in time.
    pub(crate) fn backend_timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "server_error", "backend_timeout", message)
    }

    /// The backend failed after content was shown: the answer above is not complete.
    pub(crate) fn answer_cut(backend: &str, fault: Fault) -> Self {
        let message = format!(
            "the answer is not complete: backend {backend} failed ({fault}) after a part had been sent"
        );
        Self::new(StatusCode::BAD_GATEWAY, "server_error", "answer_cut", message)
    }

    /// Whether it is an overflow, which a session may loop on.
    pub(crate) fn is_overflow(&self) -> bool {
        self.code == "context_length_exceeded"
    }

    /// Whether it stays as it is however often it is sent, until somebody sees to it.
    fn is_hopeless(&self) -> bool {
        matches!(self.code, "backend_refuses_key" | "goes_in_circles")
    }

    /// Whether backends read the prompt for it in vain.
    pub(crate) fn cost_a_prefill(&self) -> bool {
        matches!(self.code, "backend_failed" | "backend_timeout")
    }

    /// The error object's JSON, without its envelope. Messages has words of its own for what is the server's fault.
    fn object(&self, dialect: Option<Dialect>) -> Vec<u8> {
        let kind = match (dialect, self.words.kind) {
            (Some(Dialect::Messages), "server_error") if self.status == StatusCode::SERVICE_UNAVAILABLE => {
                "overloaded_error"
            }
            (Some(Dialect::Messages), "server_error") => "api_error",
            (_, kind) => kind,
        };
        let object = ErrorObject {
            message: &self.words.message,
            kind,
            param: self.words.param.as_deref(),
            code: self.code,
            hint: self.words.hint.as_deref(),
        };
        serde_json::to_vec(&object).unwrap_or_default()
    }

    /// As a whole body. Anthropic's clients want a `type` beside the error.
    pub(crate) fn body(&self, dialect: Option<Dialect>) -> Bytes {
        let start: &[u8] =
            if dialect == Some(Dialect::Messages) { br#"{"type":"error","error":"# } else { br#"{"error":"# };
        [start, &self.object(dialect), b"}"].concat().into()
    }

    /// As a whole response.
    pub(crate) fn response(&self, dialect: Option<Dialect>) -> Response<Body> {
        let mut response = Response::new(full(self.body(dialect)));
        *response.status_mut() = self.status;
        response.extensions_mut().insert(Refused { code: self.code, message: self.words.message.clone() });
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.words.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.is_hopeless() {
            // OpenAI's and Anthropic's SDKs send a 5xx again unless they are told not to.
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }

    /// The way out, if there is one.
    pub(crate) fn hint_text(&self) -> Option<&str> {
        self.words.hint.as_deref()
    }

    /// For the log: one line.
    pub(crate) fn message(&self) -> &str {
        &self.words.message
    }
}
