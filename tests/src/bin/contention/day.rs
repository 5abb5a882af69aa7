//! A mixed day: agents at work, chats, titles that nobody waits for. What gating costs of the work that gets done.
//!
//! Sessions are made by seed from the recorded requests of agent clients (`tests/corpus/clients`): their first turns as they
//! were sent, then turns that grow by tool results. Clients think between turns and wait for their answers, as in life, so
//! that what is held up shows as a longer day.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};

use crate::client::{Heard, ask, chat, prompt, user};
use crate::figures::{Report, percentile, s};
use crate::stage::{Machine, Stage};

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/clients");

const DUAL: (&str, &str) = ("dual", "vllm/dual");
const LLAMA: (&str, &str) = ("llama", "llamacpp/default");

pub(crate) async fn run(seed: u64) -> Result<Report> {
    let mut report = Report::new(
        "A mixed day, all at once: how much is done, and what chats feel",
        &[
            "machines",
            "gate",
            "requests",
            "tokens",
            "day",
            "tokens/s",
            "chat first p95",
            "chat gap p95",
            "agent first p95",
        ],
    );
    let day = trace(seed)?;
    for (key, machines) in [("dual", &[DUAL][..]), ("both", &[DUAL, LLAMA])] {
        let mut rates = Vec::new();
        for gate in [false, true] {
            let played = play(&day, machines, gate).await?;
            let tokens: u64 = played.all().map(|heard| heard.prompt_tokens + heard.completion_tokens).sum();
            let rate = tokens as f64 / played.took;
            let p95_first = |heard: &[Heard]| {
                percentile(&heard.iter().map(|heard| heard.first).collect::<Vec<_>>(), 0.95)
            };
            let gaps: Vec<f64> = played.chats.iter().flat_map(|heard| heard.gaps.clone()).collect();
            let name = if gate { "on" } else { "off" };
            let names: Vec<&str> = machines.iter().map(|(name, _)| *name).collect();
            report.row([
                names.join(" + "),
                name.to_owned(),
                played.all().count().to_string(),
                tokens.to_string(),
                s(played.took),
                format!("{rate:.0}"),
                s(p95_first(&played.chats)),
                format!("{:.3}", percentile(&gaps, 0.95)),
                s(p95_first(&played.agents)),
            ]);
            for (figure, value) in [
                ("tokens_per_second", rate),
                ("chat_gap_p95", percentile(&gaps, 0.95)),
                ("chat_first_p95", p95_first(&played.chats)),
                ("agent_first_p95", p95_first(&played.agents)),
                ("refused", played.refused as f64),
            ] {
                report.figure(format!("{key}_{name}_{figure}"), value);
            }
            rates.push(rate);
        }
        report.figure(format!("{key}_throughput_lost"), 1.0 - rates[1] / rates[0]);
    }
    report.note("off: the same proxy with [admission] enabled = false. Tokens: prompts and answers, as the machines counted them. queue_timeout is an hour here, so that all work is done in both.");
    Ok(report)
}

/// One session of the day.
#[derive(Clone, Debug)]
struct Session {
    begins: f64,
    kind: Kind,
    turns: Vec<Turn>,
}

#[derive(Clone, Debug)]
enum Kind {
    Chat,
    /// Its first request, as recorded.
    Agent(Value),
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    /// Tokens that it brings.
    brings: usize,
    answer: u64,
    /// Seconds before it.
    thinks: f64,
}

/// A small generator, so that a seed means the same day for ever.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.next()
    }

    /// Mostly small, sometimes large: even on a scale of logarithms.
    fn skewed(&mut self, least: f64, most: f64) -> f64 {
        (self.between(least.ln(), most.ln())).exp()
    }
}

fn trace(seed: u64) -> Result<Vec<Session>> {
    // All arrive within a quarter of an hour, which the machines cannot keep up with.
    const ARRIVE: f64 = 900.0;
    let firsts = recorded()?;
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1);
    let mut day = Vec::new();
    for nth in 0..16 {
        let first = firsts[nth % firsts.len()].clone();
        let turns = (0..dice.between(5.0, 16.0) as usize).map(|_| Turn {
            brings: dice.skewed(150.0, 9000.0) as usize,
            answer: dice.skewed(40.0, 600.0) as u64,
            thinks: dice.skewed(1.0, 20.0),
        });
        let turns = turns.collect();
        day.push(Session { begins: dice.between(0.0, ARRIVE), kind: Kind::Agent(first), turns });
    }
    for _ in 0..24 {
        let turns = (0..dice.between(2.0, 8.0) as usize).map(|_| Turn {
            brings: dice.skewed(30.0, 1500.0) as usize,
            answer: dice.skewed(150.0, 1200.0) as u64,
            thinks: dice.skewed(5.0, 60.0),
        });
        let turns = turns.collect();
        day.push(Session { begins: dice.between(0.0, ARRIVE), kind: Kind::Chat, turns });
    }
    Ok(day)
}

/// The first request with tools of each recorded chat client.
fn recorded() -> Result<Vec<Value>> {
    let mut files: Vec<_> = std::fs::read_dir(RECORDED)?.collect::<Result<_, _>>()?;
    files.sort_by_key(std::fs::DirEntry::path);
    let mut firsts = Vec::new();
    for file in files {
        let name = file.file_name();
        let name = name.to_string_lossy();
        if !name.ends_with(".json") || name.matches('.').count() > 1 {
            continue;
        }
        let recording: Value = serde_json::from_str(&std::fs::read_to_string(file.path())?)?;
        let requests = recording["requests"].as_array().context("no requests")?;
        let first = requests
            .iter()
            .find(|request| request["path"] == "/v1/chat/completions" && request["body"]["tools"].is_array());
        firsts.extend(first.map(|request| request["body"].clone()));
    }
    Ok(firsts)
}

#[derive(Default)]
struct Played {
    chats: Vec<Heard>,
    agents: Vec<Heard>,
    refused: usize,
    took: f64,
}

impl Played {
    fn all(&self) -> impl Iterator<Item = &Heard> {
        self.chats.iter().chain(&self.agents)
    }
}

async fn play(day: &[Session], machines: &[(&'static str, &str)], gate: bool) -> Result<Played> {
    let machines = machines.iter().map(|(name, slug)| Machine::preset(name, slug));
    let stage =
        Rc::new(Stage::proxied(machines.collect::<Result<_>>()?, gate, "queue_timeout = \"1h\"\n").await?);
    let local = LocalSet::new();
    let began = Instant::now();
    let sessions: Vec<_> = day
        .iter()
        .cloned()
        .enumerate()
        .map(|(nth, session)| local.spawn_local(live(stage.clone(), nth as u64, session)))
        .collect();
    local
        .run_until(async {
            let mut played = Played::default();
            for (session, kind) in sessions.into_iter().zip(day.iter().map(|session| &session.kind)) {
                for heard in session.await?? {
                    match (heard.status, kind) {
                        (200, Kind::Chat) => played.chats.push(heard),
                        (200, Kind::Agent(_)) => played.agents.push(heard),
                        _ => played.refused += 1,
                    }
                }
            }
            played.took = began.elapsed().as_secs_f64();
            Ok(played)
        })
        .await
}

async fn live(stage: Rc<Stage>, nth: u64, session: Session) -> Result<Vec<Heard>> {
    sleep(Duration::from_secs_f64(session.begins)).await;
    let name = format!("session-{nth}");
    let mut messages = match &session.kind {
        Kind::Chat => Vec::new(),
        Kind::Agent(first) => first["messages"].as_array().cloned().unwrap_or_default(),
    };
    let mut all = Vec::new();
    for (turn, now) in session.turns.iter().enumerate() {
        sleep(Duration::from_secs_f64(now.thinks)).await;
        let brings = prompt(now.brings, nth * 1000 + turn as u64);
        if turn > 0 || matches!(session.kind, Kind::Chat) {
            messages.push(brings);
        }
        let mut body = chat(messages.clone(), now.answer);
        if let Kind::Agent(first) = &session.kind {
            body["tools"] = first["tools"].clone();
        } else if turn == 0 {
            // A title, which nobody waits for.
            let task = user("### Task:\nGenerate a concise title with an emoji for this chat.");
            let mut title = chat(vec![task], 20);
            title["stream"] = false.into();
            let _ = title.as_object_mut().map(|title| title.remove("stream_options"));
            let (stage, name) = (stage.clone(), name.clone());
            tokio::task::spawn_local(async move { ask(&stage, None, &name, title, None).await });
        }
        let heard = ask(&stage, None, &name, body, None).await?;
        messages.push(json!({ "role": "assistant", "content": heard.text }));
        all.push(heard);
    }
    Ok(all)
}
