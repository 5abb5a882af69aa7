//! `switchback-counting-bench MODEL_FOLDER`: what a count costs, against Hugging Face's tokenizers 0.23 in the same run.
//!
//! A conversation of about 540 KB in 76 messages of prose, code and JSON. Ours is the whole way from the checked body (parsing it is told
//! apart) to the number: preparing, rendering, tokenising. Theirs is given the rendered prompt and only tokenises. Times are the best of
//! several, so that other people's time slices count least; compare within a run only.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use serde_json::json;
use switchback_parsers::prompt::{Normalisation, PromptCounter};
use switchback_parsers::request::ChatRequest;

const CODE: &str = "    pub fn next(&mut self) -> Option<Frame> {\n        while let Some(at) = memchr(b'\\n', &self.buffer) {\n            self.seen += at + 1; // line %N%\n        }\n        None\n    }\n";
const PROSE: &str = "The proxy counts the tokens of a prompt before it decides where that goes, and says why; item %N% doesn't fit. ";
const DATA: &str = "{\"path\": \"src/main.rs\", \"line\": %N%, \"kind\": [\"error\", \"E0308\"], \"ok\": false, \"cost\": 0.25}\n";

fn text(seed: usize, bytes: usize) -> String {
    let mut out = String::with_capacity(bytes + 300);
    let mut number = seed * 7919;
    while out.len() < bytes {
        number = number.wrapping_mul(48271) % 2_147_483_647 + 1;
        let piece = [CODE, PROSE, DATA][number % 3];
        out.push_str(&piece.replace("%N%", &number.to_string()));
    }
    out
}

fn conversation(seed: usize, turns: usize) -> ChatRequest {
    let mut messages = vec![json!({"role": "system", "content": text(seed, 8_000)})];
    for turn in 0..turns {
        messages.push(json!({"role": "user", "content": text(seed + 1000 * turn + 1, 2_000)}));
        messages.push(json!({"role": "assistant", "content": text(seed + 1000 * turn + 2, 11_300)}));
    }
    messages.push(json!({"role": "user", "content": text(seed + 1000 * turns + 1, 2_000)}));
    ChatRequest::parse(Bytes::from(json!({"messages": messages}).to_string())).expect("a request")
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let done = work();
    (start.elapsed(), done)
}

fn best(times: usize, mut work: impl FnMut()) -> Duration {
    (0..times).map(|_| timed(&mut work).0).min().unwrap_or_default()
}

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).context("a model folder is needed")?;
    let folder = Path::new(&folder);
    let theirs = tokenizers_02::Tokenizer::from_file(folder.join("tokenizer.json")).map_err(|e| anyhow::anyhow!("{e}"))?;
    let ours = PromptCounter::load(folder)?;
    let engine = Normalisation::Vllm;
    println!("{}", ours.describe());

    let request = conversation(1, 37);
    let bytes = request.body().len();
    let (first, count) = timed(|| ours.count_chat(&request, engine));
    let count = count?;
    let prompt = ours.render_chat(&request, engine)?;
    let (hf_first, encoded) = timed(|| theirs.encode_fast(prompt.as_str(), false));
    let encoded = encoded.map_err(|e| anyhow::anyhow!("{e}"))?.len() as u64;
    anyhow::ensure!(count.is_exact() && count.low() == encoded, "we count {count}, they {encoded}");
    let hf_warm = best(5, || drop(theirs.encode_fast(prompt.as_str(), false)));
    println!("{bytes} bytes, {count} tokens");
    println!("| what | ours ms | 0.23 ms | ratio |\n|---|---|---|---|");
    let row = |what: &str, ours: Duration, hf: Duration| {
        let (ours, hf) = (ours.as_secs_f64() * 1e3, hf.as_secs_f64() * 1e3);
        println!("| {what} | {ours:.3} | {hf:.1} | {:.0} |", hf / ours);
    };
    row("first sight (every buffer new)", first, hf_first);
    let fresh: Vec<ChatRequest> = (2..7).map(|seed| conversation(seed * 77, 37)).collect();
    let mut unseen = fresh.iter();
    row("first sight, buffers warm", best(5, || drop(unseen.next().map(|r| ours.count_chat(r, engine)))), hf_warm);
    row("the same again", best(20, || drop(ours.count_chat(&request, engine))), hf_warm);
    // Conversations that all differ, as those of many clients do: none finds the caches full of itself.
    let grown: Vec<ChatRequest> = (0..40).map(|seed| conversation(seed * 100_077 + 5, 38)).collect();
    (0..40).for_each(|seed| drop(ours.count_chat(&conversation(seed * 100_077 + 5, 37), engine)));
    let mut turns: Vec<Duration> = grown.iter().map(|request| timed(|| ours.count_chat(request, engine)).0).collect();
    turns.sort();
    row("turn N+1 (two new messages), best of 40 conversations", turns[0], hf_warm);
    row("turn N+1, median", turns[20], hf_warm);
    let body = request.body().clone();
    println!("reading the body: {:.3} ms", best(20, || drop(ChatRequest::parse(body.clone()))).as_secs_f64() * 1e3);
    println!("rendering alone: {:.3} ms", best(20, || drop(ours.render_chat(&request, engine))).as_secs_f64() * 1e3);
    for (what, one) in [("prose", text(5, 1 << 20)), ("1 MiB of one letter", "x".repeat(1 << 20))] {
        let chat = |text: &str| ChatRequest::parse(Bytes::from(json!({"messages": [{"role": "user", "content": text}]}).to_string()));
        let (whole, half) = (chat(&one)?, chat(&one[..one.len() / 2])?);
        let cost = |request: &ChatRequest| timed(|| ours.count_chat(request, engine)).0.as_secs_f64() * 1e3;
        println!("{what}: half {:.1} ms, whole {:.1} ms", cost(&half), cost(&whole));
    }
    Ok(())
}
