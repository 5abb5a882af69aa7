//! `[loader]`, and how each `[[backend]]` is loaded: for rigs where not all of them fit at a time.
//!
//! As written and as checked. A command is a fixed list of arguments that the operator wrote: nothing of a request ever
//! reaches it, and no shell reads it.

use std::time::Duration;

use http::uri::Authority;
use serde::Deserialize;
use switchback_parsers::diagnosis::Engine;
use switchback_policies::loading::Rules;

use super::{Backend, Secret, backend, secret, words};
use crate::preset::Preset;

/// Where club-3090's model-switch listens.
const MODEL_SWITCH: &str = "http://127.0.0.1:8099";

/// What a load takes if nobody says and nothing was seen: vLLM 60 to 120 s, llama.cpp 30 s.
const LOAD_TIME: Duration = Duration::from_secs(90);

/// Who carries loads out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DriverName {
    ModelSwitch,
    LlamaSwap,
    Command,
}

impl DriverName {
    fn name(self) -> &'static str {
        match self {
            Self::ModelSwitch => "model-switch",
            Self::LlamaSwap => "llama-swap",
            Self::Command => "command",
        }
    }
}

/// `[loader]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    driver: DriverName,
    url: Option<String>,
    api_key_env: Option<String>,
    #[serde(default = "min_residency", deserialize_with = "words::duration")]
    min_residency: Duration,
    #[serde(default = "idle", deserialize_with = "words::duration")]
    idle: Duration,
    #[serde(default = "drain", deserialize_with = "words::duration")]
    drain: Duration,
    #[serde(default = "wait", deserialize_with = "words::duration")]
    wait: Duration,
    #[serde(default = "load_timeout", deserialize_with = "words::duration")]
    load_timeout: Duration,
    #[serde(default)]
    background: bool,
    #[serde(default = "ahead")]
    ahead: bool,
}

fn ahead() -> bool {
    true
}

fn min_residency() -> Duration {
    Rules::default().min_residency
}

fn idle() -> Duration {
    Rules::default().idle
}

fn drain() -> Duration {
    Rules::default().drain
}

fn wait() -> Duration {
    Rules::default().wait
}

fn load_timeout() -> Duration {
    // As long as model-switch gives its own.
    Duration::from_secs(600)
}

/// `load` of a `[[backend]]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WrittenLoad {
    slug: Option<String>,
    model: Option<String>,
    force: bool,
    start: Option<Vec<String>>,
    stop: Option<Vec<String>>,
    check: Option<Vec<String>>,
    #[serde(deserialize_with = "words::some_duration")]
    time: Option<Duration>,
}

/// Who loads, and under which rules.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Loader {
    pub(crate) driver: Driver,
    pub(crate) rules: Rules,
    /// A load that takes longer has failed.
    pub(crate) load_timeout: Duration,
    /// Background requests may have another backend loaded, too.
    pub(crate) background: bool,
    /// For a conversation that is about to outgrow its backend the next one is loaded before its next turn.
    pub(crate) ahead: bool,
}

/// Who carries loads out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Driver {
    /// club-3090's service, one backend at a time.
    ModelSwitch(Service),
    /// A llama-swap, through which the requests go, too.
    LlamaSwap(Service),
    /// Programs of the operator.
    Command,
}

impl std::fmt::Display for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ModelSwitch(service) => write!(f, "model-switch at {}", service.authority),
            Self::LlamaSwap(service) => write!(f, "llama-swap at {}", service.authority),
            Self::Command => f.write_str("commands"),
        }
    }
}

/// A service that loads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Service {
    pub(crate) authority: Authority,
    /// What stands before its paths: usually nothing.
    pub(crate) prefix: String,
    pub(crate) key: Option<Secret>,
}

/// How one backend is loaded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Load {
    /// The cards that it needs; empty: all.
    pub(crate) cards: Vec<u32>,
    /// How long it is expected to take.
    pub(crate) time: Duration,
    pub(crate) way: Way,
}

impl Load {
    /// The name that requests must bear to reach this very backend, where several answer at one address.
    pub(super) fn name_to_ask_for(&self) -> Option<String> {
        match &self.way {
            Way::Swap { model } => Some(model.clone()),
            Way::Slug { .. } | Way::Model { .. } | Way::Command(_) => None,
        }
    }
}

/// What the driver is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Way {
    /// model-switch: a slug of its registry.
    Slug { slug: String, force: bool },
    /// The same by a model's name, of which it takes its default slug.
    Model { model: String, force: bool },
    /// llama-swap: the name under which it knows the model.
    Swap { model: String },
    /// Programs and their arguments.
    Command(Commands),
}

/// The commands of one backend, each a program and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Commands {
    /// Starts it: returns when that is under way, or is the server itself and stays.
    pub(crate) start: Vec<String>,
    /// Stops it; `None`: a server that the proxy has started and that stays is ended, any other is not touched.
    pub(crate) stop: Option<Vec<String>>,
    /// Ends with 0 if it is there; `None`: the probe tells.
    pub(crate) check: Option<Vec<String>>,
}

/// Checks `[loader]` itself.
pub(super) fn check(written: &Written, queue: usize, complaints: &mut Vec<String>) -> Option<Loader> {
    let mut complain = |text: String| complaints.push(format!("[loader] {text}"));
    for (key, value) in [("wait", written.wait), ("load_timeout", written.load_timeout)] {
        if value.is_zero() {
            complain(format!("{key} must be above 0"));
        }
    }
    let key = match written.api_key_env.as_deref().map(secret::keys_from_env) {
        Some(Ok(mut keys)) if keys.len() == 1 => keys.pop().map(|key| key.secret),
        Some(Ok(_)) => {
            complain("api_key_env holds several keys, a loader takes one".to_owned());
            None
        }
        Some(Err(problem)) => {
            complain(format!("api_key_env: {problem}"));
            None
        }
        None => None,
    };
    let usual = (written.driver == DriverName::ModelSwitch).then(|| MODEL_SWITCH.to_owned());
    let url = written.url.clone().or(usual);
    let service = match (written.driver, url) {
        (DriverName::Command, None) => None,
        (DriverName::Command, Some(_)) => {
            complain("url: commands are run on this machine and need none".to_owned());
            return None;
        }
        (DriverName::ModelSwitch | DriverName::LlamaSwap, None) => {
            complain(
                "url is missing\nhint: where llama-swap listens, e.g. \"http://127.0.0.1:8080\"".to_owned(),
            );
            return None;
        }
        (DriverName::ModelSwitch | DriverName::LlamaSwap, Some(url)) => match backend::address(&url) {
            Ok((authority, prefix)) => Some(Service { authority, prefix, key }),
            Err(problem) => {
                complain(format!("url \"{url}\": {problem}\nhint: e.g. \"{MODEL_SWITCH}\""));
                return None;
            }
        },
    };
    let driver = match (written.driver, service) {
        (DriverName::ModelSwitch, Some(service)) => Driver::ModelSwitch(service),
        (DriverName::LlamaSwap, Some(service)) => Driver::LlamaSwap(service),
        (_, _) => Driver::Command,
    };
    let rules = Rules {
        min_residency: written.min_residency,
        idle: written.idle,
        drain: written.drain,
        wait: written.wait,
        queue,
    };
    let Written { load_timeout, background, ahead, .. } = *written;
    Some(Loader { driver, rules, load_timeout, background, ahead })
}

/// What of a `[[backend]]` says how it is loaded.
#[derive(Debug)]
pub(super) struct Said<'a> {
    pub(super) gpus: Option<Vec<u32>>,
    pub(super) load: Option<WrittenLoad>,
    pub(super) preset: Option<&'static Preset>,
    pub(super) model: Option<&'a str>,
    pub(super) engine: Option<Engine>,
}

/// How a backend is loaded; `None`: it is not, it is there or not by itself.
pub(super) fn load(
    loader: Option<&Written>,
    said: Said<'_>,
    mut complain: impl FnMut(String),
) -> Option<Load> {
    let Some(loader) = loader else {
        let given = [("load", said.load.is_some()), ("gpus", said.gpus.is_some())];
        for (key, _) in given.iter().filter(|(_, given)| *given) {
            complain(format!(
                "{key}: there is no [loader] that could take it into account\nhint: [loader] driver = \"model-switch\", \"llama-swap\" or \
                 \"command\", or no {key}"
            ));
        }
        return None;
    };
    if said.load.is_none() && said.gpus.is_none() {
        return None;
    }
    if matches!(said.engine, Some(Engine::Ollama | Engine::LmStudio)) {
        complain(
            "load: it loads its models by itself; two that swap in turn undo each other's work".to_owned(),
        );
        return None;
    }
    let written = said.load.unwrap_or_default();
    let (driver, force) = (loader.driver, written.force);
    let mut misplaced = false;
    for (key, given, takes) in [
        ("slug", written.slug.is_some(), &[DriverName::ModelSwitch][..]),
        ("force", written.force, &[DriverName::ModelSwitch]),
        ("model", written.model.is_some(), &[DriverName::ModelSwitch, DriverName::LlamaSwap]),
        ("start", written.start.is_some(), &[DriverName::Command]),
        ("stop", written.stop.is_some(), &[DriverName::Command]),
        ("check", written.check.is_some(), &[DriverName::Command]),
    ] {
        if given && !takes.contains(&driver) {
            let others: Vec<&str> = takes.iter().map(|driver| driver.name()).collect();
            let (driver, others) = (driver.name(), others.join(" or "));
            complain(format!(
                "load.{key}: driver {driver} takes none\nhint: it is for driver {others} of [loader]"
            ));
            misplaced = true;
        }
    }
    let commands = [("start", &written.start), ("stop", &written.stop), ("check", &written.check)];
    for (key, command) in commands {
        if command.as_ref().is_some_and(|words| words.first().is_none_or(String::is_empty)) {
            complain(format!(
                "load.{key}: is empty\nhint: a program and its arguments, e.g. [\"systemctl\", \"--user\", \"start\", \"llama\"]"
            ));
        }
    }
    let mut missing = |key: &str, hint: &str| {
        if misplaced {
            // It is told for another driver: that is the one thing to mend.
            return;
        }
        let whence = if said.gpus.is_some() { "gpus" } else { "load" };
        complain(format!(
            "{whence}: {} is not told how to load it: load.{key} is missing\nhint: {hint}, or leave gpus out if it is always there",
            driver.name()
        ));
    };
    let way = match driver {
        DriverName::ModelSwitch => match (written.slug, written.model) {
            (Some(slug), _) => Way::Slug { slug, force },
            (None, Some(model)) => Way::Model { model, force },
            (None, None) => match said.preset {
                Some(preset) => Way::Slug { slug: preset.slug.clone(), force },
                None => {
                    missing("slug", "load = { slug = \"vllm/dual\" }, one of its GET /models");
                    return None;
                }
            },
        },
        DriverName::LlamaSwap => match written.model.or(said.model.map(str::to_owned)) {
            Some(model) => Way::Swap { model },
            None => {
                missing("model", "load = { model = \"…\" }, a name of its configuration");
                return None;
            }
        },
        DriverName::Command => match written.start {
            Some(start) => Way::Command(Commands { start, stop: written.stop, check: written.check }),
            None => {
                missing("start", "load = { start = [\"program\", \"argument\"], stop = […] }");
                return None;
            }
        },
    };
    // model-switch has one backend at a time, whatever its cards.
    let cards = if driver == DriverName::ModelSwitch { Vec::new() } else { said.gpus.unwrap_or_default() };
    Some(Load { cards, time: written.time.unwrap_or(LOAD_TIME), way })
}

/// What only shows when all backends are there. `has_loads`: some backend is meant to be loaded, be that well said or not.
pub(super) fn together(loader: &Loader, backends: &[Backend], has_loads: bool, complaints: &mut Vec<String>) {
    let loaded = || backends.iter().filter_map(|backend| Some((backend, backend.load.as_ref()?)));
    if !has_loads {
        complaints.push(
            "[loader] driver: there is no backend that it may load\nhint: gpus = [0] or load = { … } under [[backend]]"
                .to_owned(),
        );
    }
    for (nth, (backend, load)) in loaded().enumerate() {
        if load.time > loader.rules.wait {
            complaints.push(format!(
                "[loader] wait: {} s is less than the {} s that {} is expected to take, so nobody could wait for it\nhint: a longer wait, \
                 or load.time of that backend if it is faster ({} s unless it is said)",
                loader.rules.wait.as_secs(),
                load.time.as_secs(),
                backend.name,
                LOAD_TIME.as_secs()
            ));
        }
        let same_place =
            |other: &Backend| other.authority == backend.authority && other.prefix == backend.prefix;
        if let Driver::LlamaSwap(service) = &loader.driver
            && (service.authority != backend.authority || service.prefix != backend.prefix)
        {
            complaints.push(format!(
                "[[backend]] {}: url: its requests must go through the llama-swap that loads it\nhint: url = \"http://{}{}\"",
                backend.name, service.authority, service.prefix
            ));
        }
        let unchecked = |load: &Load| matches!(&load.way, Way::Command(commands) if commands.check.is_none());
        if let Some((other, _)) = loaded().take(nth).find(|(other, _)| same_place(other))
            && unchecked(load)
        {
            complaints.push(format!(
                "[[backend]] {}: url: {} has the same one, so nobody can tell which of them is there\nhint: load.check, a command \
                 that ends with 0 if it is, or a port of its own",
                backend.name, other.name
            ));
        }
    }
}
