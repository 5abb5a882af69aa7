//! Backends that come and go while requests wait for them, and what a request may do when its engine died under it.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::harness::{Answer, Reply, Step, World, ask, ask_stream, delta, role, words};

const DEAD: &str = r#"data: {"error": {"message": "EngineCore encountered an issue. See stack trace (above) for the root cause.", "type": "InternalServerError", "param": null, "code": 500}}"#;

/// Asks, and goes on meanwhile.
async fn asks(world: &World, body: String) -> JoinHandle<Answer> {
    let client = world.client().await;
    tokio::spawn(async move { client.post("/v1/chat/completions", &body).await.whole().await })
}

/// An answer that takes so long.
fn slow(seconds: u64) -> Reply {
    let pause = Step::Pause(Duration::from_secs(seconds / 8));
    let mut steps = vec![role()];
    for _ in 0..8 {
        steps.extend([delta("x"), pause.clone()]);
    }
    steps.extend([crate::harness::finish("stop"), Step::Send("data: [DONE]\n\n".into())]);
    Reply::stream(steps)
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_place_takes_one_at_a_backend_that_comes_up_meanwhile() {
    let one_slot = |name: &str| {
        format!(
            "[[backend]]\nname = \"{name}\"\nurl = \"http://{name}\"\nengine = \"vllm\"\nwindow = 8000\nslots = 1\nmodel = \"m\"\n"
        )
    };
    let world = World::configured(&format!("{}{}", one_slot("busy"), one_slot("away")));
    world.backend("away").listens(false);
    world.backend("busy").then(slow(160));
    tokio::time::sleep(Duration::from_secs(30)).await;
    let first = asks(&world, ask_stream("first")).await;
    world.backend("busy").until_seen(1).await;
    let began = Instant::now();
    let second = asks(&world, ask_stream("second")).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(!second.is_finished(), "there is no place for it");
    world.backend("away").listens(true).then(Reply::streams(&["Here."]));
    let answer = second.await.expect("an answer");
    assert!(answer.body.contains("Here."), "{}", answer.body);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(!first.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_only_backend_that_died_under_it_and_goes_back() {
    let world = World::new(&[("only", 8000)], "");
    tokio::time::sleep(Duration::from_secs(6)).await;
    world.backend("only").then(Reply::stream(vec![Step::Pause(Duration::from_secs(1)), Step::Cut]));
    let asking = asks(&world, ask_stream("hi")).await;
    world.backend("only").until_seen(1).await;
    world.backend("only").listens(false);
    tokio::time::sleep(Duration::from_secs(100)).await;
    world.backend("only").listens(true).then(Reply::streams(&["Back."]));
    let answer = asking.await.expect("an answer");
    assert!(answer.body.contains("Back.") && !answer.body.contains("error"), "{}", answer.body);
    assert!(answer.body.contains(":\n\n"), "the client hears that it is still there: {}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_failed_and_is_still_there_is_not_tried_again() {
    let world = World::new(&[("only", 8000)], "");
    world.backend("only").then(Reply::stream(vec![role(), Step::Cut]));
    let answer = world.chat(&ask_stream("hi")).await;
    assert_eq!((answer.status.as_u16(), answer.error()["code"].as_str()), (502, Some("backend_failed")));
    assert_eq!(world.backend("only").seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_three_engines_died_of_is_not_carried_to_a_fourth() {
    let world = World::new(&[("a", 8000), ("b", 8000), ("c", 8000), ("d", 8000)], "");
    for name in ["a", "b", "c"] {
        world.backend(name).then(Reply::stream(vec![Step::Send(format!("{DEAD}\n\ndata: [DONE]\n\n"))]));
    }
    let answer = world.chat(&ask("hi")).await;
    assert_eq!((answer.status.as_u16(), answer.error()["code"].as_str()), (502, Some("backend_failed")));
    assert!(world.backend("d").seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_length_that_is_only_guessed_is_no_overflow() {
    // Nobody can count, and by its bytes the prompt may have 5,000 tokens or 90,000.
    let world = World::new(&[("one", 200_000), ("two", 200_000)], "");
    world.backend("one").then(Reply::stream(vec![Step::Send(format!("{DEAD}\n\ndata: [DONE]\n\n"))]));
    world.backend("two").then(Reply::streams(&["Done."]));
    let answer = world.chat(&ask_stream(&"internationalization ".repeat(4_000))).await;
    assert!(answer.body.contains("Done."), "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_kills_an_engine_after_the_head_was_sent_is_told_as_an_overflow_in_each_dialect() {
    let long = words(25_000);
    let chat = json!({ "model": "m", "stream": true, "messages": [{ "role": "user", "content": long }] });
    let messages = json!({ "model": "m", "stream": true, "max_tokens": 9, "messages": [{ "role": "user", "content": long }] });
    let responses = json!({ "model": "m", "stream": true, "input": long });
    for (path, body, event, end) in [
        ("/v1/chat/completions", chat, "data: {\"error\":", "data: [DONE]\n\n"),
        ("/v1/messages", messages, "event: error\n", "\n\n"),
        ("/v1/responses", responses, "event: response.failed\n", "\n\n"),
    ] {
        let world = World::new(&[("only", 60_000)], "");
        world.backend("only").counts(30_000);
        if path == "/v1/messages" {
            world.backend("only").then(Reply::json(200, r#"{"input_tokens":30000}"#));
        }
        world.backend("only").then(Reply::stream(vec![Step::Pause(Duration::from_secs(60)), Step::Cut]));
        let answer = world.post(path, &body.to_string()).await;
        assert_eq!(answer.status, 200, "the head was sent: {}", answer.body);
        assert!(answer.body.contains(event) && answer.body.ends_with(end), "{path}: {}", answer.body);
        assert!(answer.body.contains("prompt is too long: "), "{path}: {}", answer.body);
        assert!(
            path == "/v1/messages" || answer.body.contains("context_length_exceeded"),
            "{path}: {}",
            answer.body
        );
        let read = world.backend("only").seen().iter().filter(|seen| !seen.path.contains("count")).count();
        assert_eq!(read, 1, "{path}");
    }
}
