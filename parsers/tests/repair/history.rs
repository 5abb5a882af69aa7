//! Histories that poison a conversation, and what reaches the backend.

use proptest::prelude::*;
use serde_json::{Value, json};
use switchback_parsers::edit::Edits;
use switchback_parsers::history::{UNREADABLE, mend};

use crate::wire::request;

fn mended(messages: Value) -> (Value, Vec<String>) {
    let request = request(&json!({"model": "m", "messages": messages}));
    let mended = mend(&request);
    let body: Value = serde_json::from_slice(&request.write(&mended.edits, &Edits::new())).unwrap();
    (body["messages"].clone(), mended.notes)
}

fn call(id: Value, arguments: Value) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}})
}

fn assistant(calls: Value) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": calls})
}

fn result(id: Value) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": "r"})
}

#[test]
fn arguments_become_an_object_in_a_string_and_never_lose_what_they_said() {
    let keep = |text: &str| json!({ UNREADABLE: text }).to_string();
    for (arguments, expected) in [
        (json!("{\"a\": 1}"), json!("{\"a\": 1}")),
        (json!(" {\"a\":1}\n"), json!(" {\"a\":1}\n")),
        (json!(""), json!("{}")),
        (json!(" \n"), json!("{}")),
        (Value::Null, json!("{}")),
        (json!({"a": 1}), json!("{\"a\":1}")),
        (json!("{'a': True}"), json!("{\"a\": true}")),
        (json!("{\"a\": {\"b\": 1}"), json!("{\"a\": {\"b\": 1}}")),
        (json!("{\"a\": \"x\ny\"}"), json!("{\"a\": \"x\\ny\"}")),
        (json!("\"{\\\"a\\\": 1}\""), json!("{\"a\": 1}")),
        (json!("{\"a\": \"def f("), json!(keep("{\"a\": \"def f("))),
        (json!("call it"), json!(keep("call it"))),
        (json!("[1, 2]"), json!(keep("[1, 2]"))),
        (json!([1, 2]), json!(keep("[1,2]"))),
        (json!("null"), json!("{}")),
    ] {
        let (messages, notes) =
            mended(json!([assistant(json!([call(json!("a"), arguments.clone())])), result(json!("a"))]));
        assert_eq!(messages[0]["tool_calls"][0]["function"]["arguments"], expected);
        assert_eq!(notes.is_empty(), arguments == expected, "{notes:?}");
    }
}

#[test]
fn a_history_that_is_well_is_not_touched() {
    let messages = json!([
        {"role": "user", "content": "a"},
        assistant(json!([call(json!("a"), json!("{}")), call(json!("b"), json!("{}"))])),
        result(json!("b")), result(json!("a")),
        {"role": "assistant", "content": "b"},
        result(json!("a")),
        assistant(json!([call(json!("a"), json!("{}"))])),
        {"role": "user", "content": "interrupted"},
    ]);
    let request = request(&json!({"messages": messages}));
    assert!(mend(&request).edits.is_empty() && mend(&request).notes.is_empty());
}

#[test]
fn missing_ids_are_filled_in_and_matched() {
    let null = Value::Null;
    let ids = |messages: &Value| -> Vec<Vec<String>> {
        let id = |value: &Value| value.as_str().unwrap_or("none").to_owned();
        let of = |message: &Value| match message["tool_calls"].as_array() {
            Some(calls) => calls.iter().map(|call| id(&call["id"])).collect(),
            None => vec![id(&message["tool_call_id"])],
        };
        messages.as_array().unwrap().iter().map(of).collect()
    };
    let two = |a: Value, b: Value| assistant(json!([call(a, json!("{}")), call(b, json!("{}"))]));
    for (messages, expected) in [
        // None at all: by order.
        (
            json!([two(null.clone(), json!("")), result(json!("")), result(null.clone())]),
            vec![vec!["call_0_0", "call_0_1"], vec!["call_0_0"], vec!["call_0_1"]],
        ),
        // The results have some: the calls take them.
        (
            json!([two(null.clone(), null.clone()), result(json!("x")), result(json!("y"))]),
            vec![vec!["x", "y"], vec!["x"], vec!["y"]],
        ),
        // The calls have some.
        (
            json!([two(json!("x"), json!("y")), result(json!("y")), result(null.clone())]),
            vec![vec!["x", "y"], vec!["y"], vec!["x"]],
        ),
        // Twice the same.
        (
            json!([two(json!("x"), json!("x")), result(json!("x")), result(json!("x"))]),
            vec![vec!["x", "call_0_1"], vec!["x"], vec!["call_0_1"]],
        ),
        // The only two left.
        (
            json!([two(json!("x"), json!("y")), result(json!("x")), result(json!("z"))]),
            vec![vec!["x", "y"], vec!["x"], vec!["y"]],
        ),
        // A made id never meets another.
        (
            json!([two(json!("call_0_1"), null.clone()), result(json!("call_0_1")), result(null.clone())]),
            vec![vec!["call_0_1", "call_0_1_"], vec!["call_0_1"], vec!["call_0_1_"]],
        ),
        // A number is an id.
        (
            json!([two(json!(1), json!(2)), result(json!(1)), result(json!("2"))]),
            vec![vec!["1", "2"], vec!["1"], vec!["2"]],
        ),
    ] {
        assert_eq!(ids(&mended(messages.clone()).0), expected, "{messages}");
    }
}

#[test]
fn results_are_matched_by_name_before_order() {
    let named =
        |name: &str| json!({"id": null, "type": "function", "function": {"name": name, "arguments": "{}"}});
    let result = |name: &str| json!({"role": "tool", "name": name, "content": "r"});
    let (messages, _) = mended(json!([assistant(json!([named("a"), named("b")])), result("b"), result("a")]));
    assert_eq!(
        (&messages[1]["tool_call_id"], &messages[2]["tool_call_id"]),
        (&json!("call_0_1"), &json!("call_0_0"))
    );
}

#[test]
fn a_result_without_a_call_becomes_text_that_loses_nothing() {
    let parts = json!({"role": "tool", "tool_call_id": "y", "content": [{"type": "text", "text": "p"}]});
    let (messages, notes) = mended(
        json!([{"role": "system", "content": "s"}, result(json!("x")), parts, {"role": "user", "content": "u"}]),
    );
    assert_eq!(messages[1]["role"], "user");
    assert!(messages[1]["content"].as_str().unwrap().ends_with(":\nr"));
    assert_eq!(messages[1].get("tool_call_id"), None);
    assert_eq!(messages[2]["content"][1], json!({"type": "text", "text": "p"}));
    assert_eq!(
        notes,
        ["messages[1]: result without a call became text", "messages[2]: result without a call became text"]
    );
}

#[test]
fn a_missing_type_is_added_and_an_empty_list_goes() {
    let (messages, _) = mended(json!([
        {"role": "assistant", "content": "a", "tool_calls": []},
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]},
    ]));
    assert_eq!(messages[0].get("tool_calls"), None);
    assert_eq!(messages[1]["tool_calls"][0]["type"], "function");
}

#[test]
fn what_follows_does_not_change_how_the_past_is_mended() {
    let mut messages = vec![
        json!({"role": "user", "content": "a"}),
        assistant(json!([call(Value::Null, json!("{'a': 1}")), call(json!(""), json!("{\"a"))])),
        result(Value::Null),
        result(json!("")),
        json!({"role": "user", "content": "b"}),
    ];
    let before = mended(json!(messages)).0;
    messages.extend([assistant(json!([call(Value::Null, json!(""))])), result(Value::Null)]);
    let after = mended(json!(messages)).0;
    assert_eq!(before.as_array().unwrap()[..], after.as_array().unwrap()[..5]);
    assert_eq!(after[6]["tool_call_id"], "call_5_0");
}

#[test]
fn thousands_of_calls_and_results_are_matched_in_linear_time() {
    let calls: Value = (0..10_000).map(|_| call(Value::Null, json!("{}"))).collect();
    let mut messages = vec![assistant(calls)];
    messages.extend((0..20_000).map(|_| result(Value::Null)));
    let (messages, _) = mended(json!(messages));
    assert_eq!(messages[10_000]["tool_call_id"], "call_0_9999");
    assert_eq!(messages[10_001]["role"], "user");
}

#[test]
fn odd_messages_are_left_alone() {
    let messages = json!([
        {"role": "assistant", "tool_calls": "x"}, {"role": "assistant", "tool_calls": [1, null, {}]}, {"role": 5}, {}, 7,
        {"role": "assistant", "tool_calls": [{"function": 3}]},
    ]);
    let request = request(&json!({"messages": messages}));
    let written = request.write(&mend(&request).edits, &Edits::new());
    assert!(serde_json::from_slice::<Value>(&written).is_ok());
}

fn any_messages() -> impl Strategy<Value = Value> {
    let id = || {
        proptest::sample::select(vec![
            json!(null),
            json!(""),
            json!("x"),
            json!("y"),
            json!("call_0_0"),
            json!(7),
        ])
    };
    let arguments = proptest::sample::select(vec![
        json!("{}"),
        json!(""),
        json!("{'a': 1}"),
        json!("{\"a\": \"b"),
        json!({"a": 1}),
        json!(null),
        json!("[1]"),
        json!(5),
    ]);
    let calls = proptest::collection::vec((id(), arguments), 0..3);
    let message = prop_oneof![
        Just(json!({"role": "user", "content": "u"})),
        calls.prop_map(|calls| assistant(
            calls.into_iter().map(|(id, arguments)| call(id, arguments)).collect()
        )),
        id().prop_map(result),
        id().prop_map(result),
    ];
    proptest::collection::vec(message, 1..8).prop_map(Value::from)
}

proptest! {
    #[test]
    fn a_mended_history_is_well(messages in any_messages()) {
        let (messages, _) = mended(messages);
        let mut ids = Vec::new();
        for message in messages.as_array().unwrap() {
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
                prop_assert!(arguments.is_object());
                prop_assert_ne!(call["id"].as_str().unwrap(), "");
                ids.push(call["id"].clone());
            }
            if message["role"] == "tool" {
                prop_assert!(ids.contains(&message["tool_call_id"]), "{message}");
            }
        }
        let (again, notes) = mended(messages.clone());
        prop_assert_eq!(again, messages, "{:?}", notes);
    }

    #[test]
    fn each_turn_mends_the_past_alike(messages in any_messages(), length in 1_usize..8) {
        // A turn ends with what the model reads: results and users' words.
        let mut past = messages.as_array().unwrap().clone();
        past.truncate(length);
        past.push(json!({"role": "user", "content": "next"}));
        let mut later = past.clone();
        later.extend([assistant(json!([call(json!("call_0_1"), json!("{}"))])), result(json!("call_0_1"))]);
        let (past, later) = (mended(json!(past)).0, mended(json!(later)).0);
        let past = past.as_array().unwrap();
        prop_assert_eq!(&past[..], &later.as_array().unwrap()[..past.len()]);
    }
}

#[test]
fn a_call_without_a_name_is_left_out_and_its_result_becomes_text() {
    let nameless = json!({"id": "a", "type": "function", "function": {"name": null, "arguments": "{}"}});
    for broken in [nameless, json!({"id": "a"}), Value::Null] {
        let (messages, notes) = mended(json!([
            assistant(json!([broken, call(json!("b"), json!("{}"))])),
            result(json!("a")),
            result(json!("b"))
        ]));
        assert_eq!(messages[0]["tool_calls"], json!([call(json!("b"), json!("{}"))]), "{notes:?}");
        assert_eq!((&messages[1]["role"], &messages[2]["role"]), (&json!("user"), &json!("tool")));
        let (messages, _) = mended(json!([{"role": "assistant", "content": null, "tool_calls": [broken]}]));
        assert_eq!(messages, json!([{"role": "assistant", "content": ""}]));
    }
}

#[test]
fn a_call_whose_name_stands_beside_its_function_gets_one() {
    let flat = json!({"id": "a", "type": "function", "name": "now", "arguments": {"a": 1}});
    let (messages, _) = mended(json!([assistant(json!([flat])), result(json!("a"))]));
    let expected =
        json!({"id": "a", "type": "function", "function": {"name": "now", "arguments": "{\"a\":1}"}});
    assert_eq!(messages[0]["tool_calls"], json!([expected]));
    assert_eq!(messages[1], result(json!("a")));
}
