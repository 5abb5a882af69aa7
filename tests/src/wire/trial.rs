//! The harness on trial: whole cases over real sockets, with a relay in the proxy's place that is honest or is not.
//!
//! An honest relay must pass what a pass-through can pass; each dishonest one must be caught by the rule that it
//! breaks. So a harness that sees nothing cannot look like one that finds nothing wrong.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::adapter::Configuration;
use super::case;
use super::proxy::{Binary, Subject, Up};
use super::run::run;

/// A pass-through of bytes to the first backend that takes the connection.
#[derive(Clone, Copy)]
struct Relay {
    /// What it does to every piece of an answer.
    on_answers: fn(Vec<u8>) -> Vec<u8>,
    /// What it does to every piece of a request.
    on_requests: fn(Vec<u8>) -> Vec<u8>,
    /// It keeps the backend's connection when the client hangs up.
    clings: bool,
}

const HONEST: Relay = Relay { on_answers: |bytes| bytes, on_requests: |bytes| bytes, clings: false };

struct Running {
    address: SocketAddr,
    _listening: JoinSet<()>,
}

impl Subject for Relay {
    type Up = Running;

    async fn start(&self, _: &Configuration, backends: &[SocketAddr]) -> Result<Running> {
        for backend in backends {
            // Every backend is looked at once, as a real proxy does.
            if let Ok(mut stream) = TcpStream::connect(backend).await {
                stream.write_all(b"GET /health HTTP/1.1\r\nconnection: close\r\n\r\n").await?;
                stream.read_to_end(&mut Vec::new()).await?;
            }
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (relay, backends) = (*self, backends.to_vec());
        let mut listening = JoinSet::new();
        listening.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let backends = backends.clone();
                connections.spawn(async move { drop(relay.carry(client, &backends).await) });
            }
        });
        Ok(Running { address, _listening: listening })
    }
}

impl Up for Running {
    fn address(&self) -> SocketAddr {
        self.address
    }

    async fn stop(self) -> Option<String> {
        None
    }
}

impl Relay {
    async fn carry(self, client: TcpStream, backends: &[SocketAddr]) -> Result<()> {
        let mut backend = None;
        for address in backends {
            backend = backend.or(TcpStream::connect(address).await.ok());
        }
        let (mut from_backend, mut to_backend) = backend.context("nobody listens")?.into_split();
        let (mut from_client, mut to_client) = client.into_split();
        let requests = async {
            while let Some(bytes) = some_bytes(&mut from_client).await {
                to_backend.write_all(&(self.on_requests)(bytes)).await?;
            }
            if self.clings {
                std::future::pending::<()>().await;
            }
            anyhow::Ok(())
        };
        let answers = async {
            while let Some(bytes) = some_bytes(&mut from_backend).await {
                if to_client.write_all(&(self.on_answers)(bytes)).await.is_err() && self.clings {
                    std::future::pending::<()>().await;
                }
            }
            anyhow::Ok(())
        };
        tokio::select! {
            ended = requests => ended,
            ended = answers => ended,
        }
    }
}

async fn some_bytes(from: &mut (impl AsyncReadExt + Unpin)) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(64 << 10);
    from.read_buf(&mut bytes).await.ok().filter(|read| *read > 0).map(|_| bytes)
}

fn swapped(bytes: &[u8], word: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    while let Some(at) = super::http1::find(&bytes, word) {
        bytes[at..at + word.len()].copy_from_slice(other);
    }
    bytes
}

fn chunk(delta: &Value, finish: &Value) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
}

/// A case of one backend; `answers` and `expect` as in a file.
fn case(answers: Value, expect: Value) -> Value {
    json!({
        "id": "trial", "source": "here", "category": "trial", "why": "trial",
        "client_request": {"method": "POST", "path": "/v1/chat/completions", "headers": {"x-mark": "one"},
            "body": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}},
        "backend_behaviour": answers,
        "policy": {"summary": "trial", "settings": {"backends": [
            {"name": "a", "kind": "vllm", "window_tokens": 1000, "safe_prompt_tokens": 1000}]}},
        "expect": expect
    })
}

fn plain_case() -> Value {
    let body = json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 12}});
    case(
        json!([{"status": 200, "headers": {"content-type": "application/json"}, "body": body, "gzip": true}]),
        json!({
            "status": 200, "message": {"role": "assistant", "content": "Done.", "finish_reason": "stop", "tool_calls": []},
            "usage": {"present": true, "prompt_tokens": 12}, "body_matches_content_encoding": true,
            "upstream": {"attempts": 1, "backends": ["a"], "requests": [
                {"equals": {"/model": "m"}, "headers_equal": {"x-mark": "one"}, "path": "/v1/chat/completions"}]}
        }),
    )
}

fn stream_case() -> Value {
    let mut case = case(
        json!([{"headers": {"content-type": "text/event-stream"}, "sse": [
            chunk(&json!({"role": "assistant", "content": ""}), &Value::Null),
            {"split_at_byte": 60},
            chunk(&json!({"content": "Dé"}), &Value::Null),
            {"byte_by_byte": true},
            chunk(&json!({"content": "né."}), &Value::Null),
            {"pause_ms": 5},
            chunk(&json!({}), &json!("stop")),
            "data: [DONE]\n\n"
        ]}]),
        json!({
            "status": 200, "message": {"role": "assistant", "content": "Déné.", "finish_reason": "stop"},
            "stream": {"done_marker": true, "error_event": false, "every_data_line_is_json_or_done": true},
            "upstream": {"attempts": 1}
        }),
    );
    case["client_request"]["body"]["stream"] = json!(true);
    case
}

async fn findings(case: &Value, subject: &impl Subject) -> Vec<String> {
    let case = Arc::new(case::parse(&case.to_string()).unwrap());
    run(&case, subject).await.findings
}

#[tokio::test]
async fn an_honest_relay_passes() {
    for case in [plain_case(), stream_case()] {
        assert_eq!(findings(&case, &HONEST).await, [""; 0]);
    }
}

#[tokio::test]
async fn an_answer_that_was_changed_on_the_way_is_caught() {
    let gone = Relay { on_answers: |bytes| swapped(&bytes, b"[DONE]", b"[GONE]"), ..HONEST };
    assert_eq!(findings(&stream_case(), &gone).await.len(), 2, "no end marker, and a line that is no JSON");
    let word = Relay { on_answers: |bytes| swapped(&bytes, b"\"stop\"", b"\"stip\""), ..HONEST };
    assert_eq!(findings(&stream_case(), &word).await.len(), 1);
    let status = Relay { on_answers: |bytes| swapped(&bytes, b"200 OK", b"201 OK"), ..HONEST };
    assert_eq!(findings(&plain_case(), &status).await.len(), 1);
    let packed = Relay {
        on_answers: |bytes| swapped(&bytes, b"content-encoding: gzip", b"content-encodinx: gzip"),
        ..HONEST
    };
    assert!(!findings(&plain_case(), &packed).await.is_empty());
}

#[tokio::test]
async fn a_request_that_was_changed_on_the_way_is_caught() {
    let model = Relay { on_requests: |bytes| swapped(&bytes, b"\"m\"", b"\"n\""), ..HONEST };
    assert_eq!(findings(&plain_case(), &model).await.len(), 1);
    let mark = Relay { on_requests: |bytes| swapped(&bytes, b"x-mark: one", b"x-mark: two"), ..HONEST };
    assert_eq!(findings(&plain_case(), &mark).await.len(), 1);
}

#[tokio::test]
async fn a_request_beyond_the_script_or_at_the_wrong_backend_is_caught() {
    let mut unexpected = plain_case();
    unexpected["backend_behaviour"] = json!([]);
    unexpected["expect"] = json!({"upstream": {}});
    assert_eq!(findings(&unexpected, &HONEST).await, ["request 0 arrived at a and has no scripted answer"]);

    let mut elsewhere = plain_case();
    let second = json!({"name": "b", "kind": "llama.cpp", "window_tokens": 1000, "safe_prompt_tokens": 1000});
    elsewhere["policy"]["settings"]["backends"].as_array_mut().unwrap().push(second);
    elsewhere["backend_behaviour"][0]["backend"] = json!("b");
    elsewhere["expect"] = json!({});
    assert_eq!(findings(&elsewhere, &HONEST).await, ["request 0 arrived at a, its answer is b's"]);

    // Where nothing listens, the relay goes on to the next backend, which is the owner.
    let refused = json!({"backend": "a", "refuse_connection": true});
    elsewhere["backend_behaviour"].as_array_mut().unwrap().insert(0, refused);
    elsewhere["expect"] = json!({"status": 200, "upstream": {"attempts": 1, "backends": ["b"]}});
    assert_eq!(findings(&elsewhere, &HONEST).await, [""; 0]);
}

#[tokio::test]
async fn a_reset_and_a_close_reach_the_client_as_such() {
    let mut reset = stream_case();
    reset["backend_behaviour"][0]["sse"] =
        json!([chunk(&json!({"role": "assistant", "content": "Half"}), &Value::Null), {"cut": true}]);
    reset["expect"] = json!({"status": 200, "message": {"content": "Half", "finish_reason": null}, "upstream": {"attempts": 1}});
    let found = findings(&reset, &HONEST).await;
    assert!(found.len() == 1 && found[0].starts_with("the body is not whole"), "{found:?}");

    let mut closed = plain_case();
    closed["backend_behaviour"] = json!([{"close_without_answer": true}]);
    closed["expect"] = json!({"status": 200});
    let found = findings(&closed, &HONEST).await;
    assert!(found.len() == 1 && found[0].starts_with("no answer"), "{found:?}");
}

#[tokio::test]
async fn a_hang_up_that_travels_passes_and_one_that_does_not_is_caught() {
    let mut case = stream_case();
    case["client_request"]["hang_up_after"] = json!({"content_contains": "Dé"});
    case["backend_behaviour"][0]["sse"] =
        json!([chunk(&json!({"content": "Dé"}), &Value::Null), {"pause_ms": 60_000}]);
    case["expect"] =
        json!({"status": 200, "upstream": {"attempts": 1, "connection_closed_by_proxy_within_ms": 1000}});
    assert_eq!(findings(&case, &HONEST).await, [""; 0]);
    let found = findings(&case, &Relay { clings: true, ..HONEST }).await;
    assert!(found.len() == 1 && found[0].starts_with("0 connections of 1 closed"), "{found:?}");

    case["client_request"]["hang_up_after"] = json!({"ms": 30});
    assert_eq!(findings(&case, &HONEST).await, [""; 0]);
}

#[tokio::test]
async fn a_sequence_starts_each_request_when_the_answer_before_has_ended() {
    let mut case = plain_case();
    let request = case["client_request"].take();
    let mut with_time = request.clone();
    with_time["start_at_ms"] = json!(0);
    case["client_request"] = json!({"sequence": [request, request, with_time]});
    let answer = case["backend_behaviour"][0].take();
    case["backend_behaviour"] = json!([answer, answer, answer]);
    case["expect"] =
        json!({"each": [{"status": 200}, {"status": 200}, {"status": 201}], "upstream": {"attempts": 3}});
    let found = findings(&case, &HONEST).await;
    assert!(found.len() == 1 && found[0].starts_with("answer 2: status 200 instead of [201]"), "{found:?}");
}

#[tokio::test]
async fn a_program_that_does_not_start_fails_the_case_with_its_last_words() {
    // The test program itself does not know these arguments.
    let program = Binary { path: std::env::current_exe().unwrap() };
    let found = findings(&plain_case(), &program).await;
    assert!(found.len() == 1 && found[0].starts_with("the proxy did not start: it ended"), "{found:?}");
}
