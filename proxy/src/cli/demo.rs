//! `switchback demo`: what goes wrong with self-hosted machines without the proxy, and what becomes of it with it.
//!
//! Simulated machines with published figures and the proxy on free ports; nothing is installed, nothing leaves the
//! machine. Each scenario sends the same requests twice, first straight to a machine, then through the proxy. Afterwards
//! everything stays up to play with. What is printed was measured in this run; it must never be words alone.

mod calls;
mod conversation;
mod copilot;
mod failover;
mod freeze;
mod log;
mod long_prompt;
mod lost;
mod silent;
mod swap;
mod wire;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::Context as _;
use http::uri::Authority;
use switchback_rig::{Calls, Clock, Format, Rig, Spec};

use super::{Failed, asked_to_stop, say};
use crate::config::Config;
use crate::server::Proxy;

/// Beyond this a chat is over before the prompt arrives that should meet it: real milliseconds are simulated tenths.
const FASTEST: f64 = 100.0;

#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {
    /// How much faster than the real machines, at most 100: beyond, requests that should meet miss each other
    #[arg(long, value_name = "FACTOR", default_value_t = 50.0)]
    speed: f64,
    /// Where the proxy listens; port 0: any free one
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
    listen: SocketAddr,
    /// End after the scenarios
    #[arg(long)]
    once: bool,
}

/// The machines, and the proxy in front of them.
struct Stage {
    clock: Clock,
    single: Rig,
    dual: Rig,
    coder: Rig,
    /// Where the proxy listens.
    proxy: SocketAddr,
}

impl Stage {
    fn of(&self, rig: &Rig) -> anyhow::Result<Authority> {
        Ok(rig.addr().to_string().parse()?)
    }

    fn front(&self) -> anyhow::Result<Authority> {
        Ok(self.proxy.to_string().parse()?)
    }
}

pub(super) async fn run(args: DemoArgs) -> Result<(), Failed> {
    if args.speed > FASTEST {
        return Err(anyhow::anyhow!(
            "speed {} is too fast to show anything, the limit is {FASTEST}",
            args.speed
        )
        .into());
    }
    let clock = Clock::new(args.speed)?;
    let [single, dual, coder] = machines()?;
    let survives = single.dies_above.context("the single card has a cliff")?;
    let conversation = single.faults.accumulated.context("the single card has another cliff")?.from;
    let start = |spec| Rig::start(spec, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), clock);
    let (single, dual, coder) = (start(single)?, start(dual)?, start(coder)?);
    // Two seconds and twenty, on this clock.
    let [stall, wait] = [2_000.0, 20_000.0].map(|ms: f64| (ms / args.speed).ceil());
    let config = format!(
        "[server]\nlisten = \"{}\"\n\
         [[backend]]\nname = \"single\"\nurl = \"{}\"\nlimit = {{ single = {survives}, accumulated = {conversation} }}\n\
         [[backend]]\nname = \"dual\"\nurl = \"{}\"\nstreamed_required = \"whole\"\n\
         [[backend]]\nname = \"coder\"\nurl = \"{}\"\n\
         [[model]]\nname = \"qwen3.6-27b\"\naliases = [\"auto\"]\nbackends = [\"single\", \"dual\"]\n\
         [[model]]\nname = \"qwen3-coder\"\nbackends = [\"coder\"]\n\
         [[model]]\nname = \"copilot\"\nbackends = [\"coder\", \"dual\"]\n\
         [[model]]\nname = \"dual\"\nbackends = [\"dual\"]\n\
         [admission]\nmax_victim_stall = \"{stall}ms\"\nlarge_prefill_wait = \"{wait}ms\"\n",
        args.listen,
        single.url(),
        dual.url(),
        coder.url()
    );
    let proxy =
        Proxy::start(Config::parse(&config, Path::new("."))?).await.context("cannot start the proxy")?;
    let stage = Stage { clock, single, dual, coder, proxy: proxy.address() };
    for rig in [&stage.single, &stage.dual, &stage.coder] {
        // Else a scenario might tell that it serves, or not.
        log::ready(rig).await;
    }
    introduce(&stage, args.speed);

    let points = [
        ("the long prompt", long_prompt::run(&stage).await?),
        ("the growing conversation", conversation::run(&stage).await?),
        ("tool calls as text", calls::run(&stage).await?),
        ("failures", failover::run(&stage).await?),
        ("Copilot's hello", copilot::run(&stage).await?),
        ("the silent engine", silent::run().await?),
        ("the file beside a chat", freeze::run(&stage).await?),
        ("lost calls", lost::run(&stage).await?),
        ("the swap", swap::run(args.speed).await?),
    ];
    let missed: Vec<&str> = points.iter().filter(|(_, made)| !made).map(|(name, _)| *name).collect();
    if !missed.is_empty() {
        let missed = format!("not as promised: {}", missed.join(", "));
        if args.once {
            return Err(anyhow::anyhow!(missed).into());
        }
        say(missed);
    }
    if args.once {
        return Ok(());
    }
    say("   … the card that died restarts and loads its model again\n");
    log::ready(&stage.single).await;
    wire::wait_until_up(proxy.address()).await?;
    let base = format!("http://{}/v1", proxy.address());
    say(format_args!("Everything stays up until Ctrl-C. Base URL for any client (any key): {base}\n"));
    say(format_args!(
        "  curl -i {base}/chat/completions -H 'content-type: application/json' \\\n       -d '{{\"model\":\"auto\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'"
    ));
    asked_to_stop().await?;
    Ok(())
}

/// One card, two cards, and one whose server does not understand its model's tool calls.
fn machines() -> Result<[Spec; 3], Failed> {
    let mut single = Spec::preset("vllm/long-text")?;
    "single".clone_into(&mut single.name);
    "qwen3.6-27b".clone_into(&mut single.model);
    single.slots = 2;
    let mut dual = Spec::preset("vllm/dual")?;
    "dual".clone_into(&mut dual.name);
    dual.faults.drops_required = 0.65;
    let mut coder = Spec::preset("vllm/minimal")?;
    "coder".clone_into(&mut coder.name);
    "qwen3-coder".clone_into(&mut coder.model);
    coder.aliases.clear();
    coder.window = 20_000;
    coder.calls = Calls { share: 1.0, format: Some(Format::QwenXml), flawed: 0.0 };
    Ok([single, dual, coder])
}

fn introduce(stage: &Stage, speed: f64) {
    say(format_args!(
        "Simulated machines with the published figures, {speed} times as fast as the real ones:"
    ));
    for (rig, what) in [
        (&stage.single, "one 24 GB card, vLLM"),
        (&stage.dual, "two 24 GB cards, vLLM"),
        (&stage.coder, "one 24 GB card, vLLM"),
    ] {
        let spec = rig.spec();
        let dies = spec.dies_above.zip(spec.faults.accumulated).map(|(prompt, conversation)| {
            format!(", dies of prompts above {prompt}, of conversations above {}", conversation.from)
        });
        let text = spec.calls.format.map(|_| ", another model's tool parser".to_owned());
        let more = dies.or(text).unwrap_or_default();
        say(format_args!("  {:7} {what:22} window {}{more}", spec.name, spec.window));
    }
    say("");
}
