//! How answers arrive: bytes as they came, comments while nothing comes, hang-ups that reach the backend.

use std::time::Duration;

use http_body_util::BodyExt as _;
use tokio::time::Instant;

use crate::harness::{Reply, Step, World, ask, ask_stream, delta, finish, request, role};

#[tokio::test(start_paused = true)]
async fn a_plain_answer_leaves_byte_for_byte() {
    let world = World::new(&[("b", 8000)], "");
    let body = r#"{ "choices":[{"index":0,"finish_reason":"stop","message":{"content":"h\u00e9 🚀","role":"assistant"}}],  "x":1.0, "usage":{"prompt_tokens":9,"completion_tokens":1} }"#;
    world.backend("b").then(Reply::json(200, body));
    assert_eq!(world.chat(&ask("hi")).await.body, body);
}

#[tokio::test(start_paused = true)]
async fn a_stream_leaves_byte_for_byte_without_the_backends_comments() {
    let world = World::new(&[("b", 8000)], "");
    let mut steps = vec![
        Step::Send(": PROCESSING\n\n".into()),
        role(),
        delta("Hel"),
        Step::Send(": ping 1\n\n".into()),
        delta("lo"),
    ];
    steps.extend([finish("stop"), Step::Send("data: [DONE]\n\n".into())]);
    let expected: String = steps
        .iter()
        .filter_map(|step| if let Step::Send(text) = step { Some(text.as_str()) } else { None })
        .filter(|text| !text.starts_with(':'))
        .collect();
    world.backend("b").then(Reply::stream(steps));
    let answer = world.chat(&ask_stream("hi")).await;
    assert_eq!(answer.body, expected);
    assert!(answer.ended);
    assert_eq!(answer.header("content-type"), "text/event-stream; charset=utf-8");
    assert_eq!((answer.header("cache-control"), answer.header("x-accel-buffering")), ("no-cache", "no"));
}

#[tokio::test(start_paused = true)]
async fn a_finished_stream_gets_the_end_marker_that_the_backend_forgot() {
    let world = World::new(&[("b", 8000)], "");
    world.backend("b").then(Reply::stream(vec![role(), delta("Done."), finish("stop")]));
    let answer = world.chat(&ask_stream("hi")).await;
    assert!(answer.body.ends_with("data: [DONE]\n\n"));
    assert!(!answer.body.contains("error"));
}

#[tokio::test(start_paused = true)]
async fn usage_is_always_asked_for_and_kept_from_clients_that_did_not_ask() {
    let world = World::new(&[("b", 8000)], "");
    let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}"#;
    let reply = || {
        let end = Step::Send(format!("{usage}\n\ndata: [DONE]\n\n"));
        Reply::stream(vec![role(), delta("x"), finish("stop"), end])
    };
    world.backend("b").then(reply()).then(reply());
    let silent = world.chat(&ask_stream("hi")).await;
    let asked = world
        .chat(
            &ask_stream("hi")
                .replace(r#""stream":true"#, r#""stream":true,"stream_options":{"include_usage":true}"#),
        )
        .await;
    assert!(!silent.body.contains("usage"));
    assert!(asked.body.contains(usage));
    for seen in world.backend("b").seen() {
        assert_eq!(seen.json()["stream_options"]["include_usage"], true);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_through_a_long_prefill_hears_a_comment_every_ten_seconds() {
    let world = World::new(&[("b", 8000)], "");
    let slow = vec![
        Step::Pause(Duration::from_secs(95)),
        role(),
        delta("x"),
        finish("stop"),
        Step::Send("data: [DONE]\n\n".into()),
    ];
    world.backend("b").then(Reply::stream(slow));
    let began = Instant::now();
    let mut answer = world.client().await.post("/v1/chat/completions", &ask_stream("hi")).await;
    assert!(began.elapsed() < Duration::from_secs(6), "the head is held no longer than hold_head");
    assert_eq!(answer.header("x-switchback-backend"), "pending");
    answer.until("x").await;
    assert_eq!(answer.body.matches(":\n\n").count(), 9);
    assert!(answer.body.contains(": backend b\n\n") && !answer.body.contains("ping"), "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_pauses_between_tokens_is_kept_alive_too() {
    let world = World::new(&[("b", 8000)], "");
    let pausing = vec![role(), delta("a"), Step::Pause(Duration::from_secs(35)), delta("b"), finish("stop")];
    world.backend("b").then(Reply::stream(pausing));
    let answer = world.chat(&ask_stream("hi")).await;
    assert_eq!(answer.body.matches(":\n\n").count(), 3);
    assert!(answer.ended);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_during_prefill_frees_the_backend_at_once() {
    for (stream, reply) in [
        (false, Reply::never()),
        (true, Reply::never()),
        (true, Reply::stream(vec![Step::Hang])),
        (true, Reply::stream(vec![role(), Step::Hang])),
    ] {
        let world = World::new(&[("b", 8000)], "");
        world.backend("b").then(reply);
        let client = world.client().await;
        let body = if stream { ask_stream("hi") } else { ask("hi") };
        let request =
            tokio::spawn(async move { client.post("/v1/chat/completions", &body).await.whole().await });
        world.backend("b").until_seen(1).await;
        let began = Instant::now();
        request.abort();
        world.backend("b").until_hung_up(1).await;
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_in_the_middle_of_an_answer_frees_the_backend_at_once() {
    let world = World::new(&[("b", 8000)], "");
    world.backend("b").then(Reply::stream(vec![role(), delta("one"), Step::Hang]));
    let mut answer = world.client().await.post("/v1/chat/completions", &ask_stream("hi")).await;
    answer.until("one").await;
    drop(answer);
    world.backend("b").until_hung_up(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_cut_answer_ends_with_an_error_event_and_never_with_a_finish_reason() {
    let cuts = [
        vec![role(), delta("half"), Step::Cut],
        vec![role(), delta("half")],
        vec![role(), delta("half"), Step::Send("data: [DONE]\n\n".into())],
        vec![role(), delta("half"), finish("abort"), Step::Send("data: [DONE]\n\n".into())],
        vec![role(), delta("half"), Step::Send("data: {\"error\": {\"message\": \"EngineCore encountered an issue.\", \"code\": 500}}\n\ndata: [DONE]\n\n".into())],
        vec![role(), delta("half"), Step::Send("error: {\"code\":500,\"message\":\"decode failed\"}\n\n".into())],
        vec![role(), delta("half"), Step::Hang],
    ];
    for steps in cuts {
        let apart = "[[client]]\nname = \"all\"\ncut_answers = \"error\"\n";
        let world = World::new(&[("b", 8000), ("spare", 8000)], apart);
        world.backend("b").then(Reply::stream(steps.clone()));
        let answer = world.chat(&ask_stream("hi")).await;
        assert!(
            answer.body.contains("half") && answer.body.contains("\"code\":\"answer_cut\""),
            "{steps:?}: {}",
            answer.body
        );
        for never in ["\"finish_reason\":\"", "EngineCore", "decode failed"] {
            assert!(!answer.body.contains(never), "{steps:?}: {}", answer.body);
        }
        assert!(world.backend("spare").seen().is_empty(), "nothing is tried again once content was shown");
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_marker_without_a_finish_reason_is_called_broken_off_and_no_lost_connection() {
    let world = World::new(&[("b", 8000)], "[[client]]\nname = \"all\"\ncut_answers = \"error\"\n");
    let steps = vec![role(), delta("half"), Step::Send("data: [DONE]\n\n".into())];
    world.backend("b").then(Reply::stream(steps));
    let answer = world.chat(&ask_stream("hi")).await;
    let told = answer.body.contains("answer broken off") && !answer.body.contains("connection lost");
    assert!(told && answer.body.contains("\"code\":\"answer_cut\""), "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn the_other_dialects_pass_in_their_own_words() {
    let world = World::new(&[("b", 8000)], "");
    let messages = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3}}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    world.backend("b").then(Reply::stream(vec![Step::Send(messages.into())]));
    let body = r#"{"model":"m","max_tokens":50,"stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let answer = world.post("/v1/messages", body).await;
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, messages));

    let half = messages.split("event: message_delta").next().expect("a part").to_owned();
    world.backend("b").then(Reply::stream(vec![Step::Send(half)]));
    let answer = world.post("/v1/messages", body).await;
    assert!(answer.body.contains("event: error") && !answer.body.contains("message_stop"), "{}", answer.body);

    world.backend("b").then(Reply::json(200, r#"{"object":"list","data":[{"embedding":[0.5]}]}"#));
    let answer = world.post("/v1/embeddings", r#"{"model":"m","input":"x"}"#).await;
    assert_eq!(answer.body, r#"{"object":"list","data":[{"embedding":[0.5]}]}"#);

    world.backend("b").then(Reply::json(404, r#"{"detail":"Not Found"}"#));
    let answer = world.post("/v1/rerank", r#"{"model":"m","query":"x","documents":[]}"#).await;
    assert_eq!((answer.status.as_u16(), answer.error()["code"].as_str()), (404, Some("not_found")));
}

#[tokio::test(start_paused = true)]
async fn http_2_without_tls_is_spoken_on_the_same_port() {
    let world = World::new(&[("b", 8000)], "");
    world.backend("b").then(Reply::streams(&["Done."]));
    let io = hyper_util::rt::TokioIo::new(world.raw());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), io)
            .await
            .expect("http/2");
    tokio::spawn(connection);
    let mut sent = request(http::Method::POST, "http://localhost/v1/chat/completions", &ask_stream("hi"));
    sent.headers_mut().remove("host");
    let answer = sender.send_request(sent).await.expect("an answer");
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    assert!(body.ends_with(b"data: [DONE]\n\n"));
}
