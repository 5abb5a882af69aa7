//! Tools and calls of the Responses API's shape in chat's, and tools that take free text as functions with one string.

use serde_json::{Map, Value as Json, json};

use crate::json::Value;
use crate::message::Message;

/// The one argument of a tool that takes free text.
const INPUT: &str = "input";

/// Whether a tool is not as chat servers know it: it takes free text, or its members stand one level too high.
pub(super) fn is_odd(tool: Value<'_>) -> bool {
    is_free_text(tool) || (tool.get("function").is_none() && tool.get("name").is_some())
}

/// Whether a tool, or a call, is of the kind that takes free text.
pub(super) fn is_free_text(tool: Value<'_>) -> bool {
    tool.get("type").is_some_and(|own| own.is_text("custom"))
}

pub(super) fn has_free_text_call(message: Message<'_>) -> bool {
    message.tool_calls().any(is_free_text)
}

/// The free text in the arguments of a call.
#[must_use]
pub fn free_text(arguments: &str) -> Option<String> {
    let read: Json = serde_json::from_str(arguments).ok()?;
    Some(read.as_object()?.get(INPUT)?.as_str()?.to_owned())
}

/// Arguments that hold a free text.
pub(super) fn wrapped(text: &str) -> String {
    json!({ INPUT: text }).to_string()
}

/// The list in chat's shape. Of another API's request tools are left out that only their maker's servers have (`web_search`): nobody
/// here can serve them.
pub(super) fn nested(tools: Vec<Json>, from_input: bool, free_text: &mut Vec<String>) -> Vec<Json> {
    let mut list = Vec::new();
    for tool in tools {
        let Json::Object(mut tool) = tool else { continue };
        match tool.get("type").and_then(Json::as_str).unwrap_or("function") {
            "function" if tool.contains_key("function") => list.push(Json::Object(tool)),
            "function" => {
                tool.remove("type");
                list.push(json!({ "type": "function", "function": tool }));
            }
            "custom" => {
                let inner = tool.get("custom").and_then(Json::as_object).cloned().unwrap_or(tool);
                let Some(name) = inner.get("name").and_then(Json::as_str) else { continue };
                free_text.push(name.to_owned());
                list.push(function(name, &inner));
            }
            _ if from_input => {}
            _ => list.push(Json::Object(tool)),
        }
    }
    list
}

fn function(name: &str, tool: &Map<String, Json>) -> Json {
    let mut description = tool.get("description").and_then(Json::as_str).unwrap_or_default().to_owned();
    // Nobody holds the model to the grammar here, so it must at least read it.
    let format = tool.get("format");
    let definition =
        format.and_then(|own| own.get("definition").or_else(|| own.get("grammar")?.get("definition")));
    if let Some(grammar) = definition.and_then(Json::as_str) {
        description.push_str("\n\nThe input follows this grammar:\n");
        description.push_str(grammar);
    }
    let parameters = json!({
        "type": "object",
        "properties": { INPUT: { "type": "string", "description": "The whole input, as plain text." } },
        "required": [INPUT],
    });
    json!({ "type": "function", "function": { "name": name, "description": description, "parameters": parameters } })
}

/// `{type: function, name}` and `{type: custom, …}` as chat has them.
pub(super) fn nest_choice(choice: &mut Json) {
    let Some(named) = choice.as_object() else { return };
    let inner = ["function", "custom"].into_iter().find_map(|member| named.get(member)?.get("name"));
    if let Some(name) = inner.or_else(|| named.get("name")) {
        *choice = json!({ "type": "function", "function": { "name": name } });
    }
}

/// Calls of free-text tools in a message as calls of functions; an empty list of parts as no content.
pub(super) fn nest_calls(message: &mut Json, free_text: &[String]) {
    let Some(message) = message.as_object_mut() else { return };
    if message.get("content").and_then(Json::as_array).is_some_and(Vec::is_empty) {
        message.insert("content".to_owned(), Json::String(String::new()));
    }
    for call in message.get_mut("tool_calls").and_then(Json::as_array_mut).into_iter().flatten() {
        let text = |place: &str| call.pointer(place).and_then(Json::as_str).map(str::to_owned);
        if let (Some(name), Some(input)) = (text("/custom/name"), text("/custom/input")) {
            let id = call.get("id").cloned().unwrap_or_default();
            *call = json!({ "id": id, "type": "function", "function": { "name": name, "arguments": wrapped(&input) } });
        } else if let (Some(name), Some(arguments)) = (text("/function/name"), text("/function/arguments"))
            && free_text.contains(&name)
            && self::free_text(&arguments).is_none()
            && let Some(own) = call.pointer_mut("/function/arguments")
        {
            // As the client got it: the free text itself.
            *own = wrapped(&arguments).into();
        }
    }
}
