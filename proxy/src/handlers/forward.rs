//! Requests that go to a backend: the body is read whole, within its limits, and handed to the pipeline.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::header;
use http_body_util::BodyExt as _;
use tokio::time::{Duration, Instant, timeout};

use crate::answer::body::Body;
use crate::answer::{KeepAliveWord, Patience, respond};
use crate::app::Live;
use crate::call::{Call, Endpoint};
use crate::error::ApiError;
use crate::guard::{KeyName, RequestId};
use crate::identify::identify;
use crate::pipeline;
use crate::routes::goes_to_a_backend;
use crate::server::Peer;

/// Larger bodies are read on a thread of their own: streams must not wait for a scan of megabytes.
const LARGE_BODY: usize = 1 << 20;

/// Answers a request from a backend.
pub(crate) async fn forward(State(live): State<Arc<Live>>, request: Request) -> Response<Body> {
    let accepted = Instant::now();
    let app = live.app();
    let path = request.uri().path();
    if !goes_to_a_backend(&request) {
        return ApiError::not_found(path).response(None);
    }
    if request.method() != http::Method::POST {
        return ApiError::method_not_allowed(request.method().as_str(), path).response(None);
    }
    let endpoint = Endpoint::at(path, request.uri().query());
    let (dialect, words) = (endpoint.dialect, endpoint.words());
    let id = request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    let key = request.extensions().get::<KeyName>().and_then(|key| key.0.clone());
    let (head, body) = request.into_parts();
    let announced =
        head.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let server = &app.config.server;
    let asks_first = head.headers.contains_key(header::EXPECT);
    let call = match read(body, announced, asks_first, server.max_body, server.read_timeout).await {
        Ok(body) if body.len() > LARGE_BODY => {
            let reading = move || Call::read(id, accepted, head.method, endpoint, head.headers, body);
            tokio::task::spawn_blocking(reading).await.unwrap_or_else(|_| Err(ApiError::own_fault()))
        }
        Ok(body) => Call::read(id, accepted, head.method, endpoint, head.headers, body),
        Err(error) => Err(error),
    };
    let call = match call {
        Ok(call) => call,
        Err(error) => return error.response(words),
    };
    let client = identify(&app.config, &call, key.as_deref()).at(peer);
    let patience = Patience {
        // A slow upload is the client's own time.
        accepted: Instant::now(),
        hold_head: app.config.failover.hold_head,
        keep_alive: app.config.failover.keep_alive,
        word: KeepAliveWord::new(client.keep_alive, &call),
        blanks: client.blanks,
    };
    respond((dialect, words), call.stream, patience, move |out| pipeline::run(app, call, client, out)).await
}

/// A path that is served, with another method.
pub(crate) async fn wrong_method(request: Request) -> Response<Body> {
    ApiError::method_not_allowed(request.method().as_str(), request.uri().path()).response(None)
}

/// Reads a body within its limits. `asks_first`: the client waits for leave to send it (`expect: 100-continue`).
async fn read(
    mut body: Body,
    announced: Option<u64>,
    asks_first: bool,
    limit: usize,
    silence: Duration,
) -> Result<Bytes, ApiError> {
    if announced.is_some_and(|length| length > limit as u64) {
        if !asks_first {
            discard(body, limit, silence).await;
        }
        return Err(ApiError::body_too_large(announced, limit));
    }
    // An announced length is a claim: memory is taken as bytes arrive.
    let mut bytes = BytesMut::with_capacity(announced.map_or(0, |length| length.min(1 << 20) as usize));
    loop {
        let frame = match timeout(silence, body.frame()).await {
            Err(_) => return Err(ApiError::body_timeout(silence.as_secs_f64())),
            Ok(None) => return Ok(bytes.freeze()),
            Ok(Some(Err(_))) => return Err(ApiError::body_broken()),
            Ok(Some(Ok(frame))) => frame,
        };
        if let Ok(data) = frame.into_data() {
            if bytes.len() + data.len() > limit {
                discard(body, limit, silence).await;
                return Err(ApiError::body_too_large(announced, limit));
            }
            bytes.extend_from_slice(&data);
        }
    }
}

/// Reads on without keeping anything: most clients look at an answer only after they have sent their whole body, and
/// lose it if the connection breaks before. Bounded, since nobody has to listen for ever.
async fn discard(mut body: Body, limit: usize, silence: Duration) {
    let mut left = limit.saturating_mul(8);
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                break;
            }
        }
    };
    // What came in time was read; that is all that is wanted.
    let _ = timeout(silence, reading).await;
}
