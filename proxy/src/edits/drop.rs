//! What the operator wants left out of requests to one backend: members by their place, and keywords of tool schemas.
//!
//! Why: strict servers refuse members that they do not know, and one tool with a pattern that llama.cpp's grammar cannot
//! express makes it refuse every request of a client (ggml-org/llama.cpp#26930). Nothing is left out by default.

use switchback_parsers::edit::Edits;
use switchback_parsers::json::{Kind, Value};
use switchback_parsers::request::ChatRequest;

/// Members of a schema that hold schemas by name.
const NAMED: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Members of a schema that hold values, which only look like schemas.
const VALUES: [&str; 5] = ["enum", "const", "default", "examples", "required"];

/// Takes out what stands at this place: a JSON pointer (RFC 6901, without escapes), `*` for any element.
pub(super) fn place(request: &ChatRequest, place: &str, edits: &mut Edits) {
    let steps: Vec<&str> = place.split('/').skip(1).collect();
    if let Some((last, way)) = steps.split_last() {
        remove(request.root(), way, last, edits);
    }
}

fn remove(value: Value<'_>, way: &[&str], last: &str, edits: &mut Edits) {
    match way.split_first() {
        Some((&"*", way)) => value.elements().for_each(|element| remove(element, way, last, edits)),
        Some((step, way)) => {
            if let Some(member) = value.get(step) {
                remove(member, way, last, edits);
            }
        }
        None if value.get(last).is_some() => edits.remove(value, last),
        None => {}
    }
}

/// Takes this keyword out of every tool's schema. A parameter of that name stays.
pub(super) fn keyword(request: &ChatRequest, keyword: &str, edits: &mut Edits) {
    for tool in request.tools() {
        // Chat's place, that of Messages, that of Responses.
        let own = || tool.get("input_schema").or_else(|| tool.get("parameters"));
        if let Some(schema) = tool.at("/function/parameters").or_else(own) {
            clean(schema, keyword, edits);
        }
    }
}

/// The depth is that of a checked body: 128 at most.
fn clean(schema: Value<'_>, keyword: &str, edits: &mut Edits) {
    if schema.kind() == Kind::Array {
        schema.elements().for_each(|element| clean(element, keyword, edits));
    }
    for member in schema.members() {
        let name = member.name();
        if keyword == name {
            edits.remove(schema, &name);
        } else if NAMED.contains(&&*name) {
            member.value.members().for_each(|named| clean(named.value, keyword, edits));
        } else if !VALUES.contains(&&*name) {
            clean(member.value, keyword, edits);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn without(body: &Json, drop: &[&str], words: &[&str]) -> Json {
        let request = ChatRequest::parse(body.to_string().into()).expect("a request");
        let mut edits = Edits::new();
        drop.iter().for_each(|at| place(&request, at, &mut edits));
        words.iter().for_each(|word| keyword(&request, word, &mut edits));
        serde_json::from_slice(&request.write(&Edits::new(), &edits)).expect("JSON")
    }

    #[test]
    fn a_keyword_goes_and_a_parameter_of_its_name_stays() {
        let schema = |rest: Json| json!({"tools": [{"function": {"name": "a", "parameters": rest}}]});
        let body = schema(json!({"properties": {
            "format": {"type": "string", "format": "uri", "enum": [{"format": 1}]},
            "list": {"items": {"anyOf": [{"pattern": "x"}, {"type": "null"}]}},
        }}));
        let expected = schema(json!({"properties": {
            "format": {"type": "string", "enum": [{"format": 1}]},
            "list": {"items": {"anyOf": [{}, {"type": "null"}]}},
        }}));
        assert_eq!(without(&body, &[], &["format", "pattern"]), expected);
    }

    #[test]
    fn places_that_are_not_there_change_nothing() {
        let body = json!({"store": true, "messages": [{"role": "user", "refusal": null}, {"role": "user"}], "tools": 5});
        let places = ["/store", "/messages/*/refusal", "/tools/*/x", "/no/such", ""];
        let expected = json!({"messages": [{"role": "user"}, {"role": "user"}], "tools": 5});
        assert_eq!(without(&body, &places, &[]), expected);
    }
}
