//! Who kills: every few simulated seconds one backend, in a stage of some answer that its event log shows.
//!
//! A backend that falls silent is killed, as an operator would, after a while. It must never look at the proxy.

use std::time::Duration;

use switchback_rig::{EventKind, Rig};

use crate::world::{Dice, World};

/// Simulated seconds that a silent engine is left alone.
const SILENT: f64 = 90.0;

/// The stages in which an engine dies.
const STAGES: [&str; 6] = ["before the head", "prefill", "role chunk", "mid-text", "mid-call", "silent"];

/// Kills for ever.
pub(crate) async fn kill(world: &World, seed: u64, every: f64) {
    let mut dice = Dice::new(seed ^ 0xdead);
    let mut at = every;
    loop {
        world.clock.sleep_until(at).await;
        at = world.clock.now().max(at) + every;
        let rig = &world.rigs[dice.below(world.rigs.len())];
        let stage = STAGES[dice.below(STAGES.len())];
        // A backend that gets no such request meanwhile is left alone.
        let waits = Duration::from_secs_f64(every * 2.0);
        if rig.is_ready() && tokio::time::timeout(waits, strike(world, rig, stage)).await.is_ok() {
            world.killed(stage);
        }
    }
}

async fn strike(world: &World, rig: &Rig, stage: &str) {
    let since = rig.events().last().map_or(0, |event| event.number + 1);
    match stage {
        "before the head" => {
            rig.event_since(since, |event| matches!(event.kind, EventKind::Arrived { .. })).await;
        }
        "prefill" => {
            rig.event_since(since, |event| event.kind == EventKind::PrefillStarted).await;
        }
        "role chunk" => {
            rig.event_since(since, |event| event.kind == EventKind::FirstToken).await;
        }
        "mid-text" => {
            rig.event_since(since, |event| event.kind == EventKind::FirstToken).await;
            world.clock.sleep(0.4).await;
        }
        "mid-call" => {
            let calls = |tokens: usize| {
                world.prompts.iter().any(|prompt| {
                    prompt.tokens == tokens && prompt.right.finish.as_deref() == Some("tool_calls")
                })
            };
            let arrived = rig
                .event_since(since, |event| {
                    matches!(event.kind, EventKind::Arrived { prompt_tokens, .. } if calls(prompt_tokens))
                })
                .await;
            rig.event_since(arrived.number, |event| {
                event.request == arrived.request && event.kind == EventKind::FirstToken
            })
            .await;
            world.clock.sleep(0.1).await;
        }
        _ => {
            rig.silence();
            let killed = world.clock.sleep(SILENT);
            killed.await;
        }
    }
    rig.kill();
}
