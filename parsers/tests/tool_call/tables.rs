//! Answers written by hand against this parser, one a line in `cases/*.jsonl`, with the number of their case in CASES.md: damage,
//! every family, talk about calls, mixtures and requests of every kind. Text is compared to the byte, and at every cut.

use std::path::Path;

use serde_json::{Value, json};
use switchback_parsers::event::Folded;
use switchback_parsers::tool_call::{Options, TextParser};

/// The tools of all lines.
pub(crate) fn tools() -> Value {
    let tool = |name: &str, properties: Value, required: Value| {
        json!({"type": "function", "function": {"name": name, "parameters":
            {"type": "object", "properties": properties, "required": required}}})
    };
    let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
    json!([
        tool("bash", json!({"command": text, "timeout": number}), json!(["command"])),
        tool("write_file", json!({"path": text, "content": text}), json!(["path", "content"])),
        tool(
            "read_file",
            json!({"path": text, "lines": number, "all": {"type": "boolean"}}),
            json!(["path"])
        ),
        tool(
            "search",
            json!({"query": text, "tags": {"type": "array", "items": text}, "limit": number,
                "ratio": {"type": "number"}, "opts": {"type": "object"}, "since": {"type": ["string", "integer", "null"]}, "free": {}}),
            json!(["query"])
        ),
        tool("now", json!({}), json!([])),
    ])
}

/// The answer to these pieces.
pub(crate) fn read<'t>(pieces: impl IntoIterator<Item = &'t str>, request: &Value) -> Folded {
    let mut parser = TextParser::new(Options::from_json(&tools().to_string(), &request.to_string()));
    let mut events = Vec::new();
    if let Some(reasoning) = request["upstream_reasoning"].as_str() {
        events.extend(parser.push_reasoning(reasoning));
    }
    events.extend(pieces.into_iter().flat_map(|piece| parser.push(piece)));
    let (last, finish_reason) = parser.finish(request["upstream_finish"].as_str().unwrap_or("stop"));
    events.extend(last);
    assert_eq!(parser.held(), 0, "text is still held at the end");
    Folded { finish_reason, ..Folded::of(events) }
}

/// What a client sees of it.
pub(crate) fn shown(answer: &Folded) -> Value {
    let arguments = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    let calls: Vec<Value> =
        answer.calls.iter().map(|call| json!([call.name, arguments(&call.arguments)])).collect();
    json!({"content": answer.content, "reasoning": answer.reasoning, "calls": calls, "finish": answer.finish_reason})
}

fn lines() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tool_call/cases");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let texts = files.iter().map(|file| std::fs::read_to_string(file).unwrap());
    texts
        .flat_map(|text| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<_>>())
        .collect()
}

#[test]
fn each_answer_is_read_as_its_line_says_whatever_the_cuts() {
    let lines = lines();
    assert!(lines.len() > 350, "{}", lines.len());
    for line in lines {
        let (id, text, request) = (&line["id"], line["text"].as_str().unwrap(), &line["request"]);
        let want = json!({"content": line["content"], "reasoning": line["reasoning"].as_str().unwrap_or_default(),
            "calls": line["calls"], "finish": line["finish"]});
        let whole = read([text], request);
        assert_eq!(shown(&whole), want, "{id}: {text}");
        for at in (1..text.len()).filter(|at| text.is_char_boundary(*at)) {
            let (before, behind) = text.split_at(at);
            assert_eq!(shown(&read([before, behind], request)), want, "{id} cut at {at}: {text}");
        }
        let letters = text.split_inclusive(|_| true);
        assert_eq!(shown(&read(letters, request)), want, "{id} by letters: {text}");
    }
}

#[test]
fn each_number_of_a_case_has_its_row() {
    let rows = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tool_call/CASES.md"))
        .unwrap();
    for line in lines() {
        let number = line["case"].as_str().unwrap();
        assert!(rows.contains(&format!("\n| {number} |")), "{}: there is no case {number}", line["id"]);
    }
}
