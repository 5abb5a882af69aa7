//! Any bytes in any pieces: the frames are the stream, they are the same as in one piece, and every dialect reads them.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::sse::{SseDecoder, SseFrame};

const LIMIT: usize = 4096;

/// The frames; and whether the stream was read to its end.
fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<SseFrame>, bool) {
    let mut decoder = SseDecoder::with_limit(LIMIT);
    for piece in pieces {
        if decoder.push(Bytes::copy_from_slice(piece)).is_err() {
            return (std::iter::from_fn(|| decoder.next_frame()).collect(), false);
        }
        assert!(decoder.held() <= LIMIT);
    }
    (std::iter::from_fn(|| decoder.finish()).collect(), true)
}

fuzz_target!(|input: (Vec<u8>, u8)| {
    let (stream, size) = input;
    let (whole, complete) = decode(std::iter::once(&stream[..]));
    let (cut, cut_complete) = decode(stream.chunks(usize::from(size) + 1));
    let bytes = |frames: &[SseFrame]| frames.iter().map(|frame| frame.bytes().clone()).collect::<Vec<_>>();
    assert_eq!((bytes(&whole), complete), (bytes(&cut), cut_complete));
    let joined = bytes(&whole).concat();
    assert!(stream.starts_with(&joined) && (!complete || joined.len() == stream.len()));
    for frame in &whole {
        for dialect in [Dialect::Chat, Dialect::Completions, Dialect::Messages, Dialect::Responses] {
            dialect.read_frame(frame);
            dialect.read_answer(frame.bytes());
        }
        assert_eq!(frame.data().is_some(), frame.data_lines() > 0);
        if let Some(stray) = frame.stray() {
            assert!(stray.starts_with(b"{"));
        }
    }
});
