//! What goes wrong by itself, as a client sees it.

use serde_json::{Value, json};
use switchback_rig::{Death, EventKind, Faults, PrefixCache, Rig, Spec, text_of_tokens};

use crate::client::*;

fn faulty(faults: Value) -> Spec {
    Spec { faults: serde_json::from_value(faults).unwrap(), ..vllm() }
}

fn tools() -> Value {
    json!([{"type": "function", "function": {"name": "get_weather", "parameters": {
        "type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}}}])
}

fn died_by(rig: &Rig) -> Option<u64> {
    rig.events().iter().find_map(|event| match event.kind {
        EventKind::Died { by } => by,
        _ => None,
    })
}

/// The share of `requests` different prompts whose stream `is` so.
async fn share(spec: Spec, more: Value, requests: usize, is: impl Fn(&str) -> bool) -> f64 {
    let rig = start(spec);
    let mut seen = 0.0;
    for request in 0..requests {
        let body = chat(&format!("question {request}"), more.clone());
        seen += f64::from(u8::from(is(&post(&rig, CHAT, &body).await.text().await)));
    }
    seen / requests as f64
}

#[test]
fn nothing_goes_wrong_unless_a_spec_says_so() {
    assert_eq!(vllm().faults, Faults::default());
    for (field, value) in
        [("stalls", json!(1.1)), ("crashes_per_1k", json!(-1)), ("tag_silence", json!([9, 3]))]
    {
        let error = faulty(json!({field: value})).check().unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
    assert!(faulty(json!({"dies_surely_above": 9})).check().is_err(), "a ramp needs its lower end");
}

#[tokio::test(start_paused = true)]
async fn an_mtp_crash_comes_at_any_length_and_at_the_same_token_for_the_same_seed() {
    let crash = async |seed| {
        let rig = start(Spec { seed, ..faulty(json!({"crashes_per_1k": 3.0})) });
        let body = chat("hi", json!({"stream": true, "max_tokens": 4_000, "ignore_eos": true}));
        let text = post(&rig, CHAT, &body).await.text().await;
        assert!(text.contains("EngineCore encountered an issue"), "no figure of it survives 4,000 tokens");
        assert_eq!(died_by(&rig), Some(1));
        data(&text).len()
    };
    assert_eq!(crash(3).await, crash(3).await);
    assert_ne!(crash(3).await, crash(4).await);
}

#[tokio::test(start_paused = true)]
async fn a_share_of_answers_is_empty_and_looks_like_success() {
    let empty = |text: &str| content(text).is_empty() && text.contains("\"finish_reason\":\"stop\"");
    let spec = faulty(json!({"empties": 0.3}));
    let seen = share(spec, json!({"stream": true}), 100, empty).await;
    assert!((0.2..0.4).contains(&seen), "{seen}");
}

#[tokio::test(start_paused = true)]
async fn a_share_of_answers_falls_silent_somewhere() {
    let rig = start(faulty(json!({"stalls": 1.0})));
    let mut answer = post(&rig, CHAT, &chat("hi", json!({"stream": true}))).await;
    let stalled = happens(&rig, 1, |kind| matches!(kind, EventKind::Stalled { .. })).await;
    let rest = tokio::time::timeout(std::time::Duration::from_secs(3_900), answer.rest()).await;
    assert!(rest.is_err(), "neither an error nor an end: {stalled:?}");
    assert_eq!(rig.load().running, 0, "its engine has nothing to do");
}

#[tokio::test(start_paused = true)]
async fn streamed_required_calls_are_lost_as_often_as_published() {
    let lost = |text: &str| {
        assert!(text.contains("\"finish_reason\":\"stop\"") != text.contains("\"tool_calls\":[{\"id\""));
        !text.contains("\"tool_calls\":[{\"id\"")
    };
    let spec = || faulty(json!({"drops_required": 0.65}));
    let required = |stream| json!({"stream": stream, "tools": tools(), "tool_choice": "required"});
    let seen = share(spec(), required(true), 100, lost).await;
    assert!((0.55..0.75).contains(&seen), "published 13 of 20: {seen}");
    let whole = share(spec(), required(false), 20, |text| !text.contains("\"tool_calls\":[{")).await;
    assert_eq!(whole, 0.0, "only streams lose them");
}

#[tokio::test(start_paused = true)]
async fn a_tag_in_prose_silences_the_stream_and_then_comes_text_or_nothing() {
    let said = "First prose. Then <tool_call> is only spoken of.";
    let (mut whole, mut cut) = (0, 0);
    for seed in 0..8 {
        let spec = Spec { seed, ..faulty(json!({"tag_silence": [30.0, 120.0]})) };
        let rig = start(scripted(spec, &[&format!("say {said}")]));
        let body = chat("hi", json!({"stream": true, "tools": tools()}));
        let mut answer = post(&rig, CHAT, &body).await;
        let mut text = String::new();
        while content(&text).len() < "First prose. Then".len() {
            text += &(answer.event().await.unwrap() + "\n\n");
        }
        let from = tokio::time::Instant::now();
        let next = answer.event().await.unwrap() + "\n\n";
        assert!((29.0..=121.0).contains(&from.elapsed().as_secs_f64()), "{:?}", from.elapsed());
        text += &(next + &answer.rest().await.unwrap());
        assert!(text.contains("\"finish_reason\":\"stop\""));
        whole += u32::from(content(&text) == said);
        cut += u32::from(content(&text) == "First prose. Then");
    }
    assert!(whole + cut == 8 && whole > 0 && cut > 0, "{whole} {cut}");
    let rig = start(scripted(faulty(json!({"tag_silence": [30.0, 120.0]})), &[&format!("say {said}")]));
    let from = tokio::time::Instant::now();
    post(&rig, CHAT, &chat("hi", json!({"stream": true}))).await.text().await;
    assert!(from.elapsed().as_secs() < 5, "without tools nothing is held back");
    let rig = start(scripted(
        faulty(json!({"tag_silence": [30.0, 120.0]})),
        &["write qwen-xml", "write hermes:in-prose"],
    ));
    let mut took = Vec::new();
    for _ in 0..2 {
        let from = tokio::time::Instant::now();
        post(&rig, CHAT, &chat("hi", json!({"stream": true, "tools": tools()}))).await.text().await;
        took.push(from.elapsed().as_secs() > 5);
    }
    assert_eq!(took, [false, true], "a written call is none of its business, talk of one is");
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_answers_503_as_captured() {
    let rig = start(Spec { slots: 1, ..faulty(json!({"busy_above": 1})) });
    let long = chat("hi", json!({"stream": true, "max_tokens": 900, "ignore_eos": true}));
    let mut first = post(&rig, CHAT, &long).await;
    first.event().await.unwrap();
    let _second = post(&rig, CHAT, &long).await;
    let third = post(&rig, CHAT, &long).await;
    assert_eq!(third.status(), 503);
    assert_eq!(
        third.text().await,
        r#"{"error":{"message":"The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.","type":"Service Unavailable","param":null,"code":503}}"#
    );
}

#[tokio::test(start_paused = true)]
async fn new_tokens_kill_on_the_first_cliff_whatever_the_cache_holds() {
    let cache = Some(PrefixCache { block: 16, reuse: 1.0 });
    let spec = Spec { prefix_cache: cache, ..faulty(json!({"dies_above_new": 1_500})) };
    let turns = |more: usize| {
        json!({"stream": true, "messages": [
            {"role": "user", "content": text_of_tokens(1_200, 1)},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": text_of_tokens(more, more as u64)},
        ]})
    };
    let rig = start(spec.clone());
    post(&rig, CHAT, &chat(&text_of_tokens(1_200, 1), json!({"stream": true}))).await.text().await;
    post(&rig, CHAT, &turns(1_000)).await.text().await;
    assert_eq!(died_by(&rig), None, "2,200 tokens, but few of them new");
    post(&rig, CHAT, &turns(1_700)).await.text().await;
    assert_eq!(died_by(&rig), Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_filled_llama_aborts_in_the_middle_of_an_answer() {
    let faults = Faults { fills_to: Some(1_000), ..Faults::default() };
    let rig = start(Spec { faults, ..llama() });
    let body = chat(&text_of_tokens(900, 1), json!({"stream": true, "max_tokens": 500, "ignore_eos": true}));
    let mut answer = post(&rig, CHAT, &body).await;
    answer.event().await.unwrap();
    assert!(answer.rest().await.is_err());
    assert_eq!(died_by(&rig), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_cliff_can_hang_the_engine_instead_of_killing_it() {
    let faults = Faults { death: Death::Hang, ..Faults::default() };
    let rig = start(Spec { faults, dies_above: Some(1_500), ..vllm() });
    let mut innocent =
        post(&rig, CHAT, &chat("hi", json!({"stream": true, "max_tokens": 900, "ignore_eos": true}))).await;
    innocent.event().await.unwrap();
    let _guilty = post(&rig, CHAT, &chat(&text_of_tokens(2_000, 1), json!({"stream": true}))).await;
    let silent = rig.event(|event| event.kind == EventKind::Silent).await;
    assert_eq!(silent.request, Some(2));
    let _late = post(&rig, CHAT, &chat("hi", json!({"stream": true}))).await;
    assert_eq!(
        (get(&rig, "/health").await.status(), get(&rig, "/version").await.status()),
        (200.try_into().unwrap(), 200.try_into().unwrap())
    );
    let metrics = get(&rig, "/metrics").await.text().await;
    assert!(metrics.contains("vllm:num_requests_running{engine=\"0\",model_name=\"qwen3.6-27b\"} 0.0"));
    assert!(metrics.contains("vllm:num_requests_waiting{engine=\"0\",model_name=\"qwen3.6-27b\"} 3.0"));
    rig.kill();
    assert!(innocent.rest().await.unwrap().ends_with("data: [DONE]\n\n"), "a kill ends it as any other");
}

#[tokio::test]
async fn a_death_of_the_api_process_resets_vllms_sockets_too() {
    let faults = Faults { death: Death::Process, ..Faults::default() };
    let rig = start_at(Spec { faults, ..vllm() }, switchback_rig::Clock::new(20.0).unwrap());
    let body = chat("hi", json!({"stream": true, "max_tokens": 4_000, "ignore_eos": true}));
    let mut answer = dial(&rig, "POST", CHAT, Some(&body)).await.unwrap();
    answer.event().await.unwrap();
    rig.kill();
    assert!(answer.rest().await.is_err(), "neither an error event nor an end");
    rig.event(|event| event.kind == EventKind::Down).await;
}
