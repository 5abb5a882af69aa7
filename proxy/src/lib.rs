//! Switchback: an OpenAI-compatible routing proxy with tool-call repair.
//!
//! This crate is the shell: the only one that knows sockets, clocks and threads. What it reads it reads with
//! `switchback_parsers`, what it decides it decides with `switchback_policies`. `pipeline.rs` is the place to start reading.
//!
//! The library serves the binary and the tests; its public surface is [`Config`], [`Proxy`] (with its in-memory half
//! [`Service`]) and [`cli`].

mod admission;
mod answer;
mod app;
mod aside;
mod ask_again;
mod attempt;
mod backend;
mod call;
pub mod cli;
mod cliffs;
mod config;
mod deliver;
mod discover;
mod edits;
mod error;
mod facts;
mod form;
mod guard;
mod handlers;
mod hang_up;
mod home;
mod identify;
mod loader;
mod measure;
mod models;
mod pipeline;
mod plan;
mod prefixes;
pub mod preset;
mod prewarm;
mod record;
mod retry;
mod routes;
mod server;
mod session;
mod telemetry;
mod watched;

pub use backend::client::{Connect, Connecting, Io, Tcp};
pub use config::{Config, ConfigError};
pub use server::{Proxy, Service};
