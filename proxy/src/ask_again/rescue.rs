//! An answer that the client's own limit cut inside a call, when its text was shown already and the call was not: the model
//! goes on where it was cut, and the call is read from both halves.
//!
//! The one continuation that is honest without a word from the client: nothing that was shown is taken back, and the call
//! is taken only if it closes. Same backend, so that its prefix cache holds. llama.cpp repeats what it continues in plain
//! answers, vLLM does not, and templates trim the end of what is to be continued: so it ends without white space, and what
//! is repeated is taken off. Thoughts cannot be continued: templates put an empty one before the text.

use bytes::{Bytes, BytesMut};
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::edit::Edits;
use switchback_parsers::event::{Folded, Note};
use switchback_parsers::request::ChatRequest;
use switchback_parsers::sse::{SseDecoder, SseFrame};
use switchback_policies::demand::{CutCalls, InvalidCalls};

use super::{Asked, Watch, question};
use crate::answer::join::Join;
use crate::answer::relay::AnswerStream;
use crate::answer::unfold;
use crate::attempt::{Failure, Started, Terms, attempt};
use crate::call::Call;

/// A look at an answer that passes.
pub(crate) struct Look {
    watch: Watch,
    /// What was shown of it.
    shown: Folded,
    /// The end of an answer that was cut inside a call: it may still have a better one.
    kept: Vec<SseFrame>,
}

/// What leaves of some frames.
pub(crate) struct Passing {
    pub(crate) frames: Bytes,
    /// What is wrong with the answer's calls, for who wants to know.
    pub(crate) note: Option<String>,
}

impl Look {
    /// For a client that wants to know of invalid calls, or to have cut ones rescued.
    pub(super) fn of(watch: Watch) -> Option<Self> {
        let looks = watch.wishes.invalid == InvalidCalls::Note || watch.wishes.cut == CutCalls::Rescue;
        looks.then(|| Self { watch, shown: Folded::default(), kept: Vec::new() })
    }

    /// Looks at the next frames of a stream.
    pub(crate) fn at(&mut self, frames: Bytes, stream: &AnswerStream) -> Passing {
        let mut decoder = SseDecoder::new();
        if decoder.push(frames.clone()).is_err() {
            return Passing { frames, note: None };
        }
        let rescues = self.watch.wishes.cut == CutCalls::Rescue && stream.traces().cut_call;
        let mut passing = BytesMut::with_capacity(frames.len());
        let mut note = None;
        while let Some(frame) = decoder.next_frame() {
            let ends = self.shown.add_frame(&frame);
            if !self.kept.is_empty() || (ends && rescues && self.shown.finish_reason == "length") {
                self.kept.push(frame);
                continue;
            }
            if ends {
                note = self.watch.note(&self.shown);
            }
            passing.extend_from_slice(frame.bytes());
        }
        Passing { frames: passing.freeze(), note }
    }

    /// What is left to be sent when the stream has ended, and what was done about it.
    /// `said`: the backend's whole text without white space at its end, if it can be continued.
    pub(crate) async fn rest(self, asked: &Asked<'_>, said: Option<&str>) -> Passing {
        let kept = |from: usize| self.kept[from..].iter().flat_map(|frame| frame.bytes().iter().copied());
        if self.kept.is_empty() {
            return Passing { frames: Bytes::new(), note: None };
        }
        let rescued = match said.and_then(|said| asked.continuation(said, &self.shown)) {
            Some(rescue) => Some(rescue.run(asked, &self.shown).await),
            None => None,
        };
        match rescued {
            None => Passing { frames: kept(0).collect(), note: None },
            Some(None) => {
                let note = Some("continued in vain: the limit cut a call".to_owned());
                Passing { frames: kept(0).collect(), note }
            }
            Some(Some(whole)) => {
                let mut frames = unfold::rest(&self.kept[0], &self.shown, &whole, &asked.call.id);
                frames.extend(kept(1));
                Passing { frames: frames.freeze(), note: Some("continued: the limit cut a call".to_owned()) }
            }
        }
    }
}

/// A continuation that is possible.
struct Rescue {
    call: Call,
    /// What is continued.
    text: String,
}

impl Asked<'_> {
    /// The question that continues what was said; `None` where that would not be the same answer.
    fn continuation(&self, said: &str, shown: &Folded) -> Option<Rescue> {
        let engine = self.backend.engine();
        let tokens = self.longer().map(|(sent, longer)| longer.saturating_sub(sent))?;
        let text = said;
        let is_tail = text.starts_with(&shown.content) && text.len() > shown.content.len();
        if !matches!(engine, Engine::Vllm | Engine::LlamaCpp) || !is_tail || !shown.reasoning.is_empty() {
            return None;
        }
        let request = self.call.request.as_deref()?;
        let mut edits = Edits::new();
        question::continued_whole(request, text, tokens, &mut edits);
        let request = ChatRequest::parse(request.write(&Edits::new(), &edits)).ok()?;
        Some(Rescue { call: Call { stream: false, ..self.call.asking(request) }, text: text.to_owned() })
    }
}

impl Rescue {
    /// The whole answer, if the continuation closes the call.
    async fn run(self, asked: &Asked<'_>, shown: &Folded) -> Option<Folded> {
        let more = match self.ask(asked).await {
            Ok(more) => more,
            Err(failure) => {
                asked.failed(&failure);
                return None;
            }
        };
        if !more.calls.is_empty() || !more.reasoning.is_empty() {
            return None;
        }
        let behind = Join::behind(&self.text, asked.backend.engine()).whole(&more.content).ok()?;
        let repair = asked.terms.repair.as_ref()?;
        let whole = repair.read(&format!("{}{behind}", self.text), &more.finish_reason);
        let same = |(one, other): (_, _)| one == other;
        // The seam holds if what was held became the call, and nothing else.
        let goes_on = whole.content.trim_end() == shown.content.trim_end()
            && whole.calls.len() > shown.calls.len()
            && shown
                .calls
                .iter()
                .zip(&whole.calls)
                .map(|(one, other)| ((&one.name, &one.arguments), (&other.name, &other.arguments)))
                .all(same);
        let is_whole = whole.calls.iter().all(|call| call.closed)
            && !whole.notes.contains(&Note::CutInsideCall)
            && whole.finish_reason == "tool_calls";
        (goes_on && is_whole).then_some(whole)
    }

    async fn ask(&self, asked: &Asked<'_>) -> Result<Folded, Failure> {
        let written = asked.written(&self.call);
        // Raw: the halves are read together.
        let terms = Terms { stream: false, ..asked.terms.for_a_rest() };
        match attempt(asked.backend, &self.call, written.body, &terms, asked.place).await? {
            Started::Whole { body, .. } => {
                Ok(Folded::of_answer(std::str::from_utf8(&body).unwrap_or_default()))
            }
            _ => Ok(Folded::default()),
        }
    }
}
