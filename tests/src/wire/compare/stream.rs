//! The event stream as a whole: its end, its errors, its texts, its chunks.

use serde_json::Value;

use super::super::expect;
use super::super::message::first_choice;
use super::super::sse::{Event, Stream, What};
use super::body::{raw_never_has, usages};
use super::{Answer, Findings, short, shown, timing, tools};

pub(super) fn compare(expect: &expect::Stream, answer: &Answer<'_>, findings: &mut Findings) {
    let Some(stream) = &answer.stream else {
        findings.say(format!("the answer is no event stream: {}", answer.excerpt()));
        return;
    };
    let events: Vec<&Event> = stream.events().map(|(_, event)| event).collect();
    ending(expect, &events, findings);
    errors(expect, &events, findings);
    for text in &expect.content_never_has.0 {
        let content = &answer.message.content;
        findings.check(!content.contains(text), || format!("content has {text:?}: {}", short(content)));
    }
    raw_never_has(&expect.raw_never_has, answer, findings);
    if expect.every_data_line_is_json_or_done {
        data_lines(stream, findings);
    }
    chunks(expect, stream, answer, findings);
    deltas(expect, stream, findings);
    tools::compare(expect, stream, &answer.message, findings);
    timing::compare(expect, stream, answer, findings);
}

fn ending(expect: &expect::Stream, events: &[&Event], findings: &mut Findings) {
    let markers = events.iter().filter(|event| event.is_done()).count();
    match &expect.done_marker {
        Some(Value::Bool(true)) => {
            let last = events.last().is_some_and(|event| event.is_done());
            findings.check(markers == 1 && last, || {
                format!("{markers} done markers, the last event is one: {last}")
            });
        }
        Some(Value::Bool(false)) => findings.check(markers == 0, || format!("{markers} done markers")),
        None => {}
        Some(either) if either == "either" => {}
        Some(other) => findings.say(format!("the case's done_marker is unknown: {other}")),
    }
}

fn errors(expect: &expect::Stream, events: &[&Event], findings: &mut Findings) {
    let first = events.iter().position(|event| event.error().is_some());
    match (expect.error_event, first) {
        (Some(false), Some(at)) => {
            findings.say(format!("there is an error event: {}", short(&events[at].data)))
        }
        (Some(true), None) => findings.say("there is no error event"),
        (Some(true), Some(at)) => {
            let object = events[at].error().is_some_and(Value::is_object);
            findings.check(object, || format!("the error is no object: {}", events[at].data));
            let finishes = |event: &&&Event| {
                let choice = event.json.as_ref().and_then(first_choice);
                choice.and_then(|choice| choice.get("finish_reason")).is_some_and(|reason| !reason.is_null())
            };
            let after = events[at..].iter().find(finishes);
            findings.check(after.is_none(), || "a finish reason follows the error event".to_owned());
        }
        (_, _) => {}
    }
    for text in &expect.error_event_has.0 {
        let holds = events.iter().filter(|event| event.error().is_some()).any(|event| {
            event.data.contains(text)
                || event.json.as_ref().is_some_and(|json| json.to_string().contains(text))
        });
        findings.check(holds, || format!("no error event has {text:?}"));
    }
}

fn data_lines(stream: &Stream, findings: &mut Findings) {
    for item in &stream.items {
        match &item.what {
            What::Comment => {}
            What::Stray(line) => findings.say(format!("a line that is no field: {}", short(line))),
            What::Event(event) => {
                for line in &event.lines {
                    let good = |line: &String| {
                        line.trim() == "[DONE]" || serde_json::from_str::<Value>(line).is_ok()
                    };
                    let holds = line.as_ref().is_ok_and(good);
                    findings.check(holds, || {
                        format!("a data line that is neither JSON nor [DONE]: {}", short(line))
                    });
                }
            }
        }
    }
}

fn chunks(expect: &expect::Stream, stream: &Stream, answer: &Answer<'_>, findings: &mut Findings) {
    if expect.every_chunk_has_choices {
        let has = |chunk: &&Value| {
            chunk.get("choices").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
        };
        let without = stream.chunks().filter(|chunk| chunk.get("error").is_none()).find(|chunk| !has(chunk));
        findings.check(without.is_none(), || format!("a chunk without choices: {}", shown(without)));
    }
    if let Some(wanted) = expect.chunks_with_usage {
        let got = usages(answer).len();
        findings.check(got == wanted, || format!("{got} chunks with token counts, not {wanted}"));
    }
    if let Some(least) = expect.empty_deltas_at_least {
        let got = stream.chunks().filter(|chunk| is_empty_delta(chunk)).count();
        findings.check(got >= least, || format!("{got} empty deltas, not at least {least}"));
    }
    let comments = stream.comments();
    if let Some(least) = expect.comments_at_least {
        findings.check(comments >= least, || format!("{comments} comments, not at least {least}"));
    }
    if let Some(most) = expect.comments_at_most {
        findings.check(comments <= most, || format!("{comments} comments, not at most {most}"));
    }
}

/// A delta with no or empty content and nothing else but perhaps a role, in a choice that does not finish.
fn is_empty_delta(chunk: &Value) -> bool {
    let Some(choice) = first_choice(chunk) else { return false };
    let Some(delta) = choice.get("delta").and_then(Value::as_object) else { return false };
    let empty = delta.get("content").is_none_or(|content| content.is_null() || content == "");
    let alone = delta.keys().all(|key| key == "role" || key == "content");
    empty && alone && choice.get("finish_reason").is_none_or(Value::is_null)
}

fn deltas(expect: &expect::Stream, stream: &Stream, findings: &mut Findings) {
    let all = || {
        stream
            .chunks()
            .filter_map(|chunk| chunk.get("choices")?.as_array())
            .flatten()
            .filter_map(|choice| choice.get("delta"))
    };
    if expect.delta_never_has_empty_tool_calls {
        let bad =
            all().find(|delta| delta.get("tool_calls").and_then(Value::as_array).is_some_and(Vec::is_empty));
        findings.check(bad.is_none(), || format!("a delta with an empty list of calls: {}", shown(bad)));
    }
    for field in &expect.delta_has_field.0 {
        let holds = all().any(|delta| delta.get(field).is_some_and(|value| !value.is_null()));
        findings.check(holds, || format!("no delta has {field}"));
    }
    for field in &expect.delta_never_has_field.0 {
        let bad = all().find(|delta| delta.get(field).is_some());
        findings.check(bad.is_none(), || format!("a delta has {field}: {}", shown(bad)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::samples::{delta, finish, of_json, of_stream, of_text};

    #[test]
    fn the_end_is_judged() {
        let stream = |marker: serde_json::Value| json!({"stream": {"done_marker": marker}});
        let done = "data: [DONE]\n\n";
        let chunk = "data: {}\n\n";
        for (marker, texts, good) in [
            (json!(true), vec![chunk, done], true),
            (json!(true), vec![chunk, done, ": bye\n\n"], true),
            (json!(true), vec![chunk], false),
            (json!(true), vec![chunk, "data: [DONE]\n"], false),
            (json!(true), vec![done, chunk], false),
            (json!(true), vec![chunk, done, done], false),
            (json!(false), vec![chunk], true),
            (json!(false), vec![chunk, done], false),
            (json!("either"), vec![chunk], true),
            (json!("maybe"), vec![chunk], false),
        ] {
            assert_eq!(of_text(stream(marker.clone()), &texts).is_empty(), good, "{marker} {texts:?}");
        }
        assert_eq!(of_json(stream(json!("either")), &json!({})).len(), 1, "no event stream at all");
    }

    #[test]
    fn an_error_event_must_be_an_object_and_nothing_may_finish_after_it() {
        let error = json!({"error": {"message": "gone <away>"}});
        let expect = |wanted: bool| json!({"stream": {"error_event": wanted}});
        assert!(of_stream(expect(true), &[delta(json!({})), error.clone()]).is_empty());
        assert!(!of_stream(expect(true), &[error.clone(), finish("stop")]).is_empty());
        assert!(!of_stream(expect(true), &[json!({"error": "text"})]).is_empty());
        assert!(!of_stream(expect(true), &[json!({"error": null})]).is_empty());
        assert!(!of_stream(expect(false), std::slice::from_ref(&error)).is_empty());
        assert!(
            of_stream(json!({"stream": {"error_event_has": ["<away>"]}}), std::slice::from_ref(&error))
                .is_empty()
        );
        assert!(!of_stream(json!({"stream": {"error_event_has": "here"}}), &[error]).is_empty());
    }

    #[test]
    fn texts_that_must_never_be_seen_are_found_over_the_joins() {
        let parts =
            [delta(json!({"content": "a<tool"})), delta(json!({"content": "_call>", "reasoning": "secret"}))];
        for (expect, found) in [
            (json!({"content_never_has": ["<tool_call>"]}), 1),
            (json!({"content_never_has": ["secret"]}), 0),
            (json!({"raw_never_has": ["<tool_call>"]}), 0),
            (json!({"raw_never_has": ["secret"]}), 1),
        ] {
            assert_eq!(of_stream(json!({"stream": expect}), &parts).len(), found, "{expect}");
        }
    }

    #[test]
    fn each_data_line_must_be_json_by_itself() {
        let expect = || json!({"stream": {"every_data_line_is_json_or_done": true}});
        for (text, good) in [
            ("data: {\"a\":1}\n\ndata: [DONE]\n\n: x\n\nevent: ping\ndata: {}\n\n", true),
            ("data: {\"a\":\ndata: 1}\n\n", false),
            ("data:\n\n", false),
            ("data: ping\n\n", false),
            ("{\"bare\": 1}\n\n", false),
        ] {
            assert_eq!(of_text(expect(), &[text]).is_empty(), good, "{text}");
        }
    }

    #[test]
    fn chunks_and_deltas_are_counted_and_searched() {
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 1}});
        let chunks = [
            delta(json!({"role": "assistant", "content": ""})),
            delta(json!({"content": null})),
            delta(json!({"content": "", "tool_calls": []})),
            delta(json!({"reasoning": "r", "content": ""})),
            finish("stop"),
            usage,
        ];
        for (expect, good) in [
            (json!({"empty_deltas_at_least": 2}), true),
            (json!({"empty_deltas_at_least": 3}), false),
            (json!({"chunks_with_usage": 1}), true),
            (json!({"chunks_with_usage": 0}), false),
            (json!({"every_chunk_has_choices": true}), false),
            (json!({"every_chunk_has_choices": false}), true),
            (json!({"delta_never_has_empty_tool_calls": true}), false),
            (json!({"delta_has_field": "reasoning"}), true),
            (json!({"delta_has_field": ["reasoning_content"]}), false),
            (json!({"delta_never_has_field": "reasoning"}), false),
            (json!({"delta_never_has_field": "reasoning_content"}), true),
            (json!({"comments_at_most": 0}), true),
            (json!({"comments_at_least": 1}), false),
        ] {
            assert_eq!(of_stream(json!({"stream": expect}), &chunks).is_empty(), good, "{expect}");
        }
    }
}
