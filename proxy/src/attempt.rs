//! One try at one backend, up to the first content that may be shown.
//!
//! Until then every fault can be taken to another backend unseen: whatever the status line said, the answer counts as
//! begun only when content (or a good finish) is in hand. An attempt never talks to the client.

mod terms;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, header};
use switchback_parsers::chunk::{Dialect, Finish, Said, Usage};
use switchback_parsers::diagnosis::{BackendError, Diagnosis, diagnose};
use switchback_policies::facts::BackendState;
use switchback_policies::failover::{self, Fault};
use tokio::time::Instant;

use crate::answer::Head;
use crate::answer::grade::Traces;
use crate::answer::relay::AnswerStream;
use crate::answer::repair;
use crate::answer::unfold::unfold;
use crate::backend::client::{ClientError, Reply, ReplyBody};
use crate::backend::decode::Decoder;
use crate::backend::{Backend, Place, headers};
use crate::call::Call;

pub(crate) use self::terms::{Silence, Terms};

/// The longest error body that is read.
const ERROR_LIMIT: usize = 1 << 20;

/// How long an error body is waited for: the status alone tells enough.
const ERROR_WITHIN: Duration = Duration::from_secs(5);

/// The longest plain answer that is read: long outputs with many choices and log probabilities.
const ANSWER_LIMIT: usize = 512 << 20;

/// Frames that may be held before the first content: role chunks and progress reports.
const HELD_LIMIT: usize = 256 << 10;

/// How long a silent answer of a backend that no longer accepts connections is waited for. vLLM takes seconds to say that
/// its engine died, and a server that drains never says it.
const DOWN_GRACE: Duration = Duration::from_secs(10);

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) fault: Fault,
    /// For the log, never for the client.
    pub(crate) detail: String,
    /// What the backend said, if it said something.
    pub(crate) error: Option<Box<BackendError>>,
    /// The engine died of this very prompt, as far as can be seen.
    pub(crate) suspect: bool,
    /// It says that its engine is dead, as was known before it was asked: nothing was read, and nothing lost.
    pub(crate) was_dead: bool,
}

impl Failure {
    pub(crate) fn new(fault: Fault, detail: impl Into<String>) -> Self {
        Self { fault, detail: detail.into(), error: None, suspect: false, was_dead: false }
    }

    /// An answer that ended with a word that is no success.
    pub(crate) fn broken_off(reason: &str) -> Self {
        let fault = if reason == "abort" { Fault::Stopping } else { Fault::Aborted };
        Self::new(fault, format!("finish reason `{reason}`"))
    }

    /// What a backend said, and what it means.
    pub(crate) fn told(error: BackendError) -> Self {
        Self {
            fault: fault_of(&error.diagnosis),
            detail: error.message.clone(),
            error: Some(Box::new(error)),
            suspect: false,
            was_dead: false,
        }
    }
}

/// An answer that has begun.
#[derive(Debug)]
pub(crate) enum Started {
    /// A stream; the bytes were read before its first content and belong in front.
    Stream(Box<AnswerStream>, Bytes),
    /// A whole answer, and what its repair came upon.
    Whole { headers: HeaderMap, body: Bytes, said: Box<Said>, traces: Traces },
    /// A stream of which all frames are in hand.
    Written { frames: Bytes, usage: Option<Usage>, traces: Traces },
    /// An answer that passes unread.
    Unread { head: Head, body: Box<ReplyBody>, unpack: Decoder },
}

/// Sends the body to a backend and waits for its first content.
pub(crate) async fn attempt(
    backend: &Arc<Backend>,
    call: &Call,
    body: Bytes,
    terms: &Terms,
    place: &Place,
) -> Result<Started, Failure> {
    let started = Instant::now();
    let mut headers = headers::to_backend(&call.headers, &backend.config);
    if call.request.is_some() {
        // It was read as JSON, whatever the client calls it; vLLM takes it under no other name.
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let sending = backend.send(call.method.clone(), &call.endpoint.path, headers, body);
    let first_token =
        (terms.stream && call.endpoint.dialect.is_some()).then(|| started + terms.silence.first_token);
    let limit = first_token.unwrap_or(started + terms.silence.whole);
    let reply = match unless_silent(backend, place, limit, Fault::NoFirstToken, sending).await? {
        Ok(reply) => reply,
        Err(error @ ClientError::Connect(_)) => {
            return Err(Failure::new(Fault::Unreachable, error.to_string()));
        }
        Err(error @ ClientError::Lost(_)) => {
            return Err(Failure::new(Fault::ConnectionLost, error.to_string()));
        }
    };
    let unpack =
        Decoder::of(&reply.head.headers).map_err(|error| Failure::new(Fault::Other, error.to_string()))?;
    if !reply.head.status.is_success() {
        return Err(refused(backend, place, reply, unpack).await);
    }
    let passed = headers::to_client(&reply.head.headers);
    let Some(dialect) = call.endpoint.dialect else {
        let head = Head { status: reply.head.status, headers: passed };
        return Ok(Started::Unread { head, body: Box::new(reply.body), unpack });
    };
    if terms.stream {
        let is_stream = reply
            .head
            .headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().to_ascii_lowercase().starts_with(b"text/event-stream"));
        if !is_stream {
            return Err(refused(backend, place, reply, unpack).await);
        }
        let stream = AnswerStream::new(reply.body, unpack, dialect, backend.engine(), terms);
        return first_content(backend, stream, started, terms.silence, place).await;
    }
    let answer = whole(backend, place, dialect, passed, reply.body, unpack, started, terms).await?;
    if call.stream { written(answer, terms) } else { Ok(answer) }
}

/// A whole answer as the stream that the client asked for.
fn written(answer: Started, terms: &Terms) -> Result<Started, Failure> {
    let Started::Whole { body, said, traces, .. } = answer else { return Ok(answer) };
    match unfold(&body, terms.usage_to_client) {
        Some(frames) => Ok(Started::Written { frames, usage: said.usage, traces }),
        None => Err(Failure::new(Fault::Other, "answer cannot be written as a stream")),
    }
}

async fn first_content(
    backend: &Arc<Backend>,
    mut stream: AnswerStream,
    started: Instant,
    silence: Silence,
    place: &Place,
) -> Result<Started, Failure> {
    let mut held = BytesMut::new();
    let mut deadline = started + silence.first_token;
    let mut silent = Fault::NoFirstToken;
    loop {
        match unless_silent(backend, place, deadline, silent, stream.next()).await? {
            Ok(progress) => {
                if progress.token {
                    place.token();
                }
                held.extend_from_slice(&progress.bytes);
                if progress.content || stream.is_complete() || held.len() > HELD_LIMIT {
                    return Ok(Started::Stream(Box::new(stream), held.freeze()));
                }
                if progress.token {
                    deadline = Instant::now() + silence.stall;
                    silent = Fault::Stalled;
                }
            }
            Err(Ok(())) => return Ok(Started::Stream(Box::new(stream), held.freeze())),
            Err(Err(failure)) => return Err(failure),
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "the parts of a reply, taken apart by the caller")]
async fn whole(
    backend: &Arc<Backend>,
    place: &Place,
    dialect: Dialect,
    headers: HeaderMap,
    mut body: ReplyBody,
    mut unpack: Decoder,
    started: Instant,
    terms: &Terms,
) -> Result<Started, Failure> {
    let reading = read_all(&mut body, &mut unpack, ANSWER_LIMIT);
    let limit = started + terms.silence.whole;
    let bytes = unless_silent(backend, place, limit, Fault::NoFirstToken, reading).await??;
    let said = dialect.read_answer(&bytes);
    if said.error || said.unreadable {
        return Err(Failure::told(diagnose(backend.engine(), 200, &bytes)));
    }
    for choice in &said.choices {
        match &choice.finish {
            Some(Finish::Good(_)) => {}
            Some(Finish::Bad(reason)) => {
                return Err(Failure::broken_off(reason));
            }
            None => return Err(Failure::new(Fault::Aborted, "answer has no finish reason")),
        }
    }
    if said.choices.is_empty() {
        return Err(Failure::new(Fault::Other, "answer has no choices"));
    }
    if let (Some(said), Some(counted)) =
        (said.usage.and_then(|usage| usage.prompt_tokens), terms.least_prompt)
        && failover::silently_truncated(said, counted)
    {
        return Err(Failure::new(Fault::SilentTruncation { said, counted }, "prompt was shortened"));
    }
    let (bytes, traces) = match &terms.repair {
        Some(repair) => repair::whole(bytes, repair),
        None => (bytes, Traces::default()),
    };
    let body = terms.tidy.clone().answer(terms.rename.answer(bytes, dialect), dialect);
    Ok(Started::Whole { headers, body, said: Box::new(said), traces })
}

/// A reply that is no answer.
async fn refused(backend: &Arc<Backend>, place: &Place, reply: Reply, mut unpack: Decoder) -> Failure {
    let Reply { head, mut body } = reply;
    let deadline = Instant::now() + ERROR_WITHIN;
    let reading = read_all(&mut body, &mut unpack, ERROR_LIMIT);
    let bytes = match unless_silent(backend, place, deadline, Fault::Other, reading).await {
        Ok(Ok(bytes)) => bytes,
        // The status alone has to do.
        Ok(Err(_)) | Err(_) => Bytes::new(),
    };
    Failure::told(diagnose(backend.engine(), head.status.as_u16(), &bytes))
}

async fn read_all(body: &mut ReplyBody, unpack: &mut Decoder, limit: usize) -> Result<Bytes, Failure> {
    let mut bytes = BytesMut::new();
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|error| Failure::new(Fault::ConnectionLost, error.to_string()))?;
        let piece = unpack.push(piece).map_err(|error| Failure::new(Fault::Other, error.to_string()))?;
        bytes.extend_from_slice(&piece);
        if bytes.len() > limit {
            return Err(Failure::new(Fault::Other, format!("answer is longer than {limit} bytes")));
        }
    }
    unpack.finish().map_err(|error| Failure::new(Fault::ConnectionLost, error.to_string()))?;
    Ok(bytes.freeze())
}

/// Waits for something of a backend, but not beyond the deadline (`late` is the fault then), and not long after the
/// backend has gone.
pub(crate) async fn unless_silent<T>(
    backend: &Arc<Backend>,
    place: &Place,
    deadline: Instant,
    late: Fault,
    something: impl Future<Output = T>,
) -> Result<T, Failure> {
    // It took the request: what was known before says nothing. A look takes long where the token asked for waits behind this.
    let before = backend.seen();
    let gone = async {
        loop {
            backend.until(BackendState::is_gone).await;
            tokio::time::sleep(DOWN_GRACE).await;
            if backend.state().is_gone() && backend.seen() != before {
                break;
            }
        }
    };
    tokio::select! {
        biased;
        // First, and outside the scheduler's budget: a backend that floods us with comments must not starve the clock.
        () = tokio::task::unconstrained(tokio::time::sleep_until(deadline)) => {
            Err(Failure::new(late, "nothing in time"))
        }
        something = something => Ok(something),
        () = place.until_lost() => Err(Failure::new(late, "the engine does not work on it any more")),
        // Its port may be open all the same: that is a silence, and nobody has died.
        () = gone => Err(if backend.is_doubted() {
            Failure::new(late, "the engine is doubted, and has said nothing since")
        } else {
            Failure::new(Fault::ConnectionLost, "backend went away without ending its answer")
        }),
    }
}

/// What a diagnosis means for the request.
fn fault_of(diagnosis: &Diagnosis) -> Fault {
    match *diagnosis {
        Diagnosis::OutOfMemory => Fault::OutOfMemory,
        Diagnosis::EngineDead => Fault::EngineDead,
        Diagnosis::ContextTooLong { prompt, limit } => Fault::TooLong { prompt, limit },
        Diagnosis::BodyTooLarge => Fault::BodyTooLarge,
        Diagnosis::Loading => Fault::Loading,
        Diagnosis::Overloaded => Fault::Overloaded,
        Diagnosis::ParserFailed => Fault::ParserFailed,
        Diagnosis::ModelUnknown => Fault::ModelUnknown,
        Diagnosis::NotServed => Fault::NotServed,
        Diagnosis::Unauthorized => Fault::Unauthorized,
        Diagnosis::ClientFault => Fault::ClientMistake,
        Diagnosis::Other => Fault::Other,
    }
}
