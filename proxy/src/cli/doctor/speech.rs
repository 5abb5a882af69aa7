//! Trials of plain speech: an answer, a stream, thoughts, counts, a hang-up.

use std::time::Duration;

use serde_json::{Value as Json, json};
use switchback_parsers::chunk::Dialect;
use switchback_parsers::request::ChatRequest;

use super::ask::{Heard, Patient};
use super::finding::{Finding, Verdict};
use super::refusals;
use crate::backend::probe;
use crate::measure::by_backend;

/// Room for a thought and a word: models that think need some hundred tokens before they say anything.
pub(super) const ROOM: u64 = 768;

/// How long an engine may take to notice that nobody listens. llama.cpp looks up once a second.
const NOTICE: Duration = Duration::from_secs(8);

/// Between two looks at what it runs.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

fn word() -> Json {
    json!({ "max_tokens": ROOM, "messages": [{ "role": "user", "content": "Answer with one word: which animal barks?" }] })
}

/// A short answer, whole and streamed. They are handed on, since other trials read them, too; `None` if neither is one.
pub(super) async fn answers(patient: &Patient, tell: &mut impl FnMut(Finding)) -> Option<[Heard; 2]> {
    let whole = patient.ask(word()).await;
    let finding = judge("answer", &whole);
    let mut well = finding.verdict != Verdict::Bad;
    tell(keyed(patient, &whole, finding));
    let mut body = word();
    body["stream"] = true.into();
    body["stream_options"] = json!({ "include_usage": true });
    let mut streamed = patient.ask(body.clone()).await;
    let mut finding = judge("stream", &streamed);
    if well && streamed.refused().is_some() {
        let why = std::mem::take(&mut finding.said);
        body["stream_options"] = Json::Null;
        streamed = patient.ask(body).await;
        finding = without_options(patient, judge("stream", &streamed), &why);
    }
    well |= finding.verdict != Verdict::Bad;
    tell(finding);
    well.then_some([whole, streamed])
}

/// A stream that came when it was asked for without its options, after it was refused with them.
fn without_options(patient: &Patient, mut finding: Finding, why: &str) -> Finding {
    if finding.verdict == Verdict::Bad {
        return finding;
    }
    finding.said = format!("refused with stream_options ({why}), without: {}", finding.said);
    let configured = &patient.backend.config.drop;
    let place = vec!["/stream_options".to_owned()];
    refusals::more(finding, "drop", configured, place, "streams with options are refused")
}

/// A refusal for want of a key, with the way out.
fn keyed(patient: &Patient, heard: &Heard, mut finding: Finding) -> Finding {
    if heard.status.is_some_and(|status| matches!(status, 401 | 403)) {
        finding.said.push_str(match patient.backend.config.key {
            Some(_) => "; the key of api_key_env is not taken",
            None => "; give its key by api_key_env, the name of a variable that holds it",
        });
    }
    finding
}

fn judge(trial: &'static str, heard: &Heard) -> Finding {
    if let Some(why) = heard.failure() {
        return Finding::new(trial, Verdict::Bad, why);
    }
    let answer = &heard.answer;
    if heard.marks > 7 {
        return Finding::new(trial, Verdict::Bad, "it writes nothing but exclamation marks: restart it");
    }
    if answer.content.is_empty() && answer.reasoning.is_empty() {
        return Finding::new(trial, Verdict::Bad, "200, and nothing in it: restart it");
    }
    let tokens = heard.usage.and_then(|usage| usage.completion_tokens);
    let mut said = match (heard.first, tokens) {
        (Some(first), Some(tokens)) if tokens > 8 && heard.took > first => {
            let speed = (tokens - 1) as f64 / (heard.took - first).as_secs_f64();
            format!("first token after {:.1} s, then {speed:.0} a second", first.as_secs_f64())
        }
        (Some(first), _) => format!("first token after {:.1} s", first.as_secs_f64()),
        (None, Some(tokens)) => format!("{tokens} tokens in {:.1} s", heard.took.as_secs_f64()),
        (None, None) => format!("in {:.1} s", heard.took.as_secs_f64()),
    };
    let verdict = if tokens.is_none() {
        said.push_str("; tells no usage");
        Verdict::Note
    } else {
        Verdict::Good
    };
    Finding::new(trial, verdict, said)
}

/// Where thoughts stand.
pub(super) fn thoughts(patient: &Patient, answers: &[Heard; 2]) -> Finding {
    const TRIAL: &str = "thoughts";
    if let Some(member) = answers.iter().find_map(|heard| heard.thoughts_in) {
        return Finding::new(TRIAL, Verdict::Good, format!("in `{member}`"));
    }
    let text = |heard: &Heard| heard.answer.content.clone();
    let closes = answers.iter().map(text).find(|text| text.contains("</think>"));
    match closes {
        Some(text) if text.trim_start().starts_with("<think>") => {
            let said = "in the text, in `<think>` tags";
            match patient.backend.config.thinking_tags {
                Some(_) => Finding::new(TRIAL, Verdict::Mended, format!("{said}, split off as configured")),
                None => Finding::new(TRIAL, Verdict::Setting, said).sets(
                    "thinking_tags",
                    r#"["<think>", "</think>"]"#,
                    "without it thoughts are split off the text only where tools are declared",
                ),
            }
        }
        Some(_) if patient.backend.config.thinking_open => {
            Finding::new(TRIAL, Verdict::Mended, "in the text, opened by the template, as configured")
        }
        Some(_) => {
            Finding::new(TRIAL, Verdict::Setting, "in the text, and the template has opened them already")
                .sets("thinking_open", "true", "answers begin inside a thought and close it with </think>")
        }
        None if answers.iter().all(|heard| heard.answer.finish_reason == "length") => {
            let said = format!("{ROOM} tokens were too few to see one end");
            Finding::new(TRIAL, Verdict::Untold, said)
        }
        None => Finding::new(TRIAL, Verdict::Good, "none"),
    }
}

/// Whether it counts the prompt alike before and after.
pub(super) async fn counts(patient: &Patient, answers: &[Heard; 2]) -> Finding {
    const TRIAL: &str = "counts";
    let said = answers.iter().find_map(|heard| heard.usage?.prompt_tokens);
    let Some(said) = said else { return Finding::new(TRIAL, Verdict::Note, "it tells no prompt_tokens") };
    let counted = match ChatRequest::parse(word().to_string().into()) {
        Ok(request) => by_backend(&patient.backend, Some(Dialect::Chat), &request).await,
        Err(_) => None,
    };
    match counted {
        Some(counted) if counted == said => {
            Finding::new(TRIAL, Verdict::Good, format!("{said} prompt tokens, asked before and told after"))
        }
        Some(counted) => {
            let said = format!("asked before it says {counted} prompt tokens, told after {said}");
            Finding::new(TRIAL, Verdict::Note, said)
        }
        None => {
            let said = format!("tells {said} prompt tokens after; cannot be asked before");
            Finding::new(TRIAL, Verdict::Note, said)
        }
    }
}

/// Whether it stops when its client hangs up.
pub(super) async fn hang_up(patient: &Patient) -> Finding {
    const TRIAL: &str = "hang-up";
    let running = async || {
        let load = probe::load(&patient.backend, patient.patience).await;
        load.map(|load| load.running + load.waiting)
    };
    let Some(before) = running().await else {
        return Finding::new(TRIAL, Verdict::Untold, "it does not show what it runs");
    };
    let body = json!({
        "stream": true,
        "max_tokens": 2000,
        "messages": [{ "role": "user", "content": "Count from 1 to 500, one number a line." }],
    });
    if let Err(why) = patient.hang_up(body).await {
        return Finding::new(TRIAL, Verdict::Untold, why);
    }
    let left = tokio::time::Instant::now();
    while left.elapsed() < NOTICE {
        match running().await {
            Some(now) if now <= before => {
                let said = format!("noticed within {:.1} s", left.elapsed().as_secs_f64());
                return Finding::new(TRIAL, Verdict::Good, said);
            }
            Some(_) | None => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
    let said = format!("still at work {} s after its client had gone", NOTICE.as_secs());
    Finding::new(TRIAL, Verdict::Bad, said)
}
