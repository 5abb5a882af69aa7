//! A backend that answers worse than it did is asked after all others, until it has proved itself or is another one.

use std::time::Duration;

use serde_json::json;

use crate::harness::{Reply, Step, World, delta, finish, role};

/// A request that may call `look`, in a conversation of its own.
fn ask(conversation: &str, stream: bool) -> String {
    let tools = json!([{ "type": "function", "function": { "name": "look", "parameters": {
        "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] } } }]);
    json!({ "model": "m", "stream": stream, "tools": tools,
        "messages": [{ "role": "user", "content": conversation }] })
    .to_string()
}

/// A whole answer that calls a tool.
fn calls(name: &str, arguments: &str) -> Reply {
    let call =
        json!([{ "id": "c1", "type": "function", "function": { "name": name, "arguments": arguments } }]);
    let message = json!({ "role": "assistant", "content": null, "tool_calls": call });
    let choice = json!({ "index": 0, "message": message, "finish_reason": "tool_calls" });
    Reply::json(200, &json!({ "id": "c", "object": "chat.completion", "choices": [choice] }).to_string())
}

fn sound() -> Reply {
    calls("look", r#"{"path":"/a"}"#)
}

/// A whole streamed answer of these words.
fn says(words: &str) -> Reply {
    Reply::stream(vec![role(), delta(words), finish("stop"), Step::Send("data: [DONE]\n\n".to_owned())])
}

/// Has the first backend answer so, each time in another conversation.
async fn answers(world: &World, times: usize, stream: bool, reply: impl Fn() -> Reply) {
    for nth in 0..times {
        world.backend("one").then(reply());
        world.chat(&ask(&format!("conversation {nth}"), stream)).await;
    }
}

/// Who answers the next request of a new conversation.
async fn next(world: &World) -> String {
    world.backend("one").then(sound());
    world.backend("two").then(sound());
    world.chat(&ask("another conversation", false)).await.header("x-switchback-backend").to_owned()
}

/// One backend whose calls have collapsed, and one beside it.
async fn collapsed(more: &str) -> World {
    let world = World::new(&[("one", 8000), ("two", 8000)], more);
    answers(&world, 45, false, sound).await;
    answers(&world, 12, false, || calls("look", r#"{"pa"#)).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_backend_whose_calls_fall_apart_is_asked_after_all_others_and_it_is_told_why() {
    let world = collapsed("").await;
    assert_eq!(next(&world).await, "two");
    let metrics = world.get("/metrics").await.body;
    assert!(metrics.contains("switchback_backend_needs_restart{backend=\"one\"} 1"), "{metrics}");
    let health = world.get("/health").await.body;
    assert!(health.contains("needs a restart: 10 of its last 20 answers with calls are flawed"), "{health}");
    // Whoever is left alone with it is served.
    world.backend("two").listens(false);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let answer = world.chat(&ask("yet another", false)).await;
    assert_eq!(answer.header("x-switchback-backend"), "one");
    assert!(answer.header("x-switchback-reason").contains("answers much worse than it used to"));
}

#[tokio::test(start_paused = true)]
async fn it_gets_work_again_once_it_has_called_as_it_was_asked_to() {
    let world = collapsed("").await;
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(next(&world).await, "two", "it has answered the question for a call with words");
    world.backend("one").proves_itself(calls("report", r#"{"word":"well"}"#));
    tokio::time::sleep(Duration::from_secs(90)).await;
    world.backend("one").then(sound());
    let answer = world.chat(&ask("a third conversation", false)).await;
    assert_eq!(answer.header("x-switchback-backend"), "one");
}

#[tokio::test(start_paused = true)]
async fn it_gets_work_again_after_a_restart() {
    let world = collapsed("").await;
    world.backend("one").listens(false);
    tokio::time::sleep(Duration::from_secs(20)).await;
    world.backend("one").listens(true);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(next(&world).await, "one");
}

#[tokio::test(start_paused = true)]
async fn it_gets_work_again_if_its_entry_is_changed_and_is_never_judged_if_the_operator_says_so() {
    let world = collapsed("").await;
    let text = |quality: &str| {
        format!(
            "[[backend]]\nname = \"one\"\nurl = \"http://one\"\nengine = \"vllm\"\nwindow = 8000\nmodel = \"m\"\nquality = \"{quality}\"\n\
             [[backend]]\nname = \"two\"\nurl = \"http://two\"\nengine = \"vllm\"\nwindow = 8000\nmodel = \"m\"\n\
             [[model]]\nname = \"m\"\nbackends = [\"one\", \"two\"]\n"
        )
    };
    world.reload(&text("tell"));
    assert_eq!(next(&world).await, "one");
    answers(&world, 45, false, sound).await;
    answers(&world, 20, false, || calls("look", "{}")).await;
    assert!(world.get("/health").await.body.contains("needs a restart"));
    world.backend("one").then(sound());
    let told = world.chat(&ask("told", false)).await;
    assert_eq!(told.header("x-switchback-backend"), "one", "told, and not drained");
    world.reload(&text("ignore"));
    answers(&world, 45, false, sound).await;
    answers(&world, 20, false, || calls("look", "{}")).await;
    assert!(!world.get("/health").await.body.contains("needs a restart"));
}

#[tokio::test(start_paused = true)]
async fn streamed_calls_are_looked_at_as_they_leave() {
    let world = World::new(&[("one", 8000), ("two", 8000)], "");
    let call = |name: &str| {
        format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {{\"path\": \"/a\"}}}}\n</tool_call>")
    };
    // A backend that parses nothing: its calls are found in the text, and that is as good.
    answers(&world, 60, true, || says(&call("look"))).await;
    assert!(!world.get("/health").await.body.contains("needs a restart"));
    // Then they can no longer be read.
    answers(&world, 12, true, || {
        says("<tool_call>\n{\"name\": \"look\", \"arguments\": {\"path\": !!!}}\n</tool_call>")
    })
    .await;
    let health = world.get("/health").await.body;
    assert!(health.contains("mostly calls that cannot be read"), "{health}");
    assert_eq!(next(&world).await, "two");
}

#[tokio::test(start_paused = true)]
async fn neither_a_tool_that_never_worked_nor_one_conversation_drains_a_backend() {
    let world = World::new(&[("one", 8000), ("two", 8000)], "");
    answers(&world, 45, false, sound).await;
    for nth in 0..60 {
        world.backend("one").then(calls("look", "{}"));
        let odd = ask(&format!("odd {nth}"), false).replace("\"path\"", "\"odd\"");
        world.chat(&odd).await;
        world.backend("one").then(calls("look", "{}"));
        world.chat(&ask("one that went astray", false)).await;
    }
    assert!(!world.get("/health").await.body.contains("needs a restart"));
    assert_eq!(next(&world).await, "one");
}

#[tokio::test(start_paused = true)]
async fn every_second_answer_empty_drains_a_backend_that_never_was_so() {
    let world = World::new(&[("one", 8000), ("two", 8000)], "");
    answers(&world, 45, false, || Reply::says("well")).await;
    for nth in 0..12 {
        for reply in [Reply::says("well"), Reply::says("")] {
            world.backend("one").then(reply);
            world.chat(&ask(&format!("conversation {nth}"), false)).await;
        }
    }
    let health = world.get("/health").await.body;
    assert!(health.contains("mostly empty"), "{health}");
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert!(!world.get("/health").await.body.contains("needs a restart"), "it has said something");
}
