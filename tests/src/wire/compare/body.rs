//! The body as a whole: JSON members, raw texts, content encoding, token counts, the error object.

use regex::Regex;
use serde_json::Value;

use super::super::expect;
use super::json::same;
use super::{Answer, Findings, shown};

pub(super) fn compare(expect: &expect::Answer, answer: &Answer<'_>, findings: &mut Findings) {
    members(expect, answer, findings);
    for text in &expect.raw_has.0 {
        let holds = super::super::http1::find(&answer.body, text.as_bytes()).is_some();
        findings.check(holds, || format!("the body lacks {text:?}: {}", answer.excerpt()));
    }
    raw_never_has(&expect.raw_never_has, answer, findings);
    if expect.body_matches_content_encoding {
        encoding(answer, findings);
    }
    if let Some(expect) = &expect.usage {
        usage(expect, answer, findings);
    }
    if let Some(expect) = &expect.error {
        error(expect, answer, findings);
    }
}

pub(super) fn raw_never_has(texts: &expect::Texts, answer: &Answer<'_>, findings: &mut Findings) {
    for text in &texts.0 {
        findings.check(!answer.contains(text), || format!("the body has {text:?}"));
    }
}

fn members(expect: &expect::Answer, answer: &Answer<'_>, findings: &mut Findings) {
    if expect.body_equals.is_empty() && expect.body_absent.is_empty() {
        return;
    }
    let Some(json) = &answer.json else {
        findings.say(format!("the body is no JSON: {}", answer.excerpt()));
        return;
    };
    for (pointer, wanted) in &expect.body_equals {
        let got = json.pointer(pointer);
        let holds = got.is_some_and(|got| same(got, wanted));
        findings.check(holds, || format!("body {pointer} is {}, not {wanted}", shown(got)));
    }
    for pointer in &expect.body_absent {
        let got = json.pointer(pointer);
        findings.check(got.is_none(), || format!("body {pointer} is {}, should be absent", shown(got)));
    }
}

fn encoding(answer: &Answer<'_>, findings: &mut Findings) {
    if let Some(why) = &answer.undecodable {
        findings.say(format!("the body is not in its content encoding: {why}"));
    } else if answer.stream.is_none() && !answer.body.is_empty() {
        // What is still packed after decoding, or was never named as packed, is no JSON.
        findings
            .check(answer.json.is_some(), || format!("the decoded body is no JSON: {}", answer.excerpt()));
    } else if answer.body.starts_with(b"\x1f\x8b") {
        findings.say("the stream is compressed and does not say so");
    }
}

fn usage(expect: &expect::Usage, answer: &Answer<'_>, findings: &mut Findings) {
    let found = usages(answer);
    match (expect.present, found.is_empty()) {
        (Some(true), true) => findings.say("there are no token counts"),
        (Some(false), false) => findings.say(format!("there are token counts: {}", found[0])),
        _ => {}
    }
    if expect.present != Some(true) && found.is_empty() {
        let asked = expect.present.is_none() && !expect.numbers.is_empty();
        findings.check(!asked, || "there are no token counts".to_owned());
        return;
    }
    for (name, wanted) in &expect.numbers {
        // What was read stays the same through a stream, what was written grows: so the last chunk counts for it.
        let all_alike = name == "prompt_tokens" || name == "input_tokens";
        let counted: Vec<&Value> =
            if all_alike { found.clone() } else { found.last().copied().into_iter().collect() };
        for usage in counted {
            let got = usage.get(name);
            let holds = got.is_some_and(|got| same(got, wanted));
            findings.check(holds, || format!("usage {name} is {}, not {wanted}", shown(got)));
        }
    }
}

/// The token counts of the body, or of the chunks of a stream that have any.
pub(super) fn usages<'a>(answer: &'a Answer<'_>) -> Vec<&'a Value> {
    fn of(json: &Value) -> Option<&Value> {
        ["/usage", "/message/usage", "/response/usage"]
            .iter()
            .filter_map(|pointer| json.pointer(pointer))
            .find(|usage| !usage.is_null())
    }
    match (&answer.stream, &answer.json) {
        (Some(stream), _) => stream.chunks().filter_map(of).collect(),
        (None, json) => json.iter().filter_map(of).collect(),
    }
}

fn error(expect: &expect::Error, answer: &Answer<'_>, findings: &mut Findings) {
    let error = answer.json.as_ref().and_then(|json| json.get("error")).filter(|error| error.is_object());
    let Some(error) = error else {
        findings.say(format!("the body has no error object: {}", answer.excerpt()));
        return;
    };
    for (name, wanted) in [("type", &expect.r#type), ("code", &expect.code)] {
        if let Some(wanted) = wanted {
            let got = error.get(name).unwrap_or(&Value::Null);
            findings.check(same(got, wanted), || format!("error {name} is {got}, not {wanted}"));
        }
    }
    if let Some(unwanted) = &expect.code_not {
        let got = error.get("code").unwrap_or(&Value::Null);
        findings.check(!same(got, unwanted), || format!("error code is {got}"));
    }
    let Some(message) = error.get("message").and_then(Value::as_str) else {
        findings.say(format!("the error has no message: {error}"));
        return;
    };
    for text in &expect.message_has.0 {
        findings.check(message.contains(text), || format!("the error's message lacks {text:?}: {message}"));
    }
    for text in &expect.message_lacks.0 {
        findings.check(!message.contains(text), || format!("the error's message has {text:?}: {message}"));
    }
    for pattern in &expect.message_matches.0 {
        matches(pattern, message, findings);
    }
}

fn matches(pattern: &str, message: &str, findings: &mut Findings) {
    match Regex::new(pattern) {
        Ok(regex) => {
            findings.check(regex.is_match(message), || {
                format!("the error's message does not match {pattern:?}: {message}")
            });
        }
        Err(error) => findings.say(format!("the case's pattern is broken: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::observed::samples::reply;
    use super::super::samples::{delta, findings, of_json, of_stream};

    #[test]
    fn body_members_and_raw_texts_are_compared() {
        let body = json!({"model": "m", "list": [1, 2], "text": "<tool_call>"});
        for good in [
            json!({"body_equals": {"/model": "m", "/list/1": 2.0}, "body_absent": ["/other"]}),
            json!({"raw_has": ["tool_call"], "raw_never_has": "CUDA"}),
        ] {
            assert_eq!(of_json(good.clone(), &body), [""; 0], "{good}");
        }
        for bad in [
            json!({"body_equals": {"/model": "n"}}),
            json!({"body_equals": {"/missing": null}}),
            json!({"body_absent": ["/list/0"]}),
            json!({"raw_has": ["absent"]}),
            json!({"raw_never_has": ["<tool"]}),
        ] {
            assert_eq!(of_json(bad.clone(), &body).len(), 1, "{bad}");
        }
        let escaped = reply(200, &[("content-type", "application/json")], &[(1, br#"{"t":"\u003ctool"}"#)]);
        assert_eq!(findings(json!({"raw_never_has": ["<tool"]}), &escaped, false).len(), 1);
    }

    #[test]
    fn a_body_that_is_not_what_its_encoding_says_is_found() {
        let expect = || json!({"body_matches_content_encoding": true});
        let json = ("content-type", "application/json");
        let wrong = reply(200, &[json, ("content-encoding", "gzip")], &[(1, b"{}")]);
        assert_eq!(findings(expect(), &wrong, false).len(), 1);
        let unnamed = reply(200, &[json], &[(1, b"\x1f\x8b\x08\0\0")]);
        assert_eq!(findings(expect(), &unnamed, false).len(), 1);
        assert_eq!(findings(expect(), &reply(200, &[json], &[(1, b"{}")]), false), [""; 0]);
    }

    #[test]
    fn token_counts_are_found_in_bodies_and_streams() {
        let body = json!({"usage": {"prompt_tokens": 7}});
        assert_eq!(of_json(json!({"usage": {"present": true, "prompt_tokens": 7}}), &body), [""; 0]);
        assert_eq!(of_json(json!({"usage": {"present": false}}), &body).len(), 1);
        assert_eq!(of_json(json!({"usage": {"present": true, "prompt_tokens": 8}}), &body).len(), 1);
        assert_eq!(of_json(json!({"usage": {"present": true, "total_tokens": 8}}), &body).len(), 1);
        assert_eq!(of_json(json!({"usage": {"prompt_tokens": 7}}), &json!({"usage": null})).len(), 1);
        let chunks = [
            json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1}}),
            delta(json!({"content": "x"})),
            json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}),
        ];
        let expect = |prompt, written| json!({"usage": {"present": true, "prompt_tokens": prompt, "completion_tokens": written}});
        assert_eq!(of_stream(expect(7, 2), &chunks), [""; 0]);
        assert_eq!(of_stream(expect(7, 1), &chunks).len(), 1);
        assert_eq!(of_stream(expect(8, 2), &chunks).len(), 2);
        assert_eq!(of_stream(json!({"usage": {"present": true}}), &chunks[1..2]).len(), 1);
    }

    #[test]
    fn an_error_object_is_compared_in_every_word() {
        let body = json!({"error": {"type": "t", "code": "c", "message": "prompt is too long: 9 tokens > 8 maximum"}});
        let good = json!({"error": {"type": "t", "code": "c", "code_not": "d", "message_has": ["9 tokens"],
            "message_lacks": ["CUDA"], "message_matches": ["[0-9]+ tokens > [0-9]+ maximum$"]}});
        assert_eq!(of_json(good.clone(), &body), [""; 0]);
        for bad in [
            json!({"type": "u"}),
            json!({"code": null}),
            json!({"code_not": "c"}),
            json!({"message_has": ["10"]}),
            json!({"message_lacks": ["too long"]}),
            json!({"message_matches": ["^9"]}),
            json!({"message_matches": ["["]}),
        ] {
            assert_eq!(of_json(json!({"error": bad}), &body).len(), 1, "{bad}");
        }
        for wrong in [json!({"error": "text"}), json!({}), json!({"error": {"type": "t"}})] {
            assert!(!of_json(good.clone(), &wrong).is_empty(), "{wrong}");
        }
    }
}
