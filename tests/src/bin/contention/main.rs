//! `contention SCENARIO`: what requests do to each other on one machine, with the proxy's gate and without it.
//!
//! Simulated machines with published figures, the proxy and its clients in one process, on paused time over connections in
//! memory: hours pass in seconds, and two runs give the same figures. Each scenario prints a table and ends with one line of
//! JSON. Both halves of every comparison are measured in the same run; nothing is printed that was not.

mod affinity;
mod client;
mod crowd;
mod day;
mod figures;
mod queue;
mod stage;
mod stream;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};

/// What requests do to each other on one machine, with the proxy's gate and without it.
#[derive(Debug, Parser)]
struct Options {
    /// Which one
    scenario: Scenario,
    /// What is random is a function of this
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scenario {
    /// A live stream beside a prefill of 60,000 and of 90,000 tokens
    Stream,
    /// Eight agents and one human
    Crowd,
    /// Six clients of a machine that runs one request at a time
    Queue,
    /// What gating costs of a mixed day's throughput
    Day,
    /// Prompt tokens computed again, of eight conversations on two machines
    Affinity,
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the report is what this program is for")]
fn main() -> ExitCode {
    let Options { scenario, seed } = Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let report = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(scenario, seed)));
    match report {
        Ok(report) => {
            print!("{}", report.text());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(scenario: Scenario, seed: u64) -> Result<figures::Report> {
    match scenario {
        Scenario::Stream => stream::run().await,
        Scenario::Crowd => crowd::run(seed).await,
        Scenario::Queue => queue::run(seed).await,
        Scenario::Day => day::run(seed).await,
        Scenario::Affinity => affinity::run(seed).await,
    }
}
