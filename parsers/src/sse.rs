//! Server-sent events, with the bytes that they came in.
//!
//! Why: an answer that needs no repair leaves byte for byte, so a frame keeps what it was read from, and frames laid
//! end to end are the stream again. A frame ends behind its blank line; line ends are LF, CRLF or CR, mixed at will,
//! and reads may cut anywhere.
//!
//! The decoder must never look at a byte twice, never join what it need not join, and never hold more than its limit.

use std::borrow::Cow;
use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use memchr::{memchr, memchr2};

const DEFAULT_LIMIT: usize = 16 << 20;
const BOM: &[u8] = b"\xef\xbb\xbf";

/// A frame grew beyond the decoder's limit; the stream cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than the limit of {limit} bytes")]
pub struct FrameTooLarge {
    /// The decoder's limit.
    pub limit: usize,
}

/// One event with its original bytes, blank line included. A blank line on its own is a frame, too.
#[derive(Clone, Debug)]
pub struct SseFrame {
    bytes: Bytes,
    /// Where its first line begins: behind a byte order mark, at the very start of a stream.
    body: usize,
}

impl SseFrame {
    /// Exactly what was received.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Each line without its end, and all that follows from its beginning on.
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.bytes.get(self.body..).unwrap_or_default();
        std::iter::from_fn(move || {
            let all = rest;
            let end = memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
            let (line, behind) = rest.split_at(end);
            rest = behind.strip_prefix(b"\r\n").or_else(|| behind.get(1..)).unwrap_or_default();
            (!all.is_empty()).then_some((line, all))
        })
    }

    /// Name and value of each field; comments and blank lines are none.
    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines().filter(|(line, _)| !matches!(line.first(), None | Some(b':'))).map(|(line, _)| {
            let (name, value) = line.split_at(memchr(b':', line).unwrap_or(line.len()));
            let value = value.get(1..).unwrap_or_default();
            (name, value.strip_prefix(b" ").unwrap_or(value))
        })
    }

    /// Whether older llama.cpp wrote an error under its own field name.
    pub(crate) fn has_error_field(&self) -> bool {
        self.fields().any(|(name, _)| name == b"error")
    }

    pub(crate) fn data_values(&self) -> impl Iterator<Item = &[u8]> {
        self.fields().filter(|(name, _)| *name == b"data").map(|(_, value)| value)
    }

    /// The data lines, joined by line feeds; none when the frame has no data line.
    pub fn data(&self) -> Option<Cow<'_, [u8]>> {
        let mut values = self.data_values();
        let first = Cow::Borrowed(values.next()?);
        Some(values.fold(first, |mut all, next| {
            let owned = all.to_mut();
            owned.push(b'\n');
            owned.extend_from_slice(next);
            all
        }))
    }

    /// The last `event` field, if it is UTF-8.
    pub fn event(&self) -> Option<&str> {
        let (_, value) = self.fields().filter(|(name, _)| *name == b"event").last()?;
        std::str::from_utf8(value).ok()
    }

    /// Whether there is nothing but comments and blank lines in it.
    pub fn is_comment(&self) -> bool {
        self.fields().next().is_none()
    }

    /// How many data lines there are.
    pub fn data_lines(&self) -> usize {
        self.data_values().count()
    }

    /// Whether the data stands on one line, as clients that read by line want it.
    pub fn is_canonical(&self) -> bool {
        self.data_lines() <= 1
    }

    /// JSON outside any data field: the value of an `error` field, which older llama.cpp sends, or a line that begins
    /// with `{`, as servers in between put errors into a stream. A line that is no whole JSON is given with all that
    /// follows in the frame.
    pub fn stray(&self) -> Option<&[u8]> {
        let mut fields = self.fields();
        if let Some((_, value)) = fields.find(|(name, value)| *name == b"error" && value.starts_with(b"{")) {
            return Some(value);
        }
        let (line, rest) = self.lines().find(|(line, _)| line.trim_ascii_start().starts_with(b"{"))?;
        let whole = serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok();
        Some(if whole { line.trim_ascii() } else { rest.trim_ascii() })
    }
}

/// Cuts a stream into frames as its bytes come in.
///
/// However the same bytes are cut, the frames are the same. Only a blank line that ends in CR may have to wait for
/// the next byte, which may be its LF; where the line before it ended in a bare CR it does not wait, and an LF behind
/// it is a frame of its own.
#[derive(Debug)]
pub struct SseDecoder {
    limit: usize,
    ready: VecDeque<SseFrame>,
    /// The frame that has begun, as far as it came in earlier pushes.
    partial: BytesMut,
    /// How much of a byte order mark the stream began with; none once that is settled.
    mark: Option<usize>,
    /// What the first frame has in front of its first line.
    skip: usize,
    line: Line,
    /// The last line ended in a CR without LF.
    bare_cr: bool,
    overflow: bool,
}

/// Where in a line the decoder stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Nothing of it has come.
    Empty,
    /// Something has.
    Begun,
    /// It had something and ended in CR; an LF may belong to it.
    EndedByCr,
    /// It was blank and ended in CR; an LF may belong to it.
    BlankByCr,
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::with_limit(DEFAULT_LIMIT)
    }
}

impl SseDecoder {
    /// A decoder for frames of up to 16 MiB.
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder for frames of up to `bytes`.
    pub fn with_limit(bytes: usize) -> Self {
        Self {
            limit: bytes,
            ready: VecDeque::new(),
            partial: BytesMut::new(),
            mark: Some(0),
            skip: 0,
            line: Line::Empty,
            bare_cr: false,
            overflow: false,
        }
    }

    /// Takes in what was read. Frames that lie within it share its memory.
    ///
    /// # Errors
    /// When a frame is larger than the limit; the frames before it can still be had, and nothing behind it.
    pub fn push(&mut self, bytes: Bytes) -> Result<(), FrameTooLarge> {
        let too_large = FrameTooLarge { limit: self.limit };
        if self.overflow {
            return Err(too_large);
        }
        let mut start = 0;
        let mut at = 0;
        while let Some(end) = self.scan(&bytes, &mut at) {
            if self.partial.len() + (end - start) > self.limit {
                break;
            }
            self.cut(bytes.slice(start..end));
            start = end;
        }
        self.partial.extend_from_slice(&bytes[start..]);
        self.overflow = self.partial.len() > self.limit;
        if self.overflow { Err(too_large) } else { Ok(()) }
    }

    /// Reads on from `at` to the end of a frame, and gives it.
    fn scan(&mut self, bytes: &[u8], at: &mut usize) -> Option<usize> {
        self.scan_mark(bytes, at);
        while *at < bytes.len() {
            if matches!(self.line, Line::EndedByCr | Line::BlankByCr) {
                let blank = self.line == Line::BlankByCr;
                self.bare_cr = bytes[*at] != b'\n';
                *at += usize::from(!self.bare_cr);
                self.line = Line::Empty;
                if blank {
                    return Some(*at);
                }
                continue;
            }
            let Some(length) = memchr2(b'\r', b'\n', &bytes[*at..]) else {
                self.line = Line::Begun;
                *at = bytes.len();
                return None;
            };
            let blank = self.line == Line::Empty && length == 0;
            let cr = bytes[*at + length] == b'\r';
            *at += length + 1;
            self.line = match (cr, blank) {
                (true, false) => Line::EndedByCr,
                (true, true) if !self.bare_cr => Line::BlankByCr,
                _ => Line::Empty,
            };
            self.bare_cr &= cr;
            if blank && self.line == Line::Empty {
                return Some(*at);
            }
        }
        None
    }

    /// Passes over a byte order mark at the very start of the stream, which may come in pieces.
    fn scan_mark(&mut self, bytes: &[u8], at: &mut usize) {
        while let (Some(seen), Some(byte)) = (self.mark, bytes.get(*at)) {
            if *byte != BOM[seen] {
                // It was none: what looked like one begins the line.
                self.mark = None;
                self.line = if seen > 0 { Line::Begun } else { Line::Empty };
                return;
            }
            *at += 1;
            self.mark = Some(seen + 1).filter(|seen| *seen < BOM.len());
            self.skip = if self.mark.is_none() { BOM.len() } else { 0 };
        }
    }

    fn cut(&mut self, last: Bytes) {
        let bytes = if self.partial.is_empty() {
            last
        } else {
            self.partial.extend_from_slice(&last);
            self.partial.split().freeze()
        };
        self.ready.push_back(SseFrame { bytes, body: std::mem::take(&mut self.skip) });
    }

    /// The next whole frame.
    pub fn next_frame(&mut self) -> Option<SseFrame> {
        self.ready.pop_front()
    }

    /// At the end of the body: the frames that are still there, and at last what is left, a frame without its blank
    /// line.
    pub fn finish(&mut self) -> Option<SseFrame> {
        if self.ready.is_empty() && !self.partial.is_empty() {
            self.cut(Bytes::new());
        }
        self.next_frame()
    }

    /// How many bytes are in hand that make no whole frame yet.
    pub fn held(&self) -> usize {
        self.partial.len()
    }
}

/// A frame with this JSON as its data, on one line.
pub fn write_data(json: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(json.len() + 8);
    frame.extend_from_slice(b"data: ");
    frame.extend(json.iter().map(|b| if matches!(b, b'\n' | b'\r') { b' ' } else { *b }));
    frame.extend_from_slice(b"\n\n");
    frame.into()
}
