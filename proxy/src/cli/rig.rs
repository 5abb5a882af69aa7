//! `switchback rig`: simulated backends on their own, for whatever should be tried against them.
//!
//! Prints where they listen, then one line for each thing that happens to them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use switchback_rig::{Clock, Event, EventKind, Fleet, Member, Rig, Script, Spec};

use super::{Failed, asked_to_stop, say};

#[derive(Debug, clap::Args)]
pub(super) struct RigArgs {
    /// A published machine, e.g. vllm/dual; --list names them all
    #[arg(long, value_name = "NAME", default_value = "vllm/dual", conflicts_with = "file")]
    preset: String,
    /// Several backends from a TOML file with [[backend]] entries
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Port on the loopback address; absent: the published machine's, 0: any free one
    #[arg(long, value_name = "N", conflicts_with = "file")]
    port: Option<u16>,
    /// How much faster than the real machine, e.g. 50
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    speed: f64,
    /// Answers are functions of this number and the prompt
    #[arg(long, value_name = "N", conflicts_with = "file")]
    seed: Option<u64>,
    /// What it does with its next requests: a TOML file with `steps = ["ok", "http:503", "dead", …]` and `then = "ok"`
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    script: Option<PathBuf>,
    /// Name the presets and exit
    #[arg(long)]
    list: bool,
}

pub(super) async fn run(args: RigArgs) -> Result<(), Failed> {
    if args.list {
        for (slug, spec) in Spec::presets()? {
            say(format_args!("{slug:44} window {:>7}  {}", spec.window, cliff(&spec)));
        }
        return Ok(());
    }
    let fleet = fleet(&args)?;
    let rigs = fleet.start(Clock::new(args.speed)?)?;
    for rig in &rigs {
        let spec = rig.spec();
        say(format_args!(
            "{} listening on {}, model {}, window {}, {}",
            spec.name,
            rig.url(),
            spec.model,
            spec.window,
            cliff(spec)
        ));
    }
    let printing = async {
        let mut printers = tokio::task::JoinSet::new();
        for rig in rigs {
            printers.spawn(print_events(rig));
        }
        while printers.join_next().await.is_some() {}
    };
    tokio::select! {
        () = printing => Ok(()),
        stop = asked_to_stop() => Ok(stop?),
    }
}

fn fleet(args: &RigArgs) -> anyhow::Result<Fleet> {
    if let Some(file) = &args.file {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        return Fleet::from_toml(&text).with_context(|| file.display().to_string());
    }
    let mut spec = Spec::preset(&args.preset)?;
    if let Some(seed) = args.seed {
        spec.seed = seed;
    }
    if let Some(file) = &args.script {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        spec.script = toml::from_str::<Script>(&text).with_context(|| file.display().to_string())?;
    }
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port.unwrap_or(spec.port)));
    if args.port.is_none() && spec.port == 0 {
        bail!("{} has no port of its own; say --port", args.preset);
    }
    Ok(Fleet { members: vec![Member { spec, listen }] })
}

fn cliff(spec: &Spec) -> String {
    spec.dies_above
        .map_or_else(|| "no cliff".to_owned(), |tokens| format!("dies above {tokens} tokens at once"))
}

async fn print_events(rig: Rig) {
    let mut next = 0;
    loop {
        let event = rig.event_since(next, |_| true).await;
        next = event.number + 1;
        say(format_args!("{:>9.1} s  {:10} {}", event.at, rig.spec().name, sentence(&event)));
    }
}

/// An event in words.
pub(super) fn sentence(event: &Event) -> String {
    let who = event.request.map_or_else(String::new, |request| format!("request {request} "));
    let what = match &event.kind {
        EventKind::Arrived { prompt_tokens, stream } => {
            format!("arrived: {prompt_tokens} tokens{}", if *stream { ", streamed" } else { "" })
        }
        EventKind::Refused { status } => format!("refused with status {status}"),
        EventKind::PrefillStarted => "is being read".to_owned(),
        EventKind::FirstToken => "has its first token".to_owned(),
        EventKind::Finished { completion_tokens, reason } => {
            format!("answered: {completion_tokens} tokens, {reason}")
        }
        EventKind::Stalled { completion_tokens } => format!("fell silent after {completion_tokens} tokens"),
        EventKind::Broken { completion_tokens } => format!("was cut after {completion_tokens} tokens"),
        EventKind::Cut { phase } => format!("was given up by its client ({phase:?})").to_lowercase(),
        EventKind::Lost { phase } => format!("was lost ({phase:?})").to_lowercase(),
        EventKind::Died { by: Some(request) } => format!("the engine died of request {request}"),
        EventKind::Died { by: None } => "the engine was killed".to_owned(),
        EventKind::Down => "the port refuses connections".to_owned(),
        EventKind::Loading => "loads its model".to_owned(),
        EventKind::Ready => "serves".to_owned(),
        other => format!("{other:?}"),
    };
    format!("{who}{what}")
}
