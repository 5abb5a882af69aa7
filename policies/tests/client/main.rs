//! Who is calling: recorded requests of real clients, requests built from what is known of others, and whatever else comes.
//!
//! The only place that reads JSON for these policies: `fixtures` gathers the clues as the proxy does.
#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod anything;
mod built;
mod fixtures;
mod recorded;
mod table;

use fixtures::Request;
use serde_json::json;
use switchback_policies::client::{BUILTIN, Class, Confidence, Profile, Recognised, class, recognise};

pub(crate) fn who(request: &Request) -> Recognised {
    request.clues(|clues| recognise(&clues))
}

#[track_caller]
pub(crate) fn check(request: &Request, id: &str, confidence: Confidence) {
    let found = who(request);
    assert_eq!((found.profile.id, found.confidence), (id, confidence), "{found}");
}

pub(crate) fn profile(id: &str) -> &'static Profile {
    BUILTIN.iter().find(|profile| profile.id == id).expect("a profile")
}

pub(crate) fn class_of(request: &Request) -> Class {
    request.clues(|clues| class(&clues, recognise(&clues).profile))
}

pub(crate) fn with_tools(names: &[&str]) -> Request {
    let tools: Vec<_> = names.iter().map(|name| json!({"function": {"name": name}})).collect();
    Request::chat(json!({"messages": [], "tools": tools}))
}
