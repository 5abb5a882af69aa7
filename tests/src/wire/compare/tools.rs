//! Calls in a stream, delta by delta: indexes, ids, names.

use serde_json::Value;

use super::super::expect::{self, ToolIds};
use super::super::message::{Message, entries, first_choice};
use super::super::sse::Stream;
use super::message::unique_ids;
use super::{Findings, short, shown};

pub(super) fn compare(expect: &expect::Stream, stream: &Stream, message: &Message, findings: &mut Findings) {
    let deltas: Vec<&[Value]> = stream
        .chunks()
        .filter_map(first_choice)
        .filter_map(|choice| choice.get("delta"))
        .map(entries)
        .collect();
    let all = || deltas.iter().flat_map(|delta| delta.iter());
    if let Some(wanted) = &expect.tool_indexes {
        let mut got: Vec<i64> = Vec::new();
        for index in all().filter_map(index) {
            if !got.contains(&index) {
                got.push(index);
            }
        }
        findings.check(got == *wanted, || format!("indexes of calls are {got:?}, not {wanted:?}"));
    }
    if let Some(ToolIds::UniqueNonempty) = expect.tool_ids {
        unique_ids(message, findings);
    }
    if expect.every_tool_delta_has_index {
        let bad = all().find(|entry| index(entry).is_none());
        findings.check(bad.is_none(), || format!("a call's delta has no index: {}", shown(bad)));
    }
    if expect.one_entry_per_index_per_delta {
        let twice = |delta: &&&[Value]| {
            delta
                .iter()
                .enumerate()
                .any(|(at, entry)| delta[..at].iter().any(|before| index(before) == index(entry)))
        };
        findings.check(!deltas.iter().any(|delta| twice(&delta)), || {
            "a delta has two entries of one index".to_owned()
        });
    }
    for (asked, what, pointer) in
        [(expect.id_sent_once, "id", "/id"), (expect.name_sent_once, "name", "/function/name")]
    {
        if asked {
            sent_once(what, pointer, &all().collect::<Vec<_>>(), message, findings);
        }
    }
    if let Some(wanted) = &expect.arguments_raw {
        let got: Vec<&String> = message.calls.iter().map(|call| &call.arguments).collect();
        findings.check(got.iter().copied().eq(wanted), || {
            format!("arguments are {}, not {}", short(&got), short(wanted))
        });
    }
}

fn index(entry: &Value) -> Option<i64> {
    entry.get("index").and_then(Value::as_i64)
}

/// The member stands in exactly one delta of each call and is not empty there. An empty or null repetition counts too:
/// that is what clients take for a new call.
fn sent_once(what: &str, pointer: &str, entries: &[&Value], message: &Message, findings: &mut Findings) {
    for call in &message.calls {
        let of_call = entries.iter().filter(|entry| index(entry) == Some(call.index));
        let sent: Vec<&Value> = of_call.filter_map(|entry| entry.pointer(pointer)).collect();
        let once = matches!(sent[..], [Value::String(text)] if !text.is_empty());
        findings.check(once, || format!("{what} of call {} is sent as {}", call.index, short(&sent)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::samples::{delta, of_stream};
    use super::*;

    fn call(entries: Value) -> Value {
        delta(json!({"tool_calls": entries}))
    }

    #[test]
    fn indexes_ids_and_names_are_judged_delta_by_delta() {
        let one = call(json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}]));
        let rest = call(json!([{"index": 0, "function": {"arguments": "}"}}]));
        let two = call(json!([{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}]));
        let empty = call(json!([{"index": 0, "id": "", "function": {"name": null}}]));
        let bare = call(json!([{"id": "c", "function": {"name": "f"}}]));
        let double = call(
            json!([{"index": 0, "function": {"arguments": ""}}, {"index": 0, "function": {"arguments": ""}}]),
        );
        let good = [one.clone(), rest.clone(), two.clone()];
        let with = |more: &Value| [one.clone(), rest.clone(), two.clone(), more.clone()];
        for expect in [
            json!({"tool_indexes": [0, 1]}),
            json!({"tool_ids": "unique_nonempty", "id_sent_once": true, "name_sent_once": true}),
            json!({"every_tool_delta_has_index": true, "one_entry_per_index_per_delta": true}),
            json!({"arguments_raw": ["{}", "{}"]}),
        ] {
            assert_eq!(of_stream(json!({"stream": expect}), &good), [""; 0], "{expect}");
        }
        for (expect, chunks) in [
            (json!({"tool_indexes": [0]}), good.to_vec()),
            (json!({"tool_indexes": [0, 1]}), vec![two.clone(), one.clone()]),
            (json!({"tool_ids": "unique_nonempty"}), vec![rest.clone()]),
            (json!({"id_sent_once": true}), with(&empty).to_vec()),
            (json!({"name_sent_once": true}), with(&empty).to_vec()),
            (json!({"id_sent_once": true}), vec![rest.clone()]),
            (json!({"id_sent_once": true}), vec![one.clone(), one.clone()]),
            (json!({"every_tool_delta_has_index": true}), with(&bare).to_vec()),
            (json!({"one_entry_per_index_per_delta": true}), with(&double).to_vec()),
            (json!({"arguments_raw": ["{}"]}), good.to_vec()),
            (json!({"arguments_raw": ["{ }", "{}"]}), good.to_vec()),
        ] {
            assert_eq!(of_stream(json!({"stream": expect}), &chunks).len(), 1, "{expect}");
        }
    }
}
