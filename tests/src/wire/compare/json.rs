//! JSON as the comparing rules need it: equality with one kind of number, texts in values, raw bytes under a pointer.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;
use serde_json::value::RawValue;

/// Equality where 1000 and 1000.0 are the same number and the order of members does not matter.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || (one.as_f64() == other.as_f64() && !both_whole(one, other))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| same(value, other)))
        }
        _ => one == other,
    }
}

/// Large whole numbers differ although their nearest floating numbers are equal.
fn both_whole(one: &serde_json::Number, other: &serde_json::Number) -> bool {
    !one.is_f64() && !other.is_f64()
}

/// The forms in which a value is searched for a text: itself if it is a string, else its JSON and the strings in it.
pub(super) fn texts(value: &Value) -> Vec<Cow<'_, str>> {
    let mut found = Vec::new();
    if !value.is_string() {
        found.push(Cow::Owned(value.to_string()));
    }
    strings(value, &mut found);
    found
}

fn strings<'a>(value: &'a Value, into: &mut Vec<Cow<'a, str>>) {
    match value {
        Value::String(text) => into.push(Cow::Borrowed(text)),
        Value::Array(items) => items.iter().for_each(|item| strings(item, into)),
        Value::Object(members) => members.values().for_each(|member| strings(member, into)),
        _ => {}
    }
}

/// The bytes of the value under a pointer, exactly as they stand in `text`.
pub(super) fn raw_at<'a>(text: &'a str, pointer: &str) -> Option<&'a str> {
    let mut raw: &RawValue = serde_json::from_str(text).ok()?;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        raw = match raw.get().as_bytes().first()? {
            b'{' => {
                let members: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_str(raw.get()).ok()?;
                *members.get(step.as_str())?
            }
            b'[' => {
                let items: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
                *items.get(step.parse::<usize>().ok()?)?
            }
            _ => return None,
        };
    }
    Some(raw.get())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_one_kind_and_members_have_no_order() {
        let value = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
        assert!(same(&value(r#"{"a":1000,"b":[1.0]}"#), &value(r#"{"b":[1],"a":1000.0}"#)));
        for (one, other) in
            [("1", "\"1\""), ("[1]", "[1,1]"), ("{}", "{\"a\":null}"), ("1", "true"), ("null", "0")]
        {
            assert!(!same(&value(one), &value(other)), "{one} {other}");
        }
        assert!(!same(&value("9007199254740993"), &value("9007199254740992")));
    }

    #[test]
    fn raw_values_keep_their_spacing_and_order() {
        let text = r#"{"a/b": [1, {"z": 1,  "y":2.0}]}"#;
        assert_eq!(raw_at(text, "/a~1b/1"), Some(r#"{"z": 1,  "y":2.0}"#));
        assert_eq!(raw_at(text, ""), Some(text));
        for missing in ["/c", "/a~1b/2", "/a~1b/x", "/a~1b/1/z/q"] {
            assert_eq!(raw_at(text, missing), None, "{missing}");
        }
    }

    #[test]
    fn a_text_is_found_in_json_and_in_the_strings_of_a_value() {
        let value = json!([{"text": "say \"hi\"", "n": 1}]);
        assert!(texts(&value).iter().any(|text| text.contains("say \"hi\"")));
        assert!(texts(&value).iter().any(|text| text.contains("\"n\":1")));
        let single = json!("plain");
        assert_eq!(texts(&single), ["plain"]);
    }
}
