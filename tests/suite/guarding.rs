//! Who may use the proxy, and what never passes through it.

use http::{HeaderName, HeaderValue, Method};

use crate::harness::{Answer, Reply, World, ask, request};

async fn with(world: &World, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
    let body = if method == Method::POST { ask("hi") } else { String::new() };
    let mut sent = request(method, path, &body);
    for (name, value) in headers {
        let name = HeaderName::try_from(*name).expect("a name");
        sent.headers_mut().insert(name, HeaderValue::from_str(value).expect("a value"));
    }
    world.client().await.send(sent).await.whole().await
}

fn keyed() -> World {
    let folder = std::env::temp_dir().join(format!("switchback-keys-{}", std::process::id()));
    std::fs::write(&folder, "# kitchen\nclient-key\nother-key\n").expect("a file with keys");
    World::new(
        &[("b", 8000)],
        &format!("[server]\napi_keys_file = {folder:?}\nallowed_origins = [\"http://192.168.1.5:3000\"]\n"),
    )
}

#[tokio::test(start_paused = true)]
async fn with_keys_only_a_key_opens_and_it_never_reaches_the_backend() {
    let world = keyed();
    for headers in [
        [("authorization", "Bearer client-key")],
        [("authorization", "bearer other-key")],
        [("x-api-key", "client-key")],
    ] {
        world.backend("b").then(Reply::says("ok"));
        assert_eq!(
            with(&world, Method::POST, "/v1/chat/completions", &headers).await.status,
            200,
            "{headers:?}"
        );
    }
    for seen in world.backend("b").seen() {
        assert!(!seen.head.contains("-key"), "{}", seen.head);
    }
    let refused: [&[(&str, &str)]; 4] = [
        &[],
        &[("authorization", "Bearer nope")],
        &[("authorization", "Basic client-key")],
        &[("x-api-key", "")],
    ];
    for headers in refused {
        let answer = with(&world, Method::POST, "/v1/chat/completions", headers).await;
        assert_eq!(
            (answer.status.as_u16(), answer.error()["code"].as_str()),
            (401, Some("invalid_api_key")),
            "{headers:?}"
        );
        assert_eq!(with(&world, Method::GET, "/v1/models", headers).await.status, 401);
    }
    assert_eq!(world.get("/health").await.status, 200);
    assert_eq!(world.backend("b").seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn only_listed_headers_reach_a_backend() {
    let world = World::new(&[("b", 8000)], "");
    world.backend("b").then(Reply::says("ok"));
    let headers = [
        ("x-conversation-id", "c1"),
        ("x-session-id", "s1"),
        ("x-request-id", "r1"),
        ("cookie", "a=b"),
        ("connection", "Upgrade, HTTP2-Settings"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"),
        ("accept-encoding", "gzip"),
        ("content-type", "application/x-www-form-urlencoded"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ];
    let answer = with(&world, Method::POST, "/v1/chat/completions", &headers).await;
    assert_eq!((answer.status.as_u16(), answer.header("x-request-id")), (200, "r1"));
    let head = world.backend("b").seen()[0].head.to_lowercase();
    let mut names: Vec<&str> = head.lines().skip(1).filter_map(|line| line.split(':').next()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "accept-encoding",
            "content-length",
            "content-type",
            "host",
            "traceparent",
            "user-agent",
            "x-switchback-hops"
        ]
    );
    assert!(head.contains("accept-encoding: identity") && head.contains("content-type: application/json"));
}

#[tokio::test(start_paused = true)]
async fn proxies_that_point_at_each_other_are_told_so() {
    let world = World::new(&[("b", 8000)], "");
    world.backend("b").then(Reply::says("ok"));
    assert_eq!(
        with(&world, Method::POST, "/v1/chat/completions", &[("x-switchback-hops", "2")]).await.status,
        200
    );
    assert!(world.backend("b").seen()[0].head.contains("x-switchback-hops: 3"));
    let circle = with(&world, Method::POST, "/v1/chat/completions", &[("x-switchback-hops", "4")]).await;
    assert_eq!((circle.status.as_u16(), circle.error()["code"].as_str()), (508, Some("goes_in_circles")));
}

#[tokio::test(start_paused = true)]
async fn without_keys_a_name_that_is_not_this_machines_is_refused() {
    let world = World::new(&[("b", 8000)], "");
    for host in ["evil.example", "127.0.0.1.evil.example:4000", "192.168.1.9:4000"] {
        let answer = with(&world, Method::POST, "/v1/chat/completions", &[("host", host)]).await;
        assert_eq!(
            (answer.status.as_u16(), answer.error()["code"].as_str()),
            (403, Some("host_not_allowed")),
            "{host}"
        );
    }
    for host in ["localhost:4000", "127.0.0.1", "[::1]:4000", "host.docker.internal:4000"] {
        assert_eq!(with(&world, Method::GET, "/v1/models", &[("host", host)]).await.status, 200, "{host}");
    }
    let open = World::new(&[("b", 8000)], "[server]\nopen = true\n");
    assert_eq!(with(&open, Method::GET, "/v1/models", &[("host", "192.168.1.9:4000")]).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn pages_from_loopback_or_the_list_may_ask_and_others_may_not() {
    let world = keyed();
    let preflight = [
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ];
    for origin in ["http://localhost:5173", "http://127.0.0.1:8080", "http://192.168.1.5:3000"] {
        let answer = with(
            &world,
            Method::OPTIONS,
            "/v1/chat/completions",
            &[&[("origin", origin)][..], &preflight].concat(),
        )
        .await;
        assert_eq!((answer.status.as_u16(), answer.header("access-control-allow-origin")), (204, origin));
        assert_eq!(answer.header("access-control-allow-headers"), "authorization,content-type");
        assert!(answer.header("access-control-allow-methods").contains("POST"));
        let refused = with(&world, Method::POST, "/v1/chat/completions", &[("origin", origin)]).await;
        assert_eq!((refused.status.as_u16(), refused.header("access-control-allow-origin")), (401, origin));
    }
    for origin in ["https://evil.example", "null", "http://192.168.1.5:3001", "http://localhost.evil.example"]
    {
        for method in [Method::OPTIONS, Method::POST] {
            let headers = [("origin", origin), ("authorization", "Bearer client-key")];
            let answer = with(&world, method, "/v1/chat/completions", &headers).await;
            assert_eq!(
                (answer.status.as_u16(), answer.header("access-control-allow-origin")),
                (403, ""),
                "{origin}"
            );
        }
    }
    assert!(world.backend("b").seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn all_spellings_of_a_path_mean_the_same() {
    let world = World::new(&[("b", 8000)], "");
    for path in [
        "/v1/chat/completions",
        "/chat/completions",
        "/v1/v1/chat/completions",
        "/v1/chat/completions?beta=true",
    ] {
        world.backend("b").then(Reply::says("ok"));
        assert_eq!(world.post(path, &ask("hi")).await.status, 200, "{path}");
    }
    let paths: Vec<String> = world.backend("b").seen().into_iter().map(|seen| seen.path).collect();
    let plain = "/v1/chat/completions";
    assert_eq!(paths, [plain, plain, plain, "/v1/chat/completions?beta=true"]);
}

#[tokio::test(start_paused = true)]
async fn metrics_and_readiness_tell_what_happened() {
    let world = World::new(&[("b", 8000)], "");
    world.backend("b").then(Reply::counted("ok", 7));
    world.chat(&ask("hi")).await;
    let metrics = world.get("/metrics").await.body;
    for line in [
        "switchback_requests_total{backend=\"b\",outcome=\"answered\"} 1",
        "switchback_prompt_tokens_total{backend=\"b\"} 7",
        "switchback_requests_in_flight 0",
        "switchback_backend_up{backend=\"b\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert_eq!(world.get("/ready").await.status, 200);
}
