//! How far a backend has read a prompt, in words for the client that waits.
//!
//! llama.cpp says so if it is asked (`return_progress`), in chunks that are no answer: they are taken here and never passed on, unless
//! the client asked for them itself. They are no token either: a prefill that reports is still a prefill.

use std::sync::atomic::{AtomicU64, Ordering};

use memchr::memmem;
use switchback_parsers::json::Value;

/// Of one attempt.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    read: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Takes a chunk's payload; false: it is no report.
    pub(crate) fn takes(&self, data: &[u8]) -> bool {
        if memmem::find(data, b"\"prompt_progress\"").is_none() {
            return false;
        }
        let chunk = std::str::from_utf8(data).ok().and_then(|text| Value::parse(text).ok());
        let Some(report) =
            chunk.and_then(|chunk| chunk.get("prompt_progress")).filter(|report| !report.is_null())
        else {
            return false;
        };
        let number = |name: &str| report.get(name).and_then(Value::as_u64);
        self.read.store(number("processed").unwrap_or(0), Ordering::Relaxed);
        self.total.store(number("total").unwrap_or(0), Ordering::Relaxed);
        true
    }

    /// For a comment; `None`: nothing was reported.
    pub(crate) fn words(&self) -> Option<String> {
        let (read, total) = (self.read.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        (total > 0).then(|| format!("{read} of {total} tokens of the prompt are read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_taken_and_an_answer_that_speaks_of_one_is_not() {
        let progress = Progress::default();
        assert_eq!(progress.words(), None);
        let report = br#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null}}],"prompt_progress":{"total":731,"cache":0,"processed":128,"time_ms":15228}}"#;
        assert!(progress.takes(report));
        assert_eq!(progress.words().as_deref(), Some("128 of 731 tokens of the prompt are read"));
        for other in [
            &br#"{"choices":[{"index":0,"delta":{"content":"\"prompt_progress\""}}]}"#[..],
            br#"{"choices":[],"prompt_progress":null}"#,
            b"\"prompt_progress\"",
        ] {
            assert!(!progress.takes(other));
        }
    }
}
