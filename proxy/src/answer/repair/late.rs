//! Structured calls of a choice of whose text calls have left already. They may be the very same once more: some servers send what
//! they parsed behind the text from which they parsed it.
//!
//! A call that would run twice is worse than one that comes late, so they wait for the choice's end, 64 KiB at most.

use serde_json::{Value as Json, json};
use switchback_parsers::calls::{ChunkNormaliser, Rewritten};
use switchback_parsers::event::{Folded, FoldedCall};

use super::RepairTerms;
use super::wire::Frame;

/// The most that waits, in bytes of frames; beyond that they pass.
const WAITING: usize = 64 << 10;

/// The structured calls of one choice that wait.
#[derive(Debug)]
pub(super) struct Late {
    choice: u64,
    normaliser: ChunkNormaliser,
    /// The message that they make.
    folded: Folded,
    /// As they came.
    frames: Vec<Frame>,
    /// How many of them are in the message.
    read: usize,
    bytes: usize,
}

impl Late {
    pub(super) fn new(choice: u64, terms: &RepairTerms) -> Self {
        let (normaliser, folded) = (terms.normaliser(), Folded::default());
        Self { choice, normaliser, folded, frames: Vec::new(), read: 0, bytes: 0 }
    }

    /// Takes a frame. False: it is too much to wait.
    pub(super) fn take(&mut self, frame: Frame) -> bool {
        self.bytes += frame.json.len();
        let rewritten = self.normaliser.frame(&frame.json);
        self.frames.push(frame);
        self.read(rewritten);
        self.bytes <= WAITING
    }

    /// The frames as they came.
    pub(super) fn into_frames(self) -> Vec<Frame> {
        self.frames
    }

    /// At the choice's end: the calls that are not among those of the text, each of which stands for one. What was cut is
    /// left out, since nothing of it was shown.
    pub(super) fn new_calls(mut self, finish: &str, mut in_text: Vec<(String, String)>) -> Vec<FoldedCall> {
        let end = json!({ "choices": [{ "index": self.choice, "delta": {}, "finish_reason": finish }] });
        self.take(Frame::own(end.to_string()));
        let rewritten = self.normaliser.finish();
        self.read(rewritten);
        let value = |text: &str| serde_json::from_str::<Json>(text).ok();
        let mut calls = self.folded.calls;
        calls.retain(|call| {
            let Some(own) = value(&call.arguments) else { return false };
            let same = |(name, arguments): &(String, String)| {
                *name == call.name && value(arguments).as_ref() == Some(&own)
            };
            let place = in_text.iter().position(same);
            place.map(|place| in_text.swap_remove(place)).is_none()
        });
        calls
    }

    /// Adds what the normaliser has decided on to the message.
    fn read(&mut self, rewritten: Rewritten) {
        let decided: Vec<&str> = match &rewritten {
            Rewritten::Wait => return,
            Rewritten::Same => self.frames[self.read..].iter().map(|frame| frame.json.as_str()).collect(),
            Rewritten::Replace(list) => list.iter().map(String::as_str).collect(),
        };
        decided.into_iter().for_each(|json| self.folded.add_chunk(json, self.choice));
        self.read = self.frames.len();
    }
}
