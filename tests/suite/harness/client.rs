//! A client of the proxy: one connection, whole answers or piece by piece.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

/// One connection to the proxy. Dropping it hangs up.
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    connection: JoinHandle<()>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// An answer whose head is here.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The body as far as it was read.
    pub(crate) body: String,
    /// The body had a proper end.
    pub(crate) ended: bool,
    incoming: Option<Incoming>,
    // The connection must live as long as its answer is read.
    _client: Option<Client>,
}

impl Client {
    pub(crate) async fn over(pipe: DuplexStream) -> Self {
        let (sender, connection) = handshake(TokioIo::new(pipe)).await.expect("a connection");
        let connection = tokio::spawn(async move {
            let _ = connection.await;
        });
        Self { sender, connection }
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(mut self, request: Request<Full<Bytes>>) -> Answer {
        let response = self.sender.send_request(request).await.expect("an answer");
        let (head, incoming) = response.into_parts();
        Answer {
            status: head.status,
            headers: head.headers,
            body: String::new(),
            ended: false,
            incoming: Some(incoming),
            _client: Some(self),
        }
    }

    pub(crate) async fn post(self, path: &str, body: &str) -> Answer {
        self.send(request(Method::POST, path, body)).await
    }

    pub(crate) async fn get(self, path: &str) -> Answer {
        self.send(request(Method::GET, path, "")).await
    }
}

/// A request as clients send it.
pub(crate) fn request(method: Method, path: &str, body: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "127.0.0.1:4000")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
        .expect("a request")
}

impl Answer {
    /// The next piece of the body; `None` at its end, proper or not.
    pub(crate) async fn piece(&mut self) -> Option<String> {
        loop {
            match self.incoming.as_mut()?.frame().await {
                None => {
                    self.ended = true;
                    self.incoming = None;
                }
                Some(Err(_)) => self.incoming = None,
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        let text =
                            String::from_utf8(data.to_vec()).expect("utf-8, since frames are never split");
                        self.body.push_str(&text);
                        return Some(text);
                    }
                }
            }
        }
    }

    /// Reads on until the body holds the text.
    pub(crate) async fn until(&mut self, text: &str) {
        while !self.body.contains(text) {
            self.piece().await.unwrap_or_else(|| panic!("the body ended without {text:?}: {}", self.body));
        }
    }

    /// Reads to the end.
    pub(crate) async fn whole(mut self) -> Self {
        while self.piece().await.is_some() {}
        self
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The error object: `type`, `code`, `message` …
    pub(crate) fn error(&self) -> Value {
        self.json()["error"].clone()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }
}
