//! A backend's own count of a prompt: vLLM's and SGLang's `/tokenize`, llama.cpp's and ik_llama's counting endpoints.
//!
//! Asked where no vocabulary is at hand, and by `switchback check` and `count`, which hold it against ours.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::{Map, Value};
use switchback_parsers::chunk::Dialect;
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::json::{Member, Value as View};
use switchback_parsers::request::ChatRequest;

use crate::backend::{Backend, headers};

/// How long a backend may take to count. vLLM needs 0.6 s for 125,000 tokens.
const COUNT_WITHIN: Duration = Duration::from_secs(5);

/// The longest answer to a counting request that is read: vLLM sends every token.
const COUNT_LIMIT: usize = 64 << 20;

/// Asks a backend that can count. `None` if it cannot, or not in time.
pub(crate) async fn by_backend(
    backend: &Backend,
    dialect: Option<Dialect>,
    request: &ChatRequest,
) -> Option<u64> {
    let (path, body, answer) = counting_request(backend, dialect?, request)?;
    read_count(answer_of(backend, path, body).await?, answer)
}

/// The answer to a question that costs an engine no computing.
pub(super) async fn answer_of(backend: &Backend, path: &str, body: Bytes) -> Option<Bytes> {
    let mut sent = headers::to_backend(&HeaderMap::new(), &backend.config);
    sent.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let asking = async {
        let mut reply = backend.send(Method::POST, path, sent, body).await.ok()?;
        if reply.head.status != StatusCode::OK {
            return None;
        }
        let mut bytes = Vec::new();
        while let Some(piece) = reply.body.next().await {
            bytes.extend_from_slice(&piece.ok()?);
            if bytes.len() > COUNT_LIMIT {
                return None;
            }
        }
        Some(bytes.into())
    };
    tokio::time::timeout(COUNT_WITHIN, asking).await.ok().flatten()
}

/// Path, body and the member of the answer that holds the count.
fn counting_request(
    backend: &Backend,
    dialect: Dialect,
    request: &ChatRequest,
) -> Option<(&'static str, Bytes, &'static str)> {
    let llama = matches!(backend.engine(), Engine::LlamaCpp);
    let vllm_like = matches!(backend.engine(), Engine::Vllm | Engine::Sglang);
    let whole = || request.body().clone();
    match dialect {
        Dialect::Chat if llama => Some(("/v1/chat/completions/input_tokens", whole(), "input_tokens")),
        Dialect::Chat if vllm_like => Some(("/tokenize", chat(backend, request), "count")),
        Dialect::Completions if vllm_like => {
            Some(("/tokenize", picked(backend, request, &["prompt"], &[]), "count"))
        }
        Dialect::Responses if llama => Some(("/v1/responses/input_tokens", whole(), "input_tokens")),
        Dialect::Messages if llama || vllm_like || matches!(backend.engine(), Engine::IkLlama) => {
            Some(("/v1/messages/count_tokens", whole(), "input_tokens"))
        }
        Dialect::Chat | Dialect::Completions | Dialect::Responses | Dialect::Messages => None,
    }
}

/// A chat as `/tokenize` takes it.
pub(super) fn chat(backend: &Backend, request: &ChatRequest) -> Bytes {
    let members = ["tools", "add_generation_prompt", "continue_final_message"];
    let own = [("messages", messages(request)), ("chat_template_kwargs", kwargs(request))];
    picked(backend, request, &members, &own)
}

/// The members that a counting endpoint takes, as they came, and `own` ones, under the backend's own model name.
fn picked(
    backend: &Backend,
    request: &ChatRequest,
    members: &[&str],
    own: &[(&str, Option<String>)],
) -> Bytes {
    let asked = request.model();
    let model = backend.name_for(asked.as_deref()).or_else(|| asked.map(Cow::into_owned));
    let mut written: Vec<String> =
        model.map(|model| format!("\"model\":{}", Value::from(model))).into_iter().collect();
    for member in members {
        // `tools: []` is refused by vLLM, and adds nothing to a prompt.
        let value = request.root().get(member).filter(|value| !value.is_null() && value.raw() != "[]");
        written.extend(value.map(|value| format!("\"{member}\":{}", value.raw())));
    }
    for (member, value) in own {
        written.extend(value.as_ref().map(|value| format!("\"{member}\":{value}")));
    }
    format!("{{{}}}", written.join(",")).into()
}

/// vLLM's chat endpoint reads reasoning by its old name, `/tokenize` does not and would count too little.
fn messages(request: &ChatRequest) -> Option<String> {
    let renamed = |message: View<'_>| {
        let member = |member: Member<'_>| {
            let name = match &*member.name() {
                "reasoning_content" => "reasoning".to_owned(),
                other => other.to_owned(),
            };
            format!("{}:{}", Value::from(name), member.value.raw())
        };
        format!("{{{}}}", message.members().map(member).collect::<Vec<_>>().join(","))
    };
    let messages = request.root().get("messages")?;
    Some(format!("[{}]", messages.elements().map(renamed).collect::<Vec<_>>().join(",")))
}

/// Nor does it know `reasoning_effort`, which switches thinking as well: both are the template's in the end.
fn kwargs(request: &ChatRequest) -> Option<String> {
    let given = request.root().get("chat_template_kwargs").filter(|given| !given.is_null());
    let effort = request.root().get("reasoning_effort").filter(|effort| !effort.is_null());
    let Some(effort) = effort else { return given.map(|given| given.raw().to_owned()) };
    let mut kwargs: Map<String, Value> =
        given.and_then(|given| serde_json::from_str(given.raw()).ok()).unwrap_or_default();
    let effort = effort.as_str().unwrap_or_default();
    kwargs.entry("enable_thinking").or_insert_with(|| (effort != "none").into());
    kwargs.insert("reasoning_effort".into(), effort.into());
    Some(Value::Object(kwargs).to_string())
}

fn read_count(body: Bytes, member: &str) -> Option<u64> {
    // vLLM sends every token beside the count: a checked view skips them without building a tree.
    ChatRequest::parse(body).ok()?.root().get(member)?.as_u64()
}
