//! The message put together, against the expected one; and the ids and arguments of its calls.

use serde_json::Value;

use super::super::expect::{self, ToolIds};
use super::super::message::{Call, Message, entries, first_choice};
use super::json::same;
use super::{Answer, Findings, short};

pub(super) fn compare(expect: &expect::Answer, answer: &Answer<'_>, findings: &mut Findings) {
    if let Some(expect) = &expect.message {
        message(expect, &answer.message, findings);
    }
    if let Some(ToolIds::UniqueNonempty) = expect.tool_ids {
        unique_ids(&answer.message, findings);
    }
    if expect.arguments_are_strings {
        arguments_are_strings(answer, findings);
    }
}

fn message(expect: &expect::Message, got: &Message, findings: &mut Findings) {
    for fault in &got.faults {
        findings.say(fault);
    }
    for (what, wanted, got) in
        [("role", &expect.role, &got.role), ("finish reason", &expect.finish_reason, &got.finish)]
    {
        if let Some(wanted) = wanted {
            findings.check(got == wanted, || format!("{what} is {got:?}, not {wanted:?}"));
        }
    }
    for (what, wanted, got) in
        [("content", &expect.content, &got.content), ("reasoning", &expect.reasoning, &got.reasoning)]
    {
        if let Some(wanted) = wanted {
            let wanted = wanted.as_deref().unwrap_or_default().trim();
            findings
                .check(got.trim() == wanted, || format!("{what} is {}, not {}", short(got), short(&wanted)));
        }
    }
    if let Some(wanted) = &expect.tool_calls {
        let wanted = wanted.as_deref().unwrap_or_default();
        let names = || got.calls.iter().map(|call| call.name.as_str()).collect::<Vec<_>>();
        findings.check(got.calls.len() == wanted.len(), || {
            format!("{} calls {:?} instead of {}", got.calls.len(), names(), wanted.len())
        });
        for (number, (wanted, got)) in wanted.iter().zip(&got.calls).enumerate() {
            call(number, wanted, got, findings);
        }
    }
}

fn call(number: usize, expect: &expect::Call, got: &Call, findings: &mut Findings) {
    for (what, wanted, got) in [
        ("name", &expect.name, &got.name),
        ("id", &expect.id, &got.id),
        ("arguments as text", &expect.arguments_raw, &got.arguments),
    ] {
        if let Some(wanted) = wanted {
            findings.check(got == wanted, || {
                format!("call {number}: {what} {}, not {}", short(got), short(wanted))
            });
        }
    }
    if let Some(wanted) = &expect.arguments {
        let parsed: Option<Value> = serde_json::from_str(&got.arguments).ok();
        let holds = parsed.is_some_and(|got| same(&got, wanted));
        findings.check(holds, || format!("call {number}: arguments {}, not {wanted}", short(&got.arguments)));
    }
}

pub(super) fn unique_ids(message: &Message, findings: &mut Findings) {
    let ids: Vec<&str> = message.calls.iter().map(|call| call.id.as_str()).collect();
    let unique = ids.iter().enumerate().all(|(at, id)| !id.is_empty() && !ids[..at].contains(id));
    findings.check(unique, || format!("call ids are not unique and non-empty: {ids:?}"));
}

fn arguments_are_strings(answer: &Answer<'_>, findings: &mut Findings) {
    let of_choice = |choice: &'_ Value, part: &str| -> Vec<Value> {
        let said = choice.get(part).unwrap_or(&Value::Null);
        entries(said).iter().filter_map(|entry| entry.pointer("/function/arguments")).cloned().collect()
    };
    let arguments: Vec<Value> = match (&answer.stream, &answer.json) {
        (Some(stream), _) => {
            stream.chunks().filter_map(first_choice).flat_map(|choice| of_choice(choice, "delta")).collect()
        }
        (None, json) => {
            json.iter().filter_map(first_choice).flat_map(|choice| of_choice(choice, "message")).collect()
        }
    };
    for argument in arguments {
        findings.check(argument.is_string(), || format!("arguments are no string: {argument}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::samples::{delta, finish, of_json, of_stream};
    use super::*;

    fn body() -> Value {
        json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": " text\n", "reasoning_content": "why",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"n\": 12, \"s\": \"007\"}"}},
                {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}}]}}]})
    }

    #[test]
    fn the_same_message_passes_whatever_its_blanks_and_number_format() {
        let expect = json!({"message": {"role": "assistant", "content": "text", "reasoning": "why", "finish_reason": "tool_calls",
            "tool_calls": [{"name": "f", "id": "a", "arguments": {"s": "007", "n": 12.0}},
                           {"name": "g", "arguments": {}, "arguments_raw": "{}"}]},
            "tool_ids": "unique_nonempty", "arguments_are_strings": true});
        assert_eq!(of_json(expect, &body()), [""; 0]);
        let empty = json!({"choices": [{"message": {"role": "assistant", "content": null}, "finish_reason": "stop"}]});
        let expect = json!({"message": {"content": "", "reasoning": null, "tool_calls": []}});
        assert_eq!(of_json(expect, &empty), [""; 0]);
    }

    #[test]
    fn every_difference_is_found() {
        for bad in [
            json!({"role": "user"}),
            json!({"role": null}),
            json!({"content": "Text"}),
            json!({"content": null}),
            json!({"reasoning": null}),
            json!({"finish_reason": "stop"}),
            json!({"finish_reason": null}),
            json!({"tool_calls": []}),
            json!({"tool_calls": [{"name": "f"}]}),
            json!({"tool_calls": [{"name": "g"}, {"name": "g"}]}),
            json!({"tool_calls": [{"id": "c"}, {}]}),
            json!({"tool_calls": [{"arguments": {"n": "12", "s": "007"}}, {}]}),
            json!({"tool_calls": [{"arguments": {"n": 12, "s": 7}}, {}]}),
            json!({"tool_calls": [{"arguments": {"n": 12}}, {}]}),
            json!({"tool_calls": [{"arguments_raw": "{\"n\":12,\"s\":\"007\"}"}, {}]}),
            json!({"tool_calls": [{}, {"arguments": null}]}),
        ] {
            assert_eq!(of_json(json!({"message": bad}), &body()).len(), 1, "{bad}");
        }
    }

    #[test]
    fn ids_must_be_there_and_differ_and_arguments_be_text() {
        let mut same_id = body();
        same_id["choices"][0]["message"]["tool_calls"][1]["id"] = json!("a");
        assert_eq!(of_json(json!({"tool_ids": "unique_nonempty"}), &same_id).len(), 1);
        same_id["choices"][0]["message"]["tool_calls"][1]["id"] = json!(null);
        assert_eq!(of_json(json!({"tool_ids": "unique_nonempty"}), &same_id).len(), 1);
        same_id["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = json!({"n": 12});
        assert_eq!(of_json(json!({"arguments_are_strings": true}), &same_id).len(), 1);
        let streamed =
            delta(json!({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": {}}}]}));
        assert_eq!(
            of_stream(json!({"arguments_are_strings": true}), &[streamed, finish("tool_calls")]).len(),
            1
        );
    }

    #[test]
    fn a_message_in_the_wrong_wrapping_is_found() {
        let chunks = [delta(json!({"role": "assistant", "content": "x"})), finish("stop")];
        let expect = || json!({"message": {"content": "x"}});
        assert_eq!(of_stream(expect(), &chunks), [""; 0]);
        let text: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
        let reply = |kind| {
            super::super::super::observed::samples::reply(
                200,
                &[("content-type", kind)],
                &[(1, text.as_bytes())],
            )
        };
        let findings = super::super::samples::findings;
        assert_eq!(findings(expect(), &reply("text/event-stream"), false).len(), 1);
        assert!(!findings(expect(), &reply("application/json"), true).is_empty());
    }
}
