//! What vLLM refuses, in its order and its words.
//!
//! All wordings are captured from 0.32.0; clients and gateways match on them. It must never see the engine: a
//! refusal depends on the request and the spec alone.

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use serde_json::{Value, json};

use super::pen::Shape;
use crate::{
    Spec,
    inference::{Inference, ToolChoice},
    wire::{Body, body},
};

/// The longest token of the simulated vocabulary, in characters: a cheap check comes before counting.
const LONGEST_TOKEN: usize = 128;

/// An error answer.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    message: String,
    kind: &'static str,
    param: Option<String>,
}

type Checked<T> = Result<T, Refusal>;

impl Refusal {
    pub(super) fn answer(&self) -> Response<Body> {
        let error = json!({
            "message": self.message, "type": self.kind, "param": self.param, "code": self.status.as_u16(),
        });
        body::json(self.status, &json!({"error": error}))
    }

    /// In the words of one of the APIs.
    pub(super) fn answer_in(&self, shape: Shape) -> Response<Body> {
        if shape != Shape::Messages {
            return self.answer();
        }
        let error = json!({"type": self.kind, "message": self.message});
        body::json(self.status, &json!({"type": "error", "error": error}))
    }

    fn bad(message: impl Into<String>, param: Option<&str>) -> Self {
        let (status, kind) = (StatusCode::BAD_REQUEST, "BadRequestError");
        Self { status, message: message.into(), kind, param: param.map(str::to_owned) }
    }

    /// A validation error, which shows its parameter (and value).
    fn invalid(message: impl std::fmt::Display, param: &str, value: Option<&dyn std::fmt::Display>) -> Self {
        let value = value.map_or(String::new(), |value| format!(", value={value}"));
        Self::bad(format!("{message} (parameter={param}{value})"), Some(param))
    }

    /// What the request model itself refuses.
    fn malformed(entry: &str, param: Option<&str>) -> Self {
        let refusal = Self::bad(format!("1 validation error:\n  {entry}"), param);
        Self { kind: "Bad Request", ..refusal }
    }

    pub(super) fn missing(member: &str) -> Self {
        let entry = format!(
            "{{'type': 'missing', 'loc': 'body.{member}', 'msg': 'Field required', 'input': '<dict>'}}"
        );
        Self::malformed(&entry, Some(&format!("body.{member}")))
    }

    /// A status that the script asks for.
    pub(super) fn scripted(status: StatusCode) -> Self {
        let (message, kind) = match status {
            StatusCode::SERVICE_UNAVAILABLE => (
                "The engine is currently busy and cannot accept new requests. Please try again later or on a \
                 different instance.",
                "Service Unavailable",
            ),
            status if status.is_server_error() => ("Internal server error", "InternalServerError"),
            _ => ("The request was refused by the script.", "BadRequestError"),
        };
        Self { status, message: message.to_owned(), kind, param: None }
    }

    pub(super) fn engine_dead() -> Self {
        let (status, kind) = (StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError");
        Self { status, message: ENGINE_DEAD.to_owned(), kind, param: None }
    }
}

pub(super) const ENGINE_DEAD: &str =
    "EngineCore encountered an issue. See stack trace (above) for the root cause.";

/// The body as JSON.
pub(super) fn json(request: &Request<Bytes>) -> Checked<Value> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        return Err(Refusal::malformed("Unsupported Media Type: Only 'application/json' is allowed", None));
    }
    let body: Value = serde_json::from_slice(request.body()).map_err(|error| {
        let at = offset(request.body(), error.line(), error.column());
        let entry = format!(
            "{{'type': 'json_invalid', 'loc': 'body.{at}', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', \
             'ctx': {{'error': 'Expecting value'}}}}"
        );
        Refusal::malformed(&entry, Some(&format!("body.{at}")))
    })?;
    if body.is_object() {
        return Ok(body);
    }
    let entry = "{'type': 'model_attributes_type', 'loc': 'body', 'msg': 'Input should be a valid dictionary or \
                 object to extract fields from', 'input': '<list>'}";
    Err(Refusal::malformed(entry, Some("body")))
}

/// Where a line and column (both from 1) are in a text.
fn offset(text: &[u8], line: usize, column: usize) -> usize {
    let before: usize =
        text.split_inclusive(|&byte| byte == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    before + column
}

/// Everything that is refused before the prompt is counted.
pub(super) fn inference(spec: &Spec, request: &Request<Bytes>, shape: Shape) -> Checked<Inference> {
    let body = json(request)?;
    if !body["stream_options"].is_null() && body["stream"] != true {
        let message = "Stream options can only be defined when `stream=True`.";
        return Err(Refusal::invalid(message, "stream_options", None));
    }
    numbers(&body)?;
    let asked = match shape {
        Shape::Chat | Shape::Messages | Shape::Responses => {
            tools(&body)?;
            let Some(messages) = body["messages"].as_array() else {
                return Err(Refusal::missing("messages"));
            };
            if messages.is_empty() {
                let message =
                    "Cannot apply chat template to an empty conversation. Provide at least one message.";
                return Err(Refusal::bad(message, None));
            }
            Inference::chat(&body)
        }
        Shape::Completion => {
            if body["prompt"].as_str().is_none_or(str::is_empty)
                && body["prompt"].as_array().is_none_or(Vec::is_empty)
            {
                let message = "Either prompt or prompt_embeds must be provided and non-empty.";
                return Err(Refusal::invalid(message, "prompt", None));
            }
            Inference::completion(&body)
        }
    };
    if let Some(model) = body["model"].as_str()
        && model != spec.model
        && !spec.aliases.iter().any(|alias| alias == model)
    {
        let valid: Vec<&str> =
            std::iter::once(&spec.model).chain(&spec.aliases).map(String::as_str).collect();
        let message = format!("The model `{model}` does not exist. Valid aliases: {}.", valid.join(", "));
        let refusal = Refusal::bad(message, Some("model"));
        return Err(Refusal { status: StatusCode::NOT_FOUND, kind: "NotFoundError", ..refusal });
    }
    if !spec.tool_parser {
        parser_needed(&body, &asked)?;
    }
    if asked.images > 0 && !spec.vision {
        return Err(Refusal::bad(format!("{} is not a multimodal model", spec.model), None));
    }
    Ok(asked)
}

/// An output limit that is no number, a temperature below zero.
fn numbers(body: &Value) -> Checked<()> {
    if let Some(text) = body["max_tokens"].as_str() {
        let entry = format!(
            "{{'type': 'int_parsing', 'loc': 'body.max_tokens', 'msg': 'Input should be a valid integer, unable to parse \
             string as an integer', 'input': '{text}'}}"
        );
        return Err(Refusal::malformed(&entry, Some("body.max_tokens")));
    }
    match body["temperature"].as_f64().filter(|temperature| *temperature < 0.0) {
        Some(temperature) => {
            let message = format!("temperature must be non-negative, got {temperature:?}.");
            Err(Refusal::invalid(message, "temperature", Some(&format!("{temperature:?}"))))
        }
        None => Ok(()),
    }
}

fn tools(body: &Value) -> Checked<()> {
    let wrong = |message: &str| Err(Refusal::invalid(message, "tool_choice", None));
    let tools = body["tools"].as_array();
    if tools.is_some_and(Vec::is_empty) {
        let message = "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.";
        return Err(Refusal::invalid(message, "tools", None));
    }
    match (&body["tool_choice"], tools) {
        (Value::Null, _) => Ok(()),
        (Value::String(choice), _) if choice == "none" => Ok(()),
        (_, None) => wrong("When using `tool_choice`, `tools` must be set."),
        (Value::String(choice), _) if choice == "auto" || choice == "required" => Ok(()),
        (Value::Object(choice), Some(tools)) => {
            let name = choice.get("function").map_or(&Value::Null, |function| &function["name"]);
            if tools.iter().any(|tool| tool["function"]["name"] == *name && name.is_string()) {
                return Ok(());
            }
            wrong("The tool specified in `tool_choice` does not match any of the specified `tools`")
        }
        (choice, _) => {
            let choice = choice.as_str().map_or_else(|| choice.to_string(), str::to_owned);
            wrong(&format!(
                "Invalid value for `tool_choice`: {choice}! Only named tools, \"none\", \"auto\" or \"required\" are \
                 supported."
            ))
        }
    }
}

fn parser_needed(body: &Value, asked: &Inference) -> Checked<()> {
    let choice = match &asked.tool_choice {
        _ if asked.tools.is_empty() => return Ok(()),
        ToolChoice::None => return Ok(()),
        ToolChoice::Auto if body["tool_choice"].is_null() || body["tool_choice"] == "auto" => {
            let message =
                "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set";
            return Err(Refusal::bad(message, None));
        }
        ToolChoice::Named(name) => format!("function \"{name}\""),
        ToolChoice::Auto | ToolChoice::Required => "\"required\"".to_owned(),
    };
    Err(Refusal::bad(format!("tool_choice={choice} requires --tool-call-parser to be set"), None))
}

/// Whether prompt and answer fit the window. The message never says how long the prompt is: counting stops one
/// token behind the window.
pub(super) fn length(spec: &Spec, asked: &Inference) -> Checked<()> {
    let window = spec.window;
    if spec.is_old_vllm() {
        return old_length(window, asked);
    }
    let begin =
        format!("This model's maximum context length is {window} tokens. However, your prompt contains");
    let (characters, most) = (asked.prompt.text.chars().count(), window * LONGEST_TOKEN);
    if characters > most {
        let message = format!(
            "{begin} {characters} characters (more than {most} characters, which is the upper bound for {window} \
             input tokens). Please reduce the length of the input prompt."
        );
        return Err(Refusal::invalid(message, "input_text", Some(&characters)));
    }
    if let Some(tokens) = asked.max_tokens
        && tokens > i64::try_from(window).unwrap_or(i64::MAX)
    {
        let message = format!(
            "max_tokens={tokens} cannot be greater than max_model_len={window}. Please request fewer output tokens."
        );
        return Err(Refusal::invalid(message, "max_tokens", Some(&tokens)));
    }
    if asked.prompt_tokens() > window {
        let counted = window + 1;
        let message = format!(
            "{begin} at least {counted} input tokens, which exceeds this limit even without any output tokens. Please \
             reduce the length of the input prompt."
        );
        return Err(Refusal::invalid(message, "input_tokens", Some(&counted)));
    }
    // the silent clamp: what does not fit is cut, down to nothing
    let clamped =
        asked.max_tokens.filter(|&tokens| tokens < 1).or((asked.prompt_tokens() == window).then_some(0));
    match clamped {
        Some(tokens) => {
            let message = format!("max_tokens must be at least 1, got {tokens}.");
            Err(Refusal::invalid(message, "max_tokens", Some(&tokens)))
        }
        None => Ok(()),
    }
}

/// What versions before 0.11 say (from source): the true count, and a limit for prompt and answer together.
fn old_length(window: usize, asked: &Inference) -> Checked<()> {
    let begin = format!("This model's maximum context length is {window} tokens. However, you requested");
    let prompt = asked.prompt_tokens();
    if prompt >= window {
        let message =
            format!("{begin} {prompt} tokens in the messages, Please reduce the length of the messages.");
        return Err(Refusal::bad(message, None));
    }
    let Some(tokens) = asked.max_tokens else { return Ok(()) };
    if tokens < 1 {
        return Err(Refusal::bad(format!("max_tokens must be at least 1, got {tokens}."), None));
    }
    let total = usize::try_from(tokens).unwrap_or(usize::MAX).saturating_add(prompt);
    if total <= window {
        return Ok(());
    }
    let message = format!(
        "{begin} {total} tokens ({prompt} in the messages, {tokens} in the completion). Please reduce the length of \
         the messages or completion."
    );
    Err(Refusal::bad(message, None))
}
