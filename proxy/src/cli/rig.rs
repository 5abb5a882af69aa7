//! `switchback rig`: simulated backends on their own, for whatever should be tried against them.
//!
//! Prints where they listen, then one line for each thing that happens to them. A flag changes one property of a published
//! machine; whoever wants more writes a file. What the figures mean is the rig's own; this must never hold one.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use serde::de::value::{Error as Unknown, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer as _};
use switchback_rig::{
    Calls, Clock, Engine, Event, EventKind, Faults, Fleet, Format, Member, Rig, Script, Spec, Step,
};

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
    /// The same without a file, once for each request: "ok", "http:503", "dead", "stall:20", "write hermes:unclosed" …
    #[arg(long = "step", value_name = "STEP", conflicts_with_all = ["file", "script"])]
    steps: Vec<Step>,
    /// Name the presets and exit
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    changes: Changes,
}

/// What is other than at the published machine.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Other than at the published machine")]
struct Changes {
    /// Whose server it is: vllm, llama-cpp, ik-llama, sglang or ollama
    #[arg(long, value_name = "NAME", value_parser = word::<Engine>, conflicts_with = "file")]
    engine: Option<Engine>,
    /// Which version of it; vLLM before 0.11 has other metrics and errors
    #[arg(long, value_name = "VERSION", conflicts_with = "file")]
    engine_version: Option<String>,
    /// The name of the model that it serves
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    model: Option<String>,
    /// The context window
    #[arg(long, value_name = "TOKENS", conflicts_with = "file")]
    window: Option<usize>,
    /// Requests that run at once; the others wait
    #[arg(long, value_name = "N", conflicts_with = "file")]
    slots: Option<usize>,
    /// A single prompt of more tokens kills it
    #[arg(long, value_name = "TOKENS", conflicts_with = "file")]
    dies_above: Option<usize>,
    /// No cliff, and nothing else goes wrong by itself
    #[arg(long, conflicts_with_all = ["file", "dies_above"])]
    sturdy: bool,
    /// Requests with tools are answered with a call: structured, or as text in the form hermes, qwen-xml, glm, kimi,
    /// mistral, pythonic or fenced
    #[arg(long, value_name = "FORM", value_parser = form, conflicts_with = "file")]
    calls: Option<Form>,
    /// The share of calls as text that have a flaw, from 0 to 1
    #[arg(long, value_name = "SHARE", requires = "calls", conflicts_with = "file")]
    flawed: Option<f64>,
    /// It was started without a tool parser
    #[arg(long, conflicts_with = "file")]
    no_tool_parser: bool,
    /// Answers begin with a thought
    #[arg(long, conflicts_with = "file")]
    thinks: bool,
    /// It was started without a reasoning parser: thoughts stand in the content
    #[arg(long, conflicts_with = "file")]
    no_reasoning_parser: bool,
    /// It has yet to load its model
    #[arg(long, conflicts_with = "file")]
    cold: bool,
}

/// How calls are written; none: by the engine's own parser.
#[derive(Clone, Copy, Debug)]
struct Form(Option<Format>);

fn form(text: &str) -> Result<Form, String> {
    if text == "structured" {
        return Ok(Form(None));
    }
    word(text).map(|format| Form(Some(format))).map_err(|error| format!("{error}, or `structured`"))
}

/// One of an enum's names in files.
fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let reader: StrDeserializer<'_, Unknown> = text.into_deserializer();
    T::deserialize(reader).map_err(|error| error.to_string())
}

impl Changes {
    fn apply(&self, spec: &mut Spec) {
        if let Some(engine) = self.engine.filter(|engine| *engine != spec.engine) {
            spec.engine = engine;
            // The published version is the other engine's.
            spec.version = None;
        }
        if self.engine_version.is_some() {
            spec.version.clone_from(&self.engine_version);
        }
        if let Some(model) = &self.model {
            spec.model.clone_from(model);
            spec.aliases.clear();
        }
        if let Some(window) = self.window {
            spec.window = window;
            // A pool that is too small for one prompt would not start.
            spec.kv_pool = spec.kv_pool.filter(|pool| *pool >= window);
        }
        spec.slots = self.slots.unwrap_or(spec.slots);
        if self.sturdy {
            spec.dies_above = None;
            spec.faults = Faults::default();
        }
        if self.dies_above.is_some() {
            spec.dies_above = self.dies_above;
            spec.faults.dies_surely_above = None;
        }
        if let Some(Form(format)) = self.calls {
            spec.calls = Calls { share: 1.0, format, flawed: self.flawed.unwrap_or_default() };
        }
        spec.tool_parser &= !self.no_tool_parser;
        spec.thinks |= self.thinks;
        spec.reasoning_parser &= !self.no_reasoning_parser;
        spec.cold |= self.cold;
    }
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
    if !args.steps.is_empty() {
        spec.script = Script::new(args.steps.iter().cloned());
    }
    args.changes.apply(&mut spec);
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port.unwrap_or(spec.port)));
    if args.port.is_none() && spec.port == 0 {
        bail!("{} has no port of its own; say --port", args.preset);
    }
    Ok(Fleet { members: vec![Member { spec, listen }] })
}

/// What it does not survive, in words.
fn cliff(spec: &Spec) -> String {
    let faults = &spec.faults;
    let single = spec.dies_above.map(|tokens| match faults.dies_surely_above {
        Some(surely) => format!("may die above {tokens} tokens at once, dies above {surely}"),
        None => format!("dies above {tokens} tokens at once"),
    });
    let new = faults.dies_above_new.map(|tokens| format!("dies above {tokens} new tokens at once"));
    let conversation = faults.accumulated.map(|cliff| {
        format!(
            "may die in a conversation of {} tokens, dies at {}, from turn {} on",
            cliff.from, cliff.surely, cliff.turns
        )
    });
    let fill = faults.fills_to.map(|tokens| format!("aborts above {tokens} tokens in all slots together"));
    let cliffs: Vec<String> = [single, new, conversation, fill].into_iter().flatten().collect();
    if cliffs.is_empty() { "no cliff".to_owned() } else { cliffs.join("; ") }
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
        EventKind::CacheHit { tokens } => format!("finds {tokens} tokens of its prompt in the cache"),
        EventKind::Preempted => "lost its slot: the KV pool is full".to_owned(),
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
        EventKind::Silent if event.request.is_some() => "made the engine fall silent".to_owned(),
        EventKind::Silent => "the engine fell silent".to_owned(),
        EventKind::Resumed => "the engine computes again".to_owned(),
        EventKind::Down => "the port refuses connections".to_owned(),
        EventKind::Loading => "loads its model".to_owned(),
        EventKind::Ready => "serves".to_owned(),
        // The rig may learn further kinds.
        other => format!("{other:?}"),
    };
    format!("{who}{what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_machine_takes_every_change_and_tells_its_cliffs() {
        let changes = Changes {
            engine: Some(Engine::LlamaCpp),
            engine_version: Some("b1".to_owned()),
            model: Some("m".to_owned()),
            window: Some(1_000_000),
            slots: Some(3),
            dies_above: None,
            sturdy: true,
            calls: Some(form("qwen-xml").unwrap()),
            flawed: Some(0.5),
            no_tool_parser: true,
            thinks: true,
            no_reasoning_parser: true,
            cold: true,
        };
        for (slug, mut spec) in Spec::presets().unwrap() {
            changes.apply(&mut spec);
            spec.check().unwrap_or_else(|error| panic!("{slug}: {error}"));
            assert_eq!(cliff(&spec), "no cliff", "{slug}");
        }
        let told = cliff(&Spec::preset("llamacpp/default").unwrap());
        assert_eq!(told, "aborts above 183000 tokens in all slots together");
    }

    #[test]
    fn a_form_is_one_of_the_formats_or_structured() {
        assert!(matches!(form("structured"), Ok(Form(None))));
        assert!(matches!(form("hermes"), Ok(Form(Some(Format::Hermes)))));
        assert!(form("yaml").unwrap_err().contains("`hermes`"));
    }
}
