//! Prompts that no window holds, or that only the server finds too long.
//!
//! An overflow is the one refusal that agents mend by themselves, if it is a 400 with the code and the sentences that they
//! look for; whoever found it, it must read the same. llama.cpp's own error has neither.

use anyhow::Result;
use serde_json::Value;

use crate::harness::client::Reply;
use crate::harness::llama::{Llama, Slot};
use crate::harness::proxy::Setup;
use crate::harness::request::chat;

/// Both sentences that clients look for, and the code.
fn assert_overflow(reply: &Reply) -> Result<()> {
    assert_eq!(reply.status, 400, "{}", reply.body);
    let error: Value = reply.json()?["error"].take();
    assert_eq!(error["code"], "context_length_exceeded");
    let message = error["message"].as_str().unwrap_or_default();
    // 2500 words and what the template adds, and the larger of the two windows.
    for phrase in
        ["prompt is too long", "maximum context length", "2530 tokens", "2048 maximum", "2048 tokens"]
    {
        assert!(message.contains(phrase), "no \"{phrase}\" in: {message}");
    }
    Ok(())
}

/// What an operator may write who is wrong about a server.
const WRONG: &str = "window = 8192\nlimit = { resident = 8192 }";

#[tokio::test]
async fn what_no_window_holds_is_refused_and_no_server_hears_of_it() -> Result<()> {
    let (small, large) = Llama::small_and_large().await?;
    let proxy = Setup::default().backend(&small, "").backend(&large, "").start().await?;
    for stream in [false, true] {
        let reply = proxy.chat(&chat(2500, stream)).await?;
        assert_overflow(&reply)?;
    }
    for server in [&small, &large] {
        assert_eq!(server.slots().await?, [Slot::Fresh, Slot::Fresh], "{}", server.spec.name);
    }
    Ok(())
}

#[tokio::test]
async fn an_overflow_that_only_the_server_notices_moves_to_the_larger_window() -> Result<()> {
    let (small, large) = Llama::small_and_large().await?;
    let proxy = Setup::default().backend(&small, WRONG).backend(&large, "").start().await?;
    for stream in [false, true] {
        let reply = proxy.chat(&chat(900, stream)).await?;
        assert_eq!((reply.status, reply.backend().as_str()), (200, "large"), "{}", reply.body);
        assert!(reply.message()?.finish.is_some(), "{}", reply.body);
    }
    assert!(small.slots().await?.contains(&Slot::Idle), "the small one was never asked");
    Ok(())
}

#[tokio::test]
async fn an_overflow_that_all_servers_notice_is_told_in_the_words_of_one_that_the_proxy_noticed() -> Result<()>
{
    let (small, large) = Llama::small_and_large().await?;
    let setup = Setup::default().backend(&small, WRONG).backend(&large, WRONG);
    let proxy = setup.start().await?;
    for stream in [false, true] {
        assert_overflow(&proxy.chat(&chat(2500, stream)).await?)?;
    }
    Ok(())
}
