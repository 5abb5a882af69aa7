//! llama.cpp's server, build 11434: `tools/server/server-common.cpp`, `common/chat.cpp`.
//!
//! It parses messages into its own form and writes them for the template: what the template can take (string or list of parts, object
//! or string arguments, a system role) is found by probing it. Tools are handed over always; a template without tool support leaves
//! them out by itself.
//!
//! What is not mirrored: templates that llama.cpp has a handler of its own for, other than Qwen's; their counts are bounds.

use serde_json::{Map, Value as Json, json};

use super::{Ending, Prepared, Refused, has_role, member, messages, text};
use crate::prompt::probe::Traits;
use crate::request::ChatRequest;

/// What marks the templates that llama.cpp knows (`common_chat_try_specialized_template`, and the trimming beside it) and renders with
/// changes of its own. Of a row all must be there. Not here: those whose renders were found the same.
const HANDLED: [&[&str]; 15] = [
    &["[SYSTEM_PROMPT]", "[TOOL_CALLS]", "[ARGS]"],
    &["<|channel|>"],
    &["<atem:function_calls>", "<|eom|>"],
    &[">>>all", ">>>${recipient}"],
    &["<|tool_calls_section_begin|>", "<|tool_call_begin|>"],
    &["<|open|>", "<|close|>", "<|end_of_msg|>"],
    &["<role>ASSISTANT</role>", "<arg_key>"],
    &["<|START_TEXT|>", "<|START_ACTION|>"],
    &["List of tools: ["],
    &["<|tool_list_start|>"],
    &["<|role_sep|>", "<|message_sep|>"],
    &["dsml_token", "DSML"],
    &["'<|tool_call>call:'"],
    &["Tool usage guidelines:", "<function name=\"", "<param name=\""],
    &["You have access to the following functions in JSONSchema format"],
];

/// Whether llama.cpp has a handler for the template that is not mirrored.
pub(in crate::prompt) fn has_handler(source: &str) -> bool {
    HANDLED.iter().any(|marks| marks.iter().all(|mark| source.contains(mark)))
}

/// What llama.cpp hands to the template.
pub(in crate::prompt) fn prepare(request: &ChatRequest, traits: &Traits) -> Result<Prepared, Refused> {
    let mut media = 0;
    let mut conversation = Vec::new();
    for message in messages(request)? {
        conversation.push(read_message(&message, &mut media)?);
    }
    let lists_in_results =
        traits.list_content && conversation.iter().any(|m| has_role(m, "tool") && m["content"].is_array());
    let mut context = variables(request, traits)?;
    let add_generation_prompt = flag(request, "add_generation_prompt")?.unwrap_or(true);
    let ending = ending(request, &mut conversation, add_generation_prompt)?;
    if let Some(tools) = tools(request)? {
        context.insert("tools".into(), tools);
    }
    if add_generation_prompt && matches!(ending, Ending::Rendered) {
        context.insert("add_generation_prompt".into(), true.into());
    }
    for message in &mut conversation {
        fit(message, traits)?;
    }
    if !traits.system_role {
        merge_system_into_next(&mut conversation);
    }
    context.insert("messages".into(), Json::Array(conversation.into_iter().map(Json::Object).collect()));
    // It finds out by itself how a template thinks, and takes results in parts apart; only Qwen's ways were measured.
    let unsure =
        lists_in_results || (matches!(ending, Ending::Continued { .. }) && traits.thinks_unlike_qwen);
    Ok(Prepared { context, ending, media, unsure })
}

pub(in crate::prompt) fn flag(request: &ChatRequest, name: &str) -> Result<Option<bool>, Refused> {
    // A mistyped value is ignored.
    Ok(member(request, name)?.and_then(|value| value.as_bool()))
}

pub(in crate::prompt) fn read_message(
    message: &Map<String, Json>,
    media: &mut u64,
) -> Result<Map<String, Json>, Refused> {
    let role = text(message, "role").unwrap_or_default();
    let mut read = Map::new();
    read.insert("role".into(), role.into());
    let content = match message.get("content") {
        None if role != "assistant" => {
            return Err(Refused::new(format!("a message of role {role} has no content")));
        }
        None if !message.contains_key("tool_calls") => {
            return Err(Refused::new("an assistant message has neither content nor tool_calls"));
        }
        None | Some(Json::Null) => Json::from(""),
        Some(Json::String(text)) => text.as_str().into(),
        Some(Json::Array(parts)) => read_parts(parts, media)?,
        Some(_) => return Err(Refused::new("content must be a string or a list of parts")),
    };
    read.insert("content".into(), content);
    for (key, name) in
        [("reasoning_content", "reasoning_content"), ("name", "name"), ("tool_call_id", "tool_call_id")]
    {
        match message.get(key) {
            None => {}
            Some(Json::String(value)) if value.is_empty() => {}
            Some(Json::String(value)) => {
                read.insert(name.into(), value.as_str().into());
            }
            Some(_) => return Err(Refused::new(format!("{key} of a message must be a string"))),
        }
    }
    match message.get("tool_calls") {
        None => {}
        Some(calls) => {
            let calls = calls.as_array().map(Vec::as_slice).unwrap_or_default();
            let calls: Vec<_> = calls.iter().map(read_call).collect::<Result<_, _>>()?;
            if !calls.is_empty() {
                read.insert("tool_calls".into(), Json::Array(calls));
            }
        }
    }
    Ok(read)
}

fn read_parts(parts: &[Json], media: &mut u64) -> Result<Json, Refused> {
    let mut read = Vec::new();
    let mut has_media = false;
    for part in parts {
        match part.get("type").and_then(Json::as_str).unwrap_or_default() {
            "text" => {
                let text = part.get("text").and_then(Json::as_str);
                let text = text.ok_or_else(|| Refused::new("a text part has no text"))?;
                read.push(json!({"type": "text", "text": text}));
            }
            "image_url" | "input_audio" | "input_video" | "video_url" => {
                *media += 1;
                has_media = true;
                // Its marker becomes the media's tokens, which are an allowance on top of the count.
                read.push(json!({"type": "media_marker", "text": ""}));
            }
            other => return Err(Refused::new(format!("content part type {other:?} is not supported"))),
        }
    }
    Ok(match (read.is_empty(), has_media) {
        (true, _) => "".into(),
        (false, true) => joined(&read).into(),
        (false, false) => Json::Array(read),
    })
}

/// Texts with a line break between them, but none beside a medium.
fn joined(parts: &[Json]) -> String {
    let mut text = String::new();
    let mut after_media = false;
    for part in parts {
        let is_media = part["type"] == "media_marker";
        if !is_media && !after_media && !text.is_empty() {
            text.push('\n');
        }
        after_media = is_media;
        text.push_str(part["text"].as_str().unwrap_or_default());
    }
    text
}

fn read_call(call: &Json) -> Result<Json, Refused> {
    if call.get("type").and_then(Json::as_str) != Some("function") {
        return Err(Refused::new("a past call must have the type function"));
    }
    let function = call.get("function").and_then(Json::as_object);
    let function = function.ok_or_else(|| Refused::new("a past call has no function"))?;
    let name = text(function, "name").ok_or_else(|| Refused::new("a past call has no name"))?;
    let arguments = match function.get("arguments") {
        Some(Json::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => return Err(Refused::new("a past call has no arguments")),
    };
    let mut read = json!({"type": "function", "function": {"name": name, "arguments": arguments}});
    if let (Some(id), Some(read)) = (call.get("id"), read.as_object_mut()) {
        match id.as_str() {
            Some("") => {}
            Some(id) => {
                read.insert("id".into(), id.into());
            }
            None => return Err(Refused::new("the id of a past call must be a string")),
        }
    }
    Ok(read)
}

/// The forms that the template takes.
pub(in crate::prompt) fn fit(message: &mut Map<String, Json>, traits: &Traits) -> Result<(), Refused> {
    if let Some(content) = message.get_mut("content") {
        let fitted = match &*content {
            Json::String(text) if traits.list_content && !traits.string_content => {
                Some(json!([{"type": "text", "text": text}]))
            }
            Json::Array(parts) if !traits.list_content => Some(joined(parts).into()),
            _ => None,
        };
        if let Some(fitted) = fitted {
            *content = fitted;
        }
    }
    if !traits.names_channels && has_role(message, "developer") {
        message.insert("role".into(), "system".into());
    }
    let calls = message.get_mut("tool_calls").and_then(Json::as_array_mut);
    for call in calls.into_iter().flatten().filter(|_| traits.object_arguments) {
        let arguments = &mut call["function"]["arguments"];
        if let Json::String(text) = arguments {
            *arguments = serde_json::from_str(text)
                .map_err(|e| Refused::new(format!("the arguments of a past call are not json: {e}")))?;
        }
    }
    Ok(())
}

fn merge_system_into_next(conversation: &mut Vec<Map<String, Json>>) {
    if !conversation.first().is_some_and(|first| has_role(first, "system")) {
        return;
    }
    let system = conversation.remove(0);
    if let Some(next) = conversation.first_mut() {
        let texts = [text(&system, "content"), text(next, "content")].map(Option::unwrap_or_default);
        next.insert("content".into(), texts.join("\n").into());
    }
}

/// Takes the last message out if it is to be continued.
fn ending(
    request: &ChatRequest,
    conversation: &mut Vec<Map<String, Json>>,
    add_generation_prompt: bool,
) -> Result<Ending, Refused> {
    #[derive(PartialEq)]
    enum Continue {
        No,
        Auto,
        Reasoning,
        Content,
    }
    let mut way = match member(request, "continue_final_message")? {
        Some(Json::Bool(true)) => Continue::Auto,
        Some(Json::String(text)) if text == "reasoning_content" => Continue::Reasoning,
        Some(Json::String(text)) if text == "content" => Continue::Content,
        _ => Continue::No,
    };
    let is_assistant = |message: &Map<String, Json>| has_role(message, "assistant");
    if way != Continue::No && add_generation_prompt {
        return Err(Refused::new("continue_final_message needs add_generation_prompt to be false"));
    }
    // Without being asked, llama.cpp continues an assistant message at the end.
    if way == Continue::No && conversation.last().is_some_and(is_assistant) {
        if conversation.iter().rev().nth(1).is_some_and(is_assistant) {
            return Err(Refused::new("two assistant messages at the end cannot be continued"));
        }
        way = Continue::Auto;
    }
    if way == Continue::No {
        return Ok(Ending::Rendered);
    }
    let Some(last) = conversation.pop() else { return Ok(Ending::Rendered) };
    if is_assistant(&last) && last.contains_key("tool_calls") {
        return Err(Refused::new("an assistant message with tool calls cannot be continued"));
    }
    let reasoning = text(&last, "reasoning_content").unwrap_or_default().to_owned();
    // Unlike elsewhere, parts are joined with an empty line between them, but none in front of the first text.
    let content = match &last["content"] {
        Json::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str()).fold(String::new(), |text, part| {
                if text.is_empty() { part.to_owned() } else { text + "\n\n" + part }
            })
        }
        content => content.as_str().unwrap_or_default().to_owned(),
    };
    let is_empty = ["content", "reasoning_content", "name", "tool_call_id"]
        .iter()
        .all(|key| last.get(*key).is_none_or(|value| value == ""));
    if is_empty {
        return Ok(Ending::LeftOut);
    }
    if way == Continue::Auto && !reasoning.is_empty() && content.is_empty() {
        way = Continue::Reasoning;
    }
    Ok(Ending::Continued { reasoning, content: (way != Continue::Reasoning).then_some(content) })
}

/// The template's variables besides messages and tools.
pub(in crate::prompt) fn variables(
    request: &ChatRequest,
    traits: &Traits,
) -> Result<Map<String, Json>, Refused> {
    let given = match member(request, "chat_template_kwargs")? {
        Some(Json::Object(given)) => given,
        _ => Map::new(),
    };
    let mut thinking = traits.thinking;
    match given.get("enable_thinking") {
        Some(Json::Bool(wanted)) => thinking = *wanted,
        Some(Json::String(_)) => return Err(Refused::new("enable_thinking must be a boolean")),
        _ => {}
    }
    let effort = member(request, "reasoning_effort")?.and_then(|effort| effort.as_str().map(str::to_owned));
    let mut context = Map::new();
    context.insert("enable_thinking".into(), thinking.into());
    // Some day, in the forms that llama.cpp gives the present one in.
    context.insert("datetime".into(), "Jun 15 2026".into());
    context.insert("date_string".into(), "15 Jun 2026".into());
    let says_thinking = given.contains_key("enable_thinking");
    let keep = given.get("preserve_reasoning").and_then(Json::as_bool);
    context.extend(given);
    match effort.as_deref() {
        None | Some("") => {}
        Some("none") => {
            // What the request says of thinking itself wins.
            if !says_thinking {
                context.insert("enable_thinking".into(), false.into());
            }
            context.remove("reasoning_effort");
        }
        Some(effort) => {
            context.insert("reasoning_effort".into(), effort.into());
        }
    }
    if let Some(effort) = context.get("reasoning_effort").filter(|effort| effort.is_string()).cloned() {
        context.insert("reasoning_strength".into(), effort);
    }
    if let Some(keep) = keep {
        context.insert("preserve_thinking".into(), keep.into());
        for name in ["clear_thinking", "truncate_history_thinking", "drop_thinking"] {
            context.insert(name.into(), (!keep).into());
        }
    }
    Ok(context)
}

/// Refuses a choice of tools that llama.cpp does not know.
pub(in crate::prompt) fn check_choice(request: &ChatRequest) -> Result<(), Refused> {
    match member(request, "tool_choice")? {
        Some(Json::String(choice)) if !matches!(choice.as_str(), "auto" | "none" | "required") => {
            Err(Refused::new(format!("tool_choice {choice:?} is not supported")))
        }
        _ => Ok(()),
    }
}

/// Tools as llama.cpp writes them: a description always, and nothing that it does not know.
fn tools(request: &ChatRequest) -> Result<Option<Json>, Refused> {
    check_choice(request)?;
    let Some(tools) = member(request, "tools")? else { return Ok(None) };
    let tools = tools.as_array().ok_or_else(|| Refused::new("tools must be a list"))?;
    if tools.is_empty() {
        return Ok(None);
    }
    let written = tools.iter().enumerate().map(|(index, tool)| read_tool(index, tool));
    written.collect::<Result<_, _>>().map(|written| Some(Json::Array(written)))
}

/// One of them.
pub(in crate::prompt) fn read_tool(index: usize, tool: &Json) -> Result<Json, Refused> {
    let function = tool.get("function").and_then(Json::as_object);
    let function = function.filter(|_| tool.get("type").and_then(Json::as_str) == Some("function"));
    let function = function.ok_or_else(|| Refused::new(format!("tools[{index}] is no function")))?;
    let name = text(function, "name");
    let name = name.ok_or_else(|| Refused::new(format!("tools[{index}].function.name must be a string")))?;
    let description = text(function, "description").unwrap_or_default();
    let parameters = function.get("parameters").cloned().unwrap_or_else(|| json!({}));
    let function = json!({"name": name, "description": description, "parameters": parameters});
    Ok(json!({"type": "function", "function": function}))
}
