//! Answers: what is said, when, and how it ends.

use serde_json::json;

use super::*;

fn answer(step: &str, limit: usize, body: &Value) -> Answer {
    let spec = serde_json::from_value(json!({"engine": "vllm", "seed": 7})).unwrap();
    Answer::new(&spec, &Inference::chat(body), &step.parse().unwrap(), limit)
}

#[test]
fn prose_says_which_prompt_it_answers() {
    let body = json!({"messages": [{"role": "user", "content": "Where is the pass?"}]});
    let said = answer("ok", 1_000, &body).content().unwrap();
    assert!(said.starts_with("Your prompt has 12 tokens and begins \"Where is the pass?\"."), "{said}");
    assert_eq!(answer("ok", 1_000, &body), answer("ok", 1_000, &body));
}

#[test]
fn a_limit_cuts_and_says_length() {
    let body = json!({"messages": [], "ignore_eos": false});
    let cut = answer("say one two three", 2, &body);
    assert_eq!((cut.content().unwrap().as_str(), cut.finish()), ("one two", "length"));
    let whole = answer("say one two three", 4, &body);
    assert_eq!((whole.tokens.last(), whole.finish()), (Some(&Token::End), "stop"));
    let endless = answer("say one", 50, &json!({"messages": [], "ignore_eos": true}));
    assert_eq!((endless.tokens.len(), endless.finish()), (50, "length"));
}

#[test]
fn a_call_is_a_call_only_where_tools_are_parsed() {
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {
        "required": ["n", "s"], "properties": {"n": {"type": "integer"}, "s": {"enum": ["x", "y"]}}}}}]);
    let called = answer("call f {\"a\": 1}", 99, &json!({"messages": [], "tools": tools}));
    assert_eq!((called.call(), called.finish()), (Some(("f", "{\"a\": 1}".to_owned())), "tool_calls"));

    let shown = answer("call f {}", 99, &json!({"messages": [], "tools": tools, "tool_choice": "none"}));
    assert_eq!(shown.content().unwrap(), "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>");

    let forced = answer("ok", 99, &json!({"messages": [], "tools": tools, "tool_choice": "required"}));
    assert_eq!(forced.call(), Some(("f", "{\"n\":1,\"s\":\"x\"}".to_owned())));
}
