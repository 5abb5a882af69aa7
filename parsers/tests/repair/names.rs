//! Names and ids of structured calls that come in pieces, late, changed or never.

use std::sync::Arc;

use serde_json::{Value, json};
use switchback_parsers::calls::ChunkNormaliser;
use switchback_parsers::schema::ToolSet;

use crate::wire::{fold, pass};

fn normaliser() -> ChunkNormaliser {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"port": {"type": "string"}}}}});
    let tools = json!([tool("fetch_tide"), tool("list"), tool("list_drawers")]);
    ChunkNormaliser::new(Arc::new(ToolSet::from_json(&tools.to_string())), "s")
}

fn chunk(delta: &Value, finish: &Value) -> String {
    json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).to_string()
}

/// Index, id, name and arguments, as far as they are given.
fn entry(said: (Option<u64>, Option<&str>, Option<&str>, Option<&str>)) -> Value {
    let (index, id, name, arguments) = said;
    let text = |(key, text): (&str, Option<&str>)| text.map(|text| (key.to_owned(), Value::from(text)));
    let function: serde_json::Map<_, _> =
        [("name", name), ("arguments", arguments)].into_iter().filter_map(text).collect();
    let labels = [index.map(|index| ("index".to_owned(), index.into())), text(("id", id))];
    let entry = labels.into_iter().flatten().chain([("function".to_owned(), function.into())]);
    Value::Object(entry.collect())
}

type Said<'a> = (Option<u64>, Option<&'a str>, Option<&'a str>, Option<&'a str>);

/// The calls that a client gets: ids, names, arguments.
fn calls(said: &[Said<'_>], finish: &str) -> Vec<Value> {
    let mut frames: Vec<String> =
        said.iter().map(|said| chunk(&json!({"tool_calls": [entry(*said)]}), &Value::Null)).collect();
    frames.push(chunk(&json!({}), &json!(finish)));
    let message = fold(&pass(&mut normaliser(), &frames));
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    calls.map(|call| json!([call["id"], call["name"], call["arguments"]])).collect()
}

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!([id, name, arguments])
}

const PORT: &str = r#"{"port": "Vigo"}"#;

#[test]
fn a_name_in_pieces_is_one_name_and_one_call() {
    let zero = Some(0);
    let table: &[(&[Said<'_>], &str, &str)] = &[
        (
            &[
                (zero, Some("a"), Some("fetch"), None),
                (zero, None, Some("_tide"), None),
                (zero, None, None, Some(PORT)),
            ],
            "fetch_tide",
            PORT,
        ),
        (
            &[(zero, Some("a"), Some("fetch"), Some("")), (zero, Some("a"), Some("_tide"), Some(PORT))],
            "fetch_tide",
            PORT,
        ),
        // The whole name so far, each time.
        (
            &[
                (zero, Some("a"), Some("fetch"), None),
                (zero, None, Some("fetch_tide"), None),
                (zero, None, None, Some(PORT)),
            ],
            "fetch_tide",
            PORT,
        ),
        // The first piece is a tool.
        (
            &[
                (zero, Some("a"), Some("list"), Some("")),
                (zero, None, Some("_drawers"), None),
                (zero, None, None, Some("{}")),
            ],
            "list_drawers",
            "{}",
        ),
        (
            &[(zero, Some("a"), Some("list"), None), (zero, None, Some("_drawers"), None)],
            "list_drawers",
            "{}",
        ),
        (&[(zero, Some("a"), Some("list"), None), (zero, None, None, Some("{}"))], "list", "{}"),
        (&[(zero, Some("a"), Some("list"), None)], "list", "{}"),
        (
            &[
                (zero, Some("a"), Some("functions."), None),
                (zero, None, Some("fetch_tide"), None),
                (zero, None, None, Some(PORT)),
            ],
            "fetch_tide",
            PORT,
        ),
        // A name that comes late, behind an empty one, behind none, behind arguments.
        (
            &[(zero, Some("a"), Some(""), Some("")), (zero, None, Some("fetch_tide"), Some(PORT))],
            "fetch_tide",
            PORT,
        ),
        (&[(zero, Some("a"), None, None), (zero, None, Some("fetch_tide"), Some(PORT))], "fetch_tide", PORT),
        (
            &[
                (zero, Some("a"), None, Some(r#"{"port": "#)),
                (zero, None, Some("fetch_tide"), Some(r#""Vigo"}"#)),
            ],
            "fetch_tide",
            PORT,
        ),
    ];
    for (said, name, arguments) in table {
        assert_eq!(calls(said, "tool_calls"), [call("a", name, arguments)], "{said:?}");
    }
}

#[test]
fn two_calls_with_names_alike_stay_two() {
    let said =
        [(Some(0), Some("a"), Some("list"), None), (Some(1), Some("b"), Some("list_drawers"), Some("{}"))];
    assert_eq!(calls(&said, "stop"), [call("a", "list", "{}"), call("b", "list_drawers", "{}")]);
    let said =
        [(Some(0), Some("a"), Some("list"), None), (Some(0), Some("b"), Some("list_drawers"), Some("{}"))];
    assert_eq!(calls(&said, "stop"), [call("a", "list", "{}"), call("b", "list_drawers", "{}")]);
    let said = [(Some(0), None, Some("list"), Some("{}")), (Some(0), None, Some("list_drawers"), Some("{}"))];
    assert_eq!(
        calls(&said, "stop"),
        [call("call_s_0", "list", "{}"), call("call_s_1", "list_drawers", "{}")]
    );
}

#[test]
fn an_id_that_changes_amid_the_arguments_is_the_same_call() {
    let said = [
        (Some(0), Some("a"), Some("fetch_tide"), Some(r#"{"port""#)),
        (Some(0), Some("b"), None, Some(r#": "Vigo"}"#)),
    ];
    assert_eq!(calls(&said, "tool_calls"), [call("a", "fetch_tide", PORT)]);
    let said = [
        (None, Some("a"), Some("fetch_tide"), Some(r#"{"port""#)),
        (None, Some("b"), None, Some(r#": "Vigo"}"#)),
    ];
    assert_eq!(calls(&said, "tool_calls"), [call("a", "fetch_tide", PORT)]);
}

#[test]
fn what_never_has_a_name_is_no_call() {
    let said = [(Some(0), Some("a"), None, Some(PORT)), (Some(1), Some("b"), Some("fetch_tide"), Some(PORT))];
    assert_eq!(calls(&said, "tool_calls"), [call("b", "fetch_tide", PORT)]);
    let frames = [
        chunk(
            &json!({"tool_calls": [null, entry((Some(0), Some("a"), Some("fetch_tide"), Some(PORT)))]}),
            &Value::Null,
        ),
        chunk(&json!({"tool_calls": [null, {}]}), &json!("tool_calls")),
    ];
    let message = fold(&pass(&mut normaliser(), &frames));
    assert_eq!(message["tool_calls"].as_array().unwrap().len(), 1, "{message}");
    let alone = [chunk(
        &json!({"tool_calls": [entry((Some(0), Some("a"), None, Some(PORT)))]}),
        &json!("tool_calls"),
    )];
    let message = fold(&pass(&mut normaliser(), &alone));
    assert_eq!((&message["tool_calls"], &message["finish_reason"]), (&json!([]), &json!("stop")));
    let answer = json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"content": null,
        "tool_calls": [null, {"id": "a", "type": "function", "function": {"name": "", "arguments": "{}"}}]}}]});
    let answer: Value = serde_json::from_str(&normaliser().answer(&answer.to_string()).unwrap()).unwrap();
    assert_eq!(
        answer["choices"][0],
        json!({"index": 0, "finish_reason": "stop", "message": {"content": null}})
    );
}

#[test]
fn one_call_instead_of_a_list_and_a_message_instead_of_a_delta_are_not_lost() {
    let call = json!({"index": 0, "id": "a", "type": "function", "function": {"name": "fetch_tide", "arguments": PORT}});
    let object = chunk(&json!({"tool_calls": call}), &json!("tool_calls"));
    let message =
        json!({"choices": [{"index": 0, "message": {"tool_calls": [call]}, "finish_reason": "stop"}]})
            .to_string();
    for frame in [object, message] {
        let message = fold(&pass(&mut normaliser(), &[frame]));
        assert_eq!(message["tool_calls"][0]["arguments"], PORT);
        assert_eq!(message["finish_reason"], "tool_calls");
    }
    let answer = json!({"choices": [{"index": 0, "finish_reason": "stop", "message": {"tool_calls": call}}]});
    let answer: Value = serde_json::from_str(&normaliser().answer(&answer.to_string()).unwrap()).unwrap();
    assert_eq!(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "fetch_tide");
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn a_choice_ends_once_and_with_function_call_only_where_it_has_one() {
    let first = chunk(
        &json!({"tool_calls": [entry((Some(0), Some("a"), Some("fetch_tide"), Some(PORT)))]}),
        &Value::Null,
    );
    let end = |reason: &str| chunk(&json!({}), &json!(reason));
    let frames = pass(&mut normaliser(), &[first, end("stop"), end("tool_calls")]);
    let reasons: Vec<Value> = frames
        .iter()
        .map(|frame| serde_json::from_str::<Value>(frame).unwrap()["choices"][0]["finish_reason"].clone())
        .collect();
    assert_eq!(reasons, [Value::Null, json!("tool_calls"), Value::Null]);
    let frames =
        pass(&mut normaliser(), &[chunk(&json!({"content": "Hi"}), &Value::Null), end("function_call")]);
    assert_eq!(fold(&frames)["finish_reason"], "stop");
    let old = [
        chunk(&json!({"function_call": {"name": "fetch_tide", "arguments": PORT}}), &Value::Null),
        end("function_call"),
    ];
    assert_eq!(pass(&mut normaliser(), &old), old);
}

#[test]
fn an_id_that_the_model_wrote_twice_is_kept_once() {
    let mut normaliser = normaliser();
    let mut allot = || normaliser.allot(0, Some("functions.list:0".to_owned()), "list").1;
    assert_eq!((allot(), allot()), ("functions.list:0".to_owned(), "call_s_1".to_owned()));
}
