//! The one-slot hand-off between the future that produces an answer and the body that hyper polls.
//!
//! Both live in one task: the body polls the producer in place, so dropping the body cancels everything that the producer
//! holds, and a client that reads slowly holds the producer at its next piece. Nothing is spawned, nothing is queued.

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use super::free_text::FreeText;
use crate::error::ApiError;

/// One step of an answer.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Status and headers; the body follows in pieces of data.
    Head(Head),
    /// The whole answer at once.
    Whole(Head, Bytes),
    /// Bytes of the body.
    Data(Bytes),
    /// What was found or done after the head: a comment where the client bears one. Printable ASCII.
    Adjusted(String),
    /// It ends with an error: as a response if the head is still held, else as an event.
    Refused(ApiError, HeaderMap),
    /// The connection to the client must end without a proper end of the body.
    Broken,
}

/// A response's head.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

type Slot = Arc<Mutex<Option<Piece>>>;

/// What a request waits for, asked when its client is told.
pub(crate) type Waits = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// The producer's end.
pub(crate) struct Out {
    slot: Slot,
    waits: Arc<Mutex<Option<Waits>>>,
    /// What becomes of calls on their way to the client.
    free_text: Option<Mutex<FreeText>>,
}

/// The body's end.
pub(super) struct In {
    slot: Slot,
    waits: Arc<Mutex<Option<Waits>>>,
}

/// A fresh pair.
pub(super) fn hand_off() -> (Out, In) {
    let (slot, waits) = (Slot::default(), Arc::default());
    (Out { slot: Arc::clone(&slot), waits: Arc::clone(&waits), free_text: None }, In { slot, waits })
}

impl Out {
    /// The same, with calls of free text as the client takes them.
    pub(crate) fn with(self, free_text: Option<FreeText>) -> Self {
        Self { free_text: free_text.map(Mutex::new), ..self }
    }

    /// Says what is waited for from now on, printable ASCII; `None`: for the backend, of which there is nothing to tell.
    pub(crate) fn waits_for(&self, waits: Option<Waits>) {
        *self.waits.lock() = waits;
    }

    /// Hands a piece over; waits until the one before it was taken.
    pub(crate) async fn send(&self, piece: Piece) {
        let mut piece = Some(match (piece, &self.free_text) {
            (Piece::Data(bytes), Some(free_text)) => Piece::Data(free_text.lock().frames(bytes)),
            (Piece::Whole(head, bytes), Some(free_text)) => {
                Piece::Whole(head, free_text.lock().answer(bytes))
            }
            (piece, _) => piece,
        });
        // No waker: whoever takes a piece polls the producer again before it waits for anything else.
        std::future::poll_fn(|_| {
            let mut slot = self.slot.lock();
            if slot.is_none() {
                *slot = piece.take();
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Hands over bytes; nothing if there are none.
    pub(crate) async fn data(&self, bytes: Bytes) {
        let bytes = match &self.free_text {
            Some(free_text) => free_text.lock().frames(bytes),
            None => bytes,
        };
        if !bytes.is_empty() {
            self.send(Piece::Data(bytes)).await;
        }
    }
}

impl In {
    /// Takes what is there.
    pub(super) fn take(&self) -> Option<Piece> {
        self.slot.lock().take()
    }

    /// What the request waits for just now, if there is something to tell.
    pub(super) fn waits_for(&self) -> Option<String> {
        self.waits.lock().as_ref().and_then(|waits| waits())
    }
}
