//! `chaos`: many requests of mixed lengths through the proxy over three simulated backends, one of which dies every few
//! seconds, in every stage of an answer.
//!
//! `cargo run --release -p switchback-tests --bin chaos -- --requests 10000 --seed 1 --kill-every 20`. It ends with one
//! JSON line of its figures. Who judges reads the simulated backends' own event logs and what the clients got, never the
//! proxy's records. Exit code 1 if an answer was doubled, or a cut one looked finished.

mod judge;
mod killer;
mod world;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use clap::Parser;
use switchback_tests::strict;
use tokio::task::JoinSet;

use crate::judge::{Figures, judge};
use crate::world::World;

/// Kills simulated backends under load, and judges what the clients got.
#[derive(Debug, Parser)]
struct Options {
    /// Requests in all.
    #[arg(long, default_value_t = 10_000)]
    requests: usize,
    /// Decides lengths, order, and who dies when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Simulated seconds between two deaths, half a second at the least.
    #[arg(long, default_value_t = 20.0, value_parser = kill_every)]
    kill_every: f64,
    /// Requests at a time.
    #[arg(long, default_value_t = 12)]
    at_once: usize,
    /// Tokens of the longest prompt. Above 20,000 a prompt that was being read when an engine died is held guilty of it
    /// by the proxy, and no longer an innocent one.
    #[arg(long, default_value_t = 18_000)]
    longest: usize,
}

/// An engine needs 20 s to start: with deaths that come much faster nobody is ever there, and a run has no end.
const LEAST_KILL_EVERY: f64 = 0.5;

/// Requests between two words on how far it is.
const TELL_EVERY: usize = 500;

fn kill_every(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if !(LEAST_KILL_EVERY..=1e9).contains(&seconds) {
        return Err(format!("it is {seconds}; it must be from {LEAST_KILL_EVERY} to 1e9 simulated seconds"));
    }
    Ok(seconds)
}

// Time is paused: it moves on when all that can happen now has happened, so minutes of waiting cost nothing, and no
// figure depends on the machine that this runs on.
#[tokio::main(flavor = "current_thread", start_paused = true)]
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the report is what this program is for")]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(figures) => {
            println!("{}", figures.table());
            println!("{}", figures.json());
            if figures.duplicated + figures.clean_finish_on_cut == 0 {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "a run takes minutes, and nobody should wait before silence")]
async fn run(options: Options) -> Result<Figures> {
    eprintln!("asking the reference for its answers");
    let world = Arc::new(World::start(&options).await?);
    let killing = {
        let world = world.clone();
        let (seed, every) = (options.seed, options.kill_every);
        tokio::spawn(async move { killer::kill(&world, seed, every).await })
    };
    let next = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..options.at_once.max(1) {
        let (world, next, requests) = (world.clone(), next.clone(), options.requests);
        clients.spawn(async move {
            let mut got = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= requests {
                    return got;
                }
                if number > 0 && number % TELL_EVERY == 0 {
                    let (seconds, kills) = (world.clock.now(), world.kills().values().sum::<usize>());
                    eprintln!(
                        "{number} of {requests} requests, {seconds:.0} simulated seconds, {kills} kills"
                    );
                }
                let prompt = world.prompt_of(number);
                let transcript =
                    strict::ask(world.connect(), &world.prompts[prompt].body, &world.clock).await;
                got.push((prompt, transcript));
            }
        });
    }
    let mut got = Vec::new();
    while let Some(some) = clients.join_next().await {
        got.extend(some?);
    }
    killing.abort();
    let kills = world.kills();
    Ok(judge(&world, &got, kills))
}
