//! Where requests go, and what is said about it.

use proptest::prelude::*;

use crate::harness::{Reply, Step, World, ask, ask_stream, delta, finish, role, words};

#[tokio::test(start_paused = true)]
async fn a_short_prompt_goes_to_the_first_backend_and_a_long_one_to_the_first_that_carries_it() {
    let world = World::new(&[("single", 2000), ("dual", 100_000)], "");
    world.backend("single").then(Reply::says("short"));
    world.backend("dual").then(Reply::says("long"));
    let short = world.chat(&ask("hello")).await;
    let long = world.chat(&ask(&words(5000))).await;
    assert_eq!(
        (short.header("x-switchback-backend"), long.header("x-switchback-backend")),
        ("single", "dual")
    );
    assert!(
        long.header("x-switchback-reason").contains("not single: "),
        "{}",
        long.header("x-switchback-reason")
    );
    assert!(!short.header("x-request-id").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_backends_own_count_decides_where_bounds_do_not() {
    let world = World::new(&[("single", 2000), ("dual", 100_000)], "");
    world.backend("single").counts(2500).then(Reply::says("no"));
    world.backend("dual").then(Reply::says("yes"));
    // Between a few hundred and a few thousand tokens, as far as bytes tell.
    let answer = world.chat(&ask(&"x".repeat(4000))).await;
    assert_eq!(answer.header("x-switchback-backend"), "dual");
    assert_eq!(answer.header("x-switchback-tokens"), "2500");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_can_carry_is_refused_in_the_words_that_clients_act_on_and_nothing_is_sent() {
    let world = World::new(&[("small", 1000), ("large", 2000)], "");
    let answer = world.chat(&ask(&words(5000))).await;
    assert_eq!(answer.status, 400);
    let error = answer.error();
    assert_eq!(error["code"], "context_length_exceeded");
    assert_eq!(error["type"], "invalid_request_error");
    let message = error["message"].as_str().expect("a message");
    assert!(
        message.contains("> 2000 maximum") && message.contains("maximum context length is 2000 tokens"),
        "{message}"
    );
    assert!(world.backend("small").seen().is_empty() && world.backend("large").seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_request_leaves_byte_for_byte_but_for_what_a_rule_touched() {
    let world = World::new(&[("single", 8000)], "");
    world.backend("single").then(Reply::says("ok")).then(Reply::says("ok"));
    let body = r#" { "messages" : [ {"role":"user","content":"caf\u00e9 \ud83d\ude80"} ], "seed":12345678901234567890, "x":1.0, "x":{"b":1,"a":2} , "model":"m"} "#;
    world.chat(body).await;
    world.chat(&body.replace(r#""model":"m""#, r#""model":"auto","max_tokens":9000"#)).await;
    let seen = world.backend("single").seen();
    assert_eq!(seen[0].body, body);
    let limited = seen[1].json()["max_tokens"].as_u64().expect("a limit");
    assert_eq!(
        seen[1].body,
        body.replace(r#""model":"m""#, &format!(r#""model":"m","max_tokens":{limited}"#))
    );
    assert!((1..8000).contains(&limited));
}

#[tokio::test(start_paused = true)]
async fn the_model_list_tells_the_largest_window_under_every_name_that_clients_read() {
    let world = World::new(&[("single", 2000), ("dual", 100_000)], "");
    let list = world.get("/v1/models").await.json();
    let card = &list["data"][0];
    assert_eq!(card["id"], "m");
    for member in ["max_model_len", "context_length", "context_window"] {
        assert_eq!(card[member], 100_000, "{member}");
    }
    assert_eq!(card["meta"]["n_ctx"], 100_000);
    assert_eq!(world.get("/models/auto").await.json()["max_model_len"], 100_000);
    assert_eq!(world.get("/v1/models/nope").await.status, 404);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_model_is_refused_with_the_nearest_name_that_is_served() {
    let world = World::configured(
        "[[backend]]\nname = \"b\"\nurl = \"http://b\"\nwindow = 1000\n[[model]]\nname = \"qwen3.6-27b\"\nbackends = [\"b\"]\n",
    );
    let answer = world.chat(r#"{"model":"qwen3.6-27","messages":[{"role":"user","content":"x"}]}"#).await;
    assert_eq!(answer.status, 404);
    assert_eq!(answer.error()["code"], "model_not_found");
    assert_eq!(answer.error()["hint"], "did you mean `qwen3.6-27b`?");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn no_request_above_a_backends_limits_ever_reaches_it(
        limits in prop::collection::vec((200u64..6000, proptest::option::of(100u64..6000)), 1..4),
        sizes in prop::collection::vec(1u64..8000, 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let mut text = String::new();
            for (n, (window, single)) in limits.iter().enumerate() {
                text.push_str(&format!("[[backend]]\nname = \"b{n}\"\nurl = \"http://b{n}\"\nengine = \"vllm\"\nmodel = \"m\"\nwindow = {window}\n"));
                if let Some(single) = single.filter(|single| single < window) {
                    text.push_str(&format!("limit = {{ single = {single} }}\n"));
                }
            }
            let world = World::configured(&text);
            for size in sizes {
                for n in 0..limits.len() {
                    // Whoever is asked, the count is true: the prompt text carries its own size.
                    world.backend(&format!("b{n}")).counts(size).then(Reply::json(500, "{}"));
                }
                world.chat(&ask(&format!("{size} {}", "x".repeat(7000)))).await;
            }
            for (n, (window, single)) in limits.iter().enumerate() {
                let limit = single.filter(|single| single < window).unwrap_or(*window);
                for request in world.backend(&format!("b{n}")).seen() {
                    let content = request.json()["messages"][0]["content"].as_str().expect("text").to_owned();
                    let size: u64 = content.split(' ').next().and_then(|size| size.parse().ok()).expect("a size");
                    assert!(size <= limit && size < *window, "{size} tokens reached b{n} ({window}, {single:?})");
                }
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_reads_slower_than_thought_is_not_thought_fast_again() {
    let world = World::new(&[("slow", 60_000), ("other", 60_000)], "[routing]\nsticky = false\n");
    let usage = r#"data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":10000,"completion_tokens":1,"total_tokens":10001}}"#;
    for topic in 0..3 {
        let steps = vec![
            Step::Pause(std::time::Duration::from_secs(90)),
            role(),
            delta("Read."),
            finish("stop"),
            Step::Send(format!("{usage}\n\ndata: [DONE]\n\n")),
        ];
        world.backend("slow").counts(10_000).then(Reply::stream(steps));
        let answer = world.chat(&ask_stream(&format!("{topic} {}", words(10_000)))).await;
        assert!(answer.body.contains("Read."), "{}", answer.body);
    }
    world.backend("other").then(Reply::streams(&["Sooner."]));
    let answer = world.chat(&ask_stream(&words(10_000))).await;
    assert_eq!(answer.header("x-switchback-backend"), "other");
    let reason = answer.header("x-switchback-reason");
    assert!(reason.contains("before slow, which would end after"), "{reason}");
}

/// A chat with these messages: (role, content as JSON).
fn conversation(messages: &[(&str, String)]) -> String {
    let messages: Vec<String> = messages
        .iter()
        .map(|(role, content)| format!(r#"{{"role":"{role}","content":{content}}}"#))
        .collect();
    format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(","))
}

/// Text of many lines, as JSON.
fn lines(first: &str) -> String {
    let rules: String = (0..300).map(|n| format!("\nrule {n}: always keep to rule {n}")).collect();
    serde_json::Value::from(format!("{first}{rules}")).to_string()
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_nobody_names_goes_where_its_beginning_was_read_in_whatever_notation() {
    let world = World::new(&[("first", 60_000), ("second", 60_000)], "");
    let beginning = [("system", lines("You are a coder.")), ("user", "\"hello\"".to_owned())];
    // The first one refuses, so the second reads it.
    world.backend("first").then(Reply::json(500, r#"{"error":{"message":"boom","code":500}}"#));
    world.backend("second").then(Reply::says("hi")).then(Reply::says("there"));
    world.chat(&conversation(&beginning)).await;
    // The next turn, with the same texts as parts, and with another first question of the same program.
    let parts = format!(r#"[{{"type":"text","text":{}}}]"#, beginning[0].1);
    let turn = [
        ("system", parts),
        ("user", "\"hello\"".to_owned()),
        ("assistant", "\"hi\"".to_owned()),
        ("user", "\"go on\"".to_owned()),
    ];
    assert_eq!(world.chat(&conversation(&turn)).await.header("x-switchback-backend"), "second");
    world.backend("second").then(Reply::says("again"));
    let other = [("system", lines("You are a coder.")), ("user", "\"something else\"".to_owned())];
    assert_eq!(world.chat(&conversation(&other)).await.header("x-switchback-backend"), "second");
    world.backend("first").then(Reply::says("new"));
    let new = [("system", lines("You are a poet.")), ("user", "\"hello\"".to_owned())];
    assert_eq!(world.chat(&conversation(&new)).await.header("x-switchback-backend"), "first");
}

#[tokio::test(start_paused = true)]
async fn a_line_that_changes_with_each_turn_is_told_with_the_tokens_that_it_costs() {
    let world = World::new(&[("dual", 60_000)], "");
    let named = |first: &str, turns: usize| {
        let mut messages = vec![("system", lines(first)), ("user", "\"hello\"".to_owned())];
        for _ in 0..turns {
            messages.extend([("assistant", "\"hi\"".to_owned()), ("user", "\"go on\"".to_owned())]);
        }
        let body = conversation(&messages);
        let mut request = crate::harness::request(http::Method::POST, "/v1/chat/completions", &body);
        request.headers_mut().insert("x-session-id", http::HeaderValue::from_static("ses_1"));
        request
    };
    let drift = async || {
        let metrics = world.get("/metrics").await.body;
        let line = metrics.lines().find(|line| line.starts_with("switchback_prefix_drift_tokens_total{"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    for (turn, first) in ["It is 12:00.", "It is 12:00.", "It is 12:01."].into_iter().enumerate() {
        world.backend("dual").then(Reply::says("hi"));
        assert_eq!(drift().await, 0);
        world.client().await.send(named(first, turn)).await.whole().await;
    }
    assert!(drift().await > 1000, "{}", drift().await);
}
