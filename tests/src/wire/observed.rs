//! What a run saw, from both ends: the answers as the client got them, the requests as the backends got them.
//!
//! Times count from the case's beginning. Bytes are kept as they came; decoding happens on demand and may fail.

use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use flate2::write::{GzDecoder, ZlibDecoder};
use tokio::time::Instant;

use super::http1::Headers;

/// The one clock of a case.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that begins now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the beginning.
    pub fn now(&self) -> Duration {
        self.0.elapsed()
    }

    /// The instant at `time`.
    pub fn at(&self, time: Duration) -> Instant {
        self.0 + time
    }
}

/// Everything that a run saw.
#[derive(Debug, Default)]
pub struct Observed {
    /// One for each request of the client.
    pub replies: Vec<Reply>,
    /// The inference requests that arrived at backends, in order.
    pub attempts: Vec<Attempt>,
    /// What went against the script: a request without an answer, or at the wrong backend.
    pub faults: Vec<String>,
}

/// An answer as the client got it.
#[derive(Clone, Debug)]
pub struct Reply {
    /// When the request started.
    pub started: Duration,
    /// The final status; nothing if none came.
    pub status: Option<u16>,
    /// The answer's fields.
    pub headers: Headers,
    /// The body, piece by piece as it came, without the transfer's framing.
    pub pieces: Vec<Piece>,
    /// When it ended.
    pub ended: Duration,
    /// How it ended.
    pub end: End,
}

/// Bytes that came together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// When they came.
    pub at: Duration,
    /// The bytes.
    pub bytes: Bytes,
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// At the end that its framing promised.
    Complete,
    /// Before that, or without any answer: why.
    Broken(String),
    /// The client closed.
    HungUp,
}

impl Reply {
    /// The body's pieces with the content encoding taken off, each as far as it can be decoded at that moment.
    ///
    /// # Errors
    /// The encoding is unknown, or the bytes are not in it.
    pub fn decoded(&self) -> io::Result<Vec<Piece>> {
        let encoding = self.headers.get("content-encoding").unwrap_or_default();
        let mut decoder: Box<dyn Decoder> = match encoding.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => return Ok(self.pieces.clone()),
            "gzip" | "x-gzip" => Box::new(GzDecoder::new(Vec::new())),
            "deflate" => Box::new(ZlibDecoder::new(Vec::new())),
            other => return Err(io::Error::other(format!("content-encoding {other} is not known here"))),
        };
        let mut pieces = Vec::new();
        for piece in &self.pieces {
            let bytes = decoder.feed(&piece.bytes)?;
            pieces.push(Piece { at: piece.at, bytes: bytes.into() });
        }
        if self.end == End::Complete {
            let bytes = decoder.finish()?;
            pieces.push(Piece { at: self.ended, bytes: bytes.into() });
        }
        pieces.retain(|piece| !piece.bytes.is_empty());
        Ok(pieces)
    }
}

trait Decoder {
    fn feed(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>>;
    /// Checks that the compressed text is whole.
    fn finish(&mut self) -> io::Result<Vec<u8>>;
}

impl Decoder for GzDecoder<Vec<u8>> {
    fn feed(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.write_all(bytes)?;
        self.flush()?;
        Ok(std::mem::take(self.get_mut()))
    }

    fn finish(&mut self) -> io::Result<Vec<u8>> {
        self.try_finish()?;
        Ok(std::mem::take(self.get_mut()))
    }
}

impl Decoder for ZlibDecoder<Vec<u8>> {
    fn feed(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.write_all(bytes)?;
        self.flush()?;
        Ok(std::mem::take(self.get_mut()))
    }

    fn finish(&mut self) -> io::Result<Vec<u8>> {
        self.try_finish()?;
        Ok(std::mem::take(self.get_mut()))
    }
}

/// An inference request that arrived at a backend.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The backend's name.
    pub backend: String,
    /// Path with its query.
    pub path: String,
    /// Fields.
    pub headers: Headers,
    /// The body without the transfer's framing.
    pub body: Bytes,
    /// When its head had arrived.
    pub arrived: Duration,
    /// When the last bytes of the answer were about to go out; nothing if it never came so far.
    pub ended: Option<Duration>,
    /// When the proxy closed the connection under the answer.
    pub closed: Option<Duration>,
}

#[cfg(test)]
pub(crate) mod samples {
    //! Observations for the tests of the comparing rules.

    use super::*;

    /// A complete answer; each piece with its milliseconds.
    pub(crate) fn reply(status: u16, headers: &[(&str, &str)], pieces: &[(u64, &[u8])]) -> Reply {
        let piece = |(ms, bytes): &(u64, &[u8])| Piece {
            at: Duration::from_millis(*ms),
            bytes: Bytes::copy_from_slice(bytes),
        };
        Reply {
            started: Duration::ZERO,
            status: Some(status),
            headers: Headers(
                headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ),
            ended: Duration::from_millis(pieces.last().map_or(0, |(ms, _)| *ms)),
            pieces: pieces.iter().map(piece).collect(),
            end: End::Complete,
        }
    }

    /// A request that backend `a` has answered.
    pub(crate) fn attempt(body: &str) -> Attempt {
        Attempt {
            backend: "a".to_owned(),
            path: "/v1/chat/completions?x=1".to_owned(),
            headers: Headers(vec![("authorization".to_owned(), "Bearer k".to_owned())]),
            body: Bytes::copy_from_slice(body.as_bytes()),
            arrived: Duration::from_millis(10),
            ended: Some(Duration::from_millis(20)),
            closed: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn text(pieces: &[Piece]) -> Vec<u8> {
        pieces.iter().flat_map(|piece| piece.bytes.to_vec()).collect()
    }

    #[test]
    fn a_compressed_body_is_decoded_and_a_wrong_or_cut_one_is_an_error() {
        let whole = packed("hello");
        let (one, two) = whole.split_at(7);
        let gzip = [("content-encoding", "gzip")];
        let reply = samples::reply(200, &gzip, &[(1, one), (2, two)]);
        assert_eq!(text(&reply.decoded().unwrap()), b"hello");
        assert!(samples::reply(200, &gzip, &[(1, one)]).decoded().is_err());
        assert!(samples::reply(200, &gzip, &[(1, b"hello")]).decoded().is_err());
        assert!(samples::reply(200, &[("content-encoding", "br")], &[(1, b"x")]).decoded().is_err());
        assert_eq!(text(&samples::reply(200, &[], &[(1, b"plain")]).decoded().unwrap()), b"plain");
    }
}
