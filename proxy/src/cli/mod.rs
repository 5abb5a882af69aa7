//! The command line. `serve` is what runs without a command.
//!
//! Results go to standard output, logs to standard error. Exit codes: 0 done, 1 failed, 2 wrong use, 64 a configuration that
//! makes no sense (before any port is opened).

mod check;
mod clients;
mod cliffs;
mod count;
mod demo;
mod doctor;
mod explain;
mod repair;
mod rig;
mod rules;
mod serve;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// An OpenAI-compatible routing proxy with tool-call repair for self-hosted backends.
#[derive(Debug, Parser)]
#[command(name = "switchback", version, about, long_about = None)]
struct Cli {
    /// Configuration file; absent: ./switchback.toml, then switchback/switchback.toml in the user's configuration folder
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the API (the default)
    Serve {
        /// Address and port, instead of the configured one
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<SocketAddr>,
    },
    /// What the configuration means: complaints, backends, and which prompt lengths go where
    Check,
    /// Where a request would go, and why, without sending it
    Explain(explain::ExplainArgs),
    /// How many tokens a request's prompt has, and how that is known
    Count(count::CountArgs),
    /// An answer as a model wrote it (standard input): the message that a client would get
    Repair(repair::RepairArgs),
    /// The clients that are recognised
    Clients,
    /// The rules by which requests are changed, each of which can be switched
    Rules,
    /// What backends were seen to die of: shown, exported, imported, forgotten
    Cliffs(cliffs::CliffsArgs),
    /// What backends do wrong, found out by small requests, and the configuration that follows
    Doctor(doctor::DoctorArgs),
    /// Simulated backends with the published prefill cliffs; no GPU needed
    Rig(rig::RigArgs),
    /// What kills simulated cards without the proxy, and what becomes of it with it; then everything stays up to play with
    Demo(demo::DemoArgs),
}

/// Why a command failed; the exit code follows from it.
#[derive(Debug)]
enum Failed {
    Configuration(String),
    Other(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let serves = matches!(cli.command, None | Some(Command::Serve { .. }));
    crate::telemetry::log::start(if serves { "info" } else { "error" });
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&Failed::Other(error.into())),
    };
    let config = cli.config;
    let result = runtime.block_on(async {
        match cli.command.unwrap_or(Command::Serve { listen: None }) {
            Command::Serve { listen } => serve::run(config, listen).await,
            Command::Check => check::run(config).await,
            Command::Explain(args) => explain::run(config, args).await,
            Command::Count(args) => count::run(config, &args).await,
            Command::Repair(args) => repair::run(&args),
            Command::Clients => clients::run(config),
            Command::Rules => {
                rules::run();
                Ok(())
            }
            Command::Cliffs(args) => cliffs::run(config, &args),
            Command::Doctor(args) => doctor::run(config, &args).await,
            Command::Rig(args) => rig::run(args).await,
            Command::Demo(args) => demo::run(args).await,
        }
    });
    // Loading a vocabulary cannot be interrupted; nobody waits for it.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => report(&failed),
    }
}

#[expect(clippy::print_stderr, reason = "the program's own last words")]
fn report(failed: &Failed) -> ExitCode {
    match failed {
        Failed::Configuration(text) => {
            eprintln!("error: {text}");
            ExitCode::from(64)
        }
        Failed::Other(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a line of a result. A reader that has gone away is no failure; what backends say of themselves cannot steer the
/// terminal.
fn say(line: impl std::fmt::Display) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{}", harmless(&line.to_string()));
    let _ = out.flush();
}

/// Control characters as JSON escapes them, so that a line of JSON stays one.
fn harmless(line: &str) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !line.contains(steers) {
        return line.into();
    }
    let escaped = |c: char| if steers(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    line.chars().map(escaped).collect::<String>().into()
}

/// Resolves on SIGINT or SIGTERM.
async fn asked_to_stop() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_backend_calls_itself_cannot_steer_the_terminal() {
        assert_eq!(harmless("a\u{1b}[2Jb\u{9b}\tc\nd"), "a\\u001b[2Jb\\u009b\tc\nd");
        assert_eq!(harmless("über"), "über");
    }
}
