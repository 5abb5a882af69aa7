//! Bytes and text in, values and events out.
//!
//! Everything that Switchback has to *read* lives here: request bodies ([`request`], [`edit`], [`message`]), answer streams
//! ([`sse`], [`chunk`]), errors of backends ([`diagnosis`]) and prompts ([`prompt`]).
//!
//! This crate knows no clock, no socket, no async runtime. A parser of answers never fails and never loses a byte: what it
//! cannot read is passed on as it came. Only requests are refused, with the place and the reason.

pub mod api;
pub mod assemble;
pub mod calls;
pub mod chunk;
pub mod diagnosis;
pub mod edit;
pub mod event;
pub mod history;
pub mod json;
pub mod json_repair;
pub mod message;
pub mod needs;
pub mod prompt;
pub mod reasoning;
pub mod request;
pub mod schema;
pub mod sse;
pub mod tool_call;
