//! Three simulated backends, the proxy in front of them, and prompts whose right answers are known.
//!
//! All three have one seed, so that each gives the same answer to a prompt; a fourth, which nobody kills and the proxy does
//! not know, is asked for them beforehand.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use http::uri::Authority;
use parking_lot::Mutex;
use serde_json::json;
use switchback::{Config, Connect, Connecting, Io, Service};
use switchback_rig::{Calls, Clock, Death, EventKind, Faults, Rig, Spec, text_of_tokens};
use switchback_tests::strict::{self, Transcript};

use crate::Options;
use tokio::io::DuplexStream;

/// Bytes that a pipe holds.
const PIPE: usize = 64 << 10;

/// Different prompts; the requests are drawn from them.
const PROMPTS: usize = 200;

/// Numbers that look random, from a seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `below`, which is above 0.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap_or_default() % below
    }
}

/// A prompt, and the answer to it.
#[derive(Debug)]
pub(crate) struct Prompt {
    pub(crate) body: String,
    /// As the simulated backends count it.
    pub(crate) tokens: usize,
    pub(crate) right: Transcript,
}

/// Everything.
pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) rigs: Arc<Vec<Rig>>,
    pub(crate) prompts: Vec<Prompt>,
    service: Service,
    seed: u64,
    kills: Mutex<BTreeMap<&'static str, usize>>,
}

impl World {
    pub(crate) async fn start(options: &Options) -> Result<Self> {
        let clock = Clock::real();
        let start = |spec| Rig::start(spec, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), clock);
        let rigs: Vec<Rig> = specs()?.into_iter().map(start).collect::<Result<_, _>>()?;
        let mut reference = specs()?.remove(0);
        reference.slots = 64;
        let reference = start(reference)?;
        let prompts = prompts(options, &reference, &clock).await?;
        let mut config = String::new();
        let mut names = Vec::new();
        for rig in &rigs {
            let name = &rig.spec().name;
            config.push_str(&format!("[[backend]]\nname = \"{name}\"\nurl = \"http://{name}\"\n"));
            names.push(format!("{name:?}"));
        }
        config.push_str(&format!("[[model]]\nname = \"m\"\nbackends = [{}]\n", names.join(", ")));
        let rigs = Arc::new(rigs);
        let service = Service::new(Config::parse(&config, Path::new("."))?, Arc::new(Dial(rigs.clone())));
        Ok(Self { clock, rigs, prompts, service, seed: options.seed, kills: Mutex::default() })
    }

    /// A connection to the proxy.
    pub(crate) fn connect(&self) -> DuplexStream {
        let (near, far) = tokio::io::duplex(PIPE);
        tokio::spawn(self.service.connection(far));
        near
    }

    /// Which prompt the request of this number has.
    pub(crate) fn prompt_of(&self, number: usize) -> usize {
        Dice::new(self.seed ^ (number as u64 + 1) << 20).below(self.prompts.len())
    }

    pub(crate) fn killed(&self, stage: &'static str) {
        *self.kills.lock().entry(stage).or_default() += 1;
    }

    pub(crate) fn kills(&self) -> BTreeMap<&'static str, usize> {
        self.kills.lock().clone()
    }
}

/// The proxy's way to the simulated backends: pipes in memory, which never lose a race against paused time.
#[derive(Debug)]
struct Dial(Arc<Vec<Rig>>);

impl Connect for Dial {
    fn connect(&self, to: &Authority) -> Connecting {
        let (rigs, host) = (self.0.clone(), to.host().to_owned());
        Box::pin(async move {
            let rig = rigs.iter().find(|rig| rig.spec().name == host);
            let rig = rig.ok_or(std::io::ErrorKind::ConnectionRefused)?;
            Ok(Box::new(rig.connect().await?) as Box<dyn Io>)
        })
    }
}

/// vLLM whose engine dies, vLLM whose whole process dies, llama.cpp: none of them by itself.
fn specs() -> Result<Vec<Spec>> {
    let machines = [
        ("engine", "vllm/dual", Death::Engine),
        ("process", "vllm/dual", Death::Process),
        ("llama", "llamacpp/default", Death::Engine),
    ];
    let mut specs = Vec::new();
    for (name, preset, death) in machines {
        let mut spec = Spec::preset(preset)?;
        name.clone_into(&mut spec.name);
        "m".clone_into(&mut spec.model);
        spec.aliases.clear();
        spec.faults = Faults { death, ..Faults::default() };
        spec.dies_above = None;
        spec.prefix_cache = None;
        spec.slots = 4;
        spec.kv_pool = None;
        spec.timing.mtp = None;
        spec.load_time = 20.0;
        spec.calls = Calls { share: 1.0, ..Calls::default() };
        spec.seed = 7;
        specs.push(spec);
    }
    Ok(specs)
}

/// Prompts of mixed lengths, most of them short, a third with a tool; with their answers.
async fn prompts(options: &Options, reference: &Rig, clock: &Clock) -> Result<Vec<Prompt>> {
    let mut dice = Dice::new(options.seed);
    let mut prompts = Vec::new();
    for number in 0..PROMPTS {
        let most = match dice.below(20) {
            0 => options.longest,
            1..6 => options.longest / 3,
            _ => options.longest / 12,
        };
        let tokens = 50 + dice.below(most.max(100));
        let mut body = json!({
            "model": "m", "stream": number % 8 != 0, "max_tokens": 40 + dice.below(120),
            "messages": [{ "role": "user", "content": text_of_tokens(tokens, number as u64) }],
        });
        if number % 3 == 0 {
            body["tools"] = json!([{ "type": "function", "function": {
                "name": "write_file", "parameters": { "type": "object", "required": ["path", "content"],
                "properties": { "path": { "type": "string" }, "content": { "type": "string" } } },
            } }]);
        }
        let body = body.to_string();
        let since = reference.events().last().map_or(0, |event| event.number + 1);
        let right = strict::ask(reference.connect().await?, &body, clock).await;
        ensure!(right.is_whole(), "the reference did not answer prompt {number}: {right:?}");
        let arrived = reference.events_since(since).into_iter().find_map(|event| match event.kind {
            EventKind::Arrived { prompt_tokens, .. } => Some(prompt_tokens),
            _ => None,
        });
        let tokens = arrived.context("the reference saw no request")?;
        prompts.push(Prompt { body, tokens, right });
    }
    Ok(prompts)
}
