//! Tools as gpt-oss reads them: a TypeScript namespace, written as openai-harmony 0.0.8 writes it, down to its odd spaces.
//!
//! It must follow `template_tools_section` and `json_schema_to_typescript` of that crate line by line: a comment more or less is a
//! token more or less. Indentation grows with depth alone, and depth is bounded by the JSON reader.

use serde_json::{Map, Value as Json};

use crate::prompt::normalise::{Refused, member, text};
use crate::request::ChatRequest;

/// The section of the request's tools; none if it has none.
pub(super) fn tools(request: &ChatRequest) -> Result<Option<String>, Refused> {
    let tools = match member(request, "tools")? {
        None => return Ok(None),
        Some(Json::Array(tools)) if tools.is_empty() => return Ok(None),
        Some(Json::Array(tools)) => tools,
        Some(_) => return Err(Refused::new("tools must be a list")),
    };
    let mut lines = vec!["## functions\n".to_owned(), "namespace functions {\n".to_owned()];
    for (index, tool) in tools.iter().enumerate() {
        let function = tool.get("function").and_then(Json::as_object);
        let function = function.ok_or_else(|| Refused::new(format!("tools[{index}] is no function")))?;
        let name = text(function, "name")
            .ok_or_else(|| Refused::new(format!("tools[{index}].function.name must be a string")))?;
        let description = text(function, "description").unwrap_or_default();
        lines.extend(description.lines().map(|line| format!("// {line}")));
        lines.push(match function.get("parameters").filter(|schema| !schema.is_null()) {
            Some(schema) => format!("type {name} = (_: {}) => any;\n", type_of(schema, "")),
            None => format!("type {name} = () => any;\n"),
        });
    }
    lines.push("} // namespace functions".to_owned());
    Ok(Some(format!("# Tools\n\n{}", lines.join("\n"))))
}

fn string<'a>(schema: &'a Json, key: &str) -> Option<&'a str> {
    schema.get(key).and_then(Json::as_str)
}

fn is_enum(schema: &Json) -> bool {
    schema.get("enum").and_then(Json::as_array).is_some_and(|values| !values.is_empty())
}

/// The default value as a comment has it; strings are quoted unless one of an enum may be bare.
fn default_of(schema: &Json, bare_in_enum: bool) -> Option<String> {
    let default = schema.get("default")?;
    Some(match default.as_str() {
        Some(text) if !is_enum(schema) => format!("default: \"{text}\""),
        Some(text) if bare_in_enum => format!("default: {text}"),
        _ => format!("default: {default}"),
    })
}

fn comments(notes: &[String]) -> String {
    if notes.is_empty() { String::new() } else { format!(" // {}", notes.join(" ")) }
}

/// The type, with `| null` where the schema says so in OpenAPI's way.
fn nullable(schema: &Json, indent: &str) -> String {
    let written = type_of(schema, indent);
    let is_nullable = schema.get("nullable").and_then(Json::as_bool).unwrap_or(false);
    if is_nullable && !written.contains("null") { format!("{written} | null") } else { written }
}

fn type_of(schema: &Json, indent: &str) -> String {
    if let Some(variants) = schema.get("oneOf").and_then(Json::as_array) {
        return variants_of(variants, indent);
    }
    match schema.get("type") {
        Some(Json::Array(names)) => {
            let names = names.iter().filter_map(Json::as_str);
            let names: Vec<_> = names.map(|name| if name == "integer" { "number" } else { name }).collect();
            if names.is_empty() { "any".to_owned() } else { names.join(" | ") }
        }
        Some(Json::String(name)) => match name.as_str() {
            "object" => object(schema, indent),
            "string" => {
                let values =
                    schema.get("enum").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
                let values: Vec<_> =
                    values.iter().filter_map(Json::as_str).map(|value| format!("\"{value}\"")).collect();
                if values.is_empty() { "string".to_owned() } else { values.join(" | ") }
            }
            "number" | "integer" => "number".to_owned(),
            "boolean" => "boolean".to_owned(),
            "array" => match schema.get("items") {
                Some(items) => format!("{}[]", type_of(items, indent)),
                None => "Array<any>".to_owned(),
            },
            _ => "any".to_owned(),
        },
        _ => "any".to_owned(),
    }
}

fn variants_of(variants: &[Json], indent: &str) -> String {
    let mut out = String::new();
    for variant in variants {
        out.push_str(&format!("\n{indent} | {}", nullable(variant, &format!("{indent}   "))));
        let notes =
            string(variant, "description").map(str::to_owned).into_iter().chain(default_of(variant, false));
        out.push_str(&comments(&notes.collect::<Vec<_>>()));
    }
    out
}

fn object(schema: &Json, indent: &str) -> String {
    let mut out = String::new();
    if let Some(description) = string(schema, "description") {
        out.push_str(&format!("{indent}// {description}\n"));
    }
    out.push_str("{\n");
    let none = Map::new();
    let properties = schema.get("properties").and_then(Json::as_object).unwrap_or(&none);
    let required = schema.get("required").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    for (key, value) in properties {
        let mark = if required.iter().any(|name| name.as_str() == Some(key)) { "" } else { "?" };
        property(&format!("{key}{mark}"), value, indent, &mut out);
    }
    out.push_str(&format!("{indent}}}"));
    out
}

fn property(name: &str, value: &Json, indent: &str, out: &mut String) {
    if let Some(title) = string(value, "title") {
        out.push_str(&format!("{indent}// {title}\n{indent}//\n"));
    }
    let description = string(value, "description");
    if let Some(text) = description.filter(|_| value.get("oneOf").is_none()) {
        out.push_str(&format!("{indent}// {text}\n"));
    }
    if let Some(examples) = value.get("examples").and_then(Json::as_array).filter(|list| !list.is_empty()) {
        out.push_str(&format!("{indent}// Examples:\n"));
        for example in examples.iter().filter_map(Json::as_str) {
            out.push_str(&format!("{indent}// - \"{example}\"\n"));
        }
    }
    if let Some(variants) = value.get("oneOf").and_then(Json::as_array) {
        return one_of(name, value, variants, indent, out);
    }
    let written = nullable(value, &format!("{indent}    "));
    let default = default_of(value, true).filter(|_| value.get("oneOf").is_none());
    let notes: Vec<_> = default.into_iter().collect();
    out.push_str(&format!("{indent}{name}: {written},{}\n", comments(&notes)));
}

/// A property with variants: its words stand above, theirs behind, and none twice.
fn one_of(name: &str, value: &Json, variants: &[Json], indent: &str, out: &mut String) {
    let description = string(value, "description");
    let same = |variant: &Json| description.is_some() && string(variant, "description") == description;
    let above = description.filter(|_| !variants.first().is_some_and(same));
    if let Some(text) = above {
        out.push_str(&format!("{indent}// {text}\n"));
    }
    if let Some(default) = default_of(value, true) {
        out.push_str(&format!("{indent}// {default}\n"));
    }
    out.push_str(&format!("{indent}{name}:\n"));
    for (at, variant) in variants.iter().enumerate() {
        let own = string(variant, "description").filter(|_| !(same(variant) || at == 0 && above.is_some()));
        let notes: Vec<_> = own.map(str::to_owned).into_iter().chain(default_of(variant, true)).collect();
        let written = nullable(variant, &format!("{indent}   "));
        out.push_str(&format!("{indent} | {written}{}\n", comments(&notes)));
    }
    out.push_str(&format!("{indent},\n"));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::type_of;

    #[test]
    fn a_schema_is_written_as_harmony_writes_it() {
        let schema = json!({"type": "object", "properties": {
            "city": {"type": "string", "description": "Where"},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            "days": {"type": ["integer", "null"], "default": 3},
            "near": {"type": "array", "items": {"type": "number"}}}, "required": ["city"]});
        assert_eq!(
            type_of(&schema, ""),
            "{\n// Where\ncity: string,\nunit?: \"c\" | \"f\", // default: c\ndays?: number | null, // default: 3\nnear?: number[],\n}"
        );
        assert_eq!(type_of(&json!({"anyOf": []}), ""), "any");
    }

    #[test]
    fn variants_stand_on_lines_of_their_own() {
        let schema = json!({"type": "object", "properties": {"x": {"description": "either", "default": 1, "oneOf": [
            {"type": "string", "description": "a word"}, {"type": "integer", "nullable": true, "description": "a number"}]}}});
        assert_eq!(
            type_of(&schema, ""),
            "{\n// either\n// default: 1\nx?:\n | string\n | number | null // a number\n,\n}"
        );
    }
}
