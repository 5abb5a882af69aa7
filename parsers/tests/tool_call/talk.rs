//! Calls that are only shown: in code, quotations, diffs, logs, transcripts, amid a sentence. And their neighbours that are meant.

use switchback_parsers::event::Folded;
use switchback_parsers::schema::ToolSet;
use switchback_parsers::tool_call::{Options, TextParser};

const TOOLS: &str = r#"[
    {"type": "function", "function": {"name": "bash", "parameters": {"type": "object",
        "properties": {"command": {"type": "string"}}, "required": ["command"]}}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]"#;
const HERMES: &str = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
const QWEN: &str =
    "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>";
const BARE: &str = "<function=bash><parameter=command>ls</parameter></function>";
const GEMMA: &str = "<|tool_call>call:bash{command:<|\"|>ls<|\"|>}<tool_call|>";
const KIMI: &str = "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>\
                    <|tool_calls_section_end|>";
const FORMS: [&str; 5] = [HERMES, QWEN, BARE, GEMMA, KIMI];

fn fold<'t>(pieces: impl IntoIterator<Item = &'t str>) -> Folded {
    let options = Options { tools: ToolSet::from_json(TOOLS), parallel: true, ..Options::default() };
    let mut parser = TextParser::new(options);
    let mut events: Vec<_> = pieces.into_iter().flat_map(|piece| parser.push(piece)).collect();
    let (last, finish_reason) = parser.finish("stop");
    events.extend(last);
    Folded { finish_reason, ..Folded::of(events) }
}

/// The answer, which no cut changes.
fn read(text: &str) -> Folded {
    let whole = fold([text]);
    let same = |cut: &Folded| (&cut.content, &cut.calls) == (&whole.content, &whole.calls);
    for cut in (1..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
        assert!(same(&fold([&text[..cut], &text[cut..]])), "cut at {cut}: {text}");
    }
    let letters = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
    assert!(same(&fold(letters)), "by letters: {text}");
    whole
}

fn is_talk(text: &str) {
    let answer = read(text);
    assert_eq!((answer.content.as_str(), answer.calls.len()), (text, 0));
}

fn is_call(text: &str) {
    assert_eq!(read(text).calls.len(), 1, "{text}");
}

fn indented(call: &str, indent: &str) -> String {
    call.lines().map(|line| format!("{indent}{line}\n")).collect()
}

#[test]
fn case_5a_inline_code_that_spans_lines_is_shown() {
    for call in FORMS {
        is_talk(&format!("It writes `\n{call}\n` then."));
        is_talk(&format!("It writes `say\n{call}` at the end"));
        is_talk(&format!("It writes `\n{call}\nand so on` then."));
        // A stray backtick is none.
        is_call(&format!("The ` key.\n{call}"));
        is_call(&format!("The ` key.\n{call}\n\nAnd `x`."));
        is_call(&format!("The `x` key.\n{call}"));
    }
}

#[test]
fn case_5b_an_indented_block_is_code_only_if_prose_follows() {
    for call in FORMS {
        for indent in ["    ", "\t", "      "] {
            let block = indented(call, indent);
            is_talk(&format!("A call:\n\n{block}\nThat is all."));
            is_talk(&format!("{block}\nThat is how it looks."));
            is_talk(&format!("Two:\n\n{block}\n{block}\nThat is how they look."));
            is_call(&format!("Looking.\n\n{block}"));
            is_talk(&format!("The fixture:\n\n{block}"));
            is_call(&block);
            // A paragraph is not interrupted by code.
            is_call(&format!("Looking.\n{block}Done."));
        }
        is_call(&format!("1. Look.\n\n   {}\n\nDone.", call.replace('\n', "\n   ")));
    }
}

#[test]
fn case_5c_lines_of_diffs_greps_and_listings_are_shown() {
    for call in [HERMES, BARE, GEMMA] {
        for gutter in
            ["+", "-", "12:", "src/a.md:12:", "a.md-7-", "a.md:12:5:", "    12\t", " 12 | ", "12→", "| x | "]
        {
            is_talk(&format!("Found:\n\n{gutter}{call}\n"));
        }
        is_talk(&format!("diff --git a/x b/x\n@@ -1,2 +1,2 @@\n {call}\n-old\n+new\n"));
        is_call(&format!("diff --git a/x b/x\n@@ -1,2 +1,2 @@\n-old\n+new\nFixing.\n{call}"));
        is_call(&format!("Step 1: {call}"));
        for gutter in [
            "- ", "* ", "1. ", "2) ", "• ", "$ ", "~$ ", ">>> ", "# ", "// ", "x = ", "f(", "[3] ", "12:03 ",
            "a> ",
        ] {
            is_talk(&format!("Found:\n\n{gutter}{call}\n"));
        }
    }
    let context = indented(QWEN, " ");
    is_talk(&format!("@@ -1,9 +1,9 @@\n{context}-old\n+new\n"));
}

#[test]
fn case_5d_what_html_shows_is_shown() {
    for call in FORMS {
        for name in ["pre", "code", "blockquote", "example"] {
            is_talk(&format!("So:\n<{name}>\n{call}\n</{name}>\n"));
            is_talk(&format!("<{name}>{call}</{name}>"));
            is_talk(&format!("The form is <{name}>{call}</{name}>"));
            is_call(&format!("<{name}>x</{name}>\n{call}"));
            is_call(&format!("Use the <{name}> tag.\n{call}"));
        }
        is_talk(&format!("<pre><code>\n{call}\n</code></pre>"));
    }
}

#[test]
fn case_5e_a_quotation_is_shown() {
    for call in FORMS {
        for (open, close) in [("\"", "\""), ("'", "'"), ("“", "”"), ("«", "»")] {
            is_talk(&format!("It wrote {open}{call}{close}"));
            is_talk(&format!("It wrote {open}{call}{close}\nand stopped."));
        }
    }
}

#[test]
fn case_5f_a_transcript_is_shown_and_a_label_alone_is_none() {
    for call in FORMS {
        for (user, model) in
            [("User:", "Assistant:"), ("**Human:**", "**Assistant:**"), ("user:", "assistant:")]
        {
            is_talk(&format!("{user} What time is it?\n{model} {call}\nTool: noon\n"));
            is_talk(&format!("The log:\n\n{user} hello\n{model}\n{call}\n"));
            is_call(&format!("{model} {call}"));
            is_call(&format!("{model}\n{call}"));
            is_call(&format!("{user} hello\n\nI look.\n{call}"));
        }
    }
}

#[test]
fn case_4a_a_token_amid_a_sentence_that_goes_on_is_talk() {
    for call in [GEMMA, KIMI] {
        is_talk(&format!("The model writes {call} when it calls."));
        is_talk(&format!("It is {call}, more or less."));
        is_call(&format!("Two look-ups needed.{call}Checking now."));
        is_talk(&format!("The look-up: {call} Then more."));
        is_talk(&format!("Not so. {call}, more or less."));
        is_call(&format!("I look up {call}"));
        is_talk(&format!("I look up {call}\nwait."));
        is_call(&format!("I looked. {call}\nwait."));
    }
}

#[test]
fn case_5g_a_trailing_fence_is_no_call_behind_words_that_deny_it_or_ask() {
    let fence = "```json\n{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}\n```";
    for words in [
        "For example:",
        "I can't run it, but it would be:",
        "The call would look like this:",
        "Do not run this:",
        "Shall I run this?",
        "**Example**",
        "Use this format:",
    ] {
        is_talk(&format!("{words}\n\n{fence}"));
        is_talk(&format!("{words}\n{{\"name\": \"bash\", \"arguments\": {{\"command\": \"ls\"}}}}"));
    }
    for words in
        ["I'll look.", "Let me list the files:", "Ich sehe nach.", "For example, a list helps.\n\nI'll look."]
    {
        is_call(&format!("{words}\n\n{fence}"));
    }
}

#[test]
fn case_24a_a_line_of_blanks_of_any_kind_is_text() {
    for blank in ["\u{a0}", "\u{b}", "\u{3000}", "\u{2028}", "\r", "\u{feff}"] {
        is_talk(&format!("a\n{blank}\n{blank}{blank}\n\nb"));
        is_call(&format!("a\n{blank}\n{HERMES}"));
    }
}

#[test]
fn case_27a_what_was_struck_through_keeps_its_end() {
    is_talk("Not <s>this</s>");
    is_talk("Not <s>this</s> and <s>that</s>\n");
    assert_eq!(read("Done.</s>").content, "Done.");
    assert_eq!(read("Not <s>this</s></s>").content, "Not <s>this</s>");
}
