//! The one body type of every response.

use bytes::Bytes;

/// Whatever is sent to a client. An error of it ends the connection without a proper end of the body, so that a cut
/// answer never looks whole.
pub(crate) type Body = axum::body::Body;

/// A body that is in hand.
pub(crate) fn full(bytes: Bytes) -> Body {
    Body::from(bytes)
}
