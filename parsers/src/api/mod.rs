//! Requests that speak another dialect than the path they came to.
//!
//! Why: Cursor sends bodies in the shape of the Responses API to the path of chat, tools of both shapes side by side, and a patch tool
//! whose input is free text (BerriAI/litellm#34029, icebear0828/codex-proxy#707). No chat server takes that. So the request is
//! put in chat's own words once, when it is read, and the rest of the proxy knows nothing of it.
//!
//! It must never drop an item of a conversation silently: what cannot be put in chat's words is refused with its place.

mod allowed;
mod input;
mod tools;

use serde_json::{Map, Value as Json};

use crate::request::ChatRequest;

pub use allowed::{Allowed, only_allowed};
pub use tools::free_text;

/// A request in chat's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsChat {
    /// The body, JSON.
    pub body: String,
    /// The names of the tools that take free text; they are declared with one string, `input`.
    pub free_text: Vec<String>,
    /// The conversation stood in `input`.
    pub from_input: bool,
}

/// Why a request cannot be put in chat's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{param} {problem}")]
pub struct NotChat {
    /// The place: `input[3]`.
    pub param: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Members of the Responses API that chat has no word for and no answer depends on here.
const MEANINGLESS: [&str; 9] = [
    "input",
    "instructions",
    "include",
    "previous_response_id",
    "prompt_cache_retention",
    "reasoning",
    "text",
    "truncation",
    "max_output_tokens",
];

/// Puts a request to the chat path in chat's words. `None`: it is in them already.
///
/// # Errors
/// The first item that has none.
pub fn as_chat(request: &ChatRequest) -> Result<Option<AsChat>, NotChat> {
    let root = request.root();
    let has_messages = request.messages().next().is_some();
    let from_input = !has_messages && root.get("input").is_some();
    let odd_tool = request.tools().any(tools::is_odd);
    let odd_message = request.messages().any(|message| {
        tools::has_free_text_call(message)
            || (message.parts().next().is_none()
                && message.content().is_some_and(|own| own.raw().starts_with('[')))
    });
    if !from_input && !odd_tool && !odd_message {
        return Ok(None);
    }
    // A checked body always reads.
    let Ok(Json::Object(mut body)) = serde_json::from_str::<Json>(root.raw()) else { return Ok(None) };
    let mut free_text = Vec::new();
    if let Some(Json::Array(list)) = body.remove("tools") {
        let list = tools::nested(list, from_input, &mut free_text);
        if !list.is_empty() {
            body.insert("tools".to_owned(), list.into());
        }
    }
    if let Some(choice) = body.get_mut("tool_choice") {
        tools::nest_choice(choice);
    }
    if from_input {
        from_responses(&mut body, &free_text)?;
    } else if let Some(Json::Array(messages)) = body.get_mut("messages") {
        messages.iter_mut().for_each(|message| tools::nest_calls(message, &free_text));
    }
    Ok(Some(AsChat { body: Json::Object(body).to_string(), free_text, from_input }))
}

fn from_responses(body: &mut Map<String, Json>, free_text: &[String]) -> Result<(), NotChat> {
    let mut messages = Vec::new();
    if let Some(Json::String(instructions)) = body.remove("instructions").filter(|own| own != "") {
        messages.push(serde_json::json!({ "role": "system", "content": instructions }));
    }
    input::messages(body.remove("input").unwrap_or_default(), free_text, &mut messages)?;
    let renamed = [
        ("max_tokens", body.get("max_output_tokens").cloned()),
        ("reasoning_effort", body.get("reasoning").and_then(|own| own.get("effort")).cloned()),
        ("response_format", body.get("text").and_then(|own| own.get("format")).and_then(response_format)),
    ];
    for member in MEANINGLESS {
        body.remove(member);
    }
    for (member, value) in renamed {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            body.entry(member).or_insert(value);
        }
    }
    body.insert("messages".to_owned(), messages.into());
    Ok(())
}

/// `{type: json_schema, name, schema, strict}` stands one level deeper in chat.
fn response_format(format: &Json) -> Option<Json> {
    match format.get("type")?.as_str()? {
        "text" => None,
        "json_schema" => {
            let mut schema = format.as_object()?.clone();
            schema.remove("type");
            Some(serde_json::json!({ "type": "json_schema", "json_schema": schema }))
        }
        _ => Some(format.clone()),
    }
}

#[cfg(test)]
mod tests;
