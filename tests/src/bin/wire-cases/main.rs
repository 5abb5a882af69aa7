//! `wire-cases DIR...`: plays every wire case in these folders against the real binary.
//!
//! `cargo run --release -p switchback-tests --bin wire-cases -- tests/corpus/wire`. The binary is the one beside this
//! program, built first so that it is never stale. Exit code 0 if all cases pass, 1 otherwise.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, ensure};
use clap::Parser;
use switchback_tests::wire::proxy::Binary;
use switchback_tests::wire::report::{Report, expected, find, run_all, summary};

/// Plays wire cases against the real binary.
#[derive(Debug, Parser)]
struct Options {
    /// Only these cases, by number or name.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// How many cases at a time.
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// The binary to test; absent: the one beside this program, freshly built.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// A list of cases that may fail, by number; one that passes is an error.
    #[arg(long)]
    expected: Option<PathBuf>,
    /// Folders with cases.
    #[arg(required = true)]
    places: Vec<PathBuf>,
}

#[tokio::main]
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the report is what this program is for")]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(report) => {
            print!("{}", report.text);
            if report.good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<Report> {
    let entries = find(&options.places, &options.only)?;
    let expected = options.expected.as_deref().map(expected).transpose()?;
    let binary = match options.binary {
        Some(path) => Binary { path: std::path::absolute(path)? },
        None => Binary::built_beside_this()?,
    };
    ensure!(binary.path.is_file(), "there is no program {}", binary.path.display());
    let done = run_all(entries, Arc::new(binary), options.jobs).await;
    Ok(summary(&done, expected.as_ref()))
}
