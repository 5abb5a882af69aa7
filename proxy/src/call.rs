//! One request as the pipeline sees it: what the client sent, read once, and where it wants to go.
//!
//! The body stays as it came; reading borrows from it. Nothing here decides anything.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use switchback_parsers::api;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::request::ChatRequest;
use tokio::time::Instant;

use crate::error::ApiError;
use crate::form;

/// An endpoint of the API, without the `/v1` that clients put before it once, twice or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Path and query as the backend gets them, `/v1` included.
    pub(crate) path: String,
    /// How its answers are read; `None`: they pass unread (embeddings, audio, counts …).
    pub(crate) dialect: Option<Dialect>,
}

impl Endpoint {
    /// The dialect in which its errors are read: what only counts a prompt belongs to an API, too.
    pub(crate) fn words(&self) -> Option<Dialect> {
        self.dialect.or_else(|| self.path.starts_with("/v1/messages/").then_some(Dialect::Messages))
    }

    /// The endpoint at a path that has lost its `/v1`.
    pub(crate) fn at(path: &str, query: Option<&str>) -> Self {
        let dialect = match path {
            "/chat/completions" => Some(Dialect::Chat),
            "/completions" => Some(Dialect::Completions),
            "/responses" => Some(Dialect::Responses),
            "/messages" => Some(Dialect::Messages),
            _ => None,
        };
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        Self { path: format!("/v1{path}{query}"), dialect }
    }
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) accepted: Instant,
    pub(crate) method: Method,
    pub(crate) endpoint: Endpoint,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The body as JSON; `None` for forms and the like.
    pub(crate) request: Option<Arc<ChatRequest>>,
    pub(crate) model: Option<String>,
    pub(crate) stream: bool,
    /// The conversation stood in `input`, as another API has it.
    pub(crate) from_input: bool,
    /// Tools that take free text; the request declares them as functions with one string.
    pub(crate) free_text: Vec<String>,
    /// Tools were left out that the client's `tool_choice` does not allow.
    pub(crate) only_allowed: bool,
}

impl Call {
    /// The same client, asking something else in the same dialect.
    pub(crate) fn asking(&self, request: ChatRequest) -> Self {
        Self { body: request.body().clone(), request: Some(Arc::new(request)), ..self.clone() }
    }

    /// It only has its prompt counted.
    pub(crate) fn counts(&self) -> bool {
        self.endpoint.path.contains("/count_tokens") || self.endpoint.path.contains("/input_tokens")
    }

    /// Reads a body.
    pub(crate) fn read(
        id: String,
        accepted: Instant,
        method: Method,
        endpoint: Endpoint,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Self, ApiError> {
        let is_form = headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().to_ascii_lowercase().starts_with(b"multipart/"));
        let (mut from_input, mut free_text, mut only_allowed) = (false, Vec::new(), false);
        let request = if is_form && endpoint.dialect.is_none() {
            None
        } else {
            let mut request = ChatRequest::parse(body.clone()).map_err(|error| refused(&error))?;
            if endpoint.dialect == Some(Dialect::Chat) {
                let not_chat =
                    |error: api::NotChat| ApiError::invalid_body(error.to_string(), Some(error.param));
                if let Some(chat) = api::as_chat(&request).map_err(not_chat)? {
                    request = ChatRequest::parse(chat.body.into()).map_err(|error| refused(&error))?;
                    (from_input, free_text) = (chat.from_input, chat.free_text);
                }
                if let Some(allowed) = api::only_allowed(&request).map_err(not_chat)? {
                    request = ChatRequest::parse(allowed).map_err(|error| refused(&error))?;
                    only_allowed = true;
                }
                request.check_chat().map_err(|error| refused(&error))?;
            }
            Some(Arc::new(request))
        };
        let model = match &request {
            Some(request) => request.model().map(std::borrow::Cow::into_owned),
            None => form::field(headers.get(header::CONTENT_TYPE), &body, "model"),
        };
        let stream = request.as_ref().is_some_and(|request| request.stream());
        let body = request.as_ref().map_or(body, |request| request.body().clone());
        Ok(Self {
            id,
            accepted,
            method,
            endpoint,
            headers,
            body,
            request,
            model,
            stream,
            from_input,
            free_text,
            only_allowed,
        })
    }
}

fn refused(error: &switchback_parsers::request::RequestError) -> ApiError {
    ApiError::invalid_body(error.to_string(), error.param().map(|param| param.to_string()))
}
