//! By length to the window that holds it, and the answer as the server gave it.
//!
//! The windows are those that the servers really have, found by asking them: 512 and 2048 tokens. Which one answered is
//! read from the header that clients see.

use anyhow::{Context, Result};
use regex::Regex;
use serde_json::{Value, json};

use crate::harness::client::{Reply, get, send};
use crate::harness::llama::{LARGE, Llama};
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
        let list = get(proxy.address, "/v1/models").await?.json()?;
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
    proxy.until_backend_is("large", "absent").await?;
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
    Ok(Regex::new(r#""((?:(?:prompt|predicted)_(?:per_token_)?(?:ms|per_second))|time_ms)":[0-9.e+-]+"#)?
        .replace_all(&body, r#""$1":…"#)
        .into_owned())
}

/// Sends a request twice, straight and through the proxy, with these members added; what comes back must be the same.
async fn assert_arrives_as_sent(added: &[Value]) -> Result<()> {
    let large = Llama::start(LARGE).await?;
    let proxy = Setup::default().backend(&large, "").start().await?;
    for members in added {
        let mut request = json!({"model": "large", "messages": [{"role": "user", "content": "What is a switchback?"}],
            "max_tokens": 12, "temperature": 0, "cache_prompt": false});
        if let (Some(request), Some(members)) = (request.as_object_mut(), members.as_object()) {
            request.extend(members.clone());
        }
        let direct =
            send(large.address, "/v1/chat/completions", &request).await?.answer().await?.rest().await?;
        let through = proxy.chat(&request).await?;
        assert_eq!(through.status, direct.status, "{members}");
        let kind = |reply: &Reply| reply.header("content-type").split(';').next().map(str::to_owned);
        assert_eq!(kind(&through), kind(&direct), "{members}");
        let (through, direct) = (lasting(&through.body)?, lasting(&direct.body)?);
        for (came, sent) in through.lines().zip(direct.lines()) {
            assert_eq!(came, sent, "{members}");
        }
        assert_eq!(through.len(), direct.len(), "{members}");
    }
    Ok(())
}

#[tokio::test]
async fn a_plain_answer_arrives_as_the_server_sent_it() -> Result<()> {
    assert_arrives_as_sent(&[json!({}), json!({"n": 2}), json!({"logprobs": true, "top_logprobs": 2})]).await
}

#[tokio::test]
async fn a_stream_with_usage_arrives_as_the_server_sent_it() -> Result<()> {
    let usage = json!({"include_usage": true});
    assert_arrives_as_sent(&[
        json!({"stream": true, "stream_options": usage}),
        json!({"stream": true, "stream_options": usage, "logprobs": true, "top_logprobs": 2}),
        json!({"stream": true, "stream_options": usage, "timings_per_token": true, "return_progress": true}),
    ])
    .await
}

/// The proxy asks for usage all the same, for its books; that must not show.
#[tokio::test]
async fn a_stream_without_usage_arrives_as_the_server_sent_it() -> Result<()> {
    assert_arrives_as_sent(&[json!({"stream": true}), json!({"stream": true, "stream_options": null})]).await
}
