//! `count-table REQUESTS MODELS_FOLDER ANSWERS`: our renderings and counts against an oracle's, request by request.
//!
//! Why: a count is used as the truth, so it must be the truth for every family of templates and not only for those that somebody
//! thought of. Prints a Markdown table, a line per model, and the first differences of each; ends with 1 if there is any. It must never
//! pass over an answer that it cannot compare: what the oracle rendered and we refuse is a difference.

mod turns;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use serde_json::Value;
use switchback_parsers::prompt::{CountError, Normalisation, PromptCounter};
use switchback_parsers::request::ChatRequest;

/// How many differences of a model are shown.
const SHOWN: usize = 3;

#[derive(Debug, clap::Parser)]
struct Args {
    /// One `{"id", "request"}` a line, of make_requests.py
    requests: PathBuf,
    /// A folder for each model
    models: PathBuf,
    /// One `{"model", "id", "tokens", "length", "text", …}` a line, of oracle.py or servers.py
    answers: PathBuf,
    /// Whose words the answers are: `vllm` or `llama-cpp`
    #[arg(long, default_value = "vllm")]
    engine: String,
    /// Only this model
    #[arg(long)]
    model: Option<String>,
    /// Count one request of so many turn by turn and changed, too, remembered and anew
    #[arg(long, value_name = "EVERY")]
    turns: Option<usize>,
}

/// What was found for one model.
#[derive(Default)]
struct Row {
    same: usize,
    /// Another text, but it was given as bounds and not as a count, and they hold.
    bounded: usize,
    /// Our rendering failed, which is no count and no refusal: the engine is asked then.
    not_counted: usize,
    refused_by_both: usize,
    differences: Vec<String>,
}

fn main() -> Result<()> {
    let args = <Args as clap::Parser>::parse();
    let engine = match args.engine.as_str() {
        "llama-cpp" => Normalisation::LlamaCpp,
        _ => Normalisation::Vllm,
    };
    let bodies = requests(&args.requests)?;
    let requests = parsed(&bodies)?;
    let answers = std::fs::read_to_string(&args.answers).context("cannot read the answers")?;
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut loaded: Option<(String, PromptCounter)> = None;
    for line in answers.lines() {
        let answer: Value = serde_json::from_str(line)?;
        let model = answer["model"].as_str().context("an answer names no model")?;
        if args.model.as_deref().is_some_and(|only| only != model) {
            continue;
        }
        if loaded.as_ref().is_none_or(|(name, _)| name != model) {
            loaded = Some((model.to_owned(), load(&args.models.join(model))?));
        }
        let Some((_, counter)) = &loaded else { continue };
        let id = answer["id"].as_u64().context("an answer has no id")?;
        let request = requests.get(&id).context("an answer for no request")?;
        let row = rows.entry(model.to_owned()).or_default();
        compare(counter, request, engine, &answer, row);
    }
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "| model | same | only bounds, which hold | not counted | refused by both | different |\n|---|---|---|---|---|---|"
    )?;
    for (model, row) in &rows {
        writeln!(
            out,
            "| {model} | {} | {} | {} | {} | {} |",
            row.same,
            row.bounded,
            row.not_counted,
            row.refused_by_both,
            row.differences.len()
        )?;
    }
    for (model, row) in rows.iter().filter(|(_, row)| !row.differences.is_empty()) {
        writeln!(out, "\n{model}:")?;
        for difference in row.differences.iter().take(SHOWN) {
            writeln!(out, "    {difference}")?;
        }
    }
    let different: usize = rows.values().map(|row| row.differences.len()).sum();
    anyhow::ensure!(different == 0, "{different} differences");
    let Some(every) = args.turns else { return Ok(()) };
    writeln!(
        out,
        "\n| model | remembers for vLLM | for llama.cpp | counts | different |\n|---|---|---|---|---|"
    )?;
    drop(out);
    let mut different = 0;
    for model in rows.keys() {
        let folder = args.models.join(model);
        different += turns::compare(model, &load(&folder)?, &load(&folder)?.forgetful(), &bodies, every)?;
    }
    anyhow::ensure!(different == 0, "{different} counts differ from those made anew");
    Ok(())
}

fn requests(file: &Path) -> Result<BTreeMap<u64, Value>> {
    let text = std::fs::read_to_string(file).context("cannot read the requests")?;
    let mut requests = BTreeMap::new();
    for line in text.lines() {
        let mut line: Value = serde_json::from_str(line)?;
        let id = line["id"].as_u64().context("a request has no id")?;
        requests.insert(id, line["request"].take());
    }
    Ok(requests)
}

fn parsed(bodies: &BTreeMap<u64, Value>) -> Result<BTreeMap<u64, ChatRequest>> {
    bodies.iter().map(|(id, body)| Ok((*id, ChatRequest::parse(Bytes::from(body.to_string()))?))).collect()
}

/// A folder, or the GGUF file in it.
fn load(folder: &Path) -> Result<PromptCounter> {
    let files = std::fs::read_dir(folder).with_context(|| format!("no folder {}", folder.display()))?;
    let gguf =
        files.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "gguf"));
    Ok(PromptCounter::load(gguf.as_deref().unwrap_or(folder))?)
}

fn compare(
    counter: &PromptCounter,
    request: &ChatRequest,
    engine: Normalisation,
    answer: &Value,
    row: &mut Row,
) {
    let id = &answer["id"];
    let ours = counter.count_chat(request, engine);
    match (ours, answer["tokens"].as_u64()) {
        (Ok(count), None) if answer["text"].is_string() => {
            let rendered = counter.render_chat(request, engine).unwrap_or_default();
            let text = answer["text"].as_str().unwrap_or_default();
            match (rendered == text, count.is_exact()) {
                (true, _) => row.same += 1,
                // What is not exact may have another day in it.
                (false, false) => row.bounded += 1,
                (false, true) => row.differences.push(format!("{id}: {}", first_difference(&rendered, text))),
            }
        }
        (Err(CountError::Failed(_)), theirs) if theirs.is_some() || answer["text"].is_string() => {
            row.not_counted += 1;
        }
        (Err(error), None) if answer["text"].is_string() => {
            row.differences.push(format!("{id}: we say {error}, they render it"));
        }
        (Err(_), None) => row.refused_by_both += 1,
        (Err(error), Some(theirs)) => {
            row.differences.push(format!("{id}: we say {error}, they count {theirs}"))
        }
        (Ok(count), None) => {
            row.differences.push(format!("{id}: we count {count}, they say {}", answer["refused"]))
        }
        (Ok(count), Some(theirs)) => {
            let text = answer["text"].as_str().and_then(|text| {
                let rendered = counter.render_chat(request, engine).unwrap_or_default();
                (rendered != text).then(|| first_difference(&rendered, text))
            });
            let holds = count.low() <= theirs && theirs <= count.high();
            match text {
                Some(_) if holds && !count.is_exact() => row.bounded += 1,
                Some(difference) => row.differences.push(format!("{id}: {difference}")),
                None if !holds => {
                    row.differences.push(format!("{id}: we count {count}, they {theirs}, of the same text"));
                }
                None => row.same += 1,
            }
        }
    }
}

/// Where two texts part, with what stands around.
fn first_difference(ours: &str, theirs: &str) -> String {
    let common = ours.bytes().zip(theirs.bytes()).take_while(|(a, b)| a == b).count();
    let near = common.saturating_sub(40)..common + 60;
    let around = |text: &str| {
        text.char_indices().filter(|(at, _)| near.contains(at)).map(|(_, c)| c).collect::<String>()
    };
    format!("at byte {common}: ours {:?}, theirs {:?}", around(ours), around(theirs))
}
