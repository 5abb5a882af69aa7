//! Compressed answers. Backends are told to send none; one that does so all the same (a web server in front of it) is
//! unpacked here, since the answer has to be read, and the client gets it plain.
//!
//! Knows gzip and deflate, piece by piece. Must never hand out bytes that it could not unpack.

use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::write::{GzDecoder, ZlibDecoder};
use http::{HeaderMap, header};

/// Unpacks a body piece by piece.
#[derive(Debug)]
pub(crate) enum Decoder {
    Plain,
    Gzip(Box<GzDecoder<Vec<u8>>>),
    Deflate(Box<ZlibDecoder<Vec<u8>>>),
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
            b"gzip" | b"x-gzip" => Ok(Self::Gzip(Box::new(GzDecoder::new(Vec::new())))),
            b"deflate" => Ok(Self::Deflate(Box::new(ZlibDecoder::new(Vec::new())))),
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
                Ok(std::mem::take(decoder.get_mut()).into())
            }
            Self::Deflate(decoder) => {
                decoder.write_all(&bytes)?;
                decoder.flush()?;
                Ok(std::mem::take(decoder.get_mut()).into())
            }
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
    fn an_encoding_that_is_not_known_is_named() {
        let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, "br".parse().unwrap())]);
        assert!(Decoder::of(&headers).unwrap_err().to_string().contains("`br`"));
    }
}
