//! What models write instead of JSON, and what becomes of it.

use proptest::prelude::*;
use serde_json::{Value, json};
use switchback_parsers::json_repair::{ObjectScan, Repair, Repaired, object_end, repair_object};

fn repaired(text: &str) -> (Value, Vec<Repair>) {
    let Repaired { json, repairs } =
        repair_object(text, true).unwrap_or_else(|| panic!("unreadable: {text}"));
    (serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}")), repairs)
}

#[test]
fn each_damage_has_its_one_reading() {
    use Repair::*;
    let table: &[(&str, Value, &[Repair])] = &[
        ("{'sku': 'X-9', 'n': 2}", json!({"sku": "X-9", "n": 2}), &[SingleQuotes]),
        (
            r#"{"metric": True, "x": None, "y": False}"#,
            json!({"metric": true, "x": null, "y": false}),
            &[PythonLiteral],
        ),
        (r#"{"ids": [4, 8, 15,], "l": ["b",],}"#, json!({"ids": [4, 8, 15], "l": ["b"]}), &[TrailingComma]),
        (
            r#"{{"name": "f", "arguments": {{"port": "C", "day": 5}}}}"#,
            json!({"name": "f", "arguments": {"port": "C", "day": 5}}),
            &[BracesHalved],
        ),
        (
            r#"{{"name": "f", "arguments": {"port": "C"}}}"#,
            json!({"name": "f", "arguments": {"port": "C"}}),
            &[BracesHalved],
        ),
        (r#"{"port": "Porto"}}"#, json!({"port": "Porto"}), &[SurplusClosers]),
        (r#"{"a": {"port": "Porto", "day": 7}"#, json!({"a": {"port": "Porto", "day": 7}}), &[ClosersAdded]),
        (r#"{"a": [1, 2"#, json!({"a": [1, 2]}), &[ClosersAdded]),
        ("{\"body\": \"one\ntwo\tend\"}", json!({"body": "one\ntwo\tend"}), &[RawControl]),
        (
            r#"{"cmd": "grep '\d+\.log' C:\users"}"#,
            json!({"cmd": r"grep '\d+\.log' C:\users"}),
            &[InvalidEscape],
        ),
        (r#"{"body": "She said "no" twice"}"#, json!({"body": "She said \"no\" twice"}), &[InnerQuotes]),
        (r#"{"a": "say "hi"", "b": 1}"#, json!({"a": "say \"hi\"", "b": 1}), &[InnerQuotes]),
        (
            r#"{"c": "print("hi", "x")", "path": "a"}"#,
            json!({"c": "print(\"hi\", \"x\")", "path": "a"}),
            &[InnerQuotes],
        ),
        ("{'t': 'it's fine', 'u': 1}", json!({"t": "it's fine", "u": 1}), &[SingleQuotes, InnerQuotes]),
        ("{&quot;q&quot;: &quot;R&amp;D&quot;}", json!({"q": "R&D"}), &[EntitiesDecoded]),
        ("{“name”: “Bergen”}", json!({"name": "Bergen"}), &[SmartQuotes]),
        ("```json\n{\"day\": 2}\n```", json!({"day": 2}), &[Unfenced]),
        ("{name: \"a\", b_2: [1]}", json!({"name": "a", "b_2": [1]}), &[UnquotedKey]),
        ("{\"a\": 1, // one\n \"b\": 2 /* two */}", json!({"a": 1, "b": 2}), &[Comment]),
        // What the number is, the schema says: an id keeps its zeros.
        (
            r#"{"a": 007, "b": -.5, "c": [+5, 5., NaN]}"#,
            json!({"a": "007", "b": "-.5", "c": ["+5", "5.", "NaN"]}),
            &[OddNumber],
        ),
        (r#"{\n"a": 1,\n\t"b": "x\n"\n}"#, json!({"a": 1, "b": "x\n"}), &[WrittenBreak]),
        ("\u{feff}{\"a\": 1}", json!({"a": 1}), &[]),
        ("['dune', 'wind']", json!(["dune", "wind"]), &[SingleQuotes]),
        (r#"{'a': 'say "x"', 'b': 'don\'t'}"#, json!({"a": "say \"x\"", "b": "don't"}), &[SingleQuotes]),
    ];
    for (text, value, repairs) in table {
        assert_eq!(repaired(text), (value.clone(), repairs.to_vec()), "{text}");
    }
}

#[test]
fn json_is_left_byte_for_byte() {
    for text in [r#"{"a" : 1.50, "b":"\u00e9" }"#, "[1,2]", "9007199254740993", r#""x""#, "{}"] {
        assert_eq!(
            repair_object(&format!(" {text}\n"), false),
            Some(Repaired { json: text.into(), repairs: vec![] })
        );
    }
}

#[test]
fn what_has_two_readings_or_none_is_refused() {
    for text in [
        "",
        "{",
        "oops",
        r#"{"day": oops}"#,
        r#"{"path": "a.py", "content": "def f("#,
        r#"{"a": 1,"#,
        r#"{"a":"#,
        r#"{"a""#,
        r#"{"a": 1 "b": 2}"#,
        r#"{"a": [1, 2}"#,
        r#"{"a": "x "y", "b": "z" w"}"#,
        r#"["a "b", "c" d"]"#,
        r#"{"code": "d = {"k": "v", "z": 1}", "path": "p"}"#,
        r#"{"code": "x" + "y", "path": "p"}"#,
        r#"{"a": 0x10}"#,
        r#"{"a": 1_000}"#,
        r#"{"a": -}"#,
        r#"{"a": .}"#,
        r#"{"a": 1.2.3}"#,
        r#"{"a": 1} and more"#,
        r#"{{"a": "{{b}}"}}}}"#,
        "{'a': '\\x41'}",
        r#"{"a": nul"#,
    ] {
        assert_eq!(repair_object(text, true), None, "{text}");
    }
}

#[test]
fn text_cut_by_length_gets_no_closer() {
    for text in [r#"{"a": {"b": 1}"#, r#"{"a": 1"#, r#"[1, 2"#, r#"{"a": "She said "no"""#] {
        assert_eq!(repair_object(text, false), None, "{text}");
    }
    assert!(repair_object("{'a': 1}", false).is_some(), "what is closed may be mended");
}

#[test]
fn deep_nesting_is_refused_without_a_crash() {
    let deep = "[".repeat(100_000);
    assert_eq!(repair_object(&deep, true), None);
    assert_eq!(
        repair_object(&format!("{}'x'{}", "[".repeat(100), "]".repeat(100)), true).map(|r| r.repairs),
        Some(vec![Repair::SingleQuotes])
    );
}

#[test]
fn an_object_ends_at_its_own_brace() {
    for (text, end) in [
        (r#"{"a": "}"} x"#, Some(10)),
        (r#" [{"a": 1}] }"#, Some(11)),
        (r#"{"a": "\"}"}"#, Some(12)),
        ("{'a': '}'} x", Some(10)),
        (r#"{"a": "it's"} 'x"#, Some(13)),
        (r#"{"a": {"#, None),
        (r#"{"a": "\"#, None),
        ("x{}", None),
        ("", None),
    ] {
        assert_eq!(object_end(text), end, "{text}");
    }
}

/// A value as Python prints it, with a comma behind each element.
fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
        Value::Array(list) => format!("[{}]", list.iter().map(|e| python(e) + ",").collect::<String>()),
        Value::Object(map) => {
            let members = map.iter().map(|(key, value)| format!("'{key}': {},", python(value)));
            format!("{{{}}}", members.collect::<String>())
        }
        other => other.to_string(),
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        r#"[a-z "'\n\t\{\},:é]{0,8}"#.prop_map(Value::from),
    ];
    let tree = leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-z]{1,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    proptest::collection::btree_map("[a-z]{1,4}", tree, 1..4)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}

proptest! {
    #[test]
    fn what_was_damaged_in_a_known_way_is_restored(value in values(), keep in 0_usize..4) {
        let json = value.to_string();
        let raw = json.replace("\\n", "\n").replace("\\t", "\t");
        prop_assert_eq!(&repaired(&raw).0, &value);
        prop_assert_eq!(&repaired(&python(&value)).0, &value);
        prop_assert_eq!(&repaired(&format!("{json}}}")).0, &value);
        let bare = json.trim_end_matches(['}', ']']);
        let cut = json.get(..bare.len() + keep.min(json.len() - bare.len() - 1)).unwrap();
        if !bare.ends_with(['{', '[']) {
            prop_assert_eq!(&repaired(cut).0, &value);
            prop_assert_eq!(repair_object(cut, false), None);
        }
    }

    #[test]
    fn no_string_or_number_is_invented(text in r#"[\{\}\[\]:,"'a1\\ \nT]{0,40}"#, complete: bool) {
        if let Some(repaired) = repair_object(&text, complete) {
            let value: Value = serde_json::from_str(&repaired.json).unwrap();
            let mut leaves = vec![&value];
            while let Some(value) = leaves.pop() {
                match value {
                    Value::Array(elements) => leaves.extend(elements),
                    Value::Object(members) => leaves.extend(members.values()),
                    Value::Number(number) => prop_assert!(text.contains(&number.to_string())),
                    Value::String(string) => {
                        let plain = |text: &str| text.replace(['\\', '\n'], "");
                        prop_assert!(plain(&text).contains(&plain(string)), "{string:?} is not in {text:?}");
                    }
                    _ => {}
                }
            }
            let again = repair_object(&repaired.json, false).unwrap();
            prop_assert_eq!(again, Repaired { json: repaired.json, repairs: vec![] });
        }
    }

    #[test]
    fn a_scan_in_pieces_finds_the_same_end(text in r#"[\{\}\[\]:,"'a\\é ]{0,30}"#) {
        let mut scan = ObjectScan::default();
        let whole = object_end(&text);
        let found = text.char_indices().find_map(|(at, c)| scan.end(&text[..at + c.len_utf8()]));
        prop_assert_eq!(found, whole);
    }
}
