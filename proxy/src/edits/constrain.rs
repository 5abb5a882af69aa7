//! A request that leaves the model nothing but a call: a schema of all calls that are allowed, in `response_format`.
//!
//! vLLM and llama.cpp keep the tools in the prompt with `tool_choice: none`, and hold the answer to the schema; the call is then read
//! from its text. Must never be used where the client did not demand a call.

use serde_json::Value as Json;
use switchback_parsers::edit::Edits;
use switchback_parsers::json::Value;
use switchback_parsers::request::ChatRequest;

/// Nothing but a call of one of these tools, or of the named one. `keywords`: what the backend's schemas must not have.
pub(crate) fn constrained(
    request: &ChatRequest,
    named: Option<&str>,
    keywords: &[String],
    edits: &mut Edits,
) {
    let calls: Vec<String> = request.tools().filter_map(|tool| call_of(tool, named, keywords)).collect();
    let schema = match calls.as_slice() {
        [] => return,
        [only] => only.clone(),
        several => format!(r#"{{"anyOf":[{}]}}"#, several.join(",")),
    };
    let format = format!(r#"{{"type":"json_schema","json_schema":{{"name":"call","schema":{schema}}}}}"#);
    edits.set(request.root(), "response_format", format);
    edits.set(request.root(), "tool_choice", "\"none\"");
}

/// The schema of a call, its name first: written by hand, since grammars go by the order of the members.
fn call_of(tool: Value<'_>, named: Option<&str>, keywords: &[String]) -> Option<String> {
    let name = tool.at("/function/name")?.as_str()?;
    if named.is_some_and(|named| named != name) {
        return None;
    }
    let parameters = tool.at("/function/parameters").map_or("{}", |parameters| parameters.raw());
    // References start at the root, which is another one here; and a keyword that the backend refuses must not come back.
    let holds = |word: &str| parameters.contains(&format!("\"{word}\""));
    let is_bare = parameters == "{}" || holds("$ref") || keywords.iter().any(|word| holds(word));
    let arguments = if is_bare { r#"{"type":"object"}"# } else { parameters };
    let name = Json::from(name.as_ref());
    Some(format!(
        r#"{{"type":"object","properties":{{"name":{{"type":"string","enum":[{name}]}},"arguments":{arguments}}},"required":["name","arguments"],"additionalProperties":false}}"#
    ))
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
        constrained(&request, named, keywords, &mut edits);
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
}
