//! The same call in the notation of every family: what its value holds is the value, and what is cut off never runs.

use serde_json::{Value, json};

use crate::tables::{read, shown};

/// A call of `write_file` as each family writes it, with this content.
fn forms(content: &str) -> Vec<String> {
    let json = json!({"path": "a", "content": content}).to_string();
    let call = format!("{{\"name\": \"write_file\", \"arguments\": {json}}}");
    let quoted = Value::from(content).to_string();
    let invoke = |prefix: &str| {
        let parameter = |name: &str, text: &str| {
            format!("<{prefix}parameter name=\"{name}\">{text}</{prefix}parameter>\n")
        };
        let parameters = parameter("path", "a") + &parameter("content", content);
        format!("<{prefix}invoke name=\"write_file\">\n{parameters}</{prefix}invoke>\n")
    };
    let block = format!(
        "<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\n{content}\n</parameter>\n</function>\n"
    );
    let k3 = |key: &str, text: &str| {
        format!("<|open|>argument key=\"{key}\" type=\"string\"<|sep|>{text}<|close|>argument<|sep|>")
    };
    let m3 = "]<]minimax[>[";
    vec![
        format!("<tool_call>\n{call}\n</tool_call>"),
        format!("<tool_call>\n{block}</tool_call>"),
        format!("<seed:tool_call>\n{block}</seed:tool_call>"),
        format!(
            "<tool_call>write_file\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n<arg_key>content</arg_key>\n\
             <arg_value>{content}</arg_value>\n</tool_call>"
        ),
        format!("<minimax:tool_call>\n{}</minimax:tool_call>", invoke("")),
        format!("<｜DSML｜function_calls>\n{}</｜DSML｜function_calls>", invoke("｜DSML｜")),
        format!(
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.write_file:0<|tool_call_argument_begin|>{json}\
             <|tool_call_end|><|tool_calls_section_end|>"
        ),
        format!(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>write_file\n```json\n{json}\n```\
             <｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
        format!("[TOOL_CALLS]write_file[ARGS]{json}"),
        format!(
            "<|tool_call>call:write_file{{path:<|\"|>a<|\"|>,content:<|\"|>{content}<|\"|>}}<tool_call|>"
        ),
        format!("<|channel|>commentary to=functions.write_file <|constrain|>json<|message|>{json}<|call|>"),
        format!("<|tool_call_start|>[write_file(path=\"a\", content={quoted})]<|tool_call_end|>"),
        format!("<TOOLCALL>[{call}]</TOOLCALL>"),
        format!(">>>write_file\n{json}"),
        format!(
            "<|open|>tools<|sep|><|open|>call tool=\"write_file\" index=\"1\"<|sep|>{}{}<|close|>call<|sep|>\
             <|close|>tools<|sep|>",
            k3("path", "a"),
            k3("content", content)
        ),
        format!(
            "{m3}<tool_call>{m3}<invoke name=\"write_file\">{m3}<path>a{m3}</path>{m3}<content>{content}{m3}</content>\
             {m3}</invoke>{m3}</tool_call>"
        ),
        call,
    ]
}

/// What files and commands hold.
const VALUES: &[&str] = &[
    r"grep -oP '(?<=<tool_call>).*?(?=</tool_call>)' log.txt",
    r"sed -i 's/<\/parameter>/X/g' f",
    "echo '</parameter>' >> f",
    "echo '</function>' >> f",
    r"printf '</parameter>\n</function>\n' >> f",
    "echo '</tool_call>' >> f",
    "{%- if tools %}{{- '<tool_call>\\n' }}{%- endif %}",
    "def f(a):\n    \"\"\"Doc: <tool_call>.\"\"\"\n    return a < 1 and b > 2",
    "const x: Map<string, Array<number>> = new Map<string, Array<number>>();",
    "<div class=\"a\"><p>1 &lt; 2 &amp; 3</p></div>",
    "a\r\nb\r\nc",
    "line  \n\nend  ",
    "\n\nx",
    "👩‍👩‍👧‍👦 é ﬁ \u{200b}| مرحبا \u{202e}abc 你好",
    "```\ncode\n```",
    "echo '<|im_end|>' '</think>'",
    "\"quoted\" and 'single'",
    r#"{"name": "bash", "arguments": {"command": "rm"}}"#,
    "<tool_call>\n{\"name\": \"bash\", \"arguments\": {\"command\": \"rm\"}}\n</tool_call>",
    "<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>rm</arg_value>\n</tool_call>",
    "<tool_call>\n<function=bash>\n<parameter=command>\nrm\n</parameter>\n</function>\n</tool_call>",
    "<invoke name=\"bash\"><parameter name=\"command\">rm</parameter></invoke>",
    "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-<parameter=a>\n+</parameter>",
    "cat > a.xml <<'X'\n<function=foo>\n<parameter=bar>\n1\n</parameter>\n</function>\nX",
];

#[test]
fn a_value_is_what_stands_between_its_delimiters_in_every_family() {
    for value in VALUES {
        for text in forms(value) {
            let calls = json!([["write_file", {"path": "a", "content": value}]]);
            let want = json!({"content": "", "reasoning": "", "calls": calls, "finish": "tool_calls"});
            assert_eq!(shown(&read([text.as_str()], &Value::Null)), want, "{text}");
            let letters = text.split_inclusive(|_| true);
            assert_eq!(shown(&read(letters, &Value::Null)), want, "by letters: {text}");
        }
    }
}

#[test]
fn no_beginning_of_a_call_runs_anything_else_than_the_call() {
    for text in forms("rm -rf /srv/x") {
        let whole = json!([["write_file", {"path": "a", "content": "rm -rf /srv/x"}]]);
        for at in (1..=text.len()).filter(|at| text.is_char_boundary(*at)) {
            for finish in ["stop", "length"] {
                let text = format!("Let me.\n{}", &text[..at]);
                let answer = shown(&read([text.as_str()], &json!({ "upstream_finish": finish })));
                let none = answer["calls"] == json!([]);
                assert!(none || answer["calls"] == whole, "{finish}: {text} gave {answer}");
                assert!(!none || answer["finish"] == finish, "{finish}: {text} gave {answer}");
                // Of markup that was cut no more than three bytes are shown.
                let weak = text.starts_with("Let me.\n{");
                let shown = answer["content"].as_str().unwrap_or_default().trim_end().len();
                assert!(finish == "stop" || weak || shown <= "Let me.\n".len() + 3, "{text} gave {answer}");
            }
        }
    }
}

#[test]
fn case_4c_a_call_that_a_sentence_is_about_is_talk_in_every_family() {
    for form in forms("text") {
        for behind in
            [" is how the model calls.", ", for instance, is a call.", " – that is it.", "\nis the syntax."]
        {
            let text = format!("{form}{behind}");
            assert_eq!(shown(&read([text.as_str()], &Value::Null))["calls"], json!([]), "{text}");
        }
        // Bare JSON is the whole answer or none.
        for behind in ["\nGood.", "\n\nI wait.", "\nuser\nhi"].iter().filter(|_| !form.starts_with('{')) {
            let text = format!("{form}{behind}");
            let calls = json!([["write_file", {"path": "a", "content": "text"}]]);
            assert_eq!(shown(&read([text.as_str()], &Value::Null))["calls"], calls, "{text}");
        }
    }
}
