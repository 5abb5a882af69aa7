//! How a stream ends: which choices have come to a good end, which alone makes an answer whole, and what its last bytes are worth.
//!
//! Status 200, a clean end and `[DONE]` prove nothing. Must never open a choice again that has ended: usage and empty deltas follow;
//! nor let half a line pass, or a line that the next one would run into.

use std::collections::BTreeSet;

use bytes::Bytes;
use switchback_parsers::chunk::{Dialect, Finish, Said};
use switchback_parsers::sse::{SseDecoder, SseFrame};

/// The choices of one stream.
#[derive(Debug, Default)]
pub(super) struct Ends {
    open: BTreeSet<u64>,
    finished: BTreeSet<u64>,
}

impl Ends {
    /// All choices that have begun came to a good end.
    pub(super) fn is_complete(&self) -> bool {
        !self.finished.is_empty() && self.open.is_empty()
    }

    /// Takes what a frame says; a bad finish reason is handed back.
    pub(super) fn take(&mut self, said: &Said) -> Option<String> {
        for choice in &said.choices {
            match &choice.finish {
                None if self.finished.contains(&choice.index) => {}
                None => {
                    self.open.insert(choice.index);
                }
                Some(Finish::Good(_)) => {
                    self.open.remove(&choice.index);
                    self.finished.insert(choice.index);
                }
                Some(Finish::Bad(reason)) => return Some(reason.chars().take(40).collect()),
            }
        }
        None
    }
}

/// A frame at the end of a connection that may have broken in its midst: none if half of it is missing, and with its blank line.
pub(super) fn unbroken(frame: SseFrame, dialect: Dialect) -> Option<SseFrame> {
    let is_empty = frame.data().is_some_and(|data| data.trim_ascii().is_empty());
    if is_empty || dialect.read_frame(&frame).unreadable {
        return None;
    }
    let bytes = frame.bytes();
    if [&b"\n\n"[..], b"\r\n\r\n", b"\r\r"].iter().any(|blank| bytes.ends_with(blank)) {
        return Some(frame);
    }
    let mut decoder = SseDecoder::new();
    let pushed = decoder.push(Bytes::from([&bytes[..], b"\n\n"].concat()));
    decoder.next_frame().filter(|_| pushed.is_ok())
}
