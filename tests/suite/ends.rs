//! What ends an answer: in every dialect only a good reason does, and nobody waits for ever for one that never comes.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{Reply, Step, World};

fn event(event: Value) -> Step {
    Step::Send(format!("event: {}\ndata: {event}\n\n", event["type"].as_str().expect("a type")))
}

/// The events of a message up to the end of its text.
fn message() -> Vec<Step> {
    vec![
        event(
            json!({ "type": "message_start", "message": { "id": "msg_1", "type": "message", "role": "assistant", "content": [] } }),
        ),
        event(
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        ),
        event(
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "Paris." } }),
        ),
        event(json!({ "type": "content_block_stop", "index": 0 })),
    ]
}

fn ask(stream: bool) -> String {
    json!({ "model": "m", "stream": stream, "max_tokens": 50, "messages": [{ "role": "user", "content": "Where?" }] }).to_string()
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_stop_reason_is_cut_and_one_that_only_lacks_its_last_event_gets_it() {
    let world = World::new(&[("only", 8000)], "");
    world.backend("only").then(Reply::stream(message()));
    let cut = world.post("/v1/messages", &ask(true)).await.body;
    assert!(cut.contains("event: error") && !cut.contains("message_stop"), "{cut}");

    let stop = event(
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 2 } }),
    );
    for end in [vec![], vec![Step::Cut]] {
        let world = World::new(&[("only", 8000)], "");
        world.backend("only").then(Reply::stream([message(), vec![stop.clone()], end].concat()));
        let whole = world.post("/v1/messages", &ask(true)).await.body;
        assert!(whole.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"), "{whole}");
        assert!(!whole.contains("event: error"), "{whole}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_incomplete_for_no_good_reason_is_asked_for_elsewhere() {
    let response = |reason: &str, text: &str| {
        let output = json!([{ "type": "message", "content": [{ "type": "output_text", "text": text }] }]);
        let response = json!({ "object": "response", "status": "incomplete", "incomplete_details": { "reason": reason }, "output": output });
        Reply::json(200, &response.to_string())
    };
    let body = json!({ "model": "m", "input": "Where?" }).to_string();
    let world = World::new(&[("stops", 8000), ("good", 8000)], "");
    world.backend("stops").then(response("abort", "Par"));
    world.backend("good").then(response("max_output_tokens", "Paris"));
    let answer = world.post("/v1/responses", &body).await;
    assert_eq!(answer.header("x-switchback-backend"), "good", "{}", answer.body);
    assert!(answer.body.contains("Paris"));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_counting_has_the_shape_of_the_api_that_it_belongs_to() {
    let world = World::new(&[("only", 8000)], "");
    let refused = r#"{"error":{"code":400,"message":"request (9000 tokens) exceeds the available context size (8000 tokens)","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8000}}"#;
    world.backend("only").then(Reply::json(400, refused));
    let answer = world.post("/v1/messages/count_tokens", &ask(false)).await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert!(answer.body.starts_with(r#"{"type":"error","error":{"#), "{}", answer.body);
    let broken = world.post("/v1/messages/count_tokens", "{").await;
    assert!(broken.body.starts_with(r#"{"type":"error","error":{"#), "{}", broken.body);
}

#[tokio::test(start_paused = true)]
async fn a_plain_answer_is_not_waited_for_longer_than_all_that_it_may_say_can_take() {
    let backend = |name: &str| {
        format!(
            "[[backend]]\nname = \"{name}\"\nurl = \"http://{name}\"\nengine = \"sglang\"\nwindow = 8000\nmodel = \"m\"\n"
        )
    };
    let world = World::configured(&format!("{}{}", backend("hangs"), backend("good")));
    world.backend("hangs").then(Reply::never());
    world.backend("good").then(Reply::says("Paris."));
    let began = Instant::now();
    let answer = world.chat(&ask(false)).await;
    assert_eq!(answer.header("x-switchback-backend"), "good", "{}", answer.body);
    assert!(began.elapsed() < Duration::from_secs(400), "{:?}", began.elapsed());
}
