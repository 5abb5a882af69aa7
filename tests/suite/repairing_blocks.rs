//! Repair in Messages and Responses: what a user of Claude Code or Codex needs of it.

use serde_json::{Value, json};
use switchback_tests::wire::message::Message;

use crate::harness::{Answer, Reply, Step, World};
use crate::repairing::CALL;
use crate::speaking::{APIS, Api, Part, event, sent};

const ARGUMENTS: &str = r#"{"path":"real.rs"}"#;

fn tools() -> Value {
    json!([{ "type": "function", "function": { "name": "read_file", "parameters": {
        "type": "object",
        "properties": { "path": { "type": "string" }, "lines": { "type": "integer" } },
        "required": ["path"],
    } } }])
}

fn world() -> World {
    World::new(&[("b", 8000)], "")
}

async fn streamed(api: Api, steps: Vec<Step>, more: &Value) -> Answer {
    api.streamed(&world(), &api.request(&tools(), true, more), steps).await
}

async fn plain(api: Api, answer: &Value) -> Value {
    let world = world();
    world.backend("b").then(Reply::json(200, &answer.to_string()));
    world.post(api.path(), &api.request(&tools(), false, &json!({}))).await.json()
}

/// The message of a stream and of a whole answer that say the same; both must be the same, but for the ids.
async fn both(api: Api, parts: &[Part<'_>], finish: &str) -> Message {
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

fn shown(message: &Message) -> (String, String, Vec<(String, Value)>, Option<String>) {
    let read = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
    let calls = message.calls.iter().map(|call| (call.name.clone(), read(&call.arguments))).collect();
    (message.content.trim().to_owned(), message.reasoning.clone(), calls, message.finish.clone())
}

fn calls(message: &Message) -> Vec<Value> {
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
async fn a_llama_cpp_that_numbers_nothing_and_ends_its_items_late_is_repaired_the_same() {
    // Captured in October 2026, shortened: no numbers, and all items end at the end.
    let message = |status: &str, content: Value| json!({ "type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": content });
    let thought = json!({ "type": "reasoning", "id": "rs_1", "summary": [], "status": "completed",
        "content": [{ "type": "reasoning_text", "text": "Hm." }] });
    let whole = message("completed", json!([{ "type": "output_text", "text": CALL }]));
    let (head, tail) = CALL.split_at(30);
    let words =
        |text: &str| json!({ "type": "response.output_text.delta", "item_id": "msg_1", "delta": text });
    let steps: Vec<Step> = [
        json!({ "type": "response.created", "response": { "id": "r1", "object": "response", "status": "in_progress" } }),
        json!({ "type": "response.output_item.added", "item": {
            "type": "reasoning", "id": "rs_1", "summary": [], "content": [], "status": "in_progress" } }),
        json!({ "type": "response.reasoning_text.delta", "item_id": "rs_1", "delta": "Hm." }),
        json!({ "type": "response.output_item.added", "item": message("in_progress", json!([])) }),
        json!({ "type": "response.content_part.added", "item_id": "msg_1", "part": { "type": "output_text", "text": "" } }),
        words(head),
        words(tail),
        json!({ "type": "response.output_item.done", "item": thought }),
        json!({ "type": "response.output_text.done", "item_id": "msg_1", "text": CALL }),
        json!({ "type": "response.content_part.done", "item_id": "msg_1", "part": { "type": "output_text", "text": CALL } }),
        json!({ "type": "response.output_item.done", "item": whole }),
        json!({ "type": "response.completed", "response": { "id": "r1", "object": "response", "status": "completed",
            "output": [thought, whole] } }),
    ]
    .iter()
    .map(event)
    .collect();
    let answer = streamed(Api::Responses, steps, &json!({})).await;
    let read = Api::Responses.assembled(&answer);
    assert_eq!(read.faults, Vec::<String>::new(), "{}", answer.body);
    assert_eq!((read.reasoning.as_str(), read.content.as_str(), read.calls.len()), ("Hm.", "", 1));
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
async fn blocks_behind_one_that_was_put_in_or_left_out_are_numbered_anew() {
    let structured = Part::Call("read_file", ARGUMENTS);
    for api in APIS {
        // The text is a call that the backend has sent itself, too: its block goes.
        let same =
            "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"real.rs\"}}\n</tool_call>";
        let message = both(api, &[Part::Thought("Hm."), Part::Text(same), structured], "tool_calls").await;
        assert_eq!((calls(&message), message.content.trim()), (vec![json!({ "path": "real.rs" })], ""));
        // Another one is a draft and stays text.
        let draft = same.replace("real.rs", "draft.rs");
        let message = both(api, &[Part::Text(&draft), structured], "tool_calls").await;
        assert_eq!(
            (calls(&message), message.content.as_str()),
            (vec![json!({ "path": "real.rs" })], &*draft)
        );
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
async fn structured_calls_are_mended_where_there_is_one_reading() {
    for api in APIS {
        // A stop reason that contradicts the content, and a number in quotes.
        let call = Part::Call("read_file", "{\"path\": \"a\", \"lines\": \"20\"}");
        let message = both(api, &[call], "stop").await;
        assert_eq!(calls(&message), [json!({ "path": "a", "lines": 20 })]);
        assert_eq!(message.finish.as_deref(), Some("tool_calls"));
        // No id.
        let mut answer = api.answer(&[call], "tool_calls");
        let at = if api == Api::Messages { "/content/0/id" } else { "/output/0/call_id" };
        *answer.pointer_mut(at).expect("an id") = "".into();
        let mended = api.of_body(&plain(api, &answer).await);
        assert!(!mended.calls[0].id.is_empty());
        let steps = api.steps(&[call], 5, "tool_calls");
        let without = steps.into_iter().map(|step| match step {
            Step::Send(text) => Step::Send(text.replace("\"t0\"", "\"\"")),
            other => other,
        });
        let message = api.assembled(&streamed(api, without.collect(), &json!({})).await);
        assert_eq!(
            (message.faults.len(), message.calls[0].id.is_empty()),
            (0, false),
            "{:?}",
            message.faults
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_input_that_came_whole_with_its_block_comes_as_clients_read_it() {
    let block =
        json!({ "type": "tool_use", "id": "t0", "name": "read_file", "input": { "path": "real.rs" } });
    let steps = vec![
        event(&json!({ "type": "message_start", "message": { "role": "assistant", "content": [] } })),
        event(&json!({ "type": "content_block_start", "index": 0, "content_block": block })),
        event(&json!({ "type": "content_block_stop", "index": 0 })),
        event(&json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } })),
        event(&json!({ "type": "message_stop" })),
    ];
    let answer = streamed(Api::Messages, steps, &json!({})).await;
    assert!(answer.body.contains("input_json_delta"), "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn tools_of_a_namespace_and_tools_for_free_text_are_called_as_codex_declares_them() {
    let declared = json!([
        { "type": "namespace", "name": "mcp__files", "description": "files", "tools": [
            { "type": "function", "name": "stat", "parameters": { "type": "object", "properties": { "path": { "type": "string" } } } }] },
        { "type": "custom", "name": "apply_patch", "description": "patch" },
        { "type": "web_search" },
    ]);
    let call = |name: &str, arguments: &Value| {
        format!("<tool_call>\n{}\n</tool_call>", json!({ "name": name, "arguments": arguments }))
    };
    let text = [
        call("mcp__files__stat", &json!({ "path": "a" })),
        call("apply_patch", &json!({ "input": "*** Begin\n\"x\"" })),
    ]
    .join("\n");
    let api = Api::Responses;
    let request = |stream: bool| api.request(&json!([]), stream, &json!({ "tools": declared }));
    let check = |output: &Value| {
        let item = |kind: &str| {
            let items = output.as_array().expect("items").iter();
            items
                .clone()
                .find(|item| item["type"] == kind)
                .cloned()
                .unwrap_or_else(|| panic!("{kind} in {output}"))
        };
        let function = item("function_call");
        assert_eq!((&function["namespace"], &function["name"]), (&json!("mcp__files"), &json!("stat")));
        let custom = item("custom_tool_call");
        assert_eq!((&custom["name"], &custom["input"]), (&json!("apply_patch"), &json!("*** Begin\n\"x\"")));
    };
    for piece in [1, 50] {
        let answer =
            api.streamed(&world(), &request(true), api.steps(&[Part::Text(&text)], piece, "stop")).await;
        let message = api.assembled(&answer);
        assert_eq!((message.faults, message.calls.len()), (Vec::new(), 2), "{}", answer.body);
        let last = answer.body.trim_end().rsplit("data: ").next().expect("an end");
        check(&serde_json::from_str::<Value>(last).expect("JSON")["response"]["output"]);
    }
    let world = world();
    world.backend("b").then(Reply::json(200, &api.answer(&[Part::Text(&text)], "stop").to_string()));
    check(&world.post(api.path(), &request(false)).await.json()["output"]);
}
