//! A client that sees bytes: one connection a request, everything that came is kept, and letting go of it hangs up.
//!
//! Reads HTTP and event streams with the harness's own code. Whatever takes longer than [`PATIENCE`] is a failure.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use switchback_tests::wire::http1::{Framing, Headers, Wire};
use switchback_tests::wire::message::Message;
use switchback_tests::wire::observed::Piece;
use switchback_tests::wire::sse::Stream;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::PATIENCE;

/// A request that was sent. Dropping it hangs up.
#[derive(Debug)]
pub(crate) struct Sent {
    wire: Wire<TcpStream>,
}

/// An answer that has begun. Dropping it hangs up.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Headers,
    wire: Wire<TcpStream>,
    framing: Framing,
    received: Vec<u8>,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Headers,
    pub(crate) body: String,
}

/// Asks for something.
pub(crate) async fn get(to: SocketAddr, path: &str) -> Result<Reply> {
    request(to, &format!("GET {path} HTTP/1.1\r\nhost: {to}\r\n\r\n"), &[])
        .await?
        .answer()
        .await?
        .rest()
        .await
}

/// Sends a request with a JSON body.
pub(crate) async fn send(to: SocketAddr, path: &str, body: &Value) -> Result<Sent> {
    let body = serde_json::to_vec(body)?;
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {to}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    request(to, &head, &body).await
}

async fn request(to: SocketAddr, head: &str, body: &[u8]) -> Result<Sent> {
    let sending = async {
        let mut stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        Ok(Sent { wire: Wire::new(stream) })
    };
    in_time("sending a request", sending).await
}

impl Sent {
    /// Waits for the head of the answer.
    pub(crate) async fn answer(mut self) -> Result<Answer> {
        let head = in_time("the head of an answer", self.wire.head()).await?;
        let head = head.context("the connection was closed without an answer")?;
        let status = head.first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.with_context(|| format!("\"{}\" is no status line", head.first))?;
        let framing = head.response_body(status, false)?;
        Ok(Answer { status, headers: head.headers, wire: self.wire, framing, received: Vec::new() })
    }
}

impl Answer {
    /// A header's value; empty if it is absent.
    pub(crate) fn header(&self, name: &str) -> String {
        self.headers.get(name).unwrap_or_default()
    }

    /// Reads on until what has come satisfies.
    pub(crate) async fn until(&mut self, what: &str, satisfied: impl Fn(&Stream) -> bool) -> Result<()> {
        while !satisfied(&stream(&self.received)) {
            match in_time(what, self.wire.piece(&mut self.framing)).await? {
                Some(piece) => self.received.extend(piece),
                None => bail!("the answer ended before {what}: {}", self.received.escape_ascii()),
            }
        }
        Ok(())
    }

    /// Reads a stream on until a part of the answer's text has come.
    pub(crate) async fn until_text(&mut self) -> Result<()> {
        self.until("some text", |stream| !Message::of_stream(stream).content.is_empty()).await
    }

    /// Reads the rest. A body that stops before its end is an error.
    pub(crate) async fn rest(mut self) -> Result<Reply> {
        while let Some(piece) = in_time("the rest of an answer", self.wire.piece(&mut self.framing)).await? {
            self.received.extend(piece);
        }
        let body = String::from_utf8(self.received).context("the answer is not UTF-8")?;
        Ok(Reply { status: self.status, headers: self.headers, body })
    }
}

impl Reply {
    /// A header's value; empty if it is absent.
    pub(crate) fn header(&self, name: &str) -> String {
        self.headers.get(name).unwrap_or_default()
    }

    /// The backend that the proxy says it came from.
    pub(crate) fn backend(&self) -> String {
        self.header("x-switchback-backend")
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.body)
            .with_context(|| format!("status {}, no json: {}", self.status, self.body))
    }

    /// The body as an event stream.
    pub(crate) fn stream(&self) -> Stream {
        stream(self.body.as_bytes())
    }

    /// The chat message, plain or streamed.
    pub(crate) fn message(&self) -> Result<Message> {
        if self.header("content-type").starts_with("text/event-stream") {
            return Ok(Message::of_stream(&self.stream()));
        }
        Ok(Message::of_body(&self.json()?))
    }
}

fn stream(bytes: &[u8]) -> Stream {
    Stream::read(&[Piece { at: Duration::ZERO, bytes: bytes.to_vec().into() }])
}

async fn in_time<T>(what: &str, something: impl Future<Output = std::io::Result<T>>) -> Result<T> {
    let done = timeout(PATIENCE, something).await;
    done.with_context(|| format!("{what}: not within {} s", PATIENCE.as_secs()))?
        .with_context(|| what.to_owned())
}
