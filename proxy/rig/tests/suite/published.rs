//! The published points, measured through the server on the virtual clock, and printed as a table:
//! `cargo test -p switchback-rig published -- --nocapture`.

use serde_json::json;
use switchback_rig::{EventKind, Rig, Spec, text_of_tokens};

use crate::client::*;

/// What is measured, the published figure, its tolerance, and what came out.
struct Point {
    what: String,
    published: f64,
    tolerance: f64,
    measured: f64,
}

/// A chat prompt of exactly so many tokens.
fn prompt(tokens: usize, output: usize) -> serde_json::Value {
    let more = json!({"stream": true, "max_tokens": output, "ignore_eos": true});
    chat(&text_of_tokens(tokens - 7, 1), more)
}

async fn first_token(rig: &Rig, request: u64) -> f64 {
    happens(rig, request, |kind| *kind == EventKind::FirstToken).await.at
}

async fn arrived(rig: &Rig, request: u64) -> f64 {
    happens(rig, request, |kind| matches!(kind, EventKind::Arrived { .. })).await.at
}

/// Seconds to the first token of a prompt on an idle machine.
async fn prefill(slug: &str, tokens: usize) -> f64 {
    let rig = start(Spec::preset(slug).unwrap());
    let _answer = post(&rig, CHAT, &prompt(tokens, 1)).await;
    first_token(&rig, 1).await - arrived(&rig, 1).await
}

fn dual(threshold: usize) -> Spec {
    Spec { long_prefill_threshold: threshold, ..Spec::preset("vllm/dual").unwrap() }
}

/// The mean wait of a short newcomer beside a 60K prefill. It comes within the first six seconds, as it does when
/// somebody tries it; at the end of the prefill it waits a fifth longer.
async fn newcomer(threshold: usize) -> f64 {
    let moments = 16;
    let mut sum = 0.0;
    for moment in 0..moments {
        let rig = start(dual(threshold));
        let _long = post(&rig, CHAT, &prompt(60_000, 1)).await;
        let started = happens(&rig, 1, |kind| *kind == EventKind::PrefillStarted).await.at;
        let at = started + 0.2 + f64::from(moment) * 0.37;
        tokio::time::advance(std::time::Duration::from_secs_f64(at - arrived(&rig, 1).await)).await;
        let _short = post(&rig, CHAT, &prompt(40, 1)).await;
        sum += first_token(&rig, 2).await - arrived(&rig, 2).await;
    }
    sum / f64::from(moments)
}

/// Tokens per second of a live stream while a 60K prompt is read.
async fn live_decode(threshold: usize) -> f64 {
    let rig = start(dual(threshold));
    let mut stream = post(&rig, CHAT, &prompt(40, 4_000)).await;
    stream.event().await.unwrap();
    let _long = post(&rig, CHAT, &prompt(60_000, 1)).await;
    happens(&rig, 2, |kind| *kind == EventKind::PrefillStarted).await;
    let (from, before) = (arrived(&rig, 2).await, decoded(&rig));
    let until = first_token(&rig, 2).await;
    (decoded(&rig) - before) / (until - from)
}

/// Tokens that the first request has.
fn decoded(rig: &Rig) -> f64 {
    rig.load().decoded as f64
}

/// Tokens per second of each of so many streams, with so much context.
async fn decode(slug: &str, streams: usize, depth: usize) -> f64 {
    let rig = start(Spec { slots: streams, ..Spec::preset(slug).unwrap() });
    let mut answers = Vec::new();
    for _ in 0..streams {
        answers.push(post(&rig, CHAT, &prompt(depth, 1_200)).await);
    }
    for request in 1..=streams {
        first_token(&rig, request as u64).await;
    }
    let (from, before) = (rig.events().last().unwrap().at, decoded(&rig));
    let finished = rig.event(|event| matches!(event.kind, EventKind::Finished { .. })).await;
    (decoded(&rig) - before) / (finished.at - from) / streams as f64
}

const SEEDS: u64 = 4;

/// The share of seeds with which a prompt of so many tokens kills its engine.
async fn single_prompt_deaths(tokens: usize) -> f64 {
    let mut dead = 0.0;
    for seed in 0..SEEDS {
        let rig = start(Spec { seed, ..Spec::preset("vllm/long-text").unwrap() });
        post(&rig, CHAT, &prompt(tokens, 1)).await.text().await;
        dead += died(&rig);
    }
    dead / SEEDS as f64
}

/// The share of seeds with which a conversation that reaches 26,100 tokens in this turn dies in it.
async fn conversation_deaths(turns: usize) -> f64 {
    let mut dead = 0.0;
    for seed in 0..SEEDS {
        let rig = start(Spec { seed, ..Spec::preset("vllm/minimal").unwrap() });
        let mut messages = vec![json!({"role": "user", "content": "Begin."})];
        for turn in 1..=turns {
            if turn == turns {
                messages.push(json!({"role": "user", "content": text_of_tokens(26_100, seed)}));
            }
            let body = json!({"messages": messages, "max_tokens": 1, "stream": true});
            post(&rig, CHAT, &body).await.text().await;
            messages.push(json!({"role": "assistant", "content": "Yes."}));
        }
        dead += died(&rig);
    }
    dead / SEEDS as f64
}

fn died(rig: &Rig) -> f64 {
    let deaths = rig.events().iter().filter(|event| matches!(event.kind, EventKind::Died { .. })).count();
    deaths as f64
}

#[tokio::test(start_paused = true)]
async fn published_points_come_out_of_the_simulation() {
    let mut points = Vec::new();
    let mut add = |what: String, published: f64, tolerance: f64, measured: f64| {
        points.push(Point { what, published, tolerance, measured });
    };
    for (slug, prompts) in [
        ("vllm/dual", &[(10_000, 6.9), (90_000, 80.5), (237_000, 285.5)][..]),
        ("vllm/qwen38-27b-dual-max", &[(10_000, 8.6), (90_000, 95.5)]),
        ("vllm/qwen38-27b-dual-fast", &[(10_000, 5.6), (90_000, 67.8)]),
        ("vllm/qwen-27b-multi-fast", &[(10_000, 7.8), (90_000, 76.6)]),
        ("vllm/qwen-agentworld-35b-a3b-dual-awq-int4", &[(10_000, 1.95), (90_000, 23.8)]),
        ("vllm/nemotron-75b-dual-w4a16", &[(10_000, 3.4), (90_000, 53.6)]),
        ("llamacpp/default", &[(30_000, 30.0), (182_000, 245.0 * 182.0 / 183.0)]),
        ("llamacpp-club3090/deepseek-flash-dual-q8-moecache", &[(10_000, 31.0), (90_000, 344.0)]),
        ("vllm/single-agent-traffic", &[(1_200, 5.6), (21_800, 202.0), (60_000, 623.0)]),
    ] {
        for &(tokens, seconds) in prompts {
            add(format!("{slug}: first token of {tokens}, s"), seconds, 0.10, prefill(slug, tokens).await);
        }
    }
    for (threshold, seconds) in [(0, 14.8), (4_096, 5.5), (2_048, 2.6)] {
        let what = format!("vllm/dual: newcomer beside 60000, threshold {threshold}, s");
        add(what, seconds, 0.15, newcomer(threshold).await);
    }
    // published as 0.1 to 0.9
    add("vllm/dual: live decode, threshold 0, tokens/s".to_owned(), 0.5, 0.8, live_decode(0).await);

    let alone = decode("vllm/dual", 1, 100).await;
    add("vllm/dual: decode alone, tokens/s".to_owned(), 72.0, 0.06, alone);
    let deep = decode("vllm/dual", 1, 33_000).await / alone;
    add("vllm/dual: decode at 33K against short".to_owned(), 1.0, 0.06, deep);
    for (streams, share) in [(2, 0.59), (4, 0.25), (8, 0.078)] {
        let what = format!("vllm/dual: decode share of each of {streams} at 16K");
        add(what, share, 0.06, decode("vllm/dual", streams, 16_000).await / alone);
    }
    let slower = decode("vllm/long-text", 1, 35_600).await / decode("vllm/long-text", 1, 100).await;
    add("vllm/long-text: decode at 35.6K against short".to_owned(), 46.0 / 62.3, 0.06, slower);
    let moe = "vllm/qwen-agentworld-35b-a3b-dual-awq-int4";
    let shared = decode(moe, 16, 16_000).await / decode(moe, 1, 16_000).await;
    add("agentworld 35B: decode share of each of 16 at 16K".to_owned(), 0.085, 0.06, shared);

    for (tokens, share) in [(50_000, 0.0), (60_000, 1.0)] {
        let what = format!("vllm/long-text: deaths of a prompt of {tokens} (2a), share");
        add(what, share, 0.0, single_prompt_deaths(tokens).await);
    }
    for (turns, share) in [(3, 0.0), (4, 1.0)] {
        let what = format!("vllm/minimal: deaths at 26100 in turn {turns} (2b), share");
        add(what, share, 0.0, conversation_deaths(turns).await);
    }

    println!("{:70} {:>9} {:>9} {:>7}", "point", "published", "measured", "off");
    for Point { what, published, measured, .. } in &points {
        println!("{what:70} {published:9.3} {measured:9.3} {:+6.1}%", off(*published, *measured) * 100.0);
    }
    for Point { what, published, tolerance, measured } in &points {
        assert!(off(*published, *measured).abs() <= *tolerance, "{what}: {measured}, not {published}");
    }
}

/// By what share of the published figure the measured one is off.
fn off(published: f64, measured: f64) -> f64 {
    if published == 0.0 { measured } else { measured / published - 1.0 }
}
