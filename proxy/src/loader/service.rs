//! One question to a service that loads, and its answer: JSON over HTTP, bounded in bytes and in time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use http_body_util::Full;
use serde_json::Value;
use tokio::time::Instant;

use super::driver::Trouble;
use crate::backend::client::{self, ClientError, Connect};
use crate::config::Service;

/// The longest answer that is read.
const ANSWER_LIMIT: usize = 1 << 20;

/// To connect. The service is on this machine, or beside it.
const CONNECT: Duration = Duration::from_secs(2);

/// How long where backends are may take to be told: model-switch asks docker and then the backend.
pub(super) const LOOK: Duration = Duration::from_secs(15);

/// What a service said.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) status: u16,
    /// `Null` if it is no JSON.
    pub(super) body: Value,
    text: String,
}

impl Said {
    /// A member that is a text.
    pub(super) fn text(&self, member: &str) -> Option<&str> {
        self.body.get(member).and_then(Value::as_str)
    }

    /// Its words, for the log.
    pub(super) fn detail(&self) -> String {
        let text: String = self.text.chars().filter(|c| !c.is_control()).take(1000).collect();
        format!("status {}: {text}", self.status)
    }
}

/// Asks, and waits for the whole answer.
pub(super) async fn ask(
    connector: &Arc<dyn Connect>,
    service: &Service,
    name: &str,
    method: Method,
    path: &str,
    body: Option<&Value>,
    until: Instant,
) -> Result<Said, Trouble> {
    let asks = method == Method::GET;
    let asked = tokio::time::timeout_at(until, exchange(connector, service, method, path, body)).await;
    let trouble = |what: &str, detail: String| {
        Trouble::new(
            format!("{name}, which loads backends, {what}"),
            format!("{name} at {}: {detail}", service.authority),
        )
    };
    match asked {
        Ok(Ok(said)) if said.status == 401 || said.status == 403 => {
            Err(trouble("wants a key: see api_key_env in [loader]", said.detail()).before())
        }
        Ok(Ok(said)) => Ok(said),
        Ok(Err((false, detail))) if !asks => Err(trouble("broke off", detail)),
        Ok(Err((true, detail))) => Err(trouble("does not answer", detail).unreachable()),
        Ok(Err((false, detail))) => Err(trouble("does not answer", detail)),
        Err(_) => Err(trouble("does not answer in time", format!("no answer to {path} in time"))),
    }
}

async fn exchange(
    connector: &Arc<dyn Connect>,
    service: &Service,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Said, (bool, String)> {
    // Whether the request cannot have got there.
    let broken = |detail: String| (false, detail);
    let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    let mut request = Request::new(Full::new(bytes));
    *request.method_mut() = method;
    *request.uri_mut() =
        format!("{}{path}", service.prefix).parse().map_err(|_| (true, "no usable path".to_owned()))?;
    let headers = request.headers_mut();
    if let Ok(host) = HeaderValue::from_str(service.authority.as_str()) {
        headers.insert(header::HOST, host);
    }
    if body.is_some() {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    if let Some(key) = &service.key
        && let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", key.expose()))
    {
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    let sent = client::send(connector.as_ref(), &service.authority, CONNECT, request).await;
    let mut reply = sent.map_err(|error| (matches!(error, ClientError::Connect(_)), error.to_string()))?;
    let mut bytes = Vec::new();
    while let Some(piece) = reply.body.next().await {
        bytes.extend_from_slice(&piece.map_err(|error| broken(error.to_string()))?);
        if bytes.len() > ANSWER_LIMIT {
            return Err(broken(format!("an answer of more than {ANSWER_LIMIT} bytes")));
        }
    }
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let text = std::str::from_utf8(&bytes).unwrap_or("(no text)").to_owned();
    Ok(Said { status: reply.head.status.as_u16(), body, text })
}
