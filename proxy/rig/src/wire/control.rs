//! The control API: what a test in any language does to a simulated backend, on the backend's own port.
//!
//! | request | effect |
//! |---|---|
//! | `GET /rig/load` | what it carries now |
//! | `GET /rig/spec` | what it was started with |
//! | `GET /rig/events?since=N&follow=true` | what happened from event N on, a JSON object a line; `follow` keeps telling until the process is gone |
//! | `POST /rig/script` | replaces its script: `{"steps": ["ok", "dead"], "then": "ok"}` |
//! | `POST /rig/kill` | the engine dies, as of an out-of-memory |
//! | `POST /rig/stall`, `POST /rig/resume` | the engine falls silent, and works again |
//!
//! It answers whenever the port is open, while loading and after the engine's death too; a process that is down refuses
//! like the real one. The real servers have nothing below `/rig/`. It must never be needed: a backend behaves the same
//! if nobody uses it.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Body, Broken,
    body::{self, Writer},
};
use crate::{Event, EventKind, Script, backend::Backend};

const ROUTES: [(&str, &str); 7] = [
    ("GET", "/rig/load"),
    ("GET", "/rig/spec"),
    ("GET", "/rig/events"),
    ("POST", "/rig/script"),
    ("POST", "/rig/kill"),
    ("POST", "/rig/stall"),
    ("POST", "/rig/resume"),
];

/// Answers a request to the control API; none if it is for the simulated server.
pub(super) fn answer(backend: &Arc<Backend>, request: &Request<Bytes>) -> Option<Response<Body>> {
    let (method, path) = super::path(request);
    if path != "/rig" && !path.starts_with("/rig/") {
        return None;
    }
    Some(match (method, path) {
        ("GET", "/rig/load") => value(&backend.gpu.load()),
        ("GET", "/rig/spec") => value(&backend.spec),
        ("GET", "/rig/events") => events(backend, request.uri().query().unwrap_or_default()),
        ("POST", "/rig/script") => script(backend, request.body()),
        ("POST", "/rig/kill") => {
            backend.gpu.kill();
            done()
        }
        ("POST", "/rig/stall") => {
            backend.gpu.silence(true);
            done()
        }
        ("POST", "/rig/resume") => {
            backend.gpu.silence(false);
            done()
        }
        _ => unknown(method, path),
    })
}

fn value(value: &impl Serialize) -> Response<Body> {
    match serde_json::to_value(value) {
        Ok(value) => body::json(StatusCode::OK, &value),
        Err(error) => wrong(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

fn done() -> Response<Body> {
    body::json(StatusCode::OK, &json!({"done": true}))
}

fn wrong(status: StatusCode, message: impl Into<String>) -> Response<Body> {
    body::json(status, &json!({"error": {"message": message.into(), "code": status.as_u16()}}))
}

fn unknown(method: &str, path: &str) -> Response<Body> {
    if let Some((allowed, _)) = ROUTES.iter().find(|(_, known)| *known == path) {
        let message = format!("{path} takes {allowed}, not {method}");
        let mut answer = wrong(StatusCode::METHOD_NOT_ALLOWED, message);
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
        return answer;
    }
    let known: Vec<String> = ROUTES.iter().map(|(method, path)| format!("{method} {path}")).collect();
    wrong(StatusCode::NOT_FOUND, format!("no {path}; there are {}", known.join(", ")))
}

fn script(backend: &Backend, body: &Bytes) -> Response<Body> {
    match serde_json::from_slice::<Script>(body) {
        Ok(script) => {
            *backend.script.lock() = script;
            done()
        }
        Err(error) => wrong(StatusCode::BAD_REQUEST, format!("no script: {error}")),
    }
}

fn events(backend: &Arc<Backend>, query: &str) -> Response<Body> {
    let asked = |key: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find_map(|(name, value)| (name == key).then_some(value))
    };
    let since = asked("since").unwrap_or("0");
    let Ok(since) = since.parse::<u64>() else {
        let message = format!("since is {since:?}, it must be the number of an event, from 0");
        return wrong(StatusCode::BAD_REQUEST, message);
    };
    let body = if asked("follow") == Some("true") {
        let backend = Arc::clone(backend);
        body::stream(move |out| follow(backend, since, out))
    } else {
        Body::Whole(Bytes::from(lines(&backend.log.since(since))))
    };
    body::typed(StatusCode::OK, "application/x-ndjson", body)
}

/// Tells what happens until the process is gone, its end included.
async fn follow(backend: Arc<Backend>, mut since: u64, out: Writer) -> Result<(), Broken> {
    let before = backend.log.since(0).last().map_or(0, |event| event.number);
    loop {
        backend.log.find(since, |_| true).await;
        let events = backend.log.since(since);
        since = events.last().map_or(since, |event| event.number + 1);
        let over = events.iter().any(|event| event.kind == EventKind::Down && event.number > before);
        out.write(lines(&events)).await;
        if over {
            return Ok(());
        }
    }
}

fn lines(events: &[Event]) -> String {
    let line = |event| serde_json::to_value(event).unwrap_or(Value::Null).to_string() + "\n";
    events.iter().map(line).collect()
}
