//! Scenario 9: one card, two models, one at a time. A swap takes 100 seconds, and clients arrive meanwhile.
//!
//! A simulated model-switch and two machines of its own. It must never swap otherwise than the real service does: what runs is
//! taken down, and the port of the other is closed until that has loaded.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderValue, Method, Request, header};
use http_body_util::Full;
use serde_json::json;
use switchback_rig::{Clock, Fleet, Member, Spec, Swap};

use super::wire::{Told, ask};
use crate::backend::client::{self, Tcp};
use crate::cli::say;
use crate::config::Config;
use crate::server::Proxy;

/// When clients ask, simulated seconds after the swap began.
const ARRIVE: [f64; 3] = [0.0, 35.0, 70.0];

const SMALL: &str = "vllm/minimal";
const LARGE: &str = "llamacpp/default";

/// Whether it made its point.
pub(super) async fn run(speed: f64) -> anyhow::Result<bool> {
    say(
        "9. A swap. One card, two models, one at a time; loading the other takes 100 s. Three clients ask for it meanwhile.\n",
    );
    let clock = Clock::new(speed)?;
    let (small, large) = (machine(SMALL, "qwen3.6-27b", 60.0)?, machine(LARGE, "qwen3.8-27b", 97.0)?);
    let (small_at, large_at) = (small.listen, large.listen);
    let fleet = Fleet { members: vec![small, large] };
    let card = Swap::start(fleet, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), clock, None)?;
    switch(card.addr(), SMALL).await?;

    say("   Without Switchback, straight to the port of the one that is being loaded:");
    let straight: Authority = large_at.to_string().parse()?;
    let (swapped, without) = tokio::join!(switch(card.addr(), LARGE), three(&clock, &straight));
    swapped?;
    switch(card.addr(), SMALL).await?;

    // A simulated second is so many real ones.
    let scaled = |seconds: f64| format!("{}ms", (seconds * 1000.0 / speed).ceil());
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n\
         [loader]\ndriver = \"model-switch\"\nurl = \"{}\"\nidle = \"{}\"\nmin_residency = \"{}\"\n\
         [[backend]]\nname = \"small\"\nurl = \"http://{small_at}\"\nload = {{ slug = \"{SMALL}\", time = \"{}\" }}\n\
         [[backend]]\nname = \"large\"\nurl = \"http://{large_at}\"\nload = {{ slug = \"{LARGE}\", time = \"{}\" }}\n\
         [[model]]\nname = \"qwen3.6-27b\"\nbackends = [\"small\"]\n[[model]]\nname = \"qwen3.8-27b\"\nbackends = [\"large\"]\n",
        card.url(),
        scaled(1.0),
        scaled(300.0),
        scaled(100.0),
        scaled(100.0),
    );
    let proxy = Proxy::start(Config::parse(&config, Path::new("."))?).await?;
    say("   With it in front, which has the first of them cause the swap:");
    let with = three(&clock, &proxy.address().to_string().parse()?).await;
    say("");
    Ok(with == ARRIVE.len() && without < ARRIVE.len() && card.current().as_deref() == Some(LARGE))
}

/// A machine of this slug at a port that is free.
fn machine(slug: &str, model: &str, load_time: f64) -> anyhow::Result<Member> {
    let mut spec = Spec::preset(slug)?;
    slug.clone_into(&mut spec.name);
    model.clone_into(&mut spec.model);
    spec.aliases.clear();
    spec.load_time = load_time;
    let listen = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    Ok(Member { spec, listen })
}

/// Asks the service to switch, and waits until that is done.
async fn switch(service: SocketAddr, slug: &str) -> anyhow::Result<()> {
    let to: Authority = service.to_string().parse()?;
    let mut request =
        Request::post("/switch").body(Full::new(Bytes::from(json!({ "slug": slug }).to_string())))?;
    *request.method_mut() = Method::POST;
    request.headers_mut().insert(header::HOST, HeaderValue::from_str(to.as_str())?);
    let reply = client::send(&Tcp, &to, Duration::from_secs(2), request).await.context("no model-switch")?;
    ensure!(reply.head.status.is_success(), "model-switch answers {}", reply.head.status);
    Ok(())
}

/// Three clients, one after the other; prints what becomes of each. How many were answered.
async fn three(clock: &Clock, to: &Authority) -> usize {
    let one = async |after: f64| {
        clock.sleep(after).await;
        let body = json!({
            "model": "qwen3.8-27b",
            "stream": true,
            "max_tokens": 40,
            "messages": [{ "role": "user", "content": format!("Tell me about glaciers. {after}") }],
        });
        ask(clock, to, body.to_string().into(), None).await
    };
    let (first, second, third) = tokio::join!(one(ARRIVE[0]), one(ARRIVE[1]), one(ARRIVE[2]));
    let mut answered = 0;
    for (after, told) in ARRIVE.iter().zip([first, second, third]) {
        match told {
            Ok(Told { first, .. }) => {
                answered += 1;
                say(format_args!(
                    "     asked after {after:>2} s: answered, the first word after {first:.0} s"
                ));
            }
            Err(why) => say(format_args!("     asked after {after:>2} s: FAILED: {why}")),
        }
    }
    answered
}
