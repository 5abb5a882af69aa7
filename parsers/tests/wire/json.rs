//! Views say what serde_json says, and where it stands.

use proptest::prelude::*;
use switchback_parsers::json::{JsonError, Kind, MAX_DEPTH, Value};

fn view(text: &str) -> Value<'_> {
    Value::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn a_value_knows_its_kind_its_text_and_its_place() {
    let text = " {\"a\" : [1.0, null ,\"x\"], \"b\":{}, \"c\":true}\n";
    let root = view(text);
    assert_eq!(root.kind(), Kind::Object);
    assert_eq!(root.raw(), text.trim());
    let names: Vec<_> = root.members().map(|m| (m.name().into_owned(), m.value.raw())).collect();
    assert_eq!(names, [("a".into(), "[1.0, null ,\"x\"]"), ("b".into(), "{}"), ("c".into(), "true")]);
    let a = root.get("a").unwrap();
    assert_eq!(&text[a.range()], a.raw());
    let elements: Vec<_> = a.elements().map(Value::raw).collect();
    assert_eq!(elements, ["1.0", "null", "\"x\""]);
    assert!(a.members().next().is_none() && root.elements().next().is_none());
}

#[test]
fn the_last_duplicate_counts_and_keys_are_compared_decoded() {
    let root = view(r#"{"model":"first","\u006dodel":"second","mode":"third"}"#);
    assert_eq!(root.get("model").unwrap().raw(), r#""second""#);
    assert_eq!(root.members().count(), 3);
    assert!(root.get("mod").is_none());
}

#[test]
fn strings_are_borrowed_unless_they_hold_an_escape() {
    let root = view(r#"["plain 😀","\ud83d\ude00 \n\t\/\\\" ä","\ud800 lone","\ud800\u0041","\udc00"]"#);
    let texts: Vec<_> = root.elements().map(|v| v.as_str().unwrap()).collect();
    assert!(matches!(texts[0], std::borrow::Cow::Borrowed("plain 😀")));
    assert_eq!(texts[1], "😀 \n\t/\\\" ä");
    assert_eq!(texts[2], "\u{fffd} lone");
    assert_eq!(texts[3], "\u{fffd}A");
    assert_eq!(texts[4], "\u{fffd}");
}

#[test]
fn numbers_are_read_as_far_as_they_are_exact() {
    let root = view(
        "[18446744073709551615, 18446744073709551616, 1.0, 1e3, 1.5, -1, -0, 1e999, 9007199254740993.0]",
    );
    let numbers: Vec<_> = root.elements().map(|v| (v.as_u64(), v.as_i64())).collect();
    assert_eq!(numbers[0], (Some(u64::MAX), None));
    assert_eq!(numbers[1], (None, None));
    assert_eq!(numbers[2], (Some(1), Some(1)));
    assert_eq!(numbers[3], (Some(1000), Some(1000)));
    assert_eq!(numbers[4], (None, None));
    assert_eq!(numbers[5], (None, Some(-1)));
    assert_eq!(numbers[6], (Some(0), Some(0)));
    assert_eq!(root.at("/4").unwrap().as_f64(), Some(1.5));
    assert_eq!(root.at("/7").unwrap().as_f64(), None, "beyond a double");
    assert_eq!(view("\"1\"").as_u64(), None, "a string is no number");
    assert_eq!(view("true").as_f64(), None);
}

#[test]
fn pointers_follow_rfc_6901() {
    let root = view(r#"{"a/b":{"~":[10,{"":7}]},"0":"key"}"#);
    assert_eq!(root.at("").unwrap().raw(), root.raw());
    assert_eq!(root.at("/a~1b/~0/0").unwrap().raw(), "10");
    assert_eq!(root.at("/a~1b/~0/1/").unwrap().raw(), "7");
    assert_eq!(root.at("/0").unwrap().raw(), "\"key\"");
    for nowhere in ["a", "/a", "/a~1b/~0/01", "/a~1b/~0/+1", "/a~1b/~0/-", "/a~1b/~0/2", "/0/0"] {
        assert!(root.at(nowhere).is_none(), "{nowhere}");
    }
}

#[test]
fn depth_is_limited_and_said() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(Value::parse(&nested(MAX_DEPTH)).is_ok());
    assert!(matches!(Value::parse(&nested(MAX_DEPTH + 1)), Err(JsonError::TooDeep(129))));
    let error = Value::parse(&nested(100_000)).unwrap_err();
    assert_eq!(error.to_string(), "nested 100000 levels deep, the limit is 128");
}

#[test]
fn what_is_no_json_is_refused() {
    for text in
        ["", " ", "{", "{\"a\":1,}", "[1 2]", "nul", "01", "\"\u{1}\"", "{} {}", "\u{feff}{}", "'a'", "NaN"]
    {
        assert!(matches!(Value::parse(text), Err(JsonError::Syntax(_))), "{text:?}");
    }
}

/// JSON of all kinds, as serde_json has it.
pub(crate) fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Into::into),
        any::<String>().prop_map(Into::into),
        "[\"\\\\/a😀\n\u{1}-]{0,8}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::vec(("[a-c\"\\\\é]{0,2}", inner), 0..6)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

fn same(value: Value<'_>, expected: &serde_json::Value) {
    use serde_json::Value as Json;
    match expected {
        Json::Null => assert!(value.is_null()),
        Json::Bool(own) => assert_eq!(value.as_bool(), Some(*own)),
        Json::Number(own) => {
            assert_eq!(value.kind(), Kind::Number);
            assert_eq!(value.as_f64(), own.as_f64());
            if own.is_u64() || own.is_i64() {
                assert_eq!((value.as_u64(), value.as_i64()), (own.as_u64(), own.as_i64()));
            }
        }
        Json::String(own) => assert_eq!(value.as_str().as_deref(), Some(&**own)),
        Json::Array(own) => {
            assert_eq!(value.kind(), Kind::Array);
            let elements: Vec<_> = value.elements().collect();
            assert_eq!(elements.len(), own.len());
            elements.iter().zip(own).for_each(|(element, own)| same(*element, own));
        }
        Json::Object(own) => {
            assert_eq!(value.kind(), Kind::Object);
            let members: Vec<_> = value.members().collect();
            assert_eq!(members.len(), own.len());
            for (member, (key, own)) in members.iter().zip(own) {
                assert_eq!(member.name(), *key);
                same(member.value, own);
            }
        }
    }
}

proptest! {
    #[test]
    fn views_read_what_serde_json_reads(json in any_json(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&json) } else { serde_json::to_string(&json) }.unwrap();
        same(view(&text), &json);
    }

    #[test]
    fn any_text_is_viewed_or_refused_as_serde_json_has_it(text in "[\\[\\]{}\",:a0-9. \\\\u-]{0,40}") {
        let expected = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        prop_assert_eq!(Value::parse(&text).is_ok(), expected);
    }
}
