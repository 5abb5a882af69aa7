//! Time: published figures through the server, and the same bytes for the same seed.

use std::time::Duration;

use serde_json::json;
use switchback_rig::{Clock, EventKind, Spec, count_tokens, text_of_tokens};
use tokio::time::Instant;

use crate::client::*;

#[tokio::test(start_paused = true)]
async fn the_head_of_a_stream_waits_for_nothing() {
    let rig = start(Spec::preset("vllm/dual").unwrap());
    let body = chat(&text_of_tokens(10_000, 1), json!({"stream": true, "max_tokens": 2}));
    let sent = Instant::now();
    let mut answer = post(&rig, CHAT, &body).await;
    assert!(sent.elapsed() < Duration::from_millis(50));
    answer.event().await.unwrap();
    assert!(sent.elapsed() > Duration::from_secs(6));
}

#[tokio::test]
async fn a_fast_clock_changes_no_simulated_time() {
    let spec = Spec::preset("llamacpp/default").unwrap();
    let expect = spec.timing.first_token(20_000);
    let rig = start_at(spec, Clock::new(20_000.0).unwrap());
    let body = chat(&text_of_tokens(20_000 - 7, 1), json!({"max_tokens": 50, "ignore_eos": true}));
    let answer = dial(&rig, "POST", CHAT, Some(&body)).await.unwrap().json().await;

    let started = happens(&rig, 1, |kind| *kind == EventKind::PrefillStarted).await.at;
    let first = happens(&rig, 1, |kind| *kind == EventKind::FirstToken).await.at;
    let finished = happens(&rig, 1, |kind| matches!(kind, EventKind::Finished { .. })).await.at;
    assert!((first - started - expect).abs() < 1e-6, "{}", first - started);
    assert!((finished - first - 49.0 / 50.3).abs() < 1e-6, "{}", finished - first);
    assert_eq!(answer["usage"]["prompt_tokens"], 20_000);
    assert!((answer["timings"]["prompt_ms"].as_f64().unwrap() - expect * 1e3).abs() < 0.01);
}

#[tokio::test(start_paused = true)]
async fn a_live_stream_starves_beside_a_long_prefill_and_recovers() {
    let rig = start(Spec::preset("vllm/dual").unwrap());
    let chatter = chat("hello", json!({"stream": true, "max_tokens": 600, "ignore_eos": true}));
    let mut stream = post(&rig, CHAT, &chatter).await;
    stream.event().await.unwrap();
    let long = chat(&text_of_tokens(60_000, 1), json!({"stream": true, "max_tokens": 1}));
    let _long = post(&rig, CHAT, &long).await;
    let started = happens(&rig, 2, |kind| *kind == EventKind::PrefillStarted).await.at;
    let mut gaps = Vec::new();
    let mut last = Instant::now();
    while stream.event().await.is_some() {
        gaps.push(last.elapsed().as_secs_f64());
        last = Instant::now();
    }
    let first = happens(&rig, 2, |kind| *kind == EventKind::FirstToken).await.at;
    let starved = gaps.iter().filter(|&&gap| gap > 0.5).count() as f64;
    let rate = starved / (first - started);
    assert!((0.6..1.9).contains(&rate), "{rate} steps/s, published 0.6 to 1.9 at this threshold");
    assert!(gaps.last().unwrap() < &0.05, "recovered");
}

#[tokio::test(start_paused = true)]
async fn equal_seeds_give_equal_bytes_and_others_do_not() {
    let bodies = [
        chat("Where is the pass?", json!({"stream": true, "stream_options": {"include_usage": true}})),
        chat("Where is the pass?", json!({"chat_template_kwargs": {"enable_thinking": true}})),
    ];
    for spec in [vllm(), llama()] {
        let mut seen = Vec::new();
        for seed in [1, 1, 2] {
            let rig = start(Spec { seed, ..spec.clone() });
            let mut bytes = String::new();
            for body in &bodies {
                bytes.push_str(&post(&rig, CHAT, body).await.text().await);
            }
            seen.push(bytes);
        }
        assert_eq!(seen[0], seen[1]);
        assert_ne!(seen[0], seen[2]);
    }
}

#[tokio::test(start_paused = true)]
async fn all_counts_of_a_backend_agree() {
    let text = text_of_tokens(500, 1);
    assert_eq!(count_tokens(&text), 500);
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {}}}]);
    let body = chat(&text, json!({"max_tokens": 1, "tools": tools}));

    let rig = start(vllm());
    let counted = post(&rig, "/tokenize", &body).await.json().await;
    let used = post(&rig, CHAT, &body).await.json().await;
    assert_eq!(counted["count"], used["usage"]["prompt_tokens"]);
    assert_eq!(counted["tokens"].as_array().unwrap().len() as u64, counted["count"].as_u64().unwrap());
    assert_eq!(post(&rig, "/tokenize", &json!({"prompt": text})).await.json().await["count"], 500);

    let rig = start(llama());
    let counted = post(&rig, "/v1/chat/completions/input_tokens", &body).await.json().await;
    let used_there = post(&rig, CHAT, &body).await.json().await;
    assert_eq!(counted["input_tokens"], used_there["usage"]["prompt_tokens"]);
    assert_eq!(used["usage"]["prompt_tokens"], used_there["usage"]["prompt_tokens"]);
}
