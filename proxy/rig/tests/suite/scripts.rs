//! Scripts: each step on both wires.

use std::time::Duration;

use serde_json::{Value, json};
use switchback_rig::{EventKind, Script, Step};

use crate::client::*;

fn streamed() -> Value {
    chat("hi", json!({"stream": true, "stream_options": {"include_usage": true}}))
}

#[tokio::test(start_paused = true)]
async fn steps_apply_to_inference_requests_in_their_order_then_the_default() {
    for spec in [vllm(), llama()] {
        let rig = start(scripted(spec, &["say one", "http:503", "ok"]));
        get(&rig, "/health").await;
        post(&rig, CHAT, &json!({})).await;
        assert_eq!(content(&post(&rig, CHAT, &streamed()).await.text().await), "one");
        let answer = post(&rig, CHAT, &streamed()).await;
        assert_eq!(answer.status(), 503);
        assert!(answer.json().await["error"]["message"].is_string());
        let derived = content(&post(&rig, CHAT, &streamed()).await.text().await);
        assert!(derived.starts_with("Your prompt has 8 tokens and begins \"hi\"."), "{derived}");
        rig.script(Script { then: Step::Say("always".to_owned()), ..Script::default() });
        for _ in 0..2 {
            assert_eq!(content(&post(&rig, CHAT, &streamed()).await.text().await), "always");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_is_a_clean_200_with_usage_and_no_content() {
    for spec in [vllm(), llama()] {
        let rig = start(scripted(spec, &["empty", "empty"]));
        let text = post(&rig, CHAT, &streamed()).await.text().await;
        assert_eq!(content(&text), "");
        assert_eq!(data(&text).last().unwrap()["usage"]["completion_tokens"], 1, "the end token");
        assert!(text.contains("\"finish_reason\":\"stop\"") && text.ends_with("data: [DONE]\n\n"));
        let plain = post(&rig, CHAT, &chat("hi", json!({}))).await.json().await;
        assert!(plain["choices"][0]["message"]["content"].as_str().unwrap_or_default().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_stall_is_silence_on_an_open_socket_with_an_idle_engine() {
    for spec in [vllm(), llama()] {
        let rig = start(scripted(spec, &["stall:2"]));
        let mut answer = post(&rig, CHAT, &streamed()).await;
        let stalled = happens(&rig, 1, |kind| matches!(kind, EventKind::Stalled { .. })).await;
        assert_eq!(stalled.kind, EventKind::Stalled { completion_tokens: 2 });
        let mut said = 0;
        let silence = async {
            while let Some(event) = answer.event().await {
                said += usize::from(event.contains("\"content\":\""));
                assert!(!event.contains("finish_reason\":\"") && !event.contains("[DONE]"), "{event}");
            }
        };
        assert!(
            tokio::time::timeout(Duration::from_secs(3_900), silence).await.is_err(),
            "no end in 65 minutes"
        );
        assert!(said >= 2);
        assert_eq!(rig.load().running, 0);
        rig.kill();
        assert!(answer.rest().await.is_err(), "the process took its socket with it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_connection_ends_without_an_error_and_without_an_end() {
    for spec in [vllm(), llama()] {
        let rig = start(scripted(spec, &["cut:3", "cut:0", "cut:2"]));
        let mut answer = post(&rig, CHAT, &streamed()).await;
        let mut text = String::new();
        for _ in 0..4 {
            text.push_str(&answer.event().await.unwrap());
            text.push_str("\n\n");
        }
        assert_eq!(content(&text), "Your prompt has");
        assert!(answer.rest().await.is_err());
        assert!(post(&rig, CHAT, &streamed()).await.rest().await.is_err());
        let plain = rig.connect().await.unwrap();
        assert!(exchange(plain, "POST", CHAT, chat("hi", json!({})).to_string(), &[]).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_step_kills_the_engine_under_a_short_prompt() {
    let rig = start(scripted(vllm(), &["dead"]));
    let text = post(&rig, CHAT, &streamed()).await.text().await;
    assert!(text.starts_with("data: {\"error\": {"));
    assert!(rig.events().iter().any(|event| event.kind == EventKind::Died { by: Some(1) }));

    let rig = start(scripted(llama(), &["dead"]));
    assert!(post(&rig, CHAT, &streamed()).await.rest().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_call_streams_in_each_engines_own_deltas() {
    let tools = json!([{"type": "function", "function": {"name": "get_weather", "parameters": {}}}]);
    let body = chat("x", json!({"stream": true, "tools": tools}));
    for spec in [vllm(), llama()] {
        let vllm = spec.engine == switchback_rig::Engine::Vllm;
        let rig =
            start(scripted(spec, &["call get_weather {\"city\": \"Berlin\"}", "call get_weather {\"a\":1}"]));
        let chunks = data(&post(&rig, CHAT, &body).await.text().await);
        let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
        let opened = &deltas[1]["tool_calls"][0];
        assert_eq!((&opened["index"], &opened["function"]["name"]), (&json!(0), &json!("get_weather")));
        assert_eq!(opened["function"].get("arguments").is_none(), vllm);
        assert_eq!(opened["id"].as_str().unwrap().starts_with("chatcmpl-tool-"), vllm);
        let arguments: String = deltas[2..]
            .iter()
            .filter_map(|delta| delta["tool_calls"][0]["function"]["arguments"].as_str())
            .collect();
        assert_eq!(arguments, "{\"city\": \"Berlin\"}");
        assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");

        let plain = post(&rig, CHAT, &chat("x", json!({"tools": tools}))).await.json().await;
        let message = &plain["choices"][0]["message"];
        assert_eq!(
            (&message["content"], &message["tool_calls"][0]["function"]["arguments"]),
            (&Value::Null, &json!("{\"a\":1}"))
        );
    }
}
