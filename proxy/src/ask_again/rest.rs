//! An answer whose backend failed after a part of it was shown: another backend of the same model goes on with it.
//!
//! Only where that is honest: nothing but thoughts and text was said (calls in it of which nothing was shown are text here), in one
//! choice, and the next engine is known to continue an answer (facts of vLLM 0.32 and llama.cpp, captured). The backend that failed is never
//! asked again, the prompt and what was said must fit, and what is read again counts as debt. Must never repeat what was shown, and
//! never end a cut answer like a whole one.
//!
//! | the answer | how it goes on |
//! |---|---|
//! | chat | as a completion of the rendered prompt ([`exact`]), else its text as the beginning of the assistant's turn |
//! | completion | its text behind the prompt |
//! | message | as the beginning of the assistant's turn, at llama.cpp; vLLM begins a new turn there |
//! | response | not at all: no server was seen to go on with one |

use bytes::Bytes;
use http::HeaderMap;
use serde_json::json;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::edit::Edits;
use switchback_parsers::json::Value;
use switchback_parsers::prompt;
use switchback_parsers::request::ChatRequest;
use switchback_policies::decision::Choice;
use switchback_policies::demand::CutAnswers;
use switchback_policies::facts::PromptSize;
use switchback_policies::failover::Fault;

use super::{Look, exact, question};
use crate::answer::relay::AnswerStream;
use crate::answer::seam::Seam;
use crate::answer::spoken::Spoken;
use crate::answer::{Out, Piece};
use crate::app::App;
use crate::backend::Backend;
use crate::call::{Call, Endpoint};
use crate::edits;
use crate::error::ApiError;
use crate::identify::Client;
use crate::models;
use crate::plan::Plan;
use crate::record::{End, Outcome};

/// Members of a request that bind more than the words of the answer, or add to them: half of one can't be told from a whole.
const BINDING: [&str; 13] = [
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "grammar",
    "json_schema",
    "audio",
    "output_config",
    "suffix",
    "top_logprobs",
    "prompt_logprobs",
];

/// How thoughts stand in what a backend says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The backend tells them from the text.
    ThoughtsApart,
    /// They stand in the text, and are told apart here.
    Raw,
}

/// Whether the answer to a request could be continued by another backend, if it came to that.
pub(crate) fn may_go_on(call: &Call, client: &Client, plan: &Plan) -> bool {
    let Some(request) = &call.request else { return false };
    let root = request.root();
    let is = |name: &str| root.get(name).filter(|value| !value.is_null());
    let word = |value: Value<'_>, words: &[&str]| value.as_str().is_some_and(|said| words.contains(&&*said));
    let is_text = |value: Value<'_>| value.get("type").is_some_and(|kind| word(kind, &["text"]));
    let binds = |name: &str| is(name).is_some_and(|value| !is_text(value));
    let free = |choice: Value<'_>| word(choice.get("type").unwrap_or(choice), &["auto", "none"]);
    let one = |name: &str| is(name).and_then(Value::as_u64).is_none_or(|n| n <= 1);
    let off = |name: &str| is(name).is_none_or(|value| value.as_bool() == Some(false));
    let last = request.messages().last().and_then(|message| message.role());
    let fits = match call.endpoint.dialect {
        // It may be a continuation already.
        Some(Dialect::Chat | Dialect::Messages) => last.as_deref() != Some("assistant"),
        Some(Dialect::Completions) => is("prompt").is_some_and(|prompt| prompt.as_str().is_some()),
        Some(Dialect::Responses) | None => false,
    };
    client.cut_answers == CutAnswers::Continue
        && call.stream
        && fits
        && plan.backends.len() > 1
        && one("n")
        && one("best_of")
        && off("logprobs")
        && off("echo")
        && is("modalities").is_none_or(|kinds| kinds.elements().all(|kind| word(kind, &["text"])))
        && is("tool_choice").is_none_or(free)
        && !BINDING.iter().any(|name| binds(name))
}

/// An answer that was cut.
pub(crate) struct Cut {
    stream: Box<AnswerStream>,
    look: Option<Look>,
    /// Who failed, and of what.
    failed: (String, Fault),
    /// What asks for the rest in the answer's own dialect.
    question: Option<Call>,
    /// Bytes of what was said.
    shown: usize,
    mode: Mode,
    /// How the question that was asked last is joined.
    seam: Option<Seam>,
}

/// What asks a backend for the rest.
pub(crate) struct Question {
    pub(crate) call: Call,
    pub(crate) body: Bytes,
}

impl Cut {
    pub(crate) fn new(
        stream: Box<AnswerStream>,
        look: Option<Look>,
        backend: &Backend,
        fault: Fault,
    ) -> Self {
        let shown = stream.spoken().map_or(0, Spoken::length);
        let mode = if stream.splits_thoughts() { Mode::Raw } else { Mode::ThoughtsApart };
        let failed = (backend.name().to_owned(), fault);
        Self { stream, look, failed, question: None, shown, mode, seam: None }
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
        if spoken.length() == 0 {
            return None;
        }
        let others: Vec<usize> = (0..plan.backends.len())
            .filter(|at| *at != failed && is_same_model(app, call, plan, failed, *at))
            .filter(|at| {
                let other = &plan.backends[*at];
                self.goes_on(call, spoken, other) || self.may_be_exact(call, other)
            })
            .collect();
        if others.is_empty() {
            return None;
        }
        // What the client may use up is used up in part.
        let left = request.output_limit().map(|limit| limit.saturating_sub(spoken.tokens()).max(1));
        let rest = continued(call, request, spoken, left, self.stream.is_in_markup())?;
        let (before, now) = (prompt::bounds(request), prompt::bounds(&rest));
        let thought = spoken.thought().len() as u64;
        let grown = |of: fn(PromptSize) -> u64, before: u64, now: u64| {
            of(plan.measured.size).saturating_add(now.saturating_sub(before))
        };
        plan.facts.prompt = PromptSize::Between {
            low: grown(PromptSize::low, before.low(), now.low()),
            high: grown(PromptSize::high, before.high(), now.high()).saturating_add(thought),
        };
        plan.facts.output = left.or(plan.facts.output);
        self.question = Some(call.asking(rest));
        Some(others)
    }

    /// Whether an engine goes on with a beginning in the answer's own dialect.
    fn goes_on(&self, call: &Call, spoken: &Spoken, other: &Backend) -> bool {
        let engine = other.engine();
        match call.endpoint.dialect {
            Some(Dialect::Chat) => {
                let told = self.mode == Mode::ThoughtsApart && !spoken.thinks();
                told && !spoken.text().is_empty() && matches!(engine, Engine::Vllm | Engine::LlamaCpp)
            }
            Some(Dialect::Completions) => {
                matches!(engine, Engine::Vllm | Engine::LlamaCpp | Engine::IkLlama | Engine::Sglang)
            }
            // Its own parser reads what goes on, and half of a call is nothing to it.
            Some(Dialect::Messages) => {
                engine == Engine::LlamaCpp && !spoken.text().is_empty() && !self.stream.is_in_markup()
            }
            Some(Dialect::Responses) | None => false,
        }
    }

    /// Whether it may be asked for as a completion of the rendered prompt.
    fn may_be_exact(&self, call: &Call, other: &Backend) -> bool {
        let request = call.request.as_deref().filter(|_| call.endpoint.dialect == Some(Dialect::Chat));
        request.is_some_and(|request| exact::may_be(request, other, self.stream.finds_calls()))
    }

    /// What asks a backend for the rest: `None` if it turns out that it cannot go on. `choice`: of the plan that was prepared.
    pub(crate) async fn ask(
        &mut self,
        app: &App,
        call: &Call,
        client: &Client,
        (backend, choice, window): (&Backend, &Choice, Option<u64>),
    ) -> Option<Question> {
        let spoken = self.stream.spoken()?;
        let write = |call: &Call| edits::write(call, client, backend, choice, &app.config, true).body;
        // An engine's own parser knows its calls best: text before them goes on as a chat, if it can.
        let parses = call.request.as_deref().is_some_and(exact::may_call) && !self.stream.is_in_markup();
        let as_chat = parses && self.goes_on(call, spoken, backend) && !backend.parses_no_tools();
        if !as_chat
            && self.may_be_exact(call, backend)
            && let Ok(sent) = ChatRequest::parse(write(call))
            && let Some(exact) = exact::written(&sent, spoken, self.mode, backend, window).await
        {
            let exact::Exact { body, thoughts, blank, said } = exact;
            self.seam = Some(Seam::completion(spoken, &blank, thoughts, said));
            let endpoint = Endpoint::at("/completions", None);
            return Some(Question { call: Call { endpoint, ..call.clone() }, body });
        }
        if !self.goes_on(call, spoken, backend) {
            return None;
        }
        let question = self.question.clone()?;
        self.seam = Some(match call.endpoint.dialect {
            Some(Dialect::Completions) => Seam::plain(spoken),
            _ => Seam::behind(spoken, backend.engine()),
        });
        let body = edits::write(&question, client, backend, choice, &app.config, true).body;
        Some(Question { call: question, body })
    }

    /// Goes on with the stream of another backend, of which `first` has been read. Gives what has passed, and what is to be told.
    pub(crate) fn goes_on_with(
        mut self,
        rest: AnswerStream,
        first: Bytes,
        backend: &Backend,
    ) -> (Box<AnswerStream>, Option<Look>, String) {
        let (name, fault) = &self.failed;
        let told = format!("continued on {}: {name} failed ({fault})", backend.name());
        if let Some(seam) = self.seam.take() {
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

/// The request for the rest in the same dialect. `raw`: what was said ends in the midst of markup.
fn continued(
    call: &Call,
    request: &ChatRequest,
    spoken: &Spoken,
    left: Option<u64>,
    raw: bool,
) -> Option<ChatRequest> {
    let (root, mut edits) = (request.root(), Edits::new());
    match call.endpoint.dialect {
        Some(Dialect::Completions) => {
            let prompt = root.get("prompt")?;
            edits.replace(
                prompt,
                serde_json::Value::from(format!("{}{}", prompt.as_str()?, spoken.text())).to_string(),
            );
        }
        Some(Dialect::Messages) => {
            let said = json!({ "role": "assistant", "content": spoken.text() });
            edits.push(root.get("messages")?, said.to_string());
        }
        _ => question::continued(request, spoken.text(), left, raw, &mut edits),
    }
    match call.endpoint.dialect {
        Some(Dialect::Completions) => question::limited(request, left, &mut edits),
        Some(Dialect::Messages) => {
            question::limited(request, left, &mut edits);
            question::thoughtless(request, &mut edits);
        }
        _ => question::thoughtless(request, &mut edits),
    }
    ChatRequest::parse(request.write(&Edits::new(), &edits)).ok()
}

/// Whether two backends serve the same model, by the operator's word or by the name that both have.
fn is_same_model(app: &App, call: &Call, plan: &Plan, begun: usize, other: usize) -> bool {
    let (begun, other) = (&plan.backends[begun], &plan.backends[other]);
    let names = other.names();
    let same_name = begun.names().iter().any(|name| names.contains(name));
    same_name || models::are_one(app, call.model.as_deref(), [begun.name(), other.name()])
}
