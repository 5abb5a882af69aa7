//! Tool calls as text: the formats that models write them in, and the ways in which they get them wrong.
//!
//! One writer a format, each as in the family's own chat template; flaws are laid over it. It must never decide
//! whether a call is made.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How a model writes a tool call into its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Format {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Hermes, Qwen2.5, Qwen3.
    Hermes,
    /// `<tool_call><function=…><parameter=…>…`: Qwen3-Coder, Qwen3.5 and later.
    QwenXml,
    /// `<tool_call>NAME<arg_key>…<arg_value>…`: GLM-4.5, 4.6.
    Glm,
    /// `<|tool_calls_section_begin|>…`: Kimi K2.
    Kimi,
    /// `[TOOL_CALLS]NAME[ARGS]{…}`: Mistral since v11.
    Mistral,
    /// `[name(key="value")]`: Llama 4, Olmo.
    Pythonic,
    /// A JSON object in a code fence: models without a format of their own.
    Fenced,
}

/// What is wrong with a written call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flaw {
    /// `unclosed`: the closing marker is missing.
    Unclosed,
    /// `trailing-comma`: a comma behind the last argument; not in formats that have none.
    TrailingComma,
    /// `two`: the call is there twice.
    Two,
    /// `in-fence`: in a code fence, as if to show it.
    InFence,
    /// `in-prose`: only the opening marker, in a sentence about it; there is no call.
    InProse,
}

const FORMATS: [(&str, Format); 7] = [
    ("hermes", Format::Hermes),
    ("qwen-xml", Format::QwenXml),
    ("glm", Format::Glm),
    ("kimi", Format::Kimi),
    ("mistral", Format::Mistral),
    ("pythonic", Format::Pythonic),
    ("fenced", Format::Fenced),
];

const FLAWS: [(&str, Flaw); 5] = [
    ("unclosed", Flaw::Unclosed),
    ("trailing-comma", Flaw::TrailingComma),
    ("two", Flaw::Two),
    ("in-fence", Flaw::InFence),
    ("in-prose", Flaw::InProse),
];

impl Flaw {
    /// The one with this name.
    pub(crate) fn named(text: &str) -> Option<Self> {
        FLAWS.iter().find(|(word, _)| *word == text).map(|(_, flaw)| *flaw)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FORMATS.iter().find(|(_, format)| format == self).map_or("", |(word, _)| word))
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FLAWS.iter().find(|(_, flaw)| flaw == self).map_or("", |(word, _)| word))
    }
}

/// How one format puts calls together: what stands before, around and after them.
struct Shape {
    begin: &'static str,
    open: &'static str,
    close: &'static str,
    between: &'static str,
    end: &'static str,
}

impl Format {
    /// The one with this name.
    pub(crate) fn named(text: &str) -> Option<Self> {
        FORMATS.iter().find(|(word, _)| *word == text).map(|(_, format)| *format)
    }

    /// The flaws that it can have.
    pub fn flaws(self) -> impl Iterator<Item = Flaw> {
        let comma = !matches!(self, Self::QwenXml | Self::Glm);
        FLAWS.into_iter().map(|(_, flaw)| flaw).filter(move |flaw| comma || *flaw != Flaw::TrailingComma)
    }

    fn shape(self) -> Shape {
        let (begin, open, close, between, end) = match self {
            Self::Hermes | Self::QwenXml => ("", "<tool_call>\n", "\n</tool_call>", "\n", ""),
            Self::Glm => ("", "<tool_call>", "\n</tool_call>", "\n", ""),
            Self::Kimi => (
                "<|tool_calls_section_begin|>",
                "<|tool_call_begin|>",
                "<|tool_call_end|>",
                "",
                "<|tool_calls_section_end|>",
            ),
            Self::Mistral => ("", "[TOOL_CALLS]", "", "", ""),
            Self::Pythonic => ("[", "", "", ", ", "]"),
            Self::Fenced => ("", "```json\n", "\n```", "\n", ""),
        };
        Shape { begin, open, close, between, end }
    }

    /// One call, without its markers.
    fn body(self, number: usize, name: &str, arguments: &str) -> String {
        let members: Map<String, Value> = serde_json::from_str(arguments).unwrap_or_default();
        let rows = |row: fn(&str, &Value) -> String| {
            members.iter().map(|(key, value)| row(key, value)).collect::<Vec<_>>()
        };
        match self {
            Self::Hermes | Self::Fenced => {
                format!("{{\"name\": {}, \"arguments\": {arguments}}}", Value::from(name))
            }
            Self::QwenXml => {
                let rows = rows(|key, value| format!("<parameter={key}>\n{}\n</parameter>\n", bare(value)));
                format!("<function={name}>\n{}</function>", rows.concat())
            }
            Self::Glm => {
                let row = |key: &str, value: &Value| {
                    format!("\n<arg_key>{key}</arg_key>\n<arg_value>{}</arg_value>", bare(value))
                };
                name.to_owned() + &rows(row).concat()
            }
            Self::Kimi => format!("functions.{name}:{number}<|tool_call_argument_begin|>{arguments}"),
            Self::Mistral => format!("{name}[ARGS]{arguments}"),
            Self::Pythonic => {
                format!("{name}({})", rows(|key, value| format!("{key}={}", literal(value))).join(", "))
            }
        }
    }
}

/// A call as text. The arguments are JSON; formats that have no JSON write its members.
pub(crate) fn written(format: Format, flaw: Option<Flaw>, name: &str, arguments: &str) -> String {
    let Shape { begin, open, close, between, end } = format.shape();
    let calls = if flaw == Some(Flaw::Two) { 2 } else { 1 };
    let arguments = match flaw {
        Some(Flaw::TrailingComma) if format != Format::Pythonic => with_comma(arguments),
        _ => arguments.to_owned(),
    };
    let bodies: Vec<_> = (0..calls).map(|number| format.body(number, name, &arguments)).collect();
    match flaw {
        Some(Flaw::InProse) => {
            format!("A call would begin with {}{} here, but there is none.", begin.trim(), open.trim())
        }
        Some(Flaw::Unclosed) => {
            let mut body = bodies.concat();
            if close.is_empty() && end.is_empty() {
                // where nothing closes, the last bracket is what can be missing
                body.pop();
            }
            format!("{begin}{open}{body}")
        }
        Some(Flaw::TrailingComma) if format == Format::Pythonic => {
            let body = bodies.concat();
            format!("{begin}{},){end}", body.strip_suffix(')').unwrap_or(&body))
        }
        _ => {
            let calls: Vec<_> = bodies.iter().map(|body| format!("{open}{body}{close}")).collect();
            let whole = format!("{begin}{}{end}", calls.join(between));
            if flaw == Some(Flaw::InFence) { format!("```\n{whole}\n```") } else { whole }
        }
    }
}

/// A comma behind the last member.
fn with_comma(arguments: &str) -> String {
    match arguments.trim_end().strip_suffix('}') {
        Some(open) if !open.trim_end().ends_with('{') => format!("{open},}}"),
        _ => format!("{arguments},"),
    }
}

/// A value as XML formats write it: strings as they are, the rest as JSON.
fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A value as a Python literal.
fn literal(value: &Value) -> String {
    let list = |items: Vec<String>| items.join(", ");
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Array(items) => format!("[{}]", list(items.iter().map(literal).collect())),
        Value::Object(members) => {
            let pairs = members
                .iter()
                .map(|(key, value)| format!("{}: {}", Value::from(key.as_str()), literal(value)));
            format!("{{{}}}", list(pairs.collect()))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARGUMENTS: &str = r#"{"city": "Bern", "days": 3, "now": true}"#;

    #[track_caller]
    fn check(format: Format, flaw: Option<Flaw>, expect: &str) {
        assert_eq!(written(format, flaw, "get_weather", ARGUMENTS), expect);
    }

    #[test]
    fn each_format_is_written_as_its_family_writes_it() {
        check(
            Format::Hermes,
            None,
            "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", \"days\": 3, \"now\": true}}\n</tool_call>",
        );
        check(
            Format::QwenXml,
            None,
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=now>\ntrue\n</parameter>\n</function>\n</tool_call>",
        );
        check(
            Format::Glm,
            None,
            "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>now</arg_key>\n<arg_value>true</arg_value>\n</tool_call>",
        );
        check(
            Format::Kimi,
            None,
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Bern\", \"days\": 3, \"now\": true}<|tool_call_end|><|tool_calls_section_end|>",
        );
        check(
            Format::Mistral,
            None,
            "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Bern\", \"days\": 3, \"now\": true}",
        );
        check(Format::Pythonic, None, "[get_weather(city=\"Bern\", days=3, now=True)]");
        check(
            Format::Fenced,
            None,
            "```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", \"days\": 3, \"now\": true}}\n```",
        );
    }

    #[test]
    fn flaws_are_where_they_say() {
        let flawed = |format, flaw| written(format, Some(flaw), "f", r#"{"a": 1}"#);
        assert_eq!(
            flawed(Format::Hermes, Flaw::Unclosed),
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}"
        );
        assert_eq!(flawed(Format::Mistral, Flaw::Unclosed), "[TOOL_CALLS]f[ARGS]{\"a\": 1");
        assert_eq!(flawed(Format::Pythonic, Flaw::Unclosed), "[f(a=1)");
        assert_eq!(flawed(Format::Mistral, Flaw::TrailingComma), "[TOOL_CALLS]f[ARGS]{\"a\": 1,}");
        assert_eq!(flawed(Format::Pythonic, Flaw::TrailingComma), "[f(a=1,)]");
        assert_eq!(flawed(Format::Pythonic, Flaw::Two), "[f(a=1), f(a=1)]");
        assert!(flawed(Format::Kimi, Flaw::Two).contains("functions.f:1<|tool"));
        assert_eq!(flawed(Format::Mistral, Flaw::InFence), "```\n[TOOL_CALLS]f[ARGS]{\"a\": 1}\n```");
        assert!(flawed(Format::QwenXml, Flaw::InProse).contains(" <tool_call> here"));
    }

    #[test]
    fn every_format_writes_every_flaw_it_can_have_without_a_panic() {
        for (word, format) in FORMATS {
            assert_eq!(Format::named(word), Some(format));
            assert_eq!(serde_json::to_value(format).unwrap(), word, "one name everywhere");
            for flaw in format.flaws() {
                for arguments in ["", "{}", "{", "[1]", "{\"a\": {\"b\": [null]}}"] {
                    assert!(!written(format, Some(flaw), "f", arguments).is_empty());
                }
            }
        }
    }
}
