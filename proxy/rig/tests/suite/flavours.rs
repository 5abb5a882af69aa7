//! The engines that are simulated from source, and old vLLM: where they differ from what is captured.

use serde_json::{Value, json};
use switchback_rig::{Clock, Engine, Event, EventKind, Rig, Spec, text_of_tokens};

use crate::client::*;

fn flavour(engine: Engine) -> Spec {
    small(engine)
}

fn old_vllm() -> Spec {
    Spec { version: Some("0.9.2".to_owned()), ..vllm() }
}

fn named(content: &str, more: Value) -> Value {
    let mut body = chat(content, more);
    body["model"] = json!("qwen3.6-27b");
    body
}

fn tools() -> Value {
    json!([{"type": "function", "function": {"name": "f", "parameters": {}}}])
}

async fn error(rig: &Rig, body: &Value) -> (u16, Value) {
    let answer = post(rig, CHAT, body).await;
    (answer.status().as_u16(), answer.json().await)
}

#[tokio::test(start_paused = true)]
async fn every_flavour_streams_the_same_words_to_a_good_end() {
    let mut said = Vec::new();
    for engine in [Engine::Vllm, Engine::LlamaCpp, Engine::IkLlama, Engine::Sglang, Engine::Ollama] {
        let rig = start(flavour(engine));
        let more = json!({"stream": true, "stream_options": {"include_usage": true}});
        let text = post(&rig, CHAT, &named("Where?", more)).await.text().await;
        assert!(text.ends_with("data: [DONE]\n\n"), "{engine:?}");
        let chunks = data(&text);
        let finish = chunks.iter().find_map(|chunk| chunk["choices"][0]["finish_reason"].as_str());
        assert_eq!(finish, Some("stop"), "{engine:?}");
        let whole = post(&rig, CHAT, &named("Where?", json!({}))).await.json().await;
        assert_eq!(whole["choices"][0]["message"]["content"], content(&text), "{engine:?}");
        assert_eq!(chunks.last().unwrap()["usage"]["total_tokens"], whole["usage"]["total_tokens"]);
        said.push(content(&text));
        let completion = json!({"model": "qwen3.6-27b", "prompt": "a b", "stream": true});
        assert!(
            post(&rig, "/v1/completions", &completion)
                .await
                .text()
                .await
                .contains("\"finish_reason\":\"stop\"")
        );
    }
    assert!(said.iter().all(|words| *words == said[0]), "one seed, one answer, whoever says it");
}

#[tokio::test(start_paused = true)]
async fn calls_and_thoughts_come_in_each_flavours_own_deltas() {
    let more = json!({"stream": true, "tools": tools(), "chat_template_kwargs": {"enable_thinking": true}});
    for (engine, field) in [
        (Engine::IkLlama, "reasoning_content"),
        (Engine::Sglang, "reasoning_content"),
        (Engine::Ollama, "reasoning"),
    ] {
        let rig = start(scripted(flavour(engine), &["call f {\"a\": 1}"]));
        let chunks = data(&post(&rig, CHAT, &named("x", more.clone())).await.text().await);
        let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
        assert!(deltas.iter().any(|delta| delta[field].is_string()), "{engine:?}");
        let calls: Vec<&Value> =
            deltas.iter().map(|delta| &delta["tool_calls"][0]).filter(|call| !call.is_null()).collect();
        assert_eq!(calls[0]["function"]["name"], "f");
        let arguments: String =
            calls.iter().filter_map(|call| call["function"]["arguments"].as_str()).collect();
        assert_eq!((arguments.as_str(), calls.len() == 1), ("{\"a\": 1}", engine == Engine::Ollama));
        assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    }
}

#[tokio::test(start_paused = true)]
async fn overflow_is_said_in_each_flavours_own_way() {
    let long = || text_of_tokens(5_000 - 7, 1);
    let (status, body) = error(&start(flavour(Engine::IkLlama)), &named(&long(), json!({}))).await;
    let message = "the request exceeds the available context size, try increasing it";
    assert_eq!(
        (status, body),
        (500, json!({"error": {"code": 500, "message": message, "type": "server_error"}}))
    );

    let rig = start(flavour(Engine::Sglang));
    let (status, body) = error(&rig, &named(&long(), json!({"stream": true}))).await;
    let message = "The input (5000 tokens) is longer than the model's context length (4096 tokens).";
    assert_eq!(
        (status, body),
        (
            400,
            json!({"object": "error", "message": message, "type": "BadRequestError", "param": null, "code": 400})
        )
    );
    let (status, body) = error(&rig, &named("x", json!({"max_tokens": 4_096}))).await;
    assert!(status == 400 && body["message"].as_str().unwrap().contains("a total of 4104 tokens"), "{body}");

    let (status, body) = error(&start(old_vllm()), &named("x", json!({"max_tokens": 4_096}))).await;
    let message = body["error"]["message"].as_str().unwrap();
    assert!(
        status == 400
            && message.contains("requested 4104 tokens (8 in the messages, 4096 in the completion)")
    );
    let (_, body) = error(&start(old_vllm()), &named(&long(), json!({}))).await;
    assert!(body["error"]["message"].as_str().unwrap().contains("requested 5000 tokens in the messages"));
}

#[tokio::test(start_paused = true)]
async fn ollama_forgets_the_oldest_messages_without_a_word() {
    let rig = start(flavour(Engine::Ollama));
    let turn = |role: &str, tokens| json!({"role": role, "content": text_of_tokens(tokens, 1)});
    let messages = [turn("system", 500), turn("user", 3_000), turn("assistant", 1_500), turn("user", 900)];
    let body =
        json!({"model": "qwen3.6-27b", "messages": messages, "max_tokens": 5, "max_completion_tokens": 1});
    let answer = post(&rig, CHAT, &body).await.json().await;
    assert_eq!(answer["usage"]["prompt_tokens"], 500 + 1_500 + 900 + 3 * 4 + 3);
    assert_eq!(answer["usage"]["completion_tokens"], 5, "max_completion_tokens is not read");
    let body = named(&text_of_tokens(9_000, 1), json!({"max_tokens": 5}));
    assert_eq!(post(&rig, CHAT, &body).await.json().await["usage"]["prompt_tokens"], 4_095);
    let (status, body) = error(&rig, &chat("x", json!({"model": "nope"}))).await;
    assert_eq!((status, &body["error"]["code"]), (404, &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn heads_wait_for_the_first_token_where_they_do() {
    let long = named(&text_of_tokens(3_000, 1), json!({"stream": true, "max_tokens": 1}));
    for engine in [Engine::Vllm, Engine::LlamaCpp, Engine::IkLlama, Engine::Sglang, Engine::Ollama] {
        let rig = start(flavour(engine));
        let sent = tokio::time::Instant::now();
        let _answer = post(&rig, CHAT, &long).await;
        let waits = !matches!(engine, Engine::Vllm | Engine::LlamaCpp);
        assert_eq!(sent.elapsed().as_secs_f64() > 3.0, waits, "{engine:?}: {:?}", sent.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn unready_and_busy_look_like_each_flavours_own() {
    let cold = |engine| Spec { cold: true, load_time: 60.0, ..flavour(engine) };
    let ik = start(cold(Engine::IkLlama));
    assert_eq!((get(&ik, "/health").await.status(), get(&ik, "/v1/models").await.status()).0, 503);
    assert_eq!(get(&ik, "/v1/models").await.status(), 200, "while it loads");
    assert_eq!(get(&start(cold(Engine::Sglang)), "/health").await.status(), 503);
    let ollama = start(cold(Engine::Ollama));
    let sent = tokio::time::Instant::now();
    post(&ollama, CHAT, &named("x", json!({}))).await.text().await;
    assert!(sent.elapsed().as_secs() >= 60, "the model loads inside the request");

    // a health check goes through the queue of an engine that is in a long step
    for engine in [Engine::IkLlama, Engine::Sglang] {
        let rig = start(flavour(engine));
        let body = named(&text_of_tokens(3_900, 1), json!({"stream": true, "max_tokens": 1})).to_string();
        let connection = rig.connect().await.unwrap();
        let busy = tokio::spawn(exchange(connection, "POST", CHAT, body, &[]));
        happens(&rig, 1, |kind| *kind == EventKind::PrefillStarted).await;
        let asked = tokio::time::Instant::now();
        assert_eq!(get(&rig, "/health").await.status(), 200);
        assert!(asked.elapsed().as_secs_f64() > 1.5, "{engine:?}: {:?}", asked.elapsed());
        drop(busy.await);
    }
}

#[tokio::test]
async fn a_death_resets_the_connections_of_all_but_vllm() {
    for engine in [Engine::IkLlama, Engine::Sglang, Engine::Ollama] {
        let rig = start_at(flavour(engine), Clock::new(50.0).unwrap());
        let body = named("x", json!({"stream": true, "max_tokens": 4_000, "ignore_eos": true}));
        let mut answer = dial(&rig, "POST", CHAT, Some(&body)).await.unwrap();
        answer.event().await.unwrap();
        rig.kill();
        assert!(answer.rest().await.is_err(), "{engine:?}: no error event, no end");
        rig.event(|event: &Event| event.kind == EventKind::Down).await;
    }
}

#[tokio::test(start_paused = true)]
async fn versions_windows_and_counters_have_each_flavours_own_names() {
    let shows = async |spec: Spec, path: &str, part: &str| {
        let rig = start(spec);
        post(&rig, CHAT, &named("x", json!({"max_tokens": 1}))).await.text().await;
        let text = get(&rig, path).await.text().await;
        assert!(text.contains(part), "{path}: {part} not in {text}");
    };
    shows(old_vllm(), "/version", "0.9.2").await;
    shows(old_vllm(), "/metrics", "\nvllm:gpu_cache_usage_perc{").await;
    shows(flavour(Engine::IkLlama), "/metrics", "\nllamacpp:kv_cache_usage_ratio ").await;
    shows(flavour(Engine::IkLlama), "/v1/models", "\"max_model_len\":8192").await;
    shows(flavour(Engine::Sglang), "/metrics", "\nsglang:num_running_reqs{model_name=").await;
    shows(flavour(Engine::Sglang), "/v1/models", "\"owned_by\":\"sglang\"").await;
    shows(flavour(Engine::Sglang), "/v1/loads", "\"num_waiting_reqs\":0").await;
    shows(flavour(Engine::Ollama), "/api/ps", "\"context_length\":4096").await;
    let thought = named("x", json!({"chat_template_kwargs": {"enable_thinking": true}}));
    let answer = post(&start(old_vllm()), CHAT, &thought).await.json().await;
    assert!(answer["choices"][0]["message"]["reasoning_content"].is_string());
    let rig = start(Spec { tool_parser: false, ..flavour(Engine::Sglang) });
    let answer = post(&rig, CHAT, &named("x", json!({"tools": tools()}))).await;
    assert_eq!(answer.status(), 200, "no parser, no refusal");
    let rig = start(flavour(Engine::Sglang));
    let body = named("hello there", json!({}));
    let counted = post(&rig, "/tokenize", &body).await.json().await["count"].clone();
    assert_eq!(post(&rig, CHAT, &body).await.json().await["usage"]["prompt_tokens"], counted);
}

#[tokio::test(start_paused = true)]
async fn no_body_is_too_strange_for_a_clear_400() {
    for (spec, part) in [
        (flavour(Engine::IkLlama), "error"),
        (flavour(Engine::Sglang), "\"object\":\"error\""),
        (flavour(Engine::Ollama), "invalid_request_error"),
        (old_vllm(), "error"),
    ] {
        let engine = spec.engine;
        let rig = start(spec);
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let no_list = "{\"model\": \"qwen3.6-27b\", \"messages\": 7}";
        for body in ["", "{\"messages\":[", "[1]", "7", "\"x\"", "{}", no_list, "\u{0}\u{1}", &deep] {
            let stream = rig.connect().await.unwrap();
            let answer = exchange(stream, "POST", CHAT, body.to_owned(), &[]).await.unwrap();
            assert_eq!(answer.status(), 400, "{engine:?} {body:.40?}");
            assert!(answer.text().await.contains(part), "{engine:?}");
            let stream = rig.connect().await.unwrap();
            let asked = exchange(stream, "POST", "/tokenize", body.to_owned(), &[]).await.unwrap();
            assert!(asked.status().as_u16() < 500, "{engine:?}");
        }
        // members of any type, where others are expected
        let odd = json!({"model": "qwen3.6-27b", "messages": [7, null, {"role": 3, "content": {"a": 1}}], "tools": [1],
            "tool_choice": [], "max_tokens": "many", "stream": 1, "stream_options": 7, "chat_template_kwargs": []});
        assert!(post(&rig, CHAT, &odd).await.status().as_u16() < 500, "{engine:?}");
    }
}
