//! The second question, to a real llama.cpp: what it accepts beside tools, what it caches, and what it repeats.
//!
//! SmolLM2's template knows no tools, so it never calls by itself: the very model for which a demand stays unheard. Where a
//! test needs it to write a call, a grammar makes it.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::harness::client::Reply;
use crate::harness::llama::{LARGE, Llama};
use crate::harness::proxy::Setup;

fn weather() -> Value {
    let parameters = json!({
        "type": "object",
        "properties": { "city": { "type": "string", "maxLength": 20 }, "days": { "type": "integer" } },
        "required": ["city", "days"],
        "additionalProperties": false,
    });
    let function = json!({ "name": "get_weather", "description": "weather", "parameters": parameters });
    json!({
        "model": "smollm2",
        "messages": [{ "role": "user", "content": "What is the weather in Berlin for 3 days?" }],
        "tools": [{ "type": "function", "function": function }],
        "temperature": 0,
        "max_tokens": 200,
    })
}

/// The only call of an answer, and its arguments.
fn only_call(reply: &Reply) -> Result<Value> {
    let message = reply.message()?;
    assert_eq!(message.faults, Vec::<String>::new());
    assert_eq!(message.calls.len(), 1, "{}", reply.body);
    assert_eq!(
        (message.calls[0].name.as_str(), message.finish.as_deref()),
        ("get_weather", Some("tool_calls"))
    );
    serde_json::from_str(&message.calls[0].arguments).with_context(|| reply.body.clone())
}

#[tokio::test]
async fn a_model_that_does_not_call_is_held_to_a_call_and_its_prompt_is_not_read_again() -> Result<()> {
    let large = Llama::start(LARGE).await?;
    let setup = Setup::default().backend(&large, "");
    let proxy = setup.model("[[client]]\nname = \"all\"\nmissing_calls = \"constrain\"").start().await?;
    for stream in [false, true] {
        let mut request = weather();
        request["tool_choice"] = "required".into();
        request["stream"] = stream.into();
        let reply = proxy.chat(&request).await?;
        let arguments = only_call(&reply)?;
        assert!(arguments["city"].is_string() && arguments["days"].is_i64(), "{arguments}");
        let adjusted = reply.header("x-switchback-adjusted");
        assert_eq!(adjusted, "asked again for nothing but a call: none although demanded");
        if !stream {
            let usage = &reply.json()?["usage"];
            let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
            assert!(cached >= usage["prompt_tokens"].as_u64().map(|all| all - 1), "{usage}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_call_that_was_cut_behind_shown_text_goes_on_where_it_was_cut() -> Result<()> {
    let large = Llama::start(LARGE).await?;
    // A grammar is refused beside tools, and this model's template would not show them.
    let setup = Setup::default().backend(&large, "drop = [\"/tools\", \"/tool_choice\"]");
    let proxy = setup.model("[[client]]\nname = \"all\"\ncut_calls = \"rescue\"").start().await?;
    let mut request = weather();
    request["grammar"] = r#"root ::= "Let me look.\n<tool_call>\n{\"n" rest | rest
rest ::= "ame\": \"get_weather\", \"arguments\": {\"city\": \"Berlin\", \"days\": " [1-9] "}}\n</tool_call>""#
        .into();
    request["max_tokens"] = 18.into();
    request["stream"] = true.into();
    let reply = proxy.chat(&request).await?;
    assert_eq!(only_call(&reply)?["city"], "Berlin");
    assert_eq!(reply.message()?.content.trim(), "Let me look.");
    assert!(reply.body.contains(": adjusted continued: the limit cut a call\n\n"), "{}", reply.body);
    assert!(reply.body.ends_with("data: [DONE]\n\n"), "{}", reply.body);
    Ok(())
}
