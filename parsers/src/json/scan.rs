//! The scanner under the views: where a value of checked JSON ends, and what a string reads.
//!
//! It trusts the text, and is total all the same: on text that is no JSON it stops at the end, and never panics or
//! goes back.

use memchr::memchr;

/// The next place that is no white space.
pub(super) fn skip_space(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
        at += 1;
    }
    at
}

/// The end of the value that begins at `start`, and how many containers stand inside each other there.
pub(super) fn skip_value(text: &[u8], start: usize) -> (usize, usize) {
    match text.get(start) {
        Some(b'"') => (skip_string(text, start), 0),
        Some(b'{' | b'[') => skip_container(text, start),
        _ => {
            let rest = text.get(start..).unwrap_or_default();
            let ends = |b: &u8| matches!(b, b',' | b']' | b'}' | b':' | b'"' | b' ' | b'\n' | b'\r' | b'\t');
            (start + rest.iter().position(ends).unwrap_or(rest.len()), 0)
        }
    }
}

fn skip_container(text: &[u8], start: usize) -> (usize, usize) {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut at = start;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                at = skip_string(text, at);
                continue;
            }
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return (at + 1, deepest);
                }
            }
            _ => {}
        }
        at += 1;
    }
    (text.len(), deepest)
}

/// Jumps from quote to quote: line breaks and other escapes, which text is full of, cost nothing.
fn skip_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(found) = text.get(at..).and_then(|rest| memchr(b'"', rest)) {
        let quote = at + found;
        let backslashes = text[at..quote].iter().rev().take_while(|b| **b == b'\\').count();
        if backslashes % 2 == 0 {
            return quote + 1;
        }
        at = quote + 1;
    }
    text.len()
}

/// Undoes the escapes of a string's inner text.
pub(super) fn decode(inner: &str) -> String {
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        let escape = rest.as_bytes().get(at + 1).copied().unwrap_or(b'\\');
        rest = rest.get(at + 2..).unwrap_or_default();
        out.push(match escape {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => {
                let (decoded, left) = decode_unicode(rest);
                rest = left;
                decoded
            }
            other => char::from(other),
        });
    }
    out.push_str(rest);
    out
}

/// Reads `XXXX`, or `XXXX\uXXXX` when the two make a pair; gives what follows.
fn decode_unicode(text: &str) -> (char, &str) {
    let unit = |text: &str| text.get(..4).and_then(|hex| u32::from_str_radix(hex, 16).ok());
    let Some(first) = unit(text) else { return (char::REPLACEMENT_CHARACTER, text) };
    let rest = &text[4..];
    if let Some(after) = rest.strip_prefix("\\u")
        && let Some(second) = unit(after)
        && let (0xD800..=0xDBFF, 0xDC00..=0xDFFF) = (first, second)
    {
        let joined = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        return (char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER), &after[4..]);
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), rest)
}
