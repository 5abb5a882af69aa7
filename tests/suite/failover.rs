//! A dead, silent, loading or full backend is the proxy's problem, not the client's.

use std::time::Duration;

use tokio::time::Instant;

use crate::harness::{Reply, Step, World, ask, ask_stream, delta, finish, role, words};

const DEAD: &str = r#"data: {"error": {"message": "EngineCore encountered an issue. See stack trace (above) for the root cause.", "type": "InternalServerError", "param": null, "code": 500}}"#;

#[tokio::test(start_paused = true)]
async fn every_fault_before_the_first_content_moves_a_stream_to_the_next_backend_unseen() {
    let oom =
        r#"{"object":"error","message":"CUDA out of memory. Tried to allocate 138.00 MiB.","code":500}"#;
    let faults = [
        Reply::closes(),
        Reply::json(500, oom),
        Reply::json(
            503,
            r#"{"error":{"message":"The engine is currently busy","type":"Service Unavailable","code":503}}"#,
        ),
        Reply::json(
            404,
            r#"{"error":{"message":"The model `m` does not exist.","type":"NotFoundError","code":404}}"#,
        ),
        Reply::stream(vec![Step::Send(format!("{DEAD}\n\ndata: [DONE]\n\n"))]),
        Reply::stream(vec![role(), Step::Cut]),
        Reply::stream(vec![role(), Step::Send("data: [DONE]\n\n".into())]),
        Reply::stream(vec![role(), finish("abort")]),
        Reply::stream(vec![]),
        Reply::json(200, r#"{"choices":[]}"#),
        Reply::json(200, "<html>"),
    ];
    for fault in faults {
        let world = World::new(&[("bad", 8000), ("good", 8000)], "");
        world.backend("bad").then(fault.clone());
        world.backend("good").then(Reply::streams(&["Done."]));
        let answer = world.chat(&ask_stream("hi")).await;
        assert_eq!(answer.status, 200);
        assert!(
            answer.body.contains("Done.") && answer.body.ends_with("data: [DONE]\n\n"),
            "{fault:?}: {}",
            answer.body
        );
        assert!(!answer.body.contains("error"), "{fault:?}: {}", answer.body);
        assert_eq!(answer.body.matches("\"role\"").count(), 1, "{fault:?}: {}", answer.body);
        assert_eq!(answer.header("x-switchback-backend"), "good");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_one_server_finds_too_large_is_for_another_to_take() {
    let large = || Reply::json(413, "<html><h1>413 Request Entity Too Large</h1></html>");
    let world = World::new(&[("behind-nginx", 8000), ("good", 8000)], "");
    world.backend("behind-nginx").then(large());
    world.backend("good").then(Reply::says("Done."));
    let answer = world.chat(&ask("hi")).await;
    assert_eq!(answer.header("x-switchback-backend"), "good", "{}", answer.body);
    // Nobody's window is known to be too small, so none is named.
    world.backend("behind-nginx").then(large());
    world.backend("good").then(large());
    let answer = world.chat(&ask("hi")).await;
    assert_eq!(answer.status, 413);
    assert!(answer.body.contains("body_too_large") && !answer.body.contains("context"), "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn a_plain_answer_that_was_broken_off_is_not_an_answer() {
    let world = World::new(&[("bad", 8000), ("good", 8000)], "");
    world.backend("bad").then(Reply::json(
        200,
        r#"{"choices":[{"index":0,"message":{"content":"The function reads"},"finish_reason":"abort"}]}"#,
    ));
    world.backend("good").then(Reply::says("whole"));
    let answer = world.chat(&ask("hi")).await;
    assert!(answer.body.contains("whole") && !answer.body.contains("The function reads"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_moves_on_and_the_backend_is_left_alone_until_it_is_back() {
    let world = World::new(&[("bad", 8000), ("good", 8000)], "");
    world.backend("bad").listens(false);
    world.backend("good").then(Reply::says("1")).then(Reply::says("2"));
    world.chat(&ask("hi")).await;
    let answer = world.chat(&ask("hi")).await;
    assert!(
        answer.header("x-switchback-reason").starts_with("good: first that fits"),
        "{}",
        answer.header("x-switchback-reason")
    );
    world.backend("bad").listens(true).then(Reply::says("3"));
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.chat(&ask("hi")).await.header("x-switchback-backend"), "bad");
}

#[tokio::test(start_paused = true)]
async fn no_token_in_time_moves_on_and_comments_are_no_tokens() {
    let mut comments = Vec::new();
    for _ in 0..100 {
        comments.extend([Step::Send(": keep-alive\n\n".into()), Step::Pause(Duration::from_secs(1))]);
    }
    for wedged in [Reply::never(), Reply::stream(vec![Step::Hang]), Reply::stream(comments)] {
        let world = World::new(&[("bad", 8000), ("good", 8000)], "[failover]\nfirst_token = \"20s\"\n");
        world.backend("bad").then(wedged);
        world.backend("good").then(Reply::streams(&["Done."]));
        let began = Instant::now();
        let answer = world.chat(&ask_stream("hi")).await;
        assert!(answer.body.contains("Done."));
        assert!((19..23).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_clients_own_mistake_is_told_and_not_tried_elsewhere() {
    let world = World::new(&[("a", 8000), ("b", 8000)], "");
    world.backend("a").then(Reply::json(
        400,
        r#"{"error":{"message":"Invalid value for temperature: -3","type":"BadRequestError","param":"temperature","code":400}}"#,
    ));
    let answer = world.chat(&ask("hi")).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.error()["param"], "temperature");
    assert!(answer.error()["message"].as_str().is_some_and(|text| text.contains("temperature")));
    assert!(world.backend("b").seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_overflow_that_only_the_backend_sees_moves_to_a_larger_one_or_is_told_with_its_numbers() {
    let overflow = r#"{"error":{"code":400,"message":"request (900 tokens) exceeds the available context size (512 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":900,"n_ctx":512}}"#;
    let world = World::new(&[("small", 4000), ("same", 512), ("large", 8000)], "");
    world.backend("small").then(Reply::json(400, overflow));
    world.backend("large").then(Reply::says("ok"));
    assert_eq!(world.chat(&ask("hi")).await.header("x-switchback-backend"), "large");
    assert!(world.backend("same").seen().is_empty(), "no larger than what was too small");

    let world = World::new(&[("only", 4000)], "");
    world.backend("only").then(Reply::json(400, overflow));
    let answer = world.chat(&ask("hi")).await;
    assert_eq!(
        (answer.status.as_u16(), answer.error()["code"].as_str()),
        (400, Some("context_length_exceeded"))
    );
    assert!(answer.error()["message"].as_str().is_some_and(|text| text.contains("900 tokens > 512 maximum")));
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_killed_an_engine_is_not_carried_to_a_second_card_of_the_same_size() {
    let world = World::new(&[("one", 60_000), ("two", 60_000)], "");
    world
        .backend("one")
        .counts(30_000)
        .then(Reply::stream(vec![Step::Send(format!("{DEAD}\n\ndata: [DONE]\n\n"))]));
    let answer = world.chat(&ask_stream(&words(25_000))).await;
    assert_eq!(
        (answer.status.as_u16(), answer.error()["code"].as_str()),
        (400, Some("context_length_exceeded"))
    );
    assert!(world.backend("two").seen().is_empty());
    assert!(!answer.body.contains("EngineCore"));
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_is_loading_is_waited_for_with_comments() {
    let world = World::new(&[("b", 8000)], "");
    let loading =
        || Reply::json(503, r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#);
    for _ in 0..30 {
        world.backend("b").then(loading());
    }
    world.backend("b").then(Reply::streams(&["Done."]));
    let answer = world.chat(&ask_stream("hi")).await;
    assert!(answer.body.contains("Done.") && answer.body.contains(":\n\n"), "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn when_nobody_is_up_the_refusal_says_who_was_asked_and_when_to_come_back() {
    let world = World::new(&[("a", 8000), ("b", 8000)], "");
    world.backend("a").listens(false);
    world.backend("b").listens(false);
    let answer = world.chat(&ask("hi")).await;
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (503, "10"));
    let message = answer.error()["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("a: unreachable") && message.contains("b: unreachable"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_after_the_head_was_sent_is_an_error_event_with_an_end() {
    let world = World::new(&[("b", 8000)], "");
    world.backend("b").then(Reply::stream(vec![Step::Pause(Duration::from_secs(30)), Step::Cut]));
    let answer = world.chat(&ask_stream("hi")).await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.body.contains("\"code\":\"backend_failed\"") && answer.body.ends_with("data: [DONE]\n\n"),
        "{}",
        answer.body
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_answer_of_a_backend_that_went_away_is_given_up() {
    let world = World::new(&[("gone", 8000), ("good", 8000)], "");
    world.backend("gone").then(Reply::never());
    world.backend("good").then(Reply::says("ok"));
    let client = world.client().await;
    let asking =
        tokio::spawn(async move { client.post("/v1/chat/completions", &ask("hi")).await.whole().await });
    world.backend("gone").until_seen(1).await;
    world.backend("gone").listens(false);
    assert_eq!(asking.await.expect("an answer").header("x-switchback-backend"), "good");
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_a_backend_shortened_without_a_word_is_answered_by_another() {
    let world = World::new(&[("forgets", 50_000), ("good", 50_000)], "");
    world.backend("forgets").then(Reply::counted("about the end", 4096));
    world.backend("good").then(Reply::counted("all", 9010));
    let answer = world.chat(&ask(&words(9000))).await;
    assert_eq!(answer.header("x-switchback-backend"), "good");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_overflows_again_and_again_is_stopped_in_other_words() {
    let world = World::new(&[("b", 1000)], "[answer]\noverflow_loop = { count = 3, within = \"60s\" }\n");
    for _ in 0..3 {
        assert_eq!(world.chat(&ask(&words(5000))).await.error()["code"], "context_length_exceeded");
    }
    let stopped = world.chat(&ask(&words(5000))).await;
    assert_eq!((stopped.status.as_u16(), stopped.error()["code"].as_str()), (400, Some("overflow_loop")));
    assert!(!stopped.body.contains("too long") && !stopped.body.contains("context"));
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(world.chat(&ask(&words(5000))).await.error()["code"], "context_length_exceeded");
}

#[tokio::test(start_paused = true)]
async fn a_good_finish_before_the_connection_breaks_is_a_whole_answer() {
    let world = World::new(&[("b", 8000)], "");
    world.backend("b").then(Reply::stream(vec![role(), delta("Done."), finish("stop"), Step::Cut]));
    let answer = world.chat(&ask_stream("hi")).await;
    assert!(answer.body.ends_with("data: [DONE]\n\n") && !answer.body.contains("error"), "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_being_stopped_gets_no_new_work_although_its_health_page_is_well() {
    let world = World::new(&[("stopping", 8000), ("good", 8000)], "");
    world.backend("stopping").then(Reply::stream(vec![role(), finish("abort")]));
    world.backend("good").then(Reply::says("1")).then(Reply::says("2"));
    world.chat(&ask_stream("hi")).await;
    // Time for several good probes.
    tokio::time::advance(Duration::from_secs(5)).await;
    let answer = world.chat(&ask("hi")).await;
    assert_eq!(answer.header("x-switchback-backend"), "good");
    assert_eq!(world.backend("stopping").seen().len(), 1);
    assert_eq!(world.get("/health").await.json()["backends"]["stopping"], "draining");
}

#[tokio::test(start_paused = true)]
async fn after_one_hung_engine_its_prompts_reach_the_next_one_at_the_rate_of_the_ledger_and_all_are_answered()
{
    // The gate would not let the engine hang on four prompts at once.
    let more = "[admission]\nenabled = false\n\
                [failover]\nfirst_token = \"20s\"\nprefill_again = { backend = 20_000, minute = 20_000 }\n";
    let world = World::new(&[("hung", 60_000), ("good", 60_000)], more);
    let mut asking = Vec::new();
    for _ in 0..4 {
        world.backend("hung").then(Reply::never());
        world.backend("good").then(Reply::streams(&["Done."]));
        let client = world.client().await;
        asking.push(tokio::spawn(async move {
            let answer = client.post("/v1/chat/completions", &ask_stream(&words(7_000))).await.whole().await;
            assert!(answer.body.contains("Done."), "{}", answer.body);
            Instant::now()
        }));
    }
    let began = Instant::now();
    let mut minutes = Vec::new();
    for one in asking {
        let at = one.await.expect("an answer");
        minutes.push((at - began).as_secs() / 60);
    }
    minutes.sort_unstable();
    assert_eq!(minutes, [0, 0, 1, 1], "two such prompts fit into 20,000 tokens");
}

#[tokio::test(start_paused = true)]
async fn the_first_connection_is_closed_before_the_second_attempt_starts() {
    let world = World::new(&[("hung", 8000), ("good", 8000)], "[failover]\nfirst_token = \"20s\"\n");
    world.backend("hung").then(Reply::never());
    world.backend("good").then(Reply::streams(&["Done."]));
    let client = world.client().await;
    let asking =
        tokio::spawn(
            async move { client.post("/v1/chat/completions", &ask_stream("hi")).await.whole().await },
        );
    tokio::select! {
        biased;
        () = world.backend("hung").until_hung_up(1) => {}
        () = world.backend("good").until_seen(1) => panic!("both at once"),
    }
    assert!(asking.await.expect("an answer").body.contains("Done."));
}

#[tokio::test(start_paused = true)]
async fn the_reason_names_who_was_tried_before() {
    let world = World::new(&[("bad", 8000), ("good", 8000)], "");
    world.backend("bad").then(Reply::closes());
    world.backend("good").then(Reply::says("x"));
    let answer = world.chat(&ask("hi")).await;
    let reason = answer.header("x-switchback-reason");
    assert!(
        reason.starts_with("good: first that fits") && reason.contains("; after bad: connection lost"),
        "{reason}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_no_engine_does_is_told_in_its_own_words_and_a_missing_path_as_such() {
    let world = World::new(&[("a", 8000)], "");
    let words =
        r#"{"error":{"message":"tiny is not a multimodal model","type":"BadRequestError","code":400}}"#;
    world.backend("a").then(Reply::json(400, words)).then(Reply::json(404, r#"{"detail":"Not Found"}"#));
    let refused = world.chat(&ask("hi")).await;
    assert_eq!(
        (refused.status.as_u16(), refused.error()["code"].as_str()),
        (400, Some("refused_by_backend"))
    );
    assert!(refused.body.contains("is not a multimodal model"), "{}", refused.body);
    let missing = world.chat(&ask("hi")).await;
    assert_eq!((missing.status.as_u16(), missing.error()["code"].as_str()), (404, Some("not_found")));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_length_says_how_long_the_prompt_is() {
    let world = World::new(&[("a", 1000)], "");
    world.backend("a").counts(5000);
    let answer = world.chat(&ask(&"x".repeat(4000))).await;
    assert_eq!((answer.status.as_u16(), answer.header("x-switchback-tokens")), (400, "5000"));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_lost_its_engine_waits_for_another_that_died_before_and_is_coming_back() {
    let world = World::new(&[("one", 8000), ("two", 8000)], "");
    let lost = || Reply::stream(vec![Step::Pause(Duration::from_secs(1)), Step::Cut]);
    world.backend("one").then(lost());
    world.backend("two").then(Reply::says("first"));
    let client = world.client().await;
    let first =
        tokio::spawn(
            async move { client.post("/v1/chat/completions", &ask_stream("a")).await.whole().await },
        );
    world.backend("one").until_seen(1).await;
    world.backend("one").listens(false);
    first.await.expect("an answer");

    world.backend("two").then(lost());
    let client = world.client().await;
    let second =
        tokio::spawn(
            async move { client.post("/v1/chat/completions", &ask_stream("b")).await.whole().await },
        );
    world.backend("two").until_seen(2).await;
    world.backend("two").listens(false);
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.backend("one").listens(true).then(Reply::streams(&["Back."]));
    let answer = second.await.expect("an answer");
    assert!(answer.body.contains("Back.") && !answer.body.contains("error"), "{}", answer.body);
}
