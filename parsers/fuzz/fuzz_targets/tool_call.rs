//! Any answer in any pieces: the same message, nothing left behind, and the arguments of a whole call are one JSON object.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use switchback_parsers::event::{Event, Folded};
use switchback_parsers::tool_call::{Options, TextParser};

const TOOLS: &str = r#"[
    {"type":"function","function":{"name":"read_file","parameters":{"type":"object","properties":{
        "path":{"type":"string"},"lines":{"type":"integer"},"all":{"type":"boolean"},"more":{"type":"array"}},
        "required":["path"]}}},
    {"type":"function","function":{"name":"now","parameters":{"type":"object","properties":{}}}}
]"#;
const REQUESTS: [&str; 4] =
    ["{}", r#"{"thinking_open":true}"#, r#"{"tool_choice":"required"}"#, r#"{"parallel_tool_calls":false}"#];

fn answer<'t>(request: &str, finish: &str, pieces: impl Iterator<Item = &'t str>) -> Folded {
    let mut parser = TextParser::new(Options::from_json(TOOLS, request));
    let mut events: Vec<Event> = pieces.flat_map(|piece| parser.push(piece)).collect();
    let (last, finish_reason) = parser.finish(finish);
    events.extend(last);
    assert_eq!(parser.held(), 0);
    Folded { finish_reason, ..Folded::of(events) }
}

fuzz_target!(|input: (&str, u8, u8)| {
    let (text, size, how) = input;
    let request = REQUESTS[usize::from(how) % REQUESTS.len()];
    let finish = if how & 128 == 0 { "stop" } else { "length" };
    let whole = answer(request, finish, std::iter::once(text));
    let characters: Vec<(usize, char)> = text.char_indices().collect();
    let pieces = characters.chunks(usize::from(size) + 1).map(|piece| {
        let (last, c) = piece[piece.len() - 1];
        &text[piece[0].0..last + c.len_utf8()]
    });
    let cut = answer(request, finish, pieces);
    let shown = |folded: &Folded| {
        let Folded { content, reasoning, calls, finish_reason, .. } = folded.clone();
        (content, reasoning, calls, finish_reason)
    };
    assert_eq!(shown(&whole), shown(&cut));
    for call in whole.calls.iter().filter(|call| call.closed) {
        let arguments: Value = serde_json::from_str(&call.arguments).expect("arguments are JSON");
        assert!(arguments.is_object());
    }
});
