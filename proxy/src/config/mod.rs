//! Configuration: a TOML file, complete by default, checked as a whole before anything is opened.
//!
//! [`file`] is what was written, [`Config`] what it means; [`check`] leads from one to the other and tells all complaints
//! at once. Secrets come from the environment or from files, never from the TOML file itself, and are never printed.

mod backend;
mod check;
mod client;
mod file;
mod loader;
mod read;
mod secret;
mod words;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::uri::Authority;
use serde::Deserialize;
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::needs::Need;
use switchback_policies::admission::Rules;
use switchback_policies::client::{ReasoningField, Usage};
use switchback_policies::debt;
use switchback_policies::facts::StreamedRequired;
use switchback_policies::session::LoopLimit;

use crate::cliffs;
use crate::edits::Switch;
use crate::preset::Preset;
pub(crate) use check::nearest;
pub(crate) use client::{ClientRule, Sampling};
pub(crate) use file::ModelName;
pub(crate) use loader::{Commands, Driver, Load, Loader, Service, Way};
pub(crate) use secret::{Key, Secret, which};

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) server: Server,
    pub(crate) backends: Vec<Backend>,
    pub(crate) models: Vec<Model>,
    pub(crate) clients: Vec<ClientRule>,
    /// A conversation stays where it was unless another backend is clearly better.
    pub(crate) sticky: bool,
    /// Lines that differ from request to request are taken off the prompt's head, for the prefix cache.
    pub(crate) strip_volatile: bool,
    /// A conversation that is about to outgrow its backend is read by the next one before its next turn.
    pub(crate) prewarm: bool,
    pub(crate) repair: Repair,
    pub(crate) admission: Rules,
    pub(crate) failover: Failover,
    pub(crate) cliffs: cliffs::Settings,
    pub(crate) answer: Answer,
    pub(crate) probe: Probe,
    /// Who brings backends onto their cards; `None`: they are there or not by themselves.
    pub(crate) loader: Option<Loader>,
}

/// Where and how the proxy listens.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) listen: SocketAddr,
    /// Empty: no key is asked for.
    pub(crate) keys: Vec<Key>,
    /// The variable of the environment that keys were read from.
    pub(crate) keys_env: Option<String>,
    /// Where keys were read from, besides the environment.
    pub(crate) keys_file: Option<PathBuf>,
    /// Serve every Host name and listen beyond loopback although no keys are set.
    pub(crate) open: bool,
    pub(crate) allowed_origins: Vec<String>,
    pub(crate) max_body: usize,
    pub(crate) max_connections: usize,
    pub(crate) read_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) drain: Duration,
}

/// One backend, as configured. What it says of itself is found by probing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Backend {
    pub(crate) name: String,
    pub(crate) authority: Authority,
    /// What stands before `/v1` in its paths: usually nothing.
    pub(crate) prefix: String,
    /// What is published of machines like this one.
    pub(crate) preset: Option<&'static Preset>,
    pub(crate) engine: Option<Engine>,
    pub(crate) window: Option<u64>,
    pub(crate) limits: Limits,
    /// Requests that it runs at once.
    pub(crate) slots: Option<u64>,
    /// The name of another one that is the same engine, so that its places are taken there, too; `None`: it is its own.
    pub(crate) same_as: Option<String>,
    /// Tokens of a long prompt that its engine reads at once while others wait; 0: the whole prompt.
    pub(crate) long_prefill: Option<u64>,
    /// Whether it turns what a model writes into calls; `None`: as it says itself.
    pub(crate) tool_parser: Option<bool>,
    /// The family in which its model writes calls as text; `None`: told from the text.
    pub(crate) format: Option<&'static str>,
    /// Its template opens the thought in the prompt, and it does not split thoughts from text itself.
    pub(crate) thinking_open: bool,
    /// Its model thinks before it answers, unless a request says otherwise; `None`: if its template opens the thought.
    pub(crate) thinks: Option<bool>,
    /// The tags between which its model thinks, in the text; `None`: those that are known, where calls are looked for.
    pub(crate) thinking_tags: Option<[String; 2]>,
    /// The only name under which it reads an output limit; `None`: as its engine does.
    pub(crate) output_limit: Option<&'static str>,
    /// What its chat template cannot read; `None`: as probing finds.
    pub(crate) needs: Option<Vec<Need>>,
    /// Places of members that it must not get: JSON pointers, `*` for any element.
    pub(crate) drop: Vec<String>,
    /// Keywords that its tool schemas must not have.
    pub(crate) drop_schema_keywords: Vec<String>,
    /// Rules and needs that hold for it beside the usual ones.
    pub(crate) rules_on: Vec<Switch>,
    /// And those that do not.
    pub(crate) rules_off: Vec<Switch>,
    pub(crate) model: Option<String>,
    pub(crate) images: Option<bool>,
    /// What becomes of calls that are required of its streams.
    pub(crate) streamed_required: StreamedRequired,
    /// What follows if it answers worse than it did.
    pub(crate) quality: Quality,
    pub(crate) key: Option<Secret>,
    /// How it is brought onto its cards; `None`: it is there or not by itself.
    pub(crate) load: Option<Load>,
}

impl Backend {
    /// Whoever listens on a port of this machine.
    pub(crate) fn local(port: u16) -> Self {
        Self {
            name: format!("local-{port}"),
            authority: check::loopback(port),
            prefix: String::new(),
            preset: None,
            engine: None,
            window: None,
            limits: Limits::default(),
            slots: None,
            same_as: None,
            long_prefill: None,
            tool_parser: None,
            format: None,
            thinking_open: false,
            thinks: None,
            thinking_tags: None,
            output_limit: None,
            needs: None,
            drop: Vec::new(),
            drop_schema_keywords: Vec::new(),
            rules_on: Vec::new(),
            rules_off: Vec::new(),
            model: None,
            images: None,
            streamed_required: StreamedRequired::Pass,
            quality: Quality::Drain,
            key: None,
            load: None,
        }
    }
}

/// What follows if a backend answers worse than it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Quality {
    /// It is asked after all others, and that is told.
    #[default]
    Drain,
    /// That is told.
    Tell,
    /// Nothing: it is not looked at.
    Ignore,
}

/// What a backend survives, tokens; `None`: not configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// In one prompt.
    pub(crate) single: Option<u64>,
    /// In one conversation.
    pub(crate) accumulated: Option<u64>,
    /// In all requests together.
    pub(crate) resident: Option<u64>,
}

/// A name that clients may ask for, and the backends that serve it, in order of preference (positions in the list of backends).
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) aliases: Vec<String>,
    pub(crate) backends: Vec<usize>,
    pub(crate) tokenizer: Option<PathBuf>,
}

/// What is mended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repair {
    /// Calls in answers, written as text or badly structured.
    pub(crate) tool_calls: bool,
    /// Broken calls in what clients send.
    pub(crate) history: bool,
    /// Calls in thoughts are calls, if there is nothing else in the answer.
    pub(crate) calls_in_thoughts: bool,
    /// `parallel_tool_calls: false` is kept here if the model does not keep it.
    pub(crate) one_call: bool,
}

/// How long to wait for backends, and what to do when they fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failover {
    pub(crate) attempts: usize,
    pub(crate) connect: Duration,
    pub(crate) first_token: Duration,
    pub(crate) stall: Duration,
    pub(crate) whole: Duration,
    pub(crate) hold_head: Duration,
    pub(crate) keep_alive: Duration,
    pub(crate) loading: Duration,
    pub(crate) death_is_overflow_above: u64,
    pub(crate) silent_truncation: bool,
    /// Prompt tokens that may be read again after failures.
    pub(crate) prefill_again: debt::Bounds,
}

/// What answers look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// For every client; `None`: as its profile says.
    pub(crate) usage: Option<Usage>,
    /// The same for the member that carries reasoning.
    pub(crate) reasoning: Option<ReasoningField>,
    pub(crate) model_name: ModelName,
    /// Usage is asked of every backend, also where that shows (llama.cpp moves its timings).
    pub(crate) ask_usage: bool,
    /// Tokens that every ordinary turn leaves free below the largest limit; `None`: as the client's profile says.
    pub(crate) headroom: Option<u64>,
    /// Tokens kept free when an output is cut to what is left.
    pub(crate) margin: u64,
    pub(crate) overflow_loop: LoopLimit,
}

/// How backends are watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not TOML, has unknown keys or values of the wrong kind, or makes no sense.
    #[error("{}", complaints.join("\n"))]
    Complaints {
        /// All of them, each with its line and, after `hint:`, the way out.
        complaints: Vec<String>,
    },
}

impl Config {
    /// Reads and checks a file. Relative paths in it are relative to the file.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        Self::parse(&text, path.parent().unwrap_or(Path::new(".")))
    }

    /// Checks a configuration text; `base` is the folder that relative paths start from.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn parse(text: &str, base: &Path) -> Result<Self, ConfigError> {
        let document =
            read::Document::parse(text).map_err(|complaints| ConfigError::Complaints { complaints })?;
        let (file, mut complaints) = document.file();
        match file.map(|file| check::check(file, base)) {
            Some(Ok(config)) if complaints.is_empty() => return Ok(config),
            Some(Err(senseless)) => {
                complaints.extend(senseless.into_iter().map(|complaint| document.located(complaint)));
            }
            Some(Ok(_)) | None => {}
        }
        Err(ConfigError::Complaints { complaints: read::Complaint::in_order(complaints) })
    }

    /// All defaults and no backend: what discovery starts from.
    pub(crate) fn without_backends() -> Self {
        check::defaults()
    }

    /// Where the file is looked for when none is named, in this order.
    #[must_use]
    pub fn usual_places() -> Vec<PathBuf> {
        let config_home = std::env::var_os("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")));
        let mut places = vec![PathBuf::from("switchback.toml")];
        places.extend(config_home.map(|home| home.join("switchback").join("switchback.toml")));
        places
    }

    /// The same configuration, with what is learned of cliffs kept in the user's state folder if no place is configured.
    #[must_use]
    pub fn keeping_state(mut self) -> Self {
        if self.cliffs.file.is_none() {
            let state = std::env::var_os("XDG_STATE_HOME")
                .map(PathBuf::from)
                .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state")));
            self.cliffs.file = state.map(|state| state.join("switchback").join("cliffs.json"));
        }
        self
    }

    /// What is learned is nowhere kept.
    pub(crate) fn keeps_nothing(&self) -> bool {
        self.cliffs.learn && self.cliffs.file.is_none()
    }

    /// The same configuration on another address, as `--listen` asks.
    ///
    /// # Errors
    /// As for a file that says so: listening beyond loopback needs keys or `open`.
    pub fn listening_on(mut self, listen: SocketAddr) -> Result<Self, ConfigError> {
        self.server.listen = listen;
        match check::exposure(&self.server) {
            Some(complaint) => Err(ConfigError::Complaints { complaints: vec![complaint] }),
            None => Ok(self),
        }
    }
}
