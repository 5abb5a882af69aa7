//! The header of a GGUF file: what it says about the model's vocabulary and template, without the weights.
//!
//! Why a reader of our own: files of 20 GB carry a few MB of metadata at their front, and libraries map or read the whole. The layout
//! is that of ggml's `gguf.md`: magic, version, two counts, then key-value pairs, little-endian.
//!
//! Nothing in the file is trusted: no length allocates, every read is bounded, and an error names the byte and the key. Only keys that
//! a tokenizer needs are kept.

use std::collections::HashMap;
use std::io::{self, Read};

/// The most bytes of metadata that are read. A vocabulary of 256 K tokens with its merges takes about 15 MB.
const MAX_HEADER: u64 = 256 << 20;
/// The most key-value pairs. Files in use have about 50.
const MAX_PAIRS: u64 = 65_536;
/// The longest key; the specification allows 65535 bytes.
const MAX_KEY: u64 = 65_535;
/// The longest string: chat templates have up to 40 KiB, tokens 256 bytes.
const MAX_STRING: u64 = 4 << 20;
/// The most elements of an array.
const MAX_ELEMENTS: u64 = 8 << 20;

/// What a GGUF file says about its tokenizer.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    values: HashMap<String, Meta>,
}

/// A kept value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Meta {
    /// Any integer type.
    Integer(i128),
    /// Any float type.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Text(String),
    /// An array of text.
    Texts(Vec<String>),
    /// An array of integers.
    Integers(Vec<i64>),
}

/// Why a file is not a GGUF file that can be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum GgufError {
    /// The first four bytes are not `GGUF`.
    #[error("not a gguf file: it begins with {0:02x?}, not with the letters GGUF")]
    Magic([u8; 4]),
    /// Version 1, a future one, or a file for machines of the other byte order.
    #[error("gguf version {0} is not read, only 2 and 3 of little-endian machines")]
    Version(u32),
    /// The file ends inside the header.
    #[error("gguf header is cut at byte {at} while reading {what}")]
    Cut { at: u64, what: String },
    /// Text that is no UTF-8.
    #[error("gguf header has bytes that are not utf-8 in {what}, before byte {at}")]
    NotUtf8 { at: u64, what: String },
    /// A number that no honest file has.
    #[error("gguf header says {number} for {what} before byte {at}; the limit is {limit}")]
    TooLarge { at: u64, what: String, number: u64, limit: u64 },
    /// A value type that the format does not have.
    #[error("gguf header has the unknown value type {kind} for {what} before byte {at}")]
    Kind { at: u64, what: String, kind: u32 },
    /// The disk said no.
    #[error("gguf header cannot be read at byte {at}: {source}")]
    Io { at: u64, source: io::Error },
}

impl Metadata {
    /// Reads the header from the front of a file. Give it a buffered reader.
    ///
    /// # Errors
    /// What is wrong with the file, and where.
    pub(super) fn read(file: impl Read) -> Result<Self, GgufError> {
        let mut reader = Reader { file, at: 0, what: "the magic".into() };
        let magic = reader.bytes::<4>()?;
        if &magic != b"GGUF" {
            return Err(GgufError::Magic(magic));
        }
        reader.what = "the version".into();
        let version = u32::from_le_bytes(reader.bytes()?);
        if !matches!(version, 2 | 3) {
            return Err(GgufError::Version(version));
        }
        reader.what = "the number of tensors".into();
        reader.bytes::<8>()?;
        reader.what = "the number of keys".into();
        let pairs = reader.length(MAX_PAIRS)?;
        let mut values = HashMap::new();
        for index in 0..pairs {
            reader.what = format!("key {index}");
            let key = reader.text(MAX_KEY)?;
            let wanted = key.starts_with("tokenizer.");
            reader.what.clone_from(&key);
            let kind = u32::from_le_bytes(reader.bytes()?);
            let value = reader.value(kind, wanted)?;
            if let Some(value) = value.filter(|_| wanted) {
                values.insert(key, value);
            }
        }
        Ok(Self { values })
    }

    /// The text under `key`.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.values.get(key)? {
            Meta::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The list of texts under `key`.
    pub(super) fn texts(&self, key: &str) -> Option<&[String]> {
        match self.values.get(key)? {
            Meta::Texts(texts) => Some(texts),
            _ => None,
        }
    }

    /// The list of integers under `key`.
    pub(super) fn integers(&self, key: &str) -> Option<&[i64]> {
        match self.values.get(key)? {
            Meta::Integers(integers) => Some(integers),
            _ => None,
        }
    }

    /// The truth value under `key`.
    pub(super) fn bool(&self, key: &str) -> Option<bool> {
        match self.values.get(key)? {
            Meta::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The index under `key`.
    pub(super) fn index(&self, key: &str) -> Option<usize> {
        match self.values.get(key)? {
            Meta::Integer(value) => usize::try_from(*value).ok(),
            _ => None,
        }
    }
}

struct Reader<R> {
    file: R,
    at: u64,
    /// What is being read, for the error.
    what: String,
}

impl<R: Read> Reader<R> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let mut buffer = [0; N];
        self.fill(&mut buffer)?;
        Ok(buffer)
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), GgufError> {
        let start = self.at;
        self.take(buffer.len() as u64)?;
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read(rest) {
                Ok(0) => return self.complete(buffer.len() as u64, filled as u64),
                Ok(came) => filled += came,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(GgufError::Io { at: start + filled as u64, source }),
            }
        }
        Ok(())
    }

    /// Counts bytes that are about to be read.
    fn take(&mut self, bytes: u64) -> Result<(), GgufError> {
        self.at = self.at.saturating_add(bytes);
        if self.at > MAX_HEADER {
            return Err(self.too_large(self.at, MAX_HEADER));
        }
        Ok(())
    }

    /// Fails when fewer bytes came than the file had promised.
    fn complete(&self, promised: u64, came: u64) -> Result<(), GgufError> {
        let at = self.at - promised + came;
        if came < promised { Err(GgufError::Cut { at, what: self.what.clone() }) } else { Ok(()) }
    }

    fn too_large(&self, number: u64, limit: u64) -> GgufError {
        GgufError::TooLarge { at: self.at, what: self.what.clone(), number, limit }
    }

    fn length(&mut self, limit: u64) -> Result<u64, GgufError> {
        let length = u64::from_le_bytes(self.bytes()?);
        if length > limit { Err(self.too_large(length, limit)) } else { Ok(length) }
    }

    fn text(&mut self, limit: u64) -> Result<String, GgufError> {
        let length = self.length(limit)?;
        self.take(length)?;
        // Grows with what is really there, not with what the file says.
        let mut text = Vec::new();
        let came = (&mut self.file).take(length).read_to_end(&mut text);
        let came = came.map_err(|source| GgufError::Io { at: self.at - length, source })?;
        self.complete(length, came as u64)?;
        String::from_utf8(text).map_err(|_| GgufError::NotUtf8 { at: self.at, what: self.what.clone() })
    }

    fn skip(&mut self, bytes: u64) -> Result<(), GgufError> {
        self.take(bytes)?;
        let came = io::copy(&mut (&mut self.file).take(bytes), &mut io::sink());
        let came = came.map_err(|source| GgufError::Io { at: self.at - bytes, source })?;
        self.complete(bytes, came)
    }

    /// One value; skipped values give nothing.
    fn value(&mut self, kind: u32, keep: bool) -> Result<Option<Meta>, GgufError> {
        if kind == ARRAY {
            return self.array(keep);
        }
        self.scalar(kind).map(Some)
    }

    fn scalar(&mut self, kind: u32) -> Result<Meta, GgufError> {
        Ok(match kind {
            0 => Meta::Integer(u8::from_le_bytes(self.bytes()?).into()),
            1 => Meta::Integer(i8::from_le_bytes(self.bytes()?).into()),
            2 => Meta::Integer(u16::from_le_bytes(self.bytes()?).into()),
            3 => Meta::Integer(i16::from_le_bytes(self.bytes()?).into()),
            4 => Meta::Integer(u32::from_le_bytes(self.bytes()?).into()),
            5 => Meta::Integer(i32::from_le_bytes(self.bytes()?).into()),
            6 => Meta::Float(f32::from_le_bytes(self.bytes()?).into()),
            7 => Meta::Bool(u8::from_le_bytes(self.bytes()?) != 0),
            STRING => Meta::Text(self.text(MAX_STRING)?),
            10 => Meta::Integer(u64::from_le_bytes(self.bytes()?).into()),
            11 => Meta::Integer(i64::from_le_bytes(self.bytes()?).into()),
            12 => Meta::Float(f64::from_le_bytes(self.bytes()?)),
            kind => return Err(GgufError::Kind { at: self.at, what: self.what.clone(), kind }),
        })
    }

    fn array(&mut self, keep: bool) -> Result<Option<Meta>, GgufError> {
        let kind = u32::from_le_bytes(self.bytes()?);
        let length = self.length(MAX_ELEMENTS)?;
        let width = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            10..=12 => 8,
            STRING => {
                let mut texts = Vec::new();
                for _ in 0..length {
                    let text = self.text(MAX_STRING)?;
                    if keep {
                        texts.push(text);
                    }
                }
                return Ok(Some(Meta::Texts(texts)));
            }
            // Arrays of arrays exist on paper only.
            kind => return Err(GgufError::Kind { at: self.at, what: self.what.clone(), kind }),
        };
        // Scores and the like are floats: not kept.
        if !keep || matches!(kind, 6 | 7 | 12) {
            self.skip(length * width)?;
            return Ok(None);
        }
        let mut integers = Vec::new();
        for _ in 0..length {
            match self.scalar(kind)? {
                Meta::Integer(value) => integers.push(i64::try_from(value).unwrap_or(i64::MAX)),
                _ => return Ok(None),
            }
        }
        Ok(Some(Meta::Integers(integers)))
    }
}

pub(super) const STRING: u32 = 8;
pub(super) const ARRAY: u32 = 9;

#[cfg(test)]
mod tests {
    use super::{Meta, Metadata};
    use crate::prompt::gguf_writer::write;

    fn sample() -> Vec<u8> {
        write(&[
            ("general.name", Meta::Text("not kept".into())),
            ("tokenizer.ggml.tokens", Meta::Texts(vec!["a".into(), "é".into()])),
            ("tokenizer.ggml.token_type", Meta::Integers(vec![1, 3])),
            ("tokenizer.ggml.bos_token_id", Meta::Integer(1)),
            ("tokenizer.ggml.add_bos_token", Meta::Bool(true)),
            ("tokenizer.ggml.pre", Meta::Text("smollm".into())),
            ("tokenizer.ggml.score", Meta::Float(1.5)),
        ])
    }

    #[test]
    fn what_a_tokenizer_needs_is_kept_and_the_rest_is_not() {
        // What follows the header is weights, and is not touched.
        let file = [sample(), vec![0xff; 100]].concat();
        let metadata = Metadata::read(file.as_slice()).unwrap();
        assert_eq!(metadata.texts("tokenizer.ggml.tokens").unwrap(), ["a", "é"]);
        assert_eq!(metadata.integers("tokenizer.ggml.token_type").unwrap(), [1, 3]);
        assert_eq!(metadata.index("tokenizer.ggml.bos_token_id"), Some(1));
        assert_eq!(metadata.bool("tokenizer.ggml.add_bos_token"), Some(true));
        assert_eq!(metadata.text("tokenizer.ggml.pre"), Some("smollm"));
        assert_eq!(metadata.text("general.name"), None);
    }

    #[test]
    fn a_file_cut_anywhere_is_an_error_that_says_where() {
        let file = sample();
        for end in 0..file.len() {
            let error = Metadata::read(&file[..end]).unwrap_err().to_string();
            assert!(error.contains("cut at byte"), "{end}: {error}");
        }
        let error = Metadata::read(&file[..100]).unwrap_err().to_string();
        assert_eq!(error, "gguf header is cut at byte 100 while reading tokenizer.ggml.tokens");
    }

    #[test]
    fn a_hostile_length_is_an_error_and_allocates_nothing() {
        let file = sample();
        for at in 0..file.len() - 8 {
            let mut hostile = file.clone();
            hostile[at..at + 8].fill(0xff);
            // Whatever it is, it is an answer.
            let _ = Metadata::read(hostile.as_slice());
        }
        let mut hostile = file.clone();
        hostile[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        let error = Metadata::read(hostile.as_slice()).unwrap_err().to_string();
        assert_eq!(
            error,
            "gguf header says 18446744073709551615 for the number of keys before byte 24; the limit is 65536"
        );
    }

    #[test]
    fn other_files_and_versions_are_named() {
        let error = Metadata::read(&b"PK\x03\x04rest"[..]).unwrap_err().to_string();
        assert_eq!(error, "not a gguf file: it begins with [50, 4b, 03, 04], not with the letters GGUF");
        let mut file = sample();
        file[4] = 1;
        let error = Metadata::read(file.as_slice()).unwrap_err().to_string();
        assert_eq!(error, "gguf version 1 is not read, only 2 and 3 of little-endian machines");
    }
}
