//! Frames: what they say, and that they are the stream, however it is cut.

use bytes::Bytes;
use proptest::prelude::*;
use switchback_parsers::sse::{FrameTooLarge, SseDecoder, SseFrame, write_data};

/// Decodes pieces to the end.
fn decode(pieces: &[&[u8]]) -> Vec<SseFrame> {
    let mut decoder = SseDecoder::new();
    for piece in pieces {
        decoder.push(Bytes::copy_from_slice(piece)).unwrap();
    }
    std::iter::from_fn(|| decoder.finish()).collect()
}

fn texts(frames: &[SseFrame]) -> Vec<&str> {
    frames.iter().map(|frame| std::str::from_utf8(frame.bytes()).unwrap()).collect()
}

fn one(stream: &str) -> SseFrame {
    let frames = decode(&[stream.as_bytes()]);
    assert_eq!(frames.len(), 1, "{frames:?}");
    frames[0].clone()
}

fn data(frame: &SseFrame) -> Option<String> {
    frame.data().map(|data| String::from_utf8(data.into()).unwrap())
}

#[test]
fn a_frame_ends_behind_its_blank_line_whatever_ends_its_lines() {
    for end in ["\n", "\r\n", "\r"] {
        let stream = format!("data: 1{end}{end}: ping{end}{end}event: x{end}data: 2{end}{end}");
        let frames = decode(&[stream.as_bytes()]);
        assert_eq!(frames.len(), 3, "{end:?}");
        assert_eq!(frames.iter().map(data).collect::<Vec<_>>(), [Some("1".into()), None, Some("2".into())]);
        assert_eq!(frames[2].event(), Some("x"));
        assert!(frames[1].is_comment() && !frames[0].is_comment());
    }
}

#[test]
fn mixed_line_ends_are_one_stream() {
    let frames = decode(&[b"data: 1\r\n\ndata: 2\n\r\ndata: 3\r\r\ndata: 4\n\n"]);
    assert_eq!(texts(&frames), ["data: 1\r\n\n", "data: 2\n\r\n", "data: 3\r\r", "\n", "data: 4\n\n"]);
    assert!(frames[3].is_comment(), "a blank line on its own says nothing");
    assert_eq!(
        data(&one("id: 1\rdata: 2\n\r\n")).as_deref(),
        Some("2"),
        "only the last line end tells of bare CR"
    );
}

#[test]
fn a_stream_of_bare_cr_is_not_held_back() {
    let mut decoder = SseDecoder::new();
    decoder.push(Bytes::from_static(b"data: 1\r\r")).unwrap();
    assert_eq!(decoder.next_frame().unwrap().bytes(), "data: 1\r\r");
    assert_eq!(decoder.held(), 0);
}

#[test]
fn a_cut_between_cr_and_lf_waits_for_the_lf() {
    let mut decoder = SseDecoder::new();
    decoder.push(Bytes::from_static(b"data: 1\r\n\r")).unwrap();
    assert!(decoder.next_frame().is_none());
    assert_eq!(decoder.held(), 10);
    decoder.push(Bytes::from_static(b"\ndata: 2\r\n\r")).unwrap();
    assert_eq!(decoder.next_frame().unwrap().bytes(), "data: 1\r\n\r\n");
    assert!(decoder.next_frame().is_none());
    assert_eq!(decoder.finish().unwrap().bytes(), "data: 2\r\n\r");
}

#[test]
fn fields_are_read_as_the_standard_has_them() {
    assert_eq!(data(&one("data:1\n\n")).as_deref(), Some("1"));
    assert_eq!(data(&one("data:  1 \n\n")).as_deref(), Some(" 1 "), "one space goes");
    assert_eq!(data(&one("data\n\n")).as_deref(), Some(""));
    assert_eq!(data(&one("data: a\ndata:\nid: 7\ndata: b\n\n")).as_deref(), Some("a\n\nb"));
    assert_eq!(data(&one("Data: a\n\n")), None, "names are case-sensitive");
    assert_eq!(data(&one("id: 7\nretry: 10\n\n")), None);
    assert_eq!(one("event: a\nevent: b\ndata: x\n\n").event(), Some("b"));
    assert!(!one("id: 7\n\n").is_comment());
    assert!(one(": a\n:\n\n").is_comment());
}

#[test]
fn data_on_several_lines_is_counted() {
    let frame = one("data: {\ndata: }\n\n");
    assert_eq!((frame.data_lines(), frame.is_canonical()), (2, false));
    assert!(one("data: {}\n\n").is_canonical() && one(": ping\n\n").is_canonical());
}

#[test]
fn a_byte_order_mark_belongs_to_the_first_frame_and_to_no_line() {
    let stream = "\u{feff}data: 1\n\n\u{feff}data: 2\n\n".as_bytes();
    for cut in 0..=stream.len() {
        let frames = decode(&[&stream[..cut], &stream[cut..]]);
        assert_eq!(frames.iter().map(data).collect::<Vec<_>>(), [Some("1".into()), None], "cut at {cut}");
        assert_eq!(frames[0].bytes(), "\u{feff}data: 1\n\n");
    }
    assert_eq!(texts(&decode(&["\u{feff}\ndata: 1\n\n".as_bytes()])), ["\u{feff}\n", "data: 1\n\n"]);
    assert_eq!(decode(&[b"\xef\xbbdata: 1\n\n"])[0].data(), None, "half a mark begins the line");
    assert_eq!(decode(&[b"\xef\xbb"])[0].bytes().len(), 2);
    assert_eq!(decode(&[b"\xef\xbb\n\n"]).len(), 1, "its line is not blank");
}

#[test]
fn what_is_left_at_the_end_is_the_last_frame() {
    let frames = decode(&[b"data: 1\n\ndata: [DONE]"]);
    assert_eq!(data(&frames[1]).as_deref(), Some("[DONE]"));
    assert_eq!(data(&one("data: 1\n")).as_deref(), Some("1"));
    assert!(decode(&[]).is_empty());
}

#[test]
fn json_outside_the_data_is_found() {
    let bare = r#"{"error":{"message":"too long"}}"#;
    assert_eq!(one(bare).stray(), Some(bare.as_bytes()));
    assert_eq!(one(&format!("  {bare}\r\n\r\n")).stray(), Some(bare.as_bytes()));
    let pretty = "{\n \"error\": {}\n}";
    assert_eq!(one(pretty).stray(), Some(pretty.as_bytes()));
    assert_eq!(one(&format!("{bare}\ndata: [DONE]\n\n")).stray(), Some(bare.as_bytes()));
    assert_eq!(one("error: {\"code\":500}\n\n").stray(), Some(&b"{\"code\":500}"[..]));
    assert_eq!(one("data: {\"a\":1}\n\n").stray(), None);
    assert_eq!(one("error: text\n\n").stray(), None);
}

#[test]
fn a_frame_within_one_read_shares_its_memory() {
    let read = Bytes::from_static(b"data: 1\n\ndata: 2\n\ndata");
    let mut decoder = SseDecoder::new();
    decoder.push(read.clone()).unwrap();
    let second = (decoder.next_frame(), decoder.next_frame()).1.unwrap();
    assert_eq!(second.bytes().as_ptr(), read[9..].as_ptr());
}

#[test]
fn a_frame_beyond_the_limit_is_an_error_and_the_frames_before_it_are_had() {
    let too_large = FrameTooLarge { limit: 10 };
    assert_eq!(too_large.to_string(), "an event of the stream is larger than the limit of 10 bytes");
    for cut in 0..20 {
        let stream = b"data: 12\n\ndata: 123\n\ndata: 1\n\n";
        let mut decoder = SseDecoder::with_limit(10);
        let pushed =
            [&stream[..cut], &stream[cut..]].map(|piece| decoder.push(Bytes::copy_from_slice(piece)));
        assert!(pushed.contains(&Err(too_large)), "cut at {cut}");
        assert_eq!(decoder.push(Bytes::from_static(b"\n\n")), Err(too_large), "for good");
        assert_eq!(decoder.next_frame().unwrap().bytes(), "data: 12\n\n");
        assert!(decoder.next_frame().is_none());
    }
    let mut decoder = SseDecoder::with_limit(10);
    assert_eq!(decoder.push(Bytes::from_static(b"data: no blank line")), Err(too_large));
}

#[test]
fn many_small_reads_of_one_large_frame_are_linear_work() {
    let mut decoder = SseDecoder::new();
    let piece = Bytes::from(vec![b'x'; 16]);
    for _ in 0..(8 << 20) / 16 {
        decoder.push(piece.clone()).unwrap();
    }
    decoder.push(Bytes::from_static(b"\n\n")).unwrap();
    assert_eq!(decoder.next_frame().unwrap().bytes().len(), (8 << 20) + 2);
}

#[test]
fn written_data_stands_on_one_line() {
    assert_eq!(write_data(b"{\n \"a\": 1\r\n}"), "data: {  \"a\": 1  }\n\n");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_gives_the_same_frames_and_the_frames_are_the_stream(
        stream in "(\u{feff})?(data: |data:|event: x|: |id|é😀|\\{\"a\":1\\}|\n|\r|\r\n|\n\n|\r\n\r\n|\r\r|\u{feff}){0,30}",
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let stream = stream.as_bytes();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|w| &stream[w[0]..w[1]]).collect();
        let (whole, cut) = (decode(&[stream]), decode(&pieces));
        prop_assert_eq!(texts(&whole), texts(&cut));
        prop_assert_eq!(whole.iter().map(data).collect::<Vec<_>>(), cut.iter().map(data).collect::<Vec<_>>());
        let joined: Vec<u8> = whole.iter().flat_map(|frame| frame.bytes().to_vec()).collect();
        prop_assert_eq!(joined, stream);
        for frame in &whole {
            let lines = std::str::from_utf8(frame.bytes()).unwrap().replace("\r\n", "\n").replace('\r', "\n");
            let lines = lines.trim_start_matches('\u{feff}');
            let blank = lines.find("\n\n").is_none_or(|at| at + 2 == lines.len());
            prop_assert!(blank, "a blank line ends its frame: {:?}", frame);
        }
    }

    #[test]
    fn any_bytes_are_framed_byte_by_byte_as_at_once(
        stream in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..60),
    ) {
        let pieces: Vec<_> = stream.chunks(1).collect();
        let (whole, cut) = (decode(&[&stream]), decode(&pieces));
        let bytes = |frames: &[SseFrame]| frames.iter().map(|frame| frame.bytes().clone()).collect::<Vec<_>>();
        prop_assert_eq!(bytes(&whole), bytes(&cut));
        prop_assert_eq!(bytes(&whole).concat(), stream);
    }
}
