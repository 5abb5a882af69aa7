//! Templates and requests that nobody meant: whatever comes in, a counter answers, with a count or with an error.
//!
//! Templates are grown from the grammar of expressions and statements, so that most of them compile and do something, and requests from
//! the values that clients send in the wrong places. A bounded run with fixed seeds; `SWITCHBACK_FUZZ_ROUNDS` makes it longer. What it
//! must never see is a panic or a render that does not end: a hang is the test runner's to notice.

use bytes::Bytes;
use switchback_parsers::prompt::{Normalisation, PromptCounter, bounds};
use switchback_parsers::request::ChatRequest;

const TOKENIZER: &str = include_str!("fixtures/tiny/tokenizer.json");

/// A small generator of its own: the same rounds on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn pick<'a>(&mut self, options: &[&'a str]) -> &'a str {
        options[self.roll(options.len())]
    }

    fn expression(&mut self, depth: usize) -> String {
        let leaf = depth == 0 || self.roll(4) == 0;
        if leaf {
            return self
                .pick(&[
                    "messages",
                    "tools",
                    "m",
                    "m.role",
                    "m.content",
                    "m['content']",
                    "m.tool_calls",
                    "ns",
                    "ns.x",
                    "loop",
                    "loop.index0",
                    "bos_token",
                    "nothing",
                    "none",
                    "true",
                    "0",
                    "1",
                    "-7",
                    "99999999999",
                    "2.5",
                    "''",
                    "'x'",
                    "'aaaaaaaaaaaaaaaa'",
                    "[]",
                    "{}",
                    "add_generation_prompt",
                    "say",
                ])
                .to_owned();
        }
        let (a, b) = (self.expression(depth - 1), self.expression(depth - 1));
        match self.roll(9) {
            0 => {
                let sign =
                    self.pick(&["+", "-", "*", "~", "//", "%", "**", "and", "or", "==", "in", "not in", "<"]);
                format!("({a} {sign} {b})")
            }
            1 => format!("{a}[{b}]"),
            2 => format!("{a}[{b}:{}]", self.pick(&["", "-1", "9999999999", ":-1"])),
            3 => {
                let filter = self.pick(&[
                    "tojson",
                    "tojson(indent=4)",
                    "trim",
                    "length",
                    "list",
                    "join('x')",
                    "upper",
                    "items",
                    "dictsort",
                    "first",
                    "last",
                    "string",
                    "map(attribute='content')",
                    "selectattr('role')",
                    "sort",
                    "unique",
                    "reverse",
                    "indent(3)",
                    "default('d')",
                    "replace('a', 'aa')",
                    "int",
                    "sum",
                    "min",
                    "safe",
                    "title",
                    "abs",
                    "round",
                ]);
                format!("({a} | {filter})")
            }
            4 => format!("({a} if {b} else {a})"),
            5 => format!(
                "({a} is {})",
                self.pick(&["defined", "none", "string", "mapping", "iterable", "sequence", "number", "odd"])
            ),
            6 => {
                let method = self.pick(&[
                    "split('a')",
                    "strip()",
                    "items()",
                    "get('a')",
                    "keys()",
                    "upper()",
                    "format(1)",
                    "replace('', 'xx')",
                    "startswith('<')",
                    "append(1)",
                    "rsplit('x', 1)",
                    "join(['a'])",
                    "encode()",
                    "splitlines()",
                    "pop()",
                ]);
                format!("{a}.{method}")
            }
            7 => format!("[{a}, {b}]"),
            _ => format!(
                "{}({a})",
                self.pick(&[
                    "say",
                    "range",
                    "namespace",
                    "raise_exception",
                    "strftime_now",
                    "dict",
                    "m",
                    "cycler"
                ])
            ),
        }
    }

    fn statement(&mut self, depth: usize) -> String {
        let expression = self.expression(2);
        if depth == 0 || self.roll(3) == 0 {
            return match self.roll(3) {
                0 => self.pick(&["<|im_start|>", " text\n", "{# c #}", "{{- '' -}}"]).to_owned(),
                _ => format!("{{{{ {expression} }}}}"),
            };
        }
        let body = self.statement(depth - 1) + &self.statement(depth - 1);
        match self.roll(6) {
            0 => format!("{{% for m in {expression} %}}{body}{{% endfor %}}"),
            1 => format!("{{% if {expression} %}}{body}{{% else %}}x{{% endif %}}"),
            2 => format!("{{% set ns.x = {expression} %}}{body}"),
            3 => format!("{{% set m = {expression} %}}{body}"),
            4 => format!("{{% macro say(m) %}}{body}{{% endmacro %}}{{{{ say({expression}) }}}}"),
            _ => {
                format!("{{% set m %}}{body}{{% endset %}}{{% generation %}}{{{{ m }}}}{{% endgeneration %}}")
            }
        }
    }

    fn template(&mut self) -> String {
        let body = self.statement(4);
        format!(
            "{{% set ns = namespace(x='a') %}}{{% for m in messages %}}{body}{{% endfor %}}{}",
            self.statement(3)
        )
    }

    fn value(&mut self, depth: usize) -> String {
        if depth > 0 && self.roll(2) == 0 {
            let (a, b) = (self.value(depth - 1), self.value(depth - 1));
            let key = self.pick(&[
                "type",
                "text",
                "role",
                "content",
                "name",
                "arguments",
                "function",
                "id",
                "image_url",
                "url",
                "parameters",
            ]);
            return match self.roll(2) {
                0 => format!("[{a},{b}]"),
                _ => format!("{{\"{key}\":{a},\"type\":{b}}}"),
            };
        }
        self.pick(&[
            "null",
            "true",
            "0",
            "-1.5e300",
            "18446744073709551615",
            "\"\"",
            "\"text\"",
            "\"image_url\"",
            "\"function\"",
            "\"{\\\"a\\\":1}\"",
            "\"<|im_end|>\"",
            "\"\\u0000\\ud83d\\ude00\"",
            "\"\\ud800\"",
            "[]",
            "{}",
            "\"data:image/png;base64,iVBORw0KGgo\"",
        ])
        .to_owned()
    }

    /// Sound in most places, so that most requests come as far as the template.
    fn request(&mut self) -> String {
        let messages: Vec<String> = (0..1 + self.roll(4))
            .map(|_| {
                let role = self.pick(&["system", "user", "user", "assistant", "tool", "developer", "judge"]);
                let content = if self.roll(4) > 0 { "\"a text\"".into() } else { self.value(3) };
                let key = self.pick(&[
                    "tool_calls",
                    "reasoning_content",
                    "name",
                    "tool_call_id",
                    "reasoning",
                    "role",
                ]);
                let more =
                    if self.roll(4) > 0 { String::new() } else { format!(",\"{key}\":{}", self.value(3)) };
                format!("{{\"role\":\"{role}\",\"content\":{content}{more}}}")
            })
            .collect();
        let (schema, value) = (self.value(4), self.value(2));
        let key = self.pick(&[
            "tools",
            "reasoning_effort",
            "continue_final_message",
            "add_generation_prompt",
            "tool_choice",
        ]);
        let more = match self.roll(4) {
            0 => format!(
                ",\"tools\":[{{\"type\":\"function\",\"function\":{{\"name\":\"f\",\"parameters\":{schema}}}}}]"
            ),
            1 => format!(",\"chat_template_kwargs\":{{\"enable_thinking\":{value}}}"),
            2 => format!(",\"{key}\":{value}"),
            _ => String::new(),
        };
        format!("{{\"messages\":[{}]{more}}}", messages.join(","))
    }
}

#[test]
fn no_template_and_no_request_makes_a_counter_panic_or_run_away() {
    let rounds =
        std::env::var("SWITCHBACK_FUZZ_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(150);
    let folder = std::env::temp_dir().join(format!("switchback-{}-hostile", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("tokenizer.json"), TOKENIZER).unwrap();
    let (mut compiled, mut counted) = (0, 0);
    for seed in 0..rounds {
        let mut dice = Dice(seed);
        dice.roll(1);
        std::fs::write(folder.join("chat_template.jinja"), dice.template()).unwrap();
        let counter = PromptCounter::load(&folder);
        compiled += u64::from(counter.is_ok());
        for _ in 0..8 {
            let body = dice.request();
            let Ok(request) = ChatRequest::parse(Bytes::from(body)) else { continue };
            let rough = bounds(&request);
            assert!(rough.low() <= rough.high());
            for engine in [Normalisation::Vllm, Normalisation::LlamaCpp] {
                let count =
                    counter.as_ref().ok().and_then(|counter| counter.count_chat(&request, engine).ok());
                counted += u64::from(count.is_some_and(|count| count.low() <= count.high()));
            }
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
    assert!(compiled > rounds / 2, "only {compiled} of {rounds} templates compiled");
    assert!(counted > rounds / 4, "only {counted} counts");
}
