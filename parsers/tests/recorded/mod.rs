//! The recorded requests, and the comparison with them.

use bytes::Bytes;
use serde_json::Value;
use switchback_parsers::prompt::{CountError, Normalisation, PromptCounter, TokenCount};
use switchback_parsers::request::ChatRequest;

/// One line of `fixtures/counts.jsonl`.
pub(crate) struct Record {
    /// As it stands in the file.
    pub(crate) line: &'static str,
    /// The request.
    pub(crate) request: ChatRequest,
    /// What was recorded for it.
    pub(crate) answer: Value,
}

/// All recorded requests.
pub(crate) fn records() -> Vec<Record> {
    let lines = include_str!("../fixtures/counts.jsonl").lines();
    lines
        .map(|line| {
            let answer: Value = serde_json::from_str(line).expect("json");
            let request = ChatRequest::parse(Bytes::from(answer["request"].to_string())).expect("a request");
            Record { line, request, answer }
        })
        .collect()
}

/// Holds a counter against what was recorded under `name`: the same number, and refusals where the engine refused.
pub(crate) fn compare(counter: &PromptCounter, normalisation: Normalisation, name: &str) {
    let mut exact = 0;
    for record in records() {
        let counted = counter.count_chat(&record.request, normalisation);
        match (counted, record.answer[name].as_u64()) {
            (Ok(TokenCount::Exact(count)), Some(expected)) => {
                assert_eq!(count, expected, "{name}: {}", record.line);
                exact += 1;
            }
            (Err(CountError::Refused(_) | CountError::Raised(_)), None) => {}
            (ours, theirs) => panic!("{ours:?} where {name} has {theirs:?}: {}", record.line),
        }
    }
    assert!(exact >= 140, "only {exact} requests were compared");
}
