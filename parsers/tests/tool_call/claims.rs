//! Claims that no corpus line makes; the numbers are those of `CASES.md`.

use switchback_parsers::event::{Event, Folded, Note};
use switchback_parsers::schema::ToolSet;
use switchback_parsers::tool_call::{Options, TextParser, ToolChoice, Utf8};

const TOOLS: &str = r#"[
    {"type": "function", "function": {"name": "run_shell", "parameters": {"type": "object",
        "properties": {"cmd": {"type": "string"}, "env": {"type": "object"}}, "required": ["cmd"]}}},
    {"type": "function", "function": {"name": "list_drawers", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "mcp__srv__get-item", "parameters": {"type": "object",
        "properties": {"ids": {"type": "array", "items": {"type": "integer"}}}, "required": ["ids"]}}}]"#;

fn options() -> Options {
    Options { tools: ToolSet::from_json(TOOLS), parallel: true, ..Options::default() }
}

fn read(options: Options, text: &str, finish: &str) -> Folded {
    let mut parser = TextParser::new(options);
    let mut events = parser.push(text);
    let (last, finish_reason) = parser.finish(finish);
    events.extend(last);
    Folded { finish_reason, ..Folded::of(events) }
}

/// Reads a whole answer that the model ended itself.
fn answer(text: &str) -> Folded {
    read(options(), text, "stop")
}

fn called(answer: &Folded) -> Vec<(&str, &str)> {
    answer.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect()
}

#[test]
fn case_1_without_tools_or_with_none_every_byte_passes() {
    let text = " <think>x</think>\n<tool_call>{\"name\": \"list_drawers\", \"arguments\": {}}</tool_call><|im_end|> ";
    for options in [
        Options { parallel: true, ..Options::default() },
        Options { tool_choice: ToolChoice::None, ..options() },
    ] {
        let answer = read(options, text, "stop");
        assert_eq!((answer.content.as_str(), answer.calls.len()), (text, 0));
    }
}

#[test]
fn case_4_a_call_amid_a_sentence_is_talk() {
    for text in [
        "The model writes <tool_call>{\"name\": \"list_drawers\", \"arguments\": {}}</tool_call> when it calls.",
        "Say <function=run_shell><parameter=cmd>ls</parameter></function> and wait.",
    ] {
        assert_eq!(answer(text).content, text);
    }
    let meant = "Looking. <tool_call>{\"name\": \"list_drawers\", \"arguments\": {}}</tool_call>\nThere.";
    assert_eq!(called(&answer(meant)), [("list_drawers", "{}")]);
}

#[test]
fn case_5_fences_of_both_kinds_are_documentation_when_more_follows() {
    for fence in ["```", "~~~"] {
        let text = format!(
            "{fence}xml\n<tool_call>\n{{\"name\": \"list_drawers\", \"arguments\": {{}}}}\n</tool_call>\n{fence}\nSo."
        );
        assert_eq!(answer(&text).content, text);
    }
}

#[test]
fn case_9_a_name_alone_is_no_call_if_another_key_may_hold_its_arguments() {
    let text = "<tool_call>\n{\"name\": \"run_shell\", \"argumants\": {\"cmd\": \"ls\"}}\n</tool_call>";
    assert_eq!((answer(text).content.as_str(), answer(text).calls.len()), (text, 0));
}

#[test]
fn case_14_a_name_in_another_spelling_is_noted() {
    let answer =
        answer("<tool_call>{\"name\": \"mcp__srv__get_item\", \"arguments\": {\"ids\": [1]}}</tool_call>");
    assert_eq!(answer.calls[0].name, "mcp__srv__get-item");
    assert!(answer.notes.iter().any(|note| matches!(note, Note::Renamed { .. })));
}

#[test]
fn case_17_a_lost_end_of_a_value_never_swallows_the_next_parameter() {
    let text = "<tool_call>run_shell<arg_key>cmd</arg_key><arg_value>ls<arg_key>env</arg_key>\
                <arg_value>{}</arg_value></tool_call>";
    assert_eq!(called(&answer(text)), [("run_shell", "{\"cmd\": \"ls\", \"env\": {}}")]);
}

#[test]
fn case_20_a_cut_in_a_section_keeps_the_calls_before_it() {
    let text = "[TOOL_CALLS] [{\"name\": \"list_drawers\", \"arguments\": {}}, {\"name\": \"run_shell\", \"arguments\": {\"c";
    let answer = read(options(), text, "length");
    assert_eq!(called(&answer), [("list_drawers", "{}")]);
    assert_eq!((answer.content.as_str(), answer.finish_reason.as_str()), ("", "length"));
}

#[test]
fn case_20_a_finish_reason_of_the_backend_that_outranks_calls_stays() {
    let text = "<tool_call>{\"name\": \"list_drawers\", \"arguments\": {}}</tool_call>";
    assert_eq!(read(options(), text, "content_filter").finish_reason, "content_filter");
    assert_eq!(read(options(), "Hi", "tool_calls").finish_reason, "stop");
}

#[test]
fn case_22_an_argument_may_speak_of_the_tags_of_reasoning() {
    let text = "<think>\nplan\n</think>\n<tool_call>\n<function=run_shell>\n<parameter=cmd>\necho\n</think>\n<think>\n\
                </parameter>\n</function>\n</tool_call>";
    let answer = answer(text);
    assert_eq!(answer.calls[0].arguments, "{\"cmd\": \"echo\\n</think>\\n<think>\"}");
    assert_eq!(answer.reasoning.trim(), "plan");
}

#[test]
fn case_23_a_draft_in_a_thought_is_a_call_only_if_nothing_follows() {
    let draft = "<think>\nplan\n<tool_call>\n{\"name\": \"list_drawers\", \"arguments\": {}}\n</tool_call>\n";
    assert_eq!(answer(&format!("{draft}</think>\n")).calls.len(), 1);
    assert_eq!(answer(&format!("{draft}No, wait.\n</think>\n")).calls.len(), 0);
    let spoken = answer(&format!("{draft}</think>\nHello"));
    assert_eq!((spoken.calls.len(), spoken.content.as_str()), (0, "Hello"));
}

#[test]
fn case_24_text_leaves_at_once_and_only_what_may_be_a_marker_is_held() {
    let mut parser = TextParser::new(options());
    assert_eq!(parser.push("The answer is "), [Event::Text("The answer is ".to_owned())]);
    assert_eq!(parser.push("a <too"), [Event::Text("a ".to_owned())]);
    assert_eq!(parser.held(), 4);
    assert_eq!(parser.push("th"), [Event::Text("<tooth".to_owned())]);
    assert_eq!(parser.held(), 0);
}

#[test]
fn case_24_an_opener_in_prose_is_released_as_soon_as_no_grammar_fits() {
    let mut parser = TextParser::new(options());
    let mut events = parser.push("The <tool_call> tag is");
    events.retain(|event| matches!(event, Event::Text(_)));
    assert_eq!(events, [Event::Text("The <tool_call> tag is".to_owned())]);
}

#[test]
fn case_25_bytes_that_are_no_text_become_a_replacement_character() {
    let mut utf8 = Utf8::default();
    assert_eq!(utf8.push(b"a\xe6\x9d"), "a");
    assert_eq!(utf8.push(b"\xb1\xff!"), "東\u{fffd}!");
    assert_eq!(utf8.push(b"\xe6"), "");
    assert_eq!(utf8.finish(), "\u{fffd}");
}

#[test]
fn case_23_a_call_in_the_reasoning_field_is_lifted_whatever_its_pieces() {
    let thought =
        "Look.\n<tool_call>\n{\"name\": \"run_shell\", \"arguments\": {\"cmd\": \"ls\"}}\n</tool_call>\n";
    let fold = |pieces: &[&str], content: &str| {
        let mut parser = TextParser::new(options());
        let mut events: Vec<Event> = pieces.iter().flat_map(|piece| parser.push_reasoning(piece)).collect();
        events.extend(parser.push(content));
        let (last, finish_reason) = parser.finish("stop");
        events.extend(last);
        Folded { finish_reason, ..Folded::of(events) }
    };
    for cut in 1..thought.len() {
        let pieces = [&thought[..cut], &thought[cut..]];
        let lifted = fold(&pieces, "\n");
        assert_eq!(called(&lifted), [("run_shell", "{\"cmd\": \"ls\"}")], "cut at {cut}");
        assert_eq!((lifted.reasoning.trim(), lifted.content.as_str()), ("Look.", ""), "cut at {cut}");
        let spoken = fold(&pieces, "The answer.");
        assert_eq!(
            (spoken.reasoning.as_str(), spoken.content.as_str()),
            (thought, "The answer."),
            "cut at {cut}"
        );
        assert!(spoken.calls.is_empty(), "cut at {cut}");
    }
}

#[test]
fn case_3_options_are_read_from_a_request() {
    let named = r#"{"tool_choice": {"type": "function", "function": {"name": "run_shell"}},
        "parallel_tool_calls": false, "response_format": {"type": "json_schema"}}"#;
    let options = Options::from_json(TOOLS, named);
    assert_eq!(options.tool_choice, ToolChoice::Named("run_shell".to_owned()));
    assert!(!options.parallel && options.response_format && !options.thinking_open);
    let plain = Options::from_json(TOOLS, r#"{"response_format": {"type": "text"}, "tool_choice": "auto"}"#);
    assert!(plain.parallel && !plain.response_format && plain.tool_choice == ToolChoice::Auto);
}

#[test]
fn case_23_an_example_in_a_thoughts_fence_stays_a_thought() {
    let call = "<tool_call>\n{\"name\": \"list_drawers\", \"arguments\": {}}\n</tool_call>";
    let thought = format!("e.g.\n```\n{call}\n```\n");
    let mut parser = TextParser::new(options());
    let mut events = parser.push_reasoning(&thought);
    events.extend(parser.finish("stop").0);
    let folded = Folded::of(events);
    assert_eq!((folded.reasoning, folded.calls.len()), (thought.clone(), 0));
    assert!(called(&answer(&format!("<think>{thought}"))).is_empty());
}

#[test]
fn case_22_a_model_may_think_again_behind_a_call() {
    let call = "<tool_call>\n{\"name\": \"list_drawers\", \"arguments\": {}}\n</tool_call>";
    let answer = answer(&format!("<think>a</think>\nHi.\n{call}\n<think>b</think>\nBye."));
    assert_eq!((answer.reasoning.as_str(), answer.calls.len()), ("ab", 1));
    assert_eq!(answer.content.split_whitespace().collect::<Vec<_>>(), ["Hi.", "Bye."]);
}

#[test]
fn case_28_an_invented_result_is_left_out_however_it_is_cut() {
    let call = "<tool_call>\n{\"name\": \"list_drawers\", \"arguments\": {}}\n</tool_call>";
    for result in ["<function_response>", "<tool_response>", "<tool_result>"] {
        let text = format!("{call}\nx {result}\n3 drawers");
        for cut in call.len()..text.len() {
            let mut parser = TextParser::new(options());
            let mut events = parser.push(&text[..cut]);
            events.extend(parser.push(&text[cut..]));
            events.extend(parser.finish("stop").0);
            assert_eq!(Folded::of(events).content.trim(), "x", "{result} cut at {cut}");
        }
    }
}
