//! Errors in the words that each client acts on, before the head and after it; and answers put right for clients that stumble.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Reply, Step, World, ask, ask_stream, delta, finish, request, role};

fn event(kind: &str, data: &Value) -> Step {
    Step::Send(format!("event: {kind}\ndata: {data}\n\n"))
}

fn code(answer: &Answer) -> (u16, Option<String>) {
    (answer.status.as_u16(), answer.error()["code"].as_str().map(str::to_owned))
}

#[tokio::test(start_paused = true)]
async fn a_picture_that_the_one_backend_that_is_up_cannot_read_is_no_failure_of_a_backend() {
    let world = World::new(&[("a", 8000), ("b", 8000)], "");
    let blind = r#"{"error":{"message":"m is not a multimodal model","type":"BadRequestError","code":400}}"#;
    world.backend("a").then(Reply::json(400, blind));
    world.backend("b").listens(false);
    let picture = json!([{ "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } }]);
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": picture }] }).to_string();
    let answer = world.chat(&body).await;
    assert_eq!(code(&answer), (503, Some("no_backend".to_owned())));
    assert!(answer.headers.contains_key("retry-after"));
    world.backend("b").listens(true);
    for name in ["a", "b"] {
        world.backend(name).then(Reply::json(400, blind));
    }
    assert_eq!(code(&world.chat(&body).await), (400, Some("refused_by_backend".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_no_backend_takes_is_hopeless_and_sdks_are_told_not_to_repeat() {
    let world = World::new(&[("a", 8000)], "");
    world.backend("a").then(Reply::json(401, r#"{"error":"Unauthorized"}"#));
    let answer = world.chat(&ask("hi")).await;
    assert_eq!(code(&answer), (502, Some("backend_refuses_key".to_owned())));
    assert_eq!(answer.headers["x-should-retry"], "false");
}

#[tokio::test(start_paused = true)]
async fn codex_is_told_of_a_cut_answer_in_the_event_that_it_reads() {
    let world = World::new(&[("a", 8000)], "");
    let started = json!({ "type": "response.created", "response": { "id": "r", "status": "in_progress" } });
    let text = json!({ "type": "response.output_text.delta", "delta": "half" });
    world.backend("a").then(Reply::stream(vec![
        event("response.created", &started),
        event("response.output_text.delta", &text),
        Step::Cut,
    ]));
    let body = json!({ "model": "m", "stream": true, "input": "hi" }).to_string();
    let answer = world.post("/v1/responses", &body).await;
    let last = answer.body.split("event: response.failed\ndata: ").nth(1).expect("the event");
    let failed: Value = serde_json::from_str(last.trim()).expect("JSON");
    assert_eq!(failed["response"]["error"]["code"], "server_error");
    assert_eq!(failed["error"]["code"], "answer_cut");
    assert!(!answer.body.contains("response.completed"));
}

#[tokio::test(start_paused = true)]
async fn claude_code_is_told_in_the_words_of_its_dialect_that_nobody_is_up() {
    let world = World::new(&[("a", 8000)], "");
    world.backend("a").listens(false);
    let body = json!({ "model": "m", "max_tokens": 10, "messages": [{ "role": "user", "content": "hi" }] });
    let answer = world.post("/v1/messages", &body.to_string()).await;
    let told: Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!(
        (answer.status.as_u16(), &told["type"], &told["error"]["type"]),
        (503, &json!("error"), &json!("overloaded_error"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_again_for_ever_while_answers_are_empty_is_stopped() {
    let world = World::new(&[("a", 8000)], "[answer]\noverflow_loop = { count = 3, within = \"60s\" }\n");
    for _ in 0..3 {
        world.backend("a").then(Reply::says(""));
        assert_eq!(world.chat(&ask("hi")).await.status, 200);
    }
    assert_eq!(code(&world.chat(&ask("hi")).await), (400, Some("failure_loop".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn chunks_that_typed_clients_refuse_are_put_right_and_others_leave_as_they_came() {
    let world = World::new(
        &[("a", 8000)],
        "[[client]]\nname = \"typed\"\nwhen = { user_agent = \"typed\" }\nrules_on = [\"null-members\"]\n",
    );
    let odd = |tail: &str| {
        let send = |text: &str| Step::Send(format!("data: {text}\n\n"));
        Reply::stream(vec![
            role(),
            send(
                r#"{"id":"c","choices":[{"index":0,"delta":{"content":"x","refusal":null},"finish_reason":""}]}"#,
            ),
            send(r#"{"id":"c","choices":[{"index":0,"delta":null,"finish_reason":"stop"}]}"#),
            Step::Send(tail.to_owned()),
        ])
    };
    world.backend("a").then(odd("data: [DONE]\n\n"));
    let answer = world.chat(&ask_stream("hi")).await;
    assert!(
        answer.body.contains(r#"{"content":"x","refusal":null},"finish_reason":null}"#),
        "{}",
        answer.body
    );
    assert!(answer.body.contains(r#""delta":{},"finish_reason":"stop""#), "{}", answer.body);
    world.backend("a").then(Reply::stream(vec![
        role(),
        delta("x"),
        finish("stop"),
        Step::Send("data: [DONE]\n\n".to_owned()),
    ]));
    let mut sent = request(Method::POST, "/v1/chat/completions", &ask_stream("hi"));
    sent.headers_mut().insert("user-agent", "typed/1".parse().expect("a value"));
    let answer = world.client().await.send(sent).await.whole().await;
    assert!(
        answer.body.contains(r#""finish_reason":null"#) && answer.body.contains(r#""content":"x""#),
        "{}",
        answer.body
    );
}
