//! An answer that has begun, passed on to its end; and what every answer says of itself.
//!
//! From here on nothing goes back: after a fault another backend goes on from there, or the answer ends with an error, never with a
//! finish reason. Must never buffer more than one piece.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use switchback_parsers::chunk::Dialect;
use switchback_policies::failover::Fault;

use crate::answer::grade::{Seen, calls_of_answer, calls_of_frames};
use crate::answer::relay::AnswerStream;
use crate::answer::spoken::Spoken;
use crate::answer::{Head, Out, Piece, stream_headers};
use crate::ask_again::{Asked, Cut, Look, Passing};
use crate::attempt::{Failure, Started};
use crate::backend::client::ReplyBody;
use crate::backend::decode::Decoder;
use crate::call::Call;
use crate::record::{End, Outcome};

/// Passes an answer on to its end, or goes on with one that was cut. Gives a failure after a part was shown; what could be
/// continued is in `cut` then.
pub(crate) async fn deliver(
    asked: &Asked<'_>,
    started: Started,
    cut: &mut Option<Cut>,
    outcome: &mut Outcome,
    out: &Out,
) -> Option<Failure> {
    let Asked { call, backend, place, .. } = asked;
    // Who answers without showing tokens has read the prompt by now.
    place.was_read();
    let mut headers = headers_of(outcome, backend.name());
    match (started, cut.take()) {
        (Started::Stream(stream, first), None) => {
            headers.extend(stream_headers());
            out.send(Piece::Head(Head { status: StatusCode::OK, headers })).await;
            return relay_stream(asked, stream, first, asked.look(), cut, outcome, out).await;
        }
        (Started::Stream(rest, first), Some(begun)) => {
            let (stream, look, told) = begun.goes_on_with(*rest, first, backend);
            outcome.goes_on(backend.name());
            show(Passing { frames: Bytes::new(), note: Some(told) }, outcome, out).await;
            return relay_stream(asked, stream, Bytes::new(), look, cut, outcome, out).await;
        }
        (_, Some(begun)) => {
            *cut = Some(begun);
            return Some(Failure::new(Fault::DidNotGoOn, "no stream"));
        }
        (Started::Written { frames, usage, traces }, None) => {
            headers.extend(stream_headers());
            let calls = calls_of_frames(&frames);
            let grade = Seen::of_written(&calls).grade(&calls, asked.tools().as_ref(), traces);
            backend.survived(place, grade.worth, usage);
            outcome.grade = Some(grade);
            outcome.usage = usage;
            out.send(Piece::Head(Head { status: StatusCode::OK, headers })).await;
            out.data(frames).await;
            outcome.ends(End::Answered, None);
        }
        (Started::Whole { headers: passed, body, said, traces }, None) => {
            headers.extend(passed);
            outcome.usage = said.usage;
            outcome.empty = !said.content;
            outcome.ends(End::Answered, None);
            let calls = calls_of_answer(&body, call.endpoint.dialect.unwrap_or(Dialect::Chat));
            let grade = Seen::of_answer(&said).grade(&calls, asked.tools().as_ref(), traces);
            backend.survived(place, grade.worth, said.usage);
            outcome.grade = Some(grade);
            out.send(Piece::Whole(Head { status: StatusCode::OK, headers }, body)).await;
        }
        (Started::Unread { head, body, unpack }, None) => {
            headers.extend(head.headers);
            out.send(Piece::Head(Head { status: head.status, headers })).await;
            relay_unread(call, *body, unpack, outcome, out).await;
        }
    }
    None
}

async fn relay_stream(
    asked: &Asked<'_>,
    mut stream: Box<AnswerStream>,
    first: Bytes,
    mut look: Option<Look>,
    cut: &mut Option<Cut>,
    outcome: &mut Outcome,
    out: &Out,
) -> Option<Failure> {
    let backend = asked.backend;
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
    outcome.empty = !stream.says();
    let failure = match end {
        Err(failure) if !stream.is_complete() => failure,
        end => {
            outcome.adjusted.extend(stream.tidy.acted());
            // The end of a choice may wait still, if the connection broke behind it.
            let rest = stream.let_go();
            match &mut look {
                Some(look) => show(look.at(rest, &stream), outcome, out).await,
                None => out.data(rest).await,
            }
            if let Some(look) = look {
                // What was continued once is not continued for another reason.
                let said = stream.spoken().filter(|spoken| stream.seam.is_none() && !spoken.thinks());
                let said = said.filter(|_| !stream.splits_thoughts()).map(Spoken::text);
                show(look.rest(asked, said).await, outcome, out).await;
            }
            match end {
                Ok(()) => {
                    let grade = stream.grade();
                    // What two have written is neither's: it tells nothing of how fast, or how good, the last one is.
                    let alone = stream.seam.is_none();
                    backend.survived(asked.place, grade.worth, outcome.usage.filter(|_| alone));
                    outcome.grade = Some(grade).filter(|_| alone);
                }
                // The finish reason was shown; only the usage or the end marker is missing.
                Err(_) => out.data(stream.end_marker()).await,
            }
            outcome.ends(End::Answered, None);
            return None;
        }
    };
    *cut = Some(Cut::new(stream, look, backend, failure.fault));
    Some(failure)
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
