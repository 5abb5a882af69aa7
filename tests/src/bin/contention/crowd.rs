//! Eight agents with prompts of 16,000 tokens keep a two-slot machine busy; a human asks short questions in between.
//!
//! Without the gate the human stands in the engine's own queue behind all agents; with it the human is next, and with classes
//! taken away (everybody is an agent) one of nine.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};

use crate::client::{ask, chat, prompt, user, with_tools};
use crate::figures::{Report, largest, percentile, s};
use crate::stage::{Machine, Stage};

const AGENTS: u64 = 8;
const TURNS: usize = 5;

pub(crate) async fn run(seed: u64) -> Result<Report> {
    let mut report = Report::new(
        "Eight agents (16K prompts, five turns each) and one human on vllm/dual: when the human hears the first word (seconds)",
        &["gate", "questions", "p50", "p95", "longest", "agents' turns", "agents done after"],
    );
    let everybody = "[[client]]\nname = \"everybody\"\nclass = \"agent\"\n";
    for (name, key, gate, more) in
        [("off", "off", false, ""), ("on, one class", "one_class", true, everybody), ("on", "on", true, "")]
    {
        let Played { human, turns, done } = play(seed, gate, more).await?;
        report.row([
            name.to_owned(),
            human.len().to_string(),
            s(percentile(&human, 0.5)),
            s(percentile(&human, 0.95)),
            s(largest(&human)),
            turns.to_string(),
            s(done),
        ]);
        report.figure(format!("{key}_human_p95"), percentile(&human, 0.95));
        report.figure(format!("{key}_human_p50"), percentile(&human, 0.5));
        report.figure(format!("{key}_agents_done"), done);
    }
    Ok(report)
}

struct Played {
    human: Vec<f64>,
    turns: usize,
    /// When the last agent had its last answer.
    done: f64,
}

async fn play(seed: u64, gate: bool, more: &str) -> Result<Played> {
    // Agents wait longer than they would in life, so that all turns are compared.
    let more = format!("queue_timeout = \"1h\"\n{more}");
    let stage = Rc::new(Stage::proxied(vec![Machine::preset("dual", "vllm/dual")?], gate, &more).await?);
    let local = LocalSet::new();
    let working = Rc::new(Cell::new(AGENTS));
    let began = Instant::now();
    let agents: Vec<_> = (0..AGENTS)
        .map(|agent| {
            let (stage, working) = (stage.clone(), working.clone());
            local.spawn_local(async move {
                sleep(Duration::from_secs(agent)).await;
                let mut messages = vec![prompt(16_000, seed * 1000 + agent)];
                for turn in 0..TURNS as u64 {
                    let name = format!("agent-{agent}");
                    let heard =
                        ask(&stage, None, &name, with_tools(chat(messages.clone(), 200)), None).await?;
                    messages.push(serde_json::json!({ "role": "assistant", "content": heard.text }));
                    messages.push(prompt(800, seed * 1000 + 100 * turn + agent));
                    sleep(Duration::from_secs(2)).await;
                }
                working.set(working.get() - 1);
                anyhow::Ok(began.elapsed().as_secs_f64())
            })
        })
        .collect();
    let human = local.spawn_local(async move {
        let mut firsts = Vec::new();
        sleep(Duration::from_secs(20)).await;
        // As long as all agents are at work.
        for question in 0.. {
            if working.get() < AGENTS {
                break;
            }
            let text = format!("{question}: {}", switchback_rig::text_of_tokens(300, seed + question));
            let heard =
                ask(&stage, None, &format!("human-{question}"), chat(vec![user(&text)], 150), None).await?;
            firsts.push(heard.first);
            sleep(Duration::from_secs(10)).await;
        }
        anyhow::Ok(firsts)
    });
    local
        .run_until(async {
            let mut done = 0.0_f64;
            for agent in agents {
                done = done.max(agent.await??);
            }
            Ok(Played { human: human.await??, turns: AGENTS as usize * TURNS, done })
        })
        .await
}
