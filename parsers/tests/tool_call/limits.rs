//! Texts that are nested beyond all reason, and Python that is a program: no call, no crash, every byte stays text.

use switchback_parsers::event::Folded;
use switchback_parsers::schema::ToolSet;
use switchback_parsers::tool_call::{Options, TextParser};

const TOOLS: &str = r#"[
    {"type": "function", "function": {"name": "edit", "parameters": {"type": "object", "properties": {
        "path": {"type": "string"}, "line": {"type": "integer"}, "all": {"type": "boolean"},
        "opts": {"type": "object"}}, "required": []}}},
    {"type": "function", "function": {"name": "bash", "parameters": {"type": "object",
        "properties": {"command": {"type": "string"}}, "required": ["command"]}}},
    {"type": "function", "function": {"name": "write_file", "parameters": {"type": "object", "properties": {
        "path": {"type": "string"}, "content": {"type": "string"}}, "required": ["path", "content"]}}}]"#;
/// Far beyond what a stack of any size would take.
const LEVELS: usize = 100_000;
/// An eighth of what a thread gets.
const STACK: usize = 256 << 10;

fn read(pieces: &[&str]) -> Folded {
    let options = Options { tools: ToolSet::from_json(TOOLS), parallel: true, ..Options::default() };
    let mut parser = TextParser::new(options);
    let mut events: Vec<_> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
    let (last, finish_reason) = parser.finish("stop");
    events.extend(last);
    Folded { finish_reason, ..Folded::of(events) }
}

/// The text in pieces of so many bytes; it is ASCII.
fn pieces(text: &str, length: usize) -> Vec<&str> {
    text.as_bytes().chunks(length).map(|piece| std::str::from_utf8(piece).unwrap()).collect()
}

/// The openings of calls whose last value is still to come, and their ends.
const FRAMES: &[(&str, &str)] = &[
    ("<|tool_call>call:edit{path:<|\"|>p<|\"|>,opts:", "}<tool_call|>"),
    ("call:edit{path:<|\"|>p<|\"|>,opts:", "}<tool_call|>"),
    ("<start_function_call>call:edit{opts:", "}<end_function_call>"),
    ("[edit(path=\"p\",opts=", ")]"),
    ("edit(path=\"p\",opts=", ")"),
    ("<|tool_call_start|>[edit(path=\"p\",opts=", ")]<|tool_call_end|>"),
    ("```python\nedit(path=\"p\",opts=", ")\n```"),
    ("<tool_call>{\"name\":\"edit\",\"arguments\":{\"opts\":", "}}</tool_call>"),
    ("<tool_call><function=edit><parameter=opts>", "</parameter></function></tool_call>"),
];
const NESTS: &[(&str, &str)] =
    &[("{a:", "}"), ("{\"a\":", "}"), ("{'a': ", "}"), ("[", "]"), ("(", ")"), ("[{\"a\":", "}]")];

/// Each frame with each nest, never closed and closed.
fn texts() -> impl Iterator<Item = String> {
    FRAMES.iter().flat_map(|(head, tail)| {
        // In braces, what begins with a parenthesis is bare text.
        let nests = NESTS.iter().filter(|(open, _)| *open != "(" || head.contains('('));
        nests.flat_map(move |(open, close)| {
            let value = open.repeat(LEVELS);
            [format!("{head}{value}"), format!("{head}{value}1{}{tail}", close.repeat(LEVELS))]
        })
    })
}

fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(test).unwrap();
    assert!(thread.join().is_ok());
}

#[test]
fn nesting_beyond_the_limit_is_text_and_takes_no_stack() {
    on_a_small_stack(|| {
        for text in texts().filter(|text| !text.starts_with("<tool_call>")) {
            let head = &text[..60];
            for length in [text.len(), 997] {
                let answer = read(&pieces(&text, length));
                assert!(answer.content == text && answer.calls.is_empty(), "{head} in pieces of {length}");
            }
        }
    });
}

#[test]
fn other_grammars_take_no_stack_either() {
    on_a_small_stack(|| {
        for text in texts().filter(|text| text.starts_with("<tool_call>")) {
            let whole = read(&[&text]);
            assert_eq!(whole.finish_reason == "stop", whole.calls.is_empty(), "{}", &text[..60]);
        }
    });
}

#[test]
fn the_limit_is_where_strict_parsers_stop_whatever_the_cuts() {
    for (levels, calls) in [(126, 1), (127, 0)] {
        for (head, tail) in &FRAMES[..7] {
            for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
                let text = format!("{head}{}1{}{tail}", open.repeat(levels), close.repeat(levels));
                for length in [text.len(), 7, 1] {
                    let answer = read(&pieces(&text, length));
                    assert_eq!(answer.calls.len(), calls, "{levels} levels in {}", &text[..60]);
                    for call in &answer.calls {
                        let arguments = serde_json::from_str::<serde_json::Value>(&call.arguments);
                        assert!(arguments.is_ok(), "{levels} levels in {}", &text[..60]);
                    }
                }
            }
        }
    }
}

/// Each as it is, behind a marker, and in a fence.
fn python(call: &str) -> [String; 4] {
    [
        format!("[{call}]"),
        call.to_owned(),
        format!("<|tool_call_start|>[{call}]<|tool_call_end|>"),
        format!("```python\n{call}\n```"),
    ]
}

#[test]
fn an_expression_of_strings_is_a_program_and_no_call() {
    let expressions = [
        r#""a" + "b""#,
        r#""a"+"b""#,
        r#""a"+x+"b""#,
        r#""a" "b""#,
        r#""a""b""#,
        r#""a"'b'"#,
        r#""a"f"b""#,
        r#"'a'f'b'"#,
        r#""a" + f"b""#,
        r#""a"-''"b""#,
        r#"''f"b"'c'"#,
        r#""a"+3or"b""#,
        r#""rm" if x == "y" else "ls""#,
        r#""rm"if x=="y"else"ls""#,
        r#"'rm'if x=='y'else'ls'"#,
        r#"'rm'if x else'ls'"#,
        r#""x" or "y""#,
        r#""x"or"y""#,
        r#""x" and not "y""#,
        r#""x" in "y""#,
        r#""x" == "y""#,
        r#""rm %s" % "x""#,
        r#""rm %s"%"x""#,
        r#""-".join("x")"#,
        r#"" ".join(["x", "y"])"#,
        r#""x"["y"]"#,
        r#""x" * 3"#,
        r#"'it's' + 'x'"#,
        r#""x"+y, other="z""#,
        "\"a\"\n  \"b\"",
    ];
    for expression in expressions {
        for text in python(&format!("bash(command={expression})")) {
            for length in [text.len(), 3, 1] {
                let answer = read(&pieces(&text, length));
                assert_eq!((answer.content.as_str(), answer.calls.len()), (text.as_str(), 0));
            }
        }
    }
    let text = "[write_file(path='a', content='x' + 'y')]";
    assert_eq!(read(&[text]).content, text);
}

#[test]
fn an_inner_quote_with_one_reading_is_text_of_its_string() {
    for command in [
        "sed -n '10,20p' notes.txt",
        "sed 's/a/b/' notes.txt",
        "awk '{print $1}' notes.txt",
        "grep '[a-z]' notes.txt",
        "find . -name '*.rs'",
        "ls '/tmp' -l",
        "echo '$x' | wc -l",
        "echo it's",
        "echo I'd say 'yes' now",
    ] {
        let double = command.replace('\'', "\"");
        let words = command.contains("it's") || command.contains("I'd");
        for (quote, command) in [("'", command), ("\"", &double)] {
            if words && quote == "\"" {
                continue;
            }
            for text in python(&format!("bash(command={quote}{command}{quote})")) {
                for length in [text.len(), 3, 1] {
                    let answer = read(&pieces(&text, length));
                    let got: Vec<_> = answer.calls.iter().map(|call| call.arguments.as_str()).collect();
                    let want = serde_json::json!({"command": command}).to_string().replace("\":\"", "\": \"");
                    assert_eq!(got, [want.as_str()], "{text}");
                }
            }
        }
    }
}

#[test]
fn parentheses_around_one_value_are_no_list() {
    for (value, want) in
        [("(\"a\")", "\"a\""), ("((1))", "1"), ("(1,)", "[1]"), ("(1, 2)", "[1, 2]"), ("()", "[]")]
    {
        let answer = read(&[&format!("[edit(x={value})]")]);
        assert_eq!(answer.calls[0].arguments, format!("{{\"x\": {want}}}"));
    }
}
