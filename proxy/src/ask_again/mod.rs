//! The one hidden second question: an answer whose calls are wrong, missing or cut is held back, judged
//! (`switchback_policies::demand`), and asked for once more where the operator wants that for the client.
//!
//! The second question goes to the same backend, with the same prompt in front, so that its prefix cache holds. It is no
//! failover: if it fails or brings nothing better, the first answer is delivered as it was. Must never ask after anything
//! was shown, never twice, and never hold what no wish is about.

mod exact;
mod question;
mod refused;
mod rescue;
mod rest;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use switchback_parsers::chunk::Dialect;
use switchback_parsers::edit::Edits;
use switchback_parsers::event::Folded;
use switchback_parsers::json::Value;
use switchback_parsers::request::ChatRequest;
use switchback_parsers::schema::ToolSet;
use switchback_parsers::sse::SseDecoder;
use switchback_parsers::tool_call::{Options, ToolChoice};
use switchback_policies::budget;
use switchback_policies::decision::Choice;
use switchback_policies::demand::{self, Again, AnswerFacts, InvalidCalls, Means, MissingCalls, Wishes};
use switchback_policies::facts::BackendFacts;

use crate::answer::repair::RepairTerms;
use crate::app::App;
use crate::attempt::{Failure, Started, Terms, attempt};
use crate::backend::{Backend, Place};
use crate::call::Call;
use crate::edits::{self, Written};
use crate::identify::Client;
use crate::plan::Plan;
use crate::record::Outcome;
pub(crate) use refused::ask;
pub(crate) use rescue::{Look, Passing};
pub(crate) use rest::{Cut, may_go_on};

/// The most that is held back, in bytes of frames; beyond that the answer leaves as it is.
const HELD: usize = 1 << 20;

/// Tokens that errors and the markup of a follow-up may take.
const FOLLOW_UP: u64 = 512;

/// A question that was asked, and all that asking it again takes.
pub(crate) struct Asked<'a> {
    pub(crate) app: &'a App,
    pub(crate) call: &'a Call,
    pub(crate) client: &'a Client,
    pub(crate) plan: &'a Plan,
    pub(crate) choice: &'a Choice,
    pub(crate) backend: &'a Arc<Backend>,
    pub(crate) place: &'a Place,
    pub(crate) terms: &'a Terms,
    /// Usage is asked of every backend.
    pub(crate) ask_usage: bool,
}

/// What an answer is looked at for.
struct Watch {
    options: Options,
    demanded: bool,
    wishes: Wishes,
}

/// An answer that is in hand to its end.
struct Finished {
    started: Started,
    folded: Folded,
    facts: AnswerFacts,
    /// What is wrong with which call.
    wrong: Vec<(usize, String)>,
}

/// An answer held back.
enum Held {
    Finished(Box<Finished>),
    /// It need not, or must not, be held any longer.
    LetGo(Started),
}

impl Watch {
    /// `None` for most requests: nothing is wished for, or no call can be in the answer.
    fn of(call: &Call, client: &Client, terms: &Terms) -> Option<Self> {
        let wishes = client.wishes;
        let repair = terms.repair.as_ref().filter(|repair| repair.calls)?;
        let request = call.request.as_deref().filter(|_| call.endpoint.dialect == Some(Dialect::Chat))?;
        let several = request.root().get("n").and_then(Value::as_u64).is_some_and(|n| n > 1);
        if wishes == Wishes::default() || several {
            return None;
        }
        let options = Options::of(&repair.request);
        let demanded = matches!(options.tool_choice, ToolChoice::Required | ToolChoice::Named(_));
        let may_call = !options.tools.is_empty() && options.tool_choice != ToolChoice::None;
        may_call.then_some(Self { options, demanded, wishes })
    }

    /// Whether what follows may still call for a second question, which must come before anything is shown.
    fn holds(&self, folded: &Folded) -> bool {
        let missing = self.demanded && self.wishes.missing != MissingCalls::Pass;
        self.wishes.invalid == InvalidCalls::AskAgain || (missing && !self.heeds(folded))
    }

    /// Whether there is a call, and of the named tool where one is named: llama.cpp takes a named one for `auto`.
    fn heeds(&self, folded: &Folded) -> bool {
        let named = match &self.options.tool_choice {
            ToolChoice::Named(name) => Some(name),
            _ => None,
        };
        folded.calls.iter().any(|call| named.is_none_or(|named| call.name == *named))
    }

    fn judge(&self, folded: &Folded, cut_call: bool) -> (AnswerFacts, Vec<(usize, String)>) {
        let at_limit = folded.finish_reason == "length";
        let broken = |arguments: &str| serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_err();
        let cut_last = folded.calls.last().is_some_and(|call| broken(&call.arguments));
        let wrong = folded.wrong_calls(&self.options.tools);
        let facts = AnswerFacts {
            calls: folded.calls.len(),
            invalid: wrong.len(),
            unheeded: self.demanded && !self.heeds(folded),
            at_limit,
            cut_call: at_limit && (cut_call || cut_last),
        };
        (facts, wrong)
    }

    /// What a client is told that wants to know what is wrong.
    fn note(&self, folded: &Folded) -> Option<String> {
        let (_, wrong) = self.judge(folded, false);
        (self.wishes.invalid == InvalidCalls::Note && !wrong.is_empty())
            .then(|| format!("call passed although {}", sentence(folded, &wrong)))
    }
}

/// Lets an answer go on that is what was asked for; asks once more for one that is not.
pub(crate) async fn settle(
    asked: &Asked<'_>,
    started: Started,
    outcome: &mut Outcome,
) -> Result<Started, Failure> {
    let Some(watch) = Watch::of(asked.call, asked.client, asked.terms) else { return Ok(started) };
    let first = match hold(asked, &watch, started, false).await? {
        Held::Finished(first) => first,
        Held::LetGo(started) => return Ok(started),
    };
    let Some(again) = demand::again(first.facts, watch.wishes, asked.means(&first)) else {
        outcome.adjusted.extend(watch.note(&first.folded));
        return Ok(first.started);
    };
    let what = match again {
        Again::Corrected => format!("asked again: {}", sentence(&first.folded, &first.wrong)),
        Again::Same => "asked again: no call although demanded".to_owned(),
        Again::Constrained => "asked again for nothing but a call: none although demanded".to_owned(),
        Again::Longer(tokens) => format!("asked again for {tokens} tokens: the limit cut a call"),
    };
    let Some(call) = asked.question(&watch, again, &first) else { return Ok(first.started) };
    match asked.ask(&watch, &call).await {
        Ok(Held::Finished(second)) if demand::is_better(first.facts, second.facts) => {
            outcome.adjusted.push(what);
            Ok(second.started)
        }
        second => {
            if let Err(failure) = second {
                asked.failed(&failure);
            }
            outcome.adjusted.push(format!("{what}; the second answer was no better"));
            Ok(first.started)
        }
    }
}

impl Asked<'_> {
    /// For a stream that is on its way.
    pub(crate) fn look(&self) -> Option<Look> {
        Watch::of(self.call, self.client, self.terms).and_then(Look::of)
    }

    /// The tools that the answer may call, if they are looked for.
    pub(crate) fn tools(&self) -> Option<ToolSet> {
        self.terms.repair.as_ref().map(RepairTerms::tools).filter(|tools| !tools.is_empty())
    }

    fn facts(&self) -> Option<&BackendFacts> {
        self.plan.backend_facts.get(self.choice.candidate.backend)
    }

    /// What is possible for a second question.
    fn means(&self, first: &Finished) -> Means {
        let prompt = self.plan.facts.prompt;
        let answer = first.folded.content.len()
            + first.folded.calls.iter().map(|call| call.arguments.len()).sum::<usize>();
        // A byte is a token at the most.
        let follow_up = prompt.expected().saturating_add(answer as u64).saturating_add(FOLLOW_UP);
        let limit = self.facts().and_then(BackendFacts::prompt_limit);
        Means {
            follow_up: limit.is_none_or(|limit| follow_up <= limit),
            constrain: question::can_constrain(self.backend.engine()),
            longer: self.longer().map(|(_, longer)| longer),
        }
    }

    /// The output limit that was sent, and a larger one, tokens.
    fn longer(&self) -> Option<(u64, u64)> {
        let sent = self.choice.output().or(self.plan.facts.output)?;
        let window = self.facts().and_then(|facts| facts.window);
        let margin = self.app.config.answer.margin;
        budget::longer(sent, self.plan.facts.prompt, window, margin).map(|longer| (sent, longer))
    }

    /// A second question as the backend gets it.
    fn written(&self, call: &Call) -> Written {
        edits::write(call, self.client, self.backend, self.choice, &self.app.config, self.ask_usage)
    }

    /// The second question failed: no reason to lose the first answer, but a fault of the backend.
    fn failed(&self, failure: &Failure) {
        tracing::warn!(
            id = self.call.id,
            backend = self.backend.name(),
            fault = %failure.fault,
            detail = failure.detail,
            "asking again failed",
        );
        self.backend.on_fault(failure.fault, self.place);
    }

    /// The second question.
    fn question(&self, watch: &Watch, again: Again, first: &Finished) -> Option<Call> {
        let request = self.call.request.as_deref()?;
        let mut edits = Edits::new();
        match again {
            Again::Same => {}
            Again::Corrected => question::corrected(request, &first.folded, &first.wrong, &mut edits),
            Again::Longer(tokens) => question::longer(request, tokens, &mut edits),
            Again::Constrained => {
                let named = match &watch.options.tool_choice {
                    ToolChoice::Named(name) => Some(name.as_str()),
                    _ => None,
                };
                let keywords = &self.backend.config.drop_schema_keywords;
                edits::constrained(request, Dialect::Chat, named, keywords, &mut edits);
            }
        }
        let request = ChatRequest::parse(request.write(&Edits::new(), &edits)).ok()?;
        Some(self.call.asking(request))
    }

    /// Asks it, and waits for the whole answer.
    async fn ask(&self, watch: &Watch, call: &Call) -> Result<Held, Failure> {
        let written = self.written(call);
        let started = attempt(self.backend, call, written.body, self.terms, self.place).await?;
        hold(self, watch, started, true).await
    }
}

/// What is wrong with the first call that is wrong.
fn sentence(folded: &Folded, wrong: &[(usize, String)]) -> String {
    let first = wrong.first().and_then(|(place, error)| Some((folded.calls.get(*place)?, error)));
    first.map(|(call, error)| format!("{}: {error}", call.name)).unwrap_or_default()
}

/// Reads on while the answer may have to be asked for again, or to its end. A fault is one before the first content.
async fn hold(asked: &Asked<'_>, watch: &Watch, started: Started, to_its_end: bool) -> Result<Held, Failure> {
    let (mut stream, first) = match started {
        Started::Stream(stream, first) => (stream, first),
        Started::Whole { ref body, traces, .. } => {
            let folded = Folded::of_answer(std::str::from_utf8(body).unwrap_or_default());
            return Ok(finished(watch, folded, traces.cut_call, started));
        }
        Started::Written { ref frames, traces, .. } => {
            let mut folded = Folded::default();
            fold(&mut folded, frames.clone());
            return Ok(finished(watch, folded, traces.cut_call, started));
        }
        Started::Unread { .. } => return Ok(Held::LetGo(started)),
    };
    let mut folded = Folded::default();
    fold(&mut folded, first.clone());
    let mut held = BytesMut::from(first);
    loop {
        let wanted = to_its_end || stream.is_complete() || watch.holds(&folded);
        if !wanted || held.len() > HELD {
            return Ok(Held::LetGo(Started::Stream(stream, held.freeze())));
        }
        match stream.next_in_time(asked.backend, asked.place, asked.terms.silence.stall).await {
            Ok(progress) => {
                fold(&mut folded, progress.bytes.clone());
                held.extend_from_slice(&progress.bytes);
            }
            Err(Ok(())) => break,
            Err(Err(_)) if stream.is_complete() => {
                held.extend_from_slice(&stream.end_marker());
                break;
            }
            Err(Err(failure)) => return Err(failure),
        }
    }
    let (usage, traces) = (stream.usage, stream.traces());
    let written = Started::Written { frames: held.freeze(), usage, traces };
    Ok(finished(watch, folded, traces.cut_call, written))
}

fn finished(watch: &Watch, folded: Folded, cut_call: bool, started: Started) -> Held {
    let (facts, wrong) = watch.judge(&folded, cut_call);
    Held::Finished(Box::new(Finished { started, folded, facts, wrong }))
}

/// Adds whole frames to a message.
fn fold(folded: &mut Folded, frames: Bytes) {
    let mut decoder = SseDecoder::new();
    if decoder.push(frames).is_ok() {
        while let Some(frame) = decoder.next_frame() {
            folded.add_frame(&frame);
        }
    }
}
