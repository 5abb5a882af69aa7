//! Response bodies: whole ones, and streams that are written while they are read.
//!
//! A stream's writer is a future inside the body, polled in place with a hand-off of one frame. Nothing is spawned:
//! the socket's back-pressure holds the writer, and when the client hangs up, hyper drops the body, the writer and
//! with it the ticket that cancels the work. It must never buffer more than that one frame.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use serde_json::Value;
use tokio::sync::mpsc;

use super::Broken;

/// A response body.
pub(crate) enum Body {
    Whole(Bytes),
    Stream(Stream),
}

/// A body that a future writes.
pub(crate) struct Stream {
    frames: mpsc::Receiver<Bytes>,
    writer: Option<Writing>,
    /// The writer has ended in a break.
    breaks: bool,
    /// What it wrote before has left.
    flushed: bool,
}

type Writing = Pin<Box<dyn Future<Output = Result<(), Broken>> + Send>>;

/// The writing end of a stream.
pub(crate) struct Writer(mpsc::Sender<Bytes>);

impl Writer {
    /// Hands a frame over, once the one before it is on its way. Nothing for an empty one.
    pub(crate) async fn write(&self, text: String) {
        if !text.is_empty() {
            // the receiver sits in the same body as the writing future: it can't be gone
            let _handed_over = self.0.send(Bytes::from(text)).await;
        }
    }
}

/// A body that `write` writes.
pub(crate) fn stream<F>(write: impl FnOnce(Writer) -> F) -> Body
where
    F: Future<Output = Result<(), Broken>> + Send + 'static,
{
    let (sender, frames) = mpsc::channel(1);
    let writer = Some::<Writing>(Box::pin(write(Writer(sender))));
    Body::Stream(Stream { frames, writer, breaks: false, flushed: false })
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Stream(stream) => stream.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Self::Whole(bytes) => http_body::SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(_) => http_body::SizeHint::default(),
        }
    }
}

impl Stream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            match self.frames.poll_recv(cx) {
                Poll::Ready(Some(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Poll::Ready(None) if self.breaks => return self.poll_break(cx),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {}
            }
            let Some(writer) = &mut self.writer else { return Poll::Ready(None) };
            match writer.as_mut().poll(cx) {
                Poll::Ready(end) => {
                    self.breaks = end.is_err();
                    self.writer = None;
                }
                Poll::Pending if self.frames.is_empty() => return Poll::Pending,
                Poll::Pending => {}
            }
        }
    }

    /// Waits once, because hyper flushes only a body that waits, and throws the rest away at an error.
    fn poll_break(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if self.flushed {
            return Poll::Ready(Some(Err(Broken)));
        }
        self.flushed = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A JSON answer.
pub(crate) fn json(status: StatusCode, value: &Value) -> Response<Body> {
    whole(status, "application/json", value.to_string())
}

/// A plain text.
pub(crate) fn text(status: StatusCode, text: String) -> Response<Body> {
    whole(status, "text/plain; charset=utf-8", text)
}

/// A whole body of a type.
pub(crate) fn whole(status: StatusCode, kind: &'static str, text: String) -> Response<Body> {
    typed(status, kind, Body::Whole(Bytes::from(text)))
}

/// A body of a type.
pub(crate) fn typed(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A body without a type, as vLLM's health has it.
pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Whole(Bytes::new()));
    *response.status_mut() = status;
    response
}
