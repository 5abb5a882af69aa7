//! Structured calls in Messages and Responses: mended where there is one reading, numbered anew where a block was put in or left out,
//! and as each kind of tool is declared.

use serde_json::{Value, json};

use crate::harness::{Reply, Step};
use crate::repairing::CALL;
use crate::repairing_blocks::{ARGUMENTS, both, calls, plain, shown, streamed, world};
use crate::speaking::{APIS, Api, Part, event, sent};

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

#[tokio::test(start_paused = true)]
async fn blocks_that_the_repair_does_not_know_pass_and_are_numbered_anew() {
    let api = Api::Messages;
    let search = json!({ "type": "server_tool_use", "id": "s1", "name": "web_search", "input": {} });
    let mut steps = api.steps(&[Part::Text(CALL)], 8, "stop");
    let end = steps.len() - 2;
    let own = |event_of: &str, more: Value| {
        let mut json = json!({ "type": event_of, "index": 1 });
        json.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        event(&json)
    };
    let piece = json!({ "type": "input_json_delta", "partial_json": "{\"q\":1}" });
    let events = [
        own("content_block_start", json!({ "content_block": search })),
        own("content_block_delta", json!({ "delta": piece })),
        own("content_block_stop", json!({})),
    ];
    steps.splice(end..end, events);
    let answer = streamed(api, steps, &json!({})).await;
    // The text is no block, so the search is the first one; the call comes at the end.
    let starts = answer.body.matches("event: content_block_start").count();
    assert_eq!(starts, 2, "{}", answer.body);
    assert!(
        answer.body.contains("\"index\":0,\"content_block\":{\"type\":\"server_tool_use\""),
        "{}",
        answer.body
    );
    assert!(answer.body.contains("\"index\":1,\"content_block\":{\"type\":\"tool_use\""), "{}", answer.body);
    assert!(
        answer.body.contains(
            "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\""
        )
    );

    let mut whole = api.answer(&[Part::Text(CALL)], "stop");
    whole["content"].as_array_mut().expect("blocks").push(search.clone());
    let content = plain(api, &whole).await["content"].clone();
    assert_eq!((&content[0], &content[1]["type"]), (&search, &json!("tool_use")), "{content}");
}

#[tokio::test(start_paused = true)]
async fn free_text_that_a_backend_sends_itself_leaves_byte_for_byte() {
    let item = |input: &str| json!({ "type": "custom_tool_call", "id": "ctc_1", "call_id": "t1", "name": "apply_patch", "input": input });
    let whole = item("*** \"Begin\"\n");
    let at = |kind: &str, member: &str, text: &str| json!({ "type": kind, "item_id": "ctc_1", "output_index": 0, member: text });
    let response = |status: &str, output: Value| json!({ "id": "r1", "object": "response", "status": status, "output": output });
    let events = [
        json!({ "type": "response.created", "response": response("in_progress", json!([])) }),
        json!({ "type": "response.output_item.added", "output_index": 0, "item": item("") }),
        at("response.custom_tool_call_input.delta", "delta", "*** \"Be"),
        at("response.custom_tool_call_input.delta", "delta", "gin\"\n"),
        at("response.custom_tool_call_input.done", "input", "*** \"Begin\"\n"),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": whole }),
        json!({ "type": "response.completed", "response": response("completed", json!([whole])) }),
    ];
    let steps: Vec<Step> = events.iter().map(event).collect();
    let all = sent(&steps);
    let declared = json!({ "tools": [{ "type": "custom", "name": "apply_patch", "description": "patch" }] });
    let answer = streamed(Api::Responses, steps, &declared).await;
    assert_eq!(answer.body, all);
    assert_eq!(Api::Responses.assembled(&answer).faults, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn arguments_that_break_off_are_completed_though_the_backend_has_ended_them() {
    let whole = r#"{"path": "a", "lines": 20}"#.to_owned();
    for api in APIS {
        // As whole answers have no such call, the one of the script is broken here.
        for behind in [None, Some(Part::Text("So.")), Some(Part::Call("read_file", ARGUMENTS))] {
            let parts: Vec<Part<'_>> = [Part::Call("read_file", &whole)].into_iter().chain(behind).collect();
            let steps = api.steps(&parts, 1000, "tool_calls");
            let breaks = |step: Step| match step {
                Step::Send(text) => Step::Send(text.replace("20}", "20")),
                other => other,
            };
            let answer = streamed(api, steps.into_iter().map(breaks).collect(), &json!({})).await;
            let message = api.assembled(&answer);
            assert_eq!(message.faults, Vec::<String>::new(), "{}", answer.body);
            assert_eq!(calls(&message)[0], json!({ "path": "a", "lines": 20 }), "{}", answer.body);
            assert_eq!(
                (message.finish.as_deref(), message.faults),
                (Some("tool_calls"), Vec::new()),
                "{}",
                answer.body
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_structured_call_that_the_limit_cut_is_told_as_it_came() {
    for api in APIS {
        let steps = api.steps(&[Part::Call("read_file", "{\"path\": \"a\"}")], 1000, "length");
        let cuts = |step: Step| match step {
            Step::Send(text) => Step::Send(text.replace("a\\\"}\"", "a\"")),
            other => other,
        };
        let steps: Vec<Step> = steps.into_iter().map(cuts).collect();
        assert!(sent(&steps).contains("a\"") && !sent(&steps).contains("a\\\"}"), "{}", sent(&steps));
        let answer = streamed(api, steps, &json!({})).await;
        let message = api.assembled(&answer);
        assert_eq!(message.calls[0].arguments, "{\"path\": \"a", "{}", answer.body);
        assert_eq!(
            (message.finish.as_deref(), message.faults),
            (Some("length"), Vec::new()),
            "{}",
            answer.body
        );
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_the_order_of_its_parts_an_answer_is_the_same_plain_and_streamed() {
    let same = "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"real.rs\"}}\n</tool_call>";
    let draft = same.replace("real.rs", "draft.rs");
    let real = Part::Call("read_file", ARGUMENTS);
    let kinds = [Part::Thought("Hm. "), Part::Text("On it. "), Part::Text(same), Part::Text(&draft), real];
    for (first, second) in kinds.iter().flat_map(|first| kinds.iter().map(move |second| (*first, *second))) {
        let parts = [Part::Text("So.\n"), first, second];
        let has_calls = parts.iter().any(|part| matches!(part, Part::Call(..)));
        let finish = if has_calls { "tool_calls" } else { "stop" };
        for api in APIS {
            let whole = api.of_body(&plain(api, &api.answer(&parts, finish)).await);
            let answer = streamed(api, api.steps(&parts, 3, finish), &json!({})).await;
            let message = api.assembled(&answer);
            assert_eq!(message.faults, Vec::<String>::new(), "{api:?} {parts:?}: {}", answer.body);
            assert_eq!(shown(&message), shown(&whole), "{api:?} {parts:?}: {}", answer.body);
        }
    }
}
