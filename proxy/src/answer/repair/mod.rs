//! Repair of a chat answer: calls that were written as text become calls, structured ones become what clients expect.
//!
//! The parsers decide what is a call (`switchback_parsers::tool_call`, `::calls`); here their verdicts are put on the
//! wire. An answer that needs nothing leaves in the very frames in which it came: text that might become a call is held as
//! those frames, and released as those frames.

mod own;
mod stream;
mod text;
mod whole;

use std::sync::Arc;

use switchback_parsers::calls::ChunkNormaliser;
use switchback_parsers::json::Value;
use switchback_parsers::request::ChatRequest;
use switchback_parsers::schema::ToolSet;
use switchback_parsers::tool_call::{Options, TextParser, ToolChoice};

pub(crate) use self::stream::StreamRepair;
pub(crate) use self::whole::whole;

/// What the repair of one answer goes by: the request that it answers.
#[derive(Clone, Debug)]
pub(crate) struct RepairTerms {
    pub(crate) request: Arc<ChatRequest>,
    /// Ids of calls that have none are made of it.
    pub(crate) seed: String,
}

impl RepairTerms {
    fn normaliser(&self) -> ChunkNormaliser {
        ChunkNormaliser::new(Arc::new(ToolSet::new(&self.request)), &self.seed)
            .first_call_only(!self.parallel())
    }

    fn parser(&self) -> TextParser {
        TextParser::new(Options {
            tools: ToolSet::new(&self.request),
            tool_choice: self.tool_choice(),
            parallel: self.parallel(),
            thinking_open: false,
            response_format: self
                .request
                .root()
                .at("/response_format/type")
                .and_then(Value::as_str)
                .is_some_and(|kind| kind != "text"),
        })
    }

    /// Whether the request allows calls at all: without, text is text.
    fn may_call(&self) -> bool {
        self.request.tools().next().is_some() && self.tool_choice() != ToolChoice::None
    }

    fn parallel(&self) -> bool {
        self.request.root().get("parallel_tool_calls").and_then(Value::as_bool).unwrap_or(true)
    }

    fn tool_choice(&self) -> ToolChoice {
        let Some(choice) = self.request.root().get("tool_choice") else { return ToolChoice::Auto };
        match choice.as_str().as_deref() {
            Some("none") => ToolChoice::None,
            Some("required") => ToolChoice::Required,
            Some(_) => ToolChoice::Auto,
            None => choice
                .at("/function/name")
                .and_then(Value::as_str)
                .map_or(ToolChoice::Auto, |name| ToolChoice::Named(name.into_owned())),
        }
    }
}
