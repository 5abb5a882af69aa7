//! How long a prompt is, by the model's own vocabulary, and what its backend says to that.

use crate::harness::{Reply, World, ask};

/// A vocabulary of 609 tokens with a template of Qwen's kind.
const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../parsers/tests/fixtures/tiny");

/// A proxy that has read its vocabulary, and what it counts for `text`.
async fn counted(text: &str) -> (World, u64) {
    let world = World::new(&[("b", 8000)], &format!("tokenizer = {TINY:?}"));
    loop {
        world.backend("b").then(Reply::says("ok"));
        let answer = world.chat(&ask(text)).await;
        if let Ok(tokens) = answer.header("x-switchback-tokens").parse() {
            return (world, tokens);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_difference_from_the_backends_own_count_is_learned_when_it_stays() {
    let (world, ours) = counted("hello world").await;
    for _ in 0..3 {
        world.backend("b").then(Reply::counted("ok", ours + 7));
        let answer = world.chat(&ask("hello world")).await;
        assert_eq!(answer.header("x-switchback-tokens"), ours.to_string());
    }
    world.backend("b").then(Reply::counted("ok", ours + 7));
    let answer = world.chat(&ask("hello world")).await;
    assert_eq!(answer.header("x-switchback-tokens"), format!("{}-{}", ours + 7, ours + 14));
    let metrics = world.get("/metrics").await.body;
    let learned = "switchback_count_correction_tokens{backend=\"b\"} 7";
    assert!(metrics.contains(learned), "{metrics}");
    // One that agrees ends it.
    world.backend("b").then(Reply::counted("ok", ours)).then(Reply::says("ok"));
    world.chat(&ask("hello world")).await;
    let answer = world.chat(&ask("hello world")).await;
    assert_eq!(answer.header("x-switchback-tokens"), ours.to_string());
}

#[tokio::test(start_paused = true)]
async fn a_prompt_far_beyond_every_limit_is_refused_without_being_counted_to_its_end() {
    let (world, _) = counted("hello").await;
    let answer = world.chat(&ask(&"some words of no use ".repeat(20_000))).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.error()["code"], "context_length_exceeded");
}
