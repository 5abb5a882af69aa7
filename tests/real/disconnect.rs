//! A client that hangs up: the server must stop at once, whatever it was doing.
//!
//! The window is so large that no machine finishes its work in the time that the server takes to notice: what its own
//! counters say afterwards tells a request that was cancelled from one that came to its end.

use anyhow::Result;

use crate::harness::llama::{Llama, Slot, Spec};
use crate::harness::proxy::Setup;
use crate::harness::request::{chat, talk};

const WIDE: Spec = Spec { name: "wide", window: 8192, slots: 1, embeddings: false, strict: false };

async fn hang_up_in_prefill(stream: bool) -> Result<()> {
    let server = Llama::start(WIDE).await?;
    let proxy = Setup::default().backend(&server, "").start().await?;
    let sent = proxy.send("/v1/chat/completions", &chat(7500, stream)).await?;
    server.until("prefill", |slots| slots == [Slot::Prefill]).await?;
    drop(sent);
    server.until_idle().await?;
    assert_eq!(server.slots().await?, [Slot::Idle]);
    let read = server.counter("prompt_tokens_total").await?;
    assert!(read < 7000, "{read} tokens were read for nobody");
    Ok(())
}

async fn hang_up_in_decode(stream: bool) -> Result<()> {
    let server = Llama::start(WIDE).await?;
    let proxy = Setup::default().backend(&server, "").start().await?;
    let sent = proxy.send("/v1/chat/completions", &talk(8000, stream)).await?;
    server.until("decode", |slots| slots == [Slot::Decode]).await?;
    drop(sent);
    server.until_idle().await?;
    let written = server.counter("tokens_predicted_total").await?;
    assert!((1..7000).contains(&written), "{written} tokens were written for nobody");
    Ok(())
}

#[tokio::test]
async fn a_hang_up_stops_the_prefill_of_a_stream() -> Result<()> {
    hang_up_in_prefill(true).await
}

#[tokio::test]
async fn a_hang_up_stops_the_prefill_of_a_plain_answer() -> Result<()> {
    hang_up_in_prefill(false).await
}

#[tokio::test]
async fn a_hang_up_stops_the_decode_of_a_stream() -> Result<()> {
    hang_up_in_decode(true).await
}

#[tokio::test]
async fn a_hang_up_stops_the_decode_of_a_plain_answer() -> Result<()> {
    hang_up_in_decode(false).await
}
