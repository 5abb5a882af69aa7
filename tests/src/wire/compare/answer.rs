//! Status, header fields, and whether the answer is whole and of the kind that was asked for.

use super::super::expect;
use super::super::observed::End;
use super::{Answer, Findings, plain, short};

/// False if the status is wrong: then the rest of the answer need not be told in detail.
pub(super) fn compare(expect: &expect::Answer, answer: &Answer<'_>, findings: &mut Findings) -> bool {
    let before = findings.list.len();
    status(expect, answer, findings);
    let status_is_right = findings.list.len() == before;
    headers(expect, answer, findings);
    // A cut answer may break off, anything else must come to its proper end.
    let may_break = expect.stream.as_ref().is_some_and(|stream| stream.error_event == Some(true));
    if let End::Broken(why) = &answer.reply.end
        && answer.reply.status.is_some()
        && !may_break
    {
        findings.say(format!("the body is not whole: {why}"));
    }
    if expect.message.is_some() && answer.reply.status.is_some_and(|status| status < 300) {
        let (asked, got) = (answer.stream_wanted, answer.stream.is_some());
        let name = |stream: bool| if stream { "an event stream" } else { "a whole body" };
        findings.check(asked == got, || format!("{} was asked for, got {}", name(asked), name(got)));
    }
    status_is_right
}

fn status(expect: &expect::Answer, answer: &Answer<'_>, findings: &mut Findings) {
    let wanted: Vec<u16> =
        expect.status.into_iter().chain(expect.status_in.iter().flatten().copied()).collect();
    if wanted.is_empty() {
        return;
    }
    let holds = |status: u16| {
        expect.status.is_none_or(|wanted| status == wanted)
            && expect.status_in.as_ref().is_none_or(|wanted| wanted.contains(&status))
    };
    match answer.reply.status {
        Some(status) if holds(status) => {}
        Some(status) => findings.say(format!("status {status} instead of {wanted:?}: {}", answer.excerpt())),
        None => findings.say(format!("no answer instead of status {wanted:?}: {}", answer.excerpt())),
    }
}

fn headers(expect: &expect::Answer, answer: &Answer<'_>, findings: &mut Findings) {
    let headers = &answer.reply.headers;
    for (name, wanted) in &expect.headers {
        let got = headers.get(&name.to_ascii_lowercase());
        let holds = got.as_deref() == Some(&plain(wanted));
        findings.check(holds, || format!("header {name} is {}, not {wanted}", short(&got)));
    }
    for (name, words) in &expect.headers_have_token.0 {
        let got = headers.get(&name.to_ascii_lowercase());
        for word in &words.0 {
            let holds = got.as_deref().is_some_and(|value| has_word(value, word));
            findings.check(holds, || format!("header {name} is {}, without {word}", short(&got)));
        }
    }
    for name in &expect.headers_absent {
        let got = headers.get(&name.to_ascii_lowercase());
        findings.check(got.is_none(), || format!("header {name} is {}, should be absent", short(&got)));
    }
}

/// Whether a word stands in a field's value, not as a part of a longer word.
fn has_word(value: &str, word: &str) -> bool {
    let (value, word) = (value.to_ascii_lowercase(), word.to_ascii_lowercase());
    let joins = |c: char| c.is_ascii_alphanumeric() || "-_/+.*".contains(c);
    value.match_indices(&word).any(|(at, _)| {
        let before = value[..at].chars().next_back();
        let after = value[at + word.len()..].chars().next();
        !before.is_some_and(joins) && !after.is_some_and(joins)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::observed::samples::reply;
    use super::super::samples::findings;
    use super::*;

    #[test]
    fn status_and_headers_are_compared_as_named() {
        let seen =
            reply(204, &[("allow", "GET, POST"), ("content-type", "application/json; charset=utf-8")], &[]);
        for good in [
            json!({"status": 204}),
            json!({"status": null}),
            json!({"status_in": [200, 204]}),
            json!({"headers": {"Allow": "GET, POST"}}),
            json!({"headers_have_token": {"allow": ["post", "GET"], "content-type": "application/json"}}),
            json!({"headers_absent": ["content-length"]}),
        ] {
            assert_eq!(findings(good.clone(), &seen, false), [""; 0], "{good}");
        }
        for bad in [
            json!({"status": 200}),
            json!({"status_in": [200, 201]}),
            json!({"headers": {"allow": "GET"}}),
            json!({"headers": {"x-not-there": "GET"}}),
            json!({"headers_have_token": {"allow": ["PO"]}}),
            json!({"headers_have_token": {"content-type": "application"}}),
            json!({"headers_have_token": {"x-not-there": ["a"]}}),
            json!({"headers_absent": ["Allow"]}),
        ] {
            assert_eq!(findings(bad.clone(), &seen, false).len(), 1, "{bad}");
        }
    }

    #[test]
    fn no_answer_and_a_broken_body_are_found() {
        let mut seen = reply(200, &[], &[]);
        seen.end = End::Broken("cut".to_owned());
        assert_eq!(findings(json!({}), &seen, false).len(), 1);
        assert_eq!(
            findings(json!({"stream": {"error_event": true}}), &seen, true).len(),
            1,
            "only: no event stream"
        );
        seen.status = None;
        assert_eq!(findings(json!({"status": 200}), &seen, false).len(), 1);
    }
}
