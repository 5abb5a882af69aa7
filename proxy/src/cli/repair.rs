//! `switchback repair`: an answer as a model wrote it, on standard input → the message that a client would get.
//!
//! The very parser that serves. With `--jsonl` every line is one answer with its tools; with `--cuts` each is also fed in
//! pieces, as a stream brings it, and it is said where that gave anything else. It never runs anything.

use std::io::{BufRead as _, Read as _};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use serde_json::{Map, Value, json};
use switchback_parsers::calls::ChunkNormaliser;
use switchback_parsers::event::{Folded, Note};
use switchback_parsers::schema::ToolSet;
use switchback_parsers::tool_call::{Options, TextParser, Utf8, format_names};

use self::cuts::Cuts;
use super::{Failed, say};
use crate::config::nearest;

mod cuts;

#[derive(Debug, clap::Args)]
pub(super) struct RepairArgs {
    /// The declared tools: a request body, or its `tools` alone; without any, all text is text
    #[arg(long, value_name = "FILE", conflicts_with = "jsonl")]
    tools: Option<PathBuf>,
    /// Each line is one answer: `id`, `text`, `tools`, `request`, the fields of tests/corpus/toolcalls
    #[arg(long)]
    jsonl: bool,
    /// Feed the text in pieces, too: every (each single cut), bytes, chars, or random:SEED
    #[arg(long, value_name = "HOW")]
    cuts: Option<Cuts>,
    /// The family in which the model writes its calls, as `format` of a backend; auto looks for all
    #[arg(long, value_name = "NAME", value_parser = known_format, default_value = "auto")]
    format: String,
    /// Name the formats, and exit
    #[arg(long)]
    formats: bool,
}

pub(super) fn run(args: &RepairArgs) -> Result<(), Failed> {
    if args.formats {
        say(format_names().join("\n"));
        return Ok(());
    }
    let mut input = std::io::stdin().lock();
    if args.jsonl {
        for (at, line) in input.lines().enumerate() {
            let line = line.context("cannot read standard input")?;
            if !line.trim().is_empty() {
                let answer = line_of(&line).with_context(|| format!("line {}", at + 1))?;
                say(answer.written_in(&args.format).report(args.cuts));
            }
        }
        return Ok(());
    }
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).context("cannot read standard input")?;
    let request = match &args.tools {
        Some(file) => {
            let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", file.display()))?
        }
        None => Value::Null,
    };
    let answer = match request {
        Value::Array(_) => Answer { tools: request, bytes, ..Answer::default() },
        mut request => Answer { tools: request["tools"].take(), bytes, request, ..Answer::default() },
    };
    say(answer.written_in(&args.format).report(args.cuts));
    Ok(())
}

fn known_format(name: &str) -> Result<String, String> {
    let known = format_names();
    if name == "auto" || known.contains(&name) {
        return Ok(name.to_owned());
    }
    let near = nearest(name, known.iter().copied()).map(|near| format!("did you mean {near}? "));
    let near = near.unwrap_or_default();
    Err(format!("{name} is no format of tool calls\nhint: {near}the formats are auto, {}", known.join(", ")))
}

fn line_of(line: &str) -> anyhow::Result<Answer> {
    let mut line: Value = serde_json::from_str(line).context("is not JSON")?;
    let Some(text) = line.get("text").and_then(Value::as_str) else { bail!("has no text") };
    Ok(Answer {
        bytes: text.as_bytes().to_vec(),
        id: line.get("id").cloned(),
        tools: line["tools"].take(),
        request: line["request"].take(),
        format: None,
    })
}

/// One answer and what it answers.
#[derive(Debug, Default)]
struct Answer {
    id: Option<Value>,
    bytes: Vec<u8>,
    tools: Value,
    /// Members of the request, and `thinking_open`, `upstream_finish`, `upstream_reasoning`.
    request: Value,
    /// What is looked for; none: every format.
    format: Option<String>,
}

impl Answer {
    fn written_in(self, format: &str) -> Self {
        Self { format: Some(format.to_owned()).filter(|format| format != "auto"), ..self }
    }

    fn report(&self, cuts: Option<Cuts>) -> Value {
        let whole = self.fold([self.bytes.as_slice()]);
        let mut line = Map::new();
        line.extend(self.id.clone().map(|id| ("id".to_owned(), id)));
        let text = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
        line.insert("content".to_owned(), text(&whole.content));
        line.insert("reasoning".to_owned(), text(&whole.reasoning));
        line.insert("tool_calls".to_owned(), self.calls(&whole));
        line.insert("finish_reason".to_owned(), whole.finish_reason.clone().into());
        let mut notes: Vec<String> = whole
            .notes
            .iter()
            .filter(|note| !matches!(note, Note::Markup(_)))
            .map(ToString::to_string)
            .collect();
        if self.tool_set().is_empty() {
            notes.push("no tools are declared, so all text is text".to_owned());
        }
        line.insert("notes".to_owned(), notes.into());
        if let Some(cuts) = cuts {
            let (mut differ, mut leaks) = (Vec::new(), Vec::new());
            for (label, pieces) in cuts.of(&self.bytes) {
                let cut = self.fold(pieces);
                if shown(&cut) != shown(&whole) {
                    if cut.content.len() > whole.content.len() {
                        leaks.push(label.clone());
                    }
                    differ.push(label);
                }
            }
            for (key, found) in [("cut_differs", differ), ("leaks", leaks)] {
                if !found.is_empty() {
                    line.insert(key.to_owned(), found.into());
                }
            }
        }
        line.into()
    }

    fn fold<'t>(&self, pieces: impl IntoIterator<Item = &'t [u8]>) -> Folded {
        let word = |key: &str| self.request.get(key).and_then(Value::as_str);
        let mut parser = TextParser::new(self.options());
        let mut utf8 = Utf8::default();
        let mut events = Vec::new();
        if let Some(reasoning) = word("upstream_reasoning") {
            events.extend(parser.push_reasoning(reasoning));
        }
        for piece in pieces {
            events.extend(parser.push(&utf8.push(piece)));
        }
        events.extend(parser.push(utf8.finish()));
        let (last, finish_reason) = parser.finish(word("upstream_finish").unwrap_or("stop"));
        events.extend(last);
        Folded { finish_reason, ..Folded::of(events) }
    }

    fn calls(&self, answer: &Folded) -> Value {
        let seed = self.id.as_ref().and_then(Value::as_str).unwrap_or("text");
        let mut ids = ChunkNormaliser::new(Arc::new(self.tool_set()), seed);
        let calls = answer.calls.iter().map(|call| {
            let (_, id) = ids.allot(0, call.id.clone(), &call.name);
            json!({ "id": id, "name": call.name, "arguments": call.arguments })
        });
        calls.collect()
    }

    fn tool_set(&self) -> ToolSet {
        ToolSet::from_json(&self.tools.to_string())
    }

    fn options(&self) -> Options {
        let format = self.format.clone();
        Options { format, ..Options::from_json(&self.tools.to_string(), &self.request.to_string()) }
    }
}

/// What a client sees of an answer; notes may come in other pieces.
fn shown(answer: &Folded) -> impl PartialEq {
    let Folded { content, reasoning, calls, finish_reason, notes: _ } = answer.clone();
    (content, reasoning, calls, finish_reason)
}
