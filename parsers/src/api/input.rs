//! The items of a Responses conversation as messages of a chat.

use serde_json::{Value as Json, json};

use super::NotChat;
use super::tools::wrapped;

/// Appends the messages that the items of `input` stand for.
pub(super) fn messages(input: Json, free_text: &[String], out: &mut Vec<Json>) -> Result<(), NotChat> {
    let items = match input {
        Json::String(text) => {
            out.push(json!({ "role": "user", "content": text }));
            return Ok(());
        }
        Json::Array(items) => items,
        _ => return Err(wrong("input".to_owned(), "must be a string or a list of items")),
    };
    for (index, item) in items.into_iter().enumerate() {
        let place = || format!("input[{index}]");
        let text = |member: &str| item.get(member).and_then(Json::as_str).unwrap_or_default();
        match item.get("type").and_then(Json::as_str).unwrap_or("message") {
            "message" => {
                let Some(role) = item.get("role").and_then(Json::as_str) else {
                    return Err(wrong(format!("{}.role", place()), "is missing"));
                };
                let content = item.get("content").map(|own| content(own, &place())).transpose()?;
                out.push(json!({ "role": role, "content": content }));
            }
            kind @ ("function_call" | "custom_tool_call") => {
                let name = text("name");
                let arguments = if kind == "custom_tool_call" {
                    wrapped(text("input"))
                } else if free_text.iter().any(|own| own == name) {
                    super::free_text(text("arguments"))
                        .map_or_else(|| wrapped(text("arguments")), |own| wrapped(&own))
                } else {
                    text("arguments").to_owned()
                };
                let call = json!({
                    "id": text("call_id"), "type": "function", "function": { "name": name, "arguments": arguments },
                });
                called(call, out);
            }
            "function_call_output" | "custom_tool_call_output" => {
                let output = item.get("output").map(|own| content(own, &place())).transpose()?;
                out.push(json!({ "role": "tool", "tool_call_id": text("call_id"), "content": output.unwrap_or_default() }));
            }
            // Thoughts of earlier turns, mostly encrypted: nothing that another model reads.
            "reasoning" => {}
            kind => {
                let shown: String = kind.chars().take(40).collect();
                return Err(wrong(
                    format!("{}.type", place()),
                    &format!("`{shown}` has no counterpart in a chat"),
                ));
            }
        }
    }
    Ok(())
}

/// A call belongs to the answer before it; several stand in one message.
fn called(call: Json, out: &mut Vec<Json>) {
    let last = out.last_mut().filter(|last| last.get("role") == Some(&"assistant".into()));
    match last.and_then(Json::as_object_mut) {
        Some(last) => match last.get_mut("tool_calls").and_then(Json::as_array_mut) {
            Some(calls) => calls.push(call),
            None => {
                last.insert("tool_calls".to_owned(), json!([call]));
            }
        },
        None => out.push(json!({ "role": "assistant", "content": null, "tool_calls": [call] })),
    }
}

/// Text where there is nothing but text, else chat's parts.
fn content(content: &Json, place: &str) -> Result<Json, NotChat> {
    let Some(parts) = content.as_array() else { return Ok(content.clone()) };
    let mut out = Vec::new();
    for part in parts {
        let text = |member: &str| part.get(member).and_then(Json::as_str);
        out.push(match text("type").unwrap_or("input_text") {
            "input_text" | "output_text" | "text" | "refusal" => {
                json!({ "type": "text", "text": text("text").or(text("refusal")).unwrap_or_default() })
            }
            "input_image" => {
                json!({ "type": "image_url", "image_url": { "url": text("image_url").unwrap_or_default() } })
            }
            "image_url" => part.clone(),
            kind => {
                let shown: String = kind.chars().take(40).collect();
                return Err(wrong(
                    format!("{place}.content"),
                    &format!("has a part `{shown}` without a counterpart in a chat"),
                ));
            }
        });
    }
    let texts: Option<Vec<&str>> = out.iter().map(|part| part.get("text").and_then(Json::as_str)).collect();
    Ok(texts.map_or_else(|| out.clone().into(), |texts| texts.concat().into()))
}

fn wrong(param: String, problem: &str) -> NotChat {
    NotChat { param, problem: problem.to_owned() }
}
