//! Backends as they run: what was configured, what was found out, and whether they are there now.
//!
//! [`Fleet`] is the list, in the order of the configuration; positions in it are the indexes that the policies use.
//! What a probe finds fills what the configuration leaves open and never overrides it.

pub(crate) mod client;
pub(crate) mod decode;
mod fleet;
pub(crate) mod headers;
mod learn;
mod open;
mod presence;
pub(crate) mod probe;
pub(crate) mod pulse;
mod quality;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::Full;
use parking_lot::{Mutex, RwLock};
use switchback_parsers::diagnosis::Engine;
use switchback_parsers::needs::Need;
use switchback_parsers::tool_call::family_of_parser;
use switchback_policies::agreement::{Agreement, Correction};
use switchback_policies::cliff::Region;
use switchback_policies::debt::Ledger;
use switchback_policies::facts::{self, BackendFacts, BackendState, Limit};
use switchback_policies::health::{Health, Probe};
use switchback_policies::speed::Learner;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::client::{ClientError, Connect, Reply};
pub(crate) use self::fleet::{Fleet, changes};
use self::open::{OpenRequests, Witnessed};
pub(crate) use self::open::{Place, Work};
use self::presence::Attended;
pub(crate) use self::probe::{ChatTemplate, Found, Load};
use self::pulse::Pulse;
use crate::admission::Permit;
use crate::cliffs::{CliffMaps, Owner};
use crate::config;
use crate::edits::{RequestRule, Switch};
use crate::watched::Watched;

/// One backend.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) config: config::Backend,
    found: RwLock<Found>,
    /// As of the last probe; `None` if that did not tell.
    load: RwLock<Option<Load>>,
    open: Arc<OpenRequests>,
    speed: Mutex<Learner>,
    /// Whose speed that is.
    speed_of: Mutex<Option<Owner>>,
    /// What its counts say of ours.
    agreement: Mutex<Agreement>,
    /// How often it was seen to come back.
    starts: AtomicU32,
    /// How often something was learned of whether it is there.
    seen: AtomicU64,
    cliffs: Arc<CliffMaps>,
    /// A connection was lost with this on it: if the next probe finds nobody, that was a death.
    lost: Mutex<Option<Witnessed>>,
    /// When it was last seen to die, or to be silent.
    died_at: Mutex<Option<Instant>>,
    /// It may have died since it was last seen up: that it comes back is no restart on purpose then.
    died: AtomicBool,
    pulse: Pulse,
    quality: Mutex<quality::Memory>,
    /// Something happened that a probe should look at now.
    doubt: Notify,
    /// Prompts that it read because another backend had failed.
    pub(crate) debt: Mutex<Ledger>,
    health: Watched<Health>,
    /// Its loader; `None`: it has none.
    attended: RwLock<Option<Attended>>,
    connector: Arc<dyn Connect>,
    connect_within: Duration,
    /// Changes of it are worth a line in the log.
    announced: bool,
}

impl Backend {
    pub(crate) fn new(
        config: config::Backend,
        connector: Arc<dyn Connect>,
        connect_within: Duration,
        cliffs: Arc<CliffMaps>,
    ) -> Self {
        Self {
            config,
            found: RwLock::default(),
            load: RwLock::default(),
            open: Arc::default(),
            speed: Mutex::default(),
            speed_of: Mutex::default(),
            agreement: Mutex::default(),
            starts: AtomicU32::new(0),
            seen: AtomicU64::new(0),
            cliffs,
            lost: Mutex::default(),
            died_at: Mutex::default(),
            died: AtomicBool::new(true),
            pulse: Pulse::new(),
            quality: Mutex::default(),
            doubt: Notify::new(),
            debt: Mutex::default(),
            health: Watched::default(),
            attended: RwLock::default(),
            connector,
            connect_within,
            announced: true,
        }
    }

    /// One that is only looked for: what becomes of it is nobody's news yet.
    pub(crate) fn unannounced(self) -> Self {
        Self { announced: false, ..self }
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// Under which name its places are taken: several names may be one engine.
    pub(crate) fn places(&self) -> &str {
        self.config.same_as.as_deref().unwrap_or(&self.config.name)
    }

    pub(crate) fn engine(&self) -> Engine {
        let preset = self.config.preset.map(|preset| preset.engine);
        let found = self.found.read().engine.filter(|engine| *engine != Engine::Other);
        self.config.engine.or(found).or(preset).unwrap_or(Engine::Other)
    }

    /// What probing has found.
    pub(crate) fn found(&self) -> Found {
        self.found.read().clone()
    }

    /// The chat template that it runs, where it tells.
    pub(crate) fn chat_template(&self) -> Option<ChatTemplate> {
        self.found.read().chat_template.clone()
    }

    /// How busy it is, by its own account.
    pub(crate) fn told_load(&self) -> Option<Load> {
        *self.load.read()
    }

    /// Takes a place for a request that has the right to it.
    pub(crate) fn occupy(&self, work: Work, permit: Permit) -> Place {
        self.open.take(work, permit)
    }

    /// Takes an exact count of ours and its own of the same prompt; gives the difference that stays, if there is one.
    pub(crate) fn on_count(&self, ours: u64, theirs: u64) -> Option<Correction> {
        let mut agreement = self.agreement.lock();
        agreement.observe(ours, theirs);
        agreement.correction()
    }

    /// By how much our counts are wrong here, as far as that is known.
    pub(crate) fn correction(&self) -> Option<Correction> {
        self.agreement.lock().correction()
    }

    pub(crate) fn state(&self) -> BackendState {
        self.health.get().state()
    }

    /// It was started without a tool parser, and vLLM refuses requests with tools then.
    pub(crate) fn parses_no_tools(&self) -> bool {
        let parses = self.config.tool_parser.or(self.found.read().tool_parser);
        self.engine() == Engine::Vllm && parses == Some(false)
    }

    /// The family in which its model probably writes calls: as probing found, else by the parser that its preset names. The
    /// configured `format` is no guess, and goes its own way.
    pub(crate) fn family(&self) -> Option<&'static str> {
        let preset = || family_of_parser(self.config.preset?.tool_parser.as_deref()?);
        self.found.read().family.or_else(preset)
    }

    /// What its chat template cannot read: as configured, else as its own rendering told.
    pub(crate) fn needs(&self) -> Vec<Need> {
        let configured = self.config.needs.clone();
        let mut needs = configured.or_else(|| self.found.read().needs.clone()).unwrap_or_default();
        needs.extend(self.config.rules_on.iter().filter_map(|rule| rule.need()));
        needs.retain(|need| !self.config.rules_off.contains(&Switch::Need(*need)));
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    /// The names that it serves: the configured one, else what it says, else what its preset says.
    pub(crate) fn names(&self) -> Vec<String> {
        if let Some(model) = &self.config.model {
            return vec![model.clone()];
        }
        let found = self.found.read().names.clone();
        let preset = self.config.preset.map(|preset| preset.names.clone());
        if found.is_empty() { preset.unwrap_or_default() } else { found }
    }

    /// The name to ask this backend for when a client asks for `asked`; `None` if that very name will do.
    pub(crate) fn name_for(&self, asked: Option<&str>) -> Option<String> {
        let names = self.names();
        if asked.is_some_and(|asked| names.iter().any(|name| name == asked)) {
            return None;
        }
        names.into_iter().next()
    }

    /// A request for this name would make it load another model in place of one that it has.
    pub(crate) fn would_swap(&self, asked: Option<&str>) -> bool {
        let Some(loaded) = self.found.read().loaded.filter(|loaded| *loaded > 0) else { return false };
        let sent = self.name_for(asked).or_else(|| asked.map(str::to_owned));
        sent.is_some_and(|sent| self.found.read().names.iter().skip(loaded).any(|name| *name == sent))
    }

    /// What a decision needs to know. What the operator configured wins over what was found, and that over what a preset
    /// says of machines like this one; only a preset's conversation limit may be passed.
    pub(crate) fn facts(&self) -> BackendFacts {
        // A copy: a second look at a lock that is held waits for ever if somebody wants to write between them.
        let found = self.found();
        let preset = self.config.preset;
        let limits = self.config.limits;
        // llama.cpp does not tell whether its slots share one pool. They do by default, with four of them; other numbers
        // were given with `-np`, which gives each its own.
        let shared = found.pool_shared.unwrap_or(found.slots == Some(4));
        let believed = |pool: &u64| self.config.window.is_none_or(|window| *pool >= window);
        let pool = found.pool.filter(|_| shared).filter(believed);
        let least = |limits: [Option<u64>; 3]| limits.into_iter().flatten().min();
        // What a machine was seen to fill is all it can hold under llama.cpp, whose slots share that memory; under vLLM,
        // which has a pool of its own, it is what one conversation was seen to fill.
        let filled = preset.and_then(|preset| preset.resident);
        let (filled_by_one, filled_by_all) =
            if self.shares_memory() { (None, filled) } else { (filled, None) };
        let model = self.names().into_iter().next();
        let facts = BackendFacts {
            name: self.config.name.clone(),
            window: self.config.window.or(found.window).or(preset.map(|preset| preset.window)),
            single: limits.single.or(least([
                found.prompt_limit,
                preset.and_then(|preset| preset.single),
                filled_by_one,
            ])),
            accumulated: limits
                .accumulated
                .map(|tokens| Limit { tokens, soft: false })
                .or(preset.and_then(|preset| preset.accumulated)),
            resident: limits.resident.or(least([
                pool.or(preset.and_then(|preset| preset.pool)),
                filled_by_all,
                None,
            ])),
            slots: self.config.slots.or(found.slots).or(preset.map(|preset| preset.slots)),
            speed: self.speed(),
            chunk: self
                .config
                .long_prefill
                .or(found.long_prefill)
                .or(preset.and_then(|preset| preset.long_prefill_threshold))
                .filter(|chunk| *chunk > 0),
            load: facts::Load::default(),
            state: self.state(),
            loaded: facts::Loaded::Yes,
            images: self
                .config
                .images
                .or(found.images)
                .or(preset.and_then(|preset| preset.vision))
                .unwrap_or(true),
            streamed_required: self.config.streamed_required,
            words_for_images: self.config.rules_on.contains(&Switch::Rule(RequestRule::Pictures)),
            thinks: self.config.thinks.unwrap_or(self.config.thinking_open)
                && !self.config.rules_off.contains(&Switch::Rule(RequestRule::RoomToThink)),
            collapsed: self.is_drained_for_quality(),
            learned: Region::default(),
        };
        facts.with_learned(self.cliffs.region(&self.config.name, model.as_deref()))
    }

    /// Opens a connection and sends one request; `path` starts with `/v1` or is one of the engine's own.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Reply, ClientError> {
        let uri = format!("{}{path}", self.config.prefix);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        // A path that is no path cannot come from the router; the engine would answer it with 404 all the same.
        *request.uri_mut() = uri.parse().unwrap_or_default();
        *request.headers_mut() = headers;
        client::send(self.connector.as_ref(), &self.config.authority, self.connect_within, request).await
    }

    /// Takes what a probe found.
    pub(crate) fn on_probe(&self, probe: Probe, found: Option<Found>) {
        if let Some(found) = found {
            let mut known = self.found.write();
            if *known != found && self.announced {
                tracing::info!(
                    backend = self.name(),
                    engine = %found.engine.unwrap_or(Engine::Other),
                    window = found.window,
                    names = found.names.join(","),
                    "backend describes itself",
                );
            }
            *known = found;
            drop(known);
            if let (Some(owner), Some(version)) = (self.owner(), self.found().version) {
                self.cliffs.is_version(owner, &version);
            }
        }
        self.judge_loss(probe);
        self.recall_speed();
        let before = self.state();
        self.change(|health| health.on_probe(probe));
        if before != BackendState::Up && self.state() == BackendState::Up {
            self.came_back(before);
        }
    }

    /// Takes how busy a probe found it.
    fn on_load(&self, load: Option<Load>) {
        if let Some(load) = load {
            self.look(load);
        }
        *self.load.write() = load;
    }

    fn change(&self, change: impl FnOnce(&mut Health)) {
        self.seen.fetch_add(1, Ordering::Relaxed);
        let (before, after) = self.health.change(change);
        if before.state() != after.state() && self.announced {
            tracing::info!(backend = self.name(), state = %after.state(), was = %before.state(), "backend changed");
        }
    }

    /// A number that is another one once something new was learned of whether it is there.
    pub(crate) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Resolves when the backend is in a state that `wanted` accepts.
    pub(crate) async fn until(&self, wanted: impl Fn(BackendState) -> bool) {
        self.health.until(|health| wanted(health.state())).await;
    }
}
