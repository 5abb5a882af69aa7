//! vLLM 0.32: `renderers/chat_utils.py`, `renderers/hf.py`, `entrypoints/openai/chat_completion/protocol.py`.
//!
//! What is not mirrored: tokenizers of mistral-common, which use no template at all, and `documents`. gpt-oss has a room of its own. Media parts leave their place holders out: they are an allowance on top of the count.

use serde_json::{Map, Value as Json, json};

use super::{Ending, Prepared, Refused, has_role, is_nothing, member, messages, text};
use crate::prompt::probe::Traits;
use crate::request::ChatRequest;

/// What vLLM appends to the text that it is to continue at, and looks for in the rendered prompt.
pub(in crate::prompt) const MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Part types whose text is prompt text, and the member that holds it.
const TEXT_PARTS: [(&str, &str); 5] = [
    ("text", "text"),
    ("input_text", "text"),
    ("output_text", "text"),
    ("refusal", "refusal"),
    ("thinking", "thinking"),
];

/// What vLLM hands to the template.
pub(in crate::prompt) fn prepare(request: &ChatRequest, traits: &Traits) -> Result<Prepared, Refused> {
    let mut media = 0;
    let mut conversation = Vec::new();
    for message in messages(request)? {
        conversation.push(read_message(message, traits.list_in_vllm, &mut media)?);
    }
    if conversation.is_empty() {
        return Err(Refused::new("messages is empty"));
    }
    if !traits.names_developer && conversation.iter().any(|message| has_role(message, "developer")) {
        conversation = with_one_system_message(conversation);
    }
    let mut context = Map::new();
    context.insert("tools".into(), tools(request)?.unwrap_or_default());
    context.extend(variables(request)?);
    let go_on = is_true(context.get("continue_final_message"));
    // It is for the renderer; templates do not see it.
    context.shift_remove("continue_final_message");
    let mut said = String::new();
    if go_on {
        if is_true(context.get("add_generation_prompt")) {
            return Err(Refused::new("continue_final_message needs add_generation_prompt to be false"));
        }
        said = mark_last(&mut conversation)?;
    }
    let messages = conversation.into_iter().map(Json::Object).collect();
    context.insert("messages".into(), Json::Array(messages));
    Ok(Prepared {
        context,
        ending: if go_on { Ending::CutAtMark { said } } else { Ending::Rendered },
        media,
        unsure: false,
    })
}

pub(in crate::prompt) fn is_true(value: Option<&Json>) -> bool {
    match value {
        None | Some(Json::Null | Json::Bool(false)) => false,
        Some(Json::String(text)) => !text.is_empty(),
        Some(_) => true,
    }
}

/// A message as vLLM hands it to a template; parts that are no text are counted.
pub(in crate::prompt) fn read_message(
    mut message: Map<String, Json>,
    list_content: bool,
    media: &mut u64,
) -> Result<Map<String, Json>, Refused> {
    let role = text(&message, "role").unwrap_or_default().to_owned();
    let mut parts = match message.remove("content") {
        None | Some(Json::Null) => vec![],
        Some(text @ Json::String(_)) => vec![json!({"type": "text", "text": text})],
        Some(Json::Array(parts)) => parts,
        // Python goes through its keys.
        Some(Json::Object(parts)) => parts.into_iter().map(|(key, _)| key.into()).collect(),
        Some(_) => return Err(Refused::new("content must be a string or a list of parts")),
    };
    if role == "system" {
        parts = parts.into_iter().filter_map(without_billing_line).collect();
    }
    let mut read = Map::new();
    read.insert("role".into(), role.as_str().into());
    let content = match list_content {
        false => Json::from(joined_text(&parts, media)?),
        true => {
            let parts = listed_parts(&parts, media)?;
            let only_text = parts.iter().all(|part| part["type"] == "text");
            match role == "tool" && only_text {
                // Most templates take only strings from tools.
                true => {
                    let texts: Vec<_> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
                    Json::from(texts.join("\n"))
                }
                false => Json::Array(parts),
            }
        }
    };
    read.insert("content".into(), content);
    match role.as_str() {
        "assistant" => {
            if let Some(calls) = message.remove("tool_calls").filter(|calls| !calls.is_null()) {
                read_calls(calls, &mut read)?;
            }
            // Whatever it is: nothing looks at its type.
            let reasoning = ["reasoning", "reasoning_content"].iter().filter_map(|key| message.get(*key));
            if let Some(reasoning) = reasoning.into_iter().find(|value| !value.is_null()) {
                read.insert("reasoning".into(), reasoning.clone());
                read.insert("reasoning_content".into(), reasoning.clone());
            }
        }
        "tool" => {
            if let Some(id) = message.remove("tool_call_id") {
                read.insert("tool_call_id".into(), id);
            }
        }
        "developer" => {
            read.insert("tools".into(), message.remove("tools").unwrap_or_default());
        }
        _ => {}
    }
    for key in ["name", "task"] {
        if let Some(value) = message.remove(key).filter(Json::is_string) {
            read.insert(key.into(), value);
        }
    }
    Ok(read)
}

/// Claude Code's attribution line differs on every request: vLLM drops it to keep its prefix cache.
fn without_billing_line(part: Json) -> Option<Json> {
    let text = match &part {
        Json::String(text) => text,
        Json::Object(part) if text(part, "type") == Some("text") => text(part, "text")?,
        _ => return Some(part),
    };
    if !text.starts_with("x-anthropic-billing-header") {
        return Some(part);
    }
    let rest = text.split_once('\n').map_or("", |(_, rest)| rest).to_owned();
    match (rest.is_empty(), part) {
        (true, _) => None,
        (false, Json::Object(mut part)) => {
            part.insert("text".into(), rest.into());
            Some(Json::Object(part))
        }
        (false, _) => Some(rest.into()),
    }
}

/// What a part is: text, or something else.
enum Part<'a> {
    Text(&'a str),
    Tool(&'a str),
    Media(&'static str),
    /// A text part whose text is no text, but something.
    Odd(&'a Json),
    /// A text part whose text is null.
    Nothing,
}

fn read_part(part: &Json) -> Result<Part<'_>, Refused> {
    let object = match part {
        Json::String(text) => return Ok(Part::Text(text)),
        Json::Object(object) => object,
        _ => return Err(Refused::new("a content part must be a string or an object")),
    };
    let has = |key: &str| object.contains_key(key);
    let kind = text(object, "type").unwrap_or_default();
    if let Some((_, key)) = TEXT_PARTS.iter().find(|(name, _)| *name == kind) {
        return Ok(match object.get(*key) {
            None | Some(Json::Null) => Part::Nothing,
            Some(Json::String(text)) => Part::Text(text),
            Some(other) => Part::Odd(other),
        });
    }
    let media = |names: &[&str]| names.iter().any(|name| kind == *name || (kind.is_empty() && has(name)));
    Ok(match () {
        () if kind == "tool_reference" => Part::Tool(text(object, "name").unwrap_or_default()),
        () if media(&["image_url", "input_image", "image_embeds", "image_pil"]) => Part::Media("image"),
        () if media(&["audio_url", "input_audio", "audio_embeds"]) => Part::Media("audio"),
        () if media(&["video_url", "video_embeds"]) => Part::Media("video"),
        () => return Err(Refused::new(format!("content part type {kind:?} is not supported"))),
    })
}

fn joined_text(parts: &[Json], media: &mut u64) -> Result<String, Refused> {
    let mut texts = Vec::new();
    for part in parts {
        match read_part(part)? {
            Part::Text(text) | Part::Tool(text) if !text.is_empty() => texts.push(text),
            Part::Media(_) => *media += 1,
            Part::Odd(value) if !is_nothing(value) => {
                return Err(Refused::new("the text of a content part must be a string"));
            }
            _ => {}
        }
    }
    Ok(texts.join("\n"))
}

fn listed_parts(parts: &[Json], media: &mut u64) -> Result<Vec<Json>, Refused> {
    let mut listed = Vec::new();
    for part in parts {
        listed.push(match read_part(part)? {
            Part::Text(text) => json!({"type": "text", "text": text}),
            Part::Odd(text) => json!({"type": "text", "text": text}),
            Part::Tool(name) => json!({"type": "tool_reference", "name": name}),
            Part::Media(kind) => {
                *media += 1;
                json!({"type": kind})
            }
            Part::Nothing => continue,
        });
    }
    Ok(listed)
}

/// Past calls: arguments as a mapping, broken ones as an empty one.
fn read_calls(calls: Json, message: &mut Map<String, Json>) -> Result<(), Refused> {
    let mut calls = match calls {
        Json::Array(calls) => calls,
        // As a list, each of them is empty.
        Json::String(text) if text.is_empty() => return Ok(()),
        Json::Object(object) if object.is_empty() => return Ok(()),
        _ => return Err(Refused::new("tool_calls must be a list")),
    };
    if calls.is_empty() {
        return Ok(());
    }
    for call in &mut calls {
        let kind = call.get("type").and_then(Json::as_str).unwrap_or("function").to_owned();
        let function = call.get_mut("function").and_then(Json::as_object_mut);
        let Some(function) = function.filter(|_| kind == "function") else {
            return Err(Refused::new("only calls of type function are supported"));
        };
        let arguments = match function.get_mut("arguments").map(Json::take) {
            Some(Json::String(text)) => serde_json::from_str(&text).unwrap_or_default(),
            Some(other) => other,
            None => Json::Null,
        };
        let arguments = if arguments.is_object() { arguments } else { json!({}) };
        // In the order of the types that the request is read with, which keep nothing else.
        let name = function.get("name").cloned().unwrap_or_default();
        let id = call.get("id").cloned().unwrap_or_default();
        *call = json!({"id": id, "function": {"arguments": arguments, "name": name}, "type": "function"});
    }
    message.insert("tool_calls".into(), Json::Array(calls));
    Ok(())
}

/// For templates that do not know `developer`: such messages become system messages, and if one stands later than the front, all are
/// merged there.
fn with_one_system_message(conversation: Vec<Map<String, Json>>) -> Vec<Map<String, Json>> {
    let mut renamed = conversation;
    for message in renamed.iter_mut().filter(|message| has_role(message, "developer")) {
        message.insert("role".into(), "system".into());
        message.remove("tools");
    }
    if !renamed.iter().skip(1).any(|message| has_role(message, "system")) {
        return renamed;
    }
    let (system, others): (Vec<_>, Vec<_>) =
        renamed.into_iter().partition(|message| has_role(message, "system"));
    let texts: Vec<_> = system.iter().map(|message| content_text(&message["content"])).collect();
    let texts: Vec<_> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    let mut merged = Map::new();
    merged.insert("role".into(), "system".into());
    merged.insert("content".into(), texts.join("\n\n").into());
    std::iter::once(merged).chain(others).collect()
}

fn content_text(content: &Json) -> String {
    match content {
        Json::Array(parts) => {
            let texts: Vec<_> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            texts.join("\n")
        }
        other => other.as_str().unwrap_or_default().to_owned(),
    }
}

/// The template's variables besides the messages and the tools: `chat_template_kwargs`, and over them what the request says itself.
pub(in crate::prompt) fn variables(request: &ChatRequest) -> Result<Map<String, Json>, Refused> {
    let mut context = Map::new();
    context.insert("documents".into(), Json::Null);
    let given = match member(request, "chat_template_kwargs")? {
        None => Map::new(),
        Some(Json::Object(given)) => given,
        Some(_) => return Err(Refused::new("chat_template_kwargs must be an object")),
    };
    let says_thinking = given.contains_key("enable_thinking");
    // Null and "auto" mean not set.
    let set = |value: &Json| !value.is_null() && value != "auto";
    context.extend(given.into_iter().filter(|(_, value)| set(value)));
    let flag = |name, default| match member(request, name)? {
        None => Ok(Json::Bool(default)),
        Some(value) => as_bool(name, &value),
    };
    context.insert("add_generation_prompt".into(), flag("add_generation_prompt", true)?);
    context.insert("continue_final_message".into(), flag("continue_final_message", false)?);
    if let Some(effort) = member(request, "reasoning_effort")? {
        if !says_thinking {
            context.insert("enable_thinking".into(), (effort != "none").into());
        }
        if set(&effort) {
            context.insert("reasoning_effort".into(), effort);
        }
    }
    Ok(context)
}

/// What pydantic takes for true and false.
fn as_bool(name: &str, value: &Json) -> Result<Json, Refused> {
    let word = match value {
        Json::String(word) => word.to_ascii_lowercase(),
        other => other.to_string(),
    };
    match word.as_str() {
        "true" | "1" | "1.0" | "t" | "y" | "yes" | "on" => Ok(true.into()),
        "false" | "0" | "0.0" | "-0.0" | "f" | "n" | "no" | "off" => Ok(false.into()),
        _ => Err(Refused::new(format!("{name} must be true or false"))),
    }
}

/// Tools as vLLM's model of them writes them: known members in its order, absent ones as null. `tool_choice` changes nothing.
fn tools(request: &ChatRequest) -> Result<Option<Json>, Refused> {
    let tools = match member(request, "tools")? {
        None => return Ok(None),
        Some(Json::Array(tools)) if tools.is_empty() => return Ok(None),
        Some(Json::Array(tools)) => tools,
        Some(_) => return Err(Refused::new("tools must be a list")),
    };
    let written = tools.iter().enumerate().map(|(index, tool)| read_tool(index, tool));
    written.collect::<Result<_, _>>().map(|written| Some(Json::Array(written)))
}

/// One of them.
pub(in crate::prompt) fn read_tool(index: usize, tool: &Json) -> Result<Json, Refused> {
    let kind = tool.get("type").map_or(Some("function"), Json::as_str);
    let function = tool.get("function").and_then(Json::as_object);
    let (Some("function"), Some(function)) = (kind, function) else {
        return Err(Refused::new(format!("tools[{index}] is no function")));
    };
    let Some(name) = text(function, "name") else {
        return Err(Refused::new(format!("tools[{index}].function.name must be a string")));
    };
    let or_null = |key: &str| function.get(key).cloned().unwrap_or_default();
    let mut described = Map::new();
    described.insert("name".into(), name.into());
    described.insert("description".into(), or_null("description"));
    described.insert("parameters".into(), or_null("parameters"));
    let deferred = tool.get("defer_loading").filter(|value| !value.is_null());
    for (key, value) in [
        ("strict", function.get("strict").filter(|value| !value.is_null())),
        ("defer_loading", function.get("defer_loading").filter(|value| !value.is_null()).or(deferred)),
    ] {
        if let Some(value) = value {
            described.insert(key.into(), as_bool(key, value)?);
        }
    }
    let mut tool = json!({"type": "function", "function": described});
    if let (Some(deferred), Some(tool)) = (deferred, tool.as_object_mut()) {
        tool.insert("defer_loading".into(), deferred.clone());
    }
    Ok(tool)
}

/// Puts the mark behind the text that is to be continued, and gives that text.
fn mark_last(conversation: &mut [Map<String, Json>]) -> Result<String, Refused> {
    let content = conversation.last_mut().and_then(|message| message.get_mut("content"));
    let text = match content {
        Some(Json::String(text)) => Some(text),
        Some(Json::Array(parts)) => parts.iter_mut().rev().find_map(|part| match part.get_mut("text") {
            Some(Json::String(text)) => Some(text),
            _ => None,
        }),
        _ => None,
    };
    match text {
        Some(text) => {
            let said = text.clone();
            text.push_str(MARK);
            Ok(said)
        }
        None => Err(Refused::new("continue_final_message finds no text to continue")),
    }
}
