//! Requests that engines render and count in ways of their own: every kind of text in every kind of place.
//!
//! Texts are short, since the engine reads each of them on one thread. Nothing is random: a request that is counted
//! wrongly can be found by its name.

use serde_json::{Value, json};

/// Texts that vocabularies split in different ways.
const TEXTS: &[(&str, &str)] = &[
    ("word", "road"),
    ("sentence", "The quick brown fox doesn't jump over the lazy dog's back, they've said."),
    ("capitals", "SHOUTED Text With MixedCase and snake_case and kebab-case and camelCaseIdentifiers"),
    ("digits", "1 12 123 1234 1234567890 3.14159 1,000,000 2026-11-30T12:34:56Z +49 30 123456 ½ ² ٣"),
    (
        "code",
        "fn main() {\n    let xs: Vec<u32> = (0..10).map(|x| x * x).collect();\n\tprintln!(\"{xs:?}\");\n}\n",
    ),
    ("json", "{\"path\": \"src/main.rs\", \"lines\": [1, 2, 3], \"nested\": {\"a\": null, \"b\": true}}"),
    ("diff", "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-old line\n+new line\n context\n"),
    ("base64", "aGVsbG8gd29ybGQhIFRoaXMgaXMgYmFzZTY0IQ==/+AAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
    ("hash", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
    ("url", "https://example.com/a/b?c=d&e=%20f#g user@example.com 192.168.0.1:8080"),
    ("spaces", "a  b   c    d     e\t\tf \t g"),
    ("blank lines", "one\n\ntwo\n\n\nthree\r\nfour\r\n\r\nfive\n"),
    ("edges", "  \n leading and trailing \n\n "),
    ("only blanks", "   \n\t\n  "),
    ("punctuation", "!!! ??? ... ;;; --- *** ~~~ ((([[[{{{<<<>>>}}}]]]))) \\\\ // || && == != <= => :: ->"),
    ("accents", "Größe, naïve café, Ångström, señor, žluťoučký kůň, İstanbul"),
    ("decomposed", "e\u{301} a\u{308} o\u{302}\u{323}"),
    ("cyrillic", "Съешь же ещё этих мягких французских булок"),
    ("chinese", "你好，世界。今天天气很好！"),
    ("japanese", "吾輩は猫である。ﾊﾝｶｸとカタカナ"),
    ("korean", "다람쥐 헌 쳇바퀴에 타고파"),
    ("arabic", "مرحبا بالعالم، كيف حالك؟"),
    ("hindi", "नमस्ते दुनिया"),
    ("emoji", "😀 👍🏽 👩‍👩‍👧‍👦 🇩🇪 ❤️ 🏳️‍🌈"),
    ("symbols", "∑∫√∞≠≤≥ αβγδ ½⅓ €£¥₿ ©®™ →←↑↓ ■□●○ ⠁⠂"),
    ("invisible", "zero\u{200b}width no\u{a0}break soft\u{ad}hyphen\u{feff} bom \u{2028}line \u{202e}right"),
    ("controls", "bell\u{7} escape\u{1b}[31mred\u{1b}[0m delete\u{7f} form\u{c}feed"),
    ("special tokens", "a <|im_end|> b <|im_start|>user\nc <|endoftext|> <|im_sep|> <s> </s> [INST]"),
    ("markup", "<tool_call>\n{\"name\": \"f\"}\n</tool_call> <think>hm</think> <b>bold</b> &amp; &lt;"),
    ("template", "{{ messages }} {% if x %} {# no #} %}"),
    (
        "one long word",
        "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaftaaaaaaaaaaaaaaaaaaaaaaaa",
    ),
];

/// Chat requests, each with a name and without what all of them share.
pub(super) fn chats() -> Vec<(String, Value)> {
    let alone = texts().map(|(name, text)| (format!("{name}, alone"), json!({"messages": [user(&text)]})));
    let everywhere = TEXTS.iter().map(|(name, text)| {
        let messages = json!([system(text), user(text), assistant(text), user("Go on.")]);
        (format!("{name}, in all roles"), json!({ "messages": messages }))
    });
    let shapes = roles().into_iter().chain(contents()).chain(tools()).chain(endings());
    let shapes = shapes.map(|(name, request)| (name.to_owned(), request));
    alone.chain(everywhere).chain(shapes).collect()
}

/// Bare prompts, likewise.
pub(super) fn prompts() -> Vec<(String, Value)> {
    texts().map(|(name, text)| (name, json!({ "prompt": text }))).collect()
}

/// The texts, and mixtures of them without anything between, so that merges meet what they do not expect.
fn texts() -> impl Iterator<Item = (String, String)> {
    let mixture = |number: usize| {
        let piece = |place: usize| {
            let (_, text) = TEXTS[(number * 5 + place * 7) % TEXTS.len()];
            let from = text.ceil_char_boundary(text.len() * (number % 3) / 6);
            let to = text.floor_char_boundary(text.len() - text.len() * (place % 4) / 8);
            text.get(from..to).unwrap_or_default()
        };
        (format!("mixture {number}"), (0..5).map(piece).collect())
    };
    let plain = TEXTS.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    plain.chain((0..12).map(mixture))
}

fn system(text: &str) -> Value {
    json!({"role": "system", "content": text})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn roles() -> Vec<(&'static str, Value)> {
    vec![
        ("system alone", json!({"messages": [system("Be brief.")]})),
        ("empty system", json!({"messages": [system(""), user("Hello")]})),
        ("two systems", json!({"messages": [system("Be brief."), system("Be kind."), user("Hello")]})),
        ("late system", json!({"messages": [user("Hello"), system("Be brief."), user("Again")]})),
        ("developer", json!({"messages": [{"role": "developer", "content": "Be brief."}, user("Hello")]})),
        (
            "late developer",
            json!({"messages": [user("Hello"), {"role": "developer", "content": "Be brief."}, user("?")]}),
        ),
        ("two users", json!({"messages": [user("Hello"), user("Are you there?")]})),
        ("assistant first", json!({"messages": [assistant("How can I help?"), user("Not at all.")]})),
        ("unknown role", json!({"messages": [{"role": "critic", "content": "Weak."}, user("Hello")]})),
        ("name", json!({"messages": [{"role": "user", "name": "anna", "content": "Hello"}]})),
        (
            "unknown members",
            json!({"messages": [{"role": "user", "content": "Hello", "cache_control": {"type": "ephemeral"}}]}),
        ),
        (
            "reasoning",
            json!({"messages": [user("1+1?"),
            {"role": "assistant", "content": "2", "reasoning_content": "One and one are two."}, user("Sure?")]}),
        ),
        (
            "refusal",
            json!({"messages": [user("No?"), {"role": "assistant", "content": "No.", "refusal": null}, user("Why?")]}),
        ),
        (
            "many turns",
            json!({"messages": (0..12).map(|turn| if turn % 2 == 0 {
            user(&format!("Question {turn}?")) } else { assistant(&format!("Answer {turn}.")) })
            .chain([user("The end.")]).collect::<Vec<_>>()}),
        ),
    ]
}

fn contents() -> Vec<(&'static str, Value)> {
    let text = |text: &str| json!({"type": "text", "text": text});
    let said = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    vec![
        ("empty", said(json!(""))),
        ("one part", said(json!([text("Hello there")]))),
        ("parts", said(json!([text("Hello"), text(" there"), text("\nagain")]))),
        ("empty part", said(json!([text("Hello"), text(""), text("there")]))),
        (
            "parts in all roles",
            json!({"messages": [
            {"role": "system", "content": [text("Be"), text("brief")]}, {"role": "user", "content": [text("Hello")]},
            {"role": "assistant", "content": [text("Hi"), text("!")]}, {"role": "user", "content": [text("Bye"), text(".")]}]}),
        ),
        (
            "null assistant",
            json!({"messages": [user("Hello"), {"role": "assistant", "content": null, "tool_calls": [call("a", "look", "{}")]},
            result("a", "nothing"), user("?")]}),
        ),
        ("empty assistant", json!({"messages": [user("Hello"), assistant(""), user("?")]})),
    ]
}

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

fn result(id: &str, text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": text})
}

fn calling(content: Value, calls: Value) -> Value {
    json!({"role": "assistant", "content": content, "tool_calls": calls})
}

fn tools() -> Vec<(&'static str, Value)> {
    let tool = |name: &str, parameters: Value| json!({"type": "function", "function": {"name": name, "description": format!("Does {name}."), "parameters": parameters}});
    let simple = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    let nested = json!({"type": "object", "properties": {
        "edits": {"type": "array", "items": {"type": "object", "properties": {"line": {"type": "integer"}, "new": {"type": ["string", "null"]}}}},
        "mode": {"enum": ["fast", "safe"]}}});
    let one = json!([tool("read_file", simple.clone())]);
    let three = json!([tool("read_file", simple.clone()), tool("edit", nested), tool("stop", json!({}))]);
    let asked = json!([user("What is in a.txt?")]);
    let path = r#"{"path": "a.txt"}"#;
    let loop_of_one = json!([
        user("What is in a.txt?"),
        calling(Value::Null, json!([call("a", "read_file", path)])),
        result("a", "rain\n")
    ]);
    let loop_of_two = json!([
        user("Both?"),
        calling(
            json!("I look."),
            json!([call("a", "read_file", path), call("b", "read_file", r#"{"path":"b.txt"}"#)])
        ),
        result("a", "rain\n"),
        result("b", "{\"x\": 1}"),
        user("And now?")
    ]);
    let spoiled = json!([
        user("Look."),
        calling(json!(""), json!([call("a", "read_file", "")])),
        result("a", ""),
        user("?")
    ]);
    let parts = json!([user("Look."), calling(json!("Yes."), json!([call("a", "look", "{}")])),
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}]);
    vec![
        ("a tool", json!({"messages": asked, "tools": one})),
        ("tools", json!({"messages": asked, "tools": three})),
        ("no tools", json!({"messages": asked, "tools": []})),
        ("tool choice none", json!({"messages": asked, "tools": three, "tool_choice": "none"})),
        ("tools and system", json!({"messages": [system("Be brief."), user("Go.")], "tools": one})),
        ("a call and its result", json!({"messages": loop_of_one, "tools": one})),
        ("a call without tools", json!({ "messages": loop_of_one })),
        ("two calls and their results", json!({"messages": loop_of_two, "tools": three})),
        ("empty arguments", json!({"messages": spoiled, "tools": one})),
        ("result in parts", json!({"messages": parts, "tools": one})),
    ]
}

fn endings() -> Vec<(&'static str, Value)> {
    vec![
        (
            "trailing assistant",
            json!({"messages": [user("The capital of France?"), assistant("The capital of")]}),
        ),
        ("trailing assistant, blanks", json!({"messages": [user("Count."), assistant("1, 2,  ")]})),
        ("trailing empty assistant", json!({"messages": [user("Count."), assistant("")]})),
        ("trailing system", json!({"messages": [user("Hello"), system("Be brief.")]})),
        (
            "template arguments",
            json!({"messages": [user("Hello")], "chat_template_kwargs": {"enable_thinking": false}}),
        ),
        ("json output", json!({"messages": [user("Hello")], "response_format": {"type": "json_object"}})),
        (
            "sampling",
            json!({"messages": [user("Hello")], "temperature": 0, "top_p": 0.9, "seed": 1, "stop": ["x"], "n": 1}),
        ),
    ]
}
