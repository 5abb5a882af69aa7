//! What a simulated model says: calls in every form, thoughts, continuations, bursts.

use serde_json::{Value, json};
use switchback_rig::{Calls, Engine, Flaw, Format, Mtp, PrefixCache, Spec, text_of_tokens};

use crate::client::*;

fn tools() -> Value {
    let parameters = json!({"type": "object", "required": ["path", "limit"], "properties": {
        "path": {"type": "string"}, "limit": {"type": "integer", "minimum": 5}, "deep": {"type": "boolean"}}});
    json!([{"type": "function", "function": {"name": "delete_file", "parameters": {}}},
        {"type": "function", "function": {"name": "read_file", "parameters": parameters}}])
}

async fn message(spec: Spec, body: &Value) -> Value {
    post(&start(spec), CHAT, body).await.json().await["choices"][0]["message"].clone()
}

#[tokio::test(start_paused = true)]
async fn written_calls_reach_the_client_as_text_in_their_format() {
    let body = chat("x", json!({"tools": tools()}));
    for (step, expect) in [
        ("write pythonic", "[read_file(path=\"README.md\", limit=5)]"),
        ("write mistral:unclosed", "[TOOL_CALLS]read_file[ARGS]{\"path\":\"README.md\",\"limit\":5"),
        ("write glm delete_file", "<tool_call>delete_file\n</tool_call>"),
        (
            "write hermes:trailing-comma f {\"a\": 1}",
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1,}}\n</tool_call>",
        ),
    ] {
        for spec in [vllm(), llama()] {
            let said = message(scripted(spec, &[step]), &body).await;
            assert_eq!((said["content"].as_str(), said.get("tool_calls")), (Some(expect), None), "{step}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fitting_call_names_a_declared_tool_that_only_looks_and_satisfies_its_schema() {
    for spec in [vllm(), llama()] {
        let called = message(scripted(spec, &["call"]), &chat("x", json!({"tools": tools()}))).await;
        let function = &called["tool_calls"][0]["function"];
        assert_eq!(function["name"], "read_file");
        let arguments: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(arguments, json!({"path": "README.md", "limit": 5}));
    }
    let said = message(scripted(vllm(), &["call"]), &chat("x", json!({}))).await;
    assert!(said["content"].as_str().unwrap().starts_with("Your prompt has"), "no tools, no call");
}

#[tokio::test(start_paused = true)]
async fn a_model_calls_as_often_as_its_spec_says_and_stops_after_the_result() {
    let calls = Calls { share: 1.0, ..Calls::default() };
    let mut messages = json!([{"role": "user", "content": "What is in it?"}]);
    let asked = |messages: &Value| json!({"messages": messages, "tools": tools()});
    let called = message(Spec { calls, ..vllm() }, &asked(&messages)).await;
    let call = called["tool_calls"][0].clone();
    messages.as_array_mut().unwrap().extend([
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": call["id"], "content": "Nothing."}),
    ]);
    let said = message(Spec { calls, ..vllm() }, &asked(&messages)).await;
    assert!(said["content"].as_str().unwrap().starts_with("Your prompt has"), "a client's loop ends");

    let rig =
        start(Spec { calls: Calls { share: 0.5, format: Some(Format::QwenXml), flawed: 0.5 }, ..vllm() });
    let (mut written, mut flawed) = (0, 0);
    for question in 0..60 {
        let body = chat(&format!("question {question}"), json!({"tools": tools()}));
        let answer = post(&rig, CHAT, &body).await.json().await;
        let content = answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
        let whole =
            content.starts_with("<tool_call>\n<function=read_file>") && content.ends_with("</tool_call>");
        written += u32::from(content.contains("<tool_call>"));
        flawed += u32::from(
            content.contains("<tool_call>") && (!whole || content.matches("<function").count() > 1),
        );
    }
    assert!((20..=40).contains(&written) && (6..written - 5).contains(&flawed), "{written} {flawed}");
    assert!(Format::QwenXml.flaws().all(|flaw| flaw != Flaw::TrailingComma), "no commas there");
}

#[tokio::test(start_paused = true)]
async fn without_a_reasoning_parser_thoughts_stand_in_the_content() {
    let spec = Spec { thinks: true, reasoning_parser: false, ..vllm() };
    let said = message(spec, &chat("x", json!({}))).await;
    let content = said["content"].as_str().unwrap();
    assert!(content.starts_with("<think>\nThe prompt has 8 tokens."), "{content}");
    assert!(content.contains("\n</think>\n\nYour prompt has") && said["reasoning"].is_null());
    let said = message(scripted(vllm(), &["think of a way"]), &chat("x", json!({}))).await;
    assert!(said["content"].as_str().unwrap().starts_with("<think>\nof a way\n</think>\n\nYour prompt"));
}

#[tokio::test(start_paused = true)]
async fn a_begun_answer_is_continued_with_its_own_rest_and_only_llama_repeats_the_beginning() {
    for spec in [vllm(), llama()] {
        let llama = spec.engine == Engine::LlamaCpp;
        let whole =
            message(spec.clone(), &chat("Where?", json!({}))).await["content"].as_str().unwrap().to_owned();
        let begun = &whole[..whole.len() / 2];
        let mut body = json!({"messages": [
            {"role": "user", "content": "Where?"}, {"role": "assistant", "content": begun}]});
        if !llama {
            let new = message(spec.clone(), &body).await;
            assert_eq!(new["content"], whole.as_str(), "unasked, it begins a new turn");
            body["continue_final_message"] = json!(true);
            body["add_generation_prompt"] = json!(false);
        }
        let went_on = message(spec.clone(), &body).await["content"].as_str().unwrap().to_owned();
        assert_eq!(went_on, if llama { whole.as_str() } else { &whole[begun.len()..] });

        body["stream"] = json!(true);
        let text = post(&start(spec), CHAT, &body).await.text().await;
        assert_eq!(content(&text), went_on);
        let deltas = data(&text);
        let first = deltas.iter().find_map(|chunk| {
            chunk["choices"][0]["delta"]["content"].as_str().filter(|text| !text.is_empty())
        });
        assert_eq!(first.unwrap().starts_with(begun), llama, "the beginning is in the first delta");
    }
}

#[tokio::test(start_paused = true)]
async fn bursts_leave_vllm_in_one_chunk_and_llama_token_by_token() {
    let body = chat(
        "hi",
        json!({"stream": true, "max_tokens": 400, "ignore_eos": true,
        "stream_options": {"include_usage": true}}),
    );
    let run = async |mtp, spec: Spec, speed| {
        let spec = Spec { timing: switchback_rig::Timing { mtp, ..spec.timing }, ..spec };
        let rig = start_at(spec, switchback_rig::Clock::new(speed).unwrap());
        post(&rig, CHAT, &body).await.text().await
    };
    let mtp = Some(Mtp { drafts: 3, accept: 0.79 });
    let chunks =
        |text: &str| data(text).iter().filter(|chunk| chunk["choices"][0]["delta"]["content"] != "").count();
    for spec in [vllm(), llama()] {
        let merges = spec.engine == Engine::Vllm;
        let (plain, bursts) = (run(None, spec.clone(), 1.0).await, run(mtp, spec.clone(), 1.0).await);
        assert_eq!(content(&plain), content(&bursts), "the same words");
        assert_eq!(data(&bursts).last().unwrap()["usage"]["completion_tokens"], 400);
        let ratio = chunks(&plain) as f64 / chunks(&bursts) as f64;
        assert!(if merges { (2.5..3.2).contains(&ratio) } else { ratio < 1.01 }, "{ratio}");
        assert_eq!(run(mtp, spec, 500.0).await, bursts, "the same bytes at any speed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_turn_is_mostly_cached_and_both_engines_say_so() {
    let cache = Some(PrefixCache { block: 16, reuse: 1.0 });
    let question = text_of_tokens(2_000, 1);
    for spec in [vllm(), llama()] {
        let rig = start(Spec { prefix_cache: cache, ..spec });
        let first = post(&rig, CHAT, &chat(&question, json!({}))).await.json().await;
        let said = &first["choices"][0]["message"]["content"];
        let next = json!({"messages": [{"role": "user", "content": question},
            {"role": "assistant", "content": said}, {"role": "user", "content": "And then?"}]});
        let from = tokio::time::Instant::now();
        let second =
            post(&rig, CHAT, &json!({"max_tokens": 1, "messages": next["messages"]})).await.json().await;
        assert!(from.elapsed().as_secs_f64() < 0.3, "2 s without the cache: {:?}", from.elapsed());
        let metrics = get(&rig, "/metrics").await.text().await;
        if rig.spec().engine == Engine::Vllm {
            assert!(
                metrics.lines().any(|line| {
                    line.starts_with("vllm:prefix_cache_hits_total") && !line.ends_with(" 0.0")
                })
            );
        } else {
            let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
            assert!(cached > 2_000, "{cached}");
            assert_eq!(second["timings"]["cache_n"], cached);
            assert!(metrics.contains(&format!("\nllamacpp:prompt_tokens_cached_total {cached}\n")));
        }
    }
}
