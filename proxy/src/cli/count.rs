//! `switchback count FILE`: how many tokens a request's prompt has, and how that is known.
//!
//! With a vocabulary the count is what the engine will see; without one it is bounds. Counts of single messages and tools
//! are those of their own text, without what the template puts around them. With a configuration it also says what that means at each
//! backend of the model, and with `--live` what the backend itself says.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use serde_json::{Value, json};
use switchback_parsers::chunk::Dialect;
use switchback_parsers::prompt::{self, CountError, Normalisation, PromptCounter, TokenCount};
use switchback_parsers::request::ChatRequest;

use super::serve::{find, load};
use super::{Failed, say};
use crate::app::App;
use crate::backend::client::Tcp;
use crate::config::{Config, Model};
use crate::measure::{by_backend, normalisation};

/// The largest body that is read, in bytes. Counting takes about nine times as much memory.
const MAX_BYTES: u64 = 256 << 20;
/// A pipe has somebody who writes to it within that time.
const OPENED_WITHIN: Duration = Duration::from_secs(5);

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
    /// Ask the configured backends that can count
    #[arg(long)]
    live: bool,
}

pub(super) async fn run(file: Option<PathBuf>, args: &CountArgs) -> Result<(), Failed> {
    let request = read(&args.request)?;
    // A tokenizer that is named stands for itself: a configuration beside it is not looked for, but may be given.
    let config = match (&args.tokenizer, file) {
        (Some(_), None) if !args.live => None,
        (_, file) => find(file).map(|file| load(&file)).transpose()?,
    };
    let model = config.as_ref().and_then(|config| model_of(config, &request));
    let configured = model.and_then(|model| model.tokenizer.clone());
    let path = args.tokenizer.clone().or(configured);
    let counter = path.as_deref().map(PromptCounter::load).transpose()?.map(Arc::new);
    let mut report = match &counter {
        Some(counter) => counted(counter, path.as_deref().unwrap_or(Path::new("")), &request)?,
        None => bounded(&request),
    };
    let positions = model.map(|model| model.backends.clone());
    if let Some(config) = config {
        report["backends"] = backends(config, positions, counter.as_ref(), &request, args.live).await;
    }
    if args.json {
        say(report);
    } else {
        tell(&report);
    }
    Ok(())
}

/// What each backend of the model would see, and with `live` what it says.
async fn backends(
    config: Config,
    positions: Option<Vec<usize>>,
    counter: Option<&Arc<PromptCounter>>,
    request: &ChatRequest,
    live: bool,
) -> Value {
    let app = App::new(Config { models: Vec::new(), ..config }, Arc::new(Tcp));
    if live {
        app.probe_all().await;
    }
    let all = (0..app.fleet.all().len()).collect::<Vec<usize>>();
    let mut told = Vec::new();
    for backend in app.fleet.at(&positions.unwrap_or(all)) {
        let template = backend.chat_template();
        let counter =
            counter.and_then(|counter| app.vocabularies.running().counter(counter, template.as_ref()));
        let ours = counter.map(|counter| counter.count_chat(request, normalisation(backend.engine())));
        let ours = ours.map(|count| count.map_or_else(|error| error.to_string(), |count| count.to_string()));
        let mut one =
            json!({"name": backend.name(), "engine": backend.engine().to_string(), "counted": ours});
        if live {
            one["says"] = json!(by_backend(&backend, Some(Dialect::Chat), request).await);
        }
        told.push(one);
    }
    Value::Array(told)
}

/// The bytes of a file, of what a pipe gives, or of standard input.
fn bytes_of(file: &Path) -> anyhow::Result<Vec<u8>> {
    let cannot = || format!("cannot read {}", file.display());
    let source: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => {
            let about = std::fs::metadata(file).with_context(cannot)?;
            if about.is_dir() {
                bail!("{} is a folder\nhint: name a file with the body of one request", file.display());
            }
            if about.len() > MAX_BYTES {
                bail!("{} has {} bytes; the limit is {MAX_BYTES}", file.display(), about.len());
            }
            let (sender, opened) = mpsc::channel();
            let path = file.to_owned();
            // A pipe that nobody writes to is not even opened.
            std::thread::spawn(move || sender.send(File::open(path)));
            let Ok(opened) = opened.recv_timeout(OPENED_WITHIN) else {
                bail!("nobody has written to {} for {} s", file.display(), OPENED_WITHIN.as_secs());
            };
            Box::new(opened.with_context(cannot)?)
        }
    };
    let mut bytes = Vec::new();
    source.take(MAX_BYTES + 1).read_to_end(&mut bytes).with_context(cannot)?;
    if bytes.len() as u64 > MAX_BYTES {
        bail!("{} has more bytes than the limit of {MAX_BYTES}", file.display());
    }
    Ok(bytes)
}

fn read(file: &Path) -> anyhow::Result<ChatRequest> {
    let bytes = bytes_of(file)?;
    let request = ChatRequest::parse(Bytes::from(bytes))?;
    let has = |member: &str| request.root().get(member).is_some();
    if !is_chat(&request) && (has("input") || has("system")) {
        bail!(
            "this is a body of Responses or Messages\nhint: chat (`messages`) and completions (`prompt`) are counted here; the proxy asks the backend for others, or takes bounds"
        );
    }
    if is_chat(&request) || !has("prompt") {
        request.check_chat()?;
    }
    Ok(request)
}

fn is_chat(request: &ChatRequest) -> bool {
    request.root().get("messages").is_some()
}

/// The configured model that the request asks for, else the first.
fn model_of<'a>(config: &'a Config, request: &ChatRequest) -> Option<&'a Model> {
    let asked = request.model();
    let named = config.models.iter().find(|model| {
        let names = std::iter::once(&model.name).chain(&model.aliases);
        asked.as_deref().is_some_and(|asked| names.into_iter().any(|name| name == asked))
    });
    named.or(config.models.first())
}

fn counted(counter: &PromptCounter, path: &Path, request: &ChatRequest) -> anyhow::Result<Value> {
    let is_gguf = path.extension().is_some_and(|extension| extension == "gguf");
    let (first, second) = if is_gguf {
        (("llama-cpp", Normalisation::LlamaCpp), ("vllm", Normalisation::Vllm))
    } else {
        (("vllm", Normalisation::Vllm), ("llama-cpp", Normalisation::LlamaCpp))
    };
    let counted = |kind| match counter.count_completion(request, kind) {
        Some(count) if !is_chat(request) => Ok(count),
        _ => counter.count_chat(request, kind),
    };
    let would_say = |kind| match counted(kind) {
        Ok(count) => json!(count.to_string()),
        Err(error) => json!(error.to_string()),
    };
    let count = match counted(first.1) {
        Ok(count) => count,
        Err(CountError::NoTemplate) => {
            let mut report = bounded(request);
            report["how"] =
                json!(format!("bounds from the bytes: no chat template ({})", counter.describe()));
            return Ok(report);
        }
        // Our rendering gave up, which says nothing of the engine's.
        Err(CountError::Failed(reason)) => {
            let mut report = bounded(request);
            report["how"] = json!(format!("bounds from the bytes: {reason} ({})", counter.describe()));
            return Ok(report);
        }
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
        "images": images(counter, request),
        "not_counted": not_counted(request),
    }))
}

fn images(counter: &PromptCounter, request: &ChatRequest) -> Vec<Value> {
    let rule = counter.image_rule();
    let told = prompt::images(request).into_iter().map(|image| {
        let tokens = rule.zip(image.size).map(|(rule, size)| rule.tokens(size));
        let most = rule.map_or(prompt::PER_IMAGE, |rule| rule.most());
        json!({
            "message": image.message,
            "width": image.size.map(|size| size.width),
            "height": image.size.map(|size| size.height),
            "tokens": tokens,
            "at_most": tokens.unwrap_or(most),
        })
    });
    told.collect()
}

/// Sounds, videos and files: no rule says what they become.
fn not_counted(request: &ChatRequest) -> Vec<Value> {
    let mut found = Vec::new();
    for (at, message) in request.messages().enumerate() {
        for part in message.parts() {
            let kind = part.get("type").and_then(|kind| kind.as_str()).unwrap_or_default();
            if ["audio", "video", "file"].iter().any(|medium| kind.contains(medium)) {
                found.push(json!({"message": at, "type": kind}));
            }
        }
    }
    found
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
    for backend in report["backends"].as_array().into_iter().flatten() {
        let text = |key: &str| backend[key].as_str().unwrap_or_default().to_owned();
        let counted = backend["counted"].as_str().map(|count| format!(", by the vocabulary {count}"));
        let says = match backend.get("says") {
            None => String::new(),
            Some(Value::Null) => ", does not count itself".to_owned(),
            Some(says) => format!(", itself says {says}"),
        };
        say(format_args!(
            "    backend {} ({}){}{says}",
            text("name"),
            text("engine"),
            counted.unwrap_or_default()
        ));
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
    for image in report["images"].as_array().into_iter().flatten() {
        let size = match (image["width"].as_u64(), image["height"].as_u64()) {
            (Some(width), Some(height)) => format!("{width} x {height}"),
            _ => "of a size that is not told".to_owned(),
        };
        let about = if image["tokens"].is_null() { "at most " } else { "" };
        say(format_args!(
            "    image in message {} {size}: {about}{} tokens",
            image["message"], image["at_most"]
        ));
    }
    for part in report["not_counted"].as_array().into_iter().flatten() {
        let kind = part["type"].as_str().unwrap_or_default();
        say(format_args!("    {kind} in message {}: not counted", part["message"]));
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, bytes_of};

    #[test]
    fn what_is_no_request_says_so_and_is_not_read() {
        let folder = std::env::temp_dir();
        let refused = |path: &std::path::Path| bytes_of(path).unwrap_err().to_string();
        assert!(refused(&folder).contains("is a folder"));
        let file = folder.join(format!("switchback-count-{}", std::process::id()));
        assert!(refused(&file).starts_with("cannot read"));
        // It has no blocks on the disk.
        std::fs::File::create(&file).unwrap().set_len(MAX_BYTES + 1).unwrap();
        let large = refused(&file);
        std::fs::remove_file(&file).unwrap();
        assert!(large.ends_with("has 268435457 bytes; the limit is 268435456"), "{large}");
    }
}
