//! Who kills: every few simulated seconds one backend, in a stage of some answer that its event log shows.
//!
//! A backend that falls silent is killed, as an operator would, after a while. It must never look at the proxy.

use std::time::Duration;

use switchback_rig::{EventKind, Rig};

use crate::world::{Dice, World};

/// Simulated seconds that a silent engine is left alone.
const SILENT: f64 = 90.0;

/// The stages in which an engine dies.
const STAGES: [&str; 6] = ["before the head", "prefill", "role chunk", "mid-text", "mid-call", SILENCE];

/// Simulated seconds that a clock may be short of what was slept for.
const GRAIN: f64 = 0.001;

const SILENCE: &str = "silent";

/// Kills for ever.
pub(crate) async fn kill(world: &World, seed: u64, every: f64) {
    let mut dice = Dice::new(seed ^ 0xdead);
    let mut at = every;
    // Who is silent, and until when that is borne.
    let mut silent: Vec<(f64, &Rig)> = Vec::new();
    loop {
        world.clock.sleep_until(silent.iter().map(|(until, _)| *until).fold(at, f64::min)).await;
        let now = world.clock.now() + GRAIN;
        for (_, rig) in silent.extract_if(.., |(until, _)| *until <= now) {
            rig.kill();
            world.killed(SILENCE);
        }
        if now < at {
            continue;
        }
        at = world.clock.now().max(at) + every;
        let rig = &world.rigs[dice.below(world.rigs.len())];
        let stage = STAGES[dice.below(STAGES.len())];
        if !rig.is_ready() || silent.iter().any(|(_, other)| std::ptr::eq(*other, rig)) {
            continue;
        }
        if stage == SILENCE {
            rig.silence();
            silent.push((now + SILENT, rig));
            continue;
        }
        // A backend that gets no such request meanwhile is left alone.
        let waits = Duration::from_secs_f64(every * 2.0);
        if tokio::time::timeout(waits, strike(world, rig, stage)).await.is_ok() {
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
        _ => {
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
    }
    rig.kill();
}
