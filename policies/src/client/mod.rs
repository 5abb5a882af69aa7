//! Who is calling, as data and a pure function.
//!
//! A proxy that treats all clients alike breaks some: Codex and Qwen Code go away during a prefill that is kept alive with
//! comments, Copilot's LLM Gateway asks for 64 tokens and means "no limit", title requests stand in the way of real ones.
//! So the proxy gathers [`Clues`] of a request, [`recognise`] names the [`Profile`] with its reasons, and [`class`] tells a
//! turn that somebody waits for from side traffic.
//!
//! A profile never grants a right: whoever imitates a client gets that client's heartbeats, nothing more. Nothing here reads
//! a body, a clock or a configuration; what an operator overrides is laid over the profile by the proxy.

mod builtin;
mod class;
mod clues;
mod mark;
mod profile;
mod recognise;

pub use builtin::{BUILTIN, PLAIN};
pub use class::{Class, class, side_traffic};
pub use clues::{BodyClues, CapField, Clues, Dialect, OutputCap};
pub use mark::{Confidence, Mark, Sign, Value};
pub use profile::{
    FreeTextCalls, KeepAlive, OnOverflow, Profile, ReasoningField, SessionSource, SideTraffic, Usage,
};
pub use recognise::{Because, Recognised, recognise};
