//! Chat templates that refuse what clients send: the proxy finds out what they need, and meets it.

use anyhow::Result;
use serde_json::{Value, json};

use crate::harness::client;
use crate::harness::llama::{LARGE, Llama, Spec};
use crate::harness::proxy::Setup;

fn ask(messages: Value) -> Value {
    json!({"model": "smollm2", "messages": messages, "max_tokens": 4})
}

#[tokio::test]
async fn what_a_strict_template_refuses_is_answered_through_the_proxy_and_named_in_a_header() -> Result<()> {
    let strict = Llama::start(Spec { strict: true, ..LARGE }).await?;
    let proxy = Setup::default().backend(&strict, "").start().await?;
    let said = |role: &str, content: &str| json!({"role": role, "content": content});
    let late = json!([
        said("system", "s"),
        said("user", "u"),
        said("assistant", "a"),
        said("system", "x"),
        said("user", "v")
    ]);
    let twice = json!([said("user", "u"), said("user", "v")]);
    let call = json!({"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
    let no_question =
        json!([said("system", "s"), call, {"role": "tool", "tool_call_id": "call_1", "content": "r"}]);
    for (messages, done) in [
        (late, "late system messages made the user's"),
        (twice, "neighbours of one role joined"),
        (no_question, "a question added"),
    ] {
        let request = ask(messages);
        let sent = client::send(strict.address, "/v1/chat/completions", &request).await?;
        let refused = sent.answer().await?.rest().await?;
        assert_eq!(refused.status, 400, "{}", refused.body);
        let reply = proxy.post("/v1/chat/completions", &request).await?;
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert!(
            reply.header("x-switchback-adjusted").contains(done),
            "{:?}",
            reply.header("x-switchback-adjusted")
        );
    }
    let plain = proxy.post("/v1/chat/completions", &ask(json!([said("user", "u")]))).await?;
    assert_eq!((plain.status, &*plain.header("x-switchback-adjusted")), (200, ""));
    Ok(())
}
