//! One request's decision: whom to try, with which rules applied, and the sentences that explain it.
//!
//! A pure function of the facts, so that `explain` can replay it. The rules are an enum: whoever carries the decision out
//! turns each into edits of the request, and can do no other.

use std::fmt::{self, Write as _};

use crate::budget;
use crate::facts::{BackendFacts, Images, RequestFacts, StreamedRequired};
use crate::routing::{self, BackendIndex, Candidate, Refusal};

/// What the operator set for all decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Tokens that an ordinary turn leaves free below the largest limit.
    pub headroom: u64,
    /// Tokens kept free when an output is cut to what is left.
    pub margin: u64,
}

/// A named change of the request for one candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The output limit is cut to this many tokens.
    LimitOutput(u64),
    /// The output limit, which cannot be meant, is raised to this many tokens.
    RaiseOutput(u64),
    /// There is no output limit: it is set to this many tokens.
    SetOutput(u64),
    /// A word stands in place of each picture.
    ReplaceImages,
    /// `tool_choice: required` is sent as `auto`: the backend loses streamed calls that are required.
    WeakenToolChoice,
    /// It is asked without streaming, and the stream is written here, for the same reason.
    AskWhole,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LimitOutput(tokens) => write!(f, "output cut to {tokens}"),
            Self::RaiseOutput(tokens) => write!(f, "output raised to {tokens}"),
            Self::SetOutput(tokens) => write!(f, "output limited to {tokens}"),
            Self::ReplaceImages => f.write_str("pictures replaced by a word"),
            Self::WeakenToolChoice => f.write_str("tool_choice required weakened to auto"),
            Self::AskWhole => f.write_str("asked without streaming"),
        }
    }
}

/// A candidate with its rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Which backend, and why it stands here.
    pub candidate: Candidate,
    /// What changes in the request for it.
    pub rules: Vec<Rule>,
}

impl Choice {
    /// The output limit that its rules set, tokens.
    #[must_use]
    pub fn output(&self) -> Option<u64> {
        self.rules.iter().find_map(|rule| match rule {
            Rule::LimitOutput(tokens) | Rule::RaiseOutput(tokens) | Rule::SetOutput(tokens) => Some(*tokens),
            _ => None,
        })
    }
}

/// Where a request goes, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// In the order to be tried; empty if nobody can carry the prompt.
    pub choices: Vec<Choice>,
    /// Why not the others.
    pub refusals: Vec<(BackendIndex, Refusal)>,
}

/// Why a decision has no choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// No backend carries so many tokens.
    TooLong {
        /// Tokens of the prompt, as well as they are known.
        tokens: u64,
        /// The longest prompt that any backend takes.
        limit: u64,
    },
    /// Only the image stands in the way.
    NoImages,
    /// Who could carry it is not loaded, and the request may not have it loaded in another's place.
    MayNotLoad,
    /// Who could carry it could not be loaded lately.
    LoadFailed {
        /// Seconds until that is tried again.
        again: u64,
    },
}

/// Decides for one request over the backends that serve its model, in the operator's order.
#[must_use]
pub fn decide(request: &RequestFacts, backends: &[BackendFacts], settings: Settings) -> Decision {
    let routing = routing::rank(request, backends, settings.headroom);
    let choices = routing.candidates.into_iter().map(|candidate| {
        let backend = backends.get(candidate.backend);
        let window = backend.and_then(|facts| facts.window);
        let wanted = backend.map_or_else(|| request.wanted_output(), |facts| request.wanted_output_at(facts));
        let output = budget::clamp(wanted, request.prompt, window, settings.margin).or(wanted);
        let output = match (output, request.output) {
            (Some(output), Some(asked)) if output < asked => Some(Rule::LimitOutput(output)),
            (Some(output), Some(asked)) if output > asked => Some(Rule::RaiseOutput(output)),
            (Some(output), None) => Some(Rule::SetOutput(output)),
            _ => None,
        };
        let blind = request.images != Images::None && backend.is_some_and(|facts| !facts.images);
        let required = backend.filter(|_| request.streams_required).map(|facts| facts.streamed_required);
        let required = match required {
            Some(StreamedRequired::AsAuto) => Some(Rule::WeakenToolChoice),
            Some(StreamedRequired::Whole) => Some(Rule::AskWhole),
            Some(StreamedRequired::Pass) | None => None,
        };
        let rules = output.into_iter().chain(blind.then_some(Rule::ReplaceImages)).chain(required);
        Choice { rules: rules.collect(), candidate }
    });
    Decision { choices: choices.collect(), refusals: routing.refusals }
}

impl Decision {
    /// The same without rules that are switched off: only those stay for which `is_on` holds at their backend.
    #[must_use]
    pub fn with_rules(mut self, is_on: impl Fn(BackendIndex, Rule) -> bool) -> Self {
        for choice in &mut self.choices {
            choice.rules.retain(|rule| is_on(choice.candidate.backend, *rule));
        }
        self
    }

    /// Why nobody is left, if nobody is.
    #[must_use]
    pub fn unserved(&self, request: &RequestFacts) -> Option<Unserved> {
        if !self.choices.is_empty() {
            return None;
        }
        let again = self.refusals.iter().filter_map(|(_, refusal)| match refusal {
            Refusal::LoadFailed { again } => Some(*again),
            _ => None,
        });
        if let Some(again) = again.min() {
            return Some(Unserved::LoadFailed { again });
        }
        let limit = self.refusals.iter().filter_map(|(_, refusal)| refusal.limit());
        let may_not = self.refusals.iter().any(|(_, refusal)| *refusal == Refusal::MayNotLoad);
        Some(match limit.max() {
            Some(limit) => {
                Unserved::TooLong { tokens: request.prompt.expected().max(limit.saturating_add(1)), limit }
            }
            None if may_not => Unserved::MayNotLoad,
            None => Unserved::NoImages,
        })
    }

    /// Why the `nth` choice, and what changes in the request for it.
    #[must_use]
    pub fn choice_sentence(&self, nth: usize, request: &RequestFacts, backends: &[BackendFacts]) -> String {
        let mut text = String::new();
        let Some(choice) = self.choices.get(nth) else { return text };
        let backend = choice.candidate.backend;
        let _ = write!(text, "{}: {}", name(backends, backend), choice.candidate.reason);
        if let Some(limit) = backends.get(backend).and_then(BackendFacts::prompt_limit) {
            let _ = write!(text, " ({} of {limit} tokens)", request.prompt);
        }
        for rule in &choice.rules {
            let _ = write!(text, ", {rule}");
        }
        text
    }

    /// One sentence: why the `nth` choice, why before those that the operator put before it, and why not the others.
    #[must_use]
    pub fn sentence(&self, nth: usize, request: &RequestFacts, backends: &[BackendFacts]) -> String {
        let mut text = self.choice_sentence(nth, request, backends);
        if let Some(chosen) = self.choices.get(nth).map(|choice| &choice.candidate) {
            let later = self.choices.iter().skip(nth + 1).map(|choice| &choice.candidate);
            for overtaken in later.filter(|later| later.backend < chosen.backend) {
                let name = name(backends, overtaken.backend);
                let at_home = request.home.is_some_and(|home| home.backend == chosen.backend);
                if overtaken.reason == chosen.reason && at_home && overtaken.finish < chosen.finish + 1.0 {
                    let _ = write!(text, "; before {name}, since the conversation was there");
                } else if overtaken.reason == chosen.reason {
                    let (sooner, later) = (chosen.finish, overtaken.finish);
                    let _ = write!(
                        text,
                        "; before {name}, which would end after {later:.1} s instead of {sooner:.1} s"
                    );
                } else {
                    let _ = write!(text, "; before {name}: {}", overtaken.reason);
                }
            }
        }
        for (index, refusal) in &self.refusals {
            let separator = if text.is_empty() { "" } else { "; " };
            let _ = write!(text, "{separator}not {}: {refusal}", name(backends, *index));
        }
        text
    }
}

fn name(backends: &[BackendFacts], index: BackendIndex) -> &str {
    backends.get(index).map_or("?", |facts| facts.name.as_str())
}
