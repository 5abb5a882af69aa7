//! An answer whose backend failed after a part of it was shown: another backend of the same model goes on with it.
//!
//! Only where that is honest: nothing but text was said (calls in it of which nothing was shown are text here), in one choice,
//! and the next engine is known to continue an answer (facts of vLLM 0.32 and llama.cpp, captured). The backend that failed is never
//! asked again, the prompt and what was said must fit, and what is read again counts as debt. Usage is what the last backend says:
//! there the beginning counts as prompt. Must never repeat what was shown, and never end a cut answer like a whole one.

use bytes::Bytes;
use http::HeaderMap;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::edit::Edits;
use switchback_parsers::json::Value;
use switchback_parsers::prompt;
use switchback_parsers::request::ChatRequest;
use switchback_policies::demand::CutAnswers;
use switchback_policies::facts::PromptSize;
use switchback_policies::failover::Fault;

use super::{Look, question};
use crate::answer::relay::AnswerStream;
use crate::answer::seam::Seam;
use crate::answer::{Out, Piece};
use crate::app::App;
use crate::backend::Backend;
use crate::call::Call;
use crate::error::ApiError;
use crate::identify::Client;
use crate::models;
use crate::plan::Plan;
use crate::record::{End, Outcome};

/// Members of a request that bind more than the words of the answer: half of one can't be told from a whole.
const BINDING: [&str; 9] = [
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "grammar",
    "json_schema",
    "audio",
];

/// Whether the answer to a request could be continued by another backend, if it came to that.
pub(crate) fn may_go_on(call: &Call, client: &Client, plan: &Plan) -> bool {
    let Some(request) = &call.request else { return false };
    let root = request.root();
    let is = |name: &str| root.get(name).filter(|value| !value.is_null());
    let word = |value: Value<'_>, words: &[&str]| value.as_str().is_some_and(|said| words.contains(&&*said));
    let is_text = |value: Value<'_>| value.get("type").is_some_and(|kind| word(kind, &["text"]));
    let binds = |name: &str| is(name).is_some_and(|value| !is_text(value));
    let free = is("tool_choice").is_none_or(|choice| word(choice, &["auto", "none"]));
    let last = request.messages().last().and_then(|message| message.role());
    client.cut_answers == CutAnswers::Continue
        && call.stream
        && call.endpoint.dialect == Some(Dialect::Chat)
        && plan.backends.len() > 1
        && is("n").and_then(Value::as_u64).is_none_or(|n| n <= 1)
        && is("logprobs").and_then(Value::as_bool) != Some(true)
        && is("modalities").is_none_or(|kinds| kinds.elements().all(|kind| word(kind, &["text"])))
        && free
        && !BINDING.iter().any(|name| binds(name))
        // It is a continuation already.
        && last.as_deref() != Some("assistant")
}

/// An answer that was cut.
pub(crate) struct Cut {
    stream: Box<AnswerStream>,
    look: Option<Look>,
    /// Who failed, and of what.
    failed: (String, Fault),
    /// What asks for the rest.
    question: Option<Call>,
    /// Bytes of what was said.
    shown: usize,
}

impl Cut {
    pub(crate) fn new(
        stream: Box<AnswerStream>,
        look: Option<Look>,
        backend: &Backend,
        fault: Fault,
    ) -> Self {
        let shown = stream.spoken().map_or(0, |spoken| spoken.text().len());
        Self { stream, look, failed: (backend.name().to_owned(), fault), question: None, shown }
    }

    /// What asks for the rest, once that is prepared.
    pub(crate) fn question(&self) -> Option<&Call> {
        self.question.as_ref()
    }

    /// How much was said: another cut behind it is another one.
    pub(crate) fn shown(&self) -> usize {
        self.shown
    }

    /// Prepares the question for the rest, and plans with it. Gives the backends that can go on (positions in the plan);
    /// `None`: nobody can, or it would not be the same answer. `failed`: who was cut.
    pub(crate) fn prepare(
        &mut self,
        app: &App,
        call: &Call,
        plan: &mut Plan,
        failed: usize,
    ) -> Option<Vec<usize>> {
        let spoken = self.stream.spoken()?;
        let request = call.request.as_deref()?;
        let others: Vec<usize> = (0..plan.backends.len())
            .filter(|at| *at != failed && goes_on(app, call, plan, failed, *at))
            .collect();
        if others.is_empty() || spoken.text().is_empty() {
            return None;
        }
        // What the client may use up is used up in part.
        let left = request.output_limit().map(|limit| limit.saturating_sub(spoken.tokens()).max(1));
        let mut edits = Edits::new();
        question::continued(request, spoken.text(), left, self.stream.is_in_markup(), &mut edits);
        question::thoughtless(request, &mut edits);
        let rest = ChatRequest::parse(request.write(&Edits::new(), &edits)).ok()?;
        let (before, now) = (prompt::bounds(request), prompt::bounds(&rest));
        let grown = |of: fn(PromptSize) -> u64, before: u64, now: u64| {
            of(plan.measured.size).saturating_add(now.saturating_sub(before))
        };
        plan.facts.prompt = PromptSize::Between {
            low: grown(PromptSize::low, before.low(), now.low()),
            high: grown(PromptSize::high, before.high(), now.high()),
        };
        plan.facts.output = left.or(plan.facts.output);
        self.question = Some(call.asking(rest));
        Some(others)
    }

    /// Goes on with the stream of another backend, of which `first` has been read. Gives what has passed, and what is to be told.
    pub(crate) fn goes_on(
        mut self,
        rest: AnswerStream,
        first: Bytes,
        backend: &Backend,
    ) -> (Box<AnswerStream>, Option<Look>, String) {
        let (name, fault) = &self.failed;
        let told = format!("continued on {}: {name} failed ({fault})", backend.name());
        if let Some(seam) = self.stream.spoken().map(|spoken| Seam::behind(spoken, backend.engine())) {
            self.stream.go_on(rest, first, seam);
        }
        (self.stream, self.look, told)
    }

    /// Nobody goes on: the client is told that the answer is not complete.
    pub(crate) async fn tell(mut self, outcome: &mut Outcome, out: &Out) {
        let rest = self.stream.let_go();
        let rest = match &mut self.look {
            Some(look) => look.at(rest, &self.stream).frames,
            None => rest,
        };
        out.data(rest).await;
        let (name, fault) = &self.failed;
        let error = ApiError::answer_cut(name, *fault);
        outcome.ends(End::Cut, Some(error.code));
        out.send(Piece::Refused(error, HeaderMap::new())).await;
    }
}

/// Whether one backend can go on with what another has begun: an engine that is known to, and the same model, by the operator's
/// word or by the name that both serve.
fn goes_on(app: &App, call: &Call, plan: &Plan, begun: usize, other: usize) -> bool {
    let (begun, other) = (&plan.backends[begun], &plan.backends[other]);
    let continues = matches!(other.engine(), Engine::Vllm | Engine::LlamaCpp);
    let names = other.names();
    let same_name = begun.names().iter().any(|name| names.contains(name));
    continues && (same_name || models::are_one(app, call.model.as_deref(), [begun.name(), other.name()]))
}
