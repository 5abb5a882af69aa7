//! When things came: first byte, silences, texts in time. All times count from the request's start.

use std::time::Duration;

use super::super::expect;
use super::super::message::visible;
use super::super::sse::Stream;
use super::{Answer, Findings};

pub(super) fn compare(
    expect: &expect::Stream,
    stream: &Stream,
    answer: &Answer<'_>,
    findings: &mut Findings,
) {
    let (started, ended) = (answer.reply.started, answer.reply.ended);
    let since = |at: Duration| at.saturating_sub(started);
    for wanted in &expect.content_visible_by.0 {
        let grown = visible(stream);
        let came = grown.iter().find(|(_, text)| text.contains(&wanted.text)).map(|(at, _)| since(*at));
        let holds = came.is_some_and(|came| came <= Duration::from_millis(wanted.within_ms));
        findings.check(holds, || {
            format!("{:?} was visible after {}, not within {} ms", wanted.text, said(came), wanted.within_ms)
        });
    }
    if let Some(within) = expect.first_byte_within_ms {
        let came = answer.pieces.first().map(|piece| since(piece.at));
        let holds = came.is_some_and(|came| came <= Duration::from_millis(within));
        findings.check(holds, || format!("the first byte came after {}, not within {within} ms", said(came)));
    }
    if let Some(longest) = expect.longest_silence_ms {
        let got = silence(answer.reply.pieces.iter().map(|piece| piece.at), started, ended);
        findings.check(got <= Duration::from_millis(longest), || {
            format!("{} of silence, not at most {longest} ms", said(Some(got)))
        });
    }
    if let Some(longest) = expect.longest_event_silence_ms {
        let got = silence(stream.events().map(|(at, _)| at), started, ended);
        findings.check(got <= Duration::from_millis(longest), || {
            format!("{} without an event, not at most {longest} ms", said(Some(got)))
        });
    }
}

/// The longest time between two of these, the request's start and the answer's end included.
fn silence(times: impl Iterator<Item = Duration>, started: Duration, ended: Duration) -> Duration {
    let mut longest = Duration::ZERO;
    let mut before = started;
    for at in times.chain(std::iter::once(ended)) {
        longest = longest.max(at.saturating_sub(before));
        before = at;
    }
    longest
}

fn said(time: Option<Duration>) -> String {
    time.map_or_else(|| "no time at all".to_owned(), |time| format!("{} ms", time.as_millis()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::observed::samples::reply;
    use super::super::samples::findings;
    use super::*;

    #[test]
    fn lateness_and_silence_are_found() {
        let chunk = b"data: {\"choices\":[{\"delta\":{\"content\":\"ab\"}}]}\n\n";
        let mut seen = reply(
            200,
            &[("content-type", "text/event-stream")],
            &[(1300, b": hi\n\n"), (1600, chunk), (1900, b": hi\n\n"), (2000, b"data: {}\n\n")],
        );
        seen.started = Duration::from_millis(1000);
        seen.ended = Duration::from_millis(2500);
        for (expect, good) in [
            (json!({"first_byte_within_ms": 300}), true),
            (json!({"first_byte_within_ms": 299}), false),
            (json!({"longest_silence_ms": 500}), true),
            (json!({"longest_silence_ms": 499}), false),
            (json!({"longest_event_silence_ms": 600}), true),
            (json!({"longest_event_silence_ms": 599}), false),
            (json!({"content_visible_by": [{"text": "ab", "within_ms": 600}]}), true),
            (json!({"content_visible_by": [{"text": "ab", "within_ms": 599}]}), false),
            (json!({"content_visible_by": {"text": "b c", "within_ms": 9000}}), false),
        ] {
            assert_eq!(findings(json!({"stream": expect}), &seen, true).is_empty(), good, "{expect}");
        }
        seen.pieces.clear();
        assert!(!findings(json!({"stream": {"first_byte_within_ms": 9000}}), &seen, true).is_empty());
    }
}
