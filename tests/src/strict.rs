//! A strict client: it believes nothing but a finish reason, and writes down all that it got.
//!
//! It shares no code with the proxy, so that both cannot be wrong in the same way.

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use switchback_rig::Clock;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// What a client got.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    /// The HTTP status; 0: none came.
    pub status: u16,
    /// Text, then each call's name and arguments, in order.
    pub content: String,
    /// The finish reason.
    pub finish: Option<String>,
    /// The code of an error, in a body or an event; or what broke.
    pub error: Option<String>,
    /// What the error says, if it says something.
    pub said: Option<String>,
    /// Simulated seconds: when it was asked, and when it ended.
    pub from: f64,
    /// See `from`.
    pub to: f64,
}

impl Transcript {
    /// A whole answer, as far as the client can tell.
    pub fn is_whole(&self) -> bool {
        self.status == 200 && self.error.is_none() && self.finish.is_some()
    }

    fn take(&mut self, said: &Value) {
        if let Some(error) = said.get("error") {
            let code = error.get("code").map_or_else(|| "error".to_owned(), ToString::to_string);
            self.error = Some(code.trim_matches('"').to_owned());
            self.said = error.get("message").and_then(Value::as_str).map(str::to_owned);
            return;
        }
        let Some(choice) = said.pointer("/choices/0") else { return };
        let message = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        self.content.push_str(message.get("content").and_then(Value::as_str).unwrap_or_default());
        for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            for part in ["/function/name", "/function/arguments"] {
                self.content.push_str(call.pointer(part).and_then(Value::as_str).unwrap_or_default());
            }
        }
        if let Some(finish) = choice.get("finish_reason").and_then(Value::as_str) {
            self.finish = Some(finish.to_owned());
        }
    }
}

/// Asks for a chat answer over a connection of its own, and reads to the end.
pub async fn ask(to: impl Stream, body: &str, clock: &Clock) -> Transcript {
    let mut got = Transcript { from: clock.now(), ..Transcript::default() };
    if let Err(error) = talk(to, body, &mut got).await {
        got.error.get_or_insert(format!("broken: {error}"));
    }
    got.to = clock.now();
    got
}

async fn talk(to: impl Stream, body: &str, got: &mut Transcript) -> anyhow::Result<()> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(to)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::post("/v1/chat/completions")
        .header(header::HOST, "127.0.0.1")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))?;
    let read = async {
        let reply = sender.send_request(request).await?;
        got.status = reply.status().as_u16();
        let streams = reply
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let mut incoming = reply.into_body();
        let mut text = Vec::new();
        while let Some(frame) = incoming.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            text.extend_from_slice(&data);
            while streams && let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
                let frame: Vec<u8> = text.drain(..end + 2).collect();
                let data = frame.strip_prefix(b"data: ").and_then(|data| serde_json::from_slice(data).ok());
                if let Some(data) = data {
                    got.take(&data);
                }
            }
        }
        if !streams {
            got.take(&serde_json::from_slice(&text)?);
        }
        anyhow::Ok(())
    };
    let result = read.await;
    connection.abort();
    result
}
