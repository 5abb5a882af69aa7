//! An answer that has begun, passed on to its end; and what every answer says of itself.
//!
//! From here on nothing goes back: a fault ends the answer with an error, never with a finish reason. Must never buffer
//! more than one piece.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use switchback_policies::liveness::Worth;

use crate::answer::relay::AnswerStream;
use crate::answer::{Head, Out, Piece, stream_headers};
use crate::ask_again::{Asked, Passing};
use crate::attempt::Started;
use crate::backend::client::ReplyBody;
use crate::backend::decode::Decoder;
use crate::backend::pulse::worth;
use crate::call::Call;
use crate::error::ApiError;
use crate::record::{End, Outcome};

/// Passes an answer on to its end.
pub(crate) async fn deliver(asked: &Asked<'_>, started: Started, outcome: &mut Outcome, out: &Out) {
    let Asked { call, backend, place, .. } = asked;
    // Who answers without showing tokens has read the prompt by now.
    place.was_read();
    let mut headers = headers_of(outcome, backend.name());
    match started {
        Started::Stream(stream, first) => {
            headers.extend(stream_headers());
            out.send(Piece::Head(Head { status: StatusCode::OK, headers })).await;
            relay_stream(asked, *stream, first, outcome, out).await;
        }
        Started::Written { frames, usage, .. } => {
            headers.extend(stream_headers());
            backend.survived(place, Worth::Answer, usage);
            outcome.usage = usage;
            out.send(Piece::Head(Head { status: StatusCode::OK, headers })).await;
            out.data(frames).await;
            outcome.ends(End::Answered, None);
        }
        Started::Whole { headers: passed, body, said, .. } => {
            headers.extend(passed);
            outcome.usage = said.usage;
            outcome.empty = !said.content;
            outcome.ends(End::Answered, None);
            backend.survived(place, worth(said.content, said.marks), said.usage);
            out.send(Piece::Whole(Head { status: StatusCode::OK, headers }, body)).await;
        }
        Started::Unread { head, body, unpack } => {
            headers.extend(head.headers);
            out.send(Piece::Head(Head { status: head.status, headers })).await;
            relay_unread(call, *body, unpack, outcome, out).await;
        }
    }
}

async fn relay_stream(
    asked: &Asked<'_>,
    mut stream: AnswerStream,
    first: Bytes,
    outcome: &mut Outcome,
    out: &Out,
) {
    let backend = asked.backend;
    let mut look = asked.look();
    let mut frames = first;
    let end = loop {
        match &mut look {
            Some(look) => show(look.at(frames, &stream), outcome, out).await,
            None => out.data(frames).await,
        }
        let next = stream.next_in_time(backend, asked.place, asked.terms.silence.stall).await;
        outcome.usage = stream.usage;
        match next {
            Ok(progress) => frames = progress.bytes,
            Err(end) => break end,
        }
    };
    outcome.adjusted.extend(stream.tidy.acted());
    outcome.empty = !stream.has_content();
    if let Some(look) = look.filter(|_| stream.is_complete()) {
        show(look.rest(asked, stream.said()).await, outcome, out).await;
    }
    let failure = match end {
        Ok(()) => {
            backend.survived(asked.place, worth(stream.has_content(), stream.marks), outcome.usage);
            return outcome.ends(End::Answered, None);
        }
        Err(_) if stream.is_complete() => {
            // The finish reason was shown; only the usage or the end marker is missing.
            out.data(stream.end_marker()).await;
            return outcome.ends(End::Answered, None);
        }
        Err(failure) => failure,
    };
    tracing::warn!(backend = backend.name(), fault = %failure.fault, detail = failure.detail, "answer cut");
    outcome.failed(backend.name(), failure.fault);
    backend.on_fault(failure.fault, asked.place);
    let error = ApiError::answer_cut(backend.name(), failure.fault);
    outcome.ends(End::Cut, Some(error.code));
    out.send(Piece::Refused(error, HeaderMap::new())).await;
}

/// Sends what passes, and before it what is to be said of it.
async fn show(passing: Passing, outcome: &mut Outcome, out: &Out) {
    if let Some(note) = passing.note {
        out.send(Piece::Adjusted(printable(&note))).await;
        outcome.adjusted.push(note);
    }
    out.data(passing.frames).await;
}

async fn relay_unread(
    call: &Call,
    mut body: ReplyBody,
    mut unpack: Decoder,
    outcome: &mut Outcome,
    out: &Out,
) {
    loop {
        let piece = match body.next().await {
            None => match unpack.finish() {
                Ok(()) => return outcome.ends(End::Answered, None),
                Err(error) => Err(error.to_string()),
            },
            Some(Ok(piece)) => unpack.push(piece).map_err(|error| error.to_string()),
            Some(Err(error)) => Err(error.to_string()),
        };
        match piece {
            Ok(piece) => out.data(piece).await,
            Err(detail) => {
                tracing::warn!(id = call.id, detail, "answer cut");
                outcome.ends(End::Cut, None);
                return out.send(Piece::Broken).await;
            }
        }
    }
}

/// What every answer says of itself.
pub(crate) fn headers_of(outcome: &Outcome, backend: &str) -> HeaderMap {
    let tokens =
        outcome.measured.as_ref().map_or_else(|| "unknown".to_owned(), |measured| measured.size.to_string());
    let reason = printable(&outcome.reason);
    let adjusted = printable(&outcome.adjusted.join("; "));
    let pairs = [
        ("x-switchback-backend", backend),
        ("x-switchback-tokens", &tokens),
        ("x-switchback-reason", &reason),
        ("x-switchback-adjusted", &adjusted),
    ];
    let pairs = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    let header =
        |(name, value)| HeaderValue::from_str(value).ok().map(|value| (HeaderName::from_static(name), value));
    pairs.filter_map(header).collect()
}

/// As much of a text as a header can hold.
fn printable(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii() && !c.is_ascii_control()).take(500).collect()
}
