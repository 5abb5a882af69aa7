//! Conversations that outgrow a backend: they leave it one way before they reach what kills it, and may be read ahead.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Answer, Reply, Step, World, role, words};

/// A small card with a cliff at 15,000 tokens of a conversation, and a large machine.
fn world(more: &str) -> World {
    World::configured(&format!(
        "[[backend]]\nname = \"small\"\nurl = \"http://small\"\nengine = \"vllm\"\nwindow = 32000\nlimit = {{ accumulated = 15000 }}\nmodel = \"m\"\n\
         [[backend]]\nname = \"large\"\nurl = \"http://large\"\nengine = \"vllm\"\nwindow = 200000\nmodel = \"m\"\n\
         [[model]]\nname = \"m\"\nbackends = [\"small\", \"large\"]\n{more}"
    ))
}

/// A turn of an agent whose prompt has about so many tokens.
fn turn(tokens: usize, turns: usize) -> String {
    let mut messages = vec![json!({ "role": "user", "content": words(tokens) })];
    for nth in 0..turns {
        messages.push(json!({ "role": "assistant", "content": format!("answer {nth}") }));
        messages.push(json!({ "role": "user", "content": format!("question {nth}") }));
    }
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    json!({ "model": "m", "messages": messages, "tools": tools, "stream": true }).to_string()
}

fn at(answer: &Answer) -> &str {
    answer.headers["x-switchback-backend"].to_str().expect("text")
}

fn counts(world: &World, tokens: u64) {
    for name in ["small", "large"] {
        world.backend(name).counts(tokens);
    }
}

#[tokio::test(start_paused = true)]
async fn a_conversation_leaves_a_small_card_before_the_wall_and_does_not_come_back() {
    let world = world("");
    for (tokens, backend) in [(9_000, "small"), (11_000, "small"), (12_500, "large"), (14_000, "large")] {
        counts(&world, tokens);
        world.backend(backend).then(Reply::streams(&["ok"]));
        let answer = world.chat(&turn(9_000, (tokens / 1000) as usize - 8)).await;
        assert_eq!(at(&answer), backend, "{tokens}");
    }
    // Nothing is read ahead unless the operator says so.
    assert_eq!((world.backend("small").seen().len(), world.backend("large").seen().len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn the_large_backend_reads_ahead_what_is_about_to_move_if_the_operator_says_so() {
    let world = world("[routing]\nprewarm = true\n");
    counts(&world, 11_500);
    world.backend("small").then(Reply::streams(&["ok"]));
    world.backend("large").then(Reply::says("x"));
    let first = turn(9_000, 1);
    assert_eq!(at(&world.chat(&first).await), "small");
    world.backend("large").until_seen(1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let ahead = world.backend("large").seen()[0].json();
    let sent: Value = serde_json::from_str(&first).expect("JSON");
    assert_eq!((&ahead["messages"], &ahead["tools"]), (&sent["messages"], &sent["tools"]));
    assert_eq!((&ahead["max_tokens"], &ahead["stream"]), (&json!(1), &json!(false)));
    let metrics = world.get("/metrics").await.body;
    assert!(metrics.contains("switchback_prefill_ahead_tokens_total{backend=\"large\"} 11500"), "{metrics}");
    counts(&world, 12_500);
    world.backend("large").then(Reply::streams(&["ok"]));
    assert_eq!(at(&world.chat(&turn(9_000, 2)).await), "large");
}

#[tokio::test(start_paused = true)]
async fn what_is_read_ahead_gives_way_to_any_request() {
    let world = world("[routing]\nprewarm = true\n");
    counts(&world, 11_500);
    world.backend("small").then(Reply::streams(&["ok"]));
    let slow = Reply::stream(vec![Step::Pause(Duration::from_secs(60)), role()]);
    world.backend("large").then(slow).then(Reply::streams(&["at once"]));
    world.chat(&turn(9_000, 1)).await;
    world.backend("large").until_seen(1).await;
    counts(&world, 40_000);
    let began = tokio::time::Instant::now();
    let answer = world.chat(&turn(39_000, 0)).await;
    assert_eq!(at(&answer), "large");
    assert!(
        answer.body.contains("at once") && began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    let metrics = world.get("/metrics").await.body;
    assert!(!metrics.contains("switchback_prefill_ahead_tokens_total{"), "{metrics}");
}

/// The same two on one card: who is away has to be loaded, which takes 100 s.
async fn on_one_card(more: &str) -> (World, std::sync::Arc<crate::harness::Swapper>) {
    let rows = [("small", "window = 32000\nlimit = { accumulated = 15000 }"), ("large", "window = 200000")];
    let (world, swapper) = World::on_one_card_with(&rows, more);
    // Nobody is protected from going any more.
    tokio::time::sleep(Duration::from_secs(301)).await;
    (world, swapper)
}

#[tokio::test(start_paused = true)]
async fn the_larger_backend_is_loaded_ahead_for_a_conversation_that_is_about_to_leave_and_reads_it() {
    let (world, swapper) = on_one_card("").await;
    for (tokens, turns) in [(9_000, 1), (10_000, 2)] {
        counts(&world, tokens);
        world.backend("small").then(Reply::streams(&["ok"]));
        assert_eq!(at(&world.chat(&turn(9_000, turns)).await), "small");
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert!(swapper.switches().is_empty(), "{tokens}");
    }
    counts(&world, 11_500);
    world.backend("small").then(Reply::streams(&["ok"]));
    world.backend("large").then(Reply::says("x"));
    let third = turn(9_000, 3);
    assert_eq!(at(&world.chat(&third).await), "small");
    // While its user reads.
    world.backend("large").until_seen(1).await;
    assert_eq!(swapper.switches(), ["large"]);
    let ahead = world.backend("large").seen()[0].json();
    let sent: Value = serde_json::from_str(&third).expect("JSON");
    assert_eq!((&ahead["messages"], &ahead["max_tokens"]), (&sent["messages"], &json!(1)));
    counts(&world, 13_000);
    world.backend("large").then(Reply::streams(&["ok"]));
    let fourth = world.chat(&turn(9_000, 4)).await;
    assert_eq!(at(&fourth), "large");
    assert!(!fourth.headers["x-switchback-reason"].to_str().expect("text").contains("until it was loaded"));
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_was_moved_by_a_load_is_not_moved_back() {
    let (world, swapper) = on_one_card("").await;
    counts(&world, 11_500);
    world.backend("small").then(Reply::streams(&["ok"]));
    world.backend("large").then(Reply::says("x"));
    world.chat(&turn(9_000, 1)).await;
    world.backend("large").until_seen(1).await;
    // Somebody else needs the small one meanwhile.
    tokio::time::sleep(Duration::from_secs(301)).await;
    world.backend("small").then(Reply::says("ok"));
    let other = crate::harness::ask("hi").replace("\"m\"", "\"only-small\"");
    let answer = world.chat(&other).await;
    assert_eq!(at(&answer), "small", "{}", answer.body);
    tokio::time::sleep(Duration::from_secs(100)).await;
    counts(&world, 12_500);
    world.backend("large").then(Reply::streams(&["Here."]));
    let second = world.chat(&turn(9_000, 2)).await;
    assert!(second.body.contains("Here.") && second.body.contains(": waiting, large "), "{}", second.body);
    assert_eq!(swapper.switches(), ["large", "small", "large"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_loaded_ahead_for_chats_for_who_may_not_swap_or_where_the_operator_does_not_want_it() {
    let guest = "[[client]]\nname = \"guest\"\nmay_swap = false\n";
    let nightly = "[[client]]\nname = \"nightly\"\nclass = \"background\"\n";
    for more in ["ahead = false\n", guest, nightly, ""] {
        let (world, swapper) = on_one_card(more).await;
        counts(&world, 11_500);
        world.backend("small").then(Reply::streams(&["ok"]));
        let body = turn(9_000, 1);
        let body = if more.is_empty() { body.replace("\"tools\"", "\"no_tools\"") } else { body };
        assert_eq!(at(&world.chat(&body).await), "small");
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(swapper.switches().is_empty(), "{more}");
    }
}
