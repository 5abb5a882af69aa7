//! Structured arguments get the types of their schema, as those of text do, and whatever the pieces are.

use std::sync::Arc;

use serde_json::{Value, json};
use switchback_parsers::calls::ChunkNormaliser;
use switchback_parsers::schema::ToolSet;

use crate::wire::{fold, pass};

fn normaliser() -> ChunkNormaliser {
    let tools = json!([{"type": "function", "function": {"name": "book", "parameters": {"type": "object", "properties": {
        "name": {"type": "string"}, "seats": {"type": "integer"}, "price": {"type": "number"}, "quiet": {"type": "boolean"},
        "either": {"type": ["string", "integer"]}, "tags": {"type": "array", "items": {"type": "integer"}},
        "trip": {"type": "object", "properties": {"day": {"type": "integer"}, "sku": {"type": "string"}}}}}}}]);
    ChunkNormaliser::new(Arc::new(ToolSet::from_json(&tools.to_string())), "s")
}

fn chunk(delta: &Value, finish: &Value) -> String {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).to_string()
}

/// The arguments that a client gets of a call that is sent in these pieces.
fn arguments(pieces: &[&str], reason: &str) -> String {
    let entry = |entry: Value| chunk(&json!({ "tool_calls": [entry] }), &Value::Null);
    let mut frames =
        vec![entry(json!({"index": 0, "id": "a", "type": "function", "function": {"name": "book"}}))];
    frames.extend(pieces.iter().map(|text| entry(json!({"index": 0, "function": {"arguments": text}}))));
    frames.push(chunk(&json!({}), &json!(reason)));
    let message = fold(&pass(&mut normaliser(), &frames));
    message["tool_calls"][0]["arguments"].as_str().unwrap().to_owned()
}

#[test]
fn values_get_the_type_of_their_schema_and_nothing_else_changes() {
    for (sent, want) in [
        (r#"{"seats": "5"}"#, r#"{"seats": 5}"#),
        (r#"{"seats" : "005" }"#, r#"{"seats" : 5 }"#),
        (r#"{"seats": 030}"#, r#"{"seats": 30}"#),
        (r#"{"price": .5, "seats": +2}"#, r#"{"price": 0.5, "seats": 2}"#),
        (r#"{"price": 5., "name": 007}"#, r#"{"price": 5, "name": "007"}"#),
        (r#"{"name": 70015, "quiet": "True"}"#, r#"{"name": "70015", "quiet": true}"#),
        (r#"{"quiet": False, "name": None}"#, r#"{"quiet": false, "name": null}"#),
        (r#"{"tags": ["1", 2, "x"]}"#, r#"{"tags": [1, 2, "x"]}"#),
        (r#"{"tags": "[1, \"2\"]"}"#, r#"{"tags": [1, 2]}"#),
        (r#"{"trip": {"day": "7", "sku": 9}}"#, r#"{"trip": {"day": 7, "sku": "9"}}"#),
        (r#"{"trip": "{\"day\": \"7\"}"}"#, r#"{"trip": {"day": 7}}"#),
        // What the schema allows, does not know, or cannot be read otherwise.
        (r#"{"either": "5", "name": "5"}"#, r#"{"either": "5", "name": "5"}"#),
        (r#"{"seats": "five", "other": "5"}"#, r#"{"seats": "five", "other": "5"}"#),
        (r#"{"seats": 5.5, "price": 1e3}"#, r#"{"seats": 5.5, "price": 1e3}"#),
        (r#"{"price": NaN}"#, r#"{"price": "NaN"}"#),
        // The type, and a repair that only the end allows.
        (r#"{"seats": "5", tags: ["1"]}"#, r#"{"seats": 5, "tags": [1]}"#),
        (r#"{"seats": "5"#, r#"{"seats": "5"#),
        (r#"{"seats": 5"#, r#"{"seats": 5}"#),
    ] {
        assert_eq!(arguments(&[sent], "tool_calls"), want, "{sent}");
        for cut in 1..sent.len() {
            assert_eq!(arguments(&[&sent[..cut], &sent[cut..]], "tool_calls"), want, "{sent} cut at {cut}");
        }
        let letters: Vec<&str> = sent.split_inclusive(|_| true).collect();
        assert_eq!(arguments(&letters, "tool_calls"), want, "{sent} by letters");
    }
}

#[test]
fn a_value_cut_by_length_keeps_what_came() {
    for sent in [r#"{"seats": "5"#, r#"{"seats": 5"#, r#"{"seats": 03"#, r#"{"seats": "#] {
        assert_eq!(arguments(&[sent], "length"), sent);
    }
}

#[test]
fn arguments_that_are_no_object_are_none_and_stay() {
    for sent in [r#"["x"]"#, "5", "true", r#""x""#, r#"[{"name": "x"}]"#] {
        assert_eq!(arguments(&[sent], "tool_calls"), sent);
    }
}
