//! An answer whose backend failed after a part of it was shown goes on with another backend of the same model, where that is
//! honest; else it ends with an error. Nothing is repeated, nothing lost, and no cut answer looks finished.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Answer, Reply, Step, World, delta, finish, reasoning, role};

const DEAD: &str = r#"data: {"error": {"message": "EngineCore encountered an issue. See stack trace (above) for the root cause.", "type": "InternalServerError", "param": null, "code": 500}}"#;

fn done() -> Step {
    Step::Send("data: [DONE]\n\n".into())
}

/// A streamed request, with more members.
fn request(more: Value) -> String {
    let mut body =
        json!({ "model": "m", "stream": true, "messages": [{ "role": "user", "content": "Say it." }] });
    for (member, value) in more.as_object().expect("an object") {
        body[member] = value.clone();
    }
    body.to_string()
}

/// The text of a streamed answer.
fn text(answer: &Answer) -> String {
    let chunks = answer
        .body
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let text =
        |chunk: Value| chunk.pointer("/choices/0/delta/content").and_then(Value::as_str).map(str::to_owned);
    chunks.filter_map(text).collect()
}

/// What the client got is the beginning, and an error that says so.
fn assert_cut(answer: &Answer, shown: &str) {
    assert_eq!(text(answer), shown, "{}", answer.body);
    assert!(answer.body.contains("\"code\":\"answer_cut\""), "{}", answer.body);
    assert!(!answer.body.contains("\"finish_reason\":\"stop\""), "{}", answer.body);
}

/// A backend that says a part and fails then, and one that says the rest.
fn part_and(rest: Reply, more: &str) -> World {
    let world = World::new(&[("bad", 8000), ("good", 8000)], more);
    world.backend("bad").then(Reply::stream(vec![
        role(),
        delta("The capital "),
        delta("of France "),
        Step::Cut,
    ]));
    world.backend("good").then(rest);
    world
}

fn rest() -> Reply {
    Reply::stream(vec![role(), delta(" is"), delta(" Paris."), finish("stop"), done()])
}

const WHOLE: &str = "The capital of France is Paris.";

#[tokio::test(start_paused = true)]
async fn whatever_cuts_an_answer_another_backend_goes_on_where_it_was_cut() {
    let cuts = [
        vec![Step::Cut],
        vec![],
        vec![done()],
        vec![finish("abort"), done()],
        vec![Step::Send(format!("{DEAD}\n\n")), done()],
        vec![Step::Hang],
    ];
    for cut in cuts {
        let world = World::new(&[("bad", 8000), ("good", 8000)], "");
        let said = vec![role(), delta("The capital "), delta("of France ")];
        world.backend("bad").then(Reply::stream([said, cut.clone()].concat()));
        world.backend("good").then(rest());
        let answer = world.chat(&request(json!({}))).await;
        assert_eq!(text(&answer), WHOLE, "{cut:?}: {}", answer.body);
        assert!(
            answer.body.ends_with("data: [DONE]\n\n") && !answer.body.contains("error"),
            "{}",
            answer.body
        );
        assert_eq!(answer.body.matches("\"role\"").count(), 1, "{}", answer.body);
        assert_eq!(answer.body.matches("\"finish_reason\":\"stop\"").count(), 1, "{}", answer.body);
        assert!(answer.body.contains(": adjusted continued on good: bad failed ("), "{}", answer.body);
        assert_eq!(world.backend("bad").seen().len(), 1, "who failed is not asked again");
    }
}

#[tokio::test(start_paused = true)]
async fn wherever_the_bytes_of_an_answer_are_cut_its_client_gets_whole_lines_and_no_word_twice() {
    let (Step::Send(first), Step::Send(second)) = (delta("The capital "), delta("of France ")) else {
        unreachable!("chunks")
    };
    for at in 1..second.len() {
        let world = World::new(&[("bad", 8000), ("good", 8000)], "");
        let said = vec![role(), Step::Send(first.clone()), Step::Send(second[..at].to_owned()), Step::Cut];
        world.backend("bad").then(Reply::stream(said));
        let said = second.len() - at <= 2;
        let words = if said { " is Paris." } else { " of France is Paris." };
        world.backend("good").then(Reply::stream(vec![role(), delta(words), finish("stop"), done()]));
        let answer = world.chat(&request(json!({}))).await;
        assert_eq!(text(&answer), WHOLE, "cut at {at}: {}", answer.body);
        for line in answer.body.lines().filter_map(|line| line.strip_prefix("data: ")) {
            assert!(line == "[DONE]" || serde_json::from_str::<Value>(line).is_ok(), "cut at {at}: {line}");
        }
    }
    // Nobody goes on: half a line is no answer either.
    let world = World::new(&[("bad", 8000)], "");
    world.backend("bad").then(Reply::stream(vec![
        role(),
        Step::Send(first),
        Step::Send(second[..20].to_owned()),
        Step::Cut,
    ]));
    let answer = world.chat(&request(json!({}))).await;
    assert_cut(&answer, "The capital ");
    assert!(
        answer
            .body
            .lines()
            .all(|line| !line.starts_with("data: ") || line == "data: [DONE]" || line.ends_with('}')),
        "{}",
        answer.body
    );
}

#[tokio::test(start_paused = true)]
async fn the_next_backend_is_asked_to_continue_and_gets_no_more_output_than_is_left() {
    let world = part_and(rest(), "");
    world.chat(&request(json!({ "max_tokens": 100, "temperature": 0 }))).await;
    let asked = world.backend("good").seen()[0].json();
    let last = json!({ "role": "assistant", "content": "The capital of France" });
    assert_eq!(asked["messages"].as_array().and_then(|messages| messages.last()), Some(&last));
    assert_eq!(
        (&asked["continue_final_message"], &asked["add_generation_prompt"]),
        (&json!(true), &json!(false))
    );
    assert_eq!((&asked["stream"], &asked["temperature"]), (&json!(true), &json!(0)));
    assert!((90..100).contains(&asked["max_tokens"].as_u64().expect("a number")), "{}", asked["max_tokens"]);
    assert_eq!(asked["chat_template_kwargs"]["enable_thinking"], false);
}

#[tokio::test(start_paused = true)]
async fn the_beginning_that_llama_cpp_says_again_is_taken_off() {
    let backend = |name: &str, engine: &str| {
        format!(
            "[[backend]]\nname = \"{name}\"\nurl = \"http://{name}\"\nengine = \"{engine}\"\nwindow = 8000\nmodel = \"m\"\n"
        )
    };
    let world = World::configured(&format!("{}{}", backend("bad", "vllm"), backend("good", "llama-cpp")));
    world.backend("bad").then(Reply::stream(vec![
        role(),
        delta("The capital "),
        delta("of France "),
        Step::Cut,
    ]));
    let echo = vec![role(), delta("The capital of France is"), delta(" Paris."), finish("stop"), done()];
    world.backend("good").then(Reply::stream(echo));
    assert_eq!(text(&world.chat(&request(json!({}))).await), WHOLE);
}

#[tokio::test(start_paused = true)]
async fn a_half_made_call_of_which_nothing_was_shown_becomes_whole() {
    let tools = json!({ "tools": [{ "type": "function", "function": {
        "name": "look", "parameters": { "type": "object", "properties": { "path": { "type": "string" } } } } }] });
    let world = World::new(&[("bad", 8000), ("good", 8000)], "");
    let half =
        [role(), delta("Let me look.\n"), delta("<tool_call>\n{\"name\": \"look\", \"argu"), Step::Cut];
    world.backend("bad").then(Reply::stream(half.to_vec()));
    let rest =
        [role(), delta("ments\": {\"path\": \"/a\"}}\n"), delta("</tool_call>"), finish("stop"), done()];
    world.backend("good").then(Reply::stream(rest.to_vec()));
    let answer = world.chat(&request(tools)).await;
    assert!(
        answer.body.contains(r#""name":"look""#) && answer.body.contains("tool_calls\"}"),
        "{}",
        answer.body
    );
    assert!(!answer.body.contains("<tool_call>") && !answer.body.contains("error"), "{}", answer.body);
    assert_eq!(text(&answer).trim_end(), "Let me look.");
    let asked = world.backend("good").seen()[0].json();
    assert_eq!(asked["tool_choice"], "none", "the rest of a call comes as text");
    assert!(asked["messages"][1]["content"].as_str().is_some_and(|said| said.ends_with("\"argu")));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_continued_honestly_ends_with_an_error() {
    let schema =
        json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "x", "schema": {} } } });
    for more in [json!({ "n": 2 }), json!({ "logprobs": true }), schema, json!({ "tool_choice": "required" })]
    {
        let world = part_and(rest(), "");
        assert_cut(&world.chat(&request(more.clone())).await, "The capital of France ");
        assert!(world.backend("good").seen().is_empty(), "{more}");
    }
    let call = r#"{"index":0,"id":"c1","type":"function","function":{"name":"look","arguments":"{\"pa"}}"#;
    let calls = format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{call}]}},\"finish_reason\":null}}]}}\n\n"
    );
    for said in [vec![reasoning("Hm. France?")], vec![Step::Send(calls)]] {
        let world = World::new(&[("bad", 8000), ("good", 8000)], "");
        let said = [vec![role()], said, vec![delta("So"), Step::Cut]].concat();
        world.backend("bad").then(Reply::stream(said));
        assert_cut(&world.chat(&request(json!({}))).await, "So");
        assert!(world.backend("good").seen().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_same_model_goes_on() {
    let other = "[[backend]]\nname = \"bad\"\nurl = \"http://bad\"\nengine = \"vllm\"\nwindow = 8000\nmodel = \"qwen\"\n\
                 [[backend]]\nname = \"good\"\nurl = \"http://good\"\nengine = \"vllm\"\nwindow = 8000\nmodel = \"gemma\"\n";
    let cut = || Reply::stream(vec![role(), delta("The capital "), delta("of France "), Step::Cut]);
    let world = World::configured(other);
    world.backend("bad").then(cut());
    assert_cut(&world.chat(&request(json!({ "model": "auto" }))).await, "The capital of France ");
    assert!(world.backend("good").seen().is_empty());
    // The operator says that they are one.
    let world =
        World::configured(&format!("{other}[[model]]\nname = \"m\"\nbackends = [\"bad\", \"good\"]\n"));
    world.backend("bad").then(cut());
    world.backend("good").then(rest());
    assert_eq!(text(&world.chat(&request(json!({}))).await), WHOLE);
}

#[tokio::test(start_paused = true)]
async fn an_operator_can_switch_it_off_for_a_client() {
    let world = part_and(rest(), "[[client]]\nname = \"all\"\ncut_answers = \"error\"\n");
    assert_cut(&world.chat(&request(json!({}))).await, "The capital of France ");
    assert!(world.backend("good").seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_begun_anew_or_goes_on_as_a_thought_is_not_shown() {
    let anew =
        vec![role(), delta("The capital of F"), delta("lorida is Tallahassee."), finish("stop"), done()];
    let thought = vec![role(), reasoning(" is Paris."), finish("stop"), done()];
    for wrong in [anew, thought] {
        let world = part_and(Reply::stream(wrong), "");
        assert_cut(&world.chat(&request(json!({}))).await, "The capital of France ");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rest_that_is_cut_again_is_continued_by_a_third_and_nobody_is_asked_twice() {
    let world = World::new(&[("one", 8000), ("two", 8000), ("three", 8000)], "");
    world.backend("one").then(Reply::stream(vec![role(), delta("The capital"), Step::Cut]));
    world.backend("two").then(Reply::stream(vec![role(), delta(" of France"), finish("abort"), done()]));
    world.backend("three").then(rest());
    let answer = world.chat(&request(json!({}))).await;
    assert_eq!(text(&answer), WHOLE, "{}", answer.body);
    assert_eq!(world.backend("three").seen()[0].json()["messages"][1]["content"], "The capital of France");

    let world = World::new(&[("one", 8000), ("two", 8000)], "");
    world.backend("one").then(Reply::stream(vec![role(), delta("The capital"), Step::Cut]));
    world.backend("two").then(Reply::closes());
    let answer = world.chat(&request(json!({}))).await;
    assert_cut(&answer, "The capital");
    assert!(answer.body.contains("backend one failed"), "{}", answer.body);
    assert_eq!((world.backend("one").seen().len(), world.backend("two").seen().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_holds_the_prompt_but_not_what_was_said_as_well_is_not_asked() {
    let world = World::new(&[("bad", 60_000), ("small", 9_000)], "");
    let long = "word ".repeat(3_000);
    world.backend("bad").then(Reply::stream(vec![role(), delta(&long), Step::Cut]));
    let answer = world
        .chat(&request(json!({ "messages": [{ "role": "user", "content": "many words ".repeat(3_000) }] })))
        .await;
    assert_cut(&answer, &long);
    assert!(world.backend("small").seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn usage_is_what_the_last_backend_says_and_the_finish_reason_its_own() {
    let usage = r#"data: {"id":"z","choices":[],"usage":{"prompt_tokens":20,"completion_tokens":3,"total_tokens":23}}"#;
    let steps = vec![role(), delta(" is"), finish("length"), Step::Send(format!("{usage}\n\n")), done()];
    let world = part_and(Reply::stream(steps), "");
    let answer = world.chat(&request(json!({ "stream_options": { "include_usage": true } }))).await;
    assert_eq!(answer.body.matches("\"usage\":{").count(), 1, "{}", answer.body);
    assert!(
        answer.body.contains("\"total_tokens\":23") && answer.body.contains("\"length\""),
        "{}",
        answer.body
    );
    assert!(!answer.body.contains("\"id\":\"z\""), "it is one answer: {}", answer.body);
    let metrics = world.get("/metrics").await.body;
    assert!(metrics.contains("switchback_answers_continued_total{backend=\"good\"} 1"), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_the_rest_hears_that_it_is_still_there() {
    let slow =
        vec![Step::Pause(Duration::from_secs(40)), role(), delta(" is Paris."), finish("stop"), done()];
    let answer = part_and(Reply::stream(slow), "").chat(&request(json!({}))).await;
    assert_eq!(text(&answer), WHOLE);
    assert!(answer.body.contains(":\n\n"), "{}", answer.body);
}
