//! Six clients of a machine that runs one request at a time (`vllm/minimal`), some of whom give up.
//!
//! Who waits how long, in which order they go, and how soon a place is taken again after its holder has hung up.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use switchback_rig::{EventKind, Phase};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio::time::sleep;

use crate::client::{ask, chat, prompt};
use crate::figures::{Report, largest, percentile, s};
use crate::stage::{Machine, Stage};

const CLIENTS: u64 = 6;
const REQUESTS: u64 = 5;

pub(crate) async fn run(seed: u64) -> Result<Report> {
    let stage = Rc::new(Stage::proxied(vec![Machine::preset("minimal", "vllm/minimal")?], true, "").await?);
    let local = LocalSet::new();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let stage = stage.clone();
            local.spawn_local(async move {
                sleep(Duration::from_millis(100 * client)).await;
                let (mut waits, mut given_up) = (Vec::new(), 0_usize);
                for request in 0..REQUESTS {
                    let name = format!("client-{client}");
                    let messages = vec![prompt(1500, seed * 1000 + client * 10 + request)];
                    let (begun, begins) = oneshot::channel();
                    let asking = ask(&stage, None, &name, chat(messages, 120), Some(begun));
                    // The third client gives up while it waits, the fifth while it reads.
                    let given_up_after = async {
                        match (client, request) {
                            (2, 1) => sleep(Duration::from_secs(3)).await,
                            (4, 2) => {
                                let _ = begins.await;
                                sleep(Duration::from_millis(500)).await;
                            }
                            _ => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        heard = asking => waits.push(heard?.first),
                        () = given_up_after => given_up += 1,
                    }
                }
                anyhow::Ok((waits, given_up))
            })
        })
        .collect();
    let mut all = Vec::new();
    let mut report = Report::new(
        "Six clients of a machine that runs one request at a time: when each hears its first word (seconds)",
        &["client", "answers", "given up", "p50", "longest"],
    );
    let mut medians = Vec::new();
    let results = local
        .run_until(async {
            let mut results = Vec::new();
            for client in clients {
                results.push(client.await??);
            }
            anyhow::Ok(results)
        })
        .await?;
    for (nth, (waits, given_up)) in results.into_iter().enumerate() {
        medians.push(percentile(&waits, 0.5));
        report.row([
            (nth + 1).to_string(),
            waits.len().to_string(),
            given_up.to_string(),
            s(percentile(&waits, 0.5)),
            s(largest(&waits)),
        ]);
        all.extend(waits);
    }
    let events = stage.rig("minimal")?.events();
    let queued = events.iter().filter(|event| matches!(event.kind, EventKind::Cut { phase: Phase::Queued }));
    let (queued, cut) =
        (queued.count(), events.iter().find(|event| matches!(event.kind, EventKind::Cut { .. })));
    let reused = cut.and_then(|cut| {
        let next =
            events.iter().find(|event| event.at >= cut.at && event.kind == EventKind::PrefillStarted)?;
        Some(next.at - cut.at)
    });
    let most = running_at_once(&events);
    report.note(format!(
        "The machine never had more than {most} request at a time, and {queued} were given up inside it while queued. A place \
         whose holder hung up was taken again after {:.3} s.",
        reused.context("nobody hung up in a place")?
    ));
    report.figure("longest_wait", largest(&all));
    report.figure("bound", 180.0);
    report.figure(
        "median_largest_by_smallest",
        largest(&medians) / medians.iter().copied().fold(f64::MAX, f64::min),
    );
    report.figure("place_taken_again_after", reused.unwrap_or(f64::NAN));
    report.figure("at_once", most as f64);
    Ok(report)
}

fn running_at_once(events: &[switchback_rig::Event]) -> usize {
    let (mut there, mut most) = (std::collections::BTreeSet::new(), 0);
    for event in events {
        match event.kind {
            EventKind::Arrived { .. } => there.insert(event.request),
            EventKind::Finished { .. } | EventKind::Cut { .. } | EventKind::Lost { .. } => {
                there.remove(&event.request)
            }
            _ => false,
        };
        most = most.max(there.len());
    }
    most
}
