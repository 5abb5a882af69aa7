//! Edits one by one: what they write, to the byte.

use bytes::Bytes;
use switchback_parsers::edit::Edits;
use switchback_parsers::json::Value;
use switchback_parsers::request::ChatRequest;

type Edit = for<'a> fn(&mut Edits, Value<'a>);

/// Makes base and candidate edits on a body and gives what is written.
fn edited(body: &str, base: &[Edit], candidate: &[Edit]) -> String {
    let request = ChatRequest::parse(Bytes::copy_from_slice(body.as_bytes())).unwrap();
    let edits = |list: &[Edit]| {
        let mut edits = Edits::new();
        list.iter().for_each(|edit| edit(&mut edits, request.root()));
        edits
    };
    let written = request.write(&edits(base), &edits(candidate));
    serde_json::from_slice::<serde_json::Value>(&written)
        .unwrap_or_else(|error| panic!("{written:?}: {error}"));
    String::from_utf8(written.into()).unwrap()
}

fn check(body: &str, edit: Edit, expected: &str) {
    assert_eq!(edited(body, &[edit], &[]), expected);
    assert_eq!(edited(body, &[], &[edit]), expected, "as a candidate's edit");
}

#[test]
fn a_member_is_replaced_where_it_stands_and_appended_where_it_is_absent() {
    check(
        r#"{ "model" : "a" , "n":1.0 }"#,
        |e, v| e.set(v, "model", "\"b\""),
        r#"{ "model" : "b" , "n":1.0 }"#,
    );
    check(r#"{ "n":1.0 }"#, |e, v| e.set(v, "a\"b", "[]"), r#"{ "n":1.0,"a\"b":[] }"#);
    check("{}", |e, v| e.set(v, "a", "1"), r#"{"a":1}"#);
    check("{ \n}", |e, v| e.set(v, "a", "1"), "{\"a\":1 \n}");
}

#[test]
fn of_duplicates_the_last_is_replaced_and_the_others_go() {
    check(
        r#"{"a":1,"b":2,"a":3,"c":4,"\u0061":5}"#,
        |e, v| e.set(v, "a", "9"),
        r#"{"b":2,"c":4,"\u0061":9}"#,
    );
    check(r#"{"a":1,"b":2,"a":3}"#, |e, v| e.remove(v, "a"), r#"{"b":2}"#);
}

#[test]
fn a_member_goes_with_the_right_comma() {
    check(r#"{ "a":1 , "b":2 , "c":3 }"#, |e, v| e.remove(v, "a"), r#"{ "b":2 , "c":3 }"#);
    check(r#"{ "a":1 , "b":2 , "c":3 }"#, |e, v| e.remove(v, "b"), r#"{ "a":1 , "c":3 }"#);
    check(r#"{ "a":1 , "b":2 , "c":3 }"#, |e, v| e.remove(v, "c"), r#"{ "a":1 , "b":2 }"#);
    check(r#"{ "a":1 }"#, |e, v| e.remove(v, "a"), "{  }");
    check(r#"{"a":1}"#, |e, v| e.remove(v, "absent"), r#"{"a":1}"#);
    let all: Edit = |e, v| ["a", "b", "c"].iter().for_each(|key| e.remove(v, key));
    check(r#"{"a":1,"b":2,"c":3}"#, all, "{}");
    let ends: Edit = |e, v| ["a", "c"].iter().for_each(|key| e.remove(v, key));
    check(r#"{"a":1,"b":2,"c":3}"#, ends, r#"{"b":2}"#);
    let first_two: Edit = |e, v| ["a", "b"].iter().for_each(|key| e.remove(v, key));
    check(r#"{"a":1,"b":2,"c":3}"#, first_two, r#"{"c":3}"#);
}

#[test]
fn elements_go_by_their_place_in_the_document_and_come_at_the_end() {
    let body = r#"{"l":[ 0, [1], {"k":2} ]}"#;
    fn list<'a>(v: Value<'a>) -> Value<'a> {
        v.get("l").unwrap()
    }
    check(body, |e, v| e.remove_element(list(v), 0), r#"{"l":[ [1], {"k":2} ]}"#);
    check(body, |e, v| e.remove_element(list(v), 2), r#"{"l":[ 0, [1] ]}"#);
    check(body, |e, v| e.remove_element(list(v), 3), body);
    check(
        body,
        |e, v| {
            e.remove_element(list(v), 0);
            e.remove_element(list(v), 1);
            e.push(list(v), "3");
            e.push(list(v), "4");
        },
        r#"{"l":[ {"k":2},3,4 ]}"#,
    );
    check(
        body,
        |e, v| {
            (0..3).for_each(|index| e.remove_element(list(v), index));
            e.push(list(v), "5");
        },
        r#"{"l":[ 5 ]}"#,
    );
    check(r#"{"l":[]}"#, |e, v| e.push(list(v), "1"), r#"{"l":[1]}"#);
}

#[test]
fn several_edits_of_one_object_agree() {
    check(
        r#"{"a":1,"b":2}"#,
        |e, v| {
            e.set(v, "new", "1");
            e.remove(v, "b");
            e.set(v, "a", "3");
            e.set(v, "new", "2");
            e.set(v, "other", "4");
            e.remove(v, "other");
        },
        r#"{"a":3,"new":2}"#,
    );
    check(
        r#"{"a":1}"#,
        |e, v| {
            e.remove(v, "a");
            e.set(v, "a", "2");
            e.set(v, "b", "3");
        },
        r#"{"a":2,"b":3}"#,
    );
}

#[test]
fn an_outer_edit_swallows_the_inner_ones_whichever_came_first() {
    let inner: Edit = |e, v| {
        let a = v.get("a").unwrap();
        e.set(a, "new", "1");
        e.remove(a, "b");
        e.push(a.get("l").unwrap(), "2");
    };
    let outer: Edit = |e, v| e.set(v, "a", "null");
    let gone: Edit = |e, v| e.remove(v, "a");
    let body = r#"{"x":0,"a":{"b":1,"l":[1]}}"#;
    for (base, candidate) in [(inner, outer), (outer, inner)] {
        assert_eq!(edited(body, &[base], &[candidate]), r#"{"x":0,"a":null}"#);
        assert_eq!(edited(body, &[base, candidate], &[]), r#"{"x":0,"a":null}"#);
    }
    assert_eq!(edited(body, &[inner], &[gone]), r#"{"x":0}"#);
    assert_eq!(edited(body, &[inner], &[]), r#"{"x":0,"a":{"l":[1,2],"new":1}}"#);
}

#[test]
fn the_candidate_wins_over_the_base() {
    let body = r#"{"model":"auto","tools":[1]}"#;
    let one: Edit = |e, v| e.set(v, "model", "\"one\"");
    let two: Edit = |e, v| e.replace(v.get("model").unwrap(), "\"two\"");
    let none: Edit = |e, v| e.remove(v, "model");
    assert_eq!(edited(body, &[one], &[two]), r#"{"model":"two","tools":[1]}"#);
    assert_eq!(edited(body, &[two], &[one]), r#"{"model":"one","tools":[1]}"#);
    assert_eq!(edited(body, &[two], &[none]), r#"{"tools":[1]}"#);
    assert_eq!(edited(body, &[none], &[two]), r#"{"model":"two","tools":[1]}"#);
    let seed: Edit = |e, v| e.set(v, "seed", "1");
    let other: Edit = |e, v| e.set(v, "seed", "2");
    assert_eq!(edited(body, &[seed], &[other]), r#"{"model":"auto","tools":[1],"seed":2}"#);
}

#[test]
fn a_key_is_renamed_and_its_member_may_go_all_the_same() {
    let rename: Edit = |e, v| e.replace(v.members().next().unwrap().key, "\"max_tokens\"");
    let gone: Edit = |e, v| e.remove(v, "max_completion_tokens");
    let body = r#"{"max_completion_tokens":5,"n":1}"#;
    assert_eq!(edited(body, &[rename], &[]), r#"{"max_tokens":5,"n":1}"#);
    assert_eq!(edited(body, &[rename], &[gone]), r#"{"n":1}"#);
}

#[test]
fn the_whole_body_can_be_replaced() {
    check(" {\"a\":1} ", |e, v| e.replace(v, "{\"b\":2}"), " {\"b\":2} ");
}

#[test]
fn an_edit_of_the_wrong_kind_is_ignored() {
    let body = r#"{"a":"text"}"#;
    check(body, |e, v| e.set(v.get("a").unwrap(), "k", "1"), body);
    check(body, |e, v| e.push(v, "1"), body);
    check(body, |e, v| e.remove_element(v, 0), body);
    check(body, |e, v| e.remove(v.get("a").unwrap(), "a"), body);
}

#[test]
fn edits_of_another_document_neither_panic_nor_hang() {
    let long = ChatRequest::parse(Bytes::from(format!("{{\"é\":[{}]}}", "1,".repeat(99) + "1"))).unwrap();
    let short = ChatRequest::parse(Bytes::from("{\"é\":\"éééé\"}")).unwrap();
    let mut edits = Edits::new();
    for element in long.root().get("é").unwrap().elements() {
        edits.replace(element, "2");
    }
    edits.push(long.root().get("é").unwrap(), "3");
    edits.remove_element(long.root().get("é").unwrap(), 98);
    short.write(&edits, &Edits::new());
}

#[test]
fn ten_mebibytes_with_edits_at_every_depth_lose_nothing() {
    let text = "line one\\n\\\"quoted\\\" \\\\ 😀 ".repeat(400);
    let messages: Vec<_> =
        (0..1100).map(|n| format!("{{\"role\":\"user\",\"n\":{n},\"content\":\"{text}\"}}")).collect();
    let body = format!(
        "{{\"model\":\"m\",\"messages\":[{}],\"big\":123456789012345678901234567890}}",
        messages.join(",")
    );
    assert!(body.len() > 10 << 20);
    let request = ChatRequest::parse(Bytes::from(body.clone())).unwrap();
    let mut edits = Edits::new();
    let mut expected: serde_json::Value = serde_json::from_str(&body).unwrap();
    for (index, message) in request.messages().enumerate().filter(|(index, _)| index % 7 == 0) {
        edits.replace(message.0.get("n").unwrap(), "\"edited\"");
        expected["messages"][index]["n"] = "edited".into();
    }
    edits.remove_element(request.root().get("messages").unwrap(), 1099);
    expected["messages"].as_array_mut().unwrap().pop();
    let written = request.write(&edits, &Edits::new());
    assert!(written.ends_with(b",\"big\":123456789012345678901234567890}"));
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&written).unwrap(), expected);
}
