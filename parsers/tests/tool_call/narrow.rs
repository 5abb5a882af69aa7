//! A known family narrows what is looked for: its own calls are read as before, all other markers are text.

use switchback_parsers::event::Folded;
use switchback_parsers::schema::ToolSet;
use switchback_parsers::tool_call::{Options, TextParser, format_names};

use crate::corpus::cases;

/// The corpus's names of families, where they are others than the table's.
const NAMES: &[(&str, &str)] = &[
    ("deepseek_v3", "deepseek"),
    ("deepseek_v31", "deepseek"),
    ("deepseek_r1", "deepseek"),
    ("deepseek_v32", "deepseek_dsml"),
    ("deepseek_v4", "deepseek_dsml"),
    ("deepseek_v41", "deepseek_dsml"),
    ("glm45", "glm"),
    ("glm47", "glm"),
    ("hunyuan_v3", "jamba"),
    ("hunyuan_a13b", "jamba"),
    ("minimax_m1", "jamba"),
    ("step3", "deepseek"),
    ("minicpm5", "qwen_xml"),
    ("functionary_v32", "functionary"),
    ("olmo3", "invoke_xml"),
    ("gemma3", "pythonic"),
    ("fenced_json", "bare_json"),
    ("xlam", "bare_json"),
    ("granite3", "granite"),
    ("ernie45", "hermes"),
];

/// Read as that of a backend whose format is configured, or only supposed.
fn read(text: &str, format: Option<&str>, family: Option<&str>) -> Folded {
    let tools = r#"[{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]"#;
    let (tools, parallel) = (ToolSet::from_json(tools), true);
    let (format, family) = (format.map(str::to_owned), family.map(str::to_owned));
    let mut parser = TextParser::new(Options { tools, format, family, parallel, ..Options::default() });
    let mut events = parser.push(text);
    events.extend(parser.finish("stop").0);
    Folded::of(events)
}

#[test]
fn a_family_that_is_known_is_read_as_before() {
    let (names, mut wrong) = (format_names(), Vec::new());
    for case in cases() {
        let clean = case.line["kind"] == "clean";
        let written = case.line["format"].as_str().unwrap();
        let name = NAMES.iter().find(|(known, _)| *known == written).map_or(written, |(_, name)| name);
        if matches!(written, "reasoning" | "truncated" | "prose" | "no_tools" | "tool_choice_none") {
            continue;
        }
        if !names.contains(&name) {
            assert!(!clean, "{name}");
            continue;
        }
        let narrowed = if clean { case.complaints(&case.run_narrowed(name)) } else { Vec::new() };
        for complaints in [narrowed, case.complaints(&case.run_hinted(name))] {
            wrong
                .extend((!complaints.is_empty()).then(|| format!("{} as {name}: {complaints:?}", case.id())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn markers_of_other_families_are_text_then() {
    let hermes = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let mistral = "[TOOL_CALLS]now[ARGS]{}";
    let gemma = "<|tool_call>call:now{}<tool_call|>";
    let bare = "{\"name\": \"now\", \"arguments\": {}}";
    let opener_lost = format!("{bare}\n</tool_call>");
    for (format, text, calls) in [
        ("hermes", hermes, 1),
        ("hermes", mistral, 0),
        ("hermes", gemma, 0),
        ("hermes", bare, 0),
        ("hermes", &opener_lost, 1),
        ("qwen_xml", hermes, 1),
        ("mistral", mistral, 1),
        ("mistral", hermes, 0),
        ("gemma4", gemma, 1),
        ("gemma4", bare, 0),
        ("bare_json", bare, 1),
        ("bare_json", gemma, 0),
        ("no such format", gemma, 1),
    ] {
        let answer = read(text, Some(format), None);
        assert_eq!(answer.calls.len(), calls, "{text} as {format}");
        assert!(calls == 1 || answer.content == text, "{text} as {format}: {}", answer.content);
    }
}

#[test]
fn markers_of_other_families_count_where_the_family_is_only_supposed() {
    let hermes = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let bare = "{\"name\": \"now\", \"arguments\": {}}";
    let opener_lost = format!("{bare}\n</tool_call>");
    for (family, text, calls) in [
        ("mistral", hermes, 1),
        ("qwen_xml", hermes, 1),
        ("glm", hermes, 1),
        ("hermes", "[TOOL_CALLS]now[ARGS]{}", 1),
        ("hermes", &opener_lost, 1),
        // Plain tags are not lost on the way, special tokens are.
        ("hermes", bare, 0),
        ("qwen_xml", bare, 0),
        ("mistral", bare, 1),
        ("llama3_json", bare, 1),
        ("no such format", bare, 1),
    ] {
        let answer = read(text, None, Some(family));
        assert_eq!(answer.calls.len(), calls, "{text} as {family}");
        assert!(calls == 1 || answer.content == text, "{text} as {family}: {}", answer.content);
    }
}
