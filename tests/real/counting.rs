//! The proxy's own count of a prompt, from the vocabulary and template in the model's file, against the engine's.
//!
//! Both read the same GGUF file, so both must find the same number, whatever is sent: a count that is too low sends a
//! prompt over the cliff, one that is too high refuses what would have fitted. The server must never be asked to count
//! here, or it would be compared with itself.

mod requests;

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::harness::llama::{Llama, SMALL, Spec};
use crate::harness::proxy::{Proxy, Setup};
use crate::harness::python::python;
use crate::harness::request::chat;
use crate::harness::{SOON, wait_until};

/// Far more than any of the requests, so that bounds fit and the server is never asked to count.
const ROOM: &str = "window = 1_000_000";

/// A server, and a proxy that has read its vocabulary.
async fn counted() -> Result<(Llama, Proxy)> {
    let server = Llama::start(Spec { window: 2048, slots: 1, ..SMALL }).await?;
    let vocabulary = python()?.model.to_str().context("the path is not UTF-8")?;
    let setup = Setup::default().backend(&server, ROOM).model(&format!("tokenizer = {vocabulary:?}"));
    let proxy = setup.start().await?;
    // Until then the header tells bounds.
    wait_until("the vocabulary", SOON, async || {
        let tokens = proxy.chat(&chat(1, false)).await?.header("x-switchback-tokens");
        Ok(tokens.parse::<u64>().ok())
    })
    .await?;
    Ok((server, proxy))
}

/// Sends all requests and compares the count in the header with the one in the answer.
async fn compare(proxy: &Proxy, path: &str, requests: &[(String, Value)]) -> Result<()> {
    let mut table = String::new();
    for (name, members) in requests {
        let mut request = members.clone();
        request["model"] = json!("smollm2");
        request["max_tokens"] = json!(1);
        let reply = proxy.post(path, &request).await?;
        let counted = reply.header("x-switchback-tokens");
        let said = match reply.status {
            200 => reply.json()?["usage"]["prompt_tokens"].to_string(),
            _ => reply.body,
        };
        if counted != said {
            writeln!(table, "{name:32} counted {counted:>9}, said {said:>5}  {members}")?;
        }
    }
    ensure!(
        table.is_empty(),
        "of {} requests these were counted otherwise than the server did:\n{table}",
        requests.len()
    );
    Ok(())
}

#[tokio::test]
async fn the_vocabulary_counts_chats_as_the_server_does() -> Result<()> {
    let (_server, proxy) = counted().await?;
    let requests = requests::chats();
    assert!(requests.len() >= 100, "{}", requests.len());
    compare(&proxy, "/v1/chat/completions", &requests).await
}

#[tokio::test]
async fn the_vocabulary_counts_bare_prompts_as_the_server_does() -> Result<()> {
    let (_server, proxy) = counted().await?;
    compare(&proxy, "/v1/completions", &requests::prompts()).await
}
