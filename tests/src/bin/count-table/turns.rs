//! Counts of conversations that grow and change, remembered and anew, with every model.
//!
//! Why beside the oracle: it sees each request once, and a counter that remembers is wrong, if it is, about the second. The counter is the
//! one that has counted all requests before, so that whatever it remembers of one meets all others.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::Result;
use bytes::Bytes;
use serde_json::{Value, json};
use switchback_parsers::prompt::{Normalisation, PromptCounter};
use switchback_parsers::request::ChatRequest;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides.max(1)
    }
}

/// Counts every version of one request of `every`, twice. Prints a line of the table, and what differs.
pub(super) fn compare(
    model: &str,
    counter: &PromptCounter,
    anew: &PromptCounter,
    requests: &BTreeMap<u64, Value>,
    every: usize,
) -> Result<usize> {
    let mut dice = Dice(7);
    let (mut counted, mut different) = (0, 0);
    let mut out = std::io::stdout().lock();
    for body in requests.values().step_by(every) {
        for version in versions(body, &mut dice) {
            let request = ChatRequest::parse(Bytes::from(version.to_string()))?;
            for engine in [Normalisation::Vllm, Normalisation::LlamaCpp] {
                let (ours, whole) = (counter.count_chat(&request, engine), anew.count_chat(&request, engine));
                counted += usize::from(whole.is_ok());
                if ours != whole {
                    different += 1;
                    writeln!(out, "    {model}, {engine:?}: {ours:?} remembered, {whole:?} anew: {version}")?;
                }
            }
        }
    }
    let remembers = [Normalisation::Vllm, Normalisation::LlamaCpp]
        .map(|engine| if counter.remembers(engine) { "yes" } else { "no" });
    writeln!(out, "| {model} | {} | {} | {counted} | {different} |", remembers[0], remembers[1])?;
    Ok(different)
}

/// The conversation after each of its messages, and then with messages moved, changed, added and gone.
fn versions(body: &Value, dice: &mut Dice) -> Vec<Value> {
    let Some(all) = body["messages"].as_array() else { return Vec::new() };
    let with = |messages: &[Value]| {
        let mut body = body.clone();
        body["messages"] = json!(messages);
        body
    };
    let mut versions: Vec<Value> = (1..=all.len()).filter_map(|end| Some(with(all.get(..end)?))).collect();
    let mut messages = all.clone();
    for _ in 0..6 {
        let (at, other) = (dice.roll(messages.len()), dice.roll(all.len()));
        match dice.roll(6) {
            0 => drop(messages.remove(at)),
            1 => messages.insert(at, all[other].clone()),
            2 => {
                let last = messages.len() - 1;
                messages.swap(at, other.min(last));
            }
            3 => {
                messages[at]["role"] =
                    json!(["user", "assistant", "system", "tool", "developer"][dice.roll(5)])
            }
            4 => {
                let contents = ["", "x", "<tool_response>y</tool_response>", "\n\n", "<|im_start|>"];
                messages[at]["content"] = json!(contents[dice.roll(contents.len())]);
            }
            _ => {
                let image = json!({"type": "image_url", "image_url": {"url": "http://x/y.png"}});
                messages[at]["content"] = json!([{"type": "text", "text": "a"}, image]);
            }
        }
        if messages.is_empty() {
            break;
        }
        let mut version = with(&messages);
        if let Some(version) = version.as_object_mut().filter(|_| dice.roll(4) == 0) {
            version.remove("tools");
        }
        versions.push(version);
    }
    versions
}
