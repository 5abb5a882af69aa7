use serde_json::{Value as Json, json};

use super::{AsChat, NotChat, as_chat, only_allowed};
use crate::request::ChatRequest;

fn chat(body: &Json) -> Result<Option<AsChat>, NotChat> {
    as_chat(&ChatRequest::parse(body.to_string().into()).expect("a request"))
}

fn body(body: &Json) -> (Json, Vec<String>) {
    let read = chat(body).expect("a chat").expect("another shape");
    (serde_json::from_str(&read.body).expect("JSON"), read.free_text)
}

fn patch() -> Json {
    json!({ "type": "custom", "name": "ApplyPatch", "description": "Edits.", "format": { "type": "grammar", "definition": "start: x" } })
}

#[test]
fn a_chat_is_not_touched() {
    let tool = json!({ "type": "function", "function": { "name": "f" } });
    let request = json!({ "model": "m", "messages": [{ "role": "user", "content": "u" }], "tools": [tool], "input": "beside" });
    assert_eq!(chat(&request), Ok(None));
}

#[test]
fn a_conversation_in_input_becomes_messages() {
    let (body, free_text) = body(&json!({
        "model": "m", "stream": true, "user": "u1", "instructions": "s", "max_output_tokens": 9, "reasoning": { "effort": "low" },
        "store": false, "include": ["x"], "text": { "format": { "type": "json_schema", "name": "n", "schema": {} } },
        "tools": [patch(), { "type": "function", "name": "f", "parameters": {} }, { "type": "web_search" }],
        "tool_choice": { "type": "function", "name": "f" },
        "input": [
            { "role": "user", "content": [{ "type": "input_text", "text": "a" }, { "type": "input_image", "image_url": "data:x" }] },
            { "type": "reasoning", "encrypted_content": "…" },
            { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "b" }] },
            { "type": "function_call", "call_id": "1", "name": "f", "arguments": "{}" },
            { "type": "custom_tool_call", "call_id": "2", "name": "ApplyPatch", "input": "*** Begin" },
            { "type": "function_call_output", "call_id": "1", "output": "o" },
            { "type": "custom_tool_call_output", "call_id": "2", "output": [{ "type": "input_text", "text": "p" }] },
        ],
    }));
    assert_eq!(free_text, ["ApplyPatch"]);
    let call = |id: &str, name: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    assert_eq!(
        body["messages"],
        json!([
            { "role": "system", "content": "s" },
            { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "image_url", "image_url": { "url": "data:x" } }] },
            { "role": "assistant", "content": "b", "tool_calls": [call("1", "f", "{}"), call("2", "ApplyPatch", r#"{"input":"*** Begin"}"#)] },
            { "role": "tool", "tool_call_id": "1", "content": "o" },
            { "role": "tool", "tool_call_id": "2", "content": "p" },
        ])
    );
    let names: Vec<_> =
        body["tools"].as_array().expect("a list").iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["ApplyPatch", "f"]);
    assert_eq!(
        body["tools"][0]["function"]["description"],
        "Edits.\n\nThe input follows this grammar:\nstart: x"
    );
    assert_eq!(body["tool_choice"], json!({ "type": "function", "function": { "name": "f" } }));
    assert_eq!(
        (&body["max_tokens"], &body["reasoning_effort"], &body["stream"]),
        (&json!(9), &json!("low"), &json!(true))
    );
    assert_eq!(body["response_format"]["json_schema"], json!({ "name": "n", "schema": {} }));
    assert!(["input", "instructions", "include", "text"].iter().all(|member| body.get(member).is_none()));
}

#[test]
fn free_text_calls_of_earlier_turns_are_functions_whichever_way_they_come_back() {
    let call = |rest: Json| json!({ "role": "assistant", "content": [], "tool_calls": [rest] });
    let (body, _) = body(&json!({ "messages": [
        call(json!({ "id": "1", "type": "custom", "custom": { "name": "ApplyPatch", "input": "x" } })),
        call(json!({ "id": "2", "type": "function", "function": { "name": "ApplyPatch", "arguments": "*** Begin" } })),
    ], "tools": [{ "type": "custom", "custom": { "name": "ApplyPatch" } }] }));
    for (at, arguments) in [(0, r#"{"input":"x"}"#), (1, r#"{"input":"*** Begin"}"#)] {
        assert_eq!(body["messages"][at]["tool_calls"][0]["function"]["arguments"], arguments);
        assert_eq!(body["messages"][at]["content"], "");
    }
}

#[test]
fn what_has_no_word_in_a_chat_is_refused_with_its_place() {
    let refused = |input: Json| chat(&json!({ "input": input })).expect_err("refused").to_string();
    assert_eq!(
        refused(json!([{ "role": "user" }, { "type": "item_reference", "id": "x" }])),
        "input[1].type `item_reference` has no counterpart in a chat"
    );
    assert_eq!(refused(json!([{ "content": "x" }])), "input[0].role is missing");
    assert_eq!(refused(json!(5)), "input must be a string or a list of items");
}

#[test]
fn allowed_tools_are_the_only_ones_that_are_sent_with_the_mode_as_the_choice() {
    let tool = |name: &str| json!({ "type": "function", "function": { "name": name } });
    let sent = |choice: Json| {
        let body = json!({ "tools": [tool("a"), tool("b"), tool("c")], "tool_choice": choice, "x": 1 });
        let request = ChatRequest::parse(body.to_string().into()).expect("a request");
        let sent = only_allowed(&request)?;
        Ok(sent.map(|body| serde_json::from_slice::<Json>(&body).expect("JSON")))
    };
    let chat = |mode: &str, names: &[&str]| {
        let tools: Vec<_> = names.iter().map(|name| tool(name)).collect();
        json!({ "type": "allowed_tools", "allowed_tools": { "mode": mode, "tools": tools } })
    };
    let body = |tools: &[&str], choice: &str| {
        let tools: Vec<_> = tools.iter().map(|name| tool(name)).collect();
        Ok(Some(json!({ "tools": tools, "tool_choice": choice, "x": 1 })))
    };
    assert_eq!(sent(chat("auto", &["c", "a"])), body(&["a", "c"], "auto"));
    assert_eq!(sent(chat("required", &["b", "of another server"])), body(&["b"], "required"));
    let flat = json!({ "type": "allowed_tools", "mode": "required", "tools": [{ "type": "function", "name": "b" }] });
    assert_eq!(sent(flat), body(&["b"], "required"));
    assert_eq!(sent(chat("auto", &[])), body(&["a", "b", "c"], "none"));
    for choice in [json!("auto"), json!("none"), json!(null), tool("a")] {
        assert_eq!(sent(choice), Ok(None));
    }
    let refused = |choice: Json| sent(choice).map_err(|error: NotChat| error.to_string());
    assert_eq!(
        refused(chat("auto", &["y", "z"])),
        Err("tool_choice allows y, z, and tools declares none of them".to_owned())
    );
    assert!(refused(chat("required", &[])).is_err());
}
