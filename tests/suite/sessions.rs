//! Conversations that must shorten themselves, that fail again and again, and answers that take long without being streamed.

use std::time::Duration;

use http::Method;

use crate::harness::{Answer, Reply, Step, World, ask, ask_stream, delta, request, role, words};

async fn sent(world: &World, agent: &str, body: &str) -> Answer {
    let mut sent = request(Method::POST, "/v1/chat/completions", body);
    sent.headers_mut().insert("user-agent", agent.parse().expect("a value"));
    world.client().await.send(sent).await.whole().await
}

fn with_tools(body: &str) -> String {
    body.replacen('{', r#"{"tools":[{"type":"function","function":{"name":"a"}}],"#, 1)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_compacts_is_told_so_while_its_larger_compaction_call_still_fits() {
    let world = World::new(&[("b", 32_000)], "");
    world.backend("b").counts(30_000);
    let turn = with_tools(&ask(&words(30_000)));
    let refused = sent(&world, "opencode/1.18.33", &turn).await;
    assert_eq!(
        (refused.status.as_u16(), refused.error()["code"].as_str()),
        (400, Some("context_length_exceeded"))
    );
    world.backend("b").counts(31_500).then(Reply::says("a summary"));
    // Its compaction call is without tools.
    assert_eq!(sent(&world, "opencode/1.18.33", &ask(&words(31_500))).await.status, 200);
    // Who stops instead of compacting may use all there is.
    world.backend("b").counts(30_000).then(Reply::says("ok"));
    assert_eq!(sent(&world, "OpenAI/Python 3.57.0", &turn).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_fails_again_and_again_is_stopped_with_an_error_that_no_client_repeats() {
    let world = World::new(&[("b", 8000)], "[answer]\noverflow_loop = { count = 3, within = \"60s\" }\n");
    let broken = || Reply::json(500, r#"{"error":{"message":"something odd","code":500}}"#);
    for _ in 0..3 {
        world.backend("b").then(broken());
        assert_eq!(world.chat(&ask("hi")).await.status, 502);
    }
    let stopped = world.chat(&ask("hi")).await;
    assert_eq!((stopped.status.as_u16(), stopped.error()["code"].as_str()), (400, Some("failure_loop")));
    assert_eq!(world.backend("b").seen().len(), 3);
    world.backend("b").then(Reply::says("another conversation"));
    assert_eq!(world.chat(&ask("another")).await.status, 200);
    tokio::time::sleep(Duration::from_secs(61)).await;
    world.backend("b").then(Reply::says("later"));
    assert_eq!(world.chat(&ask("hi")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_failing_request_stops_no_other_one_of_another_dialect_or_body() {
    let world = World::new(&[("b", 8000)], "[answer]\noverflow_loop = { count = 2, within = \"60s\" }\n");
    let asks = |text: &str| format!(r#"{{"model":"m","input":"{text}"}}"#);
    for _ in 0..2 {
        world.backend("b").then(Reply::json(500, r#"{"error":{"message":"something odd","code":500}}"#));
        assert_eq!(world.post("/v1/responses", &asks("this fails")).await.status, 502);
    }
    let stopped = world.post("/v1/responses", &asks("this fails")).await;
    assert_eq!(stopped.error()["code"], "failure_loop");
    for (path, body) in [
        ("/v1/responses", asks("another")),
        ("/v1/embeddings", asks("this fails")),
        ("/v1/completions", r#"{"model":"m","prompt":"this fails"}"#.to_owned()),
    ] {
        world.backend("b").then(Reply::json(200, r#"{"object":"response","status":"completed","output":[],"data":[],"choices":[{"index":0,"text":"fine","finish_reason":"stop"}]}"#));
        let answer = world.post(path, &body).await;
        assert!(!answer.body.contains("failure_loop"), "{path}: {}", answer.body);
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_cut_count_as_failures_until_one_is_whole() {
    let world = World::new(&[("b", 8000)], "[answer]\noverflow_loop = { count = 2, within = \"600s\" }\n");
    let cut = || Reply::stream(vec![role(), delta("half"), Step::Cut]);
    for _ in 0..3 {
        world.backend("b").then(cut()).then(Reply::streams(&["whole"]));
        assert!(world.chat(&ask_stream("hi")).await.body.contains("answer_cut"));
        assert!(world.chat(&ask_stream("hi")).await.body.contains("whole"));
    }
    for _ in 0..2 {
        world.backend("b").then(cut());
        world.chat(&ask_stream("hi")).await;
    }
    assert_eq!(world.chat(&ask_stream("hi")).await.error()["code"], "failure_loop");
}

#[tokio::test(start_paused = true)]
async fn a_plain_answer_that_takes_long_begins_with_blanks_for_clients_that_read_them() {
    let world = World::new(
        &[("b", 8000)],
        "[[client]]\nname = \"own\"\nwhen = { user_agent = \"own\" }\nblanks = true\n",
    );
    let slow = |answer: &str| {
        Reply::stream(vec![Step::Pause(Duration::from_secs(290)), Step::Send(answer.to_owned())])
    };
    let whole =
        r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}]}"#;
    world
        .backend("b")
        .then(slow(whole))
        .then(slow(whole))
        .then(slow(r#"{"error":{"message":"no","code":500}}"#));
    let answer = sent(&world, "own/1", &ask("hi")).await;
    assert_eq!(answer.header("content-type"), "application/json");
    assert!(answer.body.starts_with("   ") && answer.ended, "{}", answer.body);
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "x");
    assert_eq!(sent(&world, "anything", &ask("hi")).await.body, whole);
    let failed = sent(&world, "own/1", &ask("hi")).await;
    assert_eq!((failed.status.as_u16(), failed.error()["code"].as_str()), (200, Some("backend_failed")));
}
