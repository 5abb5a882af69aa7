//! vLLM's wire against captures of 0.32.0.

use serde_json::{Value, json};
use switchback_rig::{Spec, text_of_tokens};

use crate::client::*;

/// Posts with a fixed request id, so that whole answers can be compared.
async fn named(rig: &switchback_rig::Rig, path: &str, body: &Value) -> Answer {
    let stream = rig.connect().await.unwrap();
    exchange(stream, "POST", path, body.to_string(), &[("x-request-id", "t1")]).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_the_captured_one_byte_for_byte() {
    let rig = start(scripted(vllm(), &["say Hello there", "say Hello there"]));
    let answer = named(&rig, CHAT, &chat("hi", json!({"stream": true}))).await;
    assert_eq!(answer.header("content-type"), "text/event-stream; charset=utf-8");
    assert_eq!(answer.header("server"), "uvicorn");
    let head =
        r#"{"id":"chatcmpl-t1","object":"chat.completion.chunk","created":1796088446,"model":"qwen3.6-27b""#;
    let text = answer.text().await;
    let fingerprint = data(&text)[3]["system_fingerprint"].as_str().unwrap().to_owned();
    assert_eq!(
        text,
        [
            r#"data: HEAD,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}"#,
            r#"data: HEAD,"choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null,"token_ids":null}]}"#,
            r#"data: HEAD,"choices":[{"index":0,"delta":{"content":" there"},"logprobs":null,"finish_reason":null,"token_ids":null}]}"#,
            r#"data: HEAD,"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}],"system_fingerprint":"FINGERPRINT"}"#,
            "data: [DONE]",
            "",
        ]
        .join("\n\n")
        .replace("HEAD", head)
        .replace("FINGERPRINT", &fingerprint)
    );

    let options = json!({"include_usage": true, "continuous_usage_stats": true});
    let body = chat("hi", json!({"stream": true, "max_tokens": 2, "stream_options": options}));
    let chunks = data(&named(&rig, CHAT, &body).await.text().await);
    let completion: Vec<_> =
        chunks.iter().map(|chunk| chunk["usage"]["completion_tokens"].as_u64()).collect();
    assert_eq!(completion, [Some(0), Some(1), Some(2), Some(2)]);
    assert_eq!(chunks[2]["choices"][0]["finish_reason"], "length");
    assert_eq!(chunks[3]["choices"], json!([]));
    assert_eq!(chunks[3]["usage"]["total_tokens"], 8 + 2);
}

#[tokio::test(start_paused = true)]
async fn the_role_chunk_arrives_with_the_first_token() {
    let rig = start(vllm());
    let mut answer = post(&rig, CHAT, &chat(&text_of_tokens(1_000, 1), json!({"stream": true}))).await;
    let role = answer.event().await.unwrap();
    let at = tokio::time::Instant::now();
    let first = answer.event().await.unwrap();
    assert!(role.contains("\"role\"") && first.contains("content"));
    assert_eq!(at.elapsed().as_nanos(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_plain_answer_has_the_captured_members_in_their_order() {
    let rig = start(scripted(vllm(), &["say Hello", "say Hello"]));
    let text =
        named(&rig, CHAT, &chat("hi", json!({"chat_template_kwargs": {"enable_thinking": true}}))).await;
    let whole: Value = serde_json::from_str(&text.text().await).unwrap();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(
        keys(&whole),
        "id object created model choices service_tier system_fingerprint usage prompt_logprobs prompt_token_ids \
         prompt_text kv_transfer_params ec_transfer_params metrics"
    );
    let choice = &whole["choices"][0];
    assert_eq!(keys(choice), "index message logprobs finish_reason stop_reason token_ids routed_experts");
    assert_eq!(keys(&choice["message"]), "role content refusal annotations audio function_call reasoning");
    assert_eq!(choice["message"]["content"], "Hello");
    assert!(choice["message"]["reasoning"].as_str().unwrap().starts_with("The prompt has 8 tokens."));
    assert_eq!(
        keys(&whole["usage"]),
        "prompt_tokens total_tokens completion_tokens completion_tokens_details prompt_tokens_details"
    );

    let completion = named(&rig, "/v1/completions", &json!({"prompt": "a b c"})).await.json().await;
    assert_eq!((&completion["id"], &completion["object"]), (&json!("cmpl-t1"), &json!("text_completion")));
    assert_eq!(completion["choices"][0]["text"], "Hello");
    assert_eq!(completion["usage"]["prompt_tokens"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_streamed_completion_carries_text() {
    let rig = start(scripted(vllm(), &["say one two"]));
    let text = named(&rig, "/v1/completions", &json!({"prompt": "x", "stream": true})).await.text().await;
    let chunks = data(&text);
    let said: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str()).collect();
    assert_eq!(said, "one two");
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "stop");
    assert!(text.ends_with("data: [DONE]\n\n"));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_behind_the_prompt_is_clamped_silently() {
    let rig = start(Spec { window: 2_048, ..vllm() });
    let more = json!({"max_tokens": 2_000, "ignore_eos": true});
    let answer = post(&rig, CHAT, &chat(&text_of_tokens(1_809 - 7, 1), more)).await;
    assert_eq!(answer.status(), 200);
    let answer = answer.json().await;
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(
        (&answer["usage"]["completion_tokens"], &answer["usage"]["total_tokens"]),
        (&json!(239), &json!(2_048))
    );
}

/// Posts and compares the whole error body with a captured one.
async fn refused(spec: Spec, path: &str, body: &Value, status: u16, error: Value) {
    let answer = post(&start(spec), path, body).await;
    assert_eq!(answer.status(), status, "{body}");
    assert_eq!(answer.json().await.to_string(), json!({"error": error}).to_string());
}

#[tokio::test(start_paused = true)]
async fn refusals_are_worded_as_captured() {
    let bad = |message: &str, param: Value| json!({"message": message, "type": "BadRequestError", "param": param, "code": 400});
    let overflow = "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 \
                    input tokens, which exceeds this limit even without any output tokens. Please reduce the length \
                    of the input prompt. (parameter=input_tokens, value=2049)";
    let small = || Spec { window: 2_048, ..vllm() };
    for stream in [true, false] {
        let body = chat(&text_of_tokens(6_009, 1), json!({"stream": stream}));
        refused(small(), CHAT, &body, 400, bad(overflow, json!("input_tokens"))).await;
    }
    let characters = format!("{}b", "a ".repeat(1_800_024));
    let message = "This model's maximum context length is 2048 tokens. However, your prompt contains 3600049 \
                   characters (more than 262144 characters, which is the upper bound for 2048 input tokens). Please \
                   reduce the length of the input prompt. (parameter=input_text, value=3600049)";
    refused(small(), CHAT, &chat(&characters, json!({})), 400, bad(message, json!("input_text"))).await;

    let message = "max_tokens=100000 cannot be greater than max_model_len=2048. Please request fewer output tokens. \
                   (parameter=max_tokens, value=100000)";
    let body = chat("x", json!({"max_tokens": 100_000}));
    refused(small(), CHAT, &body, 400, bad(message, json!("max_tokens"))).await;
    let message = "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)";
    refused(small(), CHAT, &chat("x", json!({"max_tokens": 0})), 400, bad(message, json!("max_tokens")))
        .await;

    let unknown = json!({"message": "The model `nope` does not exist. Valid aliases: tiny, small.",
        "type": "NotFoundError", "param": "model", "code": 404});
    let tiny = Spec { model: "tiny".to_owned(), aliases: vec!["small".to_owned()], ..vllm() };
    refused(tiny.clone(), CHAT, &chat("x", json!({"model": "nope"})), 404, unknown).await;
    assert_eq!(
        post(&start(tiny), CHAT, &chat("x", json!({"model": "small"}))).await.json().await["model"],
        "tiny"
    );

    let message = "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely. (parameter=tools)";
    refused(vllm(), CHAT, &chat("x", json!({"tools": []})), 400, bad(message, json!("tools"))).await;
    let message = "When using `tool_choice`, `tools` must be set. (parameter=tool_choice)";
    refused(
        vllm(),
        CHAT,
        &chat("x", json!({"tool_choice": "auto"})),
        400,
        bad(message, json!("tool_choice")),
    )
    .await;
    let message = "Stream options can only be defined when `stream=True`. (parameter=stream_options)";
    let body = chat("x", json!({"stream_options": {"include_usage": true}}));
    refused(vllm(), CHAT, &body, 400, bad(message, json!("stream_options"))).await;
    let message = "Cannot apply chat template to an empty conversation. Provide at least one message.";
    refused(vllm(), CHAT, &json!({"messages": []}), 400, bad(message, Value::Null)).await;
    let message = "temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)";
    let body = chat("x", json!({"temperature": -1}));
    refused(vllm(), CHAT, &body, 400, bad(message, json!("temperature"))).await;
    let message = "1 validation error:\n  {'type': 'int_parsing', 'loc': 'body.max_tokens', 'msg': 'Input should be a valid \
                   integer, unable to parse string as an integer', 'input': 'x'}";
    let malformed =
        json!({"message": message, "type": "Bad Request", "param": "body.max_tokens", "code": 400});
    refused(vllm(), CHAT, &chat("x", json!({"max_tokens": "x"})), 400, malformed).await;
    let image = json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]});
    let message = "qwen3.6-27b is not a multimodal model";
    refused(vllm(), CHAT, &image, 400, bad(message, Value::Null)).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_tool_parser_only_none_passes_and_calls_are_text() {
    let bare = || Spec { tool_parser: false, ..vllm() };
    let tools = json!([{"type": "function", "function": {"name": "get_weather", "parameters": {}}}]);
    let body = |choice: Value| chat("x", json!({"tools": tools, "tool_choice": choice}));
    let bad =
        |message: &str| json!({"message": message, "type": "BadRequestError", "param": null, "code": 400});
    let auto = "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set";
    refused(bare(), CHAT, &body(json!("auto")), 400, bad(auto)).await;
    refused(bare(), CHAT, &chat("x", json!({"tools": tools})), 400, bad(auto)).await;
    let required = "tool_choice=\"required\" requires --tool-call-parser to be set";
    refused(bare(), CHAT, &body(json!("required")), 400, bad(required)).await;
    let named = "tool_choice=function \"get_weather\" requires --tool-call-parser to be set";
    let choice = json!({"type": "function", "function": {"name": "get_weather"}});
    refused(bare(), CHAT, &body(choice), 400, bad(named)).await;

    let rig = start(scripted(bare(), &["call get_weather {\"city\": \"Berlin\"}"]));
    let answer = post(&rig, CHAT, &body(json!("none"))).await.json().await;
    assert_eq!(
        answer["choices"][0]["message"]["content"],
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Berlin\"}}\n</tool_call>"
    );
    assert!(answer["usage"]["prompt_tokens"].as_u64().unwrap() > 20, "tools are in the prompt");
}

#[tokio::test(start_paused = true)]
async fn the_shorter_endpoints_answer_as_captured() {
    let rig = start(Spec { model: "tiny".to_owned(), window: 2_048, kv_pool: Some(4_096), ..vllm() });
    let health = get(&rig, "/health").await;
    assert_eq!((health.status().as_u16(), health.header("content-type")), (200, ""));
    assert_eq!(health.text().await, "");
    assert_eq!(get(&rig, "/version").await.text().await, r#"{"version":"0.32.0"}"#);
    let models = get(&rig, "/v1/models").await.text().await;
    assert!(
        models.starts_with(
            r#"{"object":"list","data":[{"id":"tiny","object":"model","created":1796088446,"owned_by":"vllm","root":"tiny","parent":null,"max_model_len":2048,"permission":[{"id":"modelperm-"#
        ),
        "{models}"
    );
    let absent = get(&rig, "/v1/embeddings").await;
    assert_eq!((absent.status().as_u16(), absent.text().await.as_str()), (404, r#"{"detail":"Not Found"}"#));
    let wrong = get(&rig, CHAT).await;
    assert_eq!((wrong.status().as_u16(), wrong.header("allow")), (405, "POST"));
}

#[tokio::test(start_paused = true)]
async fn metrics_show_what_runs_and_what_waits() {
    let rig = start(Spec { kv_pool: Some(10_000), ..vllm() });
    let body = chat(&text_of_tokens(993, 1), json!({"stream": true}));
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(post(&rig, CHAT, &body).await);
    }
    streams[0].event().await.unwrap();
    let metrics = get(&rig, "/metrics").await.text().await;
    for line in [
        "vllm:num_requests_running{engine=\"0\",model_name=\"qwen3.6-27b\"} 2.0",
        "vllm:num_requests_waiting{engine=\"0\",model_name=\"qwen3.6-27b\"} 1.0",
        "vllm:prompt_tokens_total{engine=\"0\",model_name=\"qwen3.6-27b\"} 1000.0",
    ] {
        assert!(metrics.lines().any(|shown| shown == line), "{line} not in {metrics}");
    }
    assert!(metrics.contains("kv_cache_size_tokens=\"10000\""));
    assert_eq!((rig.load().running, rig.load().waiting), (2, 1));
    assert!(rig.load().resident_tokens > 1_000);
}

#[tokio::test(start_paused = true)]
async fn no_body_is_too_strange_for_a_clear_400() {
    let rig = start(vllm());
    for (body, part) in [
        ("", "json_invalid"),
        ("{\"messages\":[", "'loc': 'body.13'"),
        ("[1]", "model_attributes_type"),
        ("{}", "body.messages"),
        ("{\"messages\": 7}", "body.messages"),
        ("\u{0}\u{1}", "json_invalid"),
    ] {
        let stream = rig.connect().await.unwrap();
        let answer = exchange(stream, "POST", CHAT, body.to_owned(), &[]).await.unwrap();
        assert_eq!(answer.status(), 400, "{body:?}");
        let error = answer.json().await;
        assert!(error["error"]["message"].as_str().unwrap().contains(part), "{error}");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let stream = rig.connect().await.unwrap();
    assert_eq!(exchange(stream, "POST", CHAT, deep, &[]).await.unwrap().status(), 400);
    let stream = rig.connect().await.unwrap();
    let typed =
        exchange(stream, "POST", CHAT, "{}".to_owned(), &[("content-type", "text/plain")]).await.unwrap();
    assert_eq!(typed.status(), 400);
}

#[tokio::test(start_paused = true)]
async fn claude_codes_dialect_has_blocks_that_open_and_close_and_a_death_in_its_own_event() {
    let rig = start(scripted(vllm(), &["call f {\"a\": 1}", "say Hello there", "dead"]));
    let body = |more: Value| {
        let mut body = json!({"model": "qwen3.6-27b", "max_tokens": 50, "stream": true,
            "system": [{"type": "text", "text": "s"}], "tools": [{"name": "f", "input_schema": {"type": "object"}}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let text = post(&rig, "/v1/messages", &body(json!({}))).await.text().await;
    let kinds: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(kinds.first(), Some(&"message_start"), "{text}");
    assert_eq!(kinds[kinds.len() - 3..], ["content_block_stop", "message_delta", "message_stop"], "{text}");
    assert!(text.contains(r#""type":"tool_use""#) && text.contains(r#""stop_reason":"tool_use""#), "{text}");
    let whole = post(&rig, "/v1/messages", &body(json!({"stream": false}))).await.json().await;
    assert_eq!(
        (&whole["type"], &whole["content"][0]["text"], &whole["stop_reason"]),
        (&json!("message"), &json!("Hello there"), &json!("end_turn"))
    );
    let dead = post(&rig, "/v1/messages", &body(json!({}))).await.text().await;
    assert!(
        dead.starts_with("event: error\ndata: {\"type\":\"error\"") && !dead.contains("message_stop"),
        "{dead}"
    );
}

#[tokio::test(start_paused = true)]
async fn codex_dialect_says_all_once_more_at_the_end() {
    let rig = start(scripted(vllm(), &["call f {\"a\": 1}", "say Hello there"]));
    let tools =
        json!([{"type": "function", "name": "f", "parameters": {"type": "object"}}, {"type": "web_search"}]);
    let body = json!({"model": "qwen3.6-27b", "stream": true, "instructions": "i", "tools": tools,
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]});
    let text = post(&rig, "/v1/responses", &body).await.text().await;
    let events = data(&text);
    let numbers: Vec<_> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    assert_eq!(
        (&events[0]["type"], &events[1]["type"]),
        (&json!("response.created"), &json!("response.in_progress"))
    );
    let last = &events.last().unwrap()["response"];
    assert_eq!(
        (&last["status"], &last["output"][0]["type"], &last["output"][0]["arguments"]),
        (&json!("completed"), &json!("function_call"), &json!("{\"a\": 1}"))
    );
    let text = post(&rig, "/v1/responses", &body).await.text().await;
    let last = &data(&text).last().unwrap()["response"].clone();
    assert_eq!(last["output"][0]["content"][0]["text"], "Hello there");
}
