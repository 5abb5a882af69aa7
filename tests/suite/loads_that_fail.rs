//! Loads that fail, hang or are not to be had: what was there stays or comes back, and whoever waits is told why.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::harness::{Answer, Reply, Swapper, World, ask};

fn of(model: &str) -> String {
    ask("hi").replace("\"m\"", &format!("\"only-{model}\""))
}

fn streamed(model: &str) -> String {
    of(model).replacen('{', "{\"stream\":true,", 1)
}

/// Two backends on one card, of which the small one is there, and was not used for a while.
async fn card(more: &str) -> (Arc<World>, Arc<Swapper>) {
    let (world, swapper) = World::on_one_card(&[("small", 8000), ("large", 100_000)], more);
    tokio::time::sleep(Duration::from_secs(120)).await;
    (Arc::new(world), swapper)
}

fn asks(world: &Arc<World>, body: String) -> JoinHandle<Answer> {
    let world = world.clone();
    tokio::spawn(async move { world.chat(&body).await })
}

fn message(answer: &Answer) -> String {
    answer.error()["message"].as_str().unwrap_or_default().to_owned()
}

async fn says(world: &World, backend: &str) {
    world.backend(backend).then(Reply::says("Here."));
    let answer = world.chat(&of(backend)).await;
    assert!(answer.status == 200 && answer.body.contains("Here."), "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_comes_up_late_is_waited_for_and_asked_again_soon() {
    let (world, swapper) = World::on_one_card(&[("small", 8000), ("large", 100_000)], "");
    swapper.listens(false);
    let world = Arc::new(world);
    tokio::time::sleep(Duration::from_secs(61)).await;
    swapper.listens(true);
    tokio::time::sleep(Duration::from_secs(10)).await;
    swapper.listens(false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    world.backend("large").then(Reply::streams(&["Here."]));
    let waits = asks(&world, streamed("large"));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(swapper.switches().is_empty());
    swapper.listens(true);
    swapper.until_switches(1).await;
    let answer = waits.await.expect("an answer");
    assert!(answer.status == 200 && answer.body.contains("Here."), "{}", answer.body);
    let told = ": waiting, large has to be loaded, position 1, about";
    assert!(answer.body.contains(told), "{}", answer.body);
    assert!(
        answer.body.contains("s: model-switch, which loads backends, does not answer, for"),
        "{}",
        answer.body
    );
    assert!(swapper.last_switch() <= 113, "within two seconds: {}", swapper.last_switch());
}

#[tokio::test(start_paused = true)]
async fn a_service_that_stays_away_is_named_at_once_and_a_minute_later_nobody_is_refused_for_it() {
    let (world, swapper) = card("").await;
    swapper.listens(false);
    tokio::time::sleep(Duration::from_secs(120)).await;
    let refused = world.chat(&of("large")).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, "1"));
    assert!(
        message(&refused).contains("model-switch, which loads backends, does not answer"),
        "{}",
        refused.body
    );
    let health = world.get("/health").await.json();
    assert!(health["loader"].as_str().is_some_and(|said| said.contains("does not answer")), "{health}");
    says(&world, "small").await;
    swapper.listens(true);
    tokio::time::sleep(Duration::from_secs(6)).await;
    says(&world, "large").await;
    assert_eq!(world.get("/health").await.json()["loader"], "ok");
}

#[tokio::test(start_paused = true)]
async fn who_has_waited_too_long_is_told_how_long_for_what_and_the_way_out_and_the_load_goes_on() {
    let (world, swapper) = card("wait = \"120s\"\n").await;
    swapper.takes(Duration::from_secs(200));
    let refused = world.chat(&of("large")).await;
    assert_eq!((refused.status.as_u16(), refused.error()["code"].clone()), (503, "not_loaded".into()));
    let told = "large has to be loaded and was not there after 120 s, which is as long as a request waits: it is being \
                loaded, for 120 s now";
    assert!(message(&refused).starts_with(told), "{}", refused.body);
    assert!(refused.body.contains("raise wait in [loader]"), "{}", refused.body);
    says(&world, "large").await;
    assert_eq!(swapper.switches(), ["large"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_load_says_that_the_last_good_one_comes_back_and_it_does_every_time() {
    let (world, swapper) = card("").await;
    swapper.fails("large", 4).does_not_roll_back().takes(Duration::from_secs(20));
    for round in 1..=4 {
        let refused = world.chat(&of("large")).await;
        assert_eq!(refused.status, 503, "{round}: {}", refused.body);
        assert!(message(&refused).contains("; what was there before, small, comes back"), "{}", refused.body);
        says(&world, "small").await;
        let refused = world.chat(&of("large")).await;
        assert!(!message(&refused).contains("comes back"), "it is back: {}", refused.body);
        assert_eq!(swapper.switches().len(), 2 * round, "{:?}", swapper.switches());
        // Longer than it is left alone after its failures.
        tokio::time::sleep(Duration::from_secs(1000)).await;
    }
}

/// Two backends of commands, at addresses of their own.
fn by_commands(of_other: &str, of_first: &str) -> World {
    World::configured(&format!(
        "[[backend]]\nname = \"first\"\nurl = \"http://first\"\nengine = \"vllm\"\nwindow = 8000\nmodel = \"m\"\n\
         load = {{ start = [\"true\"], stop = [\"true\"]{of_first} }}\n[[model]]\nname = \"only-first\"\nbackends = [\"first\"]\n\
         [[backend]]\nname = \"other\"\nurl = \"http://other\"\nengine = \"vllm\"\nwindow = 8000\nmodel = \"n\"\n\
         load = {{ {of_other} }}\n[[model]]\nname = \"only-other\"\nbackends = [\"other\"]\n[loader]\ndriver = \"command\"\n"
    ))
}

#[tokio::test(start_paused = true)]
async fn a_start_command_that_is_not_there_or_not_executable_costs_nobody_the_place() {
    for program in ["no-such-program-of-switchback", "/", "./Cargo.toml"] {
        let world = by_commands(&format!("start = [{program:?}]"), "");
        world.backend("other").listens(false);
        tokio::time::sleep(Duration::from_secs(120)).await;
        let refused = world.chat(&of("other")).await;
        let told =
            "other could not be loaded: its start command cannot be started: see load in its [[backend]]";
        assert!(refused.status == 503 && message(&refused).starts_with(told), "{}", refused.body);
        assert!(!refused.body.contains(program), "{}", refused.body);
        says(&world, "first").await;
        let health = world.get("/health").await.json();
        assert_eq!(health["backends"]["first"], "up");
    }
}

/// Waits until the proxy says so of itself: a real program has its own time, which is not that of the test.
async fn until_health(world: &World, member: &str, says: &str) {
    while world.get("/health").await.json().pointer(member).and_then(|said| said.as_str()) != Some(says) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_command_that_hangs_is_named_and_neither_blocks_nor_changes_anything() {
    let world = by_commands("start = [\"true\"]", ", check = [\"sleep\", \"1000\"]");
    world.backend("other").listens(false);
    let told = "the check command of first did not end within 10 s: see load.check in its [[backend]]";
    until_health(&world, "/loader", told).await;
    until_health(&world, "/backends/first", "up").await;
    says(&world, "first").await;
    // Whether anybody answers there is seen without it.
    for (listens, state) in [(false, "not loaded"), (true, "up")] {
        world.backend("first").listens(listens);
        until_health(&world, "/backends/first", state).await;
    }
    says(&world, "first").await;
}
