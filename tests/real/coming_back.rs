//! Servers that die, stop and come back.
//!
//! A death takes every request of a server with it. Those of which the client has seen nothing must be answered by another
//! server, unseen; those that it has seen in part go on there, where they were cut, or say that they are cut. None looks
//! finished that is not.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use switchback_tests::wire::message::Message;

use crate::harness::client::{Reply, send};
use crate::harness::llama::{LARGE, Llama, SMALL, Slot, Spec};
use crate::harness::proxy::Setup;
use crate::harness::request::{chat, talk};

/// Two servers of the same size.
const FIRST: Spec = Spec { name: "first", slots: 3, ..LARGE };
const SECOND: Spec = Spec { name: "second", ..FIRST };

/// Each slot has a window of its own, which llama.cpp does not tell.
const SEPARATE: &str = "limit = { resident = 6144 }";

/// The text of a stream that looks whole, and whether it was continued by this server.
fn whole(reply: &Reply, by: &str) -> Result<String> {
    let message = Message::of_stream(&reply.stream());
    ensure!(message.finish.is_some() && message.faults.is_empty(), "{message:?}: {}", reply.body);
    let told = format!(": adjusted continued on {by}");
    ensure!(reply.body.matches(&told).count() == 1, "it is not said who went on: {}", reply.body);
    Ok(message.content)
}

/// The story that a server tells by itself, always taking the likeliest word.
fn story(tokens: usize, stream: bool) -> Value {
    let mut story = talk(tokens, stream);
    story["temperature"] = 0.into();
    story["messages"][0]["content"] = "Count from one to two hundred in words.".into();
    story
}

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
async fn what_a_killed_server_had_begun_goes_on_at_the_other_and_everything_else_is_answered_there()
-> Result<()> {
    let (mut first, second) = tokio::try_join!(Llama::start(FIRST), Llama::start(SECOND))?;
    let proxy = Setup::default().backend(&first, SEPARATE).backend(&second, SEPARATE).start().await?;
    let mut shown = proxy.open(&talk(900, true)).await?;
    shown.until_text().await?;
    let plain = proxy.send("/v1/chat/completions", &talk(500, false)).await?;
    let busy = |slots: &[Slot], wanted| slots.iter().filter(|slot| **slot == wanted).count();
    first.until("two decodes", |slots| busy(slots, Slot::Decode) == 2).await?;
    let prefill = proxy.send("/v1/chat/completions", &chat(700, true)).await?;
    first.until("a prefill", |slots| busy(slots, Slot::Prefill) == 1).await?;
    ensure!(busy(&first.slots().await?, Slot::Decode) == 2, "the machine is too fast for this test");
    first.kill().await?;
    whole(&shown.rest().await?, "second")?;
    assert_answered_by(&prefill.answer().await?.rest().await?, "second")?;
    assert_answered_by(&plain.answer().await?.rest().await?, "second")
}

/// llama.cpp closes its port, goes silent, and ends streams without a word; a plain request hangs until its client
/// gives up.
#[tokio::test]
async fn what_a_server_that_stops_had_begun_goes_on_at_the_other_and_everything_else_is_answered_there()
-> Result<()> {
    let (first, second) = tokio::try_join!(Llama::start(FIRST), Llama::start(SECOND))?;
    let proxy = Setup::default().backend(&first, SEPARATE).backend(&second, SEPARATE).start().await?;
    let mut stream = talk(900, true);
    // Its comments are how a silent server notices that it has stopped: after 30 s, unless asked to hurry.
    stream["sse_ping_interval"] = 1.into();
    let mut shown = proxy.open(&stream).await?;
    shown.until_text().await?;
    let plain = proxy.send("/v1/chat/completions", &talk(500, false)).await?;
    let both = |slots: &[Slot]| slots.iter().filter(|slot| **slot == Slot::Decode).count() == 2;
    first.until("two decodes", both).await?;
    first.terminate().await?;
    whole(&shown.rest().await?, "second")?;
    assert_answered_by(&plain.answer().await?.rest().await?, "second")
}

/// Where both servers would say the same, the joined text is what one of them says.
#[tokio::test]
async fn an_answer_that_two_servers_wrote_reads_like_one() -> Result<()> {
    let (mut first, second) = tokio::try_join!(Llama::start(FIRST), Llama::start(SECOND))?;
    let proxy = Setup::default().backend(&first, SEPARATE).backend(&second, SEPARATE).start().await?;
    let mut shown = proxy.open(&story(160, true)).await?;
    // Well within a word or behind one, as it comes.
    shown.until("some words", |stream| Message::of_stream(stream).content.len() > 60).await?;
    first.kill().await?;
    let joined = whole(&shown.rest().await?, "second")?;
    let alone = send(second.address, "/v1/chat/completions", &story(160, false)).await?;
    let alone = alone.answer().await?.rest().await?.message()?.content;
    ensure!(joined.len() > 100, "{joined:?}");
    // What is left of the limit is counted roughly, and never above it.
    ensure!(alone.starts_with(&joined), "joined {joined:?}\nalone {alone:?}");
    Ok(())
}

/// Nobody else can go on: the client is told.
#[tokio::test]
async fn what_nobody_can_go_on_with_ends_with_an_error() -> Result<()> {
    let mut only = Llama::start(FIRST).await?;
    let proxy = Setup::default().backend(&only, SEPARATE).start().await?;
    let mut shown = proxy.open(&talk(1900, true)).await?;
    shown.until_text().await?;
    only.kill().await?;
    assert_cut(&shown.rest().await?)
}

/// More requests than slots, a server that is killed among them, and one that loads: all are answered in the end.
#[tokio::test]
async fn a_crowd_on_full_slots_loses_nobody_when_a_server_dies_and_comes_back() -> Result<()> {
    let (mut first, second) = tokio::try_join!(Llama::start(FIRST), Llama::start(SECOND))?;
    let proxy = Setup::default().backend(&first, SEPARATE).backend(&second, SEPARATE).start().await?;
    let mut crowd = Vec::new();
    for number in 0..10 {
        crowd.push(proxy.send("/v1/chat/completions", &chat(60 + number, number % 2 == 0)).await?);
    }
    let works = |slots: &[Slot]| slots.iter().any(|slot| matches!(slot, Slot::Prefill | Slot::Decode));
    first.until("work", works).await?;
    first.kill().await?;
    first.restart().await?;
    for sent in crowd {
        let reply = sent.answer().await?.rest().await?;
        let message = reply.message()?;
        ensure!(
            reply.status == 200 && message.finish.is_some() && message.faults.is_empty(),
            "{}",
            reply.body
        );
    }
    Ok(())
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
