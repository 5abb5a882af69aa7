//! One long prefill does not freeze the others, and the queue is the proxy's: ordered, cancellable, visible.

use std::time::Duration;

use tokio::time::Instant;

use crate::harness::{Answer, Reply, Step, World, ask, ask_stream, delta, finish, role, words};

/// A prompt whose prefill takes far more than two seconds on a machine of unknown speed.
fn large() -> String {
    words(40_000)
}

/// As an agent sends it: with tools.
fn agent(text: &str) -> String {
    ask_stream(text).replacen('{', r#"{"tools":[{"type":"function","function":{"name":"f"}}],"#, 1)
}

fn pause(seconds: u64) -> Step {
    Step::Pause(Duration::from_secs(seconds))
}

/// A stream that speaks after `before` seconds and goes on for `after`.
fn speaks(before: u64, after: u64) -> Reply {
    let end = Step::Send("data: [DONE]\n\n".to_owned());
    let steps = vec![pause(before), role(), delta("one"), pause(after), delta("two"), finish("stop"), end];
    Reply::stream(steps)
}

fn one(more: &str) -> World {
    World::new(&[("dual", 262_144)], more)
}

/// One that runs a request at a time.
fn single(more: &str) -> World {
    World::configured(&format!(
        "[[backend]]\nname = \"single\"\nurl = \"http://single\"\nengine = \"vllm\"\nwindow = 32768\nslots = 1\nmodel = \"m\"\n{more}"
    ))
}

/// Sends a request on a connection of its own, and reads its answer to the end.
fn asks(world: &std::sync::Arc<World>, body: String) -> tokio::task::JoinHandle<Answer> {
    let world = world.clone();
    tokio::spawn(async move { world.chat(&body).await })
}

#[tokio::test(start_paused = true)]
async fn a_prefill_place_is_freed_at_the_first_token_and_not_at_the_head_or_a_progress_report() {
    let world = std::sync::Arc::new(one(""));
    let progress = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}],"prompt_progress":{"total":40000,"cache":0,"processed":2048,"time_ms":2000}}"#;
    let mut steps = vec![Step::Send(format!("{progress}\n\n")), pause(30), role(), delta("one"), pause(60)];
    steps.extend([finish("stop"), Step::Send("data: [DONE]\n\n".to_owned())]);
    world.backend("dual").then(Reply::stream(steps)).then(speaks(0, 0));
    let begins = Instant::now();
    let first = asks(&world, agent(&large()));
    world.backend("dual").until_seen(1).await;
    let second = asks(&world, agent(&format!("{}2", large())));
    world.backend("dual").until_seen(2).await;
    assert_eq!(begins.elapsed().as_secs(), 30, "the second is sent with the first token of the first");
    assert!(first.await.expect("an answer").ended && second.await.expect("an answer").ended);
}

#[tokio::test(start_paused = true)]
async fn a_large_prefill_waits_for_a_live_stream() {
    let world = std::sync::Arc::new(one(""));
    world.backend("dual").then(speaks(0, 12)).then(speaks(0, 0));
    let mut chat = world.client().await.post("/v1/chat/completions", &ask_stream("hi")).await;
    chat.until("one").await;
    let begins = Instant::now();
    let long = asks(&world, agent(&large()));
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(world.backend("dual").seen().len(), 1, "the long prompt was not sent beside it");
    assert!(chat.whole().await.body.contains("two"));
    let long = long.await.expect("an answer");
    assert!(long.body.contains("two"), "{}", long.body);
    assert_eq!(begins.elapsed().as_secs(), 12);
}

#[tokio::test(start_paused = true)]
async fn a_large_prefill_waits_no_longer_than_allowed_and_tells_what_the_others_may_lose() {
    let world = std::sync::Arc::new(one("[failover]\nhold_head = \"60s\"\nkeep_alive = \"60s\"\n"));
    world.backend("dual").then(speaks(0, 300)).then(speaks(0, 0));
    let mut chat = world.client().await.post("/v1/chat/completions", &ask_stream("hi")).await;
    chat.until("one").await;
    let begins = Instant::now();
    let long = world.chat(&agent(&large())).await;
    assert_eq!(begins.elapsed().as_secs(), 20);
    let reason = long.header("x-switchback-reason");
    assert!(reason.contains("waited 20.0 s, then admitted though a live stream may lose"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_short_question_passes_a_large_prefill_that_waits() {
    let world = std::sync::Arc::new(one(""));
    world.backend("dual").then(speaks(0, 15)).then(speaks(0, 0)).then(speaks(0, 0));
    let mut chat = world.client().await.post("/v1/chat/completions", &ask_stream("hi")).await;
    chat.until("one").await;
    let long = asks(&world, agent(&large()));
    let begins = Instant::now();
    assert!(world.chat(&ask_stream("and you?")).await.body.contains("two"));
    assert_eq!(begins.elapsed().as_secs(), 0);
    assert!(world.backend("dual").seen()[1].body.contains("and you?"));
    assert!(long.await.expect("an answer").ended);
}

#[tokio::test(start_paused = true)]
async fn a_large_prefill_goes_to_another_backend_that_has_no_live_stream() {
    let world = std::sync::Arc::new(World::new(&[("dual", 262_144), ("llama", 262_144)], ""));
    world.backend("dual").then(speaks(0, 100));
    world.backend("llama").then(speaks(0, 0));
    let mut chat = world.client().await.post("/v1/chat/completions", &ask_stream("hi")).await;
    chat.until("one").await;
    assert_eq!(chat.header("x-switchback-backend"), "dual");
    let long = world.chat(&agent(&large())).await;
    assert_eq!(long.header("x-switchback-backend"), "llama");
}

#[tokio::test(start_paused = true)]
async fn a_backend_gets_no_more_than_it_runs_at_once_and_the_others_keep_hearing_of_it() {
    let world = std::sync::Arc::new(single(""));
    world.backend("single").then(speaks(5, 33)).then(speaks(5, 0)).then(speaks(5, 0));
    let first = asks(&world, ask_stream("1"));
    world.backend("single").until_seen(1).await;
    let second = asks(&world, ask_stream("2"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let third = asks(&world, ask_stream("3"));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.backend("single").seen().len(), 1);
    let answers = [first, second, third].map(|answer| async { answer.await.expect("an answer") });
    let [first, second, third] = answers;
    let (first, second, third) = tokio::join!(first, second, third);
    for (answer, silences) in [(first, 0), (second, 4), (third, 4)] {
        let before = answer.body.split(": reason ").next().unwrap_or_default();
        let heard = before.split("\n\n").filter(|comment| comment.starts_with(':')).count();
        assert_eq!(heard, silences, "every ten seconds: {}", answer.body);
        assert!(answer.body.contains("two") && answer.body.ends_with("data: [DONE]\n\n"));
    }
    let order: Vec<bool> = (1..=3)
        .map(|n| world.backend("single").seen()[n - 1].body.contains(&format!("\"content\":\"{n}\"")))
        .collect();
    assert_eq!(order, [true; 3], "who came first went first");
}

#[tokio::test(start_paused = true)]
async fn who_hangs_up_in_the_queue_is_never_sent_and_who_hangs_up_in_a_place_frees_it_at_once() {
    let world = std::sync::Arc::new(single(""));
    world.backend("single").then(Reply::never()).then(speaks(0, 0));
    let running = asks(&world, ask_stream("running"));
    world.backend("single").until_seen(1).await;
    let leaves = asks(&world, ask_stream("leaves"));
    let stays = asks(&world, ask_stream("stays"));
    tokio::time::sleep(Duration::from_secs(20)).await;
    leaves.abort();
    tokio::time::sleep(Duration::from_secs(1)).await;
    running.abort();
    let begins = Instant::now();
    let stays = stays.await.expect("an answer");
    assert!(stays.body.contains("two") && begins.elapsed().as_secs() == 0);
    let seen = world.backend("single").seen();
    assert!(seen.len() == 2 && seen[1].body.contains("stays"), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_gives_its_place_back_before_the_next_is_taken() {
    let world = std::sync::Arc::new(World::configured(
        "[[backend]]\nname = \"a\"\nurl = \"http://a\"\nengine = \"vllm\"\nwindow = 9000\nslots = 1\nmodel = \"m\"\n\
         [[backend]]\nname = \"b\"\nurl = \"http://b\"\nengine = \"vllm\"\nwindow = 9000\nslots = 1\nmodel = \"m\"\n",
    ));
    for _ in 0..2 {
        world.backend("a").then(Reply::json(500, r#"{"error":{"message":"boom","code":500}}"#));
        world.backend("b").then(Reply::says("whole"));
    }
    for _ in 0..2 {
        let begins = Instant::now();
        assert!(world.chat(&ask("hi")).await.body.contains("whole"));
        assert_eq!(begins.elapsed().as_secs(), 0, "nobody holds a place any more");
    }
}

#[tokio::test(start_paused = true)]
async fn beyond_the_bounds_a_client_is_told_when_to_come_back() {
    let world = std::sync::Arc::new(single("[admission]\nqueue = 1\n"));
    world.backend("single").then(Reply::never()).then(Reply::never());
    let _running = asks(&world, ask_stream("1"));
    world.backend("single").until_seen(1).await;
    let waits = asks(&world, ask_stream("2"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let refused = world.chat(&ask_stream("3")).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.error()["code"], "queue_full");
    let wait: u64 = refused.header("retry-after").parse().expect("seconds");
    assert!((1..=60).contains(&wait), "{wait}");
    let waits = waits.await.expect("an answer");
    assert!(waits.body.contains("no place at a backend within 180 s"), "{}", waits.body);
}

#[tokio::test(start_paused = true)]
async fn a_client_has_what_its_operator_allows_it() {
    let world = std::sync::Arc::new(one(
        "[[client]]\nname = \"nightly\"\nwhen = { header = { x-who = \"nightly\" } }\n\
         token_budget = { tokens = 1000, within = \"1h\" }\n",
    ));
    world.backend("dual").then(Reply::says("1")).then(Reply::says("2"));
    let nightly = |text: &str| {
        let mut request =
            crate::harness::request(http::Method::POST, "/v1/chat/completions", &ask(&words(text.len())));
        request.headers_mut().insert("x-who", http::HeaderValue::from_static("nightly"));
        request
    };
    let first = world.client().await.send(nightly(&"x".repeat(2000))).await.whole().await;
    assert_eq!(first.status, 200);
    let second = world.client().await.send(nightly("x")).await.whole().await;
    assert_eq!((second.status.as_u16(), second.error()["code"].as_str()), (429, Some("budget_spent")));
    let seconds = second.header("retry-after");
    let told = second.error()["message"].as_str().map(str::to_owned).unwrap_or_default();
    assert_eq!(told, format!("this client's tokens are used up; try again in {seconds} s"));
    assert!(seconds.parse::<u64>().is_ok_and(|seconds| seconds > 60), "{seconds}");
    assert_eq!(world.chat(&ask("somebody else")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_place_is_told_how_it_stands_if_it_takes_comments() {
    let world = std::sync::Arc::new(single("[failover]\nkeep_alive = \"5s\"\n"));
    world.backend("single").then(speaks(0, 60)).then(speaks(0, 0)).then(speaks(0, 0));
    let first = asks(&world, ask_stream("one"));
    world.backend("single").until_seen(1).await;
    let second = asks(&world, ask_stream("two"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let third = asks(&world, ask_stream("three"));
    let (first, second) = (first.await.expect("an answer"), second.await.expect("an answer"));
    let third = third.await.expect("an answer");
    assert!(!first.body.contains(": waiting"), "{}", first.body);
    assert!(second.body.contains(": waiting, 0 before it, a place expected in "), "{}", second.body);
    assert!(third.body.contains(": waiting, 1 before it, a place expected in "), "{}", third.body);
    assert!(third.body.contains("two"), "the answer itself: {}", third.body);
}

#[tokio::test(start_paused = true)]
async fn those_behind_one_server_are_fair_among_each_other_if_it_names_them() {
    let world = std::sync::Arc::new(single(""));
    world.backend("single").then(speaks(0, 10));
    let user = |name: &str, text: &str| ask_stream(text).replacen('{', &format!(r#"{{"user":"{name}","#), 1);
    let first = asks(&world, user("greedy", "0"));
    world.backend("single").until_seen(1).await;
    let mut all = vec![first];
    for body in [user("greedy", "1"), user("greedy", "2"), user("modest", "3")] {
        world.backend("single").then(speaks(0, 1));
        all.push(asks(&world, body));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for answer in all {
        answer.await.expect("an answer");
    }
    let order: Vec<String> = world
        .backend("single")
        .seen()
        .iter()
        .map(|seen| seen.json()["user"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(order, ["greedy", "modest", "greedy", "greedy"]);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_prefill_hears_how_far_it_is_and_gets_no_report_as_an_answer() {
    let world = World::configured(
        "[[backend]]\nname = \"l\"\nurl = \"http://l\"\nengine = \"llama-cpp\"\nmodel = \"m\"\n[failover]\nhold_head = \"1s\"\nkeep_alive = \"2s\"\n",
    );
    let report = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}],"prompt_progress":{"total":731,"cache":0,"processed":128,"time_ms":2000}}"#;
    let end = Step::Send("data: [DONE]\n\n".to_owned());
    let steps =
        vec![Step::Send(format!("{report}\n\n")), pause(10), role(), delta("one"), finish("stop"), end];
    world.backend("l").then(Reply::stream(steps.clone()));
    let answer = world.chat(&ask_stream("hi")).await;
    assert!(answer.body.contains(": waiting, 128 of 731 tokens of the prompt are read\n"), "{}", answer.body);
    assert!(!answer.body.contains("prompt_progress") && answer.body.contains("one"), "{}", answer.body);
    assert_eq!(world.backend("l").seen()[0].json()["return_progress"], true);
    // Who asks for reports gets them, as they are.
    world.backend("l").then(Reply::stream(steps));
    let own = ask_stream("hi").replacen('{', r#"{"return_progress":true,"#, 1);
    assert!(world.chat(&own).await.body.contains(report));
}
