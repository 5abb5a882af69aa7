//! What was sent to the backends, taken together: how often, where, in what order, and how a hang-up travelled.

use std::time::Duration;

use super::super::expect::Upstream;
use super::super::observed::{Attempt, End, Observed};
use super::json::raw_at;
use super::{Findings, request, short};

pub(super) fn compare(expect: &Upstream, seen: &Observed, findings: &mut Findings) {
    let attempts = &seen.attempts;
    if let Some(wanted) = expect.attempts {
        findings.check(attempts.len() == wanted, || {
            let to: Vec<&str> = attempts.iter().map(|attempt| attempt.backend.as_str()).collect();
            format!("{} attempts {to:?}, not {wanted}", attempts.len())
        });
    }
    if let Some(wanted) = &expect.backends {
        let got: Vec<&String> = attempts.iter().map(|attempt| &attempt.backend).collect();
        findings.check(got.iter().copied().eq(wanted), || format!("backends {got:?}, not {wanted:?}"));
    }
    for (groups, same) in [(&expect.same_backend, true), (&expect.different_backend, false)] {
        for group in groups {
            places(group, same, attempts, findings);
        }
    }
    for (pointer, group) in &expect.same_across.0 {
        same_across(pointer, group, attempts, findings);
    }
    if expect.request_1_arrives_after_response_0_ended {
        let holds =
            matches!(&attempts[..], [zero, one, ..] if zero.ended.is_some_and(|ended| one.arrived > ended));
        findings.check(holds, || {
            let times: Vec<_> = attempts.iter().map(|attempt| (attempt.arrived, attempt.ended)).collect();
            format!("request 1 did not arrive after answer 0 had ended: (arrived, ended) {times:?}")
        });
    }
    if let Some(within) = expect.connection_closed_by_proxy_within_ms {
        closed(Duration::from_millis(within), seen, findings);
    }
    for (number, expect) in expect.requests.iter().enumerate() {
        let Some(expect) = expect else { continue };
        match attempts.get(number) {
            Some(attempt) => request::compare(number, expect, attempt, findings),
            None => findings.say(format!("there is no request {number} to look at")),
        }
    }
}

fn places(group: &[usize], same: bool, attempts: &[Attempt], findings: &mut Findings) {
    let backends: Vec<Option<&str>> =
        group.iter().map(|number| attempts.get(*number).map(|attempt| attempt.backend.as_str())).collect();
    let all_there = backends.iter().all(Option::is_some);
    let holds = |(at, one): (usize, &Option<&str>)| backends[..at].iter().all(|other| (one == other) == same);
    findings.check(all_there && backends.iter().enumerate().all(holds), || {
        let wanted = if same { "the same" } else { "different ones" };
        format!("the backends of attempts {group:?} are {backends:?}, not {wanted}")
    });
}

fn same_across(pointer: &str, group: &[usize], attempts: &[Attempt], findings: &mut Findings) {
    let at = |number: &usize| {
        let text = std::str::from_utf8(&attempts.get(*number)?.body).ok()?;
        raw_at(text, pointer)
    };
    let values: Vec<Option<&str>> = group.iter().map(at).collect();
    let alike = values.iter().all(|value| value.is_some() && *value == values[0]);
    findings.check(alike, || format!("{pointer} differs over attempts {group:?}: {}", short(&values)));
}

/// Each answer that was under way when the client hung up must have been closed in time. With several requests it
/// cannot be told whose answer is whose; then as many must be closed as clients hung up.
fn closed(within: Duration, seen: &Observed, findings: &mut Findings) {
    let hung_up: Vec<Duration> =
        seen.replies.iter().filter(|reply| reply.end == End::HungUp).map(|reply| reply.ended).collect();
    let Some(first) = hung_up.iter().min() else {
        findings.say("the client did not come to hang up");
        return;
    };
    let under_way =
        |attempt: &&Attempt| attempt.arrived <= *first && attempt.ended.is_none_or(|ended| ended > *first);
    let open: Vec<&Attempt> = seen.attempts.iter().filter(under_way).collect();
    let in_time =
        |attempt: &&&Attempt| attempt.closed.is_some_and(|at| at >= *first && at <= *first + within);
    let wanted = if seen.replies.len() == 1 { open.len().max(1) } else { hung_up.len() };
    let got = open.iter().filter(in_time).count();
    findings.check(got >= wanted, || {
        let times: Vec<_> = open.iter().map(|attempt| attempt.closed).collect();
        format!(
            "{got} connections of {wanted} closed within {} ms after {first:?}: {times:?}",
            within.as_millis()
        )
    });
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::observed::samples::{attempt, reply};
    use super::*;

    fn findings(expect: Value, seen: &Observed) -> Vec<String> {
        let expect: Upstream = serde_json::from_value(expect).unwrap();
        let mut findings = Findings::default();
        compare(&expect, seen, &mut findings);
        findings.list
    }

    fn seen() -> Observed {
        let to = |backend: &str, arrived: u64, ended: u64, body: &str| Attempt {
            backend: backend.to_owned(),
            arrived: Duration::from_millis(arrived),
            ended: Some(Duration::from_millis(ended)),
            ..attempt(body)
        };
        let attempts = vec![
            to("a", 10, 100, r#"{"t":[1,{"x": 1,"y":2}]}"#),
            to("b", 101, 200, r#"{"t":[1,{"x": 1,"y":2}],"u":1}"#),
            to("a", 150, 300, r#"{"t":[1,{"y":2,"x": 1}]}"#),
        ];
        Observed { attempts, ..Observed::default() }
    }

    #[test]
    fn number_places_and_order_of_attempts_are_judged() {
        for (expect, good) in [
            (json!({"attempts": 3}), true),
            (json!({"attempts": 2}), false),
            (json!({"backends": ["a", "b", "a"]}), true),
            (json!({"backends": ["a", "b"]}), false),
            (json!({"same_backend": [[0, 2]], "different_backend": [[0, 1], [1, 2]]}), true),
            (json!({"same_backend": [[0, 1]]}), false),
            (json!({"different_backend": [[0, 2]]}), false),
            (json!({"different_backend": [[0, 3]]}), false),
            (json!({"request_1_arrives_after_response_0_ended": true}), true),
            (json!({"same_across": {"/t/0": [0, 1, 2], "/t/1": [0, 1]}}), true),
            (json!({"same_across": {"/t/1": [0, 2]}}), false),
            (json!({"same_across": {"/u": [0, 1]}}), false),
            (json!({"requests": [null, {"path": "/v1/chat/completions"}]}), true),
            (json!({"requests": [{"path": "/other"}]}), false),
            (json!({"requests": [{}, {}, {}, {}]}), false),
        ] {
            assert_eq!(findings(expect.clone(), &seen()).is_empty(), good, "{expect}");
        }
        let mut early = seen();
        early.attempts[1].arrived = Duration::from_millis(99);
        assert_eq!(findings(json!({"request_1_arrives_after_response_0_ended": true}), &early).len(), 1);
        early.attempts.truncate(1);
        assert_eq!(findings(json!({"request_1_arrives_after_response_0_ended": true}), &early).len(), 1);
    }

    #[test]
    fn a_hang_up_that_does_not_travel_is_found() {
        let expect = || json!({"connection_closed_by_proxy_within_ms": 500});
        let mut seen = seen();
        seen.attempts.truncate(1);
        let mut hung_up = reply(200, &[], &[(50, b"x")]);
        assert_eq!(
            findings(expect(), &Observed { replies: vec![hung_up.clone()], ..Observed::default() }).len(),
            1
        );
        hung_up.end = End::HungUp;
        seen.replies = vec![hung_up];
        for (ended, closed, good) in [
            (None, Some(549), true),
            (None, Some(551), false),
            (None, None, false),
            (None, Some(40), false),
            (Some(700), None, false),
            (Some(45), None, false),
        ] {
            seen.attempts[0].ended = ended.map(Duration::from_millis);
            seen.attempts[0].closed = closed.map(Duration::from_millis);
            assert_eq!(findings(expect(), &seen).is_empty(), good, "{ended:?} {closed:?}");
        }
    }
}
