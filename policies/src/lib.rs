//! Facts in, decisions out.
//!
//! Where a request goes ([`routing`]) and when ([`admission`]), how much it may answer ([`budget`]), what a fault means
//! ([`failover`]) and may cost ([`debt`]), whether to ask once more ([`demand`]), whether a backend is there ([`health`])
//! and alive ([`liveness`]) and answers as well as it did ([`quality`]), how fast it is ([`speed`]), what it survives ([`cliff`]), which of them are on the cards ([`loading`]) and whether a session turns in
//! circles ([`session`]): pure functions and plain state
//! machines over numbers and names. Time is an argument.
//!
//! This crate knows no JSON, no socket, no clock and no async runtime; it must stay replayable from its inputs alone.

pub mod admission;
pub mod affinity;
pub mod agreement;
pub mod budget;
pub mod client;
pub mod cliff;
pub mod debt;
pub mod decision;
pub mod demand;
pub mod facts;
pub mod failover;
pub mod health;
pub mod liveness;
pub mod loading;
pub mod quality;
pub mod routing;
pub mod session;
pub mod speed;
