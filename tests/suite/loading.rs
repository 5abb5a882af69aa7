//! One card, several backends: whoever asks for one that is not there waits for it, and is answered.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::harness::{Answer, Reply, Step, Swapper, World, ask, ask_stream, delta, finish, role, words};

/// Two backends on one card, of which the small one is there.
fn card(more: &str) -> (Arc<World>, Arc<Swapper>) {
    let (world, swapper) = World::on_one_card(&[("small", 8000), ("large", 100_000)], more);
    (Arc::new(world), swapper)
}

/// A chat with one model, streamed.
fn stream_of(model: &str, text: &str) -> String {
    ask_stream(text).replace("\"m\"", &format!("{model:?}"))
}

fn plain_of(model: &str) -> String {
    ask("hi").replace("\"m\"", &format!("{model:?}"))
}

/// Sends a request on a connection of its own, and reads its answer to the end.
fn asks(world: &Arc<World>, body: String) -> tokio::task::JoinHandle<Answer> {
    let world = world.clone();
    tokio::spawn(async move { world.chat(&body).await })
}

async fn answer(task: tokio::task::JoinHandle<Answer>) -> Answer {
    task.await.expect("an answer")
}

fn pause(seconds: u64) -> Step {
    Step::Pause(Duration::from_secs(seconds))
}

/// A stream that goes on for so long.
fn long(seconds: u64) -> Reply {
    let end = Step::Send("data: [DONE]\n\n".to_owned());
    Reply::stream(vec![role(), delta("one"), pause(seconds), delta("two"), finish("stop"), end])
}

#[tokio::test(start_paused = true)]
async fn three_clients_that_arrive_during_a_swap_of_100_s_are_all_answered_and_none_times_out() {
    let (world, swapper) = card("");
    // Nobody has used the small one for a while.
    tokio::time::sleep(Duration::from_secs(120)).await;
    for _ in 0..3 {
        world.backend("large").then(Reply::streams(&["Here."]));
    }
    let began = Instant::now();
    let first = asks(&world, ask_stream(&words(20_000)));
    swapper.until_switches(1).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let second = asks(&world, stream_of("only-large", "hi"));
    tokio::time::sleep(Duration::from_secs(30)).await;
    let third = asks(&world, stream_of("only-large", "ho"));
    for task in [first, second, third] {
        let answer = answer(task).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(answer.ended && answer.body.contains("Here."), "{}", answer.body);
        assert!(!answer.body.contains("error"), "{}", answer.body);
        // No client hears nothing for longer than the usual keep-alive.
        assert!(answer.body.contains(": waiting, large is being loaded, position "), "{}", answer.body);
    }
    assert_eq!(swapper.switches(), ["large"], "one load for all three");
    assert!((100..104).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_the_one_that_is_there_can_answer_causes_no_swap_however_the_operator_ordered_them() {
    let (world, swapper) = World::on_one_card(&[("large", 100_000), ("small", 8000)], "");
    swapper.has("small");
    world.backend("small").then(Reply::says("ok"));
    let answer = world.chat(&ask("hi")).await;
    assert_eq!((answer.status.as_u16(), answer.header("x-switchback-backend")), (200, "small"));
    assert!(swapper.switches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_answer_says_that_it_waited_for_a_load_and_plain_answers_wait_as_well() {
    let (world, swapper) = card("");
    tokio::time::sleep(Duration::from_secs(120)).await;
    world.backend("large").then(Reply::says("Here."));
    let answer = world.chat(&plain_of("only-large")).await;
    assert_eq!((answer.status.as_u16(), answer.header("x-switchback-backend")), (200, "large"));
    let reason = answer.header("x-switchback-reason");
    assert!(reason.contains("; waited 100 s until it was loaded"), "{reason}");
    assert_eq!(swapper.switches(), ["large"]);
    let health = world.get("/health").await.json();
    assert_eq!(
        (&health["backends"]["small"], &health["backends"]["large"]),
        (&"not loaded".into(), &"up".into())
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_runs_is_never_cut_by_a_swap_and_who_comes_meanwhile_waits_for_the_way_back() {
    let (world, swapper) = card("min_residency = \"60s\"\n");
    world.backend("small").then(long(100)).then(Reply::streams(&["back"]));
    world.backend("large").then(Reply::streams(&["Here."]));
    let runs = asks(&world, stream_of("small", "hi"));
    world.backend("small").until_seen(1).await;
    let swaps = asks(&world, stream_of("large", "hi"));
    // The residency is over, the answer is not.
    tokio::time::sleep(Duration::from_secs(80)).await;
    assert!(swapper.switches().is_empty());
    let late = asks(&world, stream_of("small", "ho"));
    let runs = answer(runs).await;
    assert!(
        runs.ended && runs.body.contains("two") && runs.body.ends_with("data: [DONE]\n\n"),
        "{}",
        runs.body
    );
    assert!(answer(swaps).await.body.contains("Here."));
    assert!((100..103).contains(&swapper.last_switch()), "{}", swapper.last_switch());
    assert_eq!(world.backend("small").seen().len(), 1, "it gets nothing new once it is to go");
    assert!(answer(late).await.body.contains("back"));
    assert_eq!(swapper.switches(), ["large", "small"]);
    assert!(swapper.last_switch() >= 260, "the large one stays for its 60 s: {}", swapper.last_switch());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_takes_its_wish_back_and_a_load_that_runs_goes_on() {
    let (world, swapper) = card("");
    world.backend("small").then(long(200));
    let runs = asks(&world, stream_of("small", "hi"));
    world.backend("small").until_seen(1).await;
    let gone = asks(&world, stream_of("large", "hi"));
    tokio::time::sleep(Duration::from_secs(20)).await;
    gone.abort();
    assert!(answer(runs).await.ended);
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert!(swapper.switches().is_empty(), "nobody wants it any more");

    let gone = asks(&world, stream_of("large", "hi"));
    swapper.until_switches(1).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    gone.abort();
    world.backend("large").then(Reply::streams(&["Here."]));
    let next = world.chat(&stream_of("large", "ho")).await;
    assert!(next.body.contains("Here."), "{}", next.body);
    assert_eq!(swapper.switches(), ["large"]);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_fails_is_told_with_the_way_out_and_the_last_good_one_is_back() {
    for rolls_back in [true, false] {
        let (world, swapper) = card("");
        swapper.fails("large", 1);
        if !rolls_back {
            swapper.does_not_roll_back();
        }
        tokio::time::sleep(Duration::from_secs(120)).await;
        let answer = world.chat(&plain_of("only-large")).await;
        assert_eq!(answer.status, 503, "{}", answer.body);
        let error = answer.error();
        assert_eq!(error["code"], "not_loaded");
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.starts_with("large could not be loaded: it did not start"), "{message}");
        assert!(!message.contains("CUDA"), "{message}");
        assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|seconds| (1..=60).contains(&seconds)));
        // At once, and without another try.
        let again = world.chat(&plain_of("only-large")).await;
        assert_eq!(again.error()["code"], "not_loaded");
        world.backend("small").then(Reply::says("still here"));
        assert!(world.chat(&plain_of("only-small")).await.body.contains("still here"));
        let tried: &[&str] = if rolls_back { &["large"] } else { &["large", "small"] };
        assert_eq!(swapper.switches(), tried);
        // Later it is tried again.
        tokio::time::sleep(Duration::from_secs(120)).await;
        world.backend("large").then(Reply::says("Here."));
        assert!(world.chat(&plain_of("only-large")).await.body.contains("Here."));
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_that_fails_moves_the_request_to_the_next_that_fits() {
    let (world, swapper) = World::on_one_card(&[("small", 8000), ("large", 100_000), ("other", 90_000)], "");
    swapper.fails("large", 1);
    tokio::time::sleep(Duration::from_secs(120)).await;
    world.backend("other").then(Reply::says("Here."));
    let answer = world.chat(&ask(&words(20_000))).await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("x-switchback-backend")),
        (200, "other"),
        "{}",
        answer.body
    );
    assert_eq!(swapper.switches(), ["large", "other"]);
}

#[tokio::test(start_paused = true)]
async fn clients_that_may_not_swap_and_background_work_never_cause_one_but_wait_along() {
    let rules = "[[client]]\nname = \"guest\"\nwhen = { header = { x-who = \"guest\" } }\nmay_swap = false\n\
                 [[client]]\nname = \"nightly\"\nwhen = { header = { x-who = \"nightly\" } }\nclass = \"background\"\n";
    let (world, swapper) = card(rules);
    tokio::time::sleep(Duration::from_secs(120)).await;
    let send = async |who: &str, body: &str| {
        let mut request = crate::harness::request(http::Method::POST, "/v1/chat/completions", body);
        request.headers_mut().insert("x-who", who.parse().expect("a value"));
        world.client().await.send(request).await.whole().await
    };
    let guest = send("guest", &plain_of("only-large")).await;
    assert_eq!((guest.status.as_u16(), guest.error()["code"].clone()), (403, "model_not_allowed".into()));
    let nightly = send("nightly", &plain_of("only-large")).await;
    assert_eq!((nightly.status.as_u16(), nightly.error()["code"].clone()), (503, "not_loaded".into()));
    // A prompt that fits nowhere else is told the length that does.
    let long = send("guest", &ask(&words(20_000))).await;
    assert_eq!(long.error()["code"], "context_length_exceeded");
    assert!(swapper.switches().is_empty());

    for _ in 0..2 {
        world.backend("large").then(Reply::says("Here."));
    }
    let owner = asks(&world, plain_of("only-large"));
    swapper.until_switches(1).await;
    assert!(send("guest", &plain_of("only-large")).await.body.contains("Here."));
    assert!(answer(owner).await.body.contains("Here."));
    assert_eq!(swapper.switches(), ["large"]);
}

#[tokio::test(start_paused = true)]
async fn background_work_may_swap_where_the_operator_says_so() {
    let rule = "background = true\n[[client]]\nname = \"nightly\"\nclass = \"background\"\n";
    let (world, swapper) = card(rule);
    tokio::time::sleep(Duration::from_secs(120)).await;
    world.backend("large").then(Reply::says("Here."));
    assert!(world.chat(&plain_of("only-large")).await.body.contains("Here."));
    assert_eq!(swapper.switches(), ["large"]);
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_switch_is_waited_for_and_only_then_comes_the_own() {
    let (world, swapper) = World::on_one_card(&[("a", 8000), ("b", 8000), ("c", 8000)], "");
    let world = Arc::new(world);
    tokio::time::sleep(Duration::from_secs(120)).await;
    swapper.is_switched_by_hand("b");
    world.backend("b").then(Reply::says("from b"));
    world.backend("c").then(Reply::says("from c"));
    let b = asks(&world, plain_of("only-b"));
    let c = asks(&world, plain_of("only-c"));
    assert!(answer(b).await.body.contains("from b"));
    assert!(answer(c).await.body.contains("from c"));
    assert_eq!(swapper.switches(), ["c"], "the proxy asked for b no second time");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_flickers_or_knows_nothing_changes_nothing() {
    let (world, swapper) = card("");
    tokio::time::sleep(Duration::from_secs(60)).await;
    swapper.tells(&["absent", "healthy", "unknown", "unknown", "absent", "healthy", "unknown"]);
    for number in 0..40 {
        world.backend("small").then(Reply::says("ok"));
        let answer = world.chat(&plain_of("only-small")).await;
        assert_eq!(answer.status, 200, "{number}: {}", answer.body);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(swapper.switches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dead_swapper_takes_nothing_from_the_one_that_is_there_and_is_named_to_who_wants_another() {
    for dead_since_the_start in [true, false] {
        let (world, swapper) = card("");
        if !dead_since_the_start {
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        swapper.listens(false);
        tokio::time::sleep(Duration::from_secs(120)).await;
        world.backend("small").then(Reply::says("still here"));
        let served = world.chat(&plain_of("only-small")).await;
        assert!(served.body.contains("still here"), "{}", served.body);
        let refused = world.chat(&plain_of("only-large")).await;
        assert_eq!(refused.status, 503);
        let message = refused.error()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains("model-switch, which loads backends, does not answer"), "{message}");
        // The small one was let go for nothing, and is back.
        world.backend("small").then(Reply::says("and again"));
        swapper.listens(true);
        let served = world.chat(&plain_of("only-small")).await;
        assert!(served.body.contains("and again"), "{}", served.body);
    }
}

#[tokio::test(start_paused = true)]
async fn a_swap_by_hand_under_a_request_is_no_death_and_the_request_waits_for_its_backend() {
    let (world, swapper) = card("");
    tokio::time::sleep(Duration::from_secs(20)).await;
    world
        .backend("small")
        .then(Reply::stream(vec![role(), pause(30), Step::Cut]))
        .then(Reply::streams(&["Whole."]));
    let request = asks(&world, stream_of("only-small", &words(1000)));
    world.backend("small").until_seen(1).await;
    tokio::time::sleep(Duration::from_secs(25)).await;
    swapper.is_switched_by_hand("large");
    let answered = answer(request).await;
    assert!(answered.ended && answered.body.contains("Whole."), "{}", answered.body);
    assert_eq!(swapper.switches(), ["small"], "after the other one was idle");
    // The same length goes there again: nothing was learned.
    world.backend("small").then(Reply::says("ok"));
    let next = world.chat(&ask(&words(2000))).await;
    assert_eq!(next.header("x-switchback-backend"), "small", "{}", next.body);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_kills_the_one_that_is_there_is_answered_by_one_that_is_loaded_for_it() {
    let (world, swapper) = World::on_one_card(&[("small", 60_000), ("large", 100_000)], "");
    tokio::time::sleep(Duration::from_secs(20)).await;
    let oom =
        r#"{"object":"error","message":"CUDA out of memory. Tried to allocate 138.00 MiB.","code":500}"#;
    world.backend("small").then(Reply::json(500, oom));
    world.backend("large").then(Reply::says("Here."));
    let answer = world.chat(&ask(&words(25_000))).await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("x-switchback-backend")),
        (200, "large"),
        "{}",
        answer.body
    );
    assert_eq!(swapper.switches(), ["large"]);
}

#[tokio::test(start_paused = true)]
async fn who_would_have_to_wait_too_long_is_told_at_once_and_how_long() {
    let (world, swapper) = card("wait = \"110s\"\n");
    tokio::time::sleep(Duration::from_secs(120)).await;
    // Who was used lately is left in its place for a while.
    world.backend("small").then(Reply::says("hi"));
    assert_eq!(world.chat(&plain_of("only-small")).await.status, 200);
    let began = Instant::now();
    let refused = world.chat(&plain_of("only-large")).await;
    assert_eq!(refused.status, 503);
    let message = refused.error()["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("expected to be loaded in 160 s, the limit is 110 s"), "{message}");
    assert!(began.elapsed() < Duration::from_secs(2) && swapper.switches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_largest_window_that_can_be_loaded_is_announced() {
    let (world, _swapper) = card("");
    tokio::time::sleep(Duration::from_secs(20)).await;
    let model = world.get("/v1/models/m").await.json();
    assert_eq!(model["max_model_len"], 100_000);
}

#[tokio::test(start_paused = true)]
async fn a_reload_of_the_configuration_does_not_end_a_load() {
    let (world, swapper) = card("");
    tokio::time::sleep(Duration::from_secs(120)).await;
    world.backend("large").then(Reply::streams(&["Here."]));
    let waits = asks(&world, stream_of("only-large", "hi"));
    swapper.until_switches(1).await;
    world.reload_with("[probe]\ninterval = \"3s\"\n");
    let waits = answer(waits).await;
    assert!(waits.body.contains("Here."), "{}", waits.body);
    assert_eq!(swapper.switches(), ["large"]);
}

#[tokio::test(start_paused = true)]
async fn what_killed_a_backend_stays_its_limit_however_often_it_is_unloaded_and_loaded() {
    let (world, swapper) = World::on_one_card(&[("small", 60_000), ("large", 100_000)], "");
    tokio::time::sleep(Duration::from_secs(20)).await;
    let oom =
        r#"{"object":"error","message":"CUDA out of memory. Tried to allocate 138.00 MiB.","code":500}"#;
    world.backend("small").then(Reply::json(500, oom));
    world.backend("large").then(Reply::says("Here."));
    assert!(world.chat(&ask(&words(25_000))).await.body.contains("Here."));
    for _ in 0..3 {
        for name in ["small", "large"] {
            tokio::time::sleep(Duration::from_secs(120)).await;
            world.backend(name).then(Reply::says("Hello."));
            let answer = world.chat(&plain_of(&format!("only-{name}"))).await;
            assert!(answer.body.contains("Hello."), "{}", answer.body);
        }
    }
    assert_eq!(swapper.switches().len(), 7);
    let refused = world.chat(&ask(&words(24_500)).replace("\"m\"", "\"only-small\"")).await;
    assert_eq!(refused.error()["code"], "context_length_exceeded", "{}", refused.body);
}
