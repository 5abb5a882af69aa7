//! What is no engine, or a broken one.

use switchback_policies::facts::BackendState;

use super::{Found, Page, Site, TIMEOUT, llama_cpp, vllm};
use crate::backend::probe::ask::ANSWER_LIMIT;

fn list(status: u16, head: &'static str, body: &str) -> Site {
    let site = Site::default();
    site.page("/v1/models", Page::Answer(status, head, body.to_owned()));
    site
}

#[tokio::test(start_paused = true)]
async fn pages_redirects_and_nonsense_are_there_but_serve_nothing() {
    for (status, head, body) in [
        (200, "content-type: text/html\r\n", "<!doctype html><title>A web page</title>"),
        (404, "", "File not found"),
        (302, "location: /login\r\n", ""),
        (200, "", r#"{"data":"none"}"#),
        (200, "", r#"{"object":"list","data":null}"#),
        (200, "", r#"{"data":[{"name":"x"},7,null,{"id":""}]}"#),
        (200, "", r#"[{"id":"x"}]"#),
        (200, "", r#"{"data":[{"id":"x""#),
        (200, "content-encoding: br\r\n", r#"{"data":[{"id":"x"}]}"#),
        (200, "content-encoding: gzip\r\n", r#"{"data":[{"id":"x"}]}"#),
    ] {
        let site = list(status, head, body);
        assert_eq!(site.found("").await, (BackendState::Up, Found::default()), "{status} {body}");
        assert_eq!(site.asked(), ["GET /v1/models"], "{status} {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_in_between_that_has_nobody_behind_it_gets_no_requests() {
    use BackendState::{Absent, Dead};
    for (status, state) in [(502, Absent), (503, Dead), (504, Absent)] {
        let site = list(status, "", "<html>Bad Gateway</html>");
        assert_eq!(site.found("").await.0, state, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_endless_list_is_read_to_its_limit_only() {
    let site = list(200, "", &format!(r#"{{"data":[{{"id":"{}"}}]}}"#, "x".repeat(ANSWER_LIMIT)));
    assert_eq!(site.found("").await, (BackendState::Up, Found::default()));
}

#[tokio::test(start_paused = true)]
async fn who_takes_a_connection_and_says_nothing_in_time_is_not_up() {
    for page in [Page::Hangs, Page::Stops(r#"{"data":[{"id":"x"}]"#.to_owned())] {
        let site = Site::default();
        site.page("/v1/models", page);
        assert_eq!(site.found("").await, (BackendState::Absent, Found::default()));
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_there_is_absent() {
    let site = Site::default();
    site.listens(false);
    assert_eq!(site.found("").await, (BackendState::Absent, Found::default()));
}

#[tokio::test(start_paused = true)]
async fn a_vllm_whose_engine_died_is_dead_although_it_lists_its_models() {
    let site = vllm();
    site.page("/health", Page::Answer(503, "", String::new()));
    assert_eq!(site.found("").await, (BackendState::Dead, Found::default()));
}

#[tokio::test(start_paused = true)]
async fn a_llama_cpp_that_loads_answers_so_on_every_path() {
    let site = llama_cpp();
    let loading = r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#;
    site.page("/v1/models", Page::Answer(503, "", loading.into()));
    site.page("/health", Page::Answer(503, "", loading.into()));
    assert_eq!(site.found("").await, (BackendState::Loading, Found::default()));
}

#[tokio::test(start_paused = true)]
async fn pages_of_one_engine_that_break_leave_the_rest() {
    let site = vllm();
    site.page("/metrics", Page::Answer(200, "", "<html>\u{0}{}{{{} vllm:num_requests_running".into()));
    site.page("/version", Page::Answer(500, "", "oops".into()));
    let (state, found) = site.found("").await;
    assert_eq!(
        (state, found.window, found.pool, found.version),
        (BackendState::Up, Some(262_144), None, None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_that_wants_a_key_takes_nothing_away_from_what_was_known() {
    let site = vllm();
    let backend = site.backend("");
    super::super::once(&backend, TIMEOUT).await;
    let known = backend.found.read().clone();
    site.page("/v1/models", Page::Answer(401, "", r#"{"error":"Unauthorized"}"#.into()));
    super::super::once(&backend, TIMEOUT).await;
    assert_eq!((backend.state(), &*backend.found.read()), (BackendState::Up, &known));
}
