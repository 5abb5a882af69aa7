//! Structured calls, as engines and servers in between really send them.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use switchback_parsers::calls::{ChunkNormaliser, Rewritten};
use switchback_parsers::schema::ToolSet;

use crate::wire::{fold, pass};

fn normaliser() -> ChunkNormaliser {
    let tool = |name: &str, properties: Value| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}});
    let tools = json!([
        tool("run_shell", json!({"command": {"type": "string"}, "timeout": {"type": "integer"}})),
        tool("now", json!({})),
    ]);
    ChunkNormaliser::new(Arc::new(ToolSet::from_json(&tools.to_string())), "s")
}

fn chunk(delta: Value, finish: Value) -> String {
    json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).to_string()
}

pub(crate) fn calls(entries: Value) -> String {
    chunk(json!({"tool_calls": entries}), Value::Null)
}

pub(crate) fn end(reason: &str) -> String {
    chunk(json!({}), json!(reason))
}

fn first(arguments: &str) -> String {
    calls(
        json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "run_shell", "arguments": arguments}}]),
    )
}

fn more(arguments: &str) -> String {
    calls(json!([{"index": 0, "function": {"arguments": arguments}}]))
}

/// The arguments that a client gets of one call sent in these pieces, and the finish reason.
fn arguments(pieces: &[&str], reason: &str) -> (String, String) {
    let mut frames = vec![first("")];
    frames.extend(pieces.iter().map(|piece| more(piece)));
    frames.push(end(reason));
    let message = fold(&pass(&mut normaliser(), &frames));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&message["tool_calls"][0]["arguments"]), text(&message["finish_reason"]))
}

/// The same of an answer that is not streamed.
fn whole_arguments(text: &str, reason: &str) -> (String, String) {
    let answer =
        json!({"choices": [{"index": 0, "finish_reason": reason, "message": {"content": null, "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "run_shell", "arguments": text}}]}}]})
        .to_string();
    let answer: Value = serde_json::from_str(&normaliser().answer(&answer).unwrap_or(answer)).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let choice = &answer["choices"][0];
    (text(&choice["message"]["tool_calls"][0]["function"]["arguments"]), text(&choice["finish_reason"]))
}

/// Broken arguments, how the answer ended, what the client gets of both.
const BROKEN: &[(&str, &str, &str, &str)] = &[
    ("", "stop", "{}", "tool_calls"),
    ("", "length", "", "length"),
    ("{\"command\": \"a\nb\tc\"}", "tool_calls", r#"{"command": "a\nb\tc"}"#, "tool_calls"),
    (
        r#"{"command": "findstr \d+ C:\users \u00e9"}"#,
        "stop",
        r#"{"command": "findstr \\d+ C:\\users \u00e9"}"#,
        "tool_calls",
    ),
    (r#"{"command": "ls", "timeout": 5"#, "tool_calls", r#"{"command": "ls", "timeout": 5}"#, "tool_calls"),
    (r#"{"command": "ls", "timeout": 5"#, "length", r#"{"command": "ls", "timeout": 5"#, "length"),
    (r#"{"command": "rm -r"#, "tool_calls", r#"{"command": "rm -r"#, "tool_calls"),
    (r#"{"command": "rm -r"#, "stop", r#"{"command": "rm -r"#, "stop"),
    (r#"{"command": "ls"}}"#, "stop", r#"{"command": "ls"}"#, "tool_calls"),
    (r#""{\"command\": \"ls\"}""#, "stop", r#"{"command": "ls"}"#, "tool_calls"),
    (r#"{'command': 'ls', 'timeout': None}"#, "stop", r#"{"command": "ls", "timeout": null}"#, "tool_calls"),
    (r#"{"timeout": 5, "command": 'ls',}"#, "stop", r#"{"timeout": 5, "command": "ls"}"#, "tool_calls"),
    (r#"{"command=ls -l": ""}"#, "stop", r#"{"command": "ls -l"}"#, "tool_calls"),
    (r#"{"command": "ls", "timeout=5": ""}"#, "stop", r#"{"command": "ls", "timeout": 5}"#, "tool_calls"),
    (r#"{"command=ls": "x"}"#, "stop", r#"{"command=ls": "x"}"#, "tool_calls"),
    (r#"{"command": oops}"#, "stop", r#"{"command": oops}"#, "stop"),
    ("[1]", "stop", "[1]", "stop"),
    ("null", "stop", "{}", "tool_calls"),
    ("[]", "stop", "{}", "tool_calls"),
    ("null", "length", "null", "length"),
    ("{\"command\": \"ls\"}</tool_call>", "stop", "{\"command\": \"ls\"}", "tool_calls"),
    ("{\"command\": \"ls\"} and more", "stop", "{\"command\": \"ls\"} and more", "stop"),
    (
        r#"{"name": "run_shell", "arguments": {"command": "ls"}}"#,
        "stop",
        r#"{"command": "ls"}"#,
        "tool_calls",
    ),
    (r#"{"arguments": "{\"command\": \"ls\"}"}"#, "stop", r#"{"command": "ls"}"#, "tool_calls"),
    (r#"{"name": "other", "arguments": {}}"#, "stop", r#"{"name": "other", "arguments": {}}"#, "tool_calls"),
    (r#"{"name": "a.rs"}"#, "stop", r#"{"name": "a.rs"}"#, "tool_calls"),
];

#[test]
fn broken_arguments_are_mended_where_one_reading_exists() {
    for (broken, reason, mended, finish) in BROKEN {
        let expected = (mended.to_string(), finish.to_string());
        assert_eq!(arguments(&[broken], reason), expected, "{broken}");
        if !broken.is_empty() || *reason != "length" {
            assert_eq!(whole_arguments(broken, reason), expected, "{broken}, not streamed");
        }
    }
}

#[test]
fn a_cut_anywhere_changes_nothing() {
    for (broken, reason, ..) in BROKEN {
        let whole = arguments(&[broken], reason);
        for (at, _) in broken.char_indices() {
            assert_eq!(arguments(&[&broken[..at], &broken[at..]], reason), whole, "{broken} at {at}");
        }
        let chars: Vec<String> = broken.chars().map(String::from).collect();
        assert_eq!(
            arguments(&chars.iter().map(String::as_str).collect::<Vec<_>>(), reason),
            whole,
            "{broken}"
        );
    }
}

#[test]
fn what_is_right_leaves_as_it_came() {
    let streams = [
        vec![first(""), more(r#"{"command": "caf\u0"#), more(r#"0e9 \"#), more(r#"n"}"#), end("tool_calls")],
        vec![
            first("{}"),
            calls(
                json!([{"index": 1, "id": "b", "type": "function", "function": {"name": "now"}, "extra": 1}]),
            ),
            calls(json!([{"index": 1, "function": {"arguments": "{}"}}])),
            end("tool_calls"),
        ],
        vec![first(r#"{"command": "ls"#), end("length")],
        vec![chunk(json!({"content": "about tool_calls"}), Value::Null), end("stop")],
        vec![first(r#"{"command=ls": "x"}"#), chunk(json!({"content": "x"}), Value::Null), end("length")],
        vec!["[DONE]".into(), r#"{"error": {"message": "tool_calls"}}"#.into(), "{tool_calls".into()],
        vec![first(r#"{"command": 'x"#)],
    ];
    for frames in streams {
        assert_eq!(pass(&mut normaliser(), &frames), frames);
    }
    let answer = json!({"choices": [{"finish_reason": "tool_calls", "message": {"tool_calls": [{"id": "a", "type": "function", "function": {"name": "now", "arguments": "{ }"}}]}}]});
    assert_eq!(normaliser().answer(&answer.to_string()), None);
}

#[test]
fn each_call_keeps_its_own_index_id_and_name() {
    let entry = |index: Value, id: Value, name: Value, arguments: Value| json!([{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}]);
    let null = Value::Null;
    // Frames, and what becomes of them: ids, names, arguments.
    let table: Vec<(Vec<String>, Value)> = vec![
        // The same id and index for all.
        (
            vec![
                calls(entry(json!(0), json!("x"), json!("run_shell"), json!("{\"command\":\"a\"}"))),
                calls(entry(json!(0), json!("x"), json!("run_shell"), json!("{\"command\":\"b\"}"))),
            ],
            json!([
                ["x", "run_shell", "{\"command\":\"a\"}"],
                ["call_s_1", "run_shell", "{\"command\":\"b\"}"]
            ]),
        ),
        // The very same call, sent once more: it must run once.
        (
            vec![
                calls(entry(json!(0), json!("x"), json!("now"), json!("{}"))),
                calls(entry(json!(0), json!("x"), json!("now"), json!("{}"))),
            ],
            json!([["x", "now", "{}"]]),
        ),
        // Name and id repeated on each delta.
        (
            vec![
                calls(entry(json!(0), json!("x"), json!("run_shell"), json!("{\"command\":"))),
                calls(entry(json!(0), json!("x"), json!("run_shell"), json!("\"ls\"}"))),
            ],
            json!([["x", "run_shell", "{\"command\":\"ls\"}"]]),
        ),
        // Interleaved by index.
        (
            vec![
                calls(
                    json!([{"index": 3, "id": "x", "type": "function", "function": {"name": "now"}}, {"index": 7, "id": "y", "type": "function", "function": {"name": "run_shell"}}]),
                ),
                calls(json!([{"index": 7, "function": {"arguments": "{\"command\":"}}])),
                calls(json!([{"index": 3, "function": {"arguments": "{}"}}])),
                calls(json!([{"index": 7, "function": {"arguments": "\"ls\"}"}}])),
            ],
            json!([["x", "now", "{}"], ["y", "run_shell", "{\"command\":\"ls\"}"]]),
        ),
        // No label at all but the name.
        (
            vec![
                calls(entry(null.clone(), null.clone(), json!("now"), json!("{}"))),
                calls(entry(null.clone(), null.clone(), json!("run_shell"), json!("{\"command\":\"ls\"}"))),
            ],
            json!([["call_s_0", "now", "{}"], ["call_s_1", "run_shell", "{\"command\":\"ls\"}"]]),
        ),
        // An object, without wrapper, with remains of markup in its name.
        (
            vec![calls(json!([{"name": "<<function=run_shell", "arguments": {"command": "ls"}}]))],
            json!([["call_s_0", "run_shell", "{\"command\":\"ls\"}"]]),
        ),
        // Two entries for one call in one delta, and a name that comes late.
        (
            vec![
                calls(
                    json!([{"index": 0, "id": "x", "function": {"name": ""}}, {"index": 0, "function": {"name": "functions.now", "arguments": "{"}}]),
                ),
                calls(json!([{"index": 0, "function": {"arguments": "}"}}])),
            ],
            json!([["x", "now", "{}"]]),
        ),
        // An unknown tool passes.
        (vec![calls(entry(json!(1), json!("x"), json!("nope"), json!("{}")))], json!([["x", "nope", "{}"]])),
    ];
    for (mut frames, expected) in table {
        frames.push(end("stop"));
        let message = match std::panic::catch_unwind(|| fold(&pass(&mut normaliser(), &frames))) {
            Ok(message) => message,
            Err(_) => panic!("{frames:#?}\n{:#?}", pass(&mut normaliser(), &frames)),
        };
        let calls: Vec<Value> = message["tool_calls"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| json!([c["id"], c["name"], c["arguments"]]))
            .collect();
        assert_eq!(Value::from(calls), expected, "{frames:#?}");
        assert_eq!(message["finish_reason"], "tool_calls");
    }
}

#[test]
fn a_frame_that_ends_and_calls_is_completed_in_place() {
    let last = chunk(
        json!({"tool_calls": [{"index": 1, "id": "b", "type": "function", "function": {"name": "now"}}]}),
        json!("stop"),
    );
    let frames = pass(&mut normaliser(), &[first(r#"{"command": "ls""#), last]);
    let message = fold(&frames);
    assert_eq!((frames.len(), &message["finish_reason"]), (2, &json!("tool_calls")));
    assert_eq!(message["tool_calls"][0]["arguments"], r#"{"command": "ls"}"#);
    assert_eq!(message["tool_calls"][1]["arguments"], "{}");
}

#[test]
fn a_frame_that_is_added_has_no_usage() {
    let end = json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}).to_string();
    let frames = pass(&mut normaliser(), &[first(""), end]);
    assert_eq!(frames.iter().filter(|frame| frame.contains("usage")).count(), 1);
    assert_eq!(fold(&frames)["tool_calls"][0]["arguments"], "{}");
}

#[test]
fn what_can_not_be_read_is_not_held_for_ever() {
    let mut normaliser = normaliser();
    assert_eq!(normaliser.frame(&first("{'command': '")), Rewritten::Wait);
    assert!(normaliser.is_waiting());
    let long = "x".repeat(20_000);
    assert_eq!(normaliser.frame(&more(&long)), Rewritten::Same);
    assert!(!normaliser.is_waiting());
    assert_eq!(normaliser.frame(&more("'}")), Rewritten::Same);
    assert_eq!(normaliser.frame(&end("tool_calls")), Rewritten::Same);
    // Nor while other things are said.
    let mut normaliser = self::normaliser();
    assert_eq!(normaliser.frame(&first("{'command': '")), Rewritten::Wait);
    let text = chunk(json!({"content": "y".repeat(10_000)}), Value::Null);
    let said: Vec<_> = (0..7).map(|_| normaliser.frame(&text)).collect();
    assert_eq!(said.last(), Some(&Rewritten::Same));
}

#[test]
fn a_stream_that_is_lost_is_not_completed() {
    let frames = [first(""), more(r#"{"command": "ls""#)];
    assert_eq!(pass(&mut normaliser(), &frames), frames);
    // What was changed before is kept, and what was held follows it.
    let frames =
        [calls(json!([{"id": "a", "function": {"name": "run_shell", "arguments": "{'command': 'l"}}]))];
    let message = fold(&pass(&mut normaliser(), &frames));
    assert_eq!(message["tool_calls"][0]["arguments"], "{'command': 'l");
    // Also where the end marker has come, which stays last.
    let mut normaliser = normaliser();
    assert_eq!(normaliser.frame(&frames[0]), Rewritten::Wait);
    assert_eq!(normaliser.frame("[DONE]"), Rewritten::Wait);
    let Rewritten::Replace(frames) = normaliser.finish() else { panic!() };
    assert_eq!(frames.last().map(String::as_str), Some("[DONE]"));
    assert_eq!(fold(&frames[..2])["tool_calls"][0]["arguments"], "{'command': 'l");
}

#[test]
fn a_call_found_in_the_text_counts_and_a_double_is_known() {
    let mut normaliser = normaliser();
    assert_eq!(normaliser.allot(0, None, "now"), (0, "call_s_0".to_owned()));
    assert!(!normaliser.has_call(0, "now", "{}"), "the text's own call is no double");
    let Rewritten::Replace(frames) = normaliser.frame(&first(r#"{"command": "ls"}"#)) else { panic!() };
    let frame: Value = serde_json::from_str(&frames[0]).unwrap();
    assert_eq!(frame["choices"][0]["delta"]["tool_calls"][0]["index"], 1);
    assert!(normaliser.has_call(0, "run_shell", r#"{"command":"ls"}"#));
    assert!(!normaliser.has_call(0, "run_shell", r#"{"command":"rm"}"#));
    assert_eq!(normaliser.calls(0), 2);
    let Rewritten::Replace(frames) = normaliser.frame(&end("stop")) else { panic!() };
    assert!(frames[0].contains(r#""finish_reason":"tool_calls""#));
}

#[test]
fn a_megabyte_of_arguments_takes_linear_time() {
    let piece = "line\\n".repeat(20);
    let mut frames = vec![first(r#"{"command": ""#)];
    frames.extend((0..10_000).map(|_| more(&piece)));
    frames.extend([more("\"}"), end("tool_calls")]);
    assert_eq!(pass(&mut normaliser(), &frames), frames);
}

proptest! {
    #[test]
    fn valid_arguments_pass_unchanged_at_any_cut(command in r#"[a-z"\\\n\t é=\{\}']{0,20}"#, timeout: i32, cuts in proptest::collection::vec(0_usize..80, 0..6), ascii: bool) {
        let mut text = json!({"command": command, "timeout": timeout}).to_string();
        if ascii {
            text = text.replace('é', "\\u00e9");
        }
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|at| text.is_char_boundary(*at)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut frames = vec![first("")];
        frames.extend(cuts.windows(2).map(|cut| more(&text[cut[0]..cut[1]])));
        frames.push(end("tool_calls"));
        prop_assert_eq!(pass(&mut normaliser(), &frames), frames);
    }

    #[test]
    fn any_text_at_any_cut_says_the_same(text in r#"\{?["'a:,\[\]\{\}\\u0=\n 1t]{0,24}"#, at in 0_usize..24, finish in proptest::sample::select(vec!["stop", "length"])) {
        let at = at.min(text.len());
        let whole = arguments(&[&text], finish);
        prop_assert_eq!(&arguments(&[&text[..at], &text[at..]], finish), &whole);
        prop_assert_eq!(&whole_arguments(&text, finish), &whole, "not streamed");
    }

    #[test]
    fn calls_are_told_apart_however_they_are_labelled(
        texts in proptest::collection::vec("[a-z]{0,6}", 1..5),
        cut in 1_usize..20,
        index in 0..5,
        id in 0..4,
        name in 0..3,
        one_delta: bool,
    ) {
        let mut deltas: Vec<Vec<Value>> = Vec::new();
        let mut expected = Vec::new();
        for (number, text) in texts.iter().enumerate() {
            let arguments = json!({"command": text}).to_string();
            expected.push(json!({"id": format!("id{number}"), "name": "run_shell", "arguments": arguments}));
            let pieces = [&arguments[..cut.min(arguments.len())], &arguments[cut.min(arguments.len())..]];
            for (piece, arguments) in pieces.iter().enumerate() {
                let later = piece > 0;
                let mut entry = json!({"type": "function", "function": {"arguments": arguments}});
                match index {
                    0 => entry["index"] = number.into(),
                    1 => entry["index"] = 0.into(),
                    2 => entry["index"] = (number + 1).into(),
                    3 => entry["index"] = Value::Null,
                    _ => {}
                }
                match (id, later) {
                    (_, false) | (1, true) => entry["id"] = format!("id{number}").into(),
                    (2, true) => entry["id"] = "".into(),
                    (3, true) => entry["id"] = Value::Null,
                    _ => {}
                }
                match (name, later) {
                    (_, false) | (1, true) => entry["function"]["name"] = "run_shell".into(),
                    (2, true) => entry["function"]["name"] = "".into(),
                    _ => {}
                }
                deltas.push(vec![entry]);
            }
        }
        if one_delta {
            deltas = vec![deltas.concat()];
        }
        let mut frames: Vec<String> = deltas.into_iter().map(|entries| calls(entries.into())).collect();
        frames.push(end("stop"));
        let message = fold(&pass(&mut normaliser(), &frames));
        prop_assert_eq!(&message["tool_calls"], &Value::from(expected));
        prop_assert_eq!(&message["finish_reason"], "tool_calls");
    }
}
