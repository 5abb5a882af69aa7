//! Who may talk to the proxy: Host names, browser origins, keys, header counts; and the request id on every answer.
//!
//! Without keys only loopback names are served (a web page can point its own name at 127.0.0.1, but cannot change the Host
//! that the browser then sends), unless the operator opened the proxy. Pages from elsewhere are refused even for requests
//! that browsers send without asking first. A preflight carries no key and is answered before keys are looked at.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};

use crate::answer::body::Body;
use crate::app::Live;
use crate::config::{Server, which};
use crate::error::{ApiError, Refused};

/// More header fields than any client sends; hyper itself stops at [`crate::server::MAX_HEADERS`].
const HEADER_FIELDS: usize = 100;

/// Proxies of this kind that a request may come through; more is a circle.
const MOST_HOPS: usize = 3;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id of a request, as an extension.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) String);

/// The operator's name for the key that a request came with, as an extension.
#[derive(Clone, Debug)]
pub(crate) struct KeyName(pub(crate) Option<String>);

/// Lets a request through, or refuses it.
pub(crate) async fn guard(State(live): State<Arc<Live>>, mut request: Request, next: Next) -> Response<Body> {
    let app = live.app();
    let id = request_id(request.headers());
    request.extensions_mut().insert(RequestId(id.clone()));
    let origin = request.headers().get(header::ORIGIN).cloned();
    let place = format!("{} {}", request.method(), request.uri().path());
    let mut response = match check(&app.config.server, &request) {
        Ok(_) if request.method() == Method::OPTIONS => preflight(request.headers()),
        Ok(key) => {
            request.extensions_mut().insert(KeyName(key));
            next.run(request).await
        }
        Err(error) => error.response(None),
    };
    explain(&mut response, &id, &place);
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, id);
    }
    if let Some(origin) = origin.filter(|origin| origin_allowed(&app.config.server, origin)) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("origin"));
        headers.insert(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static(
                "x-request-id, x-switchback-backend, x-switchback-tokens, x-switchback-reason, retry-after",
            ),
        );
    }
    response
}

/// A request that was refused before it reached the pipeline says so like all others: in its headers and in one log line.
fn explain(response: &mut Response<Body>, id: &str, place: &str) {
    let Some(refused) = response.extensions_mut().remove::<Refused>() else { return };
    if response.headers().contains_key("x-switchback-backend") {
        return;
    }
    tracing::info!(id, place, outcome = "refused", code = refused.code, reason = refused.message, "request");
    let headers = response.headers_mut();
    for (name, value) in [
        ("x-switchback-backend", "none"),
        ("x-switchback-tokens", "unknown"),
        ("x-switchback-reason", refused.code),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

/// The name of the key that was offered, if it has one, or why the request is refused.
fn check(server: &Server, request: &Request) -> Result<Option<String>, ApiError> {
    let headers = request.headers();
    if headers.len() > HEADER_FIELDS {
        return Err(ApiError::headers_too_large(headers.len(), HEADER_FIELDS));
    }
    let hops = crate::backend::headers::hops(headers);
    if hops > MOST_HOPS {
        return Err(ApiError::goes_in_circles(hops));
    }
    if server.keys.is_empty()
        && !server.open
        && let Some(host) = host_of(request.uri(), headers)
        && !is_loopback_name(&host)
    {
        return Err(ApiError::host_not_allowed(&host));
    }
    if let Some(origin) = headers.get(header::ORIGIN)
        && !origin_allowed(server, origin)
    {
        return Err(ApiError::origin_not_allowed(origin.to_str().unwrap_or("?")));
    }
    let is_public =
        matches!(request.uri().path(), "/health" | "/ready") || request.method() == Method::OPTIONS;
    if server.keys.is_empty() || is_public {
        return Ok(None);
    }
    let offered = offered_keys(headers);
    if let Some(key) = offered.iter().find_map(|key| which(&server.keys, key)) {
        return Ok(key.name.clone());
    }
    Err(ApiError::unauthorized(!offered.is_empty()))
}

/// The keys that a client offers: as a bearer token, or in the headers of Anthropic's and Azure's clients.
fn offered_keys(headers: &HeaderMap) -> Vec<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).and_then(|value| {
        let (scheme, key) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
    });
    let others =
        ["x-api-key", "api-key"].into_iter().filter_map(|name| headers.get(name).map(HeaderValue::as_bytes));
    bearer.into_iter().chain(others).filter(|key| !key.is_empty()).collect()
}

fn request_id(headers: &HeaderMap) -> String {
    headers
        .get(REQUEST_ID)
        .and_then(|id| id.to_str().ok())
        .filter(|id| (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic()))
        .map_or_else(|| uuid::Uuid::now_v7().to_string(), str::to_owned)
}

fn host_of(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let from_header = headers.get(header::HOST).map(|host| host.to_str().unwrap_or("?").to_owned());
    from_header.or_else(|| uri.authority().map(ToString::to_string))
}

fn is_loopback_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    // The name under which a container finds its host's loopback; it is resolved by the container's own resolver.
    name == "localhost"
        || name.ends_with(".localhost")
        || name == "host.docker.internal"
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn origin_allowed(server: &Server, origin: &HeaderValue) -> bool {
    let Ok(origin) = origin.to_str() else { return false };
    if server.allowed_origins.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin)) {
        return true;
    }
    let is_web = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https"));
    origin.parse::<Uri>().is_ok_and(|uri| is_web(&uri) && uri.host().is_some_and(is_loopback_name))
}

fn preflight(headers: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let wanted = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let answer = response.headers_mut();
    let methods = HeaderValue::from_static("GET, POST, OPTIONS");
    answer.insert(header::ALLOW, methods.clone());
    answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    answer.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        wanted.unwrap_or_else(|| HeaderValue::from_static("authorization, content-type, x-api-key")),
    );
    answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_mean_this_machine_are_loopback_names() {
        for host in [
            "localhost",
            "LOCALHOST:4000",
            "127.0.0.1:4000",
            "127.8.8.8",
            "[::1]:4000",
            "a.localhost",
            "localhost.",
        ] {
            assert!(is_loopback_name(host), "{host}");
        }
        for host in [
            "example.com",
            "127.0.0.1.example.com",
            "localhost.example.com",
            "192.168.1.2",
            "[2001:db8::1]",
            "",
            "0.0.0.0",
        ] {
            assert!(!is_loopback_name(host), "{host}");
        }
    }

    #[test]
    fn a_key_is_found_in_the_headers_that_clients_use() {
        for (name, value) in [
            ("authorization", "Bearer k"),
            ("authorization", "bearer  k "),
            ("x-api-key", "k"),
            ("api-key", "k"),
        ] {
            let headers = HeaderMap::from_iter([(
                name.parse::<HeaderName>().unwrap(),
                HeaderValue::from_static(value),
            )]);
            assert_eq!(offered_keys(&headers), [b"k"], "{name}: {value}");
        }
        let basic = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static("Basic azpr"))]);
        assert!(offered_keys(&basic).is_empty());
    }
}
