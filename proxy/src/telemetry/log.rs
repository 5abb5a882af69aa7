//! Logs: one line an event on standard error, for people by default, as JSON with `SWITCHBACK_LOG_FORMAT=json`.
//!
//! `RUST_LOG` filters. Prompts, answers and keys are never logged, at any level.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Starts logging for this process.
pub(crate) fn start(default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    let builder = builder.with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    let json = std::env::var("SWITCHBACK_LOG_FORMAT").is_ok_and(|format| format == "json");
    // A second start in one process (tests) keeps the first.
    let _ = if json { builder.json().flatten_event(true).try_init() } else { builder.try_init() };
}
