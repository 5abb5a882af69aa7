//! By length to the window that holds it, and the answer as the server gave it.
//!
//! The windows are those that the servers really have, found by asking them: 512 and 2048 tokens. Which one answered is
//! read from the header that clients see.

use anyhow::{Context, Result};
use regex::Regex;
use serde_json::{Value, json};

use crate::harness::client::{Reply, send};
use crate::harness::llama::Llama;
use crate::harness::proxy::Setup;
use crate::harness::request::chat;

#[tokio::test]
async fn a_short_prompt_goes_to_the_small_window_and_a_long_one_to_the_large() -> Result<()> {
    let (small, large) = Llama::small_and_large().await?;
    let proxy = Setup::default().backend(&small, "").backend(&large, "").start().await?;
    for (words, backend) in [(20, "small"), (700, "large")] {
        for stream in [false, true] {
            let reply = proxy.chat(&chat(words, stream)).await?;
            assert_eq!((reply.status, reply.backend()), (200, backend.to_owned()), "{}", reply.body);
            let message = reply.message()?;
            assert!(!message.content.is_empty() && message.finish.is_some(), "{message:?}");
            assert!(message.faults.is_empty(), "{message:?}");
        }
    }
    Ok(())
}

/// What the output needs counts, too: the small window has room for the prompt, but not for the answer beside it.
#[tokio::test]
async fn a_short_prompt_with_a_long_answer_goes_to_the_large_window() -> Result<()> {
    let (small, large) = Llama::small_and_large().await?;
    let proxy = Setup::default().backend(&small, "").backend(&large, "").start().await?;
    let mut request = chat(20, false);
    request["max_tokens"] = json!(600);
    request["stop"] = json!(["e", "a", "i", "o"]);
    let reply = proxy.chat(&request).await?;
    assert_eq!((reply.status, reply.backend().as_str()), (200, "large"), "{}", reply.body);
    Ok(())
}

/// Where no vocabulary is configured the server itself is asked, so the header's number is the server's.
#[tokio::test]
async fn the_count_of_a_prompt_that_does_not_fit_everywhere_is_exact() -> Result<()> {
    let (small, large) = Llama::small_and_large().await?;
    let proxy = Setup::default().backend(&small, "").backend(&large, "").start().await?;
    let reply = proxy.chat(&chat(600, false)).await?;
    let counted = reply.json()?["usage"]["prompt_tokens"].clone();
    assert_eq!(reply.header("x-switchback-tokens"), counted.to_string(), "{}", reply.body);
    Ok(())
}

#[tokio::test]
async fn the_model_list_tells_the_largest_window_that_is_up() -> Result<()> {
    let (small, mut large) = Llama::small_and_large().await?;
    let proxy = Setup::default().backend(&small, "").backend(&large, "").start().await?;
    let windows = async || -> Result<Vec<(String, Value)>> {
        let list = crate::harness::client::get(proxy.address, "/v1/models").await?.json()?;
        let cards = list["data"].as_array().context("no list")?;
        let window = |card: &Value| {
            (card["id"].as_str().unwrap_or_default().to_owned(), card["max_model_len"].clone())
        };
        Ok(cards.iter().map(window).collect())
    };
    let expected = |smollm2: u32, large: u32| {
        [("smollm2", smollm2), ("auto", smollm2), ("small", 512), ("large", large)]
            .map(|(name, window)| (name.to_owned(), json!(window)))
    };
    assert_eq!(windows().await?, expected(2048, 2048));
    large.kill().await?;
    proxy.until_backend_is("large", "down").await?;
    assert_eq!(
        windows().await?,
        expected(512, 2048),
        "a window that is down is not to be had, but still known"
    );
    Ok(())
}

/// All but what differs between any two answers of the server itself: ids, times, speeds.
fn lasting(body: &str) -> Result<String> {
    let body = Regex::new(r#""(id|created)":("[^"]*"|\d+)"#)?.replace_all(body, r#""$1":…"#).into_owned();
    Ok(Regex::new(r#""((?:prompt|predicted)_(?:per_token_)?(?:ms|per_second))":[0-9.e+-]+"#)?
        .replace_all(&body, r#""$1":…"#)
        .into_owned())
}

#[tokio::test]
async fn an_answer_arrives_as_the_server_sent_it() -> Result<()> {
    let large = Llama::start(crate::harness::llama::LARGE).await?;
    let proxy = Setup::default().backend(&large, "").start().await?;
    let plain = json!({"model": "large", "messages": [{"role": "user", "content": "What is a switchback?"}],
        "max_tokens": 12, "temperature": 0, "cache_prompt": false});
    let with = |members: Value| {
        let mut request = plain.clone();
        if let (Some(request), Value::Object(members)) = (request.as_object_mut(), members) {
            request.extend(members);
        }
        request
    };
    for request in [
        plain.clone(),
        with(json!({"n": 2})),
        with(json!({"stream": true, "stream_options": {"include_usage": true}})),
        with(
            json!({"stream": true, "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 2}),
        ),
        with(json!({"stream": true, "stream_options": {"include_usage": true}, "timings_per_token": true})),
        with(json!({"stream": true})),
    ] {
        let direct =
            send(large.address, "/v1/chat/completions", &request).await?.answer().await?.rest().await?;
        let through = proxy.chat(&request).await?;
        assert_eq!(through.status, direct.status);
        assert_eq!(lasting(&through.body)?, lasting(&direct.body)?, "{request}");
        let kind = |reply: &Reply| reply.header("content-type").split(';').next().map(str::to_owned);
        assert_eq!(kind(&through), kind(&direct));
    }
    Ok(())
}
