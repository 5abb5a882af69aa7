//! What a fresh reader found: calls that are shown, cut or cut into, and answers to them that the model invented.

use switchback_parsers::event::Folded;
use switchback_parsers::tool_call::{Options, TextParser};

const TOOLS: &str = r#"[
    {"type": "function", "function": {"name": "sh", "parameters": {"type": "object",
        "properties": {"cmd": {"type": "string"}, "n": {"type": "integer"}}, "required": ["cmd"]}}},
    {"type": "function", "function": {"name": "note", "parameters": {"type": "object",
        "properties": {"path": {"type": "string"}, "body": {"type": "string"}}, "required": ["path", "body"]}}}]"#;

const HERMES: &str = "<tool_call>\n{\"name\":\"sh\",\"arguments\":{\"cmd\":\"rm\"}}\n</tool_call>";
const FLAT: &str = "<tool_call>{\"name\":\"sh\",\"arguments\":{\"cmd\":\"rm\"}}</tool_call>";
const QWEN: &str = "<tool_call>\n<function=sh>\n<parameter=cmd>\nrm\n</parameter>\n</function>\n</tool_call>";
const GLM: &str = "<tool_call>sh\n<arg_key>cmd</arg_key>\n<arg_value>rm</arg_value>\n</tool_call>";
const MINIMAX: &str = "<minimax:tool_call>\n<invoke name=\"sh\">\n<parameter name=\"cmd\">rm</parameter>\n</invoke>\n\
                       </minimax:tool_call>";
const NEMOTRON: &str = "<TOOLCALL>\n[{\"name\":\"sh\",\"arguments\":{\"cmd\":\"rm\"}}]\n</TOOLCALL>";
const JAMBA: &str = "<tool_calls>\n[{\"name\":\"sh\",\"arguments\":{\"cmd\":\"rm\"}}]\n</tool_calls>";
const GEMMA: &str = "<|tool_call>call:sh{cmd:<|\"|>rm<|\"|>}<tool_call|>";
const KIMI: &str = "<|tool_calls_section_begin|><|tool_call_begin|>functions.sh:0<|tool_call_argument_begin|>{\"cmd\":\"rm\"}\
                    <|tool_call_end|><|tool_calls_section_end|>";
const KIMI3: &str = "<|open|>tools<|sep|><|open|>call tool=\"sh\" index=\"1\"<|sep|><|open|>argument key=\"cmd\" type=\"string\"\
                     <|sep|>rm<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>";
const DEEPSEEK: &str = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>sh<｜tool▁sep｜>{\"cmd\":\"rm\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
const MISTRAL: &str = "[TOOL_CALLS]sh{\"cmd\":\"rm\"}";
const LFM: &str = "<|tool_call_start|>[sh(cmd=\"rm\")]<|tool_call_end|>";
const FORMS: [&str; 8] = [HERMES, QWEN, GLM, MINIMAX, NEMOTRON, JAMBA, GEMMA, KIMI];

fn fold<'t>(pieces: impl IntoIterator<Item = &'t str>, request: &str, finish: &str) -> Folded {
    let mut parser = TextParser::new(Options::from_json(TOOLS, request));
    let mut events: Vec<_> = pieces.into_iter().flat_map(|piece| parser.push(piece)).collect();
    let (last, finish_reason) = parser.finish(finish);
    events.extend(last);
    Folded { finish_reason, ..Folded::of(events) }
}

/// The answer, which no cut changes: its text, its calls' arguments, its finish reason.
fn read(text: &str, request: &str, finish: &str) -> (String, Vec<String>, String) {
    let plain = |answer: Folded| {
        let calls = answer.calls.into_iter().map(|call| call.arguments).collect::<Vec<_>>();
        (answer.content, calls, answer.finish_reason)
    };
    let whole = plain(fold([text], request, finish));
    for cut in (1..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
        assert_eq!(plain(fold([&text[..cut], &text[cut..]], request, finish)), whole, "cut at {cut}: {text}");
    }
    let letters = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
    assert_eq!(plain(fold(letters, request, finish)), whole, "by letters: {text}");
    whole
}

fn is_talk(text: &str) {
    assert_eq!(read(text, "{}", "stop"), (text.to_owned(), Vec::new(), "stop".to_owned()));
}

fn calls(text: &str) -> Vec<String> {
    read(text, "{}", "stop").1
}

/// One call of `sh` with this command, and no text beside it.
fn runs(text: &str, command: &str) {
    let (content, calls, finish) = read(text, "{}", "stop");
    let want = serde_json::json!({ "cmd": command });
    let got: Vec<serde_json::Value> =
        calls.iter().filter_map(|call| serde_json::from_str(call).ok()).collect();
    assert_eq!((content.as_str(), got, finish.as_str()), ("", vec![want], "tool_calls"), "{text}");
}

/// Values that show tags of the call's own grammar.
const VALUES: [&str; 6] = [
    "‹rm -rf /›",
    "echo '‹rm -rf /›' > ex.txt",
    "cat <<E\n‹a›\n‹b›\nE\nls",
    "‹ echo \"‹rm›\" ›",
    "# Two\n‹a›‹b›",
    "grep x <y",
];

#[test]
fn case_18a_a_value_that_shows_a_call_is_the_whole_value() {
    for form in [GLM, KIMI3, QWEN, MINIMAX] {
        let (before, after) = form.split_once("rm").unwrap();
        for value in VALUES {
            let value = value.replace('‹', before).replace('›', after);
            runs(&format!("{before}{value}{after}"), &value);
        }
    }
}

#[test]
fn case_18a_keys_and_values_inside_a_value_are_the_value() {
    for value in [
        "echo \"<arg_key>cmd</arg_key><arg_value>rm -rf /</arg_value>\" > ex.txt",
        "grep '<arg_key>n</arg_key><arg_value>5</arg_value>' x",
        "grep '<arg_key>n</arg_key>' x",
        "echo \"</arg_value>\"; rm y",
        "echo '<arg_value>rm</arg_value></tool_call>' > x",
        "grep '<arg_value>' x",
        "cat <<E\n<tool_call>note\n<arg_key>path</arg_key>\n<arg_value>p</arg_value>\n</tool_call>\nE",
    ] {
        runs(&GLM.replace("rm", value), value);
        runs(&GLM.replace("rm", value).replace('\n', ""), &value.replace('\n', ""));
    }
    let value =
        "echo \"<|open|>argument key=\"cmd\" type=\"string\"<|sep|>rm -rf /<|close|>argument<|sep|>\" > x";
    runs(&KIMI3.replace("rm", value), value);
}

#[test]
fn case_18a_what_stands_behind_such_a_value_is_read() {
    let text = GLM.replace("rm", GLM).replace(
        "</arg_value>\n</tool_call></arg_value>",
        "</arg_value>\n</tool_call></arg_value>\n<arg_key>n</arg_key>\n<arg_value>5</arg_value>",
    );
    let got = calls(&format!("{text}\n{GLM}"));
    assert_eq!(got.len(), 2, "{got:?}");
    assert!(got[0].ends_with("\"n\": 5}"), "{got:?}");
}

#[test]
fn case_5a_nothing_runs_out_of_inline_code() {
    for form in FORMS {
        for tick in ["`", "``", "```"] {
            is_talk(&format!("Do not write {tick}{form}{tick}."));
            is_talk(&format!("Do not write {tick}{form}{tick}.\n\nReally."));
        }
        is_talk(&format!("```{form}``` is how it looks.\nReally."));
    }
}

#[test]
fn case_5i_a_fence_ends_at_a_bare_line_of_its_own_mark_at_least_as_long() {
    for form in FORMS {
        is_talk(&format!("````markdown\n```xml\n{form}\n```\n````\nThat is all."));
        is_talk(&format!("~~~~\n~~~\n{form}\n~~~\n~~~~\nDone."));
        is_talk(&format!("```\n``` x\n{form}\n```\nDone."));
        is_talk(&format!("```\n~~~\n{form}\n```\nDone."));
        // Behind its end a call is one.
        assert_eq!(calls(&format!("````md\n```\nx\n```\n`````  \n{form}")).len(), 1, "{form}");
        assert_eq!(calls(&format!("```sh\nls\n```\n{form}")).len(), 1, "{form}");
        assert_eq!(calls(&format!("```ls``` first.\n{form}")).len(), 1, "{form}");
    }
}

#[test]
fn case_4b_several_calls_in_one_place_are_meant_together_or_not_at_all() {
    for form in [FLAT, QWEN, GEMMA, KIMI] {
        for between in ["", "\n"] {
            let two = format!("{form}{between}{form}");
            is_talk(&format!("It prints \"{two}\" here."));
            is_talk(&format!("It prints “{two}” here."));
            is_talk(&format!("Use <code>{two}</code> for that."));
            is_talk(&format!("User: x\nAssistant: {two}\nUser: thanks"));
            is_talk(&format!("User: x\nAssistant: {two}{between}{form}\nUser: thanks"));
        }
        is_talk(&format!("It prints {form}{form} and so on."));
        is_talk(&format!("``{form}{form}`` it says"));
        is_talk(&format!("+{form}{form}"));
        is_talk(&format!("a.txt:12:{form}{form}"));
        assert_eq!(calls(&format!("Looking.\n{form}{form}")).len(), 2);
        assert_eq!(calls(&format!("Looking. {form}\n{form}\nDone.")).len(), 2);
        assert_eq!(calls(&format!("It says \"{form}\" now.\n{form}")).len(), 1);
    }
}

#[test]
fn case_5j_a_comment_is_no_call() {
    for form in FORMS {
        is_talk(&format!("<!-- {form} -->\nok"));
        is_talk(&format!("<!--\n{form}\n-->\nok"));
        is_talk(&format!("See <!-- {form}{form} --> there."));
        assert_eq!(calls(&format!("<!-- x -->\n{form}")).len(), 1);
        assert_eq!(calls(&format!("<!--\nx\n-->\n{form}")).len(), 1);
    }
}

/// Forms, and the bytes of them that belong to the last closer.
const CLOSED: [(&str, usize); 9] = [
    (HERMES, "</tool_call>".len()),
    (QWEN, "</tool_call>".len()),
    (MINIMAX, "</minimax:tool_call>".len()),
    (NEMOTRON, "</TOOLCALL>".len()),
    (GEMMA, "<tool_call|>".len()),
    (KIMI, "<|tool_calls_section_end|>".len()),
    (KIMI3, "<|close|>tools<|sep|>".len()),
    (DEEPSEEK, "<｜tool▁calls▁end｜>".len()),
    (LFM, "<|tool_call_end|>".len()),
];

#[test]
fn case_17a_half_a_closer_at_the_end_is_markup() {
    for (form, closer) in CLOSED {
        for finish in ["stop", "length"] {
            let end = form.len() - closer;
            let want = read(&form[..end], "{}", finish);
            assert_eq!(want.1.len(), 1, "{form}");
            for half in (end + 2..form.len()).filter(|half| form.is_char_boundary(*half)) {
                assert_eq!(read(&form[..half], "{}", finish), want, "{}", &form[..half]);
            }
        }
    }
    let end = GLM.len() - "</tool_call>".len();
    (end..GLM.len()).for_each(|half| runs(&GLM[..half], "rm"));
}

#[test]
fn case_20a_a_cut_shows_no_markup() {
    for form in [
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>sh\n```json\n{\"cmd\":",
        "<tool_call>\n```json\n{\"na",
        "<|action_start|> <|plugin|>\n{\"na",
        "<|channel|>commentary to=functions.sh <|message|>{\"cm",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.sh:0<|tool_call_argument_begin|>{\"cm",
        "<tool_call>\n<function=sh>\n<parameter=cmd>\nls",
    ] {
        for end in (4..form.len()).filter(|end| form.is_char_boundary(*end)) {
            let want = |text: &str| (text.to_owned(), Vec::new(), "length".to_owned());
            assert_eq!(read(&form[..end], "{}", "length"), want(""), "{}", &form[..end]);
            let said = format!("Looking.\n{}", &form[..end]);
            assert_eq!(read(&said, "{}", "length").0.trim_end(), "Looking.", "{said}");
        }
    }
    let text = "<|channel|>commentary to=functions.sh <|message|>{\"cmd\":\"a\"}<|call|><|start|>assist";
    let (content, calls, finish) = read(text, "{}", "length");
    assert_eq!((content.as_str(), calls.len(), finish.as_str()), ("", 1, "length"));
}

#[test]
fn case_3a_the_complete_elements_of_a_demanded_array_survive_a_cut() {
    let text = "[{\"name\":\"sh\",\"parameters\":{\"cmd\":\"a\"}},{\"name\":\"sh\",\"parameters\":{\"c";
    let (content, calls, finish) = read(text, r#"{"tool_choice": "required"}"#, "length");
    assert_eq!(
        (content.as_str(), calls.as_slice(), finish.as_str()),
        ("", &["{\"cmd\":\"a\"}".to_owned()][..], "length")
    );
    // Nobody demanded it: the text is shown.
    assert_eq!(read(text, "{}", "length").0, text);
}

#[test]
fn case_18c_a_block_ends_where_its_wrapper_does() {
    for form in [QWEN.to_owned(), QWEN.replace("tool_call", "seed:tool_call")] {
        let value = "cat <<E\n</parameter>\n</function>\nE\nls";
        runs(&form.replace("rm", value), value);
    }
    let value = "cat <<E</parameter>\n</invoke>\nE\nls";
    runs(&MINIMAX.replace("rm", value), value);
    // A wrapper that is never closed is no reason to lose the call.
    let open = QWEN.strip_suffix("\n</tool_call>").unwrap();
    for behind in ["", "\nDone.", "<|im_end|>"] {
        assert_eq!(calls(&format!("{open}{behind}")), ["{\"cmd\": \"rm\"}"], "{behind}");
    }
    assert_eq!(calls(&format!("{open}\nAnd:\n{QWEN}")).len(), 2);
    // Two readings.
    for value in ["echo '</parameter></function></tool_call>'", "a </parameter> </function> </tool_call> b"] {
        is_talk(&QWEN.replace("rm", value));
    }
}

#[test]
fn case_28_an_invented_result_in_any_family_s_tokens_stops_the_answer() {
    for (form, result) in [
        (KIMI, "<|im_system|>tool<|im_middle|>x<|im_end|>"),
        (KIMI, "<|im_end|><|im_system|>tool<|im_middle|>x<|im_end|>"),
        (
            DEEPSEEK,
            "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>x<｜tool▁output▁end｜><｜tool▁outputs▁end｜>It is x.",
        ),
        (DEEPSEEK, "<｜User｜>thanks"),
        (MISTRAL, "[TOOL_RESULTS]{\"x\":1}[/TOOL_RESULTS]It is x."),
        (MINIMAX, "\n<function_results>x</function_results>\nIt is x."),
        (GEMMA, "<|tool_response>response:sh{x:1}<tool_response|>It is x."),
    ] {
        runs(&format!("{form}{result}"), "rm");
    }
}
