//! Repair in Messages and Responses: what a user of Claude Code or Codex needs of it.

use serde_json::{Value, json};
use switchback_tests::wire::message::Message;

use crate::harness::{Answer, Reply, Step, World};
use crate::repairing::CALL;
use crate::speaking::{APIS, Api, Part, sent};

pub(crate) const ARGUMENTS: &str = r#"{"path":"real.rs"}"#;

pub(crate) fn tools() -> Value {
    json!([{ "type": "function", "function": { "name": "read_file", "parameters": {
        "type": "object",
        "properties": { "path": { "type": "string" }, "lines": { "type": "integer" } },
        "required": ["path"],
    } } }])
}

pub(crate) fn world() -> World {
    World::new(&[("b", 8000)], "")
}

pub(crate) async fn streamed(api: Api, steps: Vec<Step>, more: &Value) -> Answer {
    api.streamed(&world(), &api.request(&tools(), true, more), steps).await
}

pub(crate) async fn plain(api: Api, answer: &Value) -> Value {
    let world = world();
    world.backend("b").then(Reply::json(200, &answer.to_string()));
    world.post(api.path(), &api.request(&tools(), false, &json!({}))).await.json()
}

/// The message of a stream and of a whole answer that say the same; both must be the same, but for the ids.
pub(crate) async fn both(api: Api, parts: &[Part<'_>], finish: &str) -> Message {
    let whole = api.of_body(&plain(api, &api.answer(parts, finish)).await);
    for piece in [1, 3, 1000] {
        let answer = streamed(api, api.steps(parts, piece, finish), &json!({})).await;
        let message = api.assembled(&answer);
        assert_eq!(message.faults, Vec::<String>::new(), "{api:?} in pieces of {piece}: {}", answer.body);
        assert_eq!(shown(&message), shown(&whole), "{api:?} in pieces of {piece}: {}", answer.body);
    }
    assert_eq!(whole.faults, Vec::<String>::new());
    whole
}

pub(crate) fn shown(message: &Message) -> (String, String, Vec<(String, Value)>, Option<String>) {
    let read = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
    let calls = message.calls.iter().map(|call| (call.name.clone(), read(&call.arguments))).collect();
    (message.content.trim().to_owned(), message.reasoning.clone(), calls, message.finish.clone())
}

pub(crate) fn calls(message: &Message) -> Vec<Value> {
    message.calls.iter().map(|call| serde_json::from_str(&call.arguments).expect("JSON")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_call_that_came_as_text_is_a_call_and_no_empty_block_stands_before_it() {
    let call = json!({ "path": "src/a<b>.rs", "lines": 20 });
    for api in APIS {
        for text in [CALL.to_owned(), format!("\n\n{CALL}\n"), format!("Let me look.\n\n{CALL}")] {
            let message = both(api, &[Part::Text(&text)], "stop").await;
            assert_eq!(calls(&message), std::slice::from_ref(&call));
            assert_eq!(message.content.trim(), text.split('<').next().expect("text").trim());
            assert_eq!(message.finish.as_deref(), Some("tool_calls"));
            let prefix = if api == Api::Messages { "toolu_" } else { "call_" };
            assert!(message.calls[0].id.starts_with(prefix), "{}", message.calls[0].id);
        }
        let thinking = both(api, &[Part::Thought("Hm."), Part::Text(CALL)], "stop").await;
        assert_eq!((thinking.reasoning.as_str(), thinking.content.as_str()), ("Hm.", ""));
        let twice = both(api, &[Part::Text(&format!("{CALL}\n{CALL}"))], "stop").await;
        assert_eq!(calls(&twice), [call.clone(), call.clone()]);
        assert_ne!(twice.calls[0].id, twice.calls[1].id);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_needs_nothing_leaves_byte_for_byte() {
    let talk = "If x <tool and y> 3, write `<tool_call>` like this:\n```xml\n<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>\n```\nDone.";
    let thought = Part::Thought("Hm, <tool");
    let structured = Part::Call("read_file", ARGUMENTS);
    for api in APIS {
        for parts in [
            vec![thought, Part::Text(talk)],
            vec![thought, Part::Text("So."), structured, Part::Call("read_file", "{\"path\":\"b\"}")],
            vec![Part::Text(" ")],
            vec![structured, Part::Text("Then.")],
        ] {
            let has_calls = parts.iter().any(|part| matches!(part, Part::Call(..)));
            let finish = if has_calls { "tool_calls" } else { "stop" };
            let answer = api.answer(&parts, finish);
            assert_eq!(plain(api, &answer).await, answer);
            for piece in [1, 5, 1000] {
                let steps = api.steps(&parts, piece, finish);
                let all = sent(&steps);
                assert_eq!(streamed(api, steps, &json!({})).await.body, all, "{api:?} in pieces of {piece}");
            }
        }
        for more in [json!({ "tools": [] }), no_choice(api)] {
            let steps = api.steps(&[Part::Text(CALL)], 4, "stop");
            let all = sent(&steps);
            assert_eq!(streamed(api, steps, &more).await.body, all, "{more}");
        }
    }
}

fn no_choice(api: Api) -> Value {
    match api {
        Api::Messages => json!({ "tool_choice": { "type": "none" } }),
        Api::Responses => json!({ "tool_choice": "none" }),
    }
}

#[tokio::test(start_paused = true)]
async fn white_space_before_a_call_is_no_block_of_text() {
    for api in APIS {
        let parts = [Part::Text("\n\n"), Part::Call("read_file", ARGUMENTS)];
        assert_eq!(both(api, &parts, "tool_calls").await.content, "");
    }
}

#[tokio::test(start_paused = true)]
async fn a_vllm_without_a_parser_is_asked_in_words_that_it_takes_and_its_text_is_read_here() {
    let text = "[[backend]]\nname = \"b\"\nurl = \"http://b\"\nengine = \"vllm\"\nwindow = 8000\nmodel = \"m\"\ntool_parser = false\n";
    let json = r#"{"name": "read_file", "arguments": {"path": "a.rs"}}"#;
    let none = |api: Api| no_choice(api)["tool_choice"].clone();
    for (api, choice, said, sent) in [
        (Api::Messages, json!({ "type": "auto" }), CALL, none(Api::Messages)),
        (Api::Messages, Value::Null, CALL, none(Api::Messages)),
        (Api::Messages, json!({ "type": "any" }), json, none(Api::Messages)),
        // 0.32 takes this one as it is.
        (Api::Responses, json!("auto"), CALL, json!("auto")),
        (Api::Responses, json!({ "type": "function", "name": "read_file" }), json, none(Api::Responses)),
    ] {
        let world = World::configured(text);
        let request = api.request(&tools(), true, &json!({ "tool_choice": choice }));
        let answer = api.streamed(&world, &request, api.steps(&[Part::Text(said)], 7, "stop")).await;
        let message = api.assembled(&answer);
        assert_eq!((message.faults, message.calls.len()), (Vec::new(), 1), "{choice}: {}", answer.body);
        let seen = world.backend("b").seen().last().expect("a request").json();
        assert_eq!(seen["tool_choice"], sent, "{choice}");
        let schema = [&seen["output_config"]["format"], &seen["text"]["format"]];
        assert_eq!(schema.iter().any(|format| format["type"] == "json_schema"), said == json, "{seen}");
        assert_eq!(answer.header("x-switchback-adjusted").contains("read here"), sent != choice);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_limit_cut_never_runs_and_the_text_before_it_stays() {
    for api in APIS {
        let message = both(api, &[Part::Text(&format!("Let me look.\n{}", &CALL[..60]))], "length").await;
        assert_eq!((message.content.trim(), message.calls.len()), ("Let me look.", 0));
        assert_eq!(message.finish.as_deref(), Some("length"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_thought_that_came_as_text_is_a_thought() {
    for api in APIS {
        let text = format!("<think>Hm.</think>\n\nSo.\n{CALL}");
        let message = both(api, &[Part::Text(&text)], "stop").await;
        assert_eq!(
            (message.reasoning.as_str(), message.content.trim(), message.calls.len()),
            ("Hm.", "So.", 1)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_in_a_thought_with_nothing_behind_it_runs() {
    for api in APIS {
        let message = both(api, &[Part::Thought(&format!("I read it.\n{CALL}"))], "stop").await;
        assert_eq!((message.calls.len(), message.finish.as_deref()), (1, Some("tool_calls")));
        assert_eq!(message.reasoning.trim(), "I read it.");
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_call_streams_while_it_is_written() {
    let long = "line\n".repeat(4000);
    let call = format!(
        "<tool_call>\n<function=read_file>\n<parameter=path>\n{long}</parameter>\n</function>\n</tool_call>"
    );
    for api in APIS {
        let mut steps = api.steps(&[Part::Text(&call)], 100, "stop");
        steps.truncate(120);
        steps.push(Step::Hang);
        let world = world();
        world.backend("b").then(Reply::stream(steps));
        let request = api.request(&tools(), true, &json!({}));
        let mut answer = world.client().await.post(api.path(), &request).await;
        answer.until("line").await;
        assert!(!answer.body.contains("<function"), "{}", answer.body);
        let message = both(api, &[Part::Text(&call)], "stop").await;
        assert_eq!(calls(&message), [json!({ "path": long.trim_end_matches('\n') })]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_held_was_not_shown_so_a_death_amid_a_call_moves_to_the_next_backend() {
    for api in APIS {
        let world = World::new(&[("b", 8000), ("spare", 8000)], "");
        let mut dies = api.steps(&[Part::Text(CALL)], 4, "stop");
        dies.truncate(20);
        dies.push(Step::Cut);
        world.backend("b").then(Reply::stream(dies));
        world.backend("spare").then(Reply::stream(api.steps(&[Part::Text("Done.")], 4, "stop")));
        let answer = world.post(api.path(), &api.request(&tools(), true, &json!({}))).await;
        assert_eq!(answer.body, sent(&api.steps(&[Part::Text("Done.")], 4, "stop")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_hears_signs_of_life_while_a_call_is_held() {
    for api in APIS {
        let mut steps = api.steps(&[Part::Text(&CALL[..60])], 4, "stop");
        steps.truncate(15);
        steps.push(Step::Hang);
        let world = world();
        world.backend("b").then(Reply::stream(steps));
        let mut answer =
            world.client().await.post(api.path(), &api.request(&tools(), true, &json!({}))).await;
        answer.until(": ").await;
        assert!(!answer.body.contains("tool_call") && !answer.body.contains("function="), "{}", answer.body);
    }
}
