//! The wire cases of structured calls and of histories, without the wire: what the backend sent goes in, what the
//! client and the backend must receive comes out.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use switchback_parsers::calls::{ChunkNormaliser, Rewritten};
use switchback_parsers::edit::Edits;
use switchback_parsers::history::mend;
use switchback_parsers::request::ChatRequest;
use switchback_parsers::schema::ToolSet;

fn case(name: &str) -> Value {
    let path = format!("{}/../tests/corpus/wire/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))).unwrap()
}

pub(crate) fn request(body: &Value) -> ChatRequest {
    ChatRequest::parse(body.to_string().into()).unwrap()
}

/// What leaves for what came, with frames as they came where nothing was wrong.
pub(crate) fn pass(normaliser: &mut ChunkNormaliser, frames: &[String]) -> Vec<String> {
    let (mut out, mut waiting) = (Vec::new(), Vec::new());
    for frame in frames {
        waiting.push(frame.clone());
        match normaliser.frame(frame) {
            Rewritten::Wait => continue,
            Rewritten::Same => out.append(&mut waiting),
            Rewritten::Replace(mut frames) => {
                waiting.clear();
                out.append(&mut frames);
            }
        }
    }
    match normaliser.finish() {
        Rewritten::Replace(mut frames) => out.append(&mut frames),
        _ => out.append(&mut waiting),
    }
    out
}

/// The message that a client folds, strictly: each id and name once, each entry with an index.
pub(crate) fn fold(frames: &[String]) -> Value {
    let (mut content, mut finish) = (String::new(), Value::Null);
    let mut calls: BTreeMap<u64, (Value, String, String)> = BTreeMap::new();
    for frame in frames {
        let frame: Value = serde_json::from_str(frame).unwrap();
        let choice = &frame["choices"][0];
        let delta = &choice["delta"];
        content += delta["content"].as_str().unwrap_or_default();
        let list = delta["tool_calls"].as_array();
        assert_ne!(list.map(Vec::len), Some(0), "an empty list of calls: {frame}");
        let mut indexes = Vec::new();
        for entry in list.into_iter().flatten() {
            assert!(finish.is_null(), "a call behind the finish reason: {frame}");
            let index = entry["index"].as_u64().unwrap_or_else(|| panic!("no index: {entry}"));
            assert!(!indexes.contains(&index) && index <= calls.len() as u64, "indexes: {frame}");
            indexes.push(index);
            let is_new = !calls.contains_key(&index);
            let call = calls.entry(index).or_default();
            assert_eq!(is_new, entry.get("id").is_some(), "the id comes once, first: {entry}");
            if is_new {
                assert_eq!(entry["type"], "function", "{entry}");
                call.0 = entry["id"].clone();
            }
            if let Some(name) = entry["function"].get("name") {
                assert_eq!(call.1, "", "the name comes once");
                call.1 = name.as_str().unwrap().to_owned();
            }
            call.2 += entry["function"].get("arguments").map_or("", |text| text.as_str().expect("a string"));
        }
        if !choice["finish_reason"].is_null() {
            finish = choice["finish_reason"].clone();
        }
    }
    let ids: std::collections::HashSet<_> = calls.values().map(|call| call.0.to_string()).collect();
    assert!(ids.len() == calls.len() && !ids.contains("\"\""), "ids: {ids:?}");
    let calls: Vec<Value> = calls
        .into_values()
        .map(|(id, name, arguments)| json!({"id": id, "name": name, "arguments": arguments}))
        .collect();
    json!({"content": content, "tool_calls": calls, "finish_reason": finish})
}

fn compare(name: &str, expect: &Value, message: &Value) {
    assert_eq!(message["finish_reason"], expect["message"]["finish_reason"], "{name}");
    assert_eq!(
        message["content"].as_str().unwrap_or_default(),
        expect["message"]["content"].as_str().unwrap_or_default()
    );
    let wanted = expect["message"]["tool_calls"].as_array().unwrap();
    let calls = message["tool_calls"].as_array().map_or(&[][..], |calls| calls);
    assert_eq!(calls.len(), wanted.len(), "{name}: {message}");
    for (number, (call, wanted)) in calls.iter().zip(wanted).enumerate() {
        assert_eq!(call["name"], wanted["name"], "{name}");
        if let Some(id) = wanted.get("id") {
            assert_eq!(&call["id"], id, "{name}");
        }
        let raw = wanted.get("arguments_raw").or(expect["stream"]["arguments_raw"].get(number));
        match raw {
            Some(raw) => assert_eq!(&call["arguments"], raw, "{name}"),
            None => {
                let arguments = call["arguments"].as_str().expect("a string");
                assert_eq!(serde_json::from_str::<Value>(arguments).unwrap(), wanted["arguments"], "{name}");
            }
        }
    }
}

#[test]
fn structured_calls_reach_the_client_as_the_wire_cases_ask() {
    for name in [
        "010-harmony-suffix-on-tool-name",
        "020-invalid-escapes-in-arguments",
        "021-no-argument-tool-streams-nothing",
        "022-deltas-without-index",
        "023-all-calls-on-index-zero",
        "024-index-starts-at-one",
        "025-empty-string-id-and-name-on-continuations",
        "026-call-without-any-id",
        "027-arguments-as-object",
        "028-last-brace-lost",
        "029-cut-by-length-stays-cut",
        "030-finish-stop-with-calls",
        "031-finish-tool-calls-without-calls",
        "032-parallel-calls-though-forbidden",
        "089-empty-tool-calls-list-on-content-deltas",
    ] {
        let case = case(name);
        let body = &case["client_request"]["body"];
        let first_only = body["parallel_tool_calls"] == json!(false);
        let tools = Arc::new(ToolSet::new(&request(body)));
        let mut normaliser = ChunkNormaliser::new(tools, "s").first_call_only(first_only);
        let answer = &case["backend_behaviour"][0];
        if let Some(events) = answer["sse"].as_array() {
            let data = events.iter().filter_map(|event| event.as_str()?.strip_prefix("data: {"));
            let frames: Vec<String> = data.map(|data| format!("{{{}", data.trim_end())).collect();
            compare(name, &case["expect"], &fold(&pass(&mut normaliser, &frames)));
        } else {
            let body = answer["body"].to_string();
            let body: Value =
                serde_json::from_str(&normaliser.answer(&body).expect("something was wrong")).unwrap();
            let mut message = body["choices"][0]["message"].clone();
            for call in message["tool_calls"].as_array_mut().unwrap() {
                let function = call["function"].take();
                *call =
                    json!({"id": call["id"], "name": function["name"], "arguments": function["arguments"]});
            }
            message["finish_reason"] = body["choices"][0]["finish_reason"].clone();
            compare(name, &case["expect"], &message);
        }
    }
}

#[test]
fn histories_reach_the_backend_as_the_wire_cases_ask() {
    for name in [
        "033-history-with-broken-arguments",
        "034-history-with-empty-arguments",
        "035-history-arguments-as-object",
        "102-mended-history-is-the-same-each-turn",
    ] {
        let case = case(name);
        let requests = match case["client_request"]["sequence"].as_array() {
            Some(sequence) => sequence.clone(),
            None => vec![case["client_request"].clone()],
        };
        let mut call_messages = Vec::new();
        for (number, sent) in requests.iter().enumerate() {
            let request = request(&sent["body"]);
            let written = request.write(&mend(&request).edits, &Edits::new());
            let body: Value = serde_json::from_slice(&written).unwrap();
            let expect = &case["expect"]["upstream"]["requests"][number];
            let at = |pointer: &str| body.pointer(pointer).unwrap_or_else(|| panic!("{name}: no {pointer}"));
            for pointer in expect["json_object_at"].as_array().into_iter().flatten() {
                let text = at(pointer.as_str().unwrap()).as_str().expect("a string");
                assert!(serde_json::from_str::<Value>(text).unwrap().is_object(), "{name}: {text}");
            }
            for (pointer, text) in expect["text_has"].as_object().into_iter().flatten() {
                assert!(at(pointer).as_str().unwrap().contains(text.as_str().unwrap()), "{name}");
            }
            for (pointer, value) in expect["equals"].as_object().into_iter().flatten() {
                assert_eq!(at(pointer), value, "{name}");
            }
            for (pointer, value) in expect["json_equals_at"].as_object().into_iter().flatten() {
                assert_eq!(
                    &serde_json::from_str::<Value>(at(pointer).as_str().unwrap()).unwrap(),
                    value,
                    "{name}"
                );
            }
            if let Some(length) = expect["lengths"].get("/messages") {
                assert_eq!(
                    Some(body["messages"].as_array().unwrap().len() as u64),
                    length.as_u64(),
                    "{name}"
                );
            }
            call_messages.push(body["messages"][2].to_string());
        }
        call_messages.dedup();
        assert_eq!(call_messages.len(), 1, "{name}: mended alike on each turn");
    }
}
