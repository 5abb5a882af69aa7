//! What an attempt needs besides the call: how long to wait, and what is done with the answer on its way.
//!
//! Made once a request, and bent for each candidate. Nothing here looks at an answer.

use std::sync::Arc;
use std::time::Duration;

use switchback_parsers::chunk::Dialect;
use switchback_policies::client::Usage;
use switchback_policies::decision::{Choice, Rule};
use switchback_policies::demand::CutCalls;
use switchback_policies::facts::{BackendFacts, RequestFacts, Speed};
use switchback_policies::liveness::longest_answer;

use crate::answer::progress::Progress;
use crate::answer::rename::Rename;
use crate::answer::repair::RepairTerms;
use crate::answer::tidy::Tidy;
use crate::app::App;
use crate::ask_again::may_go_on;
use crate::backend::Backend;
use crate::call::Call;
use crate::config::{Config, ModelName};
use crate::identify::Client;
use crate::plan::Plan;

/// How long a stream may be silent before it is given up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    /// Until the first token.
    pub(crate) first_token: Duration,
    /// Between tokens.
    pub(crate) stall: Duration,
    /// Until the end of a plain answer, which shows no token before, at the most.
    pub(crate) whole: Duration,
}

impl Silence {
    /// The same at a backend of which it is known how much it may say, and how fast it does: most engines show nothing of a plain
    /// answer before its end, and one that hangs must not hold it for an hour.
    fn with(self, choice: &Choice, facts: &BackendFacts, request: &RequestFacts) -> Self {
        let prompt = request.prompt.expected();
        let room = || Some(facts.window?.saturating_sub(request.prompt.low()));
        let most = choice.output().or(request.output).or_else(room);
        let rate = |speed: Speed| 1.0 / (1.0 / speed.decode.max(0.1) + speed.deeper * prompt as f64);
        let longest = most.map(|most| longest_answer(self.first_token, most, facts.speed.map(rate)));
        Self { whole: longest.map_or(self.whole, |longest| longest.min(self.whole)), ..self }
    }
}

/// What an attempt needs besides the call.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) silence: Silence,
    /// The backend is asked for a stream. If not, and the client wants one, it is written here.
    pub(crate) stream: bool,
    /// Chunks that hold nothing but usage are passed on.
    pub(crate) usage_to_client: bool,
    /// What is called otherwise in the answer.
    pub(crate) rename: Rename,
    /// What is put right in it that clients stumble over.
    pub(crate) tidy: Tidy,
    /// Where reports of the prefill go that only the proxy asked for.
    pub(crate) reading: Option<Arc<Progress>>,
    /// What a chat answer is repaired by; `None`: it is not.
    pub(crate) repair: Option<RepairTerms>,
    /// Its text is kept, so that it can be continued.
    pub(crate) keep_text: bool,
    /// The least that the prompt has, if the backend's own count is to be checked against it.
    pub(crate) least_prompt: Option<u64>,
}

impl Terms {
    /// For a prompt that is only to be read.
    pub(crate) fn to_read_ahead(config: &Config) -> Self {
        let failover = config.failover;
        Self {
            silence: Silence {
                first_token: failover.first_token,
                stall: failover.stall,
                whole: failover.first_token,
            },
            stream: false,
            usage_to_client: false,
            rename: Rename::default(),
            tidy: Tidy::default(),
            reading: None,
            repair: None,
            keep_text: false,
            least_prompt: None,
        }
    }

    /// For the answer to a call of a client.
    pub(crate) fn of(app: &App, call: &Call, client: &Client, plan: &Plan) -> Self {
        let failover = app.config.failover;
        let wants_usage = call.request.as_ref().is_some_and(|request| request.wants_usage());
        // Completions have no calls.
        let dialect = call.endpoint.dialect.filter(|dialect| *dialect != Dialect::Completions);
        let repair = call.request.clone().zip(dialect).map(|(request, dialect)| RepairTerms {
            request,
            dialect,
            seed: call.id.clone(),
            calls: app.config.repair.tool_calls,
            in_thoughts: app.config.repair.calls_in_thoughts,
            one_call: app.config.repair.one_call,
            thinking_open: false,
            thinking_tags: None,
            format: None,
            family: None,
        });
        // vLLM shortens a prompt by this member because it is asked to.
        let shortens = call.request.as_ref().is_some_and(|request| {
            request.root().get("truncate_prompt_tokens").is_some_and(|most| !most.is_null())
        });
        let counts = !shortens && matches!(call.endpoint.dialect, Some(Dialect::Chat | Dialect::Completions));
        Self {
            stream: call.stream,
            silence: Silence {
                first_token: failover.first_token,
                stall: failover.stall,
                whole: failover.whole,
            },
            usage_to_client: wants_usage || client.usage == Usage::Always,
            rename: Rename {
                model: call.model.clone().filter(|_| app.config.answer.model_name == ModelName::Client),
                reasoning: client.reasoning.name(),
            },
            tidy: Tidy::by(|rule| client.has_tidied(rule)),
            reading: None,
            repair,
            keep_text: client.wishes.cut == CutCalls::Rescue || may_go_on(call, client, plan),
            least_prompt: (failover.silent_truncation && counts).then_some(plan.measured.least),
        }
    }

    /// For the rest of an answer that was cut: it comes as the backend writes it, and all else is done where the halves are
    /// joined.
    pub(crate) fn for_a_rest(&self) -> Self {
        Self {
            usage_to_client: true,
            rename: Rename::default(),
            tidy: Tidy::default(),
            repair: None,
            keep_text: false,
            least_prompt: None,
            ..self.clone()
        }
    }

    /// The same for one candidate.
    pub(crate) fn for_candidate(
        &self,
        backend: &Backend,
        choice: &Choice,
        facts: &BackendFacts,
        request: &RequestFacts,
    ) -> Self {
        let config = &backend.config;
        let repair = self.repair.clone();
        let repair = repair.map(|repair| {
            let tags = config.thinking_tags.clone();
            repair
                .thinking(config.thinking_open)
                .thinking_between(tags)
                .written_in(config.format)
                .taught(backend.family())
        });
        let stream = self.stream && !choice.rules.contains(&Rule::AskWhole);
        let silence = self.silence.with(choice, facts, request);
        Self { stream, silence, repair: repair.filter(RepairTerms::is_needed), ..self.clone() }
    }
}
