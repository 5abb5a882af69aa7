//! What fuzzing and hand-made answers found: places where the pieces of an answer once changed what it said.

use serde_json::{Value, json};

use crate::tables::{read, shown};

/// The answer, which no cut changes; of long texts some cuts.
fn steady(text: &str) -> Value {
    steady_for(text, &Value::Null)
}

fn steady_for(text: &str, request: &Value) -> Value {
    let whole = shown(&read([text], request));
    let step = if text.len() > 2000 { 97 } else { 1 };
    for at in (1..text.len()).step_by(step).filter(|at| text.is_char_boundary(*at)) {
        let (before, behind) = text.split_at(at);
        assert_eq!(shown(&read([before, behind], request)), whole, "cut at {at}: {text}");
    }
    assert_eq!(shown(&read(text.split_inclusive(|_| true), request)), whole, "by letters: {text}");
    whole
}

const CALL: &str = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

#[test]
fn lines_longer_than_what_is_remembered_of_them_say_the_same_in_pieces() {
    for fill in 248..258 {
        let line = format!("{}｜｜ and the rest of it", "a".repeat(fill));
        let kimi = "<|tool_call_begin|>functions.now:4<|tool_call_argument_begin|>{}<|tool_call_end|>";
        assert_eq!(steady(&format!("{line}{kimi} goes on"))["calls"], json!([]), "{fill}");
        // An element that its own line closes shows nothing below it.
        let text = format!("<pre>{line}</pre>\n{CALL}");
        assert_eq!(steady(&text)["calls"], json!([["now", {}]]), "{fill}");
        let text = format!("<pre>{line}\n{CALL}\n</pre>\n");
        assert_eq!(steady(&text)["calls"], json!([]), "{fill}");
    }
}

#[test]
fn half_a_closer_behind_a_bare_block_leaves_open_whether_text_follows_it() {
    let block = "<function=read_file>\n<parameter=path>\nlib</parameter>\n</function>\n</tool_call>";
    assert_eq!(steady(&format!("Look.\n{block}x"))["calls"], json!([]));
    assert_eq!(steady(&format!("Look.\n{block}"))["calls"], json!([["read_file", {"path": "lib"}]]));
}

#[test]
fn a_leaked_token_at_the_end_goes_wherever_text_was_looked_at_before() {
    for text in ["[read_file(path=\"a\"\u{b}[/INST]", "</s>[read_fil[/INST]", "a[b][/INST] "] {
        assert!(!steady(text)["content"].as_str().unwrap().contains("INST"), "{text}");
    }
}

#[test]
fn a_long_call_that_breaks_has_given_the_same_before() {
    let long = "x = 1; # filler\n".repeat(300);
    let path = "<parameter=path>\na\n</parameter>\n";
    for behind in [
        "junk\n</function>\n</tool_call>",
        "junk\n</function>",
        "<parameter=path/>\n</function>\n</tool_call>",
    ] {
        let text = format!(
            "<tool_call>\n<function=write_file>\n{path}<parameter=content>\n{long}\n</parameter>\n{behind}"
        );
        assert_eq!(steady(&text)["finish"], "length", "{behind}");
    }
    let text = format!(
        "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"write_file\">\n\
         <｜DSML｜parameter name=\"content\" string=\"true\">{long}</｜DSML｜parameter>\n<｜DSML｜tool>"
    );
    assert_eq!(steady(&text)["calls"], json!([["write_file", { "content": long }]]));
}

#[test]
fn members_of_the_calls_object_behind_long_arguments_are_no_text() {
    let long = "x".repeat(5000);
    for (member, gone) in
        [(", \"id\": \"x\"", true), (",\"type\":\"function\" , \"index\": 0", true), (", \"why\": 1", false)]
    {
        let text = format!(
            "<tool_call>\n{{\"name\": \"bash\", \"arguments\": {{\"command\": \"{long}\"}}{member}}}\n</tool_call>\nDone."
        );
        let answer = steady(&text);
        assert_eq!(answer["calls"], json!([["bash", { "command": long }]]));
        assert_eq!(answer["content"] == "\nDone.", gone, "{member}: {}", answer["content"]);
    }
}

#[test]
fn an_opener_said_without_end_begins_no_call() {
    let answer = steady(&"<function=now>".repeat(60));
    assert_eq!(
        (answer["calls"].as_array().unwrap().len(), &answer["finish"]),
        (0, &json!("stop")),
        "{answer}"
    );
}

/// What a limit says of a text must not depend on whether the text goes on behind it in the same piece.
#[test]
fn limits_are_the_same_in_one_piece_and_in_many() {
    let block = |name: &str, value: &str| {
        format!(
            "<tool_call>\n<function={name}>\n<parameter=command>\n{value}\n</parameter>\n</function>\n</tool_call>"
        )
    };
    for (text, calls) in [
        // An opening tag of more than 512 bytes is none.
        (block(&format!("bash{}", " ".repeat(520)), "ls"), json!([])),
        // A tag that a value shows, left open: it does not reach over the end of the value.
        (
            block("bash", "echo <function name=\"x") + "\n\"><parameter=a>",
            json!([["bash", {"command": "echo <function name=\"x"}]]),
        ),
        // No word of a sentence has so many letters.
        (format!("{CALL} {} is.", "a".repeat(70)), json!([["now", {}]])),
        // What stands above so many blanks leads to nothing.
        (format!("The log was:{}{CALL}\nAs I said.", "\n".repeat(300)), json!([["now", {}]])),
        (format!("Here is an example:{}[now()]", "\n".repeat(300)), json!([["now", {}]])),
        (format!("commentary to=functions.bash{}json{{\"command\": \"ls\"}}", " ".repeat(300)), json!([])),
        (format!("{}\nx\n{}\n{CALL}", "~".repeat(300), "~".repeat(280)), json!([])),
    ] {
        assert_eq!(steady(&text)["calls"], calls, "{text}");
    }
}

#[test]
fn what_is_no_call_behind_a_draft_counts_once_however_often_more_comes_behind_it() {
    let text = format!("a\n{CALL}\n<tool_call>junk</tool_call>\n{}\n{CALL}", "x ".repeat(2100));
    assert_eq!(steady_for(&text, &json!({"thinking_open": true}))["calls"], json!([["now", {}]]));
}
