//! Calls that are longer than what is held: they stream, and still no cut changes them.

use serde_json::{Value, json};
use switchback_parsers::event::{Event, Folded};
use switchback_parsers::schema::ToolSet;
use switchback_parsers::tool_call::{Options, TextParser};

fn tools() -> String {
    json!([{"type": "function", "function": {"name": "write_note", "parameters": {"type": "object",
        "properties": {"path": {"type": "string"}, "body": {"type": "string"}, "mode": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["path", "body"]}}},
        {"type": "function", "function": {"name": "list_drawers", "parameters": {"type": "object"}}}])
    .to_string()
}

fn parser() -> TextParser {
    TextParser::new(Options { tools: ToolSet::from_json(&tools()), parallel: true, ..Options::default() })
}

/// The answer, and the most bytes that were held after any piece.
fn fold(pieces: &[&str], finish: &str) -> (Folded, usize) {
    let (mut parser, mut held, mut events) = (parser(), 0, Vec::new());
    for piece in pieces {
        events.extend(parser.push(piece));
        held = held.max(parser.held());
    }
    let (last, finish_reason) = parser.finish(finish);
    events.extend(last);
    (Folded { finish_reason, ..Folded::of(events) }, held)
}

fn by_character(text: &str) -> Vec<&str> {
    text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]).collect()
}

/// A file with everything that could confuse a parser.
fn body() -> String {
    let line = "let s = \"a \\\\ <b> </p> \t{x}\"; // naïve 東京 </parameter but not closed\n\n<parameter is no tag\n";
    line.repeat(80) + "last line\n"
}

/// The same call in every format that streams.
fn answers() -> Vec<(&'static str, String)> {
    let arguments = json!({"path": "a.rs", "body": body(), "mode": 7, "tags": ["x"]}).to_string();
    let raw = body();
    let xml = format!(
        "<function=write_note>\n<parameter=path>\na.rs\n</parameter>\n<parameter=body>\n{raw}\n</parameter>\n\
         <parameter=mode>\n7\n</parameter>\n<parameter=tags>\n[\"x\"]\n</parameter>\n</function>"
    );
    let invoke = |prefix: &str| {
        format!(
            "<{prefix}invoke name=\"write_note\">\n<{prefix}parameter name=\"path\">a.rs</{prefix}parameter>\n\
             <{prefix}parameter name=\"body\">{raw}</{prefix}parameter>\n<{prefix}parameter name=\"mode\">7</{prefix}parameter>\n\
             <{prefix}parameter name=\"tags\">[\"x\"]</{prefix}parameter>\n</{prefix}invoke>"
        )
    };
    vec![
        (
            "hermes",
            format!("<tool_call>\n{{\"name\": \"write_note\", \"arguments\": {arguments}}}\n</tool_call>"),
        ),
        (
            "fenced hermes",
            format!(
                "<tool_call>\n```json\n{{\"name\": \"write_note\", \"arguments\": {arguments}}}\n```\n</tool_call>"
            ),
        ),
        ("qwen", format!("<tool_call>\n{xml}\n</tool_call>")),
        ("bare function", xml),
        ("minimax", format!("<minimax:tool_call>\n{}\n</minimax:tool_call>", invoke(""))),
        ("dsml", format!("<｜DSML｜tool_calls>\n{}\n</｜DSML｜tool_calls>", invoke("｜DSML｜"))),
        (
            "kimi",
            format!(
                "<|tool_calls_section_begin|><|tool_call_begin|>functions.write_note:3<|tool_call_argument_begin|>{arguments}<|tool_call_end|><|tool_calls_section_end|>"
            ),
        ),
        (
            "deepseek",
            format!(
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>write_note\n```json\n{arguments}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
            ),
        ),
        ("mistral", format!("[TOOL_CALLS]write_note[CALL_ID]abc123XYZ[ARGS]{arguments}")),
        ("mistral list", format!("[TOOL_CALLS] [{{\"name\": \"write_note\", \"arguments\": {arguments}}}]")),
        (
            "harmony",
            format!(
                "<|channel|>commentary to=functions.write_note <|constrain|>json<|message|>{arguments}<|call|>"
            ),
        ),
    ]
}

#[test]
fn a_long_call_streams_in_bounded_memory_and_no_cut_changes_it() {
    let expected = json!({"path": "a.rs", "body": body(), "mode": 7, "tags": ["x"]});
    for (format, text) in answers() {
        let (whole, _) = fold(&[&text], "stop");
        let arguments: Value = serde_json::from_str(&whole.calls[0].arguments).unwrap();
        assert_eq!(arguments, expected, "{format}");
        assert!(whole.calls[0].closed, "{format}");
        assert_eq!((whole.content.trim(), whole.calls.len()), ("", 1), "{format}");
        assert_eq!(whole.finish_reason, "tool_calls", "{format}");
        let (streamed, held) = fold(&by_character(&text), "stop");
        assert_eq!((&streamed.calls, &streamed.content), (&whole.calls, &whole.content), "{format}");
        // What is held is the call, and the opener of its section.
        assert!(held <= 4096 + 32, "{format} held {held} bytes");
        for cut in (1..text.len()).step_by(97).filter(|cut| text.is_char_boundary(*cut)) {
            let (halves, _) = fold(&[&text[..cut], &text[cut..]], "stop");
            assert_eq!(
                (&halves.calls, &halves.content),
                (&whole.calls, &whole.content),
                "{format} cut at {cut}"
            );
        }
    }
}

#[test]
fn the_ends_of_a_list_and_of_its_wrapper_behind_a_long_call_are_markup() {
    let arguments = json!({"path": "a.rs", "body": body()}).to_string();
    for (opener, closers, behind) in [
        ("<TOOLCALL>[", "]</TOOLCALL>", "Done."),
        ("<tool_calls>[", "\n]\n</tool_calls>", ""),
        ("<|START_ACTION|>[", "]<|END_ACTION|>", ""),
        ("<|tool_call_start|>[", "]<|tool_call_end|>", "Done."),
        ("Action: ```json\n[", "\n]\n```", "Done."),
        ("Action: ```json\n[", "]\n``", ""),
        ("<tool_call>[", "]<|im_end|>", ""),
        ("<|tool_call|> [", "]", "Done."),
        ("[TOOL_CALLS] [", "]</s>", ""),
        ("<TOOLCALL>[", "]</TOOLC", ""),
    ] {
        let call = format!("{{\"name\": \"write_note\", \"arguments\": {arguments}}}");
        for (calls, list) in [(1, call.clone()), (2, format!("{call}, {call}"))] {
            let text = format!("{opener}{list}{closers}{behind}");
            let (whole, _) = fold(&[&text], "stop");
            assert_eq!((whole.content.as_str(), whole.calls.len()), (behind, calls), "{opener} {closers}");
            assert!(whole.calls.iter().all(|call| call.closed), "{opener} {closers}");
            let (streamed, _) = fold(&by_character(&text), "stop");
            assert_eq!(
                (&streamed.calls, &streamed.content),
                (&whole.calls, &whole.content),
                "{opener} {closers}"
            );
        }
    }
}

#[test]
fn a_long_call_that_was_cut_stays_open_and_says_length() {
    for (format, text) in answers() {
        let cut = text.find("last line").unwrap();
        for finish in ["length", "stop"] {
            let (answer, _) = fold(&[&text[..cut]], finish);
            assert_eq!(answer.calls.len(), 1, "{format}");
            assert!(!answer.calls[0].closed, "{format}");
            assert!(serde_json::from_str::<Value>(&answer.calls[0].arguments).is_err(), "{format}");
            assert_eq!((answer.finish_reason.as_str(), answer.content.as_str()), ("length", ""), "{format}");
        }
    }
}

#[test]
fn what_follows_a_long_call_is_read_as_after_a_short_one() {
    for (format, text) in answers().into_iter().filter(|(format, _)| *format != "harmony") {
        let second = "<tool_call>\n{\"name\": \"list_drawers\", \"arguments\": {}}\n</tool_call>";
        let answer = format!("First.\n{text}\n{second}\n<tool_response>\nmade up");
        let (whole, _) = fold(&[&answer], "stop");
        let names: Vec<_> = whole.calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(names, ["write_note", "list_drawers"], "{format}");
        assert_eq!(whole.content.trim(), "First.", "{format}");
        let (streamed, _) = fold(&by_character(&answer), "stop");
        assert_eq!((streamed.calls, streamed.content), (whole.calls, whole.content), "{format}");
    }
}

#[test]
fn objects_behind_a_long_one_in_the_same_wrapper_are_calls_too() {
    let long = json!({"name": "write_note", "arguments": {"path": "a", "body": body()}});
    let short = json!({"name": "list_drawers", "arguments": {}});
    for text in [
        format!("<tool_call>\n{long}\n{short}\n</tool_call>"),
        format!("<TOOLCALL>[{long}, {short}]</TOOLCALL> Done."),
    ] {
        let (whole, _) = fold(&[&text], "stop");
        assert_eq!(whole.calls.len(), 2, "{:?}", whole.content);
        assert!(whole.content.is_empty() || whole.content == " Done.", "{:?}", whole.content);
        let (streamed, _) = fold(&by_character(&text), "stop");
        assert_eq!((streamed.calls, streamed.content), (whole.calls, whole.content));
    }
}

#[test]
fn raw_newlines_in_a_long_string_are_escaped_as_they_stream() {
    let text = format!(
        "<tool_call>\n{{\"name\": \"write_note\", \"arguments\": {{\"path\": \"a\", \"body\": \"{}\"}}}}\n</tool_call>",
        "one\n\ttwo \\d\n".repeat(600)
    );
    let (whole, _) = fold(&by_character(&text), "stop");
    let arguments: Value = serde_json::from_str(&whole.calls[0].arguments).unwrap();
    assert_eq!(arguments["body"], "one\n\ttwo \\d\n".repeat(600));
}

#[test]
fn a_long_value_leaves_before_the_call_closes() {
    let (mut parser, text) =
        (parser(), format!("<tool_call>\n<function=write_note>\n<parameter=body>\n{}", body()));
    let events = parser.push(&text);
    assert!(matches!(&events[..], [.., Event::CallArguments { .. }, _] | [.., Event::CallArguments { .. }]));
    let sent: usize = events
        .iter()
        .map(|event| if let Event::CallArguments { text, .. } = event { text.len() } else { 0 })
        .sum();
    assert!(sent > body().len() - 100, "only {sent} bytes left");
}

#[test]
fn a_damaged_long_call_gives_one_answer_whatever_the_cuts() {
    const SCRAPS: &[&str] = &[
        "\"",
        "\\",
        "}",
        "{",
        "\n",
        "</parameter>",
        "</function>",
        "<parameter=path>",
        "`",
        ",",
        "<",
        "</tool_call>",
    ];
    let mut state = 0x5EED_u64;
    let mut roll = |sides: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % sides
    };
    for round in 0..200 {
        let all = answers();
        let (format, mut text) = all[roll(all.len())].clone();
        for _ in 0..1 + roll(3) {
            let at = (roll(text.len())..text.len()).find(|at| text.is_char_boundary(*at)).unwrap();
            match roll(3) {
                0 => text.insert_str(at, SCRAPS[roll(SCRAPS.len())]),
                1 => text.truncate(at),
                _ => drop(text.remove(at)),
            }
            if text.is_empty() {
                text.push('x');
            }
        }
        let finish = if roll(2) == 0 { "stop" } else { "length" };
        let (whole, _) = fold(&[&text], finish);
        let (mut pieces, mut at) = (Vec::new(), 0);
        while at < text.len() {
            let end =
                (at + 1 + roll(60)..).find(|end| *end >= text.len() || text.is_char_boundary(*end)).unwrap();
            pieces.push(&text[at..end.min(text.len())]);
            at = end;
        }
        let (streamed, _) = fold(&pieces, finish);
        let answer =
            |folded: &Folded| (folded.calls.clone(), folded.content.clone(), folded.finish_reason.clone());
        assert_eq!(answer(&streamed), answer(&whole), "{format}, round {round}, {finish}: {text:?}");
        for call in whole.calls.iter().filter(|call| call.closed) {
            assert!(
                serde_json::from_str::<Value>(&call.arguments).is_ok_and(|value| value.is_object()),
                "{text:?}"
            );
        }
    }
}
