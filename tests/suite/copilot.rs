//! The arithmetic of Copilot's LLM Gateway (1.6.0, src/chat/tokenBudget.ts), with the numbers that its users published.

use serde_json::{Value, json};

use crate::harness::{Answer, Reply, World};

/// Tokens of a "hello" with 50 tools (noonghunna/club-3090#2), and with 75 (its issue 74), by its own estimate of four letters a token.
const HELLO: [u64; 2] = [19_937, 27_400];

/// What it asks for: a fifth more than its estimate and 256 are set aside, at most 4096 and at least 64 are left.
fn budget(window: u64, estimate: u64) -> u64 {
    window.saturating_sub(estimate + estimate / 5).saturating_sub(256).clamp(64, 4096)
}

/// Two cards and one: the larger window is what it should learn.
fn world(tokens: u64) -> World {
    let world = World::new(&[("single", 32_768), ("dual", 262_144)], "");
    world.backend("single").counts(tokens);
    world.backend("dual").counts(tokens);
    world
}

async fn hello(world: &World, max_tokens: u64) -> Answer {
    let body = json!({
        "model": "m", "stream": true, "stream_options": { "include_usage": true }, "max_tokens": max_tokens, "temperature": 0,
        "parallel_tool_calls": true, "tool_choice": "auto", "messages": [{ "role": "user", "content": "hello" }],
        "tools": [{ "type": "function", "function": { "name": "read_file", "description": "x".repeat(40_000), "parameters": { "type": "object" } } }],
    });
    world.chat(&body.to_string()).await
}

/// Where the request went, and with which limit.
fn sent(world: &World) -> (&'static str, Value) {
    let of = |name: &'static str| {
        world.backend(name).seen().last().map(|seen| (name, seen.json()["max_tokens"].clone()))
    };
    of("single").or(of("dual")).expect("a request")
}

#[tokio::test(start_paused = true)]
async fn with_the_window_that_the_model_list_tells_it_asks_for_all_it_may() {
    let listed =
        world(0).get("/v1/models").await.json()["data"][0]["max_model_len"].as_u64().expect("a window");
    assert_eq!(listed, 262_144);
    assert_eq!(HELLO.map(|estimate| budget(listed, estimate)), [4096, 4096]);
    let world = world(HELLO[0]);
    world.backend("single").then(Reply::streams(&["Hello", "!"]));
    let answer = hello(&world, budget(listed, HELLO[0])).await;
    assert_eq!(sent(&world), ("single", json!(4096)));
    assert!(
        answer.body.contains("\"finish_reason\":\"stop\"")
            && answer.header("x-switchback-adjusted").is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn where_it_believes_that_the_window_is_full_its_64_tokens_are_no_wish() {
    let believed = 32_768;
    assert_eq!(HELLO.map(|estimate| budget(believed, estimate)), [4096, 64]);
    let world = world(HELLO[1]);
    world.backend("single").then(Reply::streams(&["Hello", "!"]));
    world.backend("dual").then(Reply::streams(&["Hello", "!"]));
    let answer = hello(&world, budget(believed, HELLO[1])).await;
    let (backend, limit) = sent(&world);
    assert_eq!((backend, limit), ("single", json!(4096)));
    assert!(answer.body.contains("\"finish_reason\":\"stop\""), "{}", answer.body);
    assert!(answer.header("x-switchback-adjusted").contains("4096"), "{:?}", answer.headers);
}

#[tokio::test(start_paused = true)]
async fn what_is_raised_still_fits_the_window_and_a_middle_figure_is_meant() {
    // 30,000 tokens leave 2704 of 32,768 with the margin of 64; the large machine is down.
    let world = world(30_000);
    world.backend("dual").listens(false);
    world.backend("single").then(Reply::streams(&["x"])).then(Reply::streams(&["x"]));
    hello(&world, 64).await;
    assert_eq!(sent(&world), ("single", json!(2704)));
    hello(&world, 396).await;
    assert_eq!(sent(&world), ("single", json!(396)));
}
