//! The demo's client: sends a streamed chat, reads the answer to its end, tells what a program would have got.
//!
//! It reads as strictly as a careful client does: an error event, a lost connection or a missing finish reason is a
//! failure. It must never know whether a machine or the proxy is at the other end.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::Full;
use serde_json::Value;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::sse::{SseDecoder, SseFrame};
use switchback_rig::Clock;
use tokio::sync::oneshot;

use crate::backend::client::{self, Tcp};

/// What a client got to see.
#[derive(Default)]
pub(super) struct Told {
    /// Who answered, if the answer says so: only the proxy's does.
    pub(super) backend: Option<String>,
    pub(super) chunks: usize,
    /// Simulated seconds to the first content.
    pub(super) first: f64,
    /// Between one piece of content and the next.
    pub(super) gaps: Vec<f64>,
    pub(super) text: String,
    pub(super) calls: Vec<Called>,
    pub(super) reason: String,
}

/// A tool call, put together from its pieces.
#[derive(Default)]
pub(super) struct Called {
    pub(super) name: String,
    pub(super) arguments: String,
}

/// Sends a streamed chat and reads its answer to the end. `begun` is told of the first content.
pub(super) async fn ask(
    clock: &Clock,
    to: &Authority,
    body: Bytes,
    mut begun: Option<oneshot::Sender<()>>,
) -> Result<Told, String> {
    let sent = clock.now();
    let mut reply =
        send(to, Method::POST, "/v1/chat/completions", body).await.map_err(|error| error.to_string())?;
    let backend = reply.head.headers.get("x-switchback-backend").and_then(|name| name.to_str().ok());
    let status = reply.head.status.as_u16();
    let mut told = Told { backend: backend.map(str::to_owned), ..Told::default() };
    let (mut frames, mut last) = (SseDecoder::new(), sent);
    let mut refusal = Vec::new();
    while let Some(piece) = reply.body.next().await {
        let piece =
            piece.map_err(|error| format!("connection lost after {} chunks: {error}", told.chunks))?;
        if status != 200 {
            refusal.extend_from_slice(&piece);
            continue;
        }
        frames.push(piece).map_err(|error| error.to_string())?;
        while let Some(frame) = frames.next_frame() {
            let said = Dialect::Chat.read_frame(&frame);
            if said.error {
                return Err(format!("an error event after {} chunks under status {status}", told.chunks));
            }
            if said.content {
                let now = clock.now();
                if told.chunks > 0 {
                    told.gaps.push(now - last);
                }
                last = now;
                if told.chunks == 0 {
                    told.first = now - sent;
                    if let Some(begun) = begun.take() {
                        // Nobody waits if the other request has already ended.
                        let _ = begun.send(());
                    }
                }
                told.chunks += 1;
            }
            told.take(&frame);
        }
    }
    match (status, told.reason.is_empty()) {
        (200, false) => Ok(told),
        (200, true) => Err("the answer has no end".to_owned()),
        _ => Err(format!("status {status}{}", reason(&refusal))),
    }
}

/// The first sentence of an error body.
fn reason(body: &[u8]) -> String {
    let body: Option<Value> = serde_json::from_slice(body).ok();
    let message = body.as_ref().and_then(|body| body.pointer("/error/message")).and_then(Value::as_str);
    let sentence = message.and_then(|text| text.split(". ").next());
    sentence.map(|text| format!(": {text}")).unwrap_or_default()
}

impl Told {
    /// Appends what a frame says, as the clients' own libraries do.
    fn take(&mut self, frame: &SseFrame) {
        let Some(chunk) = frame.data().and_then(|data| serde_json::from_slice::<Value>(&data).ok()) else {
            return;
        };
        let text = |at: &str| chunk.pointer(at).and_then(Value::as_str).unwrap_or_default();
        self.text.push_str(text("/choices/0/delta/content"));
        self.reason.push_str(text("/choices/0/finish_reason"));
        let calls = chunk.pointer("/choices/0/delta/tool_calls").and_then(Value::as_array);
        for piece in calls.into_iter().flatten() {
            let part = |at: &str| piece.pointer(at).and_then(Value::as_str).unwrap_or_default();
            let at = piece.get("index").and_then(Value::as_u64).unwrap_or_default();
            // Calls begin in order.
            if at == self.calls.len() as u64 {
                self.calls.push(Called::default());
            }
            if let Some(call) = self.calls.last_mut() {
                call.name.push_str(part("/function/name"));
                call.arguments.push_str(part("/function/arguments"));
            }
        }
    }
}

/// Waits until the proxy finds every machine up: it probes by itself, once a second while one is away.
pub(super) async fn wait_until_up(proxy: SocketAddr) -> anyhow::Result<()> {
    let to: Authority = proxy.to_string().parse()?;
    for _ in 0..100 {
        let mut reply = send(&to, Method::GET, "/health", Bytes::new()).await?;
        let mut body = Vec::new();
        while let Some(Ok(piece)) = reply.body.next().await {
            body.extend_from_slice(&piece);
        }
        let health: Value = serde_json::from_slice(&body)?;
        let backends = health.get("backends").and_then(Value::as_object);
        if backends.is_some_and(|backends| backends.values().all(|state| state == "up")) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("the proxy does not find all machines up")
}

async fn send(
    to: &Authority,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<client::Reply, client::ClientError> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().unwrap_or_default();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(host) = HeaderValue::from_str(to.as_str()) {
        headers.insert(header::HOST, host);
    }
    *request.headers_mut() = headers;
    client::send(&Tcp, to, Duration::from_secs(2), request).await
}
