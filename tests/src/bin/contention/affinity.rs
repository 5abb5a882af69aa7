//! Eight conversations of twenty turns, interleaved, on two machines of the same kind: how much of their prompts is computed.
//!
//! The proxy against round robin and against the least busy machine, which are played here, past the proxy. With a cache that
//! saves all that it holds (attention only), and with one that saves a half (`vllm/dual`, hybrid).

use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use switchback_rig::PrefixCache;
use tokio::task::LocalSet;
use tokio::time::sleep;

use crate::client::{ask, chat, prompt, with_tools};
use crate::figures::{Report, percentile, s};
use crate::stage::{Machine, Stage};

const CONVERSATIONS: u64 = 8;
const TURNS: u64 = 20;
const NAMES: [&str; 2] = ["one", "two"];

#[derive(Clone, Copy, PartialEq)]
enum How {
    RoundRobin,
    LeastBusy,
    Proxy,
    /// The same, of clients that do not name their conversations.
    Unnamed,
}

pub(crate) async fn run(seed: u64) -> Result<Report> {
    let mut report = Report::new(
        "Eight conversations of twenty turns on two machines: prompt tokens that were computed",
        &["cache", "how", "prompt tokens", "computed", "share", "first word p50", "p95"],
    );
    for (cache, reuse, block) in [("saves all", 1.0, 16), ("saves half", 0.5, 1600)] {
        for (name, key, how) in [
            ("round robin", "round_robin", How::RoundRobin),
            ("least busy", "least_busy", How::LeastBusy),
            ("switchback", "switchback", How::Proxy),
            ("switchback, no names", "unnamed", How::Unnamed),
        ] {
            let machine = |name| {
                let mut machine = Machine::preset(name, "vllm/dual")?;
                machine.spec.slots = 4;
                machine.spec.prefix_cache = Some(PrefixCache { block, reuse });
                machine.config += "slots = 4\n";
                anyhow::Ok(machine)
            };
            let machines = vec![machine(NAMES[0])?, machine(NAMES[1])?];
            let proxied = matches!(how, How::Proxy | How::Unnamed);
            let stage =
                if proxied { Stage::proxied(machines, true, "").await? } else { Stage::bare(machines)? };
            let stage = Rc::new(stage);
            let (total, firsts) = converse(&stage, how, seed).await?;
            let computed: usize = NAMES
                .iter()
                .map(|name| stage.rig(name).map(|rig| rig.load().prefilled))
                .sum::<Result<_>>()?;
            let share = computed as f64 / total as f64;
            report.row([
                cache.to_owned(),
                name.to_owned(),
                total.to_string(),
                computed.to_string(),
                format!("{:.1} %", share * 100.0),
                s(percentile(&firsts, 0.5)),
                s(percentile(&firsts, 0.95)),
            ]);
            report.figure(format!("{}_{key}", cache.replace(' ', "_")), share);
        }
    }
    Ok(report)
}

async fn converse(stage: &Rc<Stage>, how: How, seed: u64) -> Result<(u64, Vec<f64>)> {
    let local = LocalSet::new();
    let next = Rc::new(std::cell::Cell::new(0_usize));
    let conversations: Vec<_> = (0..CONVERSATIONS)
        .map(|nth| {
            let (stage, next) = (stage.clone(), next.clone());
            local.spawn_local(async move {
                let (mut total, mut firsts) = (0, Vec::new());
                let mut messages = vec![prompt(4000, seed * 100 + nth)];
                for turn in 0..TURNS {
                    sleep(Duration::from_secs(1 + (nth * 7 + turn * 3) % 11)).await;
                    let past = match how {
                        How::RoundRobin => Some(NAMES[next.replace(next.get() + 1) % 2]),
                        How::LeastBusy => NAMES.into_iter().min_by_key(|name| {
                            stage.rig(name).map_or(0, |rig| rig.load().running + rig.load().waiting)
                        }),
                        How::Proxy | How::Unnamed => None,
                    };
                    let name =
                        if how == How::Unnamed { String::new() } else { format!("conversation-{nth}") };
                    let body = with_tools(chat(messages.clone(), 120));
                    let heard = ask(&stage, past, &name, body, None).await?;
                    anyhow::ensure!(heard.status == 200, "status {}", heard.status);
                    total += heard.prompt_tokens;
                    firsts.push(heard.first);
                    messages.push(json!({ "role": "assistant", "content": heard.text }));
                    messages.push(prompt(600, seed * 10_000 + nth * 100 + turn));
                }
                anyhow::Ok((total, firsts))
            })
        })
        .collect();
    local
        .run_until(async {
            let (mut total, mut firsts) = (0, Vec::new());
            for conversation in conversations {
                let (tokens, waits) = conversation.await??;
                total += tokens;
                firsts.extend(waits);
            }
            Ok((total, firsts))
        })
        .await
}
