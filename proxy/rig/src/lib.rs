//! Simulated vLLM and llama.cpp servers with the published prefill cliffs, without a GPU.
//!
//! One process plays any number of backends, each on its own port: real HTTP, real streams, and the times, limits and
//! deaths of published machines. It serves demos, tests, benches, and the tests of other gateways.
//!
//! ```
//! use switchback_rig::{Clock, EventKind, Rig, Spec};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // one RTX 3090: a prompt of more than 50,000 tokens kills it, and every stream on it
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
//! | schedule | which request gets what in each step of an engine; a plain state machine |
//! | engine | drives the schedule along the [`Clock`], and dies |
//! | answers, [`Script`] | what a model says, token by token, from (seed, prompt, step) |
//! | wire | each engine's HTTP, member by member as captured from the real servers |
//! | process, [`Rig`] | ports, connections, death, return |
//! | [`Event`] | what happened, with simulated times |
//!
//! None of them knows a proxy: the rig shares no code with one, its token ([`count_tokens`]) least of all, for shared
//! code proves nothing.
//!
//! # What is simulated, and what is not
//!
//! vLLM 0.32: models, health, version, load, metrics, tokenize, chat and plain completions. llama.cpp (build 11434):
//! models, props, slots, health, metrics, tokenize, input tokens, chat and plain completions. Single-prompt cliffs,
//! prefill beside live streams, queues, hang-ups, deaths, loading and restarts.
//!
//! Not yet: prefix caches, accumulated-context cliffs, KV-pool exhaustion, decode that slows with depth or company,
//! speculative bursts, `stop`, `n` and `logprobs` (ignored), other dialects, other engines.

mod answer;
mod backend;
mod clock;
mod event;
mod fleet;
mod gpu;
mod inference;
mod preset;
mod process;
mod rig;
mod schedule;
mod script;
mod spec;
mod timing;
mod tokens;
mod wire;

pub use clock::Clock;
pub use event::{Event, EventKind, KEPT, Phase};
pub use fleet::{Fleet, Member};
pub use rig::{Load, Rig};
pub use script::{Script, Step};
pub use spec::{Engine, Spec, SpecError};
pub use timing::Timing;
pub use tokens::{count_tokens, text_of_tokens};
