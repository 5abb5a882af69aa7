//! Reading a backend's event stream and passing it on, frame by frame.
//!
//! A frame that needs no change leaves as the very bytes that came. Changed or left out are only: comments of the backend
//! (the proxy keeps its own clock), a payload spread over several `data:` lines, chunks that carry nothing but usage which
//! the client did not ask for, and whatever follows a fault. The end of the stream is believed only after a good finish
//! reason: status 200, a clean end and `[DONE]` prove nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use switchback_parsers::chunk::{Dialect, Usage};
use switchback_parsers::diagnosis::{BackendError, Engine, diagnose};
use switchback_parsers::event::Folded;
use switchback_parsers::sse::{SseDecoder, SseFrame};
use switchback_policies::failover::Fault;
use tokio::time::Instant;

use super::ends::{Ends, unbroken};
use super::grade::{Grade, Seen, Traces};
use super::progress::Progress as Reading;
use super::rename::Rename;
use super::repair::{RepairTerms, StreamRepair};
use super::seam::Seam;
use super::spoken::Spoken;
use super::tidy::{Tidy, reframe};
use crate::attempt::{Failure, Terms, unless_silent};
use crate::backend::client::ReplyBody;
use crate::backend::decode::Decoder;
use crate::backend::{Backend, Place};

/// How long text that is let go waits for the rest of its frame. Mostly the next frame comes sooner, and then all leave as
/// they came.
const PART_WAITS: Duration = Duration::from_millis(100);

/// What one read of the stream yields.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// For the client, whole frames.
    pub(crate) bytes: Bytes,
    /// The backend has computed something.
    pub(crate) token: bool,
    /// Something that the client may show.
    pub(crate) content: bool,
}

/// A backend's stream.
#[derive(Debug)]
pub(crate) struct AnswerStream {
    body: ReplyBody,
    unpack: Decoder,
    frames: SseDecoder,
    dialect: Dialect,
    engine: Engine,
    usage_to_client: bool,
    rename: Rename,
    /// Reports of the prefill, which only the proxy asked for, go here.
    reading: Option<Arc<Reading>>,
    /// What clients stumble over is put right.
    pub(crate) tidy: Tidy,
    repair: Option<StreamRepair>,
    ends: Ends,
    done: bool,
    /// How it ended, once it has; bytes that came before may still be on their way out.
    ended: Option<Result<(), Failure>>,
    /// Content has come that is held back.
    holds: bool,
    /// When the backend has computed something last.
    alive: Instant,
    /// What it is worth, so far.
    seen: Seen,
    /// The backend's own figures, for the record.
    pub(crate) usage: Option<Usage>,
    splits_thoughts: bool,
    finds_calls: bool,
    /// What it has said, if that is kept and nothing but text.
    spoken: Option<Spoken>,
    /// Where this backend's part is joined to another's.
    pub(crate) seam: Option<Seam>,
    /// Frames of this backend that were read before, and how it ended behind them, if it has.
    read: VecDeque<SseFrame>,
    after: Option<Result<(), Failure>>,
}

impl AnswerStream {
    /// Starts to read a reply's body.
    pub(crate) fn new(
        body: ReplyBody,
        unpack: Decoder,
        dialect: Dialect,
        engine: Engine,
        terms: &Terms,
    ) -> Self {
        Self {
            body,
            unpack,
            frames: SseDecoder::new(),
            dialect,
            engine,
            usage_to_client: terms.usage_to_client,
            rename: terms.rename.clone(),
            reading: terms.reading.clone(),
            tidy: terms.tidy.clone(),
            repair: terms.repair.clone().map(StreamRepair::new),
            ends: Ends::default(),
            done: false,
            ended: None,
            holds: false,
            alive: Instant::now(),
            seen: Seen::default(),
            usage: None,
            splits_thoughts: terms.repair.as_ref().is_some_and(RepairTerms::splits_thoughts),
            finds_calls: terms.repair.as_ref().is_some_and(|repair| repair.calls),
            spoken: terms.keep_text.then(|| Spoken::new(dialect)),
            seam: None,
            read: VecDeque::new(),
            after: None,
        }
    }

    /// Goes on with another backend's stream, of which `first` was read already, behind what was said.
    pub(crate) fn go_on(&mut self, rest: Self, first: Bytes, seam: Seam) {
        let mut decoder = SseDecoder::new();
        if decoder.push(first).is_ok() {
            while let Some(frame) = decoder.next_frame() {
                self.read.push_back(frame);
            }
        }
        (self.body, self.unpack, self.frames) = (rest.body, rest.unpack, rest.frames);
        (self.engine, self.seam, self.alive) = (rest.engine, Some(seam), rest.alive);
        self.reading = rest.reading;
        (self.ended, self.after) = (None, rest.ended);
        // What the first one counted, and its end, are not those of the answer.
        (self.usage, self.done) = (None, false);
    }

    /// What the backends have said, if another one could go on from there.
    pub(crate) fn spoken(&self) -> Option<&Spoken> {
        self.spoken.as_ref()
    }

    /// Whether thoughts are told from the text here, and not by the backend.
    pub(crate) fn splits_thoughts(&self) -> bool {
        self.splits_thoughts
    }

    /// Whether its text is read for calls.
    pub(crate) fn finds_calls(&self) -> bool {
        self.finds_calls
    }

    /// The answer is over, and was cut: what is held leaves as what it turned out to be.
    pub(crate) fn let_go(&mut self) -> Bytes {
        let mut out = BytesMut::new();
        self.release_held(&mut out);
        let out = self.rename.frames(out, self.dialect);
        self.tidy.frames(out, self.dialect).freeze()
    }

    /// All choices that have begun came to a good end.
    pub(crate) fn is_complete(&self) -> bool {
        self.ends.is_complete()
    }

    /// What its repair has come upon.
    pub(crate) fn traces(&self) -> Traces {
        self.repair.as_ref().map(StreamRepair::traces).unwrap_or_default()
    }

    /// Something has come that a client may show.
    pub(crate) fn says(&self) -> bool {
        self.seen.says
    }

    /// What it was worth.
    pub(crate) fn grade(&self) -> Grade {
        let tools = self.repair.as_ref().map(StreamRepair::tools).filter(|tools| !tools.is_empty());
        let none = Folded::default();
        let calls = self.repair.as_ref().map_or(&none, StreamRepair::client_calls);
        self.seen.grade(calls, tools.as_ref(), self.traces())
    }

    /// Whether it stands in the midst of markup that is held back.
    pub(crate) fn is_in_markup(&self) -> bool {
        self.repair.as_ref().is_some_and(StreamRepair::holds)
    }

    /// What ends the stream for the client, if the backend has not sent it.
    pub(crate) fn end_marker(&self) -> Bytes {
        let missing = if self.done { None } else { self.dialect.end_marker() };
        Bytes::from_static(missing.unwrap_or_default())
    }

    /// The same unless it stalls.
    pub(crate) async fn next_in_time(
        &mut self,
        backend: &Arc<Backend>,
        place: &Place,
        stall: Duration,
    ) -> Result<Progress, Result<(), Failure>> {
        let deadline = self.alive + stall;
        match unless_silent(backend, place, deadline, Fault::Stalled, self.next()).await {
            Ok(next) => {
                if next.as_ref().is_ok_and(|progress| progress.token || progress.content) {
                    place.token();
                }
                next
            }
            Err(failure) => Err(Err(failure)),
        }
    }

    /// What the next read brings, or how the stream ended. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Progress, Result<(), Failure>> {
        if let Some(ended) = self.ended.take() {
            return Err(ended);
        }
        let mut progress = Progress::default();
        let mut out = BytesMut::new();
        while self.ended.is_none()
            && let Some(frame) = self.read.pop_front()
        {
            self.take(&frame, &mut out, &mut progress);
        }
        if let Some(ended) = self.after.take() {
            self.ended.get_or_insert(ended);
        }
        if self.ended.is_some() || !out.is_empty() {
            return Ok(self.on_its_way(out, progress));
        }
        let read = match &self.repair {
            Some(repair) if repair.has_part() => tokio::time::timeout(PART_WAITS, self.body.next()).await,
            _ => Ok(self.body.next().await),
        };
        match read {
            Err(_) => {
                if let Some(repair) = &mut self.repair {
                    repair.send_parts(&mut out);
                }
                progress.content = !out.is_empty();
                self.holds = false;
            }
            Ok(Some(Ok(bytes))) => {
                let pushed = self.unpack.push(bytes).map_err(|error| error.to_string());
                let pushed =
                    pushed.and_then(|bytes| self.frames.push(bytes).map_err(|error| error.to_string()));
                if let Err(detail) = pushed {
                    self.ended = Some(Err(Failure::new(Fault::Other, detail)));
                }
                while self.ended.is_none()
                    && let Some(frame) = self.frames.next_frame()
                {
                    self.take(&frame, &mut out, &mut progress);
                }
            }
            Ok(end) => {
                while self.ended.is_none()
                    && let Some(frame) = self.frames.finish()
                {
                    if let Some(frame) = unbroken(frame, self.dialect) {
                        self.take(&frame, &mut out, &mut progress);
                    }
                }
                if self.ended.is_none() {
                    self.ended = Some(self.at_end(end.and_then(Result::err)));
                }
            }
        }
        Ok(self.on_its_way(out, progress))
    }

    /// What was made of one read. What is held stays so after a fault: another backend may go on.
    fn on_its_way(&mut self, mut out: BytesMut, mut progress: Progress) -> Progress {
        let ended_well = matches!(self.ended, Some(Ok(())));
        if ended_well && !self.done {
            self.release_held(&mut out);
        }
        out = self.rename.frames(out, self.dialect);
        out = self.tidy.frames(out, self.dialect);
        if ended_well {
            out.extend_from_slice(&self.end_marker());
            self.done = true;
        }
        if progress.token || progress.content {
            self.alive = Instant::now();
        }
        progress.bytes = out.freeze();
        progress
    }

    fn at_end(&self, error: Option<hyper::Error>) -> Result<(), Failure> {
        if self.is_complete() {
            return Ok(());
        }
        let fault = if self.done { Fault::Aborted } else { Fault::ConnectionLost };
        let unfinished = || Failure::new(fault, "stream ended without a finish reason");
        Err(error.map_or_else(unfinished, |error| Failure::new(Fault::ConnectionLost, error.to_string())))
    }

    fn take(&mut self, frame: &SseFrame, out: &mut BytesMut, progress: &mut Progress) {
        let Some(seam) = &mut self.seam else { return self.take_fitting(frame, out, progress) };
        match seam.frame(frame) {
            Ok(frames) => {
                progress.token |= self.dialect.read_frame(frame).token;
                for frame in frames {
                    if self.ended.is_none() {
                        self.take_fitting(&frame, out, progress);
                    }
                }
            }
            Err(misfit) => {
                self.ended = Some(Err(Failure::new(Fault::DidNotGoOn, misfit.to_string())));
            }
        }
    }

    fn take_fitting(&mut self, frame: &SseFrame, out: &mut BytesMut, progress: &mut Progress) {
        if let Some(stray) = frame.stray() {
            // Bare JSON, or an error under a field name of its own: servers in the middle and older llama.cpp do that.
            self.ended = Some(self.after_error(diagnose(self.engine, 200, stray)));
            return;
        }
        let said = self.dialect.read_frame(frame);
        let Some(data) = frame.data() else {
            if said.error {
                self.ended = Some(self.after_error(diagnose(self.engine, 200, frame.bytes())));
            }
            return;
        };
        if said.error {
            self.ended = Some(self.after_error(diagnose(self.engine, 200, &data)));
            return;
        }
        if self.reading.as_ref().is_some_and(|reading| reading.takes(&data)) {
            return;
        }
        if let Some(reason) = self.ends.take(&said) {
            self.ended = Some(Err(Failure::broken_off(&reason)));
            return;
        }
        self.usage = match (self.usage, said.usage) {
            (Some(before), Some(now)) => Some(before.then(now)),
            (before, now) => now.or(before),
        };
        self.spoken = self.spoken.take().and_then(|spoken| spoken.with(&data));
        progress.token |= said.token;
        self.seen.said(&said);
        if said.done {
            self.done = true;
            self.ended = Some(self.at_end(None));
            if !self.is_complete() {
                return;
            }
        }
        if said.empty_choices && !self.usage_to_client {
            return;
        }
        // `[DONE]` and `message_stop` say nothing more; a response ends with all of it.
        if said.done && (said.choices.is_empty() || self.repair.is_none()) {
            self.release_held(out);
            out.extend_from_slice(frame.bytes());
            return;
        }
        let mut one_line = BytesMut::new();
        if frame.is_canonical() || !matches!(self.dialect, Dialect::Chat | Dialect::Completions) {
            one_line.extend_from_slice(frame.bytes());
        } else {
            reframe(&data, &mut one_line);
        }
        let before = out.len();
        match (&mut self.repair, std::str::from_utf8(&data)) {
            (Some(repair), Ok(json)) => repair.frame(&one_line.freeze(), json, out),
            _ => out.extend_from_slice(&one_line),
        }
        // What is held back was not shown: failover is still invisible then.
        self.holds |= said.content;
        progress.content |= self.holds && out.len() > before;
        self.holds &= out.len() == before;
        if said.done {
            self.release_held(out);
        }
    }

    /// At the end of the stream: what the repair holds leaves as what it turned out to be.
    fn release_held(&mut self, out: &mut BytesMut) {
        if let Some(repair) = &mut self.repair {
            repair.finish(out);
        }
    }

    /// After all choices have finished well an error changes nothing: the answer is whole.
    fn after_error(&self, error: BackendError) -> Result<(), Failure> {
        if self.is_complete() {
            return Ok(());
        }
        Err(Failure::told(error))
    }
}
