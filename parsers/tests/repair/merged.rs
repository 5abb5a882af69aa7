//! Structured calls that are not one call: two under one index, one without a name.

use std::sync::Arc;

use serde_json::{Value, json};
use switchback_parsers::calls::ChunkNormaliser;
use switchback_parsers::schema::ToolSet;

use crate::calls::{calls, end};
use crate::wire::{fold, pass};

/// The calls that a client gets of one call with these arguments, streamed and not.
fn calls_of(text: &str, first_only: bool) -> [Vec<(String, String)>; 2] {
    let tools = json!([{"type": "function", "function": {"name": "read", "parameters": {"type": "object", "required": ["path"],
        "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}}}}}]);
    let normaliser = || {
        let tools = Arc::new(ToolSet::from_json(&tools.to_string()));
        ChunkNormaliser::new(tools, "s").first_call_only(first_only)
    };
    let call = |arguments: &str| json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "read", "arguments": arguments}}]);
    let streamed = |cut: usize| {
        let rest = json!([{"index": 0, "function": {"arguments": text[cut..]}}]);
        let frames = [calls(call(&text[..cut])), calls(rest), end("tool_calls")];
        let message = fold(&pass(&mut normaliser(), &frames));
        let list = message["tool_calls"].as_array().unwrap();
        let text = |call: &Value, key: &str| call[key].as_str().unwrap().trim_end().to_owned();
        list.iter().map(|call| (text(call, "id"), text(call, "arguments"))).collect::<Vec<_>>()
    };
    for cut in 1..text.len() {
        assert_eq!(streamed(cut), streamed(0), "{text} cut at {cut}");
    }
    let answer = json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"tool_calls": call(text)}}]}).to_string();
    let answer: Value = serde_json::from_str(&normaliser().answer(&answer).unwrap_or(answer)).unwrap();
    let list = answer["choices"][0]["message"]["tool_calls"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().trim_end().to_owned();
    let whole = list.iter().map(|call| (text(&call["id"]), text(&call["function"]["arguments"]))).collect();
    [streamed(0), whole]
}

#[test]
fn several_calls_under_one_index_are_told_apart_where_each_is_one() {
    let call = |id: &str, arguments: &str| (id.to_owned(), arguments.to_owned());
    let (a, b) = (r#"{"path": "a"}"#, r#"{"path": "b", "lines": 3}"#);
    let two = vec![call("a", a), call("call_s_1", b)];
    for between in ["", "\n", ", ", "; "] {
        assert_eq!(calls_of(&format!("{a}{between}{b}"), false), [two.clone(), two.clone()], "{between:?}");
    }
    let typed = format!("{a}{}", r#"{"path": "b", "lines": "3"}"#);
    assert_eq!(calls_of(&typed, false)[1], two);
    let first = vec![call("a", a)];
    assert_eq!(calls_of(&format!("{a}{b}"), true), [first.clone(), first.clone()], "parallel calls are off");
    assert_eq!(calls_of(&format!("{a}{a}"), false), [first.clone(), first], "said twice");
    for odd in ["{\"lines\": 3}", "{\"path\": \"b\", \"other\": 1}", "{}", "{\"path\": \"b\"", "[1]", "x"] {
        let text = format!("{a}{odd}");
        let same = vec![call("a", &text)];
        assert_eq!(calls_of(&text, false), [same.clone(), same], "{odd}");
    }
}

#[test]
fn a_call_without_a_name_is_no_call_and_the_answer_says_so() {
    let tools = json!([{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]);
    let normaliser = || ChunkNormaliser::new(Arc::new(ToolSet::from_json(&tools.to_string())), "s");
    let call = json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "", "arguments": "{\"path\": \"a\"}"}}]);
    let answer = json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"content": "x", "tool_calls": call}}]});
    let mut whole = normaliser();
    let answer: Value = serde_json::from_str(&whole.answer(&answer.to_string()).unwrap()).unwrap();
    let choice = &answer["choices"][0];
    assert_eq!((choice["message"].get("tool_calls"), &choice["finish_reason"]), (None, &json!("stop")));
    assert!(whole.notes().contains(&"call without a name left out"), "{:?}", whole.notes());
    let message = fold(&pass(&mut normaliser(), &[calls(call), end("tool_calls")]));
    assert_eq!(
        (message.get("tool_calls").is_some_and(|list| list[0].is_object()), &message["finish_reason"]),
        (false, &json!("stop"))
    );
}
