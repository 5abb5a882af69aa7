//! One case file, typed: what the client sends, what the backends answer, what the operator configured.
//!
//! Unknown keys make a case unreadable, and an unreadable case fails: a word that the harness does not know is a check
//! that it would leave out. Only the operator's settings stay open here; [`super::adapter`] judges those.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::expect::Expect;

/// A whole case.
#[derive(Debug)]
pub struct Case {
    /// Name, as the file's.
    pub id: String,
    /// Group.
    pub category: String,
    /// What the client sends: one request, or a sequence.
    pub requests: Vec<ClientRequest>,
    /// The scripted answers, in order.
    pub answers: Vec<Scripted>,
    /// The backends.
    pub backends: Vec<Backend>,
    /// Status of a backend's health request from its first scripted answer on.
    pub health_answers: Map<String, Value>,
    /// All settings as they are written, for the adapter.
    pub settings: Map<String, Value>,
    /// What must be seen.
    pub expect: Expect,
}

/// One request of the client.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientRequest {
    /// GET, POST …
    pub method: String,
    /// Path with its query.
    pub path: String,
    /// Fields as the client sends them.
    #[serde(default)]
    pub headers: Map<String, Value>,
    /// Body; null or absent: none. A text is sent as it stands, anything else as JSON.
    #[serde(default)]
    pub body: Value,
    /// When the client closes its connection.
    pub hang_up_after: Option<HangUp>,
    /// Start, milliseconds from the beginning; absent: when the answer before has ended.
    pub start_at_ms: Option<u64>,
}

impl ClientRequest {
    /// The bytes of the body.
    pub fn body_bytes(&self) -> Vec<u8> {
        match &self.body {
            Value::Null => Vec::new(),
            Value::String(text) => text.clone().into_bytes(),
            json => json.to_string().into_bytes(),
        }
    }

    /// Whether the client asks for an event stream.
    pub fn wants_stream(&self) -> bool {
        self.body.get("stream") == Some(&Value::Bool(true))
    }
}

/// When a client gives up.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HangUp {
    /// So many milliseconds after the request's start.
    pub ms: Option<u64>,
    /// Once the content received contains this.
    pub content_contains: Option<String>,
}

/// A scripted answer.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scripted {
    /// The backend that it belongs to; absent: whichever is asked.
    pub backend: Option<String>,
    /// Status; absent: 200.
    pub status: Option<u16>,
    /// Fields, without those that frame the body.
    pub headers: Map<String, Value>,
    /// A JSON body.
    pub body: Option<Value>,
    /// A body as text.
    pub body_raw: Option<String>,
    /// The body is compressed.
    pub gzip: bool,
    /// An event stream, step by step.
    #[serde(deserialize_with = "steps")]
    pub sse: Option<Vec<Step>>,
    /// Silence before the status line, milliseconds.
    pub delay_headers_ms: u64,
    /// The connection is closed before any byte of an answer.
    pub close_without_answer: bool,
    /// Nothing listens at that backend.
    pub refuse_connection: bool,
}

impl Scripted {
    /// All scripted waiting together, milliseconds.
    pub fn waiting_ms(&self) -> u64 {
        let pauses = self.sse.iter().flatten().map(|step| match step {
            Step::Pause(ms) => *ms,
            _ => 0,
        });
        self.delay_headers_ms + pauses.sum::<u64>()
    }
}

/// One step of a scripted stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bytes to send.
    Text(String),
    /// Silence, milliseconds.
    Pause(u64),
    /// The connection is reset.
    Cut,
    /// The next text goes out in two writes, the first so many bytes long.
    SplitAt(usize),
    /// The next text goes out one byte a write.
    ByteByByte,
}

fn steps<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<Vec<Step>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Order {
        PauseMs(u64),
        Cut(bool),
        SplitAtByte(usize),
        ByteByByte(bool),
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Item {
        Text(String),
        Order(Order),
    }
    let items: Vec<Item> = Vec::deserialize(input)?;
    let steps = items.into_iter().map(|item| match item {
        Item::Text(text) => Ok(Step::Text(text)),
        Item::Order(Order::PauseMs(ms)) => Ok(Step::Pause(ms)),
        Item::Order(Order::Cut(true)) => Ok(Step::Cut),
        Item::Order(Order::SplitAtByte(at)) => Ok(Step::SplitAt(at)),
        Item::Order(Order::ByteByByte(true)) => Ok(Step::ByteByByte),
        Item::Order(_) => Err(serde::de::Error::custom("cut and byte_by_byte stand only with true")),
    });
    steps.collect::<Result<_, _>>().map(Some)
}

/// The engine that a backend is played as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Kind {
    /// vLLM.
    #[serde(rename = "vllm")]
    Vllm,
    /// llama.cpp's server.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    /// Its fork ik_llama.
    #[serde(rename = "ik_llama")]
    IkLlama,
    /// Ollama.
    #[serde(rename = "ollama")]
    Ollama,
    /// Anything else that speaks the API.
    #[serde(rename = "other")]
    Other,
}

/// A backend of the policy.
#[derive(Clone, Debug, Deserialize)]
pub struct Backend {
    /// Name.
    pub name: String,
    /// Engine.
    pub kind: Kind,
    /// Prompt and output together, tokens.
    pub window_tokens: u64,
    /// The longest prompt that may be sent there, tokens.
    pub safe_prompt_tokens: u64,
    /// The model name that it serves; absent: the one that is asked for.
    pub serves: Option<String>,
    /// The words about it that only the configuration needs.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    id: String,
    #[serde(rename = "source")]
    _source: Option<String>,
    category: String,
    #[serde(rename = "why")]
    _why: Option<String>,
    client_request: Value,
    #[serde(default)]
    backend_behaviour: Vec<Scripted>,
    policy: Policy,
    expect: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    #[serde(rename = "summary")]
    _summary: Option<String>,
    settings: Map<String, Value>,
}

/// Reads a case file.
///
/// # Errors
/// The file cannot be read, is no JSON, or says something that the format does not know.
pub fn load(file: &Path) -> Result<Case> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(&text)
}

/// Reads the text of a case.
///
/// # Errors
/// As for [`load`].
pub fn parse(text: &str) -> Result<Case> {
    let mut document: Value = serde_json::from_str(text)?;
    unfold(&mut document)?;
    let written: Written = serde_json::from_value(document)?;
    let requests = requests(written.client_request).context("client_request")?;
    let settings = written.policy.settings;
    let backends: Vec<Backend> =
        serde_json::from_value(settings.get("backends").cloned().unwrap_or_default())
            .context("settings.backends")?;
    ensure!(!backends.is_empty(), "settings.backends is empty");
    let health_answers = match settings.get("health_answers") {
        Some(Value::Object(answers)) => answers.clone(),
        None => Map::new(),
        Some(other) => bail!("settings.health_answers is no object: {other}"),
    };
    let named = written.backend_behaviour.iter().filter_map(|answer| answer.backend.as_ref());
    for name in named.chain(health_answers.keys()) {
        ensure!(backends.iter().any(|backend| backend.name == *name), "there is no backend {name}");
    }
    for answer in &written.backend_behaviour {
        let bodies = [answer.body.is_some(), answer.body_raw.is_some(), answer.sse.is_some()];
        ensure!(bodies.iter().filter(|have| **have).count() <= 1, "a scripted answer has more than one body");
    }
    let expect = Expect::read(written.expect, requests.len()).context("expect")?;
    Ok(Case {
        id: written.id,
        category: written.category,
        requests,
        answers: written.backend_behaviour,
        backends,
        health_answers,
        settings,
        expect,
    })
}

fn requests(written: Value) -> Result<Vec<ClientRequest>> {
    let list = match written {
        Value::Object(mut members) if members.contains_key("sequence") => {
            let sequence = members.remove("sequence").unwrap_or_default();
            ensure!(members.is_empty(), "beside sequence stands something else: {members:?}");
            sequence
        }
        single => Value::Array(vec![single]),
    };
    let requests: Vec<ClientRequest> = serde_json::from_value(list)?;
    ensure!(!requests.is_empty(), "the sequence is empty");
    Ok(requests)
}

/// Writes out every `{"$repeat": [text, n]}`.
fn unfold(value: &mut Value) -> Result<()> {
    match value {
        Value::Object(members) => {
            if let Some(repeat) = members.get("$repeat") {
                let (text, times): (String, usize) =
                    serde_json::from_value(repeat.clone()).with_context(|| format!("$repeat {repeat}"))?;
                ensure!(members.len() == 1, "beside $repeat stands something else");
                *value = Value::String(text.repeat(times));
                return Ok(());
            }
            members.values_mut().try_for_each(unfold)
        }
        Value::Array(items) => items.iter_mut().try_for_each(unfold),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn case() -> Value {
        json!({
            "id": "1-x", "source": "s", "category": "c", "why": "w",
            "client_request": {"method": "POST", "path": "/v1/x", "body": {"b": {"$repeat": ["ab", 3]}, "a": 1}},
            "backend_behaviour": [{"sse": ["x", {"pause_ms": 5}, {"split_at_byte": 1}, {"$repeat": ["y", 2]}, {"cut": true}]}],
            "policy": {"summary": "s", "settings": {"backends": [
                {"name": "a", "kind": "vllm", "window_tokens": 10, "safe_prompt_tokens": 9, "slots": 1}]}},
            "expect": {"status": 200}
        })
    }

    #[test]
    fn repeats_are_written_out_wherever_they_stand_and_the_order_of_members_is_kept() {
        let case = parse(&case().to_string()).unwrap();
        assert_eq!(case.requests[0].body_bytes(), br#"{"b":"ababab","a":1}"#);
        let text = |text: &str| Step::Text(text.to_owned());
        let steps = [text("x"), Step::Pause(5), Step::SplitAt(1), text("yy"), Step::Cut];
        assert_eq!(case.answers[0].sse.as_deref(), Some(&steps[..]));
        assert_eq!(case.backends[0].more, json!({"slots": 1}).as_object().unwrap().clone());
    }

    #[test]
    fn a_word_that_the_format_does_not_know_makes_a_case_unreadable() {
        for (place, word) in [
            ("", "extra"),
            ("/client_request", "delay"),
            ("/backend_behaviour/0", "trailers"),
            ("/policy", "extra"),
            ("/expect", "never_checked"),
        ] {
            let mut case = case();
            case.pointer_mut(place).unwrap()[word] = json!(1);
            assert!(parse(&case.to_string()).is_err(), "{place} {word}");
        }
        let mut case = case();
        case["backend_behaviour"][0]["backend"] = json!("unknown");
        assert!(parse(&case.to_string()).is_err());
    }
}
