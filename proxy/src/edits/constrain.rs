//! A request that leaves the model nothing but a call: a schema of all calls that are allowed, in `response_format`.
//!
//! vLLM and llama.cpp keep the tools in the prompt with `tool_choice: none`, and hold the answer to the schema; the call is then read
//! from its text. vLLM 0.32 does so in Messages (`output_config.format`) and Responses (`text.format`), too (tried). Must never be used
//! where the client did not demand a call.

use serde_json::Value as Json;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::edit::Edits;
use switchback_parsers::json::Value;
use switchback_parsers::request::ChatRequest;
use switchback_parsers::schema::flat_name;

/// The arguments of a tool that takes free text.
const FREE_TEXT: &str = r#"{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}"#;

/// Nothing but a call of one of these tools, or of the named one. `keywords`: what the backend's schemas must not have.
pub(crate) fn constrained(
    request: &ChatRequest,
    dialect: Dialect,
    named: Option<&str>,
    keywords: &[String],
    edits: &mut Edits,
) {
    let tools = request.tools().flat_map(callable);
    let tools = tools.filter(|(name, _)| named.is_none_or(|named| named == name));
    let calls: Vec<String> = tools.map(|(name, parameters)| call_of(&name, parameters, keywords)).collect();
    let schema = match calls.as_slice() {
        [] => return,
        [only] => only.clone(),
        several => format!(r#"{{"anyOf":[{}]}}"#, several.join(",")),
    };
    let root = request.root();
    let format = |members: &str| format!(r#"{{"type":"json_schema",{members}}}"#);
    let mut within =
        |member: &'static str, format: String| match root.get(member).filter(|own| !own.is_null()) {
            Some(own) => edits.set(own, "format", format),
            None => edits.set(root, member, format!(r#"{{"format":{format}}}"#)),
        };
    match dialect {
        Dialect::Messages => within("output_config", format(&format!(r#""schema":{schema}"#))),
        Dialect::Responses => within("text", format(&format!(r#""name":"call","schema":{schema}"#))),
        Dialect::Chat | Dialect::Completions => {
            let schema = format!(r#""json_schema":{{"name":"call","schema":{schema}}}"#);
            edits.set(root, "response_format", format(&schema));
        }
    }
    edits.set(root, "tool_choice", none(dialect));
}

/// The choice of no tool.
pub(super) fn none(dialect: Dialect) -> &'static str {
    if dialect == Dialect::Messages { r#"{"type":"none"}"# } else { "\"none\"" }
}

/// The names under which the model can call a tool, each with its parameters.
fn callable(tool: Value<'_>) -> Vec<(String, &str)> {
    let is = |kind: &str| tool.get("type").is_some_and(|own| own.is_text(kind));
    let own = name(tool);
    match (own, tool.get("function")) {
        (_, Some(function)) => name(function).map(|name| (name, parameters(function))).into_iter().collect(),
        (Some(namespace), None) if is("namespace") => {
            let inner = tool.get("tools").into_iter().flat_map(Value::elements);
            inner.filter_map(|tool| Some((flat_name(&namespace, &name(tool)?), parameters(tool)))).collect()
        }
        (Some(own), None) if is("custom") && tool.get("input_schema").is_none() => vec![(own, FREE_TEXT)],
        (Some(own), None) => vec![(own, parameters(tool))],
        (None, None) => Vec::new(),
    }
}

fn name(tool: Value<'_>) -> Option<String> {
    tool.get("name").and_then(Value::as_str).map(std::borrow::Cow::into_owned)
}

fn parameters(function: Value<'_>) -> &str {
    let own = function.get("parameters").or_else(|| function.get("input_schema"));
    own.filter(|own| !own.is_null()).map_or("{}", Value::raw)
}

/// The schema of a call, its name first: written by hand, since grammars go by the order of the members.
fn call_of(name: &str, parameters: &str, keywords: &[String]) -> String {
    // References start at the root, which is another one here; and a keyword that the backend refuses must not come back.
    let holds = |word: &str| parameters.contains(&format!("\"{word}\""));
    let is_bare = parameters == "{}" || holds("$ref") || keywords.iter().any(|word| holds(word));
    let arguments = if is_bare { r#"{"type":"object"}"# } else { parameters };
    let name = Json::from(name);
    format!(
        r#"{{"type":"object","properties":{{"name":{{"type":"string","enum":[{name}]}},"arguments":{arguments}}},"required":["name","arguments"],"additionalProperties":false}}"#
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(tools: &str) -> ChatRequest {
        let body = format!(r#"{{"messages":[],"tools":{tools},"tool_choice":"required"}}"#);
        ChatRequest::parse(body.into()).expect("a request")
    }

    fn schema(tools: &str, named: Option<&str>, keywords: &[String]) -> Json {
        let request = request(tools);
        let mut edits = Edits::new();
        constrained(&request, Dialect::Chat, named, keywords, &mut edits);
        let body: Json = serde_json::from_slice(&request.write(&Edits::new(), &edits)).expect("JSON");
        assert_eq!(body["tools"], serde_json::from_str::<Json>(tools).expect("JSON"));
        body["response_format"]["json_schema"]["schema"].clone()
    }

    #[test]
    fn a_constraint_allows_the_declared_calls_and_the_tools_stay_in_the_prompt() {
        let tools = r#"[{"type":"function","function":{"name":"a","parameters":{"type":"object","required":["x"]}}},{"function":{"name":"b"}}]"#;
        let both = schema(tools, None, &[]);
        assert_eq!(both["anyOf"][0]["properties"]["name"]["enum"], json!(["a"]));
        assert_eq!(both["anyOf"][0]["properties"]["arguments"]["required"], json!(["x"]));
        assert_eq!(both["anyOf"][1]["properties"]["arguments"], json!({ "type": "object" }));
        assert_eq!(schema(tools, Some("b"), &[])["properties"]["name"]["enum"], json!(["b"]));
    }

    #[test]
    fn a_schema_that_would_mean_something_else_there_is_left_open() {
        let tool = |parameters: &str| format!(r#"[{{"function":{{"name":"a","parameters":{parameters}}}}}]"#);
        let refers =
            schema(&tool(r##"{"$defs":{"t":{}},"properties":{"x":{"$ref":"#/$defs/t"}}}"##), None, &[]);
        let refused =
            schema(&tool(r#"{"properties":{"x":{"pattern":"\\S"}}}"#), None, &["pattern".to_owned()]);
        for schema in [refers, refused] {
            assert_eq!(schema["properties"]["arguments"], json!({ "type": "object" }));
        }
    }

    #[test]
    fn the_constraint_stands_where_each_dialect_has_it() {
        let tools = r#"[{"name":"a","input_schema":{"type":"object"}},{"type":"namespace","name":"n","tools":[{"name":"b"}]},{"type":"custom","name":"c"},{"type":"web_search"}]"#;
        let body = format!(r#"{{"tools":{tools},"text":{{"verbosity":"low"}}}}"#);
        let request = ChatRequest::parse(body.into()).expect("a request");
        let written = |dialect: Dialect| -> Json {
            let mut edits = Edits::new();
            constrained(&request, dialect, None, &[], &mut edits);
            serde_json::from_slice(&request.write(&Edits::new(), &edits)).expect("JSON")
        };
        let names = |schema: &Json| {
            let calls = schema["anyOf"].as_array().expect("calls").iter();
            calls.map(|call| call["properties"]["name"]["enum"][0].clone()).collect::<Vec<_>>()
        };
        let message = written(Dialect::Messages);
        assert_eq!(message["tool_choice"], json!({ "type": "none" }));
        assert_eq!(names(&message["output_config"]["format"]["schema"]), ["a", "n__b", "c"]);
        let response = written(Dialect::Responses);
        assert_eq!(
            (&response["tool_choice"], &response["text"]["verbosity"]),
            (&json!("none"), &json!("low"))
        );
        assert_eq!(names(&response["text"]["format"]["schema"]), ["a", "n__b", "c"]);
    }
}
