//! A client that notes when it gets what.

use anyhow::{Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use switchback_rig::text_of_tokens;
use tokio::time::Instant;

use crate::stage::Stage;

/// What one request got. Times are seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) status: u16,
    pub(crate) backend: String,
    /// From sending to the first text.
    pub(crate) first: f64,
    /// Between one text and the next.
    pub(crate) gaps: Vec<f64>,
    /// When it was sent, and when each text came.
    pub(crate) sent: Option<Instant>,
    pub(crate) texts: Vec<Instant>,
    /// From sending to the end.
    pub(crate) took: f64,
    pub(crate) text: String,
    /// It ended with a finish reason.
    pub(crate) whole: bool,
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
}

/// One user message.
pub(crate) fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

/// A prompt of so many tokens, another one for each seed.
pub(crate) fn prompt(tokens: usize, seed: u64) -> Value {
    user(&format!("{seed}: {}", text_of_tokens(tokens, seed)))
}

/// A streamed chat whose answer has exactly so many tokens.
pub(crate) fn chat(messages: Vec<Value>, answer: u64) -> Value {
    json!({
        "model": "auto", "stream": true, "stream_options": { "include_usage": true },
        "max_tokens": answer, "ignore_eos": true, "messages": messages,
    })
}

/// The same as an agent sends it.
pub(crate) fn with_tools(mut body: Value) -> Value {
    body["tools"] = json!([{ "type": "function", "function": { "name": "read_file", "parameters": {
        "type": "object", "properties": { "path": { "type": "string" } },
    } } }]);
    body
}

/// Sends a request to the proxy, or past it to a machine, and reads the answer to its end. `begun` is told of the first text.
pub(crate) async fn ask(
    stage: &Stage,
    past: Option<&str>,
    session: &str,
    mut body: Value,
    begun: Option<tokio::sync::oneshot::Sender<()>>,
) -> Result<Heard> {
    if let Some(machine) = past {
        body["model"] = stage.rig(machine)?.spec().model.clone().into();
    }
    let (mut sender, connection) = handshake(TokioIo::new(stage.connect(past).await?)).await?;
    let driving = tokio::spawn(connection);
    // A client that is given up hangs up.
    let _hang_up = Aborts(driving.abort_handle());
    let request = Request::post("/v1/chat/completions")
        .header("host", "127.0.0.1:4000")
        .header("content-type", "application/json")
        .header("x-session-id", session)
        .body(Full::new(Bytes::from(body.to_string())))?;
    let sent = Instant::now();
    let response = sender.send_request(request).await?;
    let mut heard = Heard { status: response.status().as_u16(), sent: Some(sent), ..Heard::default() };
    if let Some(backend) = response.headers().get("x-switchback-backend") {
        heard.backend = backend.to_str()?.to_owned();
    }
    let mut incoming = response.into_body();
    let (mut pending, mut last, mut begun) = (String::new(), None, begun);
    while let Some(frame) = incoming.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        pending.push_str(std::str::from_utf8(&data)?);
        while let Some(end) = pending.find("\n\n") {
            let frame: String = pending.drain(..end + 2).collect();
            if let Some(backend) = frame.lines().find_map(|line| line.strip_prefix(": backend ")) {
                heard.backend = backend.trim().to_owned();
            }
            if heard.take(&frame) {
                let now = Instant::now();
                heard.texts.push(now);
                match last.replace(now) {
                    None => heard.first = (now - sent).as_secs_f64(),
                    Some(before) => heard.gaps.push((now - before).as_secs_f64()),
                }
                if let Some(begun) = begun.take() {
                    let _ = begun.send(());
                }
            }
        }
    }
    heard.took = sent.elapsed().as_secs_f64();
    ensure!(heard.whole || heard.status != 200, "an answer without an end: {pending}{}", heard.text);
    Ok(heard)
}

struct Aborts(tokio::task::AbortHandle);

impl Drop for Aborts {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Heard {
    /// The gaps that ended while another request waited for its first text; all of them, if it was never sent.
    pub(crate) fn gaps_during(&self, other: &Self) -> Vec<f64> {
        let (Some(from), Some(until)) = (other.sent, other.texts.first()) else { return self.gaps.clone() };
        let ends = self.texts.iter().skip(1);
        let during = ends.zip(&self.gaps).filter(|(end, _)| **end >= from && *end <= until);
        during.map(|(_, gap)| *gap).collect()
    }

    /// Reads a frame; true: it holds text.
    fn take(&mut self, frame: &str) -> bool {
        let data = frame.lines().find_map(|line| line.strip_prefix("data: "));
        let Some(chunk) = data.and_then(|data| serde_json::from_str::<Value>(data).ok()) else {
            return false;
        };
        self.whole |= chunk.pointer("/choices/0/finish_reason").is_some_and(Value::is_string);
        let count = |at: &str| chunk.pointer(at).and_then(Value::as_u64);
        self.prompt_tokens = count("/usage/prompt_tokens").unwrap_or(self.prompt_tokens);
        self.completion_tokens = count("/usage/completion_tokens").unwrap_or(self.completion_tokens);
        let text = chunk.pointer("/choices/0/delta/content").and_then(Value::as_str).unwrap_or_default();
        self.text.push_str(text);
        !text.is_empty()
    }
}
