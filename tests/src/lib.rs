//! The outside world of Switchback: what plays clients and backends around the real binary, and the corpora.
//!
//! Nothing here may know how the proxy works inside: the harness sees bytes on sockets and compares them with what
//! users need. It therefore reads HTTP, event streams and messages with code of its own, never with the project's.

pub mod strict;
pub mod wire;
