//! A minimal client: one request a connection, and everything about its answer.

use std::io;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, StatusCode, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use switchback_rig::{Clock, Engine, Event, EventKind, Rig, Script, Spec};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinHandle,
};

/// A backend that listens on a free port, with a clock that starts now.
pub fn start(spec: Spec) -> Rig {
    start_at(spec, Clock::real())
}

pub fn start_at(spec: Spec, clock: Clock) -> Rig {
    Rig::start(spec, ([127, 0, 0, 1], 0).into(), clock).unwrap()
}

/// A small backend with two slots and round figures: 1 ms a prompt token, 100 tokens/s.
pub fn small(engine: Engine) -> Spec {
    serde_json::from_value(json!({
        "name": "small", "engine": engine.as_str(), "window": 4_096, "slots": 2,
        "timing": {"prefill_a": 1e-3, "prefill_b": 0.0, "ttft_floor": 0.1, "decode_tokens_per_second": 100.0},
    }))
    .unwrap()
}

pub fn vllm() -> Spec {
    small(Engine::Vllm)
}

pub fn llama() -> Spec {
    small(Engine::LlamaCpp)
}

/// Its next requests do this.
pub fn scripted(spec: Spec, steps: &[&str]) -> Spec {
    Spec { script: Script::new(steps.iter().map(|step| step.parse().unwrap())), ..spec }
}

/// A chat request of one user message, with more members laid over it.
pub fn chat(content: &str, more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": content}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

pub const CHAT: &str = "/v1/chat/completions";

/// An answer whose head is here. Dropping it hangs up.
pub struct Answer {
    response: Response<Incoming>,
    pending: String,
    _connection: Connection,
}

struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a request over a connection in memory.
pub async fn send(rig: &Rig, method: &str, path: &str, body: Option<&Value>) -> Answer {
    let body = body.map(Value::to_string).unwrap_or_default();
    exchange(rig.connect().await.unwrap(), method, path, body, &[]).await.unwrap()
}

pub async fn get(rig: &Rig, path: &str) -> Answer {
    send(rig, "GET", path, None).await
}

pub async fn post(rig: &Rig, path: &str, body: &Value) -> Answer {
    send(rig, "POST", path, Some(body)).await
}

/// Sends a request over TCP; errors are the connection's.
pub async fn dial(rig: &Rig, method: &str, path: &str, body: Option<&Value>) -> io::Result<Answer> {
    let stream = TcpStream::connect(rig.addr()).await?;
    let body = body.map(Value::to_string).unwrap_or_default();
    exchange(stream, method, path, body, &[]).await.map_err(io::Error::other)
}

/// Sends a request of any bytes with any headers over any connection.
pub async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    method: &str,
    path: &str,
    body: String,
    headers: &[(&str, &str)],
) -> hyper::Result<Answer> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = Connection(tokio::spawn(async move {
        let _ended = connection.await;
    }));
    let mut request = Request::builder().method(method).uri(path).header("host", "rig");
    if !headers.iter().any(|(name, _)| *name == "content-type") {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = sender.send_request(request.body(Full::new(Bytes::from(body))).unwrap()).await?;
    Ok(Answer { response, pending: String::new(), _connection: connection })
}

impl Answer {
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub fn header(&self, name: &str) -> &str {
        self.response.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The whole body.
    pub async fn text(mut self) -> String {
        self.rest().await.unwrap()
    }

    /// The whole body, or how it broke.
    pub async fn rest(&mut self) -> hyper::Result<String> {
        let mut text = std::mem::take(&mut self.pending);
        while let Some(frame) = self.response.body_mut().frame().await {
            text.push_str(std::str::from_utf8(frame?.data_ref().unwrap()).unwrap());
        }
        Ok(text)
    }

    pub async fn json(self) -> Value {
        let text = self.text().await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text:?}"))
    }

    /// The next server-sent event, without the blank line; none at the end.
    pub async fn event(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.pending.find("\n\n") {
                let rest = self.pending.split_off(end + 2);
                let event = std::mem::replace(&mut self.pending, rest);
                return Some(event.trim_end().to_owned());
            }
            let frame = self.response.body_mut().frame().await?.unwrap();
            self.pending.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }
}

/// The JSON of the `data:` lines of a stream.
pub fn data(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

/// The content of a stream's chunks, put together.
pub fn content(text: &str) -> String {
    data(text).iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
}

/// Waits for an event of one request.
pub async fn happens(rig: &Rig, request: u64, kind: impl Fn(&EventKind) -> bool) -> Event {
    rig.event(|event| event.request == Some(request) && kind(&event.kind)).await
}
