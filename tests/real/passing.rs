//! Endpoints beside chat, mistakes, and what keeps a waiting client.
//!
//! Each endpoint keeps the shapes of its own dialect, in its answers, its streams and its refusals. What one server lacks
//! another may have.

use anyhow::Result;
use serde_json::{Value, json};

use crate::harness::llama::{LARGE, Llama, SMALL, Spec};
use crate::harness::proxy::Setup;
use crate::harness::request::chat;

#[tokio::test]
async fn messages_pass_in_their_own_dialect() -> Result<()> {
    let small = Llama::start(SMALL).await?;
    let proxy = Setup::default().backend(&small, "").start().await?;
    let mut request =
        json!({"model": "smollm2", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5});
    let reply = proxy.post("/v1/messages", &request).await?;
    let answer = reply.json()?;
    assert_eq!(
        (reply.status, &answer["type"], &answer["stop_reason"]),
        (200, &json!("message"), &json!("max_tokens"))
    );
    request["stream"] = true.into();
    let reply = proxy.post("/v1/messages", &request).await?;
    let stream = reply.stream();
    let kinds: Vec<&Value> = stream.chunks().map(|chunk| &chunk["type"]).collect();
    assert_eq!(
        (kinds.first(), kinds.last()),
        (Some(&&json!("message_start")), Some(&&json!("message_stop")))
    );
    assert!(!reply.body.contains("[DONE]"), "{}", reply.body);
    Ok(())
}

#[tokio::test]
async fn completions_and_responses_pass_in_their_own_dialect() -> Result<()> {
    let small = Llama::start(SMALL).await?;
    let proxy = Setup::default().backend(&small, "").start().await?;
    for stream in [false, true] {
        let request = json!({"model": "smollm2", "prompt": "The road", "max_tokens": 5, "stream": stream});
        let reply = proxy.post("/v1/completions", &request).await?;
        assert_eq!((reply.status, reply.backend().as_str()), (200, "small"), "{}", reply.body);
        let last = if stream {
            assert!(reply.body.ends_with("data: [DONE]\n\n"), "{}", reply.body);
            reply.stream().chunks().last().cloned().unwrap_or_default()
        } else {
            reply.json()?
        };
        assert_eq!(last["choices"][0]["finish_reason"], "length", "{}", reply.body);

        let request = json!({"model": "smollm2", "input": "Hello", "max_output_tokens": 5, "stream": stream});
        let reply = proxy.post("/v1/responses", &request).await?;
        assert_eq!((reply.status, reply.backend().as_str()), (200, "small"), "{}", reply.body);
        let ended = if stream {
            reply.stream().chunks().last().map(|event| event["response"].clone()).unwrap_or_default()
        } else {
            reply.json()?
        };
        assert_eq!(ended["object"], "response", "{}", reply.body);
        assert!(ended["usage"]["output_tokens"].as_u64() > Some(0), "{}", reply.body);
    }
    Ok(())
}

#[tokio::test]
async fn embeddings_come_from_the_server_that_has_them() -> Result<()> {
    let embeds = Spec { embeddings: true, ..LARGE };
    let (small, large) = tokio::try_join!(Llama::start(SMALL), Llama::start(embeds))?;
    let proxy = Setup::default().backend(&small, "").backend(&large, "").start().await?;
    let request = json!({"model": "smollm2", "input": "a road"});
    let reply = proxy.post("/v1/embeddings", &request).await?;
    assert_eq!((reply.status, reply.backend().as_str()), (200, "large"), "{}", reply.body);
    assert!(reply.json()?["data"][0]["embedding"].as_array().is_some_and(|numbers| numbers.len() == 576));
    // A server that does not do this is still there for all else.
    assert_eq!(proxy.chat(&chat(20, false)).await?.backend(), "small");
    Ok(())
}

/// llama.cpp says 501; the client learns that no server does this, and nothing that sounds like a passing trouble.
#[tokio::test]
async fn embeddings_that_no_server_has_are_refused_for_good() -> Result<()> {
    let small = Llama::start(SMALL).await?;
    let proxy = Setup::default().backend(&small, "").start().await?;
    let reply = proxy.post("/v1/embeddings", &json!({"model": "smollm2", "input": "a road"})).await?;
    assert_eq!(reply.status, 404, "{}", reply.body);
    let message = reply.json()?["error"]["message"].clone();
    assert!(message.as_str().is_some_and(|message| message.contains("/v1/embeddings")), "{message}");
    Ok(())
}

#[tokio::test]
async fn a_mistake_of_the_client_is_told_in_the_servers_words() -> Result<()> {
    let (small, large) = Llama::small_and_large().await?;
    let proxy = Setup::default().backend(&small, "").backend(&large, "").start().await?;
    let mut request = chat(20, false);
    request["tool_choice"] = "sometimes".into();
    let reply = proxy.chat(&request).await?;
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert!(reply.body.contains("tool_choice"), "{}", reply.body);
    Ok(())
}

#[tokio::test]
async fn a_long_prefill_is_bridged_by_comments() -> Result<()> {
    let large = Llama::start(LARGE).await?;
    let setup = Setup::default().backend(&large, "").failover("hold_head = \"20ms\"\nkeep_alive = \"20ms\"");
    let proxy = setup.start().await?;
    let answer = proxy.open(&chat(700, true)).await?;
    assert_eq!((answer.status, answer.header("x-switchback-backend").as_str()), (200, "pending"));
    let reply = answer.rest().await?;
    assert!(reply.body.starts_with(':'), "{}", reply.body);
    // llama.cpp tells how far it is, and none of that is taken for the answer.
    assert!(reply.body.contains("tokens of the prompt are read\n"), "{}", reply.body);
    assert!(!reply.body.contains("prompt_progress"), "{}", reply.body);
    let message = reply.message()?;
    assert!(
        !message.content.is_empty() && message.finish.is_some() && message.faults.is_empty(),
        "{message:?}"
    );
    Ok(())
}
