//! What a card died of once, it does not die of again; and nobody else pays for it.

use std::time::Duration;

use crate::harness::{Reply, Step, World, ask, ask_stream, words};

const DEAD: &str = "data: {\"error\": {\"message\": \"EngineCore encountered an issue. See stack trace (above) for the root cause.\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}\n\ndata: [DONE]\n\n";

/// The engine dies after a while.
fn dies() -> Reply {
    Reply::stream(vec![Step::Pause(Duration::from_secs(2)), Step::Send(DEAD.to_owned())])
}

/// Time for a backend to be found up again.
async fn comes_back() {
    tokio::time::sleep(Duration::from_secs(3)).await;
}

#[tokio::test(start_paused = true)]
async fn a_card_that_died_of_a_prompt_gets_none_of_that_size_again_and_short_ones_go_on() {
    let world = World::new(&[("card", 60_000), ("large", 200_000)], "");
    world.backend("card").counts(30_000).then(dies());
    world.backend("large").then(Reply::streams(&["Moved."]));
    let killer = world.chat(&ask_stream(&words(25_000))).await;
    assert!(killer.body.contains("Moved."), "{}", killer.body);
    comes_back().await;

    world.backend("card").counts(28_000);
    world.backend("large").then(Reply::says("there"));
    let near = world.chat(&ask(&words(25_000))).await;
    assert_eq!(near.header("x-switchback-backend"), "large");
    let reason = near.header("x-switchback-reason");
    assert!(
        reason.contains("not card: 28000 new tokens above the 27000 held for safe: it died of 30000"),
        "{reason}"
    );

    world.backend("card").then(Reply::says("here"));
    assert_eq!(world.chat(&ask("hi")).await.header("x-switchback-backend"), "card");
}

#[tokio::test(start_paused = true)]
async fn alone_a_card_refuses_what_it_died_of_as_too_long_with_the_limit_that_it_learned() {
    let world = World::new(&[("card", 60_000)], "");
    world.backend("card").counts(30_000).then(dies());
    assert_eq!(world.chat(&ask_stream(&words(25_000))).await.error()["code"], "context_length_exceeded");
    comes_back().await;
    let again = world.chat(&ask(&words(25_000))).await;
    assert_eq!(
        (again.status.as_u16(), again.error()["code"].as_str()),
        (400, Some("context_length_exceeded"))
    );
    let message = again.error()["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("27000"), "{message}");
    assert_eq!(world.backend("card").seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn of_several_that_die_together_only_the_longest_prompt_is_the_suspect() {
    // The gate would send the second to the other backend.
    let world = World::new(&[("one", 90_000), ("two", 90_000)], "[admission]\nenabled = false\n");
    world.backend("one").then(dies()).then(dies());
    world.backend("two").then(Reply::streams(&["Moved."]));
    let (innocent, suspect) = (world.client().await, world.client().await);
    let innocent = tokio::spawn(async move {
        innocent.post("/v1/chat/completions", &ask_stream(&words(25_000))).await.whole().await
    });
    world.backend("one").until_seen(1).await;
    let suspect = tokio::spawn(async move {
        suspect.post("/v1/chat/completions", &ask_stream(&words(35_000))).await.whole().await
    });
    assert!(innocent.await.expect("an answer").body.contains("Moved."));
    assert!(suspect.await.expect("an answer").body.contains("context_length_exceeded"));
    assert_eq!(world.backend("two").seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_teaches_nothing_while_the_backend_still_answers() {
    let world = World::new(&[("card", 60_000), ("large", 200_000)], "");
    world.backend("card").counts(30_000).then(Reply::closes());
    world.backend("large").then(Reply::says("moved"));
    world.chat(&ask(&words(25_000))).await;
    comes_back().await;
    world.backend("card").then(Reply::says("here"));
    assert_eq!(world.chat(&ask(&words(25_000))).await.header("x-switchback-backend"), "card");

    world.backend("card").then(Reply::closes()).listens(true);
    world.backend("large").then(Reply::says("moved"));
    let asking = world.client().await;
    let asking =
        tokio::spawn(
            async move { asking.post("/v1/chat/completions", &ask(&words(25_000))).await.whole().await },
        );
    world.backend("card").until_seen(3).await;
    world.backend("card").listens(false);
    asking.await.expect("an answer");
    comes_back().await;
    world.backend("card").listens(true);
    comes_back().await;
    world.backend("large").then(Reply::says("there"));
    assert_eq!(world.chat(&ask(&words(25_000))).await.header("x-switchback-backend"), "large");
}
