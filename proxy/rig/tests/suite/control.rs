//! The control API, as another program uses it.

use serde_json::{Value, json};
use switchback_rig::{EventKind, Spec};

use crate::client::*;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_script_given_over_http_is_what_the_next_requests_get() {
    for spec in [vllm(), llama()] {
        let rig = start(spec);
        let script = json!({"steps": ["say one", "http:503"], "then": "say more"});
        assert_eq!(post(&rig, "/rig/script", &script).await.json().await, json!({"done": true}));
        let said = |answer: &Value| answer["choices"][0]["message"]["content"].clone();
        assert_eq!(said(&post(&rig, CHAT, &chat("x", json!({}))).await.json().await), "one");
        assert_eq!(post(&rig, CHAT, &chat("x", json!({}))).await.status(), 503);
        assert_eq!(said(&post(&rig, CHAT, &chat("x", json!({}))).await.json().await), "more");

        let wrong = post(&rig, "/rig/script", &json!({"steps": ["narrow"]})).await;
        assert_eq!(wrong.status(), 400);
        assert!(wrong.text().await.contains("http:CODE"), "it says which steps there are");
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_is_one_json_object_a_line_and_can_be_followed_to_the_end_of_the_process() {
    let rig = start(Spec { restart_after: None, ..vllm() });
    let mut followed = get(&rig, "/rig/events?follow=true").await;
    post(&rig, CHAT, &chat("x", json!({"max_tokens": 2}))).await.text().await;
    let told = lines(&get(&rig, "/rig/events").await.text().await);
    let kinds: Vec<&str> = told.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ready", "arrived", "prefill-started", "first-token", "finished"]);
    assert_eq!((&told[1]["request"], &told[1]["prompt_tokens"]), (&json!(1), &json!(8)));
    assert_eq!(lines(&get(&rig, "/rig/events?since=3").await.text().await), told[3..]);

    post(&rig, "/rig/kill", &json!({})).await;
    let all = lines(&followed.rest().await.unwrap());
    assert_eq!(all[..5], told[..]);
    assert_eq!(all.last().unwrap()["event"], "down");
}

#[tokio::test(start_paused = true)]
async fn a_silent_engine_takes_requests_computes_nothing_and_works_on_when_told() {
    let rig = start(vllm());
    let endless = chat("hi", json!({"stream": true, "max_tokens": 500, "ignore_eos": true}));
    let mut stream = post(&rig, CHAT, &endless).await;
    stream.event().await.unwrap();
    post(&rig, "/rig/stall", &json!({})).await;
    let silent = rig.event(|event| event.kind == EventKind::Silent).await;
    let next = post(&rig, CHAT, &chat("hi", json!({"stream": true, "max_tokens": 3}))).await;
    assert_eq!(get(&rig, "/health").await.status(), 200, "it looks alive");
    let load = get(&rig, "/rig/load").await.json().await;
    assert_eq!((&load["running"], &load["waiting"]), (&json!(0), &json!(2)));
    tokio::time::advance(std::time::Duration::from_secs(3_900)).await;
    let said = |request| {
        rig.events().iter().any(|event| {
            event.request == Some(request)
                && matches!(event.kind, EventKind::FirstToken | EventKind::Finished { .. })
                && event.at > silent.at + 1.0
        })
    };
    assert!(!said(1) && !said(2), "65 minutes of silence");
    post(&rig, "/rig/resume", &json!({})).await;
    assert!(stream.rest().await.unwrap().ends_with("data: [DONE]\n\n"));
    assert!(next.text().await.ends_with("data: [DONE]\n\n"));
    let finished = happens(&rig, 1, |kind| matches!(kind, EventKind::Finished { .. })).await.at;
    assert!((finished - silent.at - 3_900.0 - 5.0).abs() < 1.0, "it goes on from where it was");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_answered_with_what_is() {
    let rig = start(llama());
    let absent = get(&rig, "/rig/nope").await;
    assert_eq!(absent.status(), 404);
    assert!(absent.text().await.contains("POST /rig/kill"));
    let wrong = get(&rig, "/rig/kill").await;
    assert_eq!((wrong.status().as_u16(), wrong.header("allow")), (405, "POST"));
    let since = get(&rig, "/rig/events?since=x").await;
    assert_eq!(since.status(), 400);
    assert!(since.text().await.contains("\\\"x\\\""));
    assert_eq!(get(&rig, "/rig/spec").await.json().await["window"], 4_096);
    let loading = start(Spec { cold: true, load_time: 9.0, ..llama() });
    assert_eq!(get(&loading, "/rig/load").await.status(), 200, "while it loads, too");
}
