//! Structured calls with calls in the text or in a thought beside them: the structured ones win, and plain and streamed
//! answers say the same.
//!
//! What was shown can't be taken back, so calls of the text wait for the choice's end; a call too long to wait leaves.

use serde_json::{Value, json};

use crate::harness::{Reply, Step, World, finish};
use crate::repairing::{CALL, assembled, chunk, request};

/// What an answer says, in order.
#[derive(Clone, Copy)]
enum Said<'a> {
    Text(&'a str),
    Thought(&'a str),
    /// A structured call of the file.
    Call(&'a str),
}

fn arguments(path: &str) -> String {
    format!("{{\"lines\": 20, \"path\": \"{path}\"}}")
}

fn text_call(path: &str) -> String {
    format!("<tool_call>\n{{\"name\": \"read_file\", \"arguments\": {}}}\n</tool_call>", arguments(path))
}

/// The chunks of an answer, its text in pieces of so many characters.
fn steps(said: &[Said<'_>], piece: usize) -> Vec<Step> {
    let delta = |delta: Value| chunk(&json!([{ "index": 0, "delta": delta, "finish_reason": null }]));
    let mut steps = vec![delta(json!({ "role": "assistant" }))];
    let mut calls = 0;
    for said in said {
        let (member, text) = match said {
            Said::Text(text) => ("content", text),
            Said::Thought(text) => ("reasoning_content", text),
            Said::Call(path) => {
                let function = json!({ "name": "read_file", "arguments": arguments(path) });
                steps.push(delta(json!({ "tool_calls": [{ "index": calls, "id": format!("s{calls}"), "type": "function", "function": function }] })));
                calls += 1;
                continue;
            }
        };
        let characters: Vec<char> = text.chars().collect();
        steps.extend(
            characters.chunks(piece).map(|piece| delta(json!({ member: piece.iter().collect::<String>() }))),
        );
    }
    steps.extend([finish("tool_calls"), Step::Send("data: [DONE]\n\n".to_owned())]);
    steps
}

/// The same as an answer that is not streamed.
fn plain(said: &[Said<'_>]) -> Value {
    let joined = |pick: fn(&Said<'_>) -> Option<String>| said.iter().filter_map(pick).collect::<String>();
    let content = joined(|said| if let Said::Text(text) = said { Some((*text).to_owned()) } else { None });
    let thought = joined(|said| if let Said::Thought(text) = said { Some((*text).to_owned()) } else { None });
    let paths = said.iter().filter_map(|said| if let Said::Call(path) = said { Some(path) } else { None });
    let calls: Vec<Value> = paths.enumerate().map(|(number, path)| json!({ "id": format!("s{number}"), "type": "function", "function": { "name": "read_file", "arguments": arguments(path) } })).collect();
    json!({ "id": "c", "object": "chat.completion", "choices": [{ "index": 0, "finish_reason": "tool_calls",
        "message": { "role": "assistant", "content": content, "reasoning_content": thought, "tool_calls": calls } }] })
}

/// Content, thought and the files of the calls that the client gets; the same plain and streamed, however it is cut.
async fn delivered(said: &[Said<'_>]) -> (String, String, Vec<String>) {
    let path = |arguments: &str| {
        let arguments: Value = serde_json::from_str(arguments).expect("JSON");
        arguments["path"].as_str().expect("text").to_owned()
    };
    let world = World::new(&[("b", 8000)], "");
    world.backend("b").then(Reply::json(200, &plain(said).to_string()));
    let answer = world.chat(&request(&json!({}))).await.json();
    let message = &answer["choices"][0]["message"];
    let text = |member: &str| message[member].as_str().unwrap_or_default().to_owned();
    let calls = message["tool_calls"].as_array().expect("calls").iter();
    let calls: Vec<String> =
        calls.map(|call| path(call["function"]["arguments"].as_str().expect("text"))).collect();
    let expected = (text("content"), text("reasoning_content"), calls);
    for piece in [1, 7, 100_000] {
        let world = World::new(&[("b", 8000)], "");
        world.backend("b").then(Reply::stream(steps(said, piece)));
        let message = assembled(&world.chat(&request(&json!({ "stream": true }))).await);
        assert_eq!(message.finish.as_deref(), Some("tool_calls"));
        let calls = message.calls.iter().map(|call| path(&call.arguments)).collect();
        assert_eq!((message.content, message.reasoning, calls), expected, "in pieces of {piece}");
    }
    expected
}

#[tokio::test(start_paused = true)]
async fn a_call_that_comes_as_text_and_again_as_a_structured_one_is_delivered_once() {
    let twice = format!("{CALL}\n{CALL}");
    for text in [CALL, &twice] {
        let (content, _, calls) =
            delivered(&[Said::Text("Let me look.\n"), Said::Text(text), Said::Call("src/a<b>.rs")]).await;
        assert_eq!((content.trim(), calls.as_slice()), ("Let me look.", &["src/a<b>.rs".to_owned()][..]));
    }
    let (content, _, calls) = delivered(&[Said::Call("src/a<b>.rs"), Said::Text(CALL)]).await;
    assert_eq!((content.trim(), calls.len()), ("", 1));
}

#[tokio::test(start_paused = true)]
async fn another_call_in_the_text_of_an_answer_with_structured_calls_does_not_run_and_stays_text() {
    let call = text_call("draft.rs");
    for text in [call.clone(), format!("Let me look.\n{call}"), format!("Let me look.\n{call}\nThen on.")] {
        for said in [[Said::Text(&text), Said::Call("real.rs")], [Said::Call("real.rs"), Said::Text(&text)]] {
            assert_eq!(delivered(&said).await, (text.clone(), String::new(), vec!["real.rs".to_owned()]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_draft_in_a_thought_before_a_structured_call_stays_a_thought() {
    let thought = format!("First idea:\n{}", text_call("draft.rs"));
    for path in ["real.rs", "draft.rs"] {
        let said = [Said::Thought(&thought), Said::Call(path)];
        assert_eq!(delivered(&said).await, (String::new(), thought.clone(), vec![path.to_owned()]));
    }
    // Also where something was said between.
    let said = [Said::Thought(&thought), Said::Text("On it."), Said::Call("real.rs")];
    assert_eq!(delivered(&said).await, ("On it.".to_owned(), thought.clone(), vec!["real.rs".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn what_a_backends_parser_left_of_a_calls_markup_is_not_shown() {
    for (before, after, shown) in [
        ("<tool_call>\n", "\n</tool_call>", ""),
        ("ok\n<tool_call>", "", "ok\n"),
        ("ok\n", "\n</tool_call>", "ok"),
        ("Less is <", " more.", "Less is < more."),
        ("A list: [", "]", "A list: []"),
    ] {
        let (content, _, calls) =
            delivered(&[Said::Text(before), Said::Call("a.rs"), Said::Text(after)]).await;
        assert_eq!((content.trim(), calls.len()), (shown.trim(), 1), "{before}{after}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_of_the_text_that_was_too_long_to_wait_runs_once_and_the_structured_one_too() {
    let long = "x".repeat(9000);
    for (path, expected) in [(long.as_str(), 1), ("other.rs", 2)] {
        let world = World::new(&[("b", 8000)], "");
        let text = text_call(&long);
        world.backend("b").then(Reply::stream(steps(&[Said::Text(&text), Said::Call(path)], 100)));
        let message = assembled(&world.chat(&request(&json!({ "stream": true }))).await);
        assert_eq!((message.content.as_str(), message.calls.len()), ("", expected));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_backend_says_behind_the_end_of_a_choice_comes_before_it() {
    let call = |id: &str, path: &str| {
        let function = json!({ "name": "read_file", "arguments": arguments(path) });
        let calls = json!([{ "index": 0, "id": id, "type": "function", "function": function }]);
        chunk(&json!([{ "index": 0, "delta": { "tool_calls": calls }, "finish_reason": null }]))
    };
    let text =
        |text: &str| chunk(&json!([{ "index": 0, "delta": { "content": text }, "finish_reason": null }]));
    let done = || Step::Send("data: [DONE]\n\n".to_owned());
    for (steps, content, calls, reason) in [
        (vec![text("On it."), finish("stop"), call("a", "a.rs"), done()], "On it.", 1, "tool_calls"),
        (
            vec![text("On it."), finish("stop"), call("a", "a.rs"), finish("tool_calls"), done()],
            "On it.",
            1,
            "tool_calls",
        ),
        (vec![call("a", "a.rs"), finish("tool_calls"), finish("stop"), done()], "", 1, "tool_calls"),
        (vec![text("One"), finish("stop"), text(" two."), finish("stop"), done()], "One two.", 0, "stop"),
        (vec![text("One"), finish("length"), finish("length"), done()], "One", 0, "length"),
    ] {
        let world = World::new(&[("b", 8000)], "");
        world.backend("b").then(Reply::stream(steps));
        let answer = world.chat(&request(&json!({ "stream": true }))).await;
        let message = assembled(&answer);
        assert_eq!((message.content.as_str(), message.calls.len()), (content, calls), "{}", answer.body);
        assert_eq!(message.finish.as_deref(), Some(reason), "{}", answer.body);
        assert_eq!(answer.body.matches("\"finish_reason\":\"").count(), 1, "{}", answer.body);
    }
}
