//! Calls that are wrong, missing or cut: what the operator wants done about them for a client, once, and unseen.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Reply, Step, World, delta, finish, role};
use crate::repairing::{CALL, assembled, frames, request};

/// Lines in words, where the tool declares an integer.
fn wrong_call() -> String {
    CALL.replace("20", "all of them")
}

/// What every answer says that was asked for once more for that reason.
const WRONG: &str = "asked again: read_file: lines must be an integer, found a string";

pub(crate) fn wishing(wish: &str) -> World {
    World::new(&[("b", 8000), ("c", 8000)], &format!("[[client]]\nname = \"all\"\n{wish}\n"))
}

/// The same answer, plain or streamed.
pub(crate) fn reply(text: &str, reason: &str, stream: bool) -> Reply {
    if stream {
        return Reply::stream(frames(text, 5, reason));
    }
    let message = json!({ "role": "assistant", "content": text });
    let choice = json!({ "index": 0, "message": message, "finish_reason": reason });
    Reply::json(200, &json!({ "id": "c", "object": "chat.completion", "choices": [choice] }).to_string())
}

/// Name and arguments of the calls that a client gets.
pub(crate) fn calls(answer: &Answer) -> Vec<(String, Value)> {
    let parsed = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
    if answer.body.starts_with('{') {
        let calls = answer.json()["choices"][0]["message"]["tool_calls"].as_array().cloned();
        let function = |call: &Value| {
            let text = |name: &str| call["function"][name].as_str().expect("text").to_owned();
            (text("name"), parsed(&text("arguments")))
        };
        return calls.iter().flatten().map(function).collect();
    }
    assembled(answer).calls.iter().map(|call| (call.name.clone(), parsed(&call.arguments))).collect()
}

pub(crate) fn good_call() -> Vec<(String, Value)> {
    vec![("read_file".to_owned(), json!({ "path": "src/a<b>.rs", "lines": 20 }))]
}

pub(crate) async fn ask(world: &World, stream: bool, more: Value) -> Answer {
    let mut members = json!({ "stream": stream });
    members.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    world.chat(&request(&members)).await
}

pub(crate) fn bodies(backend: &Backend) -> Vec<Value> {
    backend.seen().iter().map(|seen| seen.json()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_demanded_of_a_vllm_without_a_tool_parser_is_asked_for_as_json_and_arrives_as_a_call()
{
    let text = "[[backend]]\nname = \"b\"\nurl = \"http://b\"\nengine = \"vllm\"\nwindow = 8000\nmodel = \"m\"\ntool_parser = false\n";
    let written = r#"{"name": "read_file", "arguments": {"path": "src/a<b>.rs", "lines": 20}}"#;
    let named = json!({ "type": "function", "function": { "name": "read_file" } });
    for choice in [json!("required"), named] {
        for stream in [false, true] {
            let world = World::configured(text);
            world.backend("b").then(reply(written, "stop", stream));
            let answer = ask(&world, stream, json!({ "tool_choice": choice })).await;
            assert_eq!(calls(&answer), good_call(), "{}", answer.body);
            let [sent] = bodies(world.backend("b")).try_into().expect("one request");
            assert_eq!(sent["tool_choice"], "none");
            assert_eq!(sent["response_format"]["type"], "json_schema");
            assert!(
                answer.header("x-switchback-adjusted").contains("the demanded call is asked for as JSON")
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_model_is_told_once_what_is_wrong_with_a_call_and_the_client_sees_only_the_second() {
    for stream in [false, true] {
        let world = wishing("invalid_calls = \"ask-again\"");
        let text = format!("Let me look.\n\n{}\n{CALL}", wrong_call());
        world.backend("b").then(reply(&text, "stop", stream)).then(reply(CALL, "stop", stream));
        let answer = ask(&world, stream, json!({})).await;
        assert_eq!(calls(&answer), good_call());
        assert!(
            !answer.body.contains("Let me look") && !answer.body.contains("all of them"),
            "{}",
            answer.body
        );
        assert_eq!(answer.header("x-switchback-adjusted"), WRONG);
        let [first, second] = bodies(world.backend("b")).try_into().expect("two requests");
        let messages = second["messages"].as_array().expect("messages");
        assert_eq!(messages[..1], first["messages"].as_array().expect("messages")[..]);
        let said = &messages[1];
        assert_eq!(
            (&said["role"], said["tool_calls"].as_array().map(Vec::len)),
            (&json!("assistant"), Some(2))
        );
        for (nth, words) in [(0, "lines must be an integer"), (1, "another call of this turn was invalid")] {
            let result = &messages[2 + nth];
            assert_eq!(result["tool_call_id"], said["tool_calls"][nth]["id"]);
            assert!(result["content"].as_str().expect("text").contains(words), "{result}");
        }
        assert_eq!(messages.len(), 4);
        let others = |body: &Value| {
            let mut body = body.clone();
            body.as_object_mut().expect("an object").remove("messages");
            body
        };
        assert_eq!(others(&first), others(&second));
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_answer_that_is_no_better_leaves_the_first_as_it_was() {
    let good = Reply::says("I give up.");
    for second in [reply(&wrong_call(), "stop", false), good, Reply::json(500, "{}"), Reply::closes()] {
        let world = wishing("invalid_calls = \"ask-again\"");
        world.backend("b").then(reply(&wrong_call(), "stop", false)).then(second.clone());
        let answer = ask(&world, false, json!({})).await;
        let expected = json!({ "path": "src/a<b>.rs", "lines": "all of them" });
        assert_eq!(calls(&answer), [("read_file".to_owned(), expected)], "{second:?}");
        assert_eq!(
            answer.header("x-switchback-adjusted"),
            format!("{WRONG}; the second answer was no better")
        );
        assert_eq!((world.backend("b").seen().len(), world.backend("c").seen().len()), (2, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_wish_a_wrong_call_passes_and_with_a_note_the_answer_says_so() {
    let note = "call passed although read_file: lines must be an integer, found a string";
    for (wish, noted) in [("", false), ("invalid_calls = \"note\"", true)] {
        for stream in [false, true] {
            let world = wishing(wish);
            world.backend("b").then(reply(&format!("See.\n{}", wrong_call()), "stop", stream));
            let answer = ask(&world, stream, json!({})).await;
            assert_eq!(calls(&answer).len(), 1);
            assert_eq!(world.backend("b").seen().len(), 1);
            let says = if stream {
                answer.body.contains(&format!(": adjusted {note}\n\n"))
            } else {
                answer.header("x-switchback-adjusted") == note
            };
            assert_eq!(says, noted, "{wish} {stream}: {}", answer.body);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_while_an_answer_is_held_back_moves_it_to_the_next_backend() {
    let world = wishing("invalid_calls = \"ask-again\"");
    world.backend("b").then(Reply::stream(vec![role(), delta("Let me look."), Step::Cut]));
    world.backend("c").then(reply(CALL, "stop", true));
    let answer = ask(&world, true, json!({})).await;
    assert_eq!((calls(&answer), answer.header("x-switchback-backend")), (good_call(), "c"));
    assert!(!answer.body.contains("Let me look"));
}

#[tokio::test(start_paused = true)]
async fn what_no_wish_is_about_is_not_held_back() {
    let slow = || Reply::stream(vec![role(), delta("Hello"), Step::Hang]);
    for (wish, more) in [
        ("invalid_calls = \"ask-again\"", json!({ "tools": [] })),
        ("invalid_calls = \"ask-again\"", json!({ "tool_choice": "none" })),
        ("invalid_calls = \"ask-again\"", json!({ "n": 2 })),
        ("missing_calls = \"retry\"\ncut_calls = \"rescue\"\ninvalid_calls = \"note\"", json!({})),
    ] {
        let world = wishing(wish);
        world.backend("b").then(slow());
        let mut members = more.clone();
        members["stream"] = true.into();
        let client = world.client().await;
        let mut answer = client.post("/v1/chat/completions", &request(&members)).await;
        answer.until("Hello").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_hears_signs_of_life_while_its_answer_is_held_back() {
    let world = wishing("invalid_calls = \"ask-again\"");
    let mut steps = frames(&wrong_call(), 500, "stop");
    steps.insert(2, Step::Pause(Duration::from_secs(35)));
    world.backend("b").then(Reply::stream(steps)).then(reply(CALL, "stop", true));
    let answer = ask(&world, true, json!({})).await;
    assert!(answer.body.matches(":\n\n").count() >= 3, "{}", answer.body);
    assert_eq!(answer.header("x-switchback-backend"), "pending");
    assert!(answer.body.contains(&format!(": backend b\n: adjusted {WRONG}\n\n")), "{}", answer.body);
    assert_eq!(calls(&answer), good_call());
}

#[tokio::test(start_paused = true)]
async fn a_demanded_call_that_is_missing_is_asked_for_once_more() {
    for stream in [false, true] {
        for (wish, asked) in [("", 1), ("missing_calls = \"retry\"", 2)] {
            let world = wishing(wish);
            world
                .backend("b")
                .then(reply("I would rather not.", "stop", stream))
                .then(reply(CALL, "stop", stream));
            let answer = ask(&world, stream, json!({ "tool_choice": "required" })).await;
            assert_eq!(world.backend("b").seen().len(), asked);
            let sent = bodies(world.backend("b"));
            assert!(sent.iter().all(|body| *body == sent[0]));
            let expected = if asked == 2 { good_call() } else { Vec::new() };
            assert_eq!(calls(&answer), expected);
            let says = if asked == 2 { "asked again: no call although demanded" } else { "" };
            assert_eq!(answer.header("x-switchback-adjusted"), says);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_must_call_can_be_held_to_a_call_while_its_prompt_stays() {
    let named = json!({ "type": "function", "function": { "name": "read_file" } });
    for (stream, choice) in [(false, json!("required")), (true, json!("required")), (true, named)] {
        let world = wishing("missing_calls = \"constrain\"");
        let json_call = r#"{"name": "read_file", "arguments": {"path": "src/a<b>.rs", "lines": 20}}"#;
        world
            .backend("b")
            .then(reply("I would rather not.", "stop", stream))
            .then(reply(json_call, "stop", stream));
        let answer = ask(&world, stream, json!({ "tool_choice": choice })).await;
        assert_eq!(calls(&answer), good_call(), "{choice}: {}", answer.body);
        let [first, second] = bodies(world.backend("b")).try_into().expect("two requests");
        assert_eq!((&first["tools"], &first["messages"]), (&second["tools"], &second["messages"]));
        assert_eq!(second["tool_choice"], "none");
        let schema = &second["response_format"]["json_schema"]["schema"];
        assert_eq!(schema["properties"]["name"]["enum"], json!(["read_file"]));
        assert!(answer.header("x-switchback-adjusted").starts_with("asked again for nothing but a call"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_of_another_tool_than_the_named_one_is_none() {
    for stream in [false, true] {
        let world = wishing("missing_calls = \"retry\"");
        let other = r#"<tool_call>
{"name": "list", "arguments": {}}
</tool_call>"#;
        world.backend("b").then(reply(other, "stop", stream)).then(reply(CALL, "stop", stream));
        let tool = |name: &str| json!({ "type": "function", "function": { "name": name } });
        let more = json!({ "tools": [tool("read_file"), tool("list")], "tool_choice": tool("read_file") });
        let answer = ask(&world, stream, more).await;
        let names: Vec<String> = calls(&answer).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["read_file"]);
        assert_eq!(answer.header("x-switchback-adjusted"), "asked again: no call although demanded");
    }
}

fn losing(how: &str) -> World {
    World::configured(&format!(
        "[[backend]]\nname = \"b\"\nurl = \"http://b\"\nengine = \"vllm\"\nwindow = 8000\nmodel = \"m\"\nstreamed_required = \"{how}\"\n[[model]]\nname = \"m\"\naliases = [\"auto\"]\n"
    ))
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_loses_streamed_calls_is_asked_for_auto_if_the_operator_says_so() {
    let world = losing("as-auto");
    for (stream, choice, sent) in
        [(true, "required", "auto"), (false, "required", "required"), (true, "auto", "auto")]
    {
        world.backend("b").then(reply(CALL, "stop", stream));
        let answer = ask(&world, stream, json!({ "tool_choice": choice })).await;
        assert_eq!(calls(&answer), good_call());
        assert_eq!(bodies(world.backend("b")).last().expect("a request")["tool_choice"], sent);
        let says = if choice == sent { "" } else { "tool_choice required weakened to auto" };
        assert_eq!(answer.header("x-switchback-adjusted"), says);
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_loses_streamed_calls_is_asked_for_a_whole_answer_and_the_client_gets_its_stream() {
    let world = losing("whole");
    let call = json!({ "id": "c1", "type": "function", "function": { "name": "read_file", "arguments": "{\"path\":\"src/a<b>.rs\",\"lines\":20}" } });
    let message = json!({ "role": "assistant", "content": "So:", "reasoning": "Hm.", "tool_calls": [call] });
    let choice = json!({ "index": 0, "message": message, "finish_reason": "tool_calls" });
    let usage = json!({ "prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14 });
    let whole = json!({ "id": "c", "object": "chat.completion", "created": 7, "model": "m", "choices": [choice], "usage": usage });
    world.backend("b").then(Reply::json(200, &whole.to_string()));
    let options = json!({ "tool_choice": "required", "stream_options": { "include_usage": true } });
    let answer = ask(&world, true, options).await;
    assert_eq!(calls(&answer), good_call());
    let message = assembled(&answer);
    assert_eq!((message.content.as_str(), message.finish.as_deref()), ("So:", Some("tool_calls")));
    assert!(answer.body.contains("\"prompt_tokens\":9") && answer.body.ends_with("data: [DONE]\n\n"));
    assert_eq!(answer.header("content-type"), "text/event-stream; charset=utf-8");
    assert_eq!(answer.header("x-switchback-adjusted"), "asked without streaming");
    let sent = &bodies(world.backend("b"))[0];
    assert_eq!((&sent["stream"], sent.get("stream_options")), (&json!(false), None));
    assert_eq!(sent["tool_choice"], "required");
}

#[tokio::test(start_paused = true)]
async fn what_the_proxy_changed_in_a_request_is_named_in_the_answer() {
    let world = World::configured(
        "[[backend]]\nname = \"b\"\nurl = \"http://b\"\nengine = \"vllm\"\nwindow = 8000\nmodel = \"m\"\nneeds = [\"string-content\", \"nine-character-ids\"]\n\
         drop = [\"/store\", \"/metadata\"]\n[[client]]\nname = \"all\"\nmin_output = 100\nsampling = { temperature = 0.6 }\n",
    );
    world.backend("b").then(Reply::says("x")).then(Reply::stream(vec![role(), delta("x"), finish("stop")]));
    let parts = json!([{ "role": "user", "content": [{ "type": "text", "text": "hi" }] }]);
    let body = json!({ "model": "m", "messages": parts, "max_tokens": 64, "store": true });
    let answer = ask(&world, false, body).await;
    assert_eq!(
        answer.header("x-switchback-adjusted"),
        "temperature set to 0.6; output raised to 100; content joined to strings; /store left out"
    );
    let plain = json!({ "model": "m", "tools": null });
    assert_eq!(ask(&world, true, plain).await.header("x-switchback-adjusted"), "temperature set to 0.6");
}
