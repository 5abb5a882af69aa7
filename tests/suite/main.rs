//! What users need of the proxy, as claims: the proxy in this process, scripted backends and clients in memory, paused time.

#![expect(clippy::expect_used, clippy::panic, reason = "a test says by panicking that a claim does not hold")]

mod admission;
mod answers;
mod bad_input;
mod beside;
mod clients;
mod cliffs;
mod coming_back;
mod continuing;
mod copilot;
mod counting;
mod cursor;
mod cutting;
mod demanding;
mod ends;
mod errors;
mod failover;
mod generated_prompts;
mod going_on;
mod guarding;
mod harness;
mod house;
mod jinja_snippets;
mod liveness;
mod loading;
mod loads_that_fail;
mod mending_blocks;
mod moving;
mod probing;
mod quality;
mod repair_corpus;
mod repairing;
mod repairing_blocks;
mod requests;
mod routing;
mod rules;
mod sessions;
mod sharing;
mod speaking;
mod stopping;
mod swapping;
