//! Names, types and what the schema makes of text and of JSON.

use proptest::prelude::*;
use serde_json::{Value, json};
use switchback_parsers::schema::{Tool, ToolSet};

fn tools(schema: Value) -> ToolSet {
    ToolSet::from_json(
        &json!([{"type": "function", "function": {"name": "t", "parameters": schema}}]).to_string(),
    )
}

fn tool(schema: Value) -> Tool {
    tools(schema).tool("t").unwrap().clone()
}

fn names(names: &[&str]) -> ToolSet {
    let tools: Vec<Value> = names.iter().map(|name| json!({"name": name, "input_schema": {}})).collect();
    ToolSet::from_json(&Value::from(tools).to_string())
}

#[test]
fn a_name_is_found_however_it_is_written_if_it_means_one_tool() {
    let set = names(&["read_page", "Read", "list-files", "functions.x", "a_b", "A-B"]);
    for (written, name) in [
        ("read_page", Some("read_page")),
        ("Read_Page", Some("read_page")),
        ("functions.read_page", Some("read_page")),
        ("read-page", Some("read_page")),
        ("read_page<|channel|>commentary", Some("read_page")),
        ("functions.read_page<|constrain|>json", Some("read_page")),
        ("list_files", Some("list-files")),
        ("functions.x", Some("functions.x")),
        ("read", Some("Read")),
        ("a-b", Some("a_b")),
        ("A_b", None),
        ("unknown", None),
        ("", None),
    ] {
        assert_eq!(set.resolve(written), name, "{written}");
    }
    assert_eq!(names(&[]).resolve("x"), None);
}

#[test]
fn text_is_typed_by_the_schema_only() {
    let nullable = json!({"anyOf": [{"type": "string"}, {"type": "null"}]});
    let reference = json!({"$ref": "#/$defs/Size"});
    let table = [
        (json!({"type": "string"}), "00123", r#""00123""#),
        (json!({"type": "string"}), "null", r#""null""#),
        (json!({"type": "string"}), " {\"k\": 1}\n", r#"" {\"k\": 1}\n""#),
        (json!({}), "5", r#""5""#),
        (nullable.clone(), "null", "null"),
        (nullable.clone(), "None", r#""None""#),
        (json!({"type": ["integer", "null"]}), "NULL", "null"),
        (json!({"type": "integer", "nullable": true}), "null", "null"),
        (json!({"type": "integer"}), "lots", r#""lots""#),
        (json!({"type": "integer"}), " 4 ", "4"),
        (json!({"type": "integer"}), "007", "7"),
        (json!({"type": "integer"}), "9007199254740993", "9007199254740993"),
        (json!({"type": "integer"}), "1e3", r#""1e3""#),
        (json!({"type": "integer"}), "4.0", "4"),
        (json!({"type": "integer"}), "4.5", r#""4.5""#),
        (json!({"type": ["string", "integer"]}), "5", "5"),
        (json!({"type": ["string", "integer"]}), "007", r#""007""#),
        (json!({"type": ["string", "integer"]}), "5.0", r#""5.0""#),
        (json!({"type": ["string", "integer"], "enum": ["5", 6]}), "5", r#""5""#),
        (json!({"type": "number"}), "1e3", "1e3"),
        (json!({"type": "number"}), "19.50", "19.50"),
        (json!({"type": "number"}), ".5", "0.5"),
        (json!({"type": "number"}), "nan", r#""nan""#),
        (json!({"type": "boolean"}), "False", "false"),
        (json!({"type": "boolean"}), "1", "true"),
        (json!({"type": "boolean"}), "yes", r#""yes""#),
        (json!({"type": ["boolean", "string"]}), "1", r#""1""#),
        (json!({"type": "array", "items": {"type": "string"}}), "['dune', 'wind']", r#"["dune", "wind"]"#),
        (json!({"type": "array", "items": {"type": "integer"}}), r#"["1", 2]"#, "[1, 2]"),
        (json!({"type": "object"}), "{'year': 2020, 'open': True}", r#"{"year": 2020, "open": true}"#),
        (json!({"type": "object"}), "[1]", r#""[1]""#),
        (json!({"type": "array"}), "a, b", r#""a, b""#),
        (json!({"enum": [1, 2]}), "2", "2"),
        (json!({"allOf": [reference.clone()], "description": "d"}), "3", "3"),
    ];
    for (schema, text, expected) in table {
        let root = json!({"properties": {"p": schema}, "$defs": {"Size": {"type": "integer"}}});
        assert_eq!(tool(root).value_from_text("p", text), expected, "{schema} {text}");
    }
    assert_eq!(tool(json!({"properties": {}})).value_from_text("colour", "5"), r#""5""#);
    assert_eq!(tool(Value::Null).value_from_text("colour", "5"), r#""5""#);
}

#[test]
fn only_values_of_a_forbidden_type_are_coerced() {
    let tool = tool(json!({"type": "object", "properties": {
        "n": {"type": "integer"}, "b": {"type": "boolean"}, "s": {"type": "string"},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "free": {},
    }}));
    for (source, expected) in [
        (r#"{"n": "12", "b": "false"}"#, r#"{"n": 12, "b": false}"#),
        (r#"{"s":70015 , "n" : 5.0}"#, r#"{"s":"70015" , "n" : 5.0}"#),
        (r#"{"s": 9007199254740993}"#, r#"{"s": "9007199254740993"}"#),
        (r#"{"either": "5", "free": "5", "other": "5"}"#, r#"{"either": "5", "free": "5", "other": "5"}"#),
        (r#"{"list": [{"x": "1.5", "y": "2"}]}"#, r#"{"list": [{"x": 1.5, "y": "2"}]}"#),
        (r#"{"list": "[{\"x\": \"1.5\"}]"}"#, r#"{"list": [{"x": 1.5}]}"#),
        (r#"{"map": {"k": "3"}}"#, r#"{"map": {"k": 3}}"#),
        (r#"{"n": "many", "b": "maybe", "s": {"a": 1}}"#, r#"{"n": "many", "b": "maybe", "s": {"a": 1}}"#),
        (r#"["n"]"#, r#"["n"]"#),
        ("{broken", "{broken"),
    ] {
        let coerced = tool.coerce(source);
        assert_eq!(coerced.json, expected);
        assert_eq!(coerced.notes.is_empty(), source == expected, "{:?}", coerced.notes);
    }
    assert_eq!(tool.coerce(r#"{"list": [{"x": "1"}]}"#).notes, ["list[0].x: a string became a number"]);
}

#[test]
fn a_check_names_the_parameter_and_what_is_wrong() {
    let tool =
        tool(json!({"type": "object", "required": ["port"], "additionalProperties": false, "properties": {
        "port": {"type": "string"}, "day": {"type": ["integer", "null"]},
        "zone": {"enum": ["north", "south"]},
        "size": {"anyOf": [{"$ref": "#/$defs/Size"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "until": {"type": "string", "nullable": true},
    }, "$defs": {"Size": {"type": "object", "required": ["w"], "properties": {"w": {"type": "number"}}}}}));
    let well =
        r#"{"port": "Muros", "day": null, "zone": "north", "size": {"w": 1}, "tags": ["a"], "until": null}"#;
    assert_eq!(tool.check(well), Ok(()));
    assert_eq!(tool.check(r#"{"port": "Muros", "day": 5.0, "size": null}"#), Ok(()));
    for (arguments, error) in [
        ("{}", "port is required"),
        (r#"{"port": 5}"#, "port must be a string, found an integer"),
        (r#"{"port": "a", "day": "5"}"#, "day must be an integer or null, found a string"),
        (r#"{"port": "a", "zone": "east"}"#, r#"zone must be one of "north", "south""#),
        (r#"{"port": "a", "tags": ["a", 1]}"#, "tags[1] must be a string, found an integer"),
        (
            r#"{"port": "a", "size": {}}"#,
            "size fits no alternative: size.w is required; or size must be null, found an object",
        ),
        (r#"{"port": "a", "colour": 1}"#, "colour is not a known parameter"),
        ("[]", "arguments must be an object, found an array"),
    ] {
        assert_eq!(tool.check(arguments), Err(error.to_owned()));
    }
    assert!(tool.check("{").unwrap_err().starts_with("arguments are not valid json: "));
}

#[test]
fn strings_that_may_stream_are_those_that_can_be_nothing_else() {
    let tool = tool(
        json!({"properties": {"s": {"type": "string"}, "e": {"enum": ["a"]}, "n": {"type": ["string", "null"]}, "i": {"type": "integer"}}}),
    );
    let is_string = ["s", "e", "n", "i", "unknown"].map(|name| tool.is_string(name));
    assert_eq!(is_string, [true, true, false, false, true]);
    assert!(tool.has_parameter("n") && !tool.has_parameter("unknown"));
    assert_eq!(tool.required().count(), 0);
}

#[test]
fn a_schema_that_refers_to_itself_ends() {
    let tool = tool(
        json!({"$ref": "#", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}, "n": {"type": "integer"}}}),
    );
    assert_eq!(
        tool.coerce(r#"{"kids": [{"n": "5", "kids": []}]}"#).json,
        r#"{"kids": [{"n": 5, "kids": []}]}"#
    );
    assert_eq!(tool.check(r#"{"kids": [{"n": 5}]}"#), Ok(()));
    assert!(tool.check(r#"{"kids": [{"n": "5"}]}"#).is_err());
}

fn schemas() -> impl Strategy<Value = Value> {
    let names = ["null", "integer", "number", "boolean", "object", "array", "string"];
    proptest::collection::vec(proptest::sample::select(names.to_vec()), 0..3)
        .prop_map(|names| json!({"properties": {"p": {"type": names}}}))
}

#[test]
fn strings_inside_strings_are_read_only_as_deep_as_arguments_may_be() {
    let tool = tool(
        json!({"properties": {"p": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}),
    );
    let mut nested = "1".to_owned();
    for _ in 0..40 {
        nested = format!("{}{}{}", "[".repeat(100), Value::from(nested), "]".repeat(100));
        if nested.len() > 1 << 20 {
            break;
        }
        let coerced = tool.coerce(&format!("{{\"p\": {nested}}}")).json;
        assert!(switchback_parsers::json::Value::parse(&coerced).is_ok(), "deeper than it may be");
        tool.value_from_text("p", &nested);
    }
}

proptest! {
    #[test]
    fn a_value_from_text_says_what_the_text_says(schema in schemas(), text in r#"[0-9a-zA-Z\.\-\+ \[\]\{\},"':éN]{0,12}|null|true|-?[0-9]{1,20}"#) {
        let json = tool(schema).value_from_text("p", &text);
        let value: Value = serde_json::from_str(&json).unwrap();
        match value {
            Value::String(own) => prop_assert_eq!(own, text),
            Value::Number(_) => prop_assert!(text.contains(json.trim_start_matches(['-', '0']))),
            _ => {}
        }
    }

    #[test]
    fn coercion_keeps_what_the_schema_allows(schema in schemas(), text in r#"[0-9a-z\.\- ]{0,8}"#, number in -999_i64..999) {
        let tool = tool(schema);
        for value in [json!(text), json!(number), json!(null), json!(true), json!([text]), json!({"k": number})] {
            let source = json!({"p": value, "q": value}).to_string();
            let coerced = tool.coerce(&source);
            let after: Value = serde_json::from_str(&coerced.json).unwrap();
            prop_assert_eq!(&after["q"], &value);
            if tool.check(&source).is_ok() {
                prop_assert_eq!(coerced.json, source);
            }
        }
    }
}
