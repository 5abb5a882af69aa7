//! Tool calls that came as text become calls, plain and streamed, and nothing else does.

use std::time::Duration;

use serde_json::{Value, json};
use switchback_tests::wire::message::Message;
use switchback_tests::wire::observed::Piece;
use switchback_tests::wire::sse::Stream;

use crate::harness::{Answer, Reply, Step, World, delta, finish, role};

pub(crate) const CALL: &str = "<tool_call>\n<function=read_file>\n<parameter=path>\nsrc/a<b>.rs\n</parameter>\n<parameter=lines>\n20\n</parameter>\n</function>\n</tool_call>";

pub(crate) fn request(more: &Value) -> String {
    let mut request = json!({
        "model": "auto",
        "messages": [{ "role": "user", "content": "read it" }],
        "tools": [{ "type": "function", "function": { "name": "read_file", "parameters": {
            "type": "object",
            "properties": { "path": { "type": "string" }, "lines": { "type": "integer" } },
            "required": ["path"],
        } } }],
    });
    let members = more.as_object().cloned().unwrap_or_default();
    request.as_object_mut().expect("an object").extend(members);
    request.to_string()
}

/// The message as a client of the streamed API puts it together.
pub(crate) fn assembled(answer: &Answer) -> Message {
    let piece = Piece { at: Duration::ZERO, bytes: answer.body.clone().into() };
    let message = Message::of_stream(&Stream::read(&[piece]));
    assert_eq!(message.faults, Vec::<String>::new());
    message
}

/// A streamed answer that says `text` in pieces of so many characters.
pub(crate) fn frames(text: &str, piece: usize, reason: &str) -> Vec<Step> {
    let characters: Vec<char> = text.chars().collect();
    let mut steps = vec![role()];
    steps.extend(characters.chunks(piece).map(|piece| delta(&piece.iter().collect::<String>())));
    steps.extend([finish(reason), Step::Send("data: [DONE]\n\n".to_owned())]);
    steps
}

#[tokio::test(start_paused = true)]
async fn a_call_that_came_as_text_becomes_a_call_typed_by_its_schema() {
    let world = World::new(&[("b", 8000)], "");
    world.backend("b").then(Reply::says(&format!("Let me look.\n\n{CALL}")));
    let answer = world.chat(&request(&json!({}))).await.json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"].as_str().map(str::trim), Some("Let me look."));
    let function = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(function["name"], "read_file");
    let arguments: Value = serde_json::from_str(function["arguments"].as_str().expect("text")).expect("JSON");
    assert_eq!(arguments, json!({ "path": "src/a<b>.rs", "lines": 20 }));
}

#[tokio::test(start_paused = true)]
async fn where_a_backends_format_is_known_only_that_is_a_call() {
    let mistral = "[TOOL_CALLS]read_file[ARGS]{\"path\": \"a.rs\"}";
    for (format, text, calls) in
        [("auto", mistral, 1), ("mistral", mistral, 1), ("qwen_xml", mistral, 0), ("qwen_xml", CALL, 1)]
    {
        let world = World::configured(&format!(
            "[[backend]]\nname = \"b\"\nurl = \"http://b\"\nengine = \"vllm\"\nwindow = 8000\nmodel = \"auto\"\nformat = \"{format}\"\n"
        ));
        world.backend("b").then(Reply::says(text));
        let message = world.chat(&request(&json!({}))).await.json()["choices"][0]["message"].clone();
        let made = message["tool_calls"].as_array().map_or(0, Vec::len);
        assert_eq!(made, calls, "{text} as {format}: {message}");
        assert!(calls == 1 || message["content"] == text, "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn however_the_text_is_cut_into_frames_the_streamed_call_is_the_same_and_no_markup_is_shown() {
    for piece in [1, 2, 3, 7, 1000] {
        let world = World::new(&[("b", 8000)], "");
        world.backend("b").then(Reply::stream(frames(&format!("Let me look.\n\n{CALL}"), piece, "stop")));
        let answer = world.chat(&request(&json!({ "stream": true }))).await;
        let message = assembled(&answer);
        assert_eq!(message.content.trim(), "Let me look.", "in pieces of {piece}");
        assert_eq!(message.finish.as_deref(), Some("tool_calls"));
        let [call] = message.calls.as_slice() else { panic!("{:?}", message.calls) };
        assert_eq!((call.index, call.name.as_str(), call.id.is_empty()), (0, "read_file", false));
        let arguments: Value = serde_json::from_str(&call.arguments).expect("JSON");
        assert_eq!(arguments, json!({ "path": "src/a<b>.rs", "lines": 20 }));
        assert!(answer.body.ends_with("data: [DONE]\n\n"));
    }
}

#[tokio::test(start_paused = true)]
async fn talk_about_markup_leaves_in_the_frames_in_which_it_came() {
    let talk = "If x <tool and y> 3, write `<tool_call>` like this:\n```xml\n<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>\n```\nDone.";
    for piece in [1, 5, 1000] {
        let world = World::new(&[("b", 8000)], "");
        let steps = frames(talk, piece, "stop");
        let sent: String = steps
            .iter()
            .filter_map(|step| if let Step::Send(text) = step { Some(text.as_str()) } else { None })
            .collect();
        world.backend("b").then(Reply::stream(steps));
        assert_eq!(world.chat(&request(&json!({ "stream": true }))).await.body, sent, "in pieces of {piece}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_tools_without_choice_or_with_repair_off_text_is_text() {
    let off = "[repair]\ntool_calls = \"off\"";
    for (more, config) in
        [(json!({ "tools": [] }), ""), (json!({ "tool_choice": "none" }), ""), (json!({}), off)]
    {
        let world = World::new(&[("b", 8000)], config);
        world.backend("b").then(Reply::says(CALL));
        let answer = world.chat(&request(&more)).await.json();
        assert_eq!(answer["choices"][0]["message"]["content"], CALL, "{more} {config}");
        assert!(answer["choices"][0]["message"]["tool_calls"].is_null());
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_limit_cut_never_runs() {
    let world = World::new(&[("b", 8000)], "");
    let steps = frames(&format!("Let me look.\n{}", &CALL[..60]), 8, "length");
    world.backend("b").then(Reply::stream(steps));
    let answer = world.chat(&request(&json!({ "stream": true }))).await;
    let message = assembled(&answer);
    assert_eq!((message.content.trim(), message.calls.len()), ("Let me look.", 0));
    assert_eq!(message.finish.as_deref(), Some("length"));
}

#[tokio::test(start_paused = true)]
async fn broken_arguments_of_an_earlier_turn_are_mended_before_they_reach_a_backend() {
    let world = World::new(&[("b", 8000)], "");
    world.backend("b").then(Reply::says("fine"));
    let history = json!({ "messages": [
        { "role": "user", "content": "read it" },
        { "role": "assistant", "content": "", "tool_calls": [{ "id": "c1", "type": "function",
            "function": { "name": "read_file", "arguments": "{\"path\": \"a.rs\"" } }] },
        { "role": "tool", "tool_call_id": "c1", "content": "text" },
    ] });
    world.chat(&request(&history)).await;
    let seen = world.backend("b").seen();
    let sent = seen.last().expect("a request").json();
    let arguments =
        sent["messages"][1]["tool_calls"][0]["function"]["arguments"].as_str().expect("text").to_owned();
    let arguments: Value = serde_json::from_str(&arguments).expect("whole JSON");
    assert_eq!(arguments, json!({ "path": "a.rs" }));
}

/// A chunk with these choices.
pub(crate) fn chunk(choices: &Value) -> Step {
    let chunk = json!({ "id": "c", "object": "chat.completion.chunk", "choices": choices });
    Step::Send(format!("data: {chunk}\n\n"))
}

#[tokio::test(start_paused = true)]
async fn choices_that_share_a_frame_are_repaired_each_by_itself() {
    let world = World::new(&[("b", 8000)], "");
    let both = |first: &str, second: &str| {
        let choice = |index: u64, text: &str| json!({ "index": index, "delta": { "content": text }, "finish_reason": null });
        chunk(&json!([choice(0, first), choice(1, second)]))
    };
    let (head, tail) = CALL.split_at(40);
    let end = |index: u64| json!({ "index": index, "delta": {}, "finish_reason": "stop" });
    let steps = vec![both(head, "Just "), both(tail, "talk."), chunk(&json!([end(0), end(1)]))];
    world.backend("b").then(Reply::stream(steps));
    let answer = world.chat(&request(&json!({ "stream": true, "n": 2 }))).await;
    let chunks = answer.body.lines().filter_map(|line| line.strip_prefix("data: {"));
    let chunks: Vec<Value> =
        chunks.map(|rest| serde_json::from_str(&format!("{{{rest}")).expect("JSON")).collect();
    let of = |index: u64| {
        chunks.iter().map(|chunk| &chunk["choices"][0]).filter(move |choice| choice["index"] == index)
    };
    let calls: Vec<&Value> = of(0).filter_map(|choice| choice["delta"]["tool_calls"].get(0)).collect();
    assert_eq!(calls[0]["function"]["name"], "read_file", "{}", answer.body);
    let text: String = of(1).filter_map(|choice| choice["delta"]["content"].as_str()).collect();
    assert_eq!(text, "Just talk.");
    let ends: Vec<&Value> =
        chunks.iter().filter_map(|chunk| chunk["choices"][0].get("finish_reason")).collect();
    let ends: Vec<&str> = ends.into_iter().filter_map(Value::as_str).collect();
    assert_eq!(ends, ["tool_calls", "stop"]);
}
