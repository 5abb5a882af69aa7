//! A request once more, without what a backend refused of it.
//!
//! Why: it said so before it computed anything, and the client can do nothing about it. It must never leave out what the answer
//! hangs on (messages, tools, a demanded format or choice), and never touch a request of which nothing was refused by name.

use bytes::Bytes;
use switchback_parsers::diagnosis::Refused;
use switchback_parsers::edit::Edits;
use switchback_parsers::json::{Kind, Value};
use switchback_parsers::request::ChatRequest;

use super::{RequestRule, drop};

/// Members of the request that an answer hangs on.
const MEANT: [&str; 9] =
    ["model", "messages", "input", "prompt", "system", "stream", "tools", "tool_choice", "response_format"];

/// Members of messages and tools without which these say something else.
const PARTS: [&str; 10] = [
    "role",
    "content",
    "text",
    "type",
    "function",
    "arguments",
    "parameters",
    "tool_calls",
    "tool_call_id",
    "image_url",
];

/// Keywords that only narrow what a schema allows. The request's own schema still holds for what the client gets.
const NARROW: [&str; 22] = [
    "pattern",
    "format",
    "patternProperties",
    "propertyNames",
    "additionalProperties",
    "unevaluatedProperties",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "minProperties",
    "maxProperties",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "not",
    "dependentRequired",
    "dependentSchemas",
];

/// The rule that a refusal calls for.
fn rule_of(refused: &Refused) -> RequestRule {
    match refused {
        Refused::Members(_) => RequestRule::Refused,
        Refused::Schema => RequestRule::LooseSchemas,
    }
}

/// The body without it, and what to call that; `None` if nothing can be left out, or the rule is off.
pub(crate) fn without(
    body: &Bytes,
    refused: &Refused,
    is_on: impl Fn(RequestRule) -> bool,
) -> Option<(Bytes, String)> {
    if !is_on(rule_of(refused)) {
        return None;
    }
    let request = ChatRequest::parse(body.clone()).ok()?;
    let mut edits = Edits::new();
    let what = match refused {
        Refused::Members(places) => {
            let mut left_out = Vec::new();
            for place in places {
                let before = edits.len();
                leave_out(request.root(), place, &mut edits);
                if edits.len() > before {
                    left_out.push(format!("/{}", place.join("/")));
                }
            }
            format!("{} refused, so left out", left_out.join(", "))
        }
        Refused::Schema => {
            NARROW.iter().for_each(|keyword| drop::keyword(&request, keyword, &mut edits));
            // It holds the model to the schema, which nobody can be held to.
            drop::place(&request, "/tools/*/function/strict", &mut edits);
            "a schema refused, so sent without keywords that only narrow it".to_owned()
        }
    };
    (!edits.is_empty()).then(|| (request.write(&Edits::new(), &edits), what))
}

/// Takes out the member at a place. Steps that lead nowhere are the validator's own.
fn leave_out(root: Value<'_>, place: &[String], edits: &mut Edits) {
    let Some((last, way)) = place.split_last() else { return };
    if way.is_empty() {
        return top(root, last, edits);
    }
    let of_call = way.iter().any(|step| matches!(step.as_str(), "function" | "tool_calls"));
    if PARTS.contains(&last.as_str()) || (of_call && matches!(last.as_str(), "name" | "id")) {
        return;
    }
    inside(root, way, last, edits);
}

fn top(root: Value<'_>, member: &str, edits: &mut Edits) {
    let Some(value) = root.get(member) else { return };
    let is_empty = value.kind() == Kind::Array && value.elements().next().is_none();
    match member {
        "tools" if is_empty => edits.remove(root, member),
        // The limit was meant: servers that know only its older name get it under that (1Panel-dev/MaxKB#2912).
        "max_completion_tokens" => {
            if root.get("max_tokens").is_none() {
                edits.set(root, "max_tokens", value.raw().to_owned());
            }
            edits.remove(root, member);
        }
        _ if MEANT.contains(&member) => {}
        _ => edits.remove(root, member),
    }
}

fn inside(value: Value<'_>, way: &[String], last: &str, edits: &mut Edits) {
    match way.split_first() {
        None if last != "*" && value.get(last).is_some() => edits.remove(value, last),
        None => {}
        Some((step, way)) if step == "*" => {
            value.elements().for_each(|element| inside(element, way, last, edits));
        }
        Some((step, way)) => inside(value.get(step).unwrap_or(value), way, last, edits),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn left(body: &Json, refused: &Refused) -> Option<Json> {
        let (body, _) = without(&body.to_string().into(), refused, |_| true)?;
        Some(serde_json::from_slice(&body).expect("JSON"))
    }

    fn members(places: &[&str]) -> Refused {
        Refused::Members(places.iter().map(|place| place.split('/').map(str::to_owned).collect()).collect())
    }

    #[test]
    fn what_was_refused_goes_wherever_it_stands_and_nothing_that_an_answer_hangs_on() {
        let body = json!({ "model": "m", "store": true, "tools": [{ "type": "function", "function": { "name": "f", "strict": true } }],
            "messages": [{ "role": "user", "content": "u", "name": "bob" }, { "role": "assistant", "content": "a", "refusal": null }] });
        let refused = members(&[
            "store",
            "messages/*/user/name",
            "messages/*/assistant/refusal",
            "tools/*/function/strict",
        ]);
        let expected = json!({ "model": "m", "tools": [{ "type": "function", "function": { "name": "f" } }],
            "messages": [{ "role": "user", "content": "u" }, { "role": "assistant", "content": "a" }] });
        assert_eq!(left(&body, &refused), Some(expected));
        let meant = members(&[
            "tools",
            "messages",
            "tool_choice",
            "messages/*/role",
            "tools/*/function/name",
            "nothing",
        ]);
        assert_eq!(left(&body, &meant), None);
    }

    #[test]
    fn a_limit_that_is_refused_by_its_newer_name_goes_under_its_older_one() {
        let body = json!({ "max_completion_tokens": 800, "messages": [] });
        assert_eq!(
            left(&body, &members(&["max_completion_tokens"])),
            Some(json!({ "messages": [], "max_tokens": 800 }))
        );
    }

    #[test]
    fn a_schema_loses_what_only_narrows_it() {
        let schema = json!({ "type": "object", "required": ["x"], "additionalProperties": false,
            "properties": { "x": { "type": "string", "pattern": "\\S", "maxLength": 65536 }, "format": { "enum": ["a"] } } });
        let tools =
            |schema: Json| json!({ "tools": [{ "function": { "name": "f", "parameters": schema } }] });
        let loose = json!({ "type": "object", "required": ["x"],
            "properties": { "x": { "type": "string" }, "format": { "enum": ["a"] } } });
        assert_eq!(left(&tools(schema), &Refused::Schema), Some(tools(loose)));
        assert_eq!(left(&json!({ "messages": [] }), &Refused::Schema), None);
    }
}
