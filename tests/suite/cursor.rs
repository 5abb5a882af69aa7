//! Cursor's requests: chat's path with the body of another API, tools of two shapes, and a patch tool that takes free text.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Reply, Step, World, finish, request, role};

const PATCH: &str = "*** Begin Patch\n+ \"x\"\n*** End Patch";

fn world() -> World {
    World::new(&[("b", 8000)], "")
}

fn patch_tool() -> Value {
    json!({ "type": "custom", "name": "ApplyPatch", "description": "Edits.", "format": { "type": "grammar", "syntax": "lark", "definition": "start: x" } })
}

fn asked(input: Value) -> String {
    json!({
        "model": "m", "stream": true, "stream_options": { "include_usage": true }, "user": "u1",
        "tools": [patch_tool(), { "type": "function", "name": "read_file", "parameters": { "type": "object", "properties": { "path": { "type": "string" } } } }],
        "input": input,
    })
    .to_string()
}

/// A call, in two pieces.
fn calls(name: &str, arguments: &str) -> Reply {
    let (one, two) = arguments.split_at(arguments.len() / 2);
    let delta = |call: Value| {
        let chunk = json!({ "id": "c", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": { "tool_calls": [call] }, "finish_reason": null }] });
        Step::Send(format!("data: {chunk}\n\n"))
    };
    Reply::stream(vec![
        role(),
        delta(
            json!({ "index": 0, "id": "call_1", "type": "function", "function": { "name": name, "arguments": one } }),
        ),
        delta(json!({ "index": 0, "function": { "arguments": two } })),
        finish("tool_calls"),
        Step::Send("data: [DONE]\n\n".to_owned()),
    ])
}

/// The calls of a streamed answer, its pieces put together.
fn called(answer: &Answer) -> Vec<Value> {
    let data =
        answer.body.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    let chunks = data.map(|data| serde_json::from_str::<Value>(data).expect("json"));
    chunks
        .flat_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array().cloned().unwrap_or_default())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_conversation_in_input_is_answered_by_a_chat_backend_and_a_patch_arrives_as_its_text() {
    let world = world();
    world.backend("b").then(calls("ApplyPatch", &json!({ "input": PATCH }).to_string()));
    let answer = world
        .chat(&asked(json!([{ "role": "user", "content": [{ "type": "input_text", "text": "edit" }] }])))
        .await;
    let sent = world.backend("b").seen()[0].json();
    assert_eq!(sent["messages"], json!([{ "role": "user", "content": "edit" }]));
    assert!(
        sent["tools"]
            .as_array()
            .is_some_and(|tools| tools.iter().all(|tool| tool["function"]["name"].is_string()))
    );
    let calls = called(&answer);
    assert_eq!(calls.len(), 1, "{}", answer.body);
    // It looks for `function.name` in every call.
    assert_eq!(calls[0]["function"], json!({ "name": "ApplyPatch", "arguments": PATCH }));
    assert!(
        answer.body.contains(r#""finish_reason":"tool_calls""#) && answer.body.ends_with("data: [DONE]\n\n")
    );
    assert!(answer.header("x-switchback-reason").contains("client cursor"));
}

#[tokio::test(start_paused = true)]
async fn a_call_of_an_ordinary_tool_beside_it_leaves_as_it_came() {
    let world = world();
    world.backend("b").then(calls("read_file", r#"{"path":"a.rs"}"#));
    let answer = world.chat(&asked(json!("read"))).await;
    let arguments: Vec<_> = called(&answer)
        .iter()
        .map(|call| call["function"]["arguments"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(arguments.concat(), r#"{"path":"a.rs"}"#);
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_the_model_wrote_as_text_arrives_as_its_text_and_comes_back_as_a_call() {
    let world = world();
    let written = format!(
        "<tool_call>\n{}\n</tool_call>",
        json!({ "name": "ApplyPatch", "arguments": { "input": PATCH } })
    );
    world.backend("b").then(Reply::streams(&[&written])).then(Reply::says("done"));
    let answer = world.chat(&asked(json!("edit"))).await;
    assert_eq!(called(&answer)[0]["function"]["arguments"], PATCH);
    // Cursor hands it back in the envelope in which it came, with a list of nothing beside it.
    let messages = json!([
        { "role": "user", "content": "edit" },
        { "role": "assistant", "content": [], "tool_calls": [{ "id": "1", "type": "function", "function": { "name": "ApplyPatch", "arguments": PATCH } }] },
        { "role": "tool", "tool_call_id": "1", "content": "applied" },
    ]);
    let body = json!({ "model": "m", "messages": messages, "tools": [patch_tool()] }).to_string();
    assert_eq!(world.chat(&body).await.status, 200);
    let sent = world.backend("b").seen()[1].json();
    let call = &sent["messages"][1];
    assert_eq!(call["content"], "");
    assert_eq!(call["tool_calls"][0]["function"]["arguments"], json!({ "input": PATCH }).to_string());
}

#[tokio::test(start_paused = true)]
async fn other_clients_get_calls_of_free_text_as_openai_has_them() {
    let world = world();
    let whole = json!({ "choices": [{ "index": 0, "finish_reason": "tool_calls", "message": { "role": "assistant", "content": null,
        "tool_calls": [{ "id": "1", "type": "function", "function": { "name": "sql", "arguments": "{\"input\": \"select 1\"}" } }] } }] });
    world.backend("b").then(Reply::json(200, &whole.to_string()));
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "q" }], "tools": [{ "type": "custom", "custom": { "name": "sql" } }] });
    let answer = world.chat(&body.to_string()).await.json();
    let call = &answer["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(
        *call,
        json!({ "id": "1", "type": "custom", "custom": { "name": "sql", "input": "select 1" } })
    );
}

#[tokio::test(start_paused = true)]
async fn an_item_that_no_chat_has_is_refused_with_its_place() {
    let world = world();
    let refused = world.chat(&asked(json!([{ "type": "item_reference", "id": "x" }]))).await;
    assert_eq!((refused.status.as_u16(), &refused.error()["param"]), (400, &json!("input[0].type")));
    let mut sent =
        request(Method::POST, "/v1/responses", &asked(json!([{ "type": "item_reference", "id": "x" }])));
    sent.headers_mut().insert("user-agent", "x".parse().expect("a value"));
    world.backend("b").then(Reply::json(404, r#"{"detail":"Not Found"}"#));
    let forwarded = world.client().await.send(sent).await.whole().await;
    assert_eq!(forwarded.status, 404, "the responses path is for backends that serve it");
}
