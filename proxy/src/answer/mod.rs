//! The answer to one request: a response body that owns everything the request holds.
//!
//! The producer (the pipeline's future) runs inside the body: waiting for a backend, relaying, ended. While it is silent
//! the body says so with keep-alives, on a wall clock that starts when the request is accepted. Dropping the body, which
//! is what hyper does when the client leaves, drops the producer and with it the connection to the backend.
//!
//! Must never buffer more than one piece, and never let a cut answer end like a whole one.

pub(crate) mod body;
mod ends;
pub(crate) mod free_text;
pub(crate) mod grade;
mod hand_off;
pub(crate) mod join;
mod keep_alive;
pub(crate) mod progress;
pub(crate) mod relay;
pub(crate) mod rename;
pub(crate) mod repair;
pub(crate) mod seam;
pub(crate) mod spoken;
pub(crate) mod tidy;
pub(crate) mod unfold;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body::Frame;
use switchback_parsers::chunk::Dialect;
use tokio::time::{Instant, Sleep};

use self::body::{Body, full};
pub(crate) use self::hand_off::{Head, Out, Piece, Waits};
use self::hand_off::{In, hand_off};
pub(crate) use self::keep_alive::KeepAliveWord;
use crate::error::ApiError;

/// Name of the backend while it is not known yet.
const PENDING: HeaderValue = HeaderValue::from_static("pending");

/// How a client is kept waiting.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    /// When the request was accepted.
    pub(crate) accepted: Instant,
    /// How long the head is held back, so that an early fault keeps its true status.
    pub(crate) hold_head: Duration,
    /// Silence after which the client hears of it.
    pub(crate) keep_alive: Duration,
    /// What it hears.
    pub(crate) word: KeepAliveWord,
    /// When a plain answer begins with blanks if it has not come; `None`: it waits for its head.
    pub(crate) blanks: Option<Duration>,
}

/// Runs a producer and answers with what it hands over. Streams get their head after `hold_head` at the latest; plain
/// answers wait for theirs, or for the time when blanks begin. A failure after that is an error object under status 200. `words`: the
/// dialect of errors, also where the answer itself passes unread.
pub(crate) async fn respond<F, P>(
    (dialect, words): (Option<Dialect>, Option<Dialect>),
    stream: bool,
    patience: Patience,
    produce: F,
) -> Response<Body>
where
    F: FnOnce(Out) -> P,
    P: Future<Output = ()> + Send + 'static,
{
    let (out, input) = hand_off();
    let streams = stream && dialect.is_some();
    let held = if streams { Some(patience.hold_head.min(patience.keep_alive)) } else { patience.blanks };
    // What passes unread has a head of its own.
    let deadline = held.filter(|_| dialect.is_some()).map(|held| patience.accepted + held);
    let mut answer = Answer {
        producer: Some(Box::pin(produce(out))),
        input,
        dialect: dialect.unwrap_or(Dialect::Chat),
        streams,
        keep_alive: None,
        patience,
    };
    let first = match deadline {
        Some(deadline) => tokio::select! {
            biased;
            () = tokio::task::unconstrained(tokio::time::sleep_until(deadline)) => None,
            first = answer.first() => Some(first),
        },
        None => Some(answer.first().await),
    };
    match first {
        Some(Some(Piece::Head(head))) => {
            // What passes unread comes in pieces that are no frames: nothing may be put between them.
            let is_stream = dialect.is_some() && is_event_stream(&head.headers);
            answer.start_keep_alive(is_stream);
            response(head, Body::new(answer))
        }
        Some(Some(Piece::Whole(head, bytes))) => response(head, full(bytes)),
        Some(Some(Piece::Refused(error, headers))) => {
            let mut response = error.response(words);
            response.headers_mut().extend(headers);
            response
        }
        Some(Some(Piece::Data(_) | Piece::Adjusted(_) | Piece::Broken) | None) => {
            ApiError::backend_failed("the backend's answer had no head").response(words)
        }
        None => {
            let mut headers = if streams { stream_headers() } else { plain_headers() };
            if !streams {
                answer.patience.word = KeepAliveWord::blank();
            }
            answer.start_keep_alive(true);
            headers.insert(HeaderName::from_static("x-switchback-backend"), PENDING);
            response(Head { status: StatusCode::OK, headers }, Body::new(answer))
        }
    }
}

/// The headers of every event stream: nothing on the way may collect or change it.
pub(crate) fn stream_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    headers
}

/// The headers of a plain answer that has not come yet.
fn plain_headers() -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))])
}

/// The name of the backend, why it is that one and what was changed as comments, for a head that went out before they were known.
fn decided(head: &Head) -> Bytes {
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let reason = header("x-switchback-reason").map(|reason| format!(": reason {reason}\n"));
    let mut comments = reason.unwrap_or_default();
    comments.push_str(&format!(": backend {}\n", header("x-switchback-backend").unwrap_or("unknown")));
    if let Some(adjusted) = header("x-switchback-adjusted") {
        comments.push_str(&format!(": adjusted {adjusted}\n"));
    }
    comments.push('\n');
    Bytes::from(comments)
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"))
}

fn response(head: Head, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    response
}

/// The body of an answer whose head is out.
struct Answer {
    producer: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    input: In,
    dialect: Dialect,
    /// Events; else one JSON text.
    streams: bool,
    /// Armed while a stream is open; fires after the silence that the client bears.
    keep_alive: Option<Pin<Box<Sleep>>>,
    patience: Patience,
}

impl Answer {
    /// The next piece, or `None` when the producer has ended.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        loop {
            if let Some(piece) = self.input.take() {
                return Poll::Ready(Some(piece));
            }
            let Some(producer) = &mut self.producer else { return Poll::Ready(None) };
            if producer.as_mut().poll(cx).is_ready() {
                // What it held is freed now, not when the client has read the last byte.
                self.producer = None;
                continue;
            }
            return self.input.take().map_or(Poll::Pending, |piece| Poll::Ready(Some(piece)));
        }
    }

    async fn first(&mut self) -> Option<Piece> {
        std::future::poll_fn(|cx| self.poll_piece(cx)).await
    }

    /// The first deadline counts from the request's acceptance: waiting for a head is silence, too.
    fn start_keep_alive(&mut self, is_stream: bool) {
        let deadline = self.patience.accepted + self.patience.keep_alive;
        let speaks = is_stream && self.patience.word.speaks();
        self.keep_alive = speaks.then(|| Box::pin(tokio::time::sleep_until(deadline)));
    }

    fn spoke(&mut self) {
        if let Some(keep_alive) = &mut self.keep_alive {
            keep_alive.as_mut().reset(Instant::now() + self.patience.keep_alive);
        }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let bytes = loop {
            match self.poll_piece(cx) {
                Poll::Ready(Some(Piece::Data(bytes))) => break bytes,
                Poll::Ready(Some(Piece::Head(head))) => {
                    if self.patience.word.may_comment() {
                        break decided(&head);
                    }
                }
                Poll::Ready(Some(Piece::Adjusted(what))) => {
                    if self.patience.word.may_comment() {
                        break Bytes::from(format!(": adjusted {what}\n\n"));
                    }
                }
                // Behind blanks. A client that waits for events never gets one: the pipeline sends none then.
                Poll::Ready(Some(Piece::Whole(_, bytes))) => {
                    self.keep_alive = None;
                    break bytes;
                }
                Poll::Ready(Some(Piece::Refused(error, _))) => {
                    (self.producer, self.keep_alive) = (None, None);
                    break if self.streams {
                        error.event(self.dialect)
                    } else {
                        error.body(Some(self.dialect))
                    };
                }
                Poll::Ready(Some(Piece::Broken)) => {
                    self.producer = None;
                    return Poll::Ready(Some(Err(std::io::Error::other("the backend's answer was cut"))));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    let Some(keep_alive) = &mut self.keep_alive else { return Poll::Pending };
                    // The clock itself, too: a task that has used up its share finds every timer pending.
                    let due = keep_alive.deadline() <= Instant::now();
                    if keep_alive.as_mut().poll(cx).is_pending() && !due {
                        return Poll::Pending;
                    }
                    let tells = self.patience.word.may_comment();
                    break match self.input.waits_for().filter(|_| tells) {
                        Some(what) => Bytes::from(format!(": waiting, {what}\n\n")),
                        None => self.patience.word.bytes(),
                    };
                }
            }
        };
        self.spoke();
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}
