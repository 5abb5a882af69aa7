//! One request as it arrived at a backend: members of its body, messages, path, header fields.

use regex::Regex;
use serde_json::{Map, Value};

use super::super::expect::{Request, Texts};
use super::super::http1::find;
use super::super::observed::Attempt;
use super::json::{same, texts};
use super::{Findings, plain, short, shown};

pub(super) fn compare(number: usize, expect: &Request, attempt: &Attempt, findings: &mut Findings) {
    let before = std::mem::replace(&mut findings.place, format!("request {number}: "));
    outside(expect, attempt, findings);
    let json: Value = serde_json::from_slice(&attempt.body).unwrap_or_default();
    members(expect, &json, findings);
    text(expect, &json, findings);
    inner_json(expect, &json, findings);
    values(expect, &json, findings);
    messages(expect, &json, findings);
    for text in &expect.body_never_has.0 {
        let has = find(&attempt.body, text.as_bytes()).is_some() || json.to_string().contains(text);
        findings.check(!has, || format!("the body has {text:?}"));
    }
    findings.place = before;
}

fn outside(expect: &Request, attempt: &Attempt, findings: &mut Findings) {
    if let Some(wanted) = &expect.path {
        let got = attempt.path.split('?').next().unwrap_or_default();
        findings.check(got == wanted, || format!("path {got}, not {wanted}"));
    }
    for (name, wanted) in &expect.headers_equal {
        let got = attempt.headers.get(&name.to_ascii_lowercase());
        findings.check(got.as_deref() == Some(&plain(wanted)), || {
            format!("header {name} is {}, not {wanted}", short(&got))
        });
    }
    for name in &expect.headers_absent {
        let got = attempt.headers.get(&name.to_ascii_lowercase());
        findings.check(got.is_none(), || format!("header {name} is {}, should be absent", short(&got)));
    }
    if let Some(least) = expect.body_bytes_at_least {
        let got = attempt.body.len();
        findings.check(got >= least, || format!("the body has {got} bytes, not at least {least}"));
    }
}

fn members(expect: &Request, json: &Value, findings: &mut Findings) {
    for (pointer, wanted) in &expect.equals {
        let got = json.pointer(pointer);
        findings.check(got.is_some_and(|got| same(got, wanted)), || {
            format!("{pointer} is {}, not {wanted}", shown(got))
        });
    }
    for pointer in &expect.absent {
        let got = json.pointer(pointer);
        findings.check(got.is_none(), || format!("{pointer} is {}, should be absent", shown(got)));
    }
    for (pointer, wanted) in &expect.lengths.0 {
        let got = match json.pointer(pointer) {
            Some(Value::Array(items)) => Some(items.len()),
            Some(Value::Object(members)) => Some(members.len()),
            Some(Value::String(text)) => Some(text.chars().count()),
            _ => None,
        };
        findings.check(got == Some(*wanted), || format!("{pointer} has length {got:?}, not {wanted}"));
    }
    for (pointer, (least, most)) in &expect.between.0 {
        let got = json.pointer(pointer).and_then(Value::as_f64);
        let holds = got.is_some_and(|got| (*least..=*most).contains(&got));
        findings.check(holds, || format!("{pointer} is {got:?}, not between {least} and {most}"));
    }
}

fn text(expect: &Request, json: &Value, findings: &mut Findings) {
    for (pointer, pattern) in pairs(&expect.matches.0) {
        let got = json.pointer(pointer);
        match Regex::new(pattern) {
            Ok(regex) => {
                let holds = got.is_some_and(|got| regex.is_match(&plain(got)));
                findings
                    .check(holds, || format!("{pointer} is {}, which does not match {pattern}", shown(got)));
            }
            Err(error) => findings.say(format!("the case's pattern is broken: {error}")),
        }
    }
    let has = |pointer: &str, wanted: &str| {
        json.pointer(pointer).is_some_and(|value| texts(value).iter().any(|text| text.contains(wanted)))
    };
    let got = |pointer: &str| shown(json.pointer(pointer));
    for (pointer, text) in pairs(&expect.text_has.0) {
        findings.check(has(pointer, text), || format!("{pointer} lacks {text:?}: {}", got(pointer)));
    }
    for (pointer, text) in pairs(&expect.text_lacks.0) {
        findings.check(!has(pointer, text), || format!("{pointer} has {text:?}: {}", got(pointer)));
    }
}

fn pairs(table: &[(String, Texts)]) -> impl Iterator<Item = (&str, &str)> {
    table
        .iter()
        .flat_map(|(pointer, texts)| texts.0.iter().map(move |text| (pointer.as_str(), text.as_str())))
}

/// Strings that hold JSON themselves.
fn inner_json(expect: &Request, json: &Value, findings: &mut Findings) {
    let inner =
        |pointer: &str| -> Option<Value> { serde_json::from_str(json.pointer(pointer)?.as_str()?).ok() };
    for pointer in &expect.json_object_at.0 {
        let holds = inner(pointer).is_some_and(|inner| inner.is_object());
        findings.check(holds, || {
            format!("{pointer} is no text of a JSON object: {}", shown(json.pointer(pointer)))
        });
    }
    for (pointer, wanted) in &expect.json_equals_at {
        let holds = inner(pointer).is_some_and(|inner| same(&inner, wanted));
        findings.check(holds, || {
            format!("{pointer} is {}, not the text of {wanted}", shown(json.pointer(pointer)))
        });
    }
}

fn values(expect: &Request, json: &Value, findings: &mut Findings) {
    for (groups, alike) in [(&expect.same_value, true), (&expect.different_value, false)] {
        for group in groups {
            let values: Vec<Option<&Value>> = group.iter().map(|pointer| json.pointer(pointer)).collect();
            let fits = |(at, one): (usize, &Option<&Value>)| {
                let Some(one) = one else { return false };
                values[..at].iter().flatten().all(|other| same(one, other) == alike)
            };
            let wanted = if alike { "the same" } else { "different" };
            let holds = values.iter().enumerate().all(fits);
            findings.check(holds, || format!("{group:?} are {}, not {wanted}", short(&values)));
        }
    }
}

fn messages(expect: &Request, json: &Value, findings: &mut Findings) {
    let list = json.get("messages").or_else(|| json.get("input")).and_then(Value::as_array);
    let list = list.map(Vec::as_slice).unwrap_or_default();
    for wanted in &expect.some_message.0 {
        let found = list.iter().any(|message| is_like(message, wanted));
        findings.check(found, || format!("no message is like {}", Value::from(wanted.clone())));
    }
    for unwanted in &expect.no_message.0 {
        let found = list.iter().find(|message| is_like(message, unwanted));
        findings.check(found.is_none(), || format!("a message is {}", shown(found)));
    }
}

/// Whether a message has these members; `content_nonempty` asks whether it has text.
fn is_like(message: &Value, members: &Map<String, Value>) -> bool {
    members.iter().all(|(name, wanted)| match name.as_str() {
        "content_nonempty" => wanted == &Value::Bool(has_text(message)),
        name => message.get(name).is_some_and(|got| same(got, wanted)),
    })
}

fn has_text(message: &Value) -> bool {
    let filled =
        |value: Option<&Value>| value.and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty());
    match message.get("content") {
        Some(Value::Array(parts)) => parts.iter().any(|part| filled(part.get("text"))),
        content => filled(content),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::observed::samples::attempt;
    use super::*;

    fn findings(expect: Value) -> Vec<String> {
        let body = json!({
            "model": "m", "max_tokens": 64, "tool_choice": null,
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "say \"hi\""}]},
                {"role": "assistant", "content": "", "tool_calls": [{"id": "abc", "function": {"arguments": "{\"x\": 1}"}}]},
                {"role": "tool", "tool_call_id": "abc", "content": "[1]"}]});
        let expect: Request = serde_json::from_value(expect).unwrap();
        let mut findings = Findings::default();
        compare(0, &expect, &attempt(&body.to_string()), &mut findings);
        findings.list
    }

    const ARGUMENTS: &str = "/messages/1/tool_calls/0/function/arguments";

    #[test]
    fn a_request_as_expected_passes() {
        for expect in [
            json!({"equals": {"/model": "m", "/max_tokens": 64.0, "/tool_choice": null}, "absent": ["/tools"]}),
            json!({"lengths": {"/messages": 3, "/model": 1}, "between": {"/max_tokens": [64, 64]}}),
            json!({"matches": {"/messages/1/tool_calls/0/id": "^[a-c]{3}$"}}),
            json!({"text_has": {"/messages/0/content": ["say \"hi\"", "\"type\":\"text\""]}, "text_lacks": {"/model": "x", "/tools": "m"}}),
            json!({"json_object_at": [ARGUMENTS], "json_equals_at": {ARGUMENTS: {"x": 1}}}),
            json!({"same_value": [["/messages/1/tool_calls/0/id", "/messages/2/tool_call_id"]]}),
            json!({"different_value": [["/messages/0/role", "/messages/1/role", "/messages/2/role"]]}),
            json!({"some_message": {"role": "user", "content_nonempty": true}, "no_message": {"role": "assistant", "content_nonempty": true}}),
            json!({"body_never_has": ["image_url"], "body_bytes_at_least": 100, "path": "/v1/chat/completions"}),
            json!({"headers_equal": {"Authorization": "Bearer k"}, "headers_absent": ["x-api-key"]}),
        ] {
            assert_eq!(findings(expect.clone()), [""; 0], "{expect}");
        }
    }

    #[test]
    fn every_deviation_is_found() {
        for expect in [
            json!({"equals": {"/model": "n"}}),
            json!({"equals": {"/tools": null}}),
            json!({"absent": ["/tool_choice"]}),
            json!({"lengths": {"/messages": 2}}),
            json!({"lengths": {"/max_tokens": 2}}),
            json!({"between": {"/max_tokens": [65, 100]}}),
            json!({"between": {"/model": [0, 100]}}),
            json!({"matches": {"/messages/1/tool_calls/0/id": "^[0-9]+$"}}),
            json!({"matches": {"/missing": ".*"}}),
            json!({"matches": {"/model": "["}}),
            json!({"text_has": {"/messages/0/content": "bye"}}),
            json!({"text_has": {"/missing": ""}}),
            json!({"text_lacks": {"/messages/0/content": ["say \"hi\""]}}),
            json!({"json_object_at": ["/messages/2/content"]}),
            json!({"json_object_at": ["/messages/1/content"]}),
            json!({"json_equals_at": {ARGUMENTS: {"x": 2}}}),
            json!({"same_value": [["/model", "/max_tokens"]]}),
            json!({"same_value": [["/missing", "/absent"]]}),
            json!({"different_value": [["/messages/1/tool_calls/0/id", "/messages/2/tool_call_id"]]}),
            json!({"different_value": [["/model", "/missing"]]}),
            json!({"some_message": {"role": "system"}}),
            json!({"some_message": {"role": "assistant", "content_nonempty": true}}),
            json!({"no_message": {"role": "user"}}),
            json!({"body_never_has": ["say \\\"hi"]}),
            json!({"body_bytes_at_least": 100_000}),
            json!({"path": "/v1/messages"}),
            json!({"headers_equal": {"authorization": "Bearer x"}}),
            json!({"headers_absent": ["authorization"]}),
        ] {
            assert_eq!(findings(expect.clone()).len(), 1, "{expect}");
        }
    }
}
