//! Where a text is cut when it is fed in pieces.

use std::str::FromStr;

use serde_json::Value;

/// Ways to cut a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cuts {
    /// In two, at each byte in turn.
    Every,
    /// One byte at a time.
    Bytes,
    /// One character at a time; a byte that is none by itself.
    Chars,
    /// In pieces of 1 to 16 bytes, by a seed.
    Random(u64),
}

impl FromStr for Cuts {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "every" => Ok(Self::Every),
            "bytes" => Ok(Self::Bytes),
            "chars" => Ok(Self::Chars),
            _ => {
                word.strip_prefix("random:").and_then(|seed| seed.parse().ok()).map(Self::Random).ok_or_else(
                    || "must be every, bytes, chars, or random:SEED with a whole number".to_owned(),
                )
            }
        }
    }
}

impl Cuts {
    /// All ways to cut this text, each with its label: the place, the way, or the places.
    pub(super) fn of<'t>(self, text: &'t [u8]) -> Box<dyn Iterator<Item = (Value, Vec<&'t [u8]>)> + 't> {
        match self {
            Self::Every => Box::new((1..text.len()).map(move |at| {
                let (before, behind) = text.split_at(at);
                (at.into(), vec![before, behind])
            })),
            Self::Bytes => Box::new(std::iter::once(("bytes".into(), text.chunks(1).collect()))),
            Self::Chars => {
                let starts = |byte: &u8| byte & 0xC0 != 0x80;
                let pieces = text.chunk_by(move |_, next| !starts(next)).collect();
                Box::new(std::iter::once(("chars".into(), pieces)))
            }
            Self::Random(seed) => {
                let (mut pieces, mut places, mut rest) = (Vec::new(), Vec::new(), text);
                let mut state = seed;
                while !rest.is_empty() {
                    // Knuth's linear congruential generator: the same cuts for the same seed, everywhere.
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let length = usize::try_from((state >> 33) % 16).unwrap_or(0) + 1;
                    let (piece, behind) = rest.split_at(length.min(rest.len()));
                    pieces.push(piece);
                    rest = behind;
                    places.push(text.len() - rest.len());
                }
                places.pop();
                Box::new(std::iter::once((places.into(), pieces)))
            }
        }
    }
}
