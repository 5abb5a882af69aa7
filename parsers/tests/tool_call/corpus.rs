//! Corpus lines, and how an answer is compared with one.

use std::path::{Path, PathBuf};

use serde_json::Value;
use switchback_parsers::event::{Event, Folded};
use switchback_parsers::tool_call::{Options, TextParser, Utf8};

/// One line.
pub(crate) struct Case {
    pub(crate) family: String,
    pub(crate) line: Value,
}

impl Case {
    pub(crate) fn id(&self) -> &str {
        self.line["id"].as_str().unwrap()
    }

    pub(crate) fn must(&self) -> bool {
        self.line["level"] == "must"
    }

    pub(crate) fn text(&self) -> &str {
        self.line["text"].as_str().unwrap()
    }

    pub(crate) fn request(&self, key: &str) -> &Value {
        &self.line["request"][key]
    }

    fn options(&self) -> Options {
        Options::from_json(&self.line["tools"].to_string(), &self.line["request"].to_string())
    }

    /// The answer to these pieces of the text.
    pub(crate) fn run<'t>(&self, pieces: impl IntoIterator<Item = &'t [u8]>) -> Folded {
        let (events, finish_reason) = self.events(pieces);
        Folded { finish_reason, ..Folded::of(events) }
    }

    /// The answer to the whole text of a model that writes its calls in this format.
    pub(crate) fn run_narrowed(&self, format: &str) -> Folded {
        self.run_with(Options { format: Some(format.to_owned()), ..self.options() })
    }

    /// The answer to the whole text of a model that probably does.
    pub(crate) fn run_hinted(&self, family: &str) -> Folded {
        self.run_with(Options { family: Some(family.to_owned()), ..self.options() })
    }

    fn run_with(&self, options: Options) -> Folded {
        let (events, finish_reason) = self.read(options, [self.text().as_bytes()]);
        Folded { finish_reason, ..Folded::of(events) }
    }

    /// The events of the answer to these pieces, and the finish reason.
    pub(crate) fn events<'t>(&self, pieces: impl IntoIterator<Item = &'t [u8]>) -> (Vec<Event>, String) {
        self.read(self.options(), pieces)
    }

    fn read<'t>(&self, options: Options, pieces: impl IntoIterator<Item = &'t [u8]>) -> (Vec<Event>, String) {
        let mut parser = TextParser::new(options);
        let mut events: Vec<Event> = Vec::new();
        if let Some(reasoning) = self.request("upstream_reasoning").as_str() {
            events.extend(parser.push_reasoning(reasoning));
        }
        let mut utf8 = Utf8::default();
        for piece in pieces {
            events.extend(parser.push(&utf8.push(piece)));
        }
        let (last, finish_reason) = parser.finish(self.request("upstream_finish").as_str().unwrap_or("stop"));
        events.extend(last);
        assert_eq!(parser.held(), 0, "{}: text is still held at the end", self.id());
        (events, finish_reason)
    }

    /// What is wrong with the answer; empty if it is as the corpus says.
    pub(crate) fn complaints(&self, answer: &Folded) -> Vec<String> {
        let expected = &self.line["expect"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut wrong = Vec::new();
        let calls = expected["tool_calls"].as_array().unwrap();
        let (want, got) = (text(&expected["content"]), &answer.content);
        let same = if !calls.is_empty() {
            collapsed(&want) == collapsed(got)
        } else if self.line["kind"] == "negative" && want == self.text() {
            want == *got
        } else {
            want.trim() == got.trim()
        };
        if !same {
            wrong.push(format!("content {got:?}, want {want:?}"));
        }
        if collapsed(&text(&expected["reasoning"])) != collapsed(&answer.reasoning) {
            wrong.push(format!("reasoning {:?}, want {}", answer.reasoning, expected["reasoning"]));
        }
        if calls.len() != answer.calls.len() {
            wrong.push(format!("{} calls, want {}", answer.calls.len(), calls.len()));
        }
        for (want, got) in calls.iter().zip(&answer.calls) {
            let arguments: Value = serde_json::from_str(&got.arguments).unwrap_or(Value::Null);
            if want["name"] != got.name || !equal(&want["arguments"], &arguments) || !got.closed {
                wrong.push(format!(
                    "call {}{}, want {}{}",
                    got.name, got.arguments, want["name"], want["arguments"]
                ));
            }
            if !arguments.is_object() {
                wrong.push(format!("arguments {} are no object", got.arguments));
            }
        }
        if self.line["finish_reason"] != answer.finish_reason {
            wrong.push(format!("finish {}, want {}", answer.finish_reason, self.line["finish_reason"]));
        }
        wrong
    }
}

fn collapsed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Equal as JSON; 1000 and 1000.0 are the same.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| equal(value, other)))
        }
        (one, other) => one == other,
    }
}

/// All lines of the corpus, in the order of their files.
pub(crate) fn cases() -> Vec<Case> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let folder =
        above.map(|folder| folder.join("tests/corpus/toolcalls")).find(|folder| folder.is_dir()).unwrap();
    let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let family = file.file_stem().unwrap().to_str().unwrap().to_owned();
        for line in std::fs::read_to_string(&file).unwrap().lines().filter(|line| !line.is_empty()) {
            cases.push(Case { family: family.clone(), line: serde_json::from_str(line).unwrap() });
        }
    }
    cases
}
