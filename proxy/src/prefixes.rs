//! Which backend has read which beginnings of prompts.
//!
//! A prompt's outline is made of its texts as they reach the engine: the notation of a content (string or parts, cache marks)
//! makes no difference. What is remembered are hashes with a key of this process, bounded, for ten minutes; never a text. A
//! backend that was restarted remembers nothing.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::time::Duration;

use moka::sync::Cache;
use switchback_parsers::message::Message;
use switchback_parsers::request::ChatRequest;
use switchback_policies::affinity::{Outline, Piece, Place};

use crate::backend::Backend;
use crate::edits::BILLING;

/// Beginnings that are remembered, of all backends together.
const MOST: u64 = 200_000;

/// Messages whose lines are told apart: where clients put what changes.
const BY_LINE: usize = 2;

/// What has been read where.
#[derive(Clone, Debug)]
pub(crate) struct Prefixes {
    hasher: RandomState,
    known: Cache<u64, ()>,
}

impl Prefixes {
    pub(crate) fn new() -> Self {
        let known = Cache::builder().max_capacity(MOST).time_to_idle(Duration::from_secs(600)).build();
        Self { hasher: RandomState::new(), known }
    }

    /// The outline of a request's prompt.
    pub(crate) fn outline(&self, request: &ChatRequest) -> Outline {
        let mut outline = Outline::default();
        let mut push = |hash: u64, bytes: usize, place: Place, answer: bool| {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            outline.push(Piece { hash, bytes, place, answer });
        };
        let root = request.root();
        for member in ["tools", "system", "instructions"] {
            if let Some(value) = root.get(member) {
                push(self.hasher.hash_one(value.raw()), value.raw().len(), Place::default(), false);
            }
        }
        for (nth, message) in request.messages().enumerate() {
            let place = |line: usize| Place { message: number(nth + 1), line: number(line) };
            let text = message.text();
            // Asked once: each time it is looked for in the whole message.
            let role = message.role();
            let answer = role.as_deref() == Some("assistant");
            if nth < BY_LINE {
                // Lines that are taken off on the way out count for nothing.
                for (line, words) in text.lines().enumerate().filter(|(_, line)| !line.starts_with(BILLING)) {
                    push(self.hasher.hash_one((&role, words)), words.len() + 1, place(line + 1), answer);
                }
            } else {
                push(self.whole(message, &text), text.len() + calls(message), place(0), answer);
            }
        }
        outline
    }

    fn whole(&self, message: Message<'_>, text: &str) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        message.role().hash(&mut hasher);
        text.hash(&mut hasher);
        for call in message.tool_calls() {
            call.raw().hash(&mut hasher);
        }
        for image in message.images() {
            image.raw().hash(&mut hasher);
        }
        hasher.finish()
    }

    fn at(&self, backend: &Backend, mark: u64) -> u64 {
        self.hasher.hash_one((backend.name(), backend.starts(), mark))
    }

    /// The part of a prompt that the backend has read before, 0 to 1.
    pub(crate) fn known_share(&self, backend: &Backend, outline: &Outline) -> f64 {
        outline.known_share(|mark| self.known.contains_key(&self.at(backend, mark.hash)))
    }

    /// The backend has read all of it.
    pub(crate) fn was_read(&self, backend: &Backend, outline: &Outline) {
        for mark in outline.marks() {
            self.known.insert(self.at(backend, mark.hash), ());
        }
    }
}

fn number(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn calls(message: Message<'_>) -> usize {
    message.tool_calls().map(|call| call.raw().len()).sum()
}
