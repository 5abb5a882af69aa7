//! The rounds of a loop that a conversation went through before, as one thing.
//!
//! Why: a conversation that grew goes through the same rounds again, so they are found with one look-up and compared by their keys, and what
//! they printed together is one number and two texts. It is known again by its first two rounds; of two conversations that share these, the
//! newer stays, and the other one's rounds are looked up one by one. It must never tell another count than its rounds, added one by one.

use std::ops::Range;

use minijinja::Value;

use super::memory::{Key, Piece};

/// The longest texts that are kept together, in bytes.
const MAX_TEXTS: usize = 256 << 10;

/// Rounds that follow each other from the first one on.
#[derive(Clone, Debug, Default)]
pub(in crate::prompt) struct Sequence {
    /// What stands before the first token that nothing can reach over.
    head: String,
    /// That token.
    first: Option<u32>,
    /// What stands behind the last such token, for each step.
    texts: String,
    steps: Vec<Step>,
}

/// A round, and what was printed when it ended.
#[derive(Clone, Debug)]
struct Step {
    key: Key,
    left: Vec<Value>,
    /// From the first token to the last one that nothing can reach over.
    tokens: u64,
    /// In the texts; in the head, as long as there is no such token.
    open: Range<usize>,
    closed: bool,
}

impl Sequence {
    /// What the round at a place left, if it is the one with this key.
    pub(in crate::prompt) fn left(&self, place: usize, key: Key) -> Option<&[Value]> {
        self.steps.get(place).filter(|step| step.key == key).map(|step| step.left.as_slice())
    }

    /// What it is known by.
    pub(super) fn name(&self) -> Option<[Key; 2]> {
        Some([self.steps.first()?.key, self.steps.get(1)?.key])
    }

    /// Its first rounds alone.
    pub(super) fn front(&self, rounds: usize) -> Self {
        let steps = self.steps.get(..rounds).unwrap_or_default();
        let (head, texts) = match steps.last() {
            Some(step) if step.closed => (self.head.len(), step.open.end),
            Some(step) => (step.open.end, 0),
            None => (0, 0),
        };
        Self {
            head: self.head.get(..head).unwrap_or_default().to_owned(),
            first: self.first.filter(|_| steps.last().is_some_and(|step| step.closed)),
            texts: self.texts.get(..texts).unwrap_or_default().to_owned(),
            steps: steps.to_vec(),
        }
    }

    /// What all its rounds printed.
    pub(super) fn piece(&self) -> Piece {
        let body = self.first.zip(self.steps.last().map(|step| step.tokens));
        let tail =
            self.steps.last().filter(|step| step.closed).and_then(|step| self.texts.get(step.open.clone()));
        Piece { head: self.head.clone(), body, tail: tail.unwrap_or_default().to_owned(), left: Vec::new() }
    }

    /// Adds a round, which made `tokens` more with what stood open before it.
    pub(super) fn push(&mut self, key: Key, piece: &Piece, left: Vec<Value>, tokens: u64) {
        let before = self.steps.last().map_or(0, |step| step.tokens);
        let (tokens, start) = match (self.first, piece.body) {
            (None, None) => {
                self.head.push_str(&piece.head);
                (0, 0)
            }
            // What stood open before is not of these rounds.
            (None, Some((first, own))) => {
                self.head.push_str(&piece.head);
                self.first = Some(first);
                (own, 0)
            }
            (Some(_), None) => {
                self.texts.push_str(&piece.head);
                (before, self.steps.last().map_or(0, |step| step.open.start))
            }
            (Some(_), Some(_)) => (before + tokens, self.texts.len()),
        };
        if piece.body.is_some() {
            self.texts.push_str(&piece.tail);
        }
        let closed = self.first.is_some();
        let end = if closed { self.texts.len() } else { self.head.len() };
        self.steps.push(Step { key, left, tokens, open: start..end, closed });
    }

    /// What it takes, in bytes; none if that is more than is kept.
    pub(super) fn weight(&self) -> Option<usize> {
        let texts = self.head.len() + self.texts.len();
        let left = self.steps.iter().flat_map(|step| &step.left);
        let left = left.map(|value| size_of::<Value>() + value.as_str().map_or(0, str::len)).sum::<usize>();
        (texts + left <= MAX_TEXTS).then_some(texts + left + self.steps.len() * size_of::<Step>())
    }
}
