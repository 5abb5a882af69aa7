//! Members that an engine refuses though they mean nothing, or passes over though they mean something.
//!
//! Why: clients send what their library fills in, and some servers answer 400 for it; others know a limit by one name only, or a
//! choice by one word. Each is a rule ([`super::RequestRule`]), on only for the engine that was seen to do so.

use switchback_parsers::edit::Edits;
use switchback_parsers::json::{Kind, Value};
use switchback_parsers::request::ChatRequest;

use super::Changes;

/// The output limit under one name, as an engine reads it that knows no other: Ollama knows `max_tokens` only (its source,
/// openai/openai.go). `limit`: the one that is sent, tokens.
pub(super) fn name_limit(
    request: &ChatRequest,
    name: &'static str,
    limit: Option<u64>,
    changes: &mut Changes,
) {
    let root = request.root();
    let has = |name: &str| root.get(name).is_some_and(|limit| !limit.is_null());
    let others =
        ["max_tokens", "max_completion_tokens"].into_iter().filter(|other| *other != name && has(other));
    for other in others {
        let Some(limit) = limit else { continue };
        changes.make(format!("{other} sent as {name}"), |edits| {
            edits.remove(root, other);
            edits.set(root, name, limit.to_string());
        });
    }
}

/// Two limits that differ: vLLM reads `max_completion_tokens`, others `max_tokens` first, and what was judged is the former. So both
/// say that.
pub(super) fn one_limit(request: &ChatRequest, changes: &mut Changes) {
    let root = request.root();
    let has = |name: &str| root.get(name).is_some_and(|limit| limit.as_u64().is_some());
    if let Some(limit) = request.output_limit().filter(|_| has("max_tokens") && has("max_completion_tokens"))
    {
        changes.make(format!("max_tokens sent as {limit}, as max_completion_tokens says"), |edits| {
            super::set_output(request, limit, edits);
        });
    }
}

/// vLLM refuses no tools at all (open-webui#26655), and options of a stream that is none (BerriAI/litellm#29431).
pub(super) fn without_the_meaningless(request: &ChatRequest, stream: bool, changes: &mut Changes) {
    let root = request.root();
    let is_empty = |tools: Value<'_>| tools.kind() == Kind::Array && tools.elements().next().is_none();
    changes.make("members without a meaning left out", |edits| {
        if root.get("tools").is_some_and(is_empty) {
            without_tools(root, edits);
        }
        if !stream && root.get("stream_options").is_some() {
            edits.remove(root, "stream_options");
        }
    });
}

/// Tools that only their maker's servers have (`web_search`), and that make vLLM and llama.cpp refuse the whole request.
pub(super) fn without_other_tools(request: &ChatRequest, changes: &mut Changes) {
    let root = request.root();
    let Some(tools) = root.get("tools") else { return };
    let is_other =
        |tool: &Value<'_>| tool.get("type").and_then(Value::as_str).is_some_and(|kind| kind != "function");
    let others: Vec<usize> =
        tools.elements().enumerate().filter(|(_, tool)| is_other(tool)).map(|(at, _)| at).collect();
    changes.make("tools that are no functions left out", |edits| {
        if !others.is_empty() && others.len() == tools.elements().count() {
            return without_tools(root, edits);
        }
        others.iter().for_each(|at| edits.remove_element(tools, *at));
    });
}

/// A tool that is named must be called: for servers that know only words for a choice, and take this one for `auto`
/// (llama.cpp), `required` with no other tool says the same.
pub(super) fn require_the_named(request: &ChatRequest, changes: &mut Changes) {
    let root = request.root();
    let choice = root.get("tool_choice").filter(|choice| choice.kind() == Kind::Object);
    let name =
        choice.and_then(|choice| choice.at("/function/name").or(choice.get("name"))).and_then(Value::as_str);
    let (Some(name), Some(tools)) = (name, root.get("tools")) else { return };
    let is_named =
        |tool: &Value<'_>| tool.at("/function/name").and_then(Value::as_str).is_some_and(|own| own == name);
    // A tool that is not there is the client's mistake, for the backend to tell.
    if !tools.elements().any(|tool| is_named(&tool)) {
        return;
    }
    changes.make(format!("{name} required by leaving out the other tools"), |edits| {
        edits.set(root, "tool_choice", "\"required\"");
        for (at, _) in tools.elements().enumerate().filter(|(_, tool)| !is_named(tool)) {
            edits.remove_element(tools, at);
        }
    });
}

fn without_tools(root: Value<'_>, edits: &mut Edits) {
    for member in ["tools", "tool_choice", "parallel_tool_calls"] {
        edits.remove(root, member);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn changed(body: &Json, change: impl Fn(&ChatRequest, &mut Changes)) -> Json {
        let request = ChatRequest::parse(body.to_string().into()).expect("a request");
        let mut changes = Changes::default();
        change(&request, &mut changes);
        let written = request.write(&Edits::new(), &changes.edits);
        assert_eq!(changes.named.is_empty(), written == *request.body(), "what changes is named");
        serde_json::from_slice(&written).expect("JSON")
    }

    fn tool(name: &str) -> Json {
        json!({ "type": "function", "function": { "name": name } })
    }

    #[test]
    fn the_limit_goes_under_the_one_name_that_is_read() {
        let sent = |body: Json, name: &'static str| {
            let limit = ChatRequest::parse(body.to_string().into()).expect("a request").output_limit();
            changed(&body, |request, changes| name_limit(request, name, limit, changes))
        };
        let newer = json!({ "max_completion_tokens": 9000, "messages": [] });
        assert_eq!(sent(newer.clone(), "max_tokens"), json!({ "messages": [], "max_tokens": 9000 }));
        assert_eq!(sent(newer.clone(), "max_completion_tokens"), newer);
        let both = json!({ "max_tokens": 5, "max_completion_tokens": 9000 });
        assert_eq!(sent(both, "max_tokens"), json!({ "max_tokens": 9000 }));
        assert_eq!(sent(json!({ "messages": [] }), "max_tokens"), json!({ "messages": [] }));
    }

    #[test]
    fn two_limits_that_differ_say_the_same() {
        let both = |older: u64, newer: u64| json!({ "max_tokens": older, "max_completion_tokens": newer });
        assert_eq!(changed(&both(5, 9000), one_limit), both(9000, 9000));
        assert_eq!(changed(&both(9000, 5), one_limit), both(5, 5));
        for body in [
            both(7, 7),
            json!({ "max_tokens": 5 }),
            json!({ "max_tokens": 5, "max_completion_tokens": null }),
        ] {
            assert_eq!(changed(&body, one_limit), body);
        }
    }

    #[test]
    fn tools_that_are_no_functions_go_and_with_the_last_one_the_choice() {
        let search = json!({ "type": "web_search" });
        let body = json!({ "tools": [search, tool("a")], "tool_choice": "auto" });
        assert_eq!(
            changed(&body, without_other_tools),
            json!({ "tools": [tool("a")], "tool_choice": "auto" })
        );
        let body = json!({ "tools": [search], "tool_choice": "auto", "model": "m" });
        assert_eq!(changed(&body, without_other_tools), json!({ "model": "m" }));
        let body = json!({ "tools": [tool("a"), { "function": { "name": "b" } }], "x": [] });
        assert_eq!(changed(&body, without_other_tools), body);
    }

    #[test]
    fn a_named_tool_is_required_alone_and_one_that_is_not_there_stays_the_clients_mistake() {
        let named = |name: &str| json!({ "type": "function", "function": { "name": name } });
        let body = json!({ "tools": [tool("a"), tool("b"), tool("c")], "tool_choice": named("b") });
        assert_eq!(
            changed(&body, require_the_named),
            json!({ "tools": [tool("b")], "tool_choice": "required" })
        );
        for choice in [named("z"), json!("auto"), json!(null)] {
            let body = json!({ "tools": [tool("a")], "tool_choice": choice });
            assert_eq!(changed(&body, require_the_named), body);
        }
    }
}
