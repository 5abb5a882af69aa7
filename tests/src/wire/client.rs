//! The scripted client: exact bytes out, every piece of the answer with its time, and a hang-up at the scripted moment.
//!
//! Each request has a connection of its own. It adds only what HTTP cannot do without (`host`, the body's length) and
//! never retries, follows or decodes.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::case::{Case, ClientRequest, HangUp};
use super::http1::{Headers, Wire};
use super::message::visible;
use super::observed::{Clock, End, Piece, Reply};
use super::sse::Stream;

/// Plays all requests of a case: each starts when the answer before it has ended, or at its own time.
pub async fn play(case: &Arc<Case>, proxy: SocketAddr, clock: Clock) -> Vec<Reply> {
    let ended: Arc<Vec<watch::Sender<bool>>> =
        Arc::new(case.requests.iter().map(|_| watch::Sender::new(false)).collect());
    let begin = clock.now();
    let mut running = JoinSet::new();
    for number in 0..case.requests.len() {
        let (case, ended) = (Arc::clone(case), Arc::clone(&ended));
        running.spawn(async move {
            let request = &case.requests[number];
            match (request.start_at_ms, number.checked_sub(1)) {
                (Some(ms), _) => sleep_until(clock.at(begin + Duration::from_millis(ms))).await,
                // Fails only when the sender is gone, and this task holds all of them.
                (None, Some(before)) => drop(ended[before].subscribe().wait_for(|ended| *ended).await),
                (None, None) => {}
            }
            let reply = send(request, proxy, clock).await;
            ended[number].send_replace(true);
            (number, reply)
        });
    }
    let mut replies = running.join_all().await;
    replies.sort_by_key(|(number, _)| *number);
    replies.into_iter().map(|(_, reply)| reply).collect()
}

/// Sends one request and reads its answer to the end, or to the hang-up.
pub async fn send(request: &ClientRequest, proxy: SocketAddr, clock: Clock) -> Reply {
    let started = clock.now();
    let mut reply = Reply {
        started,
        status: None,
        headers: Headers::default(),
        pieces: Vec::new(),
        ended: started,
        end: End::Complete,
    };
    let patience = async {
        match request.hang_up_after.as_ref().and_then(|hang_up| hang_up.ms) {
            Some(ms) => sleep_until(clock.at(started + Duration::from_millis(ms))).await,
            None => std::future::pending().await,
        }
        clock.now()
    };
    let (end, hung_up) = tokio::select! {
        end = exchange(request, proxy, clock, &mut reply) => (end, None),
        now = patience => (Ok(End::HungUp), Some(now)),
    };
    reply.end = end.unwrap_or_else(|error| End::Broken(error.to_string()));
    // A hang-up counts from just before the connection was closed, so that nothing upstream can seem to precede it.
    let last = reply.pieces.last().map(|piece| piece.at);
    reply.ended = hung_up.or(last.filter(|_| reply.end == End::HungUp)).unwrap_or_else(|| clock.now());
    reply
}

async fn exchange(
    request: &ClientRequest,
    proxy: SocketAddr,
    clock: Clock,
    reply: &mut Reply,
) -> io::Result<End> {
    let stream = TcpStream::connect(proxy).await?;
    stream.set_nodelay(true)?;
    let (read, mut write) = stream.into_split();
    let bytes = bytes_of(request, proxy);
    // A server may answer before it has read everything, so both directions run at once; that the rest of a request
    // could not be sent says nothing about the answer.
    let sending = async {
        let _ = write.write_all(&bytes).await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        end = receive(request, Wire::new(read), clock, reply) => end,
        never = sending => match never {},
    }
}

async fn receive<R: AsyncRead + Unpin>(
    request: &ClientRequest,
    mut wire: Wire<R>,
    clock: Clock,
    reply: &mut Reply,
) -> io::Result<End> {
    let (head, status) = loop {
        let head = wire
            .head()
            .await?
            .ok_or_else(|| io::Error::other("the connection was closed without an answer"))?;
        let status = head.first.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
        let status =
            status.ok_or_else(|| io::Error::other(format!("\"{}\" is no status line", head.first)))?;
        if !(100..200).contains(&status) || status == 101 {
            break (head, status);
        }
    };
    reply.status = Some(status);
    let mut framing = head.response_body(status, request.method == "HEAD")?;
    reply.headers = head.headers;
    while let Some(bytes) = wire.piece(&mut framing).await? {
        reply.pieces.push(Piece { at: clock.now(), bytes: bytes.into() });
        if has_seen_enough(request.hang_up_after.as_ref(), reply) {
            return Ok(End::HungUp);
        }
    }
    Ok(End::Complete)
}

fn has_seen_enough(hang_up: Option<&HangUp>, reply: &Reply) -> bool {
    let Some(wanted) = hang_up.and_then(|hang_up| hang_up.content_contains.as_deref()) else { return false };
    let Ok(pieces) = reply.decoded() else { return false };
    visible(&Stream::read(&pieces)).last().is_some_and(|(_, text)| text.contains(wanted))
}

/// The request on the wire.
fn bytes_of(request: &ClientRequest, proxy: SocketAddr) -> Vec<u8> {
    let body = request.body_bytes();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let has = |name: &str| request.headers.keys().any(|key| key.eq_ignore_ascii_case(name));
    let mut bytes = format!("{} {} HTTP/1.1\r\n", request.method, request.path).into_bytes();
    if !has("host") {
        bytes.extend(format!("host: {proxy}\r\n").bytes());
    }
    for (name, value) in &request.headers {
        bytes.extend(format!("{name}: {}\r\n", text(value)).bytes());
    }
    if has("transfer-encoding") {
        bytes.extend(b"\r\n");
        for chunk in body.chunks(4096) {
            bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
            bytes.extend(chunk);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"0\r\n\r\n");
        return bytes;
    }
    if !has("content-length")
        && (!body.is_empty() || matches!(request.method.as_str(), "POST" | "PUT" | "PATCH"))
    {
        bytes.extend(format!("content-length: {}\r\n", body.len()).bytes());
    }
    bytes.extend(b"\r\n");
    bytes.extend(body);
    bytes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sent(request: Value) -> String {
        let request: ClientRequest = serde_json::from_value(request).unwrap();
        String::from_utf8(bytes_of(&request, "127.0.0.1:9".parse().unwrap())).unwrap()
    }

    #[test]
    fn a_request_goes_out_as_written_with_only_the_framing_added() {
        assert_eq!(
            sent(
                json!({"method": "POST", "path": "/a?b", "headers": {"X-One": "1"}, "body": {"z": 1, "a": 2}})
            ),
            "POST /a?b HTTP/1.1\r\nhost: 127.0.0.1:9\r\nX-One: 1\r\ncontent-length: 13\r\n\r\n{\"z\":1,\"a\":2}"
        );
        assert_eq!(
            sent(json!({"method": "OPTIONS", "path": "/", "headers": {"Host": "h"}, "body": null})),
            "OPTIONS / HTTP/1.1\r\nHost: h\r\n\r\n"
        );
        assert_eq!(
            sent(
                json!({"method": "POST", "path": "/", "headers": {"host": "h", "transfer-encoding": "chunked"}, "body": "{not json"})
            ),
            "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n9\r\n{not json\r\n0\r\n\r\n"
        );
    }

    #[test]
    fn a_hang_up_waits_for_the_text_put_together() {
        let hang_up = HangUp { ms: None, content_contains: Some("one two".to_owned()) };
        let chunk =
            |text: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
        let (one, two) = (chunk("one "), chunk("two"));
        let reply = |pieces: &[(u64, &[u8])]| super::super::observed::samples::reply(200, &[], pieces);
        assert!(!has_seen_enough(Some(&hang_up), &reply(&[(1, one.as_bytes())])));
        assert!(has_seen_enough(Some(&hang_up), &reply(&[(1, one.as_bytes()), (2, two.as_bytes())])));
        assert!(!has_seen_enough(None, &reply(&[(1, one.as_bytes())])));
    }
}
