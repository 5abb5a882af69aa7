//! llama.cpp's wire against captures of build 11434.

use std::time::Duration;

use serde_json::{Value, json};
use switchback_rig::{EventKind, Spec, text_of_tokens};

use crate::client::*;

#[tokio::test(start_paused = true)]
async fn a_stream_is_the_captured_one_byte_for_byte() {
    let rig = start(scripted(llama(), &["say Hello there"]));
    let body = chat(
        "hi",
        json!({"stream": true, "return_progress": true, "stream_options": {"include_usage": true}}),
    );
    let answer = post(&rig, CHAT, &body).await;
    assert_eq!((answer.header("content-type"), answer.header("server")), ("text/event-stream", "llama.cpp"));
    let text = answer.text().await;
    let id = data(&text)[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(id.len(), "chatcmpl-".len() + 32);
    let tail = r#""created":1796088446,"id":"ID","model":"qwen3.6-27b","system_fingerprint":"b11434-switchback","object":"chat.completion.chunk""#;
    assert_eq!(
        text,
        [
            r#"data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],TAIL,"prompt_progress":{"total":8,"cache":0,"processed":0,"time_ms":0}}"#,
            r#"data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],TAIL,"prompt_progress":{"total":8,"cache":0,"processed":8,"time_ms":108}}"#,
            r#"data: {"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],TAIL}"#,
            r#"data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Hello"}}],TAIL}"#,
            r#"data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":" there"}}],TAIL}"#,
            r#"data: {"choices":[{"finish_reason":"stop","index":0,"delta":{}}],TAIL}"#,
            r#"data: {"choices":[],TAIL,"usage":{"completion_tokens":3,"prompt_tokens":8,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":0}},"timings":{"cache_n":0,"prompt_n":8,"prompt_ms":108.0,"prompt_per_token_ms":13.5,"prompt_per_second":74.074074,"predicted_n":3,"predicted_ms":20.0,"predicted_per_token_ms":6.666667,"predicted_per_second":150.0}}"#,
            "data: [DONE]",
            "",
        ]
        .join("\n\n")
        .replace("TAIL", tail)
        .replace("ID", &id)
    );
}

#[tokio::test(start_paused = true)]
async fn a_plain_answer_has_the_captured_members_in_their_order() {
    let rig = start(scripted(llama(), &["say Hello", "say Hello"]));
    let body = chat("hi", json!({"model": "zzz", "chat_template_kwargs": {"enable_thinking": true}}));
    let whole = post(&rig, CHAT, &body).await.json().await;
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(keys(&whole), "choices created model system_fingerprint object usage id timings");
    assert_eq!(keys(&whole["choices"][0]), "finish_reason index message");
    assert_eq!(whole["model"], "qwen3.6-27b", "any model is taken, its own is named");
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["content"], "Hello");
    assert!(message["reasoning_content"].as_str().unwrap().starts_with("The prompt has"));

    let completion =
        post(&rig, "/v1/completions", &json!({"prompt": "a b", "stream": true})).await.text().await;
    let chunks = data(&completion);
    assert_eq!(chunks[0]["choices"][0]["text"], "Hello");
    assert_eq!(
        keys(chunks.last().unwrap()),
        "choices created model system_fingerprint object usage id timings"
    );
}

#[tokio::test(start_paused = true)]
async fn overflow_names_both_counts_and_begins_at_the_window_itself() {
    let rig = start(Spec { window: 1_024, ..llama() });
    for (tokens, stream) in [(2_431, true), (2_431, false), (1_024, true)] {
        let body = chat(&text_of_tokens(tokens - 7, 1), json!({"stream": stream}));
        let answer = post(&rig, CHAT, &body).await;
        assert_eq!(answer.status(), 400);
        assert_eq!(answer.header("content-type"), "application/json; charset=utf-8");
        assert_eq!(
            answer.text().await,
            format!(
                r#"{{"error":{{"code":400,"message":"request ({tokens} tokens) exceeds the available context size (1024 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":{tokens},"n_ctx":1024}}}}"#
            )
        );
    }
    let fits = chat(&text_of_tokens(1_023 - 7, 1), json!({}));
    let answer = post(&rig, CHAT, &fits).await.json().await;
    assert_eq!(
        (&answer["choices"][0]["finish_reason"], &answer["usage"]["total_tokens"]),
        (&json!("length"), &json!(1_024))
    );
}

#[tokio::test(start_paused = true)]
async fn every_path_says_loading_until_it_is_ready() {
    let rig = start(Spec { cold: true, load_time: 30.0, ..llama() });
    for path in ["/health", "/v1/models", "/props", "/slots", "/nope"] {
        let answer = get(&rig, path).await;
        assert_eq!(answer.status(), 503, "{path}");
        let loading = r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#;
        assert_eq!(answer.text().await, loading);
    }
    assert_eq!(post(&rig, CHAT, &chat("hi", json!({}))).await.status(), 503);
    let ready = rig.event(|event| event.kind == EventKind::Ready).await;
    assert!((ready.at - 30.0).abs() < 0.1);
    assert_eq!(get(&rig, "/health").await.text().await, r#"{"status":"ok"}"#);
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_slots_wait_without_a_head() {
    let rig = start(llama());
    let long = chat("hi", json!({"stream": true, "max_tokens": 200, "ignore_eos": true}));
    let (mut first, _second) = (post(&rig, CHAT, &long).await, post(&rig, CHAT, &long).await);
    first.event().await.unwrap();
    let third = tokio::time::timeout(Duration::from_secs(1), post(&rig, CHAT, &long)).await;
    assert!(third.is_err(), "no head while both slots are taken");
    happens(&rig, 3, |kind| matches!(kind, EventKind::Cut { .. })).await;

    let third = post(&rig, CHAT, &long);
    tokio::pin!(third);
    tokio::select! {
        _ = &mut third => panic!("no head while both slots are taken"),
        _ = happens(&rig, 4, |kind| matches!(kind, EventKind::Arrived { .. })) => {}
    }
    let metrics = get(&rig, "/metrics").await.text().await;
    assert!(metrics.contains("\nllamacpp:requests_processing 2\n"), "{metrics}");
    assert!(metrics.contains("\nllamacpp:requests_deferred 1\n"), "{metrics}");
    assert_eq!(get(&rig, "/slots?fail_on_no_slot=1").await.status(), 503);
    let slots = get(&rig, "/slots").await.json().await;
    assert_eq!((&slots[1]["is_processing"], &slots[1]["n_prompt_tokens"]), (&json!(true), &json!(8)));
    drop(first);
    assert_eq!(third.await.status(), 200, "a freed slot goes to the one that waits");
}

#[tokio::test(start_paused = true)]
async fn prefill_progress_is_told_a_batch_at_a_time_and_pings_fill_the_silence() {
    let rig = start(Spec { batch_tokens: 1_002, ..llama() });
    let more = json!({"stream": true, "return_progress": true, "max_tokens": 1});
    let text = post(&rig, CHAT, &chat(&text_of_tokens(2_500 - 7, 1), more)).await.text().await;
    let told: Vec<_> =
        data(&text).iter().filter_map(|chunk| chunk["prompt_progress"]["processed"].as_u64()).collect();
    assert_eq!(told, [0, 1_002, 2_004, 2_500]);
    assert!(!text.contains(":\n\n"));

    let mut slow = llama();
    slow.timing.prefill_a = 0.05;
    let body = chat(&text_of_tokens(2_000 - 7, 1), json!({"stream": true, "max_tokens": 1}));
    let text = post(&start(slow.clone()), CHAT, &body).await.text().await;
    assert!(text.starts_with(":\n\n:\n\n:\n\ndata: "), "100 s, a ping every 30");
    let body = chat(
        &text_of_tokens(2_000 - 7, 1),
        json!({"stream": true, "max_tokens": 1, "sse_ping_interval": 60}),
    );
    let text = post(&start(slow), CHAT, &body).await.text().await;
    assert!(text.starts_with(":\n\ndata: "));
}

#[tokio::test(start_paused = true)]
async fn a_named_tool_choice_silently_becomes_auto() {
    let rig = start(scripted(llama(), &["say no call", "call f {}"]));
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {}}}]);
    let named = json!({"tools": tools, "tool_choice": {"type": "function", "function": {"name": "f"}}});
    let answer = post(&rig, CHAT, &chat("x", named.clone())).await.json().await;
    assert_eq!(answer["choices"][0]["message"]["content"], "no call");
    let answer = post(&rig, CHAT, &chat("x", named)).await.json().await;
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    let refused = post(&rig, CHAT, &chat("x", json!({"tool_choice": "any"}))).await;
    assert_eq!(
        refused.text().await,
        r#"{"error":{"code":400,"message":"Invalid tool_choice: any","type":"invalid_request_error"}}"#
    );
}

#[tokio::test(start_paused = true)]
async fn the_window_is_in_models_and_props() {
    let rig = start(Spec { model: "tiny".to_owned(), ..llama() });
    let models = get(&rig, "/v1/models").await.json().await;
    assert_eq!(
        (&models["data"][0]["id"], &models["data"][0]["meta"]["n_ctx"]),
        (&json!("tiny"), &json!(4_096))
    );
    assert!(models["data"][0].get("max_model_len").is_none());
    let props = get(&rig, "/props").await.json().await;
    assert_eq!(
        (&props["default_generation_settings"]["n_ctx"], &props["total_slots"]),
        (&json!(4_096), &json!(2))
    );
    let absent = get(&rig, "/version").await;
    assert_eq!(absent.status(), 404);
    assert_eq!(
        absent.text().await,
        r#"{"error":{"message":"File Not Found","type":"not_found_error","code":404}}"#
    );
    let pieces =
        post(&rig, "/tokenize", &json!({"content": "hi there", "with_pieces": true})).await.json().await;
    assert_eq!(
        (&pieces["tokens"][0]["piece"], &pieces["tokens"][1]["piece"]),
        (&json!("hi"), &json!(" there"))
    );
}

#[tokio::test(start_paused = true)]
async fn no_body_is_too_strange_for_a_clear_400() {
    let rig = start(llama());
    for (body, part) in [
        ("", "parse error at line 1"),
        ("{\"messages\":[", "parse error at line 1, column 13"),
        ("[1]", "'messages' is required"),
        ("{}", "'messages' is required"),
        ("{\"messages\": 7}", "to be an array"),
    ] {
        let stream = rig.connect().await.unwrap();
        let answer = exchange(stream, "POST", CHAT, body.to_owned(), &[]).await.unwrap();
        assert_eq!(answer.status(), 400, "{body:?}");
        let error = answer.json().await;
        assert!(error["error"]["message"].as_str().unwrap().contains(part), "{error}");
    }
}
