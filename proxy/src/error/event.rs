//! An error in the middle of a stream, in the event and the words that the dialect's clients act on.
//!
//! A client that does not understand it takes the stream for a broken connection, and sends its whole prompt again.

use std::borrow::Cow;

use bytes::Bytes;
use switchback_parsers::chunk::Dialect;

use super::ApiError;

impl ApiError {
    /// As an event of a stream that has already begun, with the dialect's end marker.
    pub(crate) fn event(&self, dialect: Dialect) -> Bytes {
        let mut frame = match dialect {
            Dialect::Responses => self.in_codex_words().error_frame(dialect),
            _ => self.error_frame(dialect),
        }
        .to_vec();
        frame.extend_from_slice(dialect.end_behind_an_error().unwrap_or_default());
        frame.into()
    }

    fn error_frame(&self, dialect: Dialect) -> Bytes {
        // What Codex acts on: it ends with the cause on the first, shows the second and ends, and waits for as long as the message
        // of the third says; all else it sends again at once (its source, codex-api/src/sse/responses.rs).
        let word = match self.status.as_u16() {
            _ if self.is_overflow() => "context_length_exceeded",
            429 | 503 => "rate_limit_exceeded",
            400..=499 => "invalid_prompt",
            _ => "server_error",
        };
        dialect.error_frame(&self.object(Some(dialect)), word)
    }

    /// With the time to wait in the message, where there are no headers any more.
    fn in_codex_words(&self) -> Cow<'_, Self> {
        let Some(seconds) = self.words.retry_after else { return Cow::Borrowed(self) };
        let mut error = self.clone();
        error.words.message.push_str(&format!("; please try again in {seconds}s"));
        Cow::Owned(error)
    }
}
