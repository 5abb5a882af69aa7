//! Somebody reads an answer while another client sends a file of 60,000 or 90,000 tokens, and a third one a short question.
//!
//! On `vllm/dual` alone, and with a second machine beside it; with a stream that ends within `large_prefill_wait`, and one that
//! does not.

use std::time::Duration;

use anyhow::Result;
use switchback_rig::text_of_tokens;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::client::{Heard, ask, chat, prompt, user, with_tools};
use crate::figures::{Report, largest, percentile, s};
use crate::stage::{Machine, Stage};

/// Seconds after the stream's first word.
const FILE_COMES: u64 = 2;
const QUESTION_COMES: u64 = 6;

struct Case {
    machines: &'static [(&'static str, &'static str)],
    file: usize,
    answer: u64,
    what: &'static str,
}

const DUAL: &[(&str, &str)] = &[("dual", "vllm/dual")];
const BOTH: &[(&str, &str)] = &[("dual", "vllm/dual"), ("llama", "llamacpp/default")];

pub(crate) async fn run() -> Result<Report> {
    let mut report = Report::new(
        "A live stream beside a large prefill: gaps between its words, and when the others hear theirs (seconds)",
        &[
            "machines",
            "file",
            "stream",
            "gate",
            "p50",
            "p95",
            "longest",
            "lost",
            "question after",
            "file after",
            "file on",
        ],
    );
    let alone = Case { machines: DUAL, file: 0, answer: 1200, what: "17 s" };
    let undisturbed = play(&alone, false).await?.0;
    let base = percentile(&undisturbed.gaps, 0.95);
    row(&mut report, &alone, "-", &undisturbed, None, &Heard::default());
    report.figure("p95_undisturbed", base);
    for (machines, answer, what) in [(DUAL, 1200, "17 s"), (DUAL, 4500, "63 s"), (BOTH, 4500, "63 s")] {
        for file in [60_000, 90_000] {
            let case = Case { machines, file, answer, what };
            let key = format!(
                "{}_{}k_{}",
                if machines.len() == 1 { "dual" } else { "two" },
                file / 1000,
                what.replace(' ', "")
            );
            for gate in [false, true] {
                let (stream, question, large) = play(&case, gate).await?;
                row(&mut report, &case, if gate { "on" } else { "off" }, &stream, Some(&question), &large);
                let key = format!("{key}_{}", if gate { "on" } else { "off" });
                report.figure(format!("{key}_p95"), percentile(&stream.gaps_during(&large), 0.95));
                report.figure(format!("{key}_longest"), largest(&stream.gaps));
                report.figure(format!("{key}_question"), question.first);
                report.figure(format!("{key}_file"), large.first);
            }
        }
    }
    report.note("p50, p95: of the gaps between the file's sending and its first word. lost: the sum of what gaps are longer than a tenth of a second. off: the same proxy with [admission] enabled = false.");
    Ok(report)
}

fn row(
    report: &mut Report,
    case: &Case,
    gate: &str,
    stream: &Heard,
    question: Option<&Heard>,
    large: &Heard,
) {
    let lost: f64 = stream.gaps.iter().map(|gap| (gap - 0.1).max(0.0)).sum();
    let machines: Vec<&str> = case.machines.iter().map(|(name, _)| *name).collect();
    report.row([
        machines.join(" + "),
        if case.file == 0 { "-".to_owned() } else { case.file.to_string() },
        case.what.to_owned(),
        gate.to_owned(),
        format!("{:.3}", percentile(&stream.gaps_during(large), 0.5)),
        format!("{:.3}", percentile(&stream.gaps_during(large), 0.95)),
        s(largest(&stream.gaps)),
        s(lost),
        question.map_or("-".to_owned(), |question| s(question.first)),
        if case.file == 0 { "-".to_owned() } else { s(large.first) },
        large.backend.clone(),
    ]);
}

/// The stream, the short question, the file.
async fn play(case: &Case, gate: bool) -> Result<(Heard, Heard, Heard)> {
    let machines = case.machines.iter().map(|(name, slug)| Machine::preset(name, slug));
    let stage = Stage::proxied(machines.collect::<Result<_>>()?, gate, "").await?;
    let (begun, begins) = oneshot::channel();
    let (asks, question_begins) = oneshot::channel();
    let reading = ask(
        &stage,
        None,
        "reader",
        chat(vec![user("Tell me about mountain roads.")], case.answer),
        Some(begun),
    );
    let others = async {
        begins.await?;
        if case.file == 0 {
            return Ok((Heard::default(), Heard::default()));
        }
        let file = async {
            sleep(Duration::from_secs(FILE_COMES)).await;
            ask(&stage, None, "agent", with_tools(chat(vec![prompt(case.file, 7)], 100)), None).await
        };
        let question = async {
            sleep(Duration::from_secs(QUESTION_COMES)).await;
            let text = format!("What is a hairpin? {}", text_of_tokens(200, 3));
            ask(&stage, None, "third", chat(vec![user(&text)], 40), Some(asks)).await
        };
        let (file, question) = tokio::try_join!(file, question)?;
        anyhow::Ok((question, file))
    };
    let (stream, others) = tokio::join!(reading, others);
    drop(question_begins);
    let (question, file) = others?;
    Ok((stream?, question, file))
}
