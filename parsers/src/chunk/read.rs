//! The readers of each dialect: from a JSON value to what it says.
//!
//! Chat and Completions say everything in `choices`, streamed or not. Messages and Responses name their events by
//! `type`; a whole answer is an object of its own. All members may be absent or of any type: what does not read as
//! expected says nothing.

use super::{ChoiceSaid, Dialect, Finish, Said, Usage};
use crate::json::{Kind, Value};

pub(super) fn read(dialect: Dialect, value: Value<'_>) -> Said {
    let [error, object, kind] = value.get_all(["error", "object", "type"]);
    // SGLang and older vLLM say `"object":"error"`, Messages and Responses `"type":"error"`, all others have an
    // `error`.
    let is_error =
        error.is_some_and(holds) || [object, kind].iter().flatten().any(|name| name.is_text("error"));
    let mut said = Said { error: is_error, usage: usage(value), ..Said::default() };
    match dialect {
        Dialect::Chat | Dialect::Completions => read_choices(dialect, value, &mut said),
        Dialect::Messages => read_message(value, &mut said),
        Dialect::Responses => read_response(value, &mut said),
    }
    said
}

fn read_choices(dialect: Dialect, value: Value<'_>, said: &mut Said) {
    let [choices, progress] = value.get_all(["choices", "prompt_progress"]);
    let Some(choices) = choices.filter(|c| c.kind() == Kind::Array) else { return };
    for choice in choices.elements() {
        let [index, finish, delta, message, text] =
            choice.get_all(["index", "finish_reason", "delta", "message", "text"]);
        let index = index.and_then(Value::as_u64).unwrap_or(said.choices.len() as u64);
        let finish = finish.and_then(Value::as_str).and_then(|word| Finish::read(dialect, word));
        said.content |= text.is_some_and(holds) || delta.or(message).is_some_and(|m| says(m, &SHOWN));
        said.marks = marks(text.into_iter().chain(delta.or(message).into_iter().flat_map(shown)));
        said.token |= finish.is_some();
        said.choices.push(ChoiceSaid { index, finish });
    }
    said.empty_choices = said.choices.is_empty();
    // llama.cpp reports its prefill in chunks that look like role chunks.
    let progress = progress.is_some_and(|p| !p.is_null());
    said.token |= said.content || (!said.empty_choices && !progress);
}

/// What a client may show of a message or a delta.
const SHOWN: [&str; 7] =
    ["content", "reasoning", "reasoning_content", "refusal", "tool_calls", "function_call", "audio"];

/// Whether one of these members holds anything.
fn says(object: Value<'_>, names: &[&str]) -> bool {
    object.members().any(|m| names.iter().any(|name| m.key.is_text(name)) && holds(m.value))
}

fn shown(message: Value<'_>) -> impl Iterator<Item = Value<'_>> {
    let members = message.members();
    members.filter(|member| SHOWN.iter().any(|name| member.key.is_text(name))).map(|member| member.value)
}

/// How many exclamation marks these are, if they are nothing else.
fn marks<'a>(values: impl Iterator<Item = Value<'a>>) -> u64 {
    let mut marks = 0;
    for value in values.filter(|value| holds(*value)) {
        let text = value.raw().trim_matches('"');
        if text.bytes().any(|byte| byte != b'!') {
            return 0;
        }
        marks += text.len() as u64;
    }
    marks
}

fn holds(value: Value<'_>) -> bool {
    match value.kind() {
        Kind::String => value.raw().len() > 2,
        Kind::Array => value.elements().next().is_some(),
        Kind::Object => value.members().next().is_some(),
        Kind::Number => true,
        Kind::Null | Kind::Bool => false,
    }
}

fn read_message(value: Value<'_>, said: &mut Said) {
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
    let mut finish = None;
    match &*kind {
        "message_start" => said.usage = value.at("/message").and_then(usage),
        "content_block_start" | "content_block_delta" => {
            said.token = true;
            let block = value.get("content_block").or_else(|| value.get("delta"));
            said.content = block.is_some_and(block_says);
        }
        "content_block_stop" => said.token = true,
        "message_delta" => {
            said.token = true;
            finish = value.at("/delta/stop_reason").and_then(Value::as_str);
        }
        "message_stop" => said.done = true,
        "message" => {
            said.token = true;
            said.content = value.get("content").into_iter().flat_map(Value::elements).any(block_says);
            finish = value.get("stop_reason").and_then(Value::as_str);
        }
        _ => {}
    }
    let finish = finish.and_then(|word| Finish::read(Dialect::Messages, word));
    say_one_choice(said, finish);
}

/// A block or a delta of one: text and thinking by what they hold; a signature nothing; any other, a tool's use above
/// all, as such.
fn block_says(block: Value<'_>) -> bool {
    match block.get("type").and_then(Value::as_str).as_deref() {
        Some("text" | "thinking" | "text_delta" | "thinking_delta" | "input_json_delta") => {
            says(block, &["text", "thinking", "partial_json"])
        }
        Some("signature_delta") | None => false,
        Some(_) => true,
    }
}

fn read_response(value: Value<'_>, said: &mut Said) {
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
    let mut finish = None;
    match &*kind {
        // A whole answer has no type.
        "" if value.get("object").is_some_and(|o| o.is_text("response")) => {
            finish = read_whole_response(value, said);
        }
        "response.created" | "response.queued" | "response.in_progress" => {}
        "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
            said.done = true;
            said.error |= kind == "response.failed";
            let word = kind.trim_start_matches("response.");
            let told = value.get("response").and_then(|response| read_whole_response(response, said));
            finish = match told {
                Some(bad @ Finish::Bad(_)) => Some(bad),
                _ => Finish::read(Dialect::Responses, word.into()),
            };
        }
        _ if kind.starts_with("response.") => {
            said.token = true;
            said.content = says(value, &["delta", "text", "arguments", "refusal"])
                || value.get("part").is_some_and(|part| says(part, &["text", "refusal"]))
                || value.get("item").is_some_and(item_says);
        }
        _ => {}
    }
    say_one_choice(said, finish);
}

fn read_whole_response(response: Value<'_>, said: &mut Said) -> Option<Finish> {
    said.usage = usage(response);
    said.error |= response.get("error").is_some_and(holds);
    for item in response.get("output").into_iter().flat_map(Value::elements) {
        said.token = true;
        said.content |= item_says(item);
    }
    let status = response.get("status")?.as_str()?;
    said.error |= status == "failed";
    // By the API an answer is incomplete for one of two reasons; one that says another was broken off.
    let reason = response.at("/incomplete_details/reason").and_then(Value::as_str);
    if let Some(reason) =
        reason.filter(|reason| !["max_output_tokens", "content_filter"].contains(&&**reason))
    {
        return Some(Finish::Bad(reason.into_owned()));
    }
    if matches!(&*status, "queued" | "in_progress") { None } else { Finish::read(Dialect::Responses, status) }
}

/// Messages and reasoning by the text of their parts; any other item, a function call above all, as such.
fn item_says(item: Value<'_>) -> bool {
    match item.get("type").and_then(Value::as_str).as_deref() {
        Some("message" | "reasoning") => ["content", "summary"]
            .iter()
            .flat_map(|list| item.get(list))
            .flat_map(Value::elements)
            .any(|part| says(part, &["text", "refusal"])),
        kind => kind.is_some(),
    }
}

fn say_one_choice(said: &mut Said, finish: Option<Finish>) {
    if said.token || finish.is_some() {
        said.choices.push(ChoiceSaid { index: 0, finish });
    }
}

/// `usage` in the words of any dialect, else llama.cpp's `timings`.
fn usage(value: Value<'_>) -> Option<Usage> {
    let number = |object: Value<'_>, name: &str| object.at(name).and_then(Value::as_u64);
    let [usage, timings] = value.get_all(["usage", "timings"]);
    let Some(usage) = usage.filter(|u| u.kind() == Kind::Object) else {
        let timings = timings?;
        let computed = number(timings, "/prompt_n")?;
        let cached = number(timings, "/cache_n");
        return Some(Usage {
            prompt_tokens: Some(computed.saturating_add(cached.unwrap_or(0))),
            completion_tokens: number(timings, "/predicted_n"),
            cached_tokens: cached,
        });
    };
    // Messages counts the parts of the prompt apart: what was computed, what was read from the cache, what was
    // written to it.
    let read = number(usage, "/cache_read_input_tokens");
    let written = number(usage, "/cache_creation_input_tokens").unwrap_or(0);
    let input =
        number(usage, "/input_tokens").map(|n| n.saturating_add(read.unwrap_or(0)).saturating_add(written));
    let cached = ["/prompt_tokens_details/cached_tokens", "/input_tokens_details/cached_tokens"];
    Some(Usage {
        prompt_tokens: number(usage, "/prompt_tokens").or(input),
        completion_tokens: number(usage, "/completion_tokens").or_else(|| number(usage, "/output_tokens")),
        cached_tokens: cached.iter().find_map(|name| number(usage, name)).or(read),
    })
}
