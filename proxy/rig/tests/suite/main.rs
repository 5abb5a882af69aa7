//! The rig from the outside: what a client sees on the wire, and what the log says of it.
//!
//! Time is paused and connections are in memory wherever possible; only what needs a real port (refused, reset)
//! uses one, with a fast clock. Nothing sleeps, nothing measures real time.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail like tests")]
#![expect(unreachable_pub, reason = "a test binary has no outside")]

mod answers;
mod client;
mod control;
mod crowd;
mod faults;
mod flavours;
mod life;
mod llama;
mod published;
mod scripts;
mod swap;
mod time;
mod vllm;
