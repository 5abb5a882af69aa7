//! `soak`: the community's own acceptance test (five sessions of five turns to 25,000 tokens, needles in 60,000 and 90,000)
//! on a simulated single card beside llama.cpp: without the proxy, with known limits, with none, and after a restart.
//!
//! `cargo run --release -p switchback-tests --bin soak`. It ends with one JSON line of its figures. Deaths are read from the
//! simulated backends' own event logs, answers from what the client got. Exit code 1 if the promise is not kept: nobody
//! dies of known limits, each of the two cliffs kills at most once before it is learned, none after a restart, and all is
//! answered.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Parser;
use http::uri::Authority;
use serde_json::{Value, json};
use switchback::{Config, Connect, Connecting, Io, Service};
use switchback_rig::{Clock, EventKind, Rig, Spec, text_of_tokens};
use switchback_tests::strict::ask;

/// Plays the community's soak on simulated machines.
#[derive(Debug, Parser)]
struct Options {
    /// Decides what stands in the prompts.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const SESSIONS: u64 = 5;
const TURNS: u64 = 5;
/// Tokens that each turn brings: 25,000 at the end.
const TURN: usize = 4_950;
const NEEDLES: [usize; 2] = [60_000, 90_000];

/// Cliffs of the single card: 2a (one prompt) and 2b (a conversation).
const CLIFFS: usize = 2;

/// What one run came to.
#[derive(Debug, Default)]
struct Run {
    deaths: usize,
    asked: usize,
    answered: usize,
}

// Time is paused: it moves on when all that can happen now has happened.
#[tokio::main(flavor = "current_thread", start_paused = true)]
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the report is what this program is for")]
async fn main() -> ExitCode {
    let runs = match play(&Options::parse()).await {
        Ok(runs) => runs,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    println!("{:34} {:>7} {:>9}", "", "deaths", "answered");
    for (name, run) in &runs {
        println!("{name:34} {:>7} {:>5} of {}", run.deaths, run.answered, run.asked);
    }
    let line = runs.iter().map(|(name, run)| {
        let figures = json!({ "deaths": run.deaths, "asked": run.asked, "answered": run.answered });
        ((*name).to_owned(), figures)
    });
    println!("{}", Value::Object(line.collect()));
    let most = [usize::MAX, 0, CLIFFS, 0];
    let kept =
        runs.iter().zip(most).skip(1).all(|((_, run), most)| run.deaths <= most && run.answered == run.asked);
    if kept && runs[0].1.deaths > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn play(options: &Options) -> Result<Vec<(&'static str, Run)>> {
    let state = State::new();
    let kept = format!("[cliffs]\nfile = {:?}\n", state.0);
    let known = "limit = { single = 50_000, accumulated = 15_000 }\n";
    let mut runs = Vec::new();
    runs.push(("without the proxy", Machines::start()?.soak(None, options.seed).await?));
    for (name, limit, cliffs, seed) in [
        ("with known limits", known, "", 2),
        ("with none, learning", "", kept.as_str(), 3),
        ("with none, after a restart", "", kept.as_str(), 4),
    ] {
        let machines = Machines::start()?;
        let config = format!(
            "[[backend]]\nname = \"single\"\nurl = \"http://single\"\n{limit}\
             [[backend]]\nname = \"llama\"\nurl = \"http://llama\"\n\
             [[model]]\nname = \"m\"\nbackends = [\"single\", \"llama\"]\n{cliffs}"
        );
        let config = Config::parse(&config, Path::new("/"))?;
        let proxy = Service::new(config, Arc::new(Dial(machines.0.clone())));
        runs.push((name, machines.soak(Some(&proxy), options.seed * 10 + seed).await?));
    }
    Ok(runs)
}

/// One 24 GB card under vLLM with both cliffs, and another under llama.cpp with none below 183,000 tokens.
struct Machines(Arc<[Rig; 2]>);

/// The proxy's way to them.
#[derive(Debug)]
struct Dial(Arc<[Rig; 2]>);

impl Connect for Dial {
    fn connect(&self, to: &Authority) -> Connecting {
        let (rigs, at) = (self.0.clone(), usize::from(to.host() == "llama"));
        Box::pin(async move { Ok(Box::new(rigs[at].connect().await?) as Box<dyn Io>) })
    }
}

impl Machines {
    fn start() -> Result<Self> {
        let clock = Clock::real();
        let start = |preset| -> Result<Rig> {
            let mut spec = Spec::preset(preset)?;
            "m".clone_into(&mut spec.model);
            spec.faults.crashes_per_1k = 0.0;
            Ok(Rig::start(spec, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), clock)?)
        };
        Ok(Self(Arc::new([start("vllm/long-text")?, start("llamacpp/default")?])))
    }

    /// The sessions one after the other, then the needles: through the proxy, or straight to the single card. A session
    /// ends with its first failure; the next one waits until the card serves again.
    async fn soak(&self, proxy: Option<&Service>, seed: u64) -> Result<Run> {
        let mut run = Run { asked: (SESSIONS * TURNS) as usize + NEEDLES.len(), ..Run::default() };
        for session in 0..SESSIONS {
            let mut messages = Vec::new();
            for turn in 0..TURNS {
                let text = text_of_tokens(TURN, (seed * 100 + session) * 10 + turn);
                messages.push(json!({ "role": "user", "content": text }));
                let Some(answer) = self.ask(proxy, &messages).await? else { break };
                messages.push(json!({ "role": "assistant", "content": answer }));
                run.answered += 1;
            }
        }
        for tokens in NEEDLES {
            let text = text_of_tokens(tokens, seed * 1000 + tokens as u64);
            let answer = self.ask(proxy, &[json!({ "role": "user", "content": text })]).await?;
            run.answered += usize::from(answer.is_some());
        }
        run.deaths = self.0.iter().map(deaths).sum();
        Ok(run)
    }

    async fn ask(&self, proxy: Option<&Service>, messages: &[Value]) -> Result<Option<String>> {
        let tools = json!([{ "type": "function", "function": { "name": "read_file", "parameters": {} } }]);
        let body =
            json!({ "model": "m", "stream": true, "max_tokens": 40, "messages": messages, "tools": tools });
        let to = match proxy {
            Some(proxy) => {
                let (near, far) = tokio::io::duplex(64 << 10);
                tokio::spawn(proxy.connection(far));
                near
            }
            None => {
                let single = &self.0[0];
                let since =
                    single.events().into_iter().rfind(|event| matches!(event.kind, EventKind::Died { .. }));
                if let Some(died) = since {
                    single.event_since(died.number, |event| event.kind == EventKind::Ready).await;
                }
                single.connect().await?
            }
        };
        let got = ask(to, &body.to_string(), &Clock::real()).await;
        Ok(got.is_whole().then_some(got.content))
    }
}

fn deaths(rig: &Rig) -> usize {
    rig.events().iter().filter(|event| matches!(event.kind, EventKind::Died { .. })).count()
}

/// A file for what is learned, which goes with the program.
struct State(PathBuf);

impl State {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("switchback-soak-{}.json", std::process::id())))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // What cannot be removed stays in the temporary folder.
        let _ = std::fs::remove_file(&self.0);
    }
}
