//! Compressed answers. Backends are told to send none; one that does so all the same (a web server in front of it) is
//! unpacked here, since the answer has to be read, and the client gets it plain.
//!
//! Knows gzip and deflate, piece by piece. Must never hand out bytes that it could not unpack.

use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::write::{GzDecoder, ZlibDecoder};
use http::{HeaderMap, header};

/// The most that one piece of a body may unpack to: what a bomb is, and no answer.
const PIECE_LIMIT: usize = 64 << 20;

/// Takes what is unpacked, up to the limit.
#[derive(Debug, Default)]
pub(crate) struct Unpacked(Vec<u8>);

impl io::Write for Unpacked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > PIECE_LIMIT {
            return Err(io::Error::other(format!(
                "a piece of the answer unpacks to more than {PIECE_LIMIT} bytes"
            )));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Unpacks a body piece by piece.
#[derive(Debug)]
pub(crate) enum Decoder {
    Plain,
    Gzip(Box<GzDecoder<Unpacked>>),
    Deflate(Box<ZlibDecoder<Unpacked>>),
}

/// An encoding that nobody asked for and that is not known here.
#[derive(Debug, thiserror::Error)]
#[error("answer is encoded as `{0}`, which is not known (only gzip and deflate are)")]
pub(crate) struct UnknownEncoding(String);

impl Decoder {
    /// The decoder that a reply's headers call for.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, UnknownEncoding> {
        let Some(value) = headers.get(header::CONTENT_ENCODING) else { return Ok(Self::Plain) };
        match value.as_bytes().trim_ascii() {
            b"" | b"identity" => Ok(Self::Plain),
            b"gzip" | b"x-gzip" => Ok(Self::Gzip(Box::new(GzDecoder::new(Unpacked::default())))),
            b"deflate" => Ok(Self::Deflate(Box::new(ZlibDecoder::new(Unpacked::default())))),
            _ => Err(UnknownEncoding(value.to_str().unwrap_or("?").chars().take(40).collect())),
        }
    }

    /// What these bytes add to the plain body.
    pub(crate) fn push(&mut self, bytes: Bytes) -> io::Result<Bytes> {
        match self {
            Self::Plain => Ok(bytes),
            Self::Gzip(decoder) => {
                decoder.write_all(&bytes)?;
                decoder.flush()?;
                Ok(std::mem::take(&mut decoder.get_mut().0).into())
            }
            Self::Deflate(decoder) => {
                decoder.write_all(&bytes)?;
                decoder.flush()?;
                Ok(std::mem::take(&mut decoder.get_mut().0).into())
            }
        }
    }

    /// At the end of the body: whether the packed data came to its own end.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Plain => Ok(()),
            Self::Gzip(decoder) => decoder.try_finish(),
            Self::Deflate(decoder) => decoder.try_finish().map(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn a_gzip_body_is_unpacked_as_its_pieces_arrive() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(b"data: 1\n\n").unwrap();
        encoder.flush().unwrap();
        let first = encoder.get_ref().len();
        encoder.write_all(b"data: 2\n\n").unwrap();
        let packed = encoder.finish().unwrap();

        let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, "gzip".parse().unwrap())]);
        let mut decoder = Decoder::of(&headers).unwrap();
        assert_eq!(decoder.push(Bytes::copy_from_slice(&packed[..first])).unwrap(), "data: 1\n\n");
        assert_eq!(decoder.push(Bytes::copy_from_slice(&packed[first..])).unwrap(), "data: 2\n\n");
    }

    #[test]
    fn a_body_that_was_cut_is_no_whole_body() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&[b'x'; 5000]).unwrap();
        let packed = encoder.finish().unwrap();
        let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, "gzip".parse().unwrap())]);
        for (cut, whole) in [(packed.len(), true), (packed.len() - 9, false), (12, false)] {
            let mut decoder = Decoder::of(&headers).unwrap();
            decoder.push(Bytes::copy_from_slice(&packed[..cut])).unwrap();
            assert_eq!(decoder.finish().is_ok(), whole, "{cut} of {}", packed.len());
        }
    }

    #[test]
    fn a_bomb_is_an_error_and_no_memory() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        for _ in 0..200 {
            encoder.write_all(&vec![0; 1 << 20]).unwrap();
        }
        let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, "gzip".parse().unwrap())]);
        let mut decoder = Decoder::of(&headers).unwrap();
        assert!(decoder.push(encoder.finish().unwrap().into()).is_err());
    }

    #[test]
    fn an_encoding_that_is_not_known_is_named() {
        let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, "br".parse().unwrap())]);
        assert!(Decoder::of(&headers).unwrap_err().to_string().contains("`br`"));
    }
}
