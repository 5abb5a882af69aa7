//! Two real servers of which one runs at a time: the proxy starts and stops them by commands.
//!
//! What only real processes show: that a server which stays is ended with all that it has started, that its port is free
//! then, and that requests which arrive meanwhile are all answered.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::{Context, Result, ensure};
use tokio::net::TcpStream;

use crate::harness::client::Reply;
use crate::harness::llama::{LARGE, SMALL, Spec, start_command};
use crate::harness::proxy::{Proxy, Setup};
use crate::harness::request::{chat, talk};
use crate::harness::{SOON, wait_until};

/// Both in front of nobody: whoever is asked for has to be started first.
async fn one_at_a_time(more: &str) -> Result<(Proxy, [SocketAddr; 2])> {
    let mut setup = Setup::default().loader(&format!("driver = \"command\"\nidle = \"0s\"\n{more}"));
    let mut addresses = Vec::new();
    for spec in [SMALL, LARGE] {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let start = start_command(Spec { ..spec }, address.port()).await?;
        let window = spec.window;
        setup = setup.unloaded(
            spec,
            address,
            &format!("window = {window}\nengine = \"llama-cpp\"\nload = {{ start = {start:?} }}"),
        );
        addresses.push(address);
    }
    let addresses = addresses.try_into().ok().context("two of them")?;
    Ok((setup.start().await?, addresses))
}

fn assert_answered_by(reply: &Reply, backend: &str) -> Result<()> {
    assert_eq!((reply.status, reply.backend().as_str()), (200, backend), "{}", reply.body);
    let message = reply.message()?;
    ensure!(!message.content.is_empty() && message.finish.is_some(), "{message:?}");
    Ok(())
}

async fn until_closed(address: SocketAddr) -> Result<()> {
    wait_until("its port to be closed", SOON, async || {
        Ok(TcpStream::connect(address).await.is_err().then_some(()))
    })
    .await
}

#[tokio::test]
async fn servers_are_started_when_they_are_asked_for_and_ended_when_another_is() -> Result<()> {
    let (proxy, [small, large]) = one_at_a_time("").await?;
    assert_answered_by(&proxy.chat(&chat(20, true)).await?, "small")?;
    assert_answered_by(&proxy.chat(&chat(1000, true)).await?, "large")?;
    until_closed(small).await?;
    ensure!(TcpStream::connect(large).await.is_ok(), "the large one is there");
    // What both can answer goes to the one that is there.
    assert_answered_by(&proxy.chat(&chat(21, false)).await?, "large")
}

#[tokio::test]
async fn all_who_arrive_during_a_swap_are_answered_and_what_runs_is_not_cut() -> Result<()> {
    let (proxy, [small, _]) = one_at_a_time("min_residency = \"0s\"").await?;
    let mut runs = proxy.open(&talk(200, true)).await?;
    runs.until_text().await?;
    let mut waiting = Vec::new();
    for words in [1000, 1001, 1002] {
        waiting.push(proxy.send("/v1/chat/completions", &chat(words, words != 1001)).await?);
    }
    assert_answered_by(&runs.rest().await?, "small")?;
    for sent in waiting {
        assert_answered_by(&sent.answer().await?.rest().await?, "large")?;
    }
    until_closed(small).await
}

#[tokio::test]
async fn a_server_that_cannot_start_is_told_with_the_way_out_and_the_other_is_back() -> Result<()> {
    let broken = "[[backend]]\nname = \"broken\"\nurl = \"http://127.0.0.1:9\"\nwindow = 9000\n\
                  load = { start = [\"sh\", \"-c\", \"echo no such model; exit 3\"] }\n\n\
                  [[model]]\nname = \"broken\"\nbackends = [\"broken\"]";
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let start = start_command(SMALL, address.port()).await?;
    let proxy = Setup::default()
        .loader("driver = \"command\"\nidle = \"0s\"")
        .unloaded(SMALL, address, &format!("window = 512\nload = {{ start = {start:?} }}\n{broken}"))
        .start()
        .await?;
    assert_answered_by(&proxy.chat(&chat(20, true)).await?, "small")?;
    let mut request = chat(20, false);
    request["model"] = "broken".into();
    let refused = proxy.chat(&request).await?;
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(refused.body.contains("its start command ended with exit status: 3"), "{}", refused.body);
    assert!(!refused.body.contains("no such model"), "{}", refused.body);
    assert_answered_by(&proxy.chat(&chat(21, true)).await?, "small")
}
