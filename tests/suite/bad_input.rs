//! Bad input of every kind gets a clear error: never a panic, a hang or silence.

use bytes::Bytes;
use http::Method;
use http_body_util::Full;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{Reply, World, ask, request};

fn world() -> World {
    World::new(&[("b", 8000)], "[server]\nmax_body = \"1MiB\"\n")
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_body_is_said_with_its_place() {
    for (body, says, param) in [
        ("", "empty", None),
        ("{", "json", None),
        ("[]", "object", None),
        ("nonsense", "json", None),
        ("{\"model\":\"m\"}", "messages is missing", Some("messages")),
        ("{\"model\":\"m\",\"messages\":[]}", "messages", Some("messages")),
        ("{\"model\":\"m\",\"messages\":{}}", "messages must be an array", Some("messages")),
        ("{\"model\":\"m\",\"messages\":[1]}", "messages[0]", Some("messages[0]")),
        ("{\"model\":\"m\",\"messages\":[{\"role\":7}]}", "messages[0].role", Some("messages[0].role")),
        (
            "{\"model\":[],\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
            "model must be a string",
            Some("model"),
        ),
        (
            "{\"model\":\"m\",\"stream\":\"yes\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
            "stream",
            Some("stream"),
        ),
        (
            "{\"model\":\"m\",\"max_tokens\":\"9\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
            "max_tokens",
            Some("max_tokens"),
        ),
        (
            "{\"model\":\"m\",\"tools\":{},\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
            "tools",
            Some("tools"),
        ),
    ] {
        let world = world();
        let answer = world.chat(body).await;
        assert_eq!(answer.status, 400, "{body}");
        let error = answer.error();
        assert_eq!(
            (error["type"].as_str(), error["code"].as_str()),
            (Some("invalid_request_error"), Some("invalid_body")),
            "{body}"
        );
        assert!(
            error["message"].as_str().is_some_and(|text| text.to_lowercase().contains(says)),
            "{body}: {error}"
        );
        assert_eq!(error["param"].as_str(), param, "{body}");
        assert!(world.backend("b").seen().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_no_text_are_refused_with_the_place() {
    let mut latin = ask("caf").into_bytes();
    let at = latin.windows(3).position(|part| part == b"caf").expect("the word") + 3;
    latin.insert(at, 0xe9);
    let binary: Vec<u8> = (0..=255).cycle().take(5000).collect();
    for body in [latin, binary, vec![0; 100], b"\xef\xbb\xbf{}".to_vec()] {
        let mut sent = request(Method::POST, "/v1/chat/completions", "");
        *sent.body_mut() = Full::new(Bytes::from(body));
        let answer = world().client().await.send(sent).await.whole().await;
        assert_eq!((answer.status.as_u16(), answer.error()["code"].as_str()), (400, Some("invalid_body")));
    }
}

#[tokio::test(start_paused = true)]
async fn nesting_without_end_is_refused() {
    let body = format!("{{\"messages\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(world().chat(&body).await.status, 400);
}

#[tokio::test(start_paused = true)]
async fn a_body_above_the_limit_is_refused_with_both_numbers_before_it_is_read() {
    let world = world();
    let mut pipe = world.raw();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 209715200\r\n\r\n";
    pipe.write_all(head.as_bytes()).await.expect("written");
    let answer = read_until(&mut pipe, "max_body").await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("209715200") && answer.contains("1048576"), "{answer}");

    let huge = ask(&"x".repeat(2 << 20));
    assert_eq!(world.chat(&huge).await.error()["code"], "body_too_large");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_arriving_ends_in_a_timeout_that_says_so() {
    let world = world();
    let mut pipe = world.raw();
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{\"model\"";
    pipe.write_all(head.as_bytes()).await.expect("written");
    let answer = read_until(&mut pipe, "body_timeout").await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("30 s"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_sends_no_request_is_closed() {
    let world = world();
    for start in ["", "POST /v1/chat/comple"] {
        let mut pipe = world.raw();
        pipe.write_all(start.as_bytes()).await.expect("written");
        let mut rest = Vec::new();
        pipe.read_to_end(&mut rest).await.expect("an end");
        assert!(rest.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_half_closed_socket_is_no_hang() {
    let world = world();
    world.backend("b").then(Reply::says("x"));
    let mut pipe = world.raw();
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500\r\n\r\n{\"model\"";
    pipe.write_all(head.as_bytes()).await.expect("written");
    pipe.shutdown().await.expect("half closed");
    let mut rest = Vec::new();
    pipe.read_to_end(&mut rest).await.expect("an end");
    assert!(world.backend("b").seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_headers_is_refused_with_the_number() {
    let mut sent = request(Method::POST, "/v1/chat/completions", &ask("hi"));
    for n in 0..150 {
        sent.headers_mut().insert(
            http::HeaderName::try_from(format!("x-flood-{n}")).expect("a name"),
            "1".parse().expect("a value"),
        );
    }
    let answer = world().client().await.send(sent).await.whole().await;
    assert_eq!((answer.status.as_u16(), answer.error()["code"].as_str()), (431, Some("headers_too_large")));
}

#[tokio::test(start_paused = true)]
async fn unknown_paths_and_methods_are_told_apart() {
    let world = world();
    for path in [
        "/api/version",
        "/api/show",
        "/api/v1/models",
        "/",
        "/v1",
        "/v1/",
        "/v1/load_lora_adapter",
        "/switch",
        "/v1/l%6fad_lora_adapter",
        "/v1/audio/../sleep",
        "/v1/%2e%2e/sleep",
        "/v1//sleep",
        "/v1/LOAD_LORA_ADAPTER",
        "/v1/sleep",
        "/v1/slots/0?action=erase",
        "/v1/audio/../../load",
    ] {
        let answer = world.post(path, "{}").await;
        assert_eq!(
            (answer.status.as_u16(), answer.error()["code"].as_str()),
            (404, Some("not_found")),
            "{path}"
        );
    }
    let answer = world.get("/v1/chat/completions").await;
    assert_eq!((answer.status.as_u16(), answer.error()["code"].as_str()), (405, Some("method_not_allowed")));
    assert_eq!(world.post("/v1/models", "{}").await.status, 405);
    assert!(world.backend("b").seen().is_empty());
}

async fn read_until(pipe: &mut tokio::io::DuplexStream, text: &str) -> String {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let read = pipe.read(&mut piece).await.expect("readable");
        bytes.extend_from_slice(&piece[..read]);
        let so_far = String::from_utf8(bytes.clone()).expect("utf-8");
        if so_far.contains(text) || read == 0 {
            return so_far;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hang_up_is_noticed_although_something_follows_the_request() {
    for (stream, after) in [
        (false, "\r\n"),
        (true, "\r\n"),
        (false, "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        (true, "x"),
    ] {
        let world = world();
        world.backend("b").then(Reply::never());
        let body = if stream { crate::harness::ask_stream("hi") } else { ask("hi") };
        let mut pipe = world.raw();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        pipe.write_all(format!("{head}{body}{after}").as_bytes()).await.expect("written");
        world.backend("b").until_seen(1).await;
        let began = tokio::time::Instant::now();
        drop(pipe);
        world.backend("b").until_hung_up(1).await;
        assert!(began.elapsed().as_secs() < 1, "{stream} {after:?}: {:?}", began.elapsed());
    }
}
