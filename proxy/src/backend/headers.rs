//! Which headers pass between client and backend: an allow-list in both directions.
//!
//! A client's key never reaches a backend. `X-Conversation-Id` makes llama.cpp go on after a hang-up, `X-Request-Id` and
//! `X-Session-ID` steer vLLM, hop-by-hop headers end here: so what is not listed does not pass. A backend's own headers
//! (server, cookies, versions) stay on this side.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::config::Backend;

/// Sent on to the backend as the client sent them.
const TO_BACKEND: [HeaderName; 6] = [
    header::CONTENT_TYPE,
    header::ACCEPT,
    HeaderName::from_static("anthropic-version"),
    HeaderName::from_static("anthropic-beta"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];

/// Sent on to the client as the backend sent them.
const TO_CLIENT: [HeaderName; 3] =
    [header::CONTENT_TYPE, header::CONTENT_DISPOSITION, header::CONTENT_LANGUAGE];

/// How many proxies of this kind a request has come through.
pub(crate) const HOPS: HeaderName = HeaderName::from_static("x-switchback-hops");

/// The number that a request carries.
pub(crate) fn hops(headers: &HeaderMap) -> usize {
    headers.get(HOPS).and_then(|hops| hops.to_str().ok()?.parse().ok()).unwrap_or(0)
}

/// The headers of a request to a backend.
pub(crate) fn to_backend(client: &HeaderMap, backend: &Backend) -> HeaderMap {
    let mut headers = pick(client, &TO_BACKEND);
    if let Ok(host) = HeaderValue::from_str(backend.authority.as_str()) {
        headers.insert(header::HOST, host);
    }
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(
        header::USER_AGENT,
        HeaderValue::from_static(concat!("switchback/", env!("CARGO_PKG_VERSION"))),
    );
    headers.insert(HOPS, HeaderValue::from(hops(client).saturating_add(1)));
    if let Some(key) = &backend.key
        && let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", key.expose()))
    {
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    headers
}

/// The headers of an answer to a client.
pub(crate) fn to_client(backend: &HeaderMap) -> HeaderMap {
    pick(backend, &TO_CLIENT)
}

fn pick(from: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    names.iter().filter_map(|name| from.get(name).map(|value| (name.clone(), value.clone()))).collect()
}
