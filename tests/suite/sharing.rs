//! Places are shared: several answers to one request, several names of one engine, budgets, and those who wait while the
//! configuration changes.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::harness::{Answer, Reply, Step, World, ask, ask_stream, delta, finish, request, role};

/// A backend of so many slots.
fn backend(name: &str, slots: u64) -> String {
    format!(
        "[[backend]]\nname = \"{name}\"\nurl = \"http://{name}\"\nengine = \"vllm\"\nwindow = 32768\nslots = {slots}\nmodel = \"m\"\n"
    )
}

fn model(backends: &[&str]) -> String {
    format!("[[model]]\nname = \"m\"\nbackends = {backends:?}\n")
}

/// A stream that goes on for so many seconds.
fn takes(seconds: u64) -> Reply {
    let end = Step::Send("data: [DONE]\n\n".to_owned());
    Reply::stream(vec![role(), delta("one"), Step::Pause(Duration::from_secs(seconds)), finish("stop"), end])
}

fn asks(world: &Arc<World>, body: String) -> JoinHandle<Answer> {
    let world = world.clone();
    tokio::spawn(async move { world.chat(&body).await })
}

/// The first runs for ever at `a`, two wait.
async fn two_wait(text: &str) -> (Arc<World>, [JoinHandle<Answer>; 3]) {
    let world = Arc::new(World::configured(text));
    world.backend("a").then(Reply::never());
    let first = asks(&world, ask_stream("1"));
    world.backend("a").until_seen(1).await;
    let second = asks(&world, ask_stream("2"));
    sleep(Duration::from_secs(1)).await;
    let third = asks(&world, ask_stream("3"));
    sleep(Duration::from_secs(9)).await;
    (world, [first, second, third])
}

fn seen(world: &World, name: &str) -> Vec<String> {
    let text =
        |body: serde_json::Value| body["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
    world.backend(name).seen().iter().map(|seen| text(seen.json())).collect()
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_a_backend_that_a_reload_removes_go_to_the_others_in_their_order() {
    let both = format!("{}{}{}", backend("a", 1), backend("b", 1), model(&["a"]));
    let (world, [first, second, third]) = two_wait(&both).await;
    world.backend("b").then(takes(5)).then(takes(5));
    world.reload(&format!("{}{}", backend("b", 1), model(&["b"])));
    let begins = Instant::now();
    for answer in [second, third] {
        assert!(answer.await.expect("an answer").ended);
    }
    assert_eq!((begins.elapsed().as_secs(), seen(&world, "b")), (10, vec!["2".to_owned(), "3".to_owned()]));
    assert!(!first.is_finished(), "what runs goes on as it was begun");
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_see_slots_and_backends_that_a_reload_adds() {
    let both = format!("{}{}{}", backend("a", 1), backend("b", 1), model(&["a"]));
    let (world, [_first, second, third]) = two_wait(&both).await;
    world.backend("a").then(takes(0));
    world.backend("b").then(takes(0));
    world.reload(&format!("{}{}{}", backend("a", 2), backend("b", 1), model(&["a", "b"])));
    let begins = Instant::now();
    for answer in [second, third] {
        assert!(answer.await.expect("an answer").ended);
    }
    assert_eq!(begins.elapsed().as_secs(), 0);
    assert_eq!(world.backend("a").seen().len() + world.backend("b").seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_reload_lets_nobody_wait_longer() {
    let bounded = format!("{}{}[admission]\nqueue_timeout = \"20s\"\n", backend("a", 1), model(&["a"]));
    let (world, [_first, second, _third]) = two_wait(&bounded).await;
    let begins = Instant::now();
    for _ in 0..3 {
        world.reload(&bounded);
        sleep(Duration::from_secs(1)).await;
    }
    assert!(second.await.expect("an answer").body.contains("no place at a backend within 20 s"));
    assert_eq!(begins.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_a_reload_takes_away_is_told_to_those_who_wait_for_it() {
    let both = format!("{}{}{}", backend("a", 1), backend("b", 1), model(&["a"]));
    let (world, [_first, second, _third]) = two_wait(&both).await;
    world.reload(&format!(
        "{}[[model]]\nname = \"other\"\nbackends = [\"b\"]\n",
        backend("b", 1).replace("\"m\"", "\"x\"")
    ));
    let second = second.await.expect("an answer");
    assert!(second.body.contains("model_not_found"), "{}", second.body);
}

#[tokio::test(start_paused = true)]
async fn the_bound_of_waiting_holds_over_failed_attempts_together() {
    let text = format!(
        "{}{}{}[admission]\nqueue_timeout = \"20s\"\n[failover]\nhold_head = \"60s\"\nkeep_alive = \"60s\"\n",
        backend("a", 1),
        backend("b", 1),
        model(&["a", "b"])
    );
    let world = Arc::new(World::configured(&text));
    world.backend("a").then(takes(15));
    world.backend("b").then(Reply::never());
    let _first = asks(&world, ask_stream("1"));
    world.backend("a").until_seen(1).await;
    let _second = asks(&world, ask_stream("2"));
    world.backend("b").until_seen(1).await;
    world
        .backend("a")
        .then(Reply::json(500, r#"{"error":{"message":"boom","code":500}}"#))
        .then(Reply::never());
    let begins = Instant::now();
    let third = world.chat(&ask_stream("3")).await;
    assert_eq!(world.backend("a").seen().len(), 2, "it was tried there");
    assert_eq!((third.status.as_u16(), third.error()["code"].as_str()), (503, Some("wait_too_long")));
    assert!(begins.elapsed() <= Duration::from_secs(20), "{:?}", begins.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_budget_is_charged_with_what_was_used_and_not_with_the_limit_that_was_asked_for() {
    let world = Arc::new(World::new(
        &[("dual", 262_144)],
        "[[client]]\nname = \"nightly\"\nwhen = { header = { x-who = \"nightly\" } }\n\
         token_budget = { tokens = 3000, within = \"1h\" }\n",
    ));
    let nightly = || {
        let body = ask("hi").replacen('{', r#"{"max_tokens":5000,"#, 1);
        let mut request = request(http::Method::POST, "/v1/chat/completions", &body);
        request.headers_mut().insert("x-who", http::HeaderValue::from_static("nightly"));
        request
    };
    // One that fails, and one whose client leaves before it was sent anything.
    world.backend("dual").then(Reply::json(500, r#"{"error":{"message":"boom","code":500}}"#));
    assert_eq!(world.client().await.send(nightly()).await.whole().await.status, 502);
    world.backend("dual").then(Reply::never());
    let (inside, body) = (world.clone(), nightly());
    let leaves = tokio::spawn(async move { inside.client().await.send(body).await.whole().await });
    world.backend("dual").until_seen(2).await;
    leaves.abort();
    for _ in 0..5 {
        world.backend("dual").then(Reply::counted("one", 30));
        let answer = world.client().await.send(nightly()).await.whole().await;
        assert_eq!(answer.status, 200, "{} {}", answer.body, answer.header("x-switchback-tokens"));
    }
    world.backend("dual").then(Reply::counted("a long one", 6000));
    assert_eq!(world.client().await.send(nightly()).await.whole().await.status, 200);
    assert_eq!(world.client().await.send(nightly()).await.whole().await.status, 429);
}

#[tokio::test(start_paused = true)]
async fn several_answers_and_several_prompts_take_as_many_slots() {
    let world = Arc::new(World::configured(&format!("{}{}", backend("a", 4), model(&["a"]))));
    let three = ask_stream("1").replacen('{', r#"{"n":3,"#, 1);
    world.backend("a").then(takes(10)).then(takes(0));
    let first = asks(&world, three);
    world.backend("a").until_seen(1).await;
    let begins = Instant::now();
    let two = r#"{"model":"m","prompt":["one","two"],"stream":true}"#;
    world.post("/v1/completions", two).await;
    assert_eq!(begins.elapsed().as_secs(), 10, "three of four slots were taken");
    assert!(first.await.expect("an answer").ended);
}

#[tokio::test(start_paused = true)]
async fn two_names_of_one_engine_share_its_slots() {
    let second = backend("a", 1).replacen("\"a\"", "\"again\"", 1);
    let world =
        Arc::new(World::configured(&format!("{}{second}{}", backend("a", 1), model(&["a", "again"]))));
    world.backend("a").then(takes(10)).then(takes(0));
    let first = asks(&world, ask_stream("1"));
    world.backend("a").until_seen(1).await;
    let begins = Instant::now();
    assert!(world.chat(&ask_stream("2")).await.ended);
    assert_eq!(begins.elapsed().as_secs(), 10);
    assert!(first.await.expect("an answer").ended);
}
