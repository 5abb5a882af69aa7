//! The client's own name for the model in an answer, for clients that look for it. Only where the operator wants that:
//! an answer leaves byte for byte otherwise, and all but the name does so here.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use serde_json::Value as Json;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::json::Value;
use switchback_parsers::sse::{SseDecoder, SseFrame};

/// A whole answer with another name. What holds no name stays as it is.
pub(crate) fn answer(body: Bytes, dialect: Dialect, name: &str) -> Bytes {
    let range = std::str::from_utf8(&body).ok().and_then(|text| place(text, dialect));
    match range {
        Some(range) => spliced(&body, range, name),
        None => body,
    }
}

/// Whole frames with another name; one that holds none, or not on one line, stays as it is.
pub(crate) fn frames(bytes: &[u8], dialect: Dialect, name: &str) -> BytesMut {
    let mut decoder = SseDecoder::new();
    let mut renamed = BytesMut::with_capacity(bytes.len());
    if decoder.push(Bytes::copy_from_slice(bytes)).is_err() {
        return bytes.into();
    }
    while let Some(one) = decoder.next_frame() {
        renamed.extend_from_slice(&frame(&one, dialect, name).unwrap_or_else(|| one.bytes().clone()));
    }
    renamed
}

fn frame(frame: &SseFrame, dialect: Dialect, name: &str) -> Option<Bytes> {
    let data = frame.data().filter(|_| frame.is_canonical())?;
    let range = place(std::str::from_utf8(&data).ok()?, dialect)?;
    let start = memchr::memmem::find(frame.bytes(), &data)?;
    Some(spliced(frame.bytes(), start + range.start..start + range.end, name))
}

/// Where the name stands.
fn place(text: &str, dialect: Dialect) -> Option<Range<usize>> {
    let root = Value::parse(text).ok()?;
    let within = match dialect {
        Dialect::Chat | Dialect::Completions => None,
        Dialect::Messages => root.get("message"),
        Dialect::Responses => root.get("response"),
    };
    let model = within.unwrap_or(root).get("model")?;
    model.as_str().map(|_| model.range())
}

fn spliced(bytes: &[u8], range: Range<usize>, name: &str) -> Bytes {
    [&bytes[..range.start], Json::from(name).to_string().as_bytes(), &bytes[range.end..]].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_changes() {
        let body =
            Bytes::from_static(b" {\"model\" : \"qwen\", \"x\":1.0, \"choices\":[{\"model\":\"no\"}]}");
        assert_eq!(
            answer(body, Dialect::Chat, "gpt-4o"),
            " {\"model\" : \"gpt-4o\", \"x\":1.0, \"choices\":[{\"model\":\"no\"}]}"
        );
        assert_eq!(answer(Bytes::from_static(b"<html>"), Dialect::Chat, "x"), "<html>");
    }
}
