//! What a request allows, and what is known of its prompt.
//!
//! Read once per request. Whatever cannot be read counts as absent: refusing requests is not this module's business.

use crate::api::Allowed;
use crate::chunk::Dialect;
use crate::json::{Kind, Value};
use crate::request::ChatRequest;
use crate::schema::ToolSet;

/// The request's `tool_choice`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No calls: text is text.
    None,
    /// Some call is demanded.
    Required,
    /// A call of this tool is demanded.
    Named(String),
}

/// What the request allows, and what is known of the prompt.
#[derive(Debug, Default)]
pub struct Options {
    /// The declared tools; without any, all text passes as it is.
    pub tools: ToolSet,
    /// The request's `tool_choice`.
    pub tool_choice: ToolChoice,
    /// The request's `parallel_tool_calls`, true where it is absent.
    pub parallel: bool,
    /// The prompt has already opened the model's thought.
    pub thinking_open: bool,
    /// The tags between which the model thinks, if they are known: thoughts are split off then whatever else is looked for.
    pub thinking_tags: Option<[String; 2]>,
    /// What stands in a thought is thought, calls and all.
    pub thoughts_stay: bool,
    /// The request demands JSON, so JSON is the answer and no call.
    pub response_format: bool,
    /// The family in which the model writes its calls, one of [`super::format_names`]: nothing else is looked for then. Without it,
    /// or with a name that is none of them, every family is.
    pub format: Option<String>,
    /// The family in which the model probably writes its calls ([`super::family_of_parser`], [`super::family_of_template`]):
    /// every family is looked for all the same, but what has no tag at all counts only where this one may lose its own.
    pub family: Option<String>,
}

impl Options {
    /// The options of a chat request.
    pub fn of(request: &ChatRequest) -> Self {
        Self::read(ToolSet::new(request), request.root())
    }

    /// The options of a request in any dialect.
    pub fn in_dialect(request: &ChatRequest, dialect: Dialect) -> Self {
        let (root, own) = (request.root(), Self::of(request));
        let word = |place: &str| root.at(place).and_then(Value::as_str);
        match dialect {
            Dialect::Chat | Dialect::Completions => own,
            Dialect::Messages => Self {
                parallel: root.at("/tool_choice/disable_parallel_tool_use").and_then(Value::as_bool)
                    != Some(true),
                response_format: ["/output_config/format/type", "/output_format/type"]
                    .into_iter()
                    .filter_map(word)
                    .any(|format| format.starts_with("json")),
                ..own
            },
            Dialect::Responses => Self {
                response_format: word("/text/format/type").is_some_and(|format| format.starts_with("json")),
                ..own
            },
        }
    }

    /// The options of a list of tools and an object with members of a request: `tool_choice`, `parallel_tool_calls`,
    /// `response_format` (its type alone will do), and `thinking_open`. Both are JSON; what is no JSON counts as empty.
    pub fn from_json(tools: &str, request: &str) -> Self {
        let tools = ToolSet::from_json(tools);
        match Value::parse(request) {
            Ok(request) => Self::read(tools, request),
            Err(_) => Self { tools, parallel: true, ..Self::default() },
        }
    }

    fn read(tools: ToolSet, request: Value<'_>) -> Self {
        let format = request.get("response_format").and_then(|format| format.get("type").or(Some(format)));
        let format = format.and_then(Value::as_str);
        // What may not be called is as good as not declared.
        let tools = match request.get("tool_choice").and_then(Allowed::of) {
            Some(allowed) => tools.restricted(|name| allowed.allows(name)),
            None => tools,
        };
        Self {
            tools,
            tool_choice: request.get("tool_choice").map(ToolChoice::read).unwrap_or_default(),
            parallel: request.get("parallel_tool_calls").and_then(Value::as_bool) != Some(false),
            thinking_open: request.get("thinking_open").and_then(Value::as_bool) == Some(true),
            thinking_tags: None,
            thoughts_stay: false,
            response_format: format.is_some_and(|format| format.starts_with("json")),
            format: None,
            family: None,
        }
    }
}

impl ToolChoice {
    fn read(value: Value<'_>) -> Self {
        if let Some(allowed) = Allowed::of(value) {
            return if allowed.required { Self::Required } else { Self::Auto };
        }
        if value.kind() == Kind::Object {
            let tool = value.get("function").unwrap_or(value);
            return match tool.get("name").and_then(Value::as_str) {
                Some(name) => Self::Named(name.into_owned()),
                // `{"type":"any"}` of Messages, `{"type":"allowed_tools","mode":"required"}` of Responses.
                None => Self::of_word(value.get("mode").or_else(|| value.get("type"))),
            };
        }
        Self::of_word(Some(value))
    }

    fn of_word(word: Option<Value<'_>>) -> Self {
        match word.and_then(Value::as_str).as_deref() {
            Some("none") => Self::None,
            Some("required" | "any") => Self::Required,
            _ => Self::Auto,
        }
    }
}
