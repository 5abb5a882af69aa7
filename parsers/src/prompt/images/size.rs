//! The size of an image from its first bytes: PNG, JPEG, GIF and WebP.
//!
//! A JPEG may carry a thumbnail and a camera's notes before its size, so up to 256 KiB are looked at; the others tell within 32 bytes.

/// How much base64 is decoded at most.
const MOST: usize = 350_000;

/// Width and height in pixels, both above 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSize {
    /// Pixels from left to right.
    pub width: u32,
    /// Pixels from top to bottom.
    pub height: u32,
}

impl ImageSize {
    fn new(width: u32, height: u32) -> Option<Self> {
        (width > 0 && height > 0).then_some(Self { width, height })
    }
}

/// The size of the image that this base64, up to a quote, begins.
pub(super) fn of_base64(text: &str) -> Option<ImageSize> {
    let text = text.get(..text.len().min(MOST)).unwrap_or(text).as_bytes();
    // Most tell within the first bytes; decoding the rest is for those that do not.
    of_bytes(&decode(text.get(..96).unwrap_or(text))).or_else(|| of_bytes(&decode(text)))
}

/// Decodes up to the first byte that is no base64. JSON may have a backslash before a slash.
pub(in crate::prompt) fn decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0);
    for byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'\\' => continue,
            _ => break,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    out
}

fn of_bytes(bytes: &[u8]) -> Option<ImageSize> {
    let two = |at: usize| Some([*bytes.get(at)?, *bytes.get(at + 1)?]);
    let four = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        return ImageSize::new(four(16)?, four(20)?);
    }
    if bytes.starts_with(b"GIF8") {
        return ImageSize::new(u16::from_le_bytes(two(6)?).into(), u16::from_le_bytes(two(8)?).into());
    }
    if bytes.starts_with(b"\xff\xd8") {
        return jpeg(bytes);
    }
    if bytes.starts_with(b"RIFF") && bytes.get(8..12)? == b"WEBP" {
        let three = |at: usize| {
            Some(u32::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?, *bytes.get(at + 2)?, 0]))
        };
        return match bytes.get(12..16)? {
            b"VP8X" => ImageSize::new(three(24)? + 1, three(27)? + 1),
            b"VP8L" => {
                let bits = u32::from_le_bytes(bytes.get(21..25)?.try_into().ok()?);
                ImageSize::new((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1)
            }
            b"VP8 " => {
                let side = |at| Some(u32::from(u16::from_le_bytes(two(at)?) & 0x3fff));
                ImageSize::new(side(26)?, side(28)?)
            }
            _ => None,
        };
    }
    None
}

/// Walks over a JPEG's segments to the one that begins the picture.
fn jpeg(bytes: &[u8]) -> Option<ImageSize> {
    let two = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let mut at = 2;
    loop {
        if *bytes.get(at)? != 0xff {
            return None;
        }
        let marker = *bytes.get(at + 1)?;
        match marker {
            // Fill bytes, and markers without a segment.
            0xff => at += 1,
            0x01 | 0xd0..=0xd7 => at += 2,
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                return ImageSize::new(two(at + 7)?.into(), two(at + 5)?.into());
            }
            _ => at += 2 + usize::from(two(at + 2)?.max(2)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ImageSize, decode, of_base64, of_bytes};

    const SIZE: Option<ImageSize> = Some(ImageSize { width: 300, height: 200 });

    #[test]
    fn every_format_tells_its_size_at_the_front() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x01\x2c\0\0\0\xc8";
        let gif = b"GIF89a\x2c\x01\xc8\0";
        let webp_x = b"RIFF....WEBPVP8X\x0a\0\0\0\0\0\0\0\x2b\x01\0\xc7\0\0";
        let webp = b"RIFF....WEBPVP8 ........\0\0\x2c\x01\xc8\0";
        // 299 and 199, in 14 bits each.
        let lossless = [&b"RIFF....WEBPVP8L....\x2f"[..], &(299_u32 | 199 << 14).to_le_bytes()].concat();
        for bytes in [&png[..], gif, webp_x, webp, &lossless] {
            assert_eq!(of_bytes(bytes), SIZE, "{bytes:?}");
            for end in 0..bytes.len() {
                // The last byte of some is not needed; none may panic or invent a size of zero.
                let _ = of_bytes(&bytes[..end]);
            }
        }
    }

    #[test]
    fn a_jpeg_tells_its_size_behind_a_cameras_notes() {
        let mut jpeg = b"\xff\xd8\xff\xe1\xff\xff".to_vec();
        jpeg.resize(jpeg.len() + 0xfffd, b'x');
        jpeg.extend(b"\xff\xff\xc4\0\x04..\xff\xc2\0\x11\x08\0\xc8\x01\x2c\x03");
        assert_eq!(of_bytes(&jpeg), SIZE);
        assert_eq!(of_bytes(&jpeg[..40_000]), None);
        assert_eq!(of_bytes(b"\xff\xd8\xff\xd9garbage"), None);
    }

    #[test]
    fn base64_is_read_as_json_has_it() {
        assert_eq!(decode(b"R0lGODlhLAHIAA==\"}"), b"GIF89a\x2c\x01\xc8\0");
        assert_eq!(decode(b"\\/\\/8"), b"\xff\xff");
        assert_eq!(of_base64("R0lGODlhLAHIAA==\""), SIZE);
        assert_eq!(of_base64("aGVsbG8gd29ybGQ"), None);
        assert_eq!(of_base64("é\""), None);
    }
}
