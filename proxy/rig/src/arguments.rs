//! Arguments that fit a tool: which tool a simulated model calls, and with what.
//!
//! A real client acts on what it gets. So of several tools the one is called whose name promises to read rather than
//! to change, and the values are ones that do no harm. Values come from the schema (`const`, `enum`, `default`,
//! `examples`, type, bounds, required members, `anyOf`, `$ref`), strings also from the member's name. It must never
//! make arguments that the schema's required members and types refuse.

use serde_json::{Map, Value, json};

use crate::inference::Tool;

/// Names of tools that only look. The first match wins.
const HARMLESS: [&str; 8] = ["read", "list", "search", "find", "get", "view", "fetch", "weather"];

/// Values for strings, by what their member's name contains.
const STRINGS: [(&str, &str); 12] = [
    ("path", "README.md"),
    ("file", "README.md"),
    ("dir", "."),
    ("command", "echo switchback"),
    ("cmd", "echo switchback"),
    ("url", "http://127.0.0.1/"),
    ("regex", "switchback"),
    ("pattern", "switchback"),
    ("city", "Berlin"),
    ("location", "Berlin"),
    ("date", "2026-01-01"),
    ("question", "Which way round?"),
];

/// Schemas may nest for ever by reference, and branch; values do neither.
const DEEPEST: usize = 8;
const MOST: usize = 2_000;

/// The tool that is called when none is named.
pub(crate) fn pick(tools: &[Tool]) -> Option<&Tool> {
    let harmless = |word: &str| tools.iter().find(|tool| tool.name.to_lowercase().contains(word));
    HARMLESS.iter().find_map(|word| harmless(word)).or_else(|| tools.first())
}

/// The smallest arguments that satisfy a schema.
pub(crate) fn fitting(schema: &Value) -> Value {
    match (Maker { root: schema, left: MOST }).value(schema, "", DEEPEST) {
        Value::Object(members) => Value::Object(members),
        _ => json!({}),
    }
}

/// Makes values from the schemas of one root.
struct Maker<'a> {
    root: &'a Value,
    /// How many values may still be made.
    left: usize,
}

impl Maker<'_> {
    fn value(&mut self, schema: &Value, name: &str, depth: usize) -> Value {
        if depth == 0 || self.left == 0 {
            return Value::Null;
        }
        self.left -= 1;
        for given in [&schema["const"], &schema["enum"][0], &schema["default"], &schema["examples"][0]] {
            if !given.is_null() {
                return given.clone();
            }
        }
        if let Some(pointer) = schema["$ref"].as_str().and_then(|target| target.strip_prefix('#')) {
            let target = self.root.pointer(pointer);
            return target.map_or(Value::Null, |target| self.value(target, name, depth - 1));
        }
        for choice in ["anyOf", "oneOf"] {
            if let Some(options) = schema[choice].as_array() {
                let option =
                    options.iter().find(|option| option["type"] != "null").or_else(|| options.first());
                return option.map_or(Value::Null, |option| self.value(option, name, depth - 1));
            }
        }
        if let Some(parts) = schema["allOf"].as_array() {
            let mut whole = Map::new();
            for part in parts {
                if let Value::Object(members) = self.value(part, name, depth - 1) {
                    whole.extend(members);
                }
            }
            return Value::Object(whole);
        }
        match kind(schema) {
            Some("integer") => integer(schema),
            Some("number") => schema["minimum"].as_f64().map_or(json!(1), |least| json!(least)),
            Some("boolean") => json!(false),
            Some("null") => Value::Null,
            Some("array") => {
                let many = schema["minItems"].as_u64().unwrap_or(0).min(16);
                (0..many).map(|_| self.value(&schema["items"], name, depth - 1)).collect()
            }
            Some("object") => self.members(schema, depth),
            None if schema["properties"].is_object() || name.is_empty() => self.members(schema, depth),
            _ => string(schema, name),
        }
    }

    fn members(&mut self, schema: &Value, depth: usize) -> Value {
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let member = |name: &str| (name.to_owned(), self.value(&schema["properties"][name], name, depth - 1));
        Value::Object(required.map(member).collect::<Map<_, _>>())
    }
}

/// The schema's type; of several the first that is not null.
fn kind(schema: &Value) -> Option<&str> {
    let several = || schema["type"].as_array().into_iter().flatten().filter_map(Value::as_str);
    schema["type"].as_str().or_else(|| several().find(|kind| *kind != "null"))
}

fn integer(schema: &Value) -> Value {
    let least =
        schema["minimum"].as_i64().or_else(|| Some(schema["exclusiveMinimum"].as_i64()?.saturating_add(1)));
    let most = schema["maximum"].as_i64().unwrap_or(i64::MAX);
    json!(least.unwrap_or(1).min(most))
}

fn string(schema: &Value, name: &str) -> Value {
    let name = name.to_lowercase();
    let known = STRINGS.iter().find(|(part, _)| name.contains(part));
    let mut text = known.map_or("switchback", |(_, value)| value).to_owned();
    let least = schema["minLength"].as_u64().unwrap_or(0).min(4_096);
    let missing = usize::try_from(least).unwrap_or(0).saturating_sub(text.chars().count());
    text.push_str(&".".repeat(missing));
    if let Some(most) = schema["maxLength"].as_u64() {
        text = text.chars().take(usize::try_from(most).unwrap_or(usize::MAX)).collect();
    }
    json!(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_every_required_member_in_its_type() {
        let schema = json!({
            "type": "object", "required": ["path", "line", "how", "opts", "tags", "maybe", "node"],
            "properties": {
                "path": {"type": "string"}, "line": {"type": "integer", "minimum": 3},
                "how": {"enum": ["fast", "slow"]}, "skipped": {"type": "string"},
                "opts": {"type": "object", "required": ["deep"], "properties": {"deep": {"type": "boolean"}}},
                "tags": {"type": "array", "minItems": 2, "items": {"type": "string", "maxLength": 4}},
                "maybe": {"anyOf": [{"type": "null"}, {"type": ["null", "number"]}]},
                "node": {"$ref": "#/$defs/node"},
            },
            "$defs": {"node": {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#/$defs/node"}}}},
        });
        let mut made = fitting(&schema);
        let node = made.as_object_mut().unwrap().remove("node").unwrap();
        assert!(node["next"]["next"].is_object(), "endless by reference, yet it ends");
        assert_eq!(
            made,
            json!({"path": "README.md", "line": 3, "how": "fast", "opts": {"deep": false},
                "tags": ["swit", "swit"], "maybe": 1})
        );
        for empty in [Value::Null, json!({}), json!({"type": "object"}), json!("x")] {
            assert_eq!(fitting(&empty), json!({}));
        }
    }

    #[test]
    fn a_schema_that_explodes_ends_soon() {
        let names: Vec<String> = (0..40).map(|number| format!("m{number}")).collect();
        let mut schema = json!({"type": "object", "required": names, "properties": {}});
        for name in &names {
            schema["properties"][name] = json!({"$ref": "#"});
        }
        assert!(fitting(&schema)["m0"]["m0"].is_object());
        let edge = json!({"required": ["n"], "properties": {"n": {"type": "integer", "exclusiveMinimum": i64::MAX}}});
        assert_eq!(fitting(&edge), json!({"n": i64::MAX}));
    }

    #[test]
    fn a_tool_that_looks_is_called_before_one_that_changes() {
        let tool = |name: &str| Tool { name: name.to_owned(), parameters: Value::Null };
        let tools = [tool("delete_file"), tool("write_file"), tool("read_file")];
        assert_eq!(pick(&tools).unwrap().name, "read_file");
        assert_eq!(pick(&tools[..2]).unwrap().name, "delete_file");
        assert_eq!(pick(&[]), None);
    }
}
