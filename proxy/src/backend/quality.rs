//! A backend that answers worse than it did: what is remembered of its answers, what follows, and how it proves itself again.
//!
//! The judgement is `switchback_policies::quality`. Whoever has collapsed is asked after all others, which drains it as long as
//! anybody else will do, and leaves it in service where nobody is. It is released by a restart, by another version or model, by a
//! change of its entry in the configuration, by answers that are as they were, and by a call (or an answer) that the proxy itself asks
//! for; after each relapse that is waited for twice as long, since one short question proves little.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::event::Folded;
use switchback_parsers::request::ChatRequest;
use switchback_parsers::schema::ToolSet;
use switchback_policies::liveness::Worth;
use switchback_policies::quality::{Collapse, Finding, Flaw, Graded, Record, Subject};
use tokio::time::Instant;

use super::Backend;
use crate::answer::grade::Grade;
use crate::answer::repair::{self, RepairTerms};
use crate::config::Quality;

/// How long a collapse is left alone before the backend may prove itself.
const PROVES_AFTER: Duration = Duration::from_secs(60);

/// The longest of these times.
const PROVES_AT_LAST: Duration = Duration::from_secs(3600);

/// A call and the thoughts before it.
const TOKENS: u32 = 1024;

/// What is remembered of a backend's answers.
#[derive(Debug, Default)]
pub(super) struct Memory {
    record: Record,
    /// When it may prove itself, and how long the next time will be.
    proof: Option<Instant>,
    pause: Duration,
}

impl Backend {
    /// What has become worse there, if anything has.
    pub(crate) fn collapsed(&self) -> Option<Collapse> {
        self.quality.lock().record.collapsed()
    }

    /// It is asked after all others.
    pub(super) fn is_drained_for_quality(&self) -> bool {
        self.config.quality == Quality::Drain && self.collapsed().is_some()
    }

    /// Takes what an answer of it was worth. `conversation` and `kind` are numbers that tell one from another.
    pub(crate) fn graded(&self, grade: Grade, conversation: u64, kind: u64) {
        if self.config.quality == Quality::Ignore {
            return;
        }
        let graded = |flaw| Graded { flaw, conversation, kind };
        let empty = match grade.worth {
            Worth::Answer => None,
            Worth::Empty => Some(Flaw::Empty),
            Worth::Garbage => Some(Flaw::Garbage),
        };
        let mut memory = self.quality.lock();
        let mut found = vec![memory.record.took(Subject::Answers, graded(empty))];
        found.extend(grade.calls.map(|flaw| memory.record.took(Subject::Calls, graded(flaw))));
        for finding in found {
            match finding {
                Finding::Same => {}
                Finding::Collapsed(collapse) => {
                    memory.collapsed();
                    tracing::error!(
                        backend = self.name(),
                        why = %collapse,
                        "backend needs a restart: it answers worse than it did, and is asked after all others",
                    );
                }
                Finding::Recovered => {
                    tracing::info!(backend = self.name(), "backend answers as it did again");
                }
            }
        }
    }

    /// It is another process, or runs another model: nothing that was seen before is held against it.
    pub(super) fn is_new(&self, other: bool) {
        let mut memory = self.quality.lock();
        match other {
            true => *memory = Memory::default(),
            false => memory.record.release(),
        }
    }

    /// Lets a backend that has collapsed prove itself, if it is time.
    pub(super) async fn prove(&self) {
        let due = |memory: &Memory| memory.proof.is_some_and(|at| Instant::now() >= at);
        let Some(collapse) = self.collapsed().filter(|_| due(&self.quality.lock())) else { return };
        // Also if no answer comes in time.
        self.quality.lock().proves_later();
        let proved = match collapse.subject {
            Subject::Answers => self.says_something().await,
            Subject::Calls => self.calls_as_asked().await,
        };
        if proved {
            self.quality.lock().record.release();
            tracing::info!(backend = self.name(), "backend has proved itself: it gets work as before");
        }
    }

    async fn says_something(&self) -> bool {
        let body = json!({ "max_tokens": 16, "messages": [{ "role": "user", "content": "." }] });
        let Some(answer) = self.answer_to(body).await else { return false };
        let said = Dialect::Chat.read_answer(&answer);
        said.content && said.marks < 8
    }

    async fn calls_as_asked(&self) -> bool {
        let tools = json!([{ "type": "function", "function": {
            "name": "report", "description": "Reports one word.",
            "parameters": {
                "type": "object", "properties": { "word": { "type": "string" } }, "required": ["word"],
            },
        } }]);
        let declared = ToolSet::from_json(&tools.to_string());
        // A vLLM that parses none refuses `auto`, and puts the tools into the prompt with `none`.
        let choice = if self.parses_no_tools() { "none" } else { "auto" };
        let ask = |choice: &str| {
            json!({
                "max_tokens": TOKENS, "temperature": 0, "tools": tools, "tool_choice": choice,
                "messages": [{ "role": "user", "content": "Call the tool report with the word \"well\"." }],
            })
        };
        let Some(answer) = self.answer_to(ask(choice)).await else { return false };
        let Ok(request) = ChatRequest::parse(ask("auto").to_string().into()) else { return false };
        let terms = RepairTerms {
            request: request.into(),
            dialect: Dialect::Chat,
            seed: "proof".to_owned(),
            calls: true,
            in_thoughts: false,
            one_call: false,
            thinking_open: self.config.thinking_open,
            thinking_tags: self.config.thinking_tags.clone(),
            format: self.config.format,
            family: self.family(),
        };
        let (answer, _) = repair::whole(answer, &terms);
        let folded = Folded::of_answer(std::str::from_utf8(&answer).unwrap_or_default());
        !folded.calls.is_empty() && folded.wrong_calls(&declared).is_empty()
    }

    /// A good answer to a question of the proxy's own.
    async fn answer_to(&self, body: serde_json::Value) -> Option<Bytes> {
        let (status, answer) = self.ask_by_itself(body).await?;
        let said = Dialect::Chat.read_answer(&answer);
        (status.is_success() && !said.error && !said.unreadable).then_some(answer)
    }
}

impl Memory {
    fn collapsed(&mut self) {
        self.pause = (self.pause * 2).clamp(PROVES_AFTER, PROVES_AT_LAST);
        self.proves_later();
    }

    fn proves_later(&mut self) {
        self.proof = Some(Instant::now() + self.pause);
    }
}
