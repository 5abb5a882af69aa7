//! Servers that die, stop and come back.
//!
//! A death takes every request of a server with it. Those of which the client has seen nothing must be answered by another
//! server, unseen; those that it has seen in part must say that they are cut, and never look finished.

use anyhow::{Context, Result, bail, ensure};
use switchback_tests::wire::message::Message;

use crate::harness::client::Reply;
use crate::harness::llama::{LARGE, Llama, SMALL, Slot, Spec};
use crate::harness::proxy::Setup;
use crate::harness::request::{chat, talk};

/// Two servers of the same size.
const FIRST: Spec = Spec { name: "first", slots: 3, ..LARGE };
const SECOND: Spec = Spec { name: "second", ..FIRST };

/// Each slot has a window of its own, which llama.cpp does not tell.
const SEPARATE: &str = "limit = { resident = 6144 }";

/// A stream that was cut says so and does not look finished.
fn assert_cut(reply: &Reply) -> Result<()> {
    let stream = reply.stream();
    let message = Message::of_stream(&stream);
    assert!(!message.content.is_empty() && message.finish.is_none(), "{}", reply.body);
    let events: Vec<_> = stream.events().map(|(_, event)| event).collect();
    let [.., error, done] = events.as_slice() else { bail!("too short: {}", reply.body) };
    let error = error.error().with_context(|| format!("no error before the end: {}", reply.body))?;
    assert_eq!(error["code"], "answer_cut");
    assert!(done.is_done(), "{}", reply.body);
    Ok(())
}

fn assert_answered_by(reply: &Reply, backend: &str) -> Result<()> {
    assert_eq!((reply.status, reply.backend().as_str()), (200, backend), "{}", reply.body);
    let message = reply.message()?;
    assert!(
        !message.content.is_empty() && message.finish.is_some() && message.faults.is_empty(),
        "{message:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_killed_server_ends_what_was_shown_with_an_error_and_everything_else_is_answered_by_the_other()
-> Result<()> {
    let (mut first, second) = tokio::try_join!(Llama::start(FIRST), Llama::start(SECOND))?;
    let proxy = Setup::default().backend(&first, SEPARATE).backend(&second, SEPARATE).start().await?;
    let mut shown = proxy.open(&talk(1900, true)).await?;
    shown.until_text().await?;
    let plain = proxy.send("/v1/chat/completions", &talk(500, false)).await?;
    let busy = |slots: &[Slot], wanted| slots.iter().filter(|slot| **slot == wanted).count();
    first.until("two decodes", |slots| busy(slots, Slot::Decode) == 2).await?;
    let prefill = proxy.send("/v1/chat/completions", &chat(700, true)).await?;
    first.until("a prefill", |slots| busy(slots, Slot::Prefill) == 1).await?;
    ensure!(busy(&first.slots().await?, Slot::Decode) == 2, "the machine is too fast for this test");
    first.kill().await?;
    assert_cut(&shown.rest().await?)?;
    assert_answered_by(&prefill.answer().await?.rest().await?, "second")?;
    assert_answered_by(&plain.answer().await?.rest().await?, "second")
}

/// llama.cpp closes its port, goes silent, and ends streams without a word; a plain request hangs until its client
/// gives up.
#[tokio::test]
async fn a_server_that_stops_ends_what_was_shown_with_an_error_and_everything_else_is_answered_by_the_other()
-> Result<()> {
    let (first, second) = tokio::try_join!(Llama::start(FIRST), Llama::start(SECOND))?;
    let proxy = Setup::default().backend(&first, SEPARATE).backend(&second, SEPARATE).start().await?;
    let mut stream = talk(1900, true);
    // Its comments are how a silent server notices that it has stopped: after 30 s, unless asked to hurry.
    stream["sse_ping_interval"] = 1.into();
    let mut shown = proxy.open(&stream).await?;
    shown.until_text().await?;
    let plain = proxy.send("/v1/chat/completions", &talk(500, false)).await?;
    let both = |slots: &[Slot]| slots.iter().filter(|slot| **slot == Slot::Decode).count() == 2;
    first.until("two decodes", both).await?;
    first.terminate().await?;
    assert_cut(&shown.rest().await?)?;
    assert_answered_by(&plain.answer().await?.rest().await?, "second")
}

#[tokio::test]
async fn a_server_that_comes_back_on_its_port_is_used_again() -> Result<()> {
    let (mut small, large) = Llama::small_and_large().await?;
    let proxy = Setup::default().backend(&small, "").backend(&large, "").start().await?;
    small.kill().await?;
    // The first request may be the one that finds out. Each begins another conversation, or it would stay where it was.
    assert_answered_by(&proxy.chat(&chat(20, false)).await?, "large")?;
    proxy.until_backend_is("small", "absent").await?;
    assert_answered_by(&proxy.chat(&chat(21, true)).await?, "large")?;
    small.restart().await?;
    proxy.until_backend_is("small", "up").await?;
    assert_answered_by(&proxy.chat(&chat(22, true)).await?, "small")
}

#[tokio::test]
async fn a_request_that_nobody_can_serve_now_is_told_when_to_come_back() -> Result<()> {
    let mut only = Llama::start(SMALL).await?;
    let proxy = Setup::default().backend(&only, "").start().await?;
    only.kill().await?;
    for stream in [false, true] {
        let reply = proxy.chat(&chat(20, stream)).await?;
        assert_eq!(reply.status, 503, "{}", reply.body);
        assert!(reply.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds > 0), "{reply:?}");
    }
    Ok(())
}
