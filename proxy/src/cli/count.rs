//! `switchback count FILE`: how many tokens a request's prompt has, and how that is known.
//!
//! With a vocabulary the count is what the engine will see; without one it is bounds. Counts of single messages and tools
//! are those of their own text, without what the template puts around them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use serde_json::{Value, json};
use switchback_parsers::prompt::{self, Normalisation, PromptCounter, TokenCount};
use switchback_parsers::request::ChatRequest;

use super::serve::{find, load};
use super::{Failed, say};

#[derive(Debug, clap::Args)]
pub(super) struct CountArgs {
    /// A request body; `-` reads standard input
    #[arg(value_name = "FILE")]
    request: PathBuf,
    /// A folder with tokenizer.json and the chat template, or a .gguf file; absent: that of the configured model
    #[arg(long, value_name = "DIR_OR_GGUF")]
    tokenizer: Option<PathBuf>,
    /// As JSON: `tokens` (for bounds the upper one) and `exact` at least
    #[arg(long)]
    json: bool,
}

pub(super) fn run(file: Option<PathBuf>, args: &CountArgs) -> Result<(), Failed> {
    let request = read(&args.request)?;
    let path = match &args.tokenizer {
        Some(path) => Some(path.clone()),
        None => configured(file, &request)?,
    };
    let counter = path.as_deref().map(PromptCounter::load).transpose()?;
    let report = match &counter {
        Some(counter) => counted(counter, path.as_deref().unwrap_or(Path::new("")), &request)?,
        None => bounded(&request),
    };
    if args.json {
        say(report);
    } else {
        tell(&report);
    }
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<ChatRequest> {
    let bytes = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?.into_bytes()
    } else {
        std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?
    };
    let request = ChatRequest::parse(Bytes::from(bytes))?;
    request.check_chat()?;
    Ok(request)
}

/// The vocabulary of the configured model that the request asks for.
fn configured(file: Option<PathBuf>, request: &ChatRequest) -> Result<Option<PathBuf>, Failed> {
    let Some(file) = find(file) else { return Ok(None) };
    let config = load(&file)?;
    let asked = request.model();
    let named = config.models.iter().find(|model| {
        let names = std::iter::once(&model.name).chain(&model.aliases);
        asked.as_deref().is_some_and(|asked| names.into_iter().any(|name| name == asked))
    });
    Ok(named.or(config.models.first()).and_then(|model| model.tokenizer.clone()))
}

fn counted(counter: &PromptCounter, path: &Path, request: &ChatRequest) -> anyhow::Result<Value> {
    let is_gguf = path.extension().is_some_and(|extension| extension == "gguf");
    let (first, second) = if is_gguf {
        (("llama-cpp", Normalisation::LlamaCpp), ("vllm", Normalisation::Vllm))
    } else {
        (("vllm", Normalisation::Vllm), ("llama-cpp", Normalisation::LlamaCpp))
    };
    let would_say = |kind| match counter.count_chat(request, kind) {
        Ok(count) => json!(count.to_string()),
        Err(error) => json!(error.to_string()),
    };
    let count = match counter.count_chat(request, first.1) {
        Ok(count) => count,
        Err(error) => bail!("{} would refuse it: {error}", first.0),
    };
    let messages: Vec<Value> = request
        .messages()
        .map(|message| {
            json!({
                "role": message.role(),
                "text_tokens": counter.count_text(&message.text()),
                "images": message.images().count(),
            })
        })
        .collect();
    let tools: Vec<Value> = request
        .tools()
        .map(|tool| {
            let name = tool.at("/function/name").or_else(|| tool.get("name")).and_then(|name| name.as_str());
            json!({ "name": name, "text_tokens": counter.count_text(tool.raw()) })
        })
        .collect();
    Ok(json!({
        "tokens": count.high(),
        "exact": count.is_exact(),
        "low": count.low(),
        "how": counter.describe(),
        "engines": { first.0: would_say(first.1), second.0: would_say(second.1) },
        "messages": messages,
        "tools": tools,
    }))
}

fn bounded(request: &ChatRequest) -> Value {
    let bounds: TokenCount = prompt::bounds(request);
    json!({
        "tokens": bounds.high(),
        "exact": false,
        "low": bounds.low(),
        "how": "bounds from the bytes: no vocabulary was named",
    })
}

fn tell(report: &Value) {
    let exact = report.get("exact").and_then(Value::as_bool).unwrap_or(false);
    let (tokens, low) = (&report["tokens"], &report["low"]);
    if exact {
        say(format_args!("{tokens} tokens, exact"));
    } else {
        say(format_args!("{low} to {tokens} tokens"));
    }
    say(format_args!("    counted by {}", report["how"].as_str().unwrap_or_default()));
    for (engine, count) in report["engines"].as_object().into_iter().flatten() {
        say(format_args!("    {engine} would say {}", count.as_str().unwrap_or_default()));
    }
    for (what, key, name) in [("message", "messages", "role"), ("tool", "tools", "name")] {
        for one in report[key].as_array().into_iter().flatten() {
            say(format_args!(
                "    {what} {}: {} tokens of text",
                one[name].as_str().unwrap_or("?"),
                one["text_tokens"]
            ));
        }
    }
}
