//! Backends that share one address, behind a llama-swap or a model-switch: no request ever reaches another one than its own.

use std::sync::Arc;
use std::time::Duration;

use crate::harness::{Reply, World, ask, words};

fn of(model: &str) -> String {
    ask("hi").replace("\"m\"", &format!("{model:?}"))
}

const SWAP: &str = "[loader]\ndriver = \"llama-swap\"\nurl = \"http://swap\"\nidle = \"1s\"\n";

#[tokio::test(start_paused = true)]
async fn llama_swap_is_asked_for_a_model_only_once_that_is_there_and_by_the_name_that_it_knows() {
    let (world, swap) = World::behind_llama_swap(&["org/qwen:27b", "gemma"], SWAP);
    let world = Arc::new(world);
    let mut tasks = Vec::new();
    for number in 0..6 {
        let (world, model) =
            (world.clone(), if number % 2 == 0 { "only-org/qwen:27b" } else { "only-gemma" });
        tasks.push(tokio::spawn(async move { world.chat(&of(model)).await }));
    }
    for (number, task) in tasks.into_iter().enumerate() {
        let answer = task.await.expect("an answer");
        let who = if number % 2 == 0 { "I am org/qwen:27b." } else { "I am gemma." };
        assert!(answer.status == 200 && answer.body.contains(who), "{number}: {}", answer.body);
    }
    assert_eq!(swap.loads(), ["org/qwen:27b", "gemma"], "not back and forth with every request");
    assert_eq!(swap.unloads(), ["org/qwen:27b"]);
    assert!(swap.swapped_by_request().is_empty());
    // What both can answer goes to the one that is there.
    let answer = world.chat(&ask("hi")).await;
    assert!(answer.body.contains("I am gemma."), "{}", answer.body);
    assert_eq!(swap.answered().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn what_llama_swap_unloads_by_itself_is_loaded_again_by_who_needs_it() {
    let (world, swap) = World::behind_llama_swap(&["qwen", "gemma"], SWAP);
    assert!(world.chat(&of("only-qwen")).await.body.contains("I am qwen."));
    swap.unloads_by_itself();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(world.chat(&of("only-qwen")).await.body.contains("I am qwen."));
    assert_eq!(swap.loads(), ["qwen", "qwen"]);
    assert!(swap.swapped_by_request().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_model_that_llama_swap_cannot_start_or_does_not_know_is_told() {
    let (world, swap) = World::behind_llama_swap(&["qwen", "broken"], SWAP);
    assert!(world.chat(&of("only-qwen")).await.body.contains("I am qwen."));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let refused = world.chat(&of("only-broken")).await;
    assert_eq!((refused.status.as_u16(), refused.error()["code"].clone()), (503, "not_loaded".into()));
    assert!(refused.body.contains("broken could not be loaded: it did not start"), "{}", refused.body);
    assert!(world.chat(&of("only-qwen")).await.body.contains("I am qwen."));
    assert_eq!(swap.loads(), ["qwen", "broken", "qwen"], "the last good one is back");
}

#[tokio::test(start_paused = true)]
async fn backends_of_one_port_are_told_apart_by_the_service_that_loads_them() {
    let (world, swapper) = World::on_one_port(&[("small", 8000), ("large", 100_000)]);
    swapper.has("small");
    tokio::time::sleep(Duration::from_secs(120)).await;
    let port = world.backend("port");
    port.then(Reply::says("small")).then(Reply::says("large"));
    let first = world.chat(&ask("hi")).await;
    assert_eq!(first.header("x-switchback-backend"), "small", "{}", first.body);
    let health = world.get("/health").await.json();
    assert_eq!(health["backends"]["large"], "not loaded", "somebody answers there, and it is not this one");
    tokio::time::sleep(Duration::from_secs(120)).await;
    let second = world.chat(&ask(&words(20_000))).await;
    assert_eq!(second.header("x-switchback-backend"), "large", "{}", second.body);
    assert_eq!(swapper.switches(), ["large"]);
    let models: Vec<_> = port.seen().iter().map(|seen| seen.json()["model"].clone()).collect();
    assert_eq!(models, ["small", "large"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_loaded_to_count_a_prompt() {
    let (world, swap) = World::behind_llama_swap(&["qwen", "gemma"], SWAP);
    assert!(world.chat(&of("only-qwen")).await.body.contains("I am qwen."));
    tokio::time::sleep(Duration::from_secs(120)).await;
    let body = of("only-gemma").replacen('{', "{\"max_tokens\":5,", 1);
    let counted = world.post("/v1/messages/count_tokens", &body).await;
    assert_eq!(
        (counted.status.as_u16(), counted.json()["error"]["code"].clone()),
        (503, "not_loaded".into())
    );
    assert_eq!(swap.loads(), ["qwen"]);
}

#[tokio::test(start_paused = true)]
async fn two_proxies_of_one_card_take_turns_and_answer_all() {
    let (one, swapper) = World::on_one_card(&[("small", 8000), ("large", 100_000)], "");
    let (one, two) = (Arc::new(one.twin()), Arc::new(one));
    tokio::time::sleep(Duration::from_secs(120)).await;
    for _ in 0..3 {
        world_says(&one);
    }
    let mut tasks = Vec::new();
    for number in 0..6 {
        let (world, model) =
            if number % 2 == 0 { (one.clone(), "only-small") } else { (two.clone(), "only-large") };
        tasks.push(tokio::spawn(async move { world.chat(&of(model)).await }));
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    for task in tasks {
        let answer = task.await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    // Neither undoes at once what the other has done.
    assert!(swapper.switches().len() <= 4, "{:?}", swapper.switches());
}

fn world_says(world: &World) {
    for name in ["small", "large"] {
        world.backend(name).then(Reply::says("Here."));
    }
}
