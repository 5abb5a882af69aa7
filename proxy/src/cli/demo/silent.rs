//! Scenario 6: an engine that falls silent. It answers its health page and takes requests, and computes nothing.
//!
//! Two machines of its own on the real clock, since how long a client waits and how soon a proxy doubts are no properties
//! of machines: only prefill and decode are simulated. It must never make the silent one look worse than it is: its pages
//! say what those of a real one said (vllm#39863).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use http::uri::Authority;
use serde_json::json;
use switchback_rig::{Clock, Rig, Spec};
use tokio::time::Instant;

use super::log::ready;
use super::wire::{Told, ask, wait_until_up};
use crate::cli::say;
use crate::config::Config;
use crate::server::Proxy;

/// What a command-line agent waits for a first word.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether it made its point.
pub(super) async fn run() -> anyhow::Result<bool> {
    say(format_args!(
        "6. A silent engine. It takes requests, its health page says 200, and it computes nothing. The client waits {} s; real time.\n",
        PATIENCE.as_secs()
    ));
    let clock = Clock::real();
    let (silent, other) = (machine("silent", clock)?, machine("other", clock)?);
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[probe]\ninterval = \"1s\"\n\
         [[backend]]\nname = \"silent\"\nurl = \"{}\"\n[[backend]]\nname = \"other\"\nurl = \"{}\"\n\
         [[model]]\nname = \"qwen3.6-27b\"\nbackends = [\"silent\", \"other\"]\n",
        silent.url(),
        other.url()
    );
    let proxy = Proxy::start(Config::parse(&config, Path::new("."))?).await?;
    for rig in [&silent, &other] {
        ready(rig).await;
    }
    wait_until_up(proxy.address()).await?;
    silent.silence();

    let straight = silent.addr().to_string().parse()?;
    let front = proxy.address().to_string().parse()?;
    // Side by side, since real seconds pass.
    let (without, with) = tokio::join!(
        chat(&clock, &straight, "   Without Switchback"),
        chat(&clock, &front, "   With Switchback, the same chat at the same time"),
    );
    let next = chat(&clock, &front, "   … and another one, later").await;
    say("");
    Ok(!without && with && next)
}

fn machine(name: &str, clock: Clock) -> anyhow::Result<Rig> {
    let mut spec = Spec::preset("vllm/dual")?;
    name.clone_into(&mut spec.name);
    Ok(Rig::start(spec, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), clock)?)
}

/// One chat, as long as the client waits; prints what became of it. Whether it was answered.
async fn chat(clock: &Clock, to: &Authority, what: &str) -> bool {
    let body = json!({
        "model": "qwen3.6-27b",
        "stream": true,
        "max_tokens": 40,
        "messages": [{ "role": "user", "content": format!("Tell me about glaciers.{what}") }],
    });
    let began = Instant::now();
    let told = tokio::time::timeout(PATIENCE, ask(clock, to, body.to_string().into(), None)).await;
    let seconds = began.elapsed().as_secs_f64();
    match told {
        Ok(Ok(Told { first, .. })) => {
            say(format_args!("{what}: answered, the first word after {first:.1} s"));
            true
        }
        Ok(Err(why)) => {
            say(format_args!("{what}: FAILED after {seconds:.1} s: {why}"));
            false
        }
        Err(_) => {
            say(format_args!("{what}: no word in {seconds:.0} s, the client gave up"));
            false
        }
    }
}
