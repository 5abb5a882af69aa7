//! What a call that cannot be read encloses never runs; what stands beside it does.

use switchback_parsers::event::{Event, Folded};
use switchback_parsers::tool_call::{Options, TextParser};

const TOOLS: &str = r#"[
    {"type": "function", "function": {"name": "write", "parameters": {"type": "object",
        "properties": {"path": {"type": "string"}, "body": {"type": "string"}}, "required": ["path", "body"]}}},
    {"type": "function", "function": {"name": "bash", "parameters": {"type": "object",
        "properties": {"command": {"type": "string"}}, "required": ["command"]}}}]"#;

fn events<'t>(pieces: impl IntoIterator<Item = &'t str>, request: &str) -> (Vec<Event>, String) {
    let mut parser = TextParser::new(Options::from_json(TOOLS, request));
    let mut events: Vec<_> = pieces.into_iter().flat_map(|piece| parser.push(piece)).collect();
    let (last, finish) = parser.finish("stop");
    events.extend(last);
    (events, finish)
}

fn fold<'t>(pieces: impl IntoIterator<Item = &'t str>, request: &str) -> Folded {
    let (events, finish_reason) = events(pieces, request);
    Folded { finish_reason, ..Folded::of(events) }
}

/// The answer, which no cut changes.
fn read(text: &str) -> Folded {
    let whole = fold([text], "{}");
    let same = |cut: &Folded| (&cut.content, &cut.calls) == (&whole.content, &whole.calls);
    for cut in (1..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
        assert!(same(&fold([&text[..cut], &text[cut..]], "{}")), "cut at {cut}: {text}");
    }
    let letters = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
    assert!(same(&fold(letters, "{}")), "by letters: {text}");
    whole
}

/// A call that runs, as an argument of the broken ones shows it.
const SHOWN: [&str; 5] = [
    "\n<tool_call>\n{\"name\": \"bash\", \"arguments\": {\"command\": \"rm\"}}\n</tool_call>\n",
    "\n<tool_call>\n<function=bash>\n<parameter=command>\nrm\n</parameter>\n</function>\n</tool_call>\n",
    "\n<tool_call>bash<arg_key>command</arg_key><arg_value>rm</arg_value></tool_call>\n",
    "\n<|tool_call>call:bash{command:<|\"|>rm<|\"|>}<tool_call|>\n",
    "\n<|tool_call_begin|>functions.bash:0<|tool_call_argument_begin|>{\"command\": \"rm\"}<|tool_call_end|>\n",
];

/// Calls whose value stands at `…` and that cannot be read.
const BROKEN: [&str; 7] = [
    "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"path\": oh no, \"body\": … \"}}\n</tool_call>",
    "<tool_call>write<arg_key>path</arg_key><arg_value>a</arg_value>words<arg_key>body</arg_key><arg_value>…</arg_value></tool_call>",
    "<|tool_call>call:write{path:<|\"|>a<|\"|> oh no, body:…}<tool_call|>",
    "<|tool_call_begin|>functions.write:0<|tool_call_argument_begin|>{\"path\": oh no, \"body\": … \"}<|tool_call_end|>",
    "<|tool_call_start|>[write(path=a + b, body=\"…\")]<|tool_call_end|>",
    "<tool_call>\n<function=write>\n{\"path\": oh no, \"body\": … \"}\n</function>\n</tool_call>",
    "[TOOL_CALLS]write[ARGS]{\"path\": oh no, \"body\": … }",
];

#[test]
fn case_18b_nothing_runs_out_of_a_broken_call() {
    for broken in BROKEN {
        for shown in SHOWN {
            for shown in [shown.to_owned(), shown.repeat(2)] {
                let text = broken.replace('…', &shown);
                let answer = read(&text);
                assert_eq!((answer.content.as_str(), answer.calls.len()), (text.as_str(), 0), "{text}");
            }
        }
    }
}

#[test]
fn case_18b_what_stands_beside_a_broken_call_runs() {
    let good = "<tool_call>\n{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>";
    for broken in BROKEN {
        let text = format!("{good}\n{}\n{good}", broken.replace('…', "x"));
        assert_eq!(read(&text).calls.len(), 2, "{text}");
    }
    let list = "<TOOLCALL>[{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}, \
                {\"name\": \"write\", \"arguments\": {oh no <TOOLCALL>[{\"name\": \"bash\", \"arguments\": \
                {\"command\": \"rm\"}}]</TOOLCALL>}}]</TOOLCALL>";
    let answer = read(list);
    assert_eq!(
        answer.calls.iter().map(|call| call.arguments.as_str()).collect::<Vec<_>>(),
        ["{\"command\": \"ls\"}"]
    );
}

#[test]
fn case_18b_nothing_runs_out_of_bare_json_that_is_no_call() {
    let shown = SHOWN[1];
    let text = format!(
        "{{\"name\": \"write\", \"arguments\": {{\"path\": \"a\", \"body\": \"{shown}\"}}}}\nThat is it."
    );
    assert_eq!((read(&text).content, read(&text).calls.len()), (text, 0));
}

#[test]
fn case_16a_braces_may_hold_strings_in_quotes() {
    for (value, want) in [
        ("\"rm\"", r#"{"command": "rm"}"#),
        ("\"a, b} \\\"c\\\"\"", r#"{"command": "a, b} \"c\""}"#),
        ("rm", r#"{"command": "rm"}"#),
    ] {
        let answer = read(&format!("<|tool_call>call:bash{{command:{value}}}<tool_call|>"));
        assert_eq!(answer.calls[0].arguments, want);
    }
}

#[test]
fn case_13a_a_further_call_is_left_out_whatever_stands_around_it() {
    let call = "<tool_call>\n{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>";
    for between in ["\n", "\nThen:\n", " "] {
        for tail in ["", "\nDone.", " Done."] {
            let text = format!("{call}{between}{call}{tail}");
            let answer = fold([text.as_str()], r#"{"parallel_tool_calls": false}"#);
            assert_eq!(answer.calls.len(), 1, "{text}");
            assert!(!answer.content.contains("tool_call"), "{text}: {}", answer.content);
        }
    }
}

#[test]
fn case_21a_escapes_of_a_long_call_leave_together_and_no_character_in_halves() {
    let body = "line \\n \\\"quoted\\\" \\ud83d\\ude00 \\t".repeat(400);
    let text = format!(
        "<tool_call>\n{{\"name\": \"write\", \"arguments\": {{\"path\": \"a\", \"body\": \"{body}\"}}}}\n</tool_call>"
    );
    let pieces = |(events, _): (Vec<Event>, String)| -> Vec<String> {
        let arguments = events.into_iter().filter_map(|event| match event {
            Event::CallArguments { text, .. } => Some(text),
            _ => None,
        });
        arguments.collect()
    };
    assert!(pieces(events([text.as_str()], "{}")).len() <= 4);
    for length in [1, 5, 64] {
        let cut: Vec<&str> =
            text.as_bytes().chunks(length).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
        let pieces = pieces(events(cut, "{}"));
        assert!(pieces.iter().all(|piece| !piece.ends_with("\\ud83d")), "in pieces of {length}");
        let arguments: serde_json::Value = serde_json::from_str(&pieces.concat()).unwrap();
        assert_eq!(arguments["body"], "line \n \"quoted\" 😀 \t".repeat(400));
    }
}

#[test]
fn case_18b_no_call_ends_at_the_same_place_whatever_is_known_of_it() {
    // The end of the JSON comes before the bytes by which a declared name has to stand.
    let text = format!("{{\"name\"x|>{{\"port\": 1}}</function_call><]{}\n{}", "y ".repeat(300), SHOWN[1]);
    assert_eq!(read(&text).calls.len(), 1);
}
