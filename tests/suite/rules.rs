//! Rules by which requests are changed: they act where they are needed, can be switched, and say what they did.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Reply, World, request};

fn world(backend: &str, more: &str) -> World {
    World::configured(&format!(
        "[[backend]]\nname = \"b\"\nurl = \"http://b\"\nmodel = \"m\"\n{backend}\n{more}"
    ))
}

fn tool(name: &str) -> Value {
    json!({ "type": "function", "function": { "name": name, "parameters": { "type": "object",
        "properties": { "x": { "type": "string", "pattern": "\\S" } } } } })
}

fn body(more: &Value) -> String {
    let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "u" }] });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body.to_string()
}

/// What the backend gets, and what the client hears of it.
async fn sent(world: &World, more: Value) -> (Value, String) {
    world.backend("b").then(Reply::says("x"));
    let answer = world.chat(&body(&more)).await;
    (world.backend("b").seen().last().expect("a request").json(), adjusted(&answer))
}

fn adjusted(answer: &Answer) -> String {
    let header = answer.headers.get("x-switchback-adjusted");
    header.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_thinking_model_gets_room_to_answer_and_a_probe_is_left_alone() {
    let world = world(
        "engine = \"vllm\"\nwindow = 30000\nthinks = true",
        "[[client]]\nname = \"all\"\nthinking_output = 2048\n",
    );
    let limit = async |more: Value| sent(&world, more).await;
    let (raised, heard) = limit(json!({ "max_tokens": 200 })).await;
    assert_eq!((&raised["max_tokens"], heard.as_str()), (&json!(2048), "output raised to 2048"));
    for more in [
        json!({ "max_tokens": 1 }),
        json!({ "max_tokens": 16 }),
        json!({ "max_tokens": 4000 }),
        json!({ "max_tokens": 200, "chat_template_kwargs": { "enable_thinking": false } }),
        json!({ "max_tokens": 200, "reasoning_effort": "none" }),
    ] {
        let (same, heard) = limit(more.clone()).await;
        assert_eq!((&same["max_tokens"], heard.as_str()), (&more["max_tokens"], ""), "{more}");
    }
    assert!(limit(json!({})).await.0.get("max_tokens").is_none());
}

#[tokio::test(start_paused = true)]
async fn who_sends_no_limit_gets_no_less_room_to_think_than_who_sends_one() {
    let world = world(
        "engine = \"vllm\"\nwindow = 30000\nthinks = true",
        "[[client]]\nname = \"all\"\nthinking_output = 3000\ndefault_output = 500\n",
    );
    assert_eq!(sent(&world, json!({})).await.0["max_tokens"], 3000);
    assert_eq!(sent(&world, json!({ "max_tokens": 100 })).await.0["max_tokens"], 3000);
}

#[tokio::test(start_paused = true)]
async fn a_known_agent_gets_8192_tokens_of_a_model_that_thinks_and_others_what_they_ask_for() {
    let world = world("engine = \"vllm\"\nwindow = 30000\nthinks = true", "");
    let ask = async |agent: &str| {
        world.backend("b").then(Reply::says("x"));
        let mut sent = request(
            Method::POST,
            "/v1/chat/completions",
            &body(&json!({ "max_tokens": 500, "tools": [tool("a")] })),
        );
        sent.headers_mut().insert("user-agent", agent.parse().expect("a value"));
        world.client().await.send(sent).await.whole().await;
        world.backend("b").seen().last().expect("a request").json()["max_tokens"].clone()
    };
    assert_eq!(ask("opencode/1.18.33").await, 8192);
    assert_eq!(ask("curl/8").await, 500);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_absent_is_set_only_where_the_operator_says_so() {
    let world =
        world("engine = \"vllm\"\nwindow = 3000", "[[client]]\nname = \"all\"\ndefault_output = 4096\n");
    let (set, heard) = sent(&world, json!({})).await;
    let limit = set["max_tokens"].as_u64().expect("a limit");
    assert!(limit < 3000 && heard.contains("output limited to"), "{limit} {heard}");
}

#[tokio::test(start_paused = true)]
async fn a_limit_goes_under_the_only_name_that_is_read() {
    let world = world("engine = \"vllm\"\nwindow = 30000\noutput_limit = \"max_tokens\"", "");
    let (sent, heard) = sent(&world, json!({ "max_completion_tokens": 900 })).await;
    assert_eq!((&sent["max_tokens"], sent.get("max_completion_tokens")), (&json!(900), None));
    assert_eq!(heard, "max_completion_tokens sent as max_tokens");
}

#[tokio::test(start_paused = true)]
async fn two_limits_that_differ_are_sent_as_the_one_that_is_judged() {
    let wide = world("engine = \"sglang\"\nwindow = 30000", "");
    for (older, newer) in [(64, 900), (90_000, 900)] {
        let (sent, heard) = sent(&wide, json!({ "max_tokens": older, "max_completion_tokens": newer })).await;
        assert_eq!((&sent["max_tokens"], &sent["max_completion_tokens"]), (&json!(900), &json!(900)));
        assert_eq!(heard, "max_tokens sent as 900, as max_completion_tokens says");
    }
    for more in [
        json!({ "max_tokens": 64, "max_completion_tokens": 90_000 }),
        json!({ "max_tokens": 90_000, "max_completion_tokens": 90_000 }),
    ] {
        let (sent, heard) = sent(&wide, more).await;
        let limit = sent["max_completion_tokens"].as_u64().expect("a limit");
        assert!(limit < 30_000 && sent["max_tokens"] == limit, "{sent}");
        assert!(heard.contains("output cut to"), "{heard}");
    }
    let off = world("engine = \"sglang\"\nwindow = 30000\nrules_off = [\"one-limit\"]", "");
    let (sent, heard) = sent(&off, json!({ "max_tokens": 64, "max_completion_tokens": 900 })).await;
    assert_eq!((&sent["max_tokens"], heard.as_str()), (&json!(64), ""));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_the_choice_does_not_allow_is_not_offered_and_its_text_is_no_call() {
    let allowed = |mode: &str, name: &str| {
        json!({ "tools": [tool("a"), tool("b")], "tool_choice": { "type": "allowed_tools",
        "allowed_tools": { "mode": mode, "tools": [{ "type": "function", "function": { "name": name } }] } } })
    };
    for engine in ["vllm", "llama-cpp"] {
        let world = world(&format!("engine = \"{engine}\""), "");
        let (sent, heard) = sent(&world, allowed("auto", "b")).await;
        assert_eq!((&sent["tool_choice"], &sent["tools"]), (&json!("auto"), &json!([tool("b")])));
        assert_eq!(heard, "tools that tool_choice does not allow left out");
        let text = r#"{"name": "a", "arguments": {"x": "1"}}"#;
        world.backend("b").then(Reply::says(text));
        let answer = world.chat(&body(&allowed("auto", "b"))).await;
        assert_eq!(answer.json()["choices"][0]["message"]["content"], text, "{}", answer.body);
        let answer = world.chat(&body(&allowed("auto", "z"))).await;
        assert_eq!(answer.status, 400);
        assert!(
            answer.body.contains("tool_choice allows z, and tools declares none of them"),
            "{}",
            answer.body
        );
    }
}

#[tokio::test(start_paused = true)]
async fn llama_cpp_is_required_to_call_a_named_tool_by_leaving_out_the_others() {
    let more = json!({ "tools": [tool("a"), tool("b")], "tool_choice": { "type": "function", "function": { "name": "b" } } });
    let (sent_there, heard) = sent(&world("engine = \"llama-cpp\"", ""), more.clone()).await;
    assert_eq!(sent_there["tool_choice"], "required");
    assert_eq!(sent_there["tools"], json!([tool("b")]));
    assert_eq!(heard, "b required by leaving out the other tools");
    for world in
        [world("engine = \"vllm\"", ""), world("engine = \"llama-cpp\"\nrules_off = [\"named-choice\"]", "")]
    {
        let (same, heard) = sent(&world, more.clone()).await;
        assert_eq!((&same["tool_choice"], heard.as_str()), (&more["tool_choice"], ""));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_backend_refuses_by_name_is_left_out_and_it_is_asked_once_more() {
    let world = world("engine = \"vllm\"", "");
    let refusal = r#"{"object":"error","message":"[{'type': 'extra_forbidden', 'loc': ('body', 'store'), 'msg': 'Extra inputs are not permitted', 'input': True}]","type":"BadRequestError","code":400}"#;
    world.backend("b").then(Reply::json(400, refusal)).then(Reply::says("fine"));
    let answer = world.chat(&body(&json!({ "store": true, "user": "me" }))).await;
    assert!(answer.status.is_success() && answer.body.contains("fine"), "{}", answer.body);
    assert_eq!(adjusted(&answer), "/store refused, so left out");
    let seen = world.backend("b").seen();
    assert_eq!((seen.len(), seen[1].json().get("store"), &seen[1].json()["user"]), (2, None, &json!("me")));
}

#[tokio::test(start_paused = true)]
async fn a_schema_that_makes_no_grammar_is_sent_loose_once_and_other_mistakes_stay_the_clients() {
    let world = world("engine = \"llama-cpp\"", "");
    let refusal = r#"{"error":{"code":400,"message":"Failed to initialize samplers: failed to parse grammar","type":"invalid_request_error"}}"#;
    world.backend("b").then(Reply::json(400, refusal)).then(Reply::json(400, refusal));
    let answer = world.chat(&body(&json!({ "tools": [tool("a")] }))).await;
    assert_eq!(answer.status, 400);
    let seen = world.backend("b").seen();
    assert_eq!(seen.len(), 2);
    assert!(seen[0].body.contains("pattern") && !seen[1].body.contains("pattern"));
    world
        .backend("b")
        .then(Reply::json(400, r#"{"error":{"message":"max_tokens must be at least 1","code":400}}"#));
    assert_eq!(world.chat(&body(&json!({ "max_tokens": 0, "store": true }))).await.status, 400);
    assert_eq!(world.backend("b").seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn thoughts_between_the_tags_of_a_family_are_split_off_also_where_no_tools_are_declared() {
    let world = world("engine = \"vllm\"\nthinking_tags = [\"<reason>\", \"</reason>\"]", "");
    world.backend("b").then(Reply::says("<reason>hm <think></reason>Hello"));
    let answer: Value = serde_json::from_str(&world.chat(&body(&json!({}))).await.body).expect("JSON");
    let message = &answer["choices"][0]["message"];
    assert_eq!(
        (&message["content"], &message["reasoning_content"]),
        (&json!("Hello"), &json!("hm <think>")),
        "{answer}"
    );
}

#[tokio::test(start_paused = true)]
async fn tools_that_are_no_functions_do_not_make_vllm_refuse_a_request() {
    let more = json!({ "tools": [{ "type": "web_search" }, tool("a")] });
    let (sent_there, heard) = sent(&world("engine = \"vllm\"", ""), more.clone()).await;
    assert_eq!(
        (&sent_there["tools"], heard.as_str()),
        (&json!([tool("a")]), "tools that are no functions left out")
    );
    let (same, _) = sent(&world("engine = \"other\"", ""), more.clone()).await;
    assert_eq!(same["tools"], more["tools"]);
}
