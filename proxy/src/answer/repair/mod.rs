//! Repair of an answer: calls that were written as text become calls, structured ones become what clients expect.
//!
//! The parsers decide what is a call (`switchback_parsers::tool_call`, `::calls`); here their verdicts are put on the
//! wire. An answer that needs nothing leaves in the very frames in which it came: text that might become a call is held as
//! those frames, and released as those frames.

mod beside;
mod late;
mod order;
mod own;
mod stream;
mod text;
mod whole;
mod wire;

use std::sync::Arc;

use switchback_parsers::calls::ChunkNormaliser;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::event::Folded;
use switchback_parsers::json::Value;
use switchback_parsers::request::ChatRequest;
use switchback_parsers::schema::ToolSet;
use switchback_parsers::tool_call::{Options, TextParser, ToolChoice};

pub(crate) use self::stream::StreamRepair;
pub(crate) use self::whole::{in_chat, whole};
use self::wire::{Plain, Wire};

/// What the repair of one answer goes by: the request that it answers.
#[derive(Clone, Debug)]
pub(crate) struct RepairTerms {
    pub(crate) request: Arc<ChatRequest>,
    /// How request and answer are written.
    pub(crate) dialect: Dialect,
    /// Ids of calls that have none are made of it.
    pub(crate) seed: String,
    /// Calls are repaired.
    pub(crate) calls: bool,
    /// Calls are found in thoughts, too, if there is nothing else in the answer.
    pub(crate) in_thoughts: bool,
    /// Of several calls only the first is sent to a client that forbids several.
    pub(crate) one_call: bool,
    /// The prompt has already opened the thought, and nobody has split it from the text.
    pub(crate) thinking_open: bool,
    /// The tags between which the backend's model thinks, if they are known.
    pub(crate) thinking_tags: Option<[String; 2]>,
    /// The family in which the backend's model writes calls, if it is known.
    pub(crate) format: Option<&'static str>,
    /// The family in which it probably does.
    pub(crate) family: Option<&'static str>,
}

impl RepairTerms {
    /// For a backend whose template opens thoughts, or not: for a request that switches thinking off no template does.
    pub(crate) fn thinking(mut self, opens: bool) -> Self {
        let root = self.request.root();
        let off = root.at("/chat_template_kwargs/enable_thinking").and_then(Value::as_bool) == Some(false)
            || root.get("reasoning_effort").and_then(Value::as_str).as_deref() == Some("none");
        self.thinking_open = opens && !off;
        self
    }

    /// For a backend whose model thinks between known tags.
    pub(crate) fn thinking_between(self, tags: Option<[String; 2]>) -> Self {
        Self { thinking_tags: tags, ..self }
    }

    /// Thoughts are split from the text.
    pub(crate) fn splits_thoughts(&self) -> bool {
        self.thinking_open || self.thinking_tags.is_some()
    }

    /// For a backend whose model writes calls in one known format.
    pub(crate) fn written_in(self, format: Option<&'static str>) -> Self {
        Self { format, ..self }
    }

    /// For a backend whose model was taught a family, as its template or its parser tells.
    pub(crate) fn taught(self, family: Option<&'static str>) -> Self {
        Self { family, ..self }
    }

    /// Structured calls of a chat are looked at whether or not tools were declared; those of other dialects only where the answer may
    /// hold calls at all.
    pub(crate) fn is_needed(&self) -> bool {
        (self.calls && self.dialect == Dialect::Chat) || self.reads_text()
    }

    /// Whether the text of the answer is read at all: without calls to find and thoughts to split, text is text.
    fn reads_text(&self) -> bool {
        let options = self.options();
        let may_call = !options.tools.is_empty() && options.tool_choice != ToolChoice::None;
        may_call || self.splits_thoughts()
    }

    /// A whole text, with the finish reason for the client.
    pub(crate) fn read(&self, text: &str, finish: &str) -> Folded {
        let mut parser = self.parser();
        let mut events = parser.push(text);
        let (last, finish_reason) = parser.finish(finish);
        events.extend(last);
        Folded { finish_reason, ..Folded::of(events) }
    }

    /// The tools that the answer may call; none if they are not looked for.
    pub(crate) fn tools(&self) -> ToolSet {
        self.options().tools
    }

    fn normaliser(&self) -> ChunkNormaliser {
        let options = self.options();
        let ids = if self.dialect == Dialect::Messages { "toolu" } else { "call" };
        ChunkNormaliser::new(Arc::new(options.tools), &self.seed)
            .first_call_only(!options.parallel)
            .ids_begin_with(ids)
    }

    fn wire(&self) -> Wire {
        Wire::of(self.dialect, &self.request, &self.seed)
    }

    fn plain(&self) -> Option<Plain> {
        Plain::of(self.dialect, Some(&self.request), &self.seed)
    }

    fn parser(&self) -> TextParser {
        TextParser::new(self.options())
    }

    fn options(&self) -> Options {
        let mut options = Options::in_dialect(&self.request, self.dialect);
        options.thinking_open = self.thinking_open;
        options.thinking_tags.clone_from(&self.thinking_tags);
        options.format = self.format.map(str::to_owned);
        options.family = self.family.map(str::to_owned);
        options.thoughts_stay = !self.in_thoughts;
        options.parallel |= !self.one_call;
        if !self.calls {
            options.tools = ToolSet::default();
        }
        options
    }
}
