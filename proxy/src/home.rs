//! Where a conversation has been: the backend that remembers most of its prompt.
//!
//! What is believed to be cached is a saving of seconds in the decision, never a rule: nothing here sends a request anywhere.

use std::sync::Arc;

use switchback_policies::affinity::Outline;
use switchback_policies::facts::{Home, PromptSize};

use crate::app::App;
use crate::backend::Backend;

/// Tokens that a backend must remember for a conversation that was never there to go there first: of a prompt that others
/// share.
const WORTH_STAYING: u64 = 2000;

/// Where most of the prompt has been read before, or else where the conversation was answered last, among the backends that
/// may answer it now.
pub(crate) fn home(
    app: &App,
    session: u64,
    backends: &[Arc<Backend>],
    prompt: PromptSize,
    outline: &Outline,
) -> Option<Home> {
    let last = app.sessions.home(session);
    let cached = |backend: &Arc<Backend>| believed(app, backend, prompt, outline);
    let all = backends.iter().enumerate().map(|(at, backend)| {
        let was_last = last.as_deref() == Some(backend.name());
        (cached(backend), was_last, at)
    });
    // Of equal ones where the conversation was, else the first.
    let (tokens, was_last, backend) =
        all.max_by_key(|(tokens, last, at)| (*tokens, *last, usize::MAX - at))?;
    let worth = app.config.sticky && (was_last || tokens >= WORTH_STAYING);
    worth.then(|| Home { backend, cached: backends[backend].cache_saves(tokens) })
}

/// Tokens of a prompt that a backend is thought to remember.
pub(crate) fn believed(app: &App, backend: &Backend, prompt: PromptSize, outline: &Outline) -> u64 {
    (app.prefixes.known_share(backend, outline) * prompt.expected() as f64) as u64
}
