//! Answers that are no chats, and go on all the same: completions behind their prompt, messages as llama.cpp continues them.
//!
//! Where both servers would say the same, the joined text is what one of them says.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use switchback_tests::wire::sse::Stream;

use crate::harness::client::{Reply, send};
use crate::harness::llama::{LARGE, Llama, Spec};
use crate::harness::proxy::Setup;

/// Two servers of the same size.
const FIRST: Spec = Spec { name: "first", slots: 3, ..LARGE };
const SECOND: Spec = Spec { name: "second", ..FIRST };

/// Each slot has a window of its own, which llama.cpp does not tell.
const SEPARATE: &str = "limit = { resident = 6144 }";

/// An endpoint, a request to it that takes the likeliest words, and where their text stands in its events.
struct Kind {
    path: &'static str,
    body: Value,
    text: &'static str,
    whole: &'static str,
}

fn completion() -> Kind {
    let body = json!({ "model": "smollm2", "prompt": "Once upon a time there was a king who", "max_tokens": 160,
        "temperature": 0, "ignore_eos": true });
    Kind { path: "/v1/completions", body, text: "/choices/0/text", whole: "/choices/0/text" }
}

fn message() -> Kind {
    let messages = json!([{ "role": "user", "content": "Tell me a long story." }]);
    let body = json!({ "model": "smollm2", "messages": messages, "max_tokens": 160, "temperature": 0, "ignore_eos": true });
    Kind { path: "/v1/messages", body, text: "/delta/text", whole: "/content/0/text" }
}

impl Kind {
    fn streamed(&self) -> Value {
        let mut body = self.body.clone();
        body["stream"] = true.into();
        body
    }

    fn text(&self, stream: &Stream) -> String {
        stream.chunks().filter_map(|chunk| chunk.pointer(self.text)?.as_str()).collect()
    }

    /// What the client had of it when the first server was killed goes on at the second, and reads like one answer.
    async fn reads_like_one(&self) -> Result<Reply> {
        let (mut first, second) = tokio::try_join!(Llama::start(FIRST), Llama::start(SECOND))?;
        let proxy = Setup::default().backend(&first, SEPARATE).backend(&second, SEPARATE).start().await?;
        let mut shown = send(proxy.address, self.path, &self.streamed()).await?.answer().await?;
        shown.until("some words", |stream| self.text(stream).len() > 60).await?;
        first.kill().await?;
        let reply = shown.rest().await?;
        let joined = self.text(&reply.stream());
        ensure!(!reply.body.contains("\"error\""), "{}", reply.body);
        let alone =
            send(second.address, self.path, &self.body).await?.answer().await?.rest().await?.json()?;
        let alone = alone.pointer(self.whole).and_then(Value::as_str).unwrap_or_default().to_owned();
        ensure!(joined.len() > 100, "{joined:?}");
        // What is left of the limit is counted roughly, and never above it.
        ensure!(alone.starts_with(&joined), "joined {joined:?}\nalone {alone:?}");
        Ok(reply)
    }
}

#[tokio::test]
async fn a_completion_that_two_servers_wrote_reads_like_one() -> Result<()> {
    let reply = completion().reads_like_one().await?;
    ensure!(reply.body.matches("\"finish_reason\":\"length\"").count() == 1, "{}", reply.body);
    ensure!(reply.body.trim_end().ends_with("data: [DONE]"), "{}", reply.body);
    Ok(())
}

#[tokio::test]
async fn a_message_that_two_servers_wrote_reads_like_one() -> Result<()> {
    let reply = message().reads_like_one().await?;
    for event in ["message_start", "content_block_stop", "message_stop"] {
        ensure!(reply.body.matches(&format!("event: {event}\n")).count() == 1, "{event}: {}", reply.body);
    }
    Ok(())
}
