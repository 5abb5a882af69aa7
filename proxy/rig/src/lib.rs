//! Simulated vLLM, llama.cpp and other servers with the published prefill cliffs, without a GPU.
//!
//! One process plays any number of backends, each on its own port: real HTTP, real streams, and the times, limits and
//! deaths of published machines. It serves demos, tests, benches, and the tests of other gateways.
//!
//! ```
//! use switchback_rig::{Clock, EventKind, Rig, Spec};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // one RTX 3090: a prompt of 50,000 to 60,000 tokens kills it, and every stream on it
//! let spec = Spec::preset("vllm/long-text")?;
//! let rig = Rig::start(spec, "127.0.0.1:0".parse()?, Clock::new(50.0)?)?;
//! println!("point a client at {}/v1", rig.url());
//! rig.kill();
//! let died = rig.event(|event| matches!(event.kind, EventKind::Died { .. })).await;
//! assert_eq!(died.kind, EventKind::Died { by: None });
//! # Ok(())
//! # }
//! ```
//!
//! # How it is built
//!
//! | part | job |
//! |---|---|
//! | [`Spec`], presets, [`Fleet`] | which machine: data, with their sources |
//! | [`Timing`] | how long work takes, as functions of token counts alone |
//! | [`Faults`] | what goes wrong by itself, decided by (seed, prompt) |
//! | schedule, [`PrefixCache`] | which request gets what in each step of an engine; a plain state machine |
//! | engine | drives the schedule along the [`Clock`], and dies |
//! | answers, [`Script`] | what a model says, token by token, from (seed, prompt, step) |
//! | wire | each engine's HTTP, and the control API below `/rig/` |
//! | process, [`Rig`] | ports, connections, death, return |
//! | [`Swap`] | one card, several backends, one of them up at a time |
//! | [`Event`] | what happened, with simulated times |
//!
//! None of them knows a proxy: the rig shares no code with one, its token ([`count_tokens`]) least of all, for shared
//! code proves nothing.
//!
//! # What is simulated, and what is not
//!
//! As captured: vLLM 0.32 (models, health, version, load, metrics, tokenize, chat and plain completions) and llama.cpp
//! build 11434 (models, props, slots, health, metrics, tokenize, input tokens, chat and plain completions). From source:
//! vLLM before 0.11, ik_llama.cpp, SGLang, Ollama's OpenAI-compatible part.
//!
//! Prefill by length and beside live streams, steps planned ahead, decode by depth and company, speculative bursts,
//! prefix caches, KV pools with preemption, queues, hang-ups; the published cliffs, crashes, hangs, deaths, loading and
//! restarts; lost, empty, silent and malformed answers; calls that fit a request's tools; continued answers.
//!
//! Not: `stop`, `n` and `logprobs` (ignored), other dialects of the API, checkpoints of recurrent models in llama.cpp,
//! one pool for all of llama.cpp's slots, caches outside of the card.
//!
//! # From other programs
//!
//! `switchback rig` serves a preset or a file of backends. Each takes these on its own port, whatever it simulates:
//!
//! ```text
//! curl -X POST localhost:8010/rig/kill                    # the engine dies
//! curl -X POST localhost:8010/rig/stall                   # … or falls silent, until /rig/resume
//! curl -X POST localhost:8010/rig/script -d '{"steps": ["write hermes:unclosed", "http:503"], "then": "ok"}'
//! curl localhost:8010/rig/load                            # what it carries
//! curl localhost:8010/rig/events?follow=true              # what happens, a JSON object a line
//! ```

mod answer;
mod arguments;
mod backend;
mod cache;
mod clock;
mod engine;
mod error;
mod event;
mod faults;
mod fleet;
mod gpu;
mod inference;
mod markup;
mod preset;
mod process;
mod prompt;
mod prose;
mod random;
mod rig;
mod schedule;
mod script;
mod sequence;
mod spec;
mod swap;
mod ticket;
mod timing;
mod tokens;
mod wire;

pub use cache::PrefixCache;
pub use clock::Clock;
pub use engine::Engine;
pub use error::SpecError;
pub use event::{Event, EventKind, KEPT, Phase};
pub use faults::{Accumulated, Death, Faults};
pub use fleet::{Fleet, Member};
pub use markup::{Flaw, Format};
pub use rig::{Load, Rig};
pub use script::{Script, Step};
pub use spec::{Calls, Spec};
pub use swap::Swap;
pub use timing::{Company, Depth, Measured, Mtp, Timing};
pub use tokens::{count_tokens, text_of_tokens};
