//! The wire cases: each is one file that says what a client sends, how backends behave, and what both must see.
//!
//! `corpus/wire/README.md` is the format. A run reads a [`case`], raises its [`backend`]s, writes the configuration
//! ([`adapter`]), starts the [`proxy`], plays the [`client`], and hands what was [`observed`] to [`compare`]; [`run`]
//! does that for one case, [`report`] for all of them. What the format does not know is refused, never skipped:
//! a harness that passes a wrong answer is worse than none.

pub mod adapter;
pub mod backend;
pub mod blocks;
pub mod case;
pub mod client;
pub mod compare;
pub mod expect;
pub mod http1;
pub mod message;
pub mod observed;
pub mod proxy;
pub mod report;
pub mod run;
pub mod sse;

#[cfg(test)]
mod trial;
