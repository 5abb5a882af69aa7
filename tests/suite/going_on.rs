//! What goes on elsewhere where an assistant's text as a beginning is not enough: thoughts, the very prompt, completions, messages.

use serde_json::{Value, json};

use crate::harness::{Answer, Reply, Step, World, delta, finish, reasoning, role};

const RENDERED: &str = "<|im_start|>user\nWhere?<|im_end|>\n<|im_start|>assistant\n";

fn done() -> Step {
    Step::Send("data: [DONE]\n\n".into())
}

/// A chunk of a completion.
fn says(text: &str, finish: Option<&str>) -> Step {
    let chunk = json!({ "id": "cmpl-2", "object": "text_completion", "created": 9, "model": "m",
        "choices": [{ "index": 0, "text": text, "logprobs": null, "finish_reason": finish }] });
    Step::Send(format!("data: {chunk}\n\n"))
}

/// A streamed request, with more members.
fn request(more: Value) -> String {
    let mut body =
        json!({ "model": "m", "stream": true, "messages": [{ "role": "user", "content": "Where?" }] });
    for (member, value) in more.as_object().expect("an object") {
        body[member] = value.clone();
    }
    body.to_string()
}

/// All that a stream says under these pointers.
fn said(answer: &Answer, pointer: &str) -> String {
    let chunks = answer.body.lines().filter_map(|line| line.strip_prefix("data: "));
    let chunks = chunks.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    chunks.filter_map(|chunk| chunk.pointer(pointer)?.as_str().map(str::to_owned)).collect()
}

fn thought(answer: &Answer) -> String {
    said(answer, "/choices/0/delta/reasoning_content")
}

fn text(answer: &Answer) -> String {
    said(answer, "/choices/0/delta/content")
}

/// What a completion was asked to go on with, whether as a text or as tokens.
fn asked(world: &World, backend: &str) -> (Value, String) {
    let seen = world.backend(backend).seen();
    assert_eq!(seen[0].path, "/v1/completions");
    let asked = seen[0].json();
    let of = |token: &Value| match token.as_u64() {
        Some(7) => "<think>".to_owned(),
        token => token.and_then(|token| char::from_u32(token as u32)).map(String::from).expect("a token"),
    };
    let prompt = match &asked["prompt"] {
        Value::String(text) => text.clone(),
        tokens => tokens.as_array().expect("tokens").iter().map(of).collect(),
    };
    (asked, prompt)
}

/// A backend that says a part and fails then, and one of this engine that renders its prompts so and says the rest.
fn world(engine: &str, part: Vec<Step>, rendered: &str, rest: Vec<Step>) -> World {
    let backend = |name: &str, engine: &str| {
        format!(
            "[[backend]]\nname = \"{name}\"\nurl = \"http://{name}\"\nengine = \"{engine}\"\nwindow = 8000\nmodel = \"m\"\n"
        )
    };
    let world = World::configured(&format!("{}{}", backend("bad", "vllm"), backend("good", engine)));
    world.backend("bad").then(Reply::stream([vec![role()], part, vec![Step::Cut]].concat()));
    world.backend("good").renders(rendered).then(Reply::stream(rest));
    world
}

fn assert_whole(answer: &Answer) {
    assert!(
        answer.body.ends_with("data: [DONE]\n\n") && !answer.body.contains("\"error\""),
        "{}",
        answer.body
    );
    assert_eq!(answer.body.matches("\"role\"").count(), 1, "{}", answer.body);
    assert!(!answer.body.contains("text_completion") && !answer.body.contains("cmpl-2"), "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn a_thought_goes_on_where_it_was_cut_and_comes_to_its_answer() {
    for engine in ["vllm", "llama-cpp", "sglang"] {
        for (rendered, begins) in [(RENDERED.to_owned(), "<think>\n"), (format!("{RENDERED}<think>\n"), "")] {
            let part = vec![reasoning("France's"), reasoning(" capital")];
            let rest = vec![
                says(" is", None),
                says(" Paris.\n</think>\n\n", None),
                says("In Paris", None),
                says(".", Some("stop")),
                done(),
            ];
            let world = world(engine, part, &rendered, rest);
            let answer = world.chat(&request(json!({}))).await;
            assert_whole(&answer);
            assert_eq!(
                (thought(&answer).as_str(), text(&answer).as_str()),
                ("France's capital is Paris.", "In Paris.")
            );
            assert!(answer.body.contains("\"finish_reason\":\"stop\""), "{}", answer.body);
            let (_, prompt) = asked(&world, "good");
            assert_eq!(prompt, format!("{rendered}{begins}France's capital"), "{engine}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn text_behind_a_thought_goes_on_as_text() {
    let part = vec![reasoning("\nHm.\n"), delta("\n\nIn "), delta("Par")];
    let world = world("vllm", part, RENDERED, vec![says("is.", None), says("", Some("length")), done()]);
    let answer = world.chat(&request(json!({ "max_tokens": 20 }))).await;
    assert_whole(&answer);
    assert_eq!((thought(&answer).as_str(), text(&answer).as_str()), ("\nHm.\n", "\n\nIn Paris."));
    assert!(answer.body.contains("\"finish_reason\":\"length\""), "{}", answer.body);
    let (asked, prompt) = asked(&world, "good");
    assert_eq!(prompt, format!("{RENDERED}<think>\nHm.\n</think>\n\nIn Par"));
    assert!(asked["max_tokens"].as_u64().is_some_and(|left| left < 20), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn where_the_prompt_is_known_nothing_comes_between_it_and_what_was_said() {
    let part = vec![delta("In the "), delta("city of ")];
    let mut rest = vec![says("Paris.", None), says("", Some("stop"))];
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 72, "completion_tokens": 8, "total_tokens": 80 } });
    rest.extend([Step::Send(format!("data: {usage}\n\n")), done()]);
    let world = world("vllm", part, RENDERED, rest);
    let more =
        json!({ "temperature": 0, "seed": 3, "stop": ["END"], "stream_options": { "include_usage": true } });
    let answer = world.chat(&request(more)).await;
    assert_whole(&answer);
    assert_eq!(text(&answer), "In the city of Paris.");
    let (asked, prompt) = asked(&world, "good");
    assert_eq!(prompt, format!("{RENDERED}In the city of"));
    assert_eq!(
        (&asked["temperature"], &asked["seed"], &asked["stop"]),
        (&json!(0), &json!(3), &json!(["END"]))
    );
    assert!(
        asked["max_tokens"].as_u64().is_some_and(|most| most > 7000),
        "a completion ends soon without a limit: {asked}"
    );
    assert!(asked.get("messages").is_none() && asked.get("continue_final_message").is_none());
    // Each character is a token here: what was said is no prompt.
    assert!(
        answer.body.contains(r#""prompt_tokens":58"#) && answer.body.contains(r#""completion_tokens":22"#),
        "{}",
        answer.body
    );
    assert!(answer.body.contains(r#""total_tokens":80"#), "{}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn a_call_behind_a_thought_that_was_cut_becomes_a_call() {
    let tools = json!({ "tools": [{ "type": "function", "function": {
        "name": "look", "parameters": { "type": "object", "properties": { "path": { "type": "string" } } } } }] });
    let rest = vec![
        says(" look.\n</think>\n\n<tool_", None),
        says("call>\n{\"name\": \"look\", \"arguments\": {\"path\": \"/a\"}}\n</tool_call>", Some("stop")),
        done(),
    ];
    let world = world("vllm", vec![reasoning("I must")], RENDERED, rest);
    let answer = world.chat(&request(tools)).await;
    assert_whole(&answer);
    assert_eq!(thought(&answer), "I must look.");
    assert!(
        answer.body.contains(r#""name":"look""#) && answer.body.contains(r#""finish_reason":"tool_calls""#),
        "{}",
        answer.body
    );
    assert!(!answer.body.contains("<tool_call>"), "{}", answer.body);
    let (asked, _) = asked(&world, "good");
    assert_eq!(asked["skip_special_tokens"], false, "markup that is a special token would be left out");
}

#[tokio::test(start_paused = true)]
async fn text_before_a_call_goes_on_as_a_chat_since_engines_parse_calls_there() {
    let tools = json!({ "tools": [{ "type": "function", "function": { "name": "look", "parameters": { "type": "object" } } }] });
    let world =
        world("vllm", vec![delta("Let me")], RENDERED, vec![role(), delta(" look."), finish("stop"), done()]);
    let answer = world.chat(&request(tools)).await;
    assert_whole(&answer);
    assert_eq!(text(&answer), "Let me look.");
    assert_eq!(world.backend("good").seen()[0].path, "/v1/chat/completions");
}

#[tokio::test(start_paused = true)]
async fn thoughts_of_unknown_tags_pictures_and_engines_that_do_not_tell_their_prompt_end_with_an_error() {
    let cut = |world: World, body: String| async move {
        let answer = world.chat(&body).await;
        assert!(answer.body.contains("\"code\":\"answer_cut\""), "{}", answer.body);
        assert!(!answer.body.contains("\"finish_reason\":\"stop\""), "{}", answer.body);
        assert!(world.backend("good").seen().is_empty());
    };
    let part = || vec![reasoning("Hm")];
    let rest = || vec![says(" Paris", Some("stop")), done()];
    let other = "[[backend]]\nname = \"bad\"\nurl = \"http://bad\"\nengine = \"vllm\"\nwindow = 8000\nmodel = \"m\"\n\
                 [[backend]]\nname = \"good\"\nurl = \"http://good\"\nengine = \"vllm\"\nwindow = 8000\nmodel = \"m\"\nthinking_tags = [\"<thought>\", \"</thought>\"]\n";
    let other = World::configured(other);
    other.backend("bad").then(Reply::stream([vec![role()], part(), vec![Step::Cut]].concat()));
    other.backend("good").renders(RENDERED).then(Reply::stream(rest()));
    cut(other, request(json!({}))).await;
    let picture = json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Where?" },
        { "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } }] }] });
    cut(world("vllm", part(), RENDERED, rest()), request(picture)).await;
    cut(world("ollama", part(), RENDERED, rest()), request(json!({}))).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_channels_is_no_text_that_a_completion_could_go_on_with() {
    let rendered = "<|start|>user<|message|>Where?<|end|><|start|>assistant";
    let rest = vec![
        delta(" Paris."),
        Step::Send("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n".into()),
        done(),
    ];
    let world = world("vllm", vec![delta("In")], rendered, rest);
    let answer = world.chat(&request(json!({}))).await;
    assert_eq!(text(&answer), "In Paris.", "{}", answer.body);
    assert_eq!(world.backend("good").seen()[0].path, "/v1/chat/completions");
}

#[tokio::test(start_paused = true)]
async fn a_thought_that_is_cut_twice_is_not_said_twice() {
    let backends: String = ["bad", "worse", "good"]
        .map(|name| format!("[[backend]]\nname = \"{name}\"\nurl = \"http://{name}\"\nengine = \"vllm\"\nwindow = 8000\nmodel = \"m\"\n"))
        .concat();
    let world = World::configured(&backends);
    world.backend("bad").then(Reply::stream(vec![role(), reasoning("One"), Step::Cut]));
    world.backend("worse").renders(RENDERED).then(Reply::stream(vec![says(" two", None), Step::Cut]));
    let rest = vec![says(" three\n</think>\n\nFour", Some("stop")), done()];
    world.backend("good").renders(RENDERED).then(Reply::stream(rest));
    let answer = world.chat(&request(json!({}))).await;
    assert_whole(&answer);
    assert_eq!((thought(&answer).as_str(), text(&answer).as_str()), ("One two three", "Four"));
    assert_eq!(asked(&world, "good").1, format!("{RENDERED}<think>\nOne two"));
}

#[tokio::test(start_paused = true)]
async fn a_completion_goes_on_behind_its_prompt() {
    let ask = |more: Value| {
        let mut body = json!({ "model": "m", "stream": true, "prompt": "Once upon", "max_tokens": 30 });
        for (member, value) in more.as_object().expect("an object") {
            body[member] = value.clone();
        }
        body.to_string()
    };
    let first = |text: &str| {
        Step::Send(match says(text, None) {
            Step::Send(chunk) => chunk.replace("cmpl-2", "cmpl-1"),
            _ => unreachable!("a chunk"),
        })
    };
    let world = || {
        let world = World::new(&[("bad", 8000), ("good", 8000)], "");
        world.backend("bad").then(Reply::stream(vec![first(" a time "), first("there "), Step::Cut]));
        world.backend("good").then(Reply::stream(vec![says(" w", None), says("as.", Some("stop")), done()]));
        world
    };
    let told = world();
    let answer = told.post("/v1/completions", &ask(json!({}))).await;
    assert_eq!(said(&answer, "/choices/0/text"), " a time there was.", "{}", answer.body);
    assert!(answer.body.ends_with("data: [DONE]\n\n") && !answer.body.contains("cmpl-2"), "{}", answer.body);
    let asked = told.backend("good").seen()[0].json();
    assert_eq!(asked["prompt"], "Once upon a time there");
    assert!(asked["max_tokens"].as_u64().is_some_and(|left| left < 30), "{asked}");
    for more in [
        json!({ "echo": true }),
        json!({ "logprobs": 1 }),
        json!({ "n": 2 }),
        json!({ "suffix": "end" }),
        json!({ "prompt": [1, 2] }),
    ] {
        let told = world();
        let answer = told.post("/v1/completions", &ask(more.clone())).await;
        assert!(answer.body.contains("answer_cut"), "{more}: {}", answer.body);
        assert!(told.backend("good").seen().is_empty(), "{more}");
    }
}

/// The events of a message up to somewhere in its text.
fn message(text: &str) -> Vec<Step> {
    [
        json!({ "type": "message_start", "message": { "id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": { "input_tokens": 9, "output_tokens": 0 } } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } }),
    ]
    .map(event)
    .to_vec()
}

fn message_end() -> Vec<Step> {
    [
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 3 } }),
        json!({ "type": "message_stop" }),
    ]
    .map(event)
    .to_vec()
}

fn event(event: Value) -> Step {
    Step::Send(format!("event: {}\ndata: {event}\n\n", event["type"].as_str().expect("a type")))
}

#[tokio::test(start_paused = true)]
async fn a_message_goes_on_at_llama_cpp_and_is_cut_openly_where_only_vllm_is_left() {
    let body = json!({ "model": "m", "stream": true, "max_tokens": 50, "messages": [{ "role": "user", "content": "Where?" }] });
    for (engine, goes_on) in [("llama-cpp", true), ("vllm", false)] {
        let world = World::configured(&format!(
            "[[backend]]\nname = \"bad\"\nurl = \"http://bad\"\nengine = \"vllm\"\nwindow = 8000\nmodel = \"m\"\n\
             [[backend]]\nname = \"good\"\nurl = \"http://good\"\nengine = \"{engine}\"\nwindow = 8000\nmodel = \"m\"\n"
        ));
        world.backend("bad").then(Reply::stream([message("The capital"), vec![Step::Cut]].concat()));
        world.backend("good").then(Reply::stream([message(" of France"), message_end()].concat()));
        let answer = world.post("/v1/messages", &body.to_string()).await;
        if goes_on {
            assert_eq!(said(&answer, "/delta/text"), "The capital of France", "{}", answer.body);
            assert_eq!(answer.body.matches("event: message_start").count(), 1, "{}", answer.body);
            assert!(
                answer.body.contains("event: message_stop") && answer.body.contains("\"output_tokens\":5"),
                "{}",
                answer.body
            );
            let asked = world.backend("good").seen()[0].json();
            assert_eq!(asked["messages"][1], json!({ "role": "assistant", "content": "The capital" }));
            assert!(asked["max_tokens"].as_u64().is_some_and(|left| left < 50));
        } else {
            assert!(
                answer.body.contains("event: error") && !answer.body.contains("message_stop"),
                "{}",
                answer.body
            );
            assert!(world.backend("good").seen().is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_may_call_goes_on_with_text_and_not_amid_a_call() {
    let tools = json!([{ "name": "look", "input_schema": { "type": "object", "properties": { "at": { "type": "string" } } } }]);
    let body = json!({ "model": "m", "stream": true, "max_tokens": 50, "tools": tools,
        "messages": [{ "role": "user", "content": "Where?" }] });
    let call =
        "ok for it.\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"Paris\"}}\n</tool_call>";
    for (held, rest, goes_on) in [(None, call, true), (Some("\n<tool_call>\n{\"na"), "", false)] {
        let backend = |name: &str, engine: &str| {
            format!(
                "[[backend]]\nname = \"{name}\"\nurl = \"http://{name}\"\nengine = \"{engine}\"\nwindow = 8000\nmodel = \"m\"\n"
            )
        };
        let world = World::configured(&(backend("bad", "vllm") + &backend("good", "llama-cpp")));
        let held = held.map(|text| {
            let delta = json!({ "type": "text_delta", "text": text });
            event(json!({ "type": "content_block_delta", "index": 0, "delta": delta }))
        });
        let begun = [message("I lo"), held.into_iter().collect(), vec![Step::Cut]].concat();
        world.backend("bad").then(Reply::stream(begun));
        world.backend("good").then(Reply::stream([message(rest), message_end()].concat()));
        let answer = world.post("/v1/messages", &body.to_string()).await;
        assert_eq!(world.backend("good").seen().len(), usize::from(goes_on), "{}", answer.body);
        assert_eq!(answer.body.contains("event: error"), !goes_on, "{}", answer.body);
        if goes_on {
            assert_eq!(said(&answer, "/delta/text").trim(), "I look for it.", "{}", answer.body);
            assert!(answer.body.contains("\"stop_reason\":\"tool_use\""), "{}", answer.body);
            assert_eq!(said(&answer, "/delta/partial_json").replace(' ', ""), r#"{"at":"Paris"}"#);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_thought_that_is_told_apart_here_goes_on_as_it_was_written() {
    let backend = |name: &str| {
        format!(
            "[[backend]]\nname = \"{name}\"\nurl = \"http://{name}\"\nengine = \"vllm\"\nwindow = 8000\nmodel = \"m\"\nthinking_open = true\n"
        )
    };
    let rendered = format!("{RENDERED}<think>\n");
    for (part, rest, prompt) in [
        (vec![delta("Hm, "), delta("Paris")], " it is.\n</think>\n\nParis.", "Hm, Paris"),
        (vec![delta("Hm, Paris it is.\n</think>\n\nPar")], "is.", "Hm, Paris it is.\n</think>\n\nPar"),
    ] {
        let world = World::configured(&format!("{}{}", backend("bad"), backend("good")));
        world.backend("bad").then(Reply::stream([vec![role()], part, vec![Step::Cut]].concat()));
        world.backend("good").renders(&rendered).then(Reply::stream(vec![says(rest, Some("stop")), done()]));
        let answer = world.chat(&request(json!({}))).await;
        assert_whole(&answer);
        assert_eq!((thought(&answer).trim_end(), text(&answer).as_str()), ("Hm, Paris it is.", "Paris."));
        assert_eq!(asked(&world, "good").1, format!("{rendered}{prompt}"));
    }
}
