//! Who is calling, and what follows from it: routes, limits, sampling, keep-alives, affinity; and a change of the
//! configuration while requests run.

use std::path::Path;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use serde_json::Value;

use crate::harness::{
    Answer, Client, Reply, Step, World, ask, ask_stream, delta, finish, request, role, words,
};

async fn sent(world: &World, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    send(world.client().await, path, headers, body).await.whole().await
}

async fn send(client: Client, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut sent = request(Method::POST, path, body);
    for (name, value) in headers {
        let name = HeaderName::try_from(*name).expect("a name");
        sent.headers_mut().insert(name, HeaderValue::from_str(value).expect("a value"));
    }
    client.send(sent).await
}

const CHAT: &str = "/v1/chat/completions";

fn two_ways() -> World {
    World::new(
        &[("single", 8000), ("llama", 8000)],
        r#"
        [[client]]
        name = "family"
        when = { user_agent = "familybot" }
        backends = ["llama"]
        class = "background"
        max_prompt = 1000
        sampling = { temperature = 0.6, min_p = 0 }
        "#,
    )
}

#[tokio::test(start_paused = true)]
async fn one_request_from_two_clients_takes_two_routes_each_with_its_sentence() {
    let world = two_ways();
    world.backend("single").then(Reply::says("x"));
    world.backend("llama").then(Reply::says("y"));
    let plain = sent(&world, CHAT, &[], &ask("hi")).await;
    let family = sent(&world, CHAT, &[("user-agent", "FamilyBot/1.0")], &ask("hi")).await;
    assert_eq!(
        (plain.header("x-switchback-backend"), family.header("x-switchback-backend")),
        ("single", "llama")
    );
    let (plain, family) = (plain.header("x-switchback-reason"), family.header("x-switchback-reason"));
    assert!(plain.starts_with("single: first that fits") && plain.contains("; client plain: "), "{plain}");
    assert!(family.starts_with("llama: first that fits") && family.contains("; client family: "), "{family}");
}

#[tokio::test(start_paused = true)]
async fn an_operators_word_on_a_client_sets_its_sampling_and_its_longest_prompt() {
    let world = two_ways();
    world.backend("llama").then(Reply::says("y"));
    let agent = [("user-agent", "familybot")];
    sent(&world, CHAT, &agent, &ask("hi").replace(r#""model""#, r#""temperature":1.0,"model""#)).await;
    let body = world.backend("llama").seen()[0].json();
    assert_eq!((body["temperature"].as_f64(), body["min_p"].as_f64()), (Some(0.6), Some(0.0)));
    let refused = sent(&world, CHAT, &agent, &ask(&words(1500))).await;
    assert_eq!(
        (refused.status.as_u16(), refused.error()["code"].as_str()),
        (400, Some("context_length_exceeded"))
    );
    assert!(refused.error()["message"].as_str().is_some_and(|text| text.contains("> 1000 maximum")));
}

#[tokio::test(start_paused = true)]
async fn every_recorded_client_is_recognised_by_what_it_sends_and_the_reason_says_so() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/clients");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("recorded requests") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let file = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let wanted = file.split('.').next().expect("a first part");
        let recorded: Value =
            serde_json::from_str(&std::fs::read_to_string(&path).expect("text")).expect("json");
        let mut tools = Value::Null;
        for one in recorded["requests"].as_array().expect("requests") {
            let (Some(path), Some(body)) =
                (one["path"].as_str(), one.get("body").filter(|body| body.is_object()))
            else {
                continue;
            };
            if !path.starts_with("/v1/") {
                // What some ask before they begin is answered with 404, and says nothing of them.
                continue;
            }
            // A later request of a file refers to the tools of the first that has some.
            let mut body = body.clone();
            if body["tools"].is_string() {
                body["tools"] = tools.clone();
            }
            if tools.is_null() {
                tools = body["tools"].clone();
            }
            let mut headers: Vec<(String, String)> = Vec::new();
            for (name, value) in one["headers"].as_object().expect("headers") {
                let name = name.to_lowercase();
                let hop = ["host", "connection", "content-length", "transfer-encoding", "accept-encoding"];
                if !hop.contains(&name.as_str()) {
                    headers.push((name, value.as_str().unwrap_or_default().to_owned()));
                }
            }
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let world = World::configured(
                "[[backend]]\nname = \"b\"\nurl = \"http://b\"\nmodel = \"m\"\n[[model]]\nname = \"m\"\naliases = [\"*\"]\n",
            );
            world.backend("b").then(Reply::json(400, r#"{"error":{"message":"enough","code":400}}"#));
            let answer = sent(&world, path, &headers, &body.to_string()).await;
            let reason = answer.header("x-switchback-reason");
            assert!(reason.contains(&format!("client {wanted}: ")), "{file}: {} {reason}", answer.body);
            seen += 1;
        }
    }
    assert!(seen >= 20, "{seen} recorded requests");
}

#[tokio::test(start_paused = true)]
async fn each_client_hears_what_it_counts_as_a_sign_of_life() {
    let slow = || {
        let steps = vec![Step::Pause(Duration::from_secs(35)), role(), delta("x"), finish("stop")];
        Reply::stream(steps)
    };
    let world = World::new(&[("b", 8000)], "");
    world.backend("b").then(slow());
    let qwen = sent(&world, CHAT, &[("user-agent", "QwenCode/0.24.4 (linux; x64)")], &ask_stream("hi")).await;
    assert!(
        qwen.body.matches(r#""delta":{"content":""}"#).count() >= 3 && !qwen.body.contains("\n:"),
        "{}",
        qwen.body
    );

    let done = "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}\n\n";
    world
        .backend("b")
        .then(Reply::stream(vec![Step::Pause(Duration::from_secs(35)), Step::Send(done.into())]));
    let body = r#"{"model":"m","stream":true,"input":"hi"}"#;
    let codex = sent(
        &world,
        "/v1/responses",
        &[("user-agent", "codex_exec/0.171.0"), ("originator", "codex_exec")],
        body,
    )
    .await;
    assert_eq!(codex.body.matches("event: ping\ndata: {\"type\":\"ping\"}\n\n").count(), 3, "{}", codex.body);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_stays_where_it_was_while_that_is_not_clearly_worse() {
    let world = World::new(&[("a", 8000), ("b", 8000)], "");
    let session = [("user-agent", "opencode/1.18.33"), ("x-session-id", "ses_1")];
    world
        .backend("a")
        .then(Reply::json(503, r#"{"error":{"message":"The engine is currently busy","code":503}}"#));
    world.backend("b").then(Reply::says("1")).then(Reply::says("2"));
    assert_eq!(sent(&world, CHAT, &session, &ask("one")).await.header("x-switchback-backend"), "b");
    assert_eq!(sent(&world, CHAT, &session, &ask("two")).await.header("x-switchback-backend"), "b");
    world.backend("a").then(Reply::says("3"));
    let other = [("user-agent", "opencode/1.18.33"), ("x-session-id", "ses_2")];
    assert_eq!(sent(&world, CHAT, &other, &ask("one")).await.header("x-switchback-backend"), "a");
}

#[tokio::test(start_paused = true)]
async fn a_picture_of_an_earlier_turn_does_not_bar_a_backend_that_reads_none() {
    let config = "[[backend]]\nname = \"b\"\nurl = \"http://b\"\nmodel = \"m\"\nimages = false\n";
    let world = World::configured(config);
    world.backend("b").then(Reply::says("ok"));
    let picture = r#"{"role":"user","content":[{"type":"text","text":"See:"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}"#;
    let old = format!(
        r#"{{"model":"m","messages":[{picture},{{"role":"assistant","content":"I see."}},{{"role":"user","content":"Go on."}}]}}"#
    );
    let new = format!(r#"{{"model":"m","messages":[{picture}]}}"#);
    assert_eq!(sent(&world, CHAT, &[], &old).await.status, 200);
    let body = &world.backend("b").seen()[0].body;
    assert!(!body.contains("image_url") && body.contains("See:") && body.contains("Go on."), "{body}");
    let refused = sent(&world, CHAT, &[], &new).await;
    assert_eq!(
        (refused.status.as_u16(), refused.error()["code"].as_str()),
        (400, Some("images_not_supported"))
    );
}

#[tokio::test(start_paused = true)]
async fn the_clients_name_for_the_model_stands_in_answers_where_the_operator_wants_it() {
    let world = World::new(&[("b", 8000)], "[answer]\nmodel_name = \"client\"\n");
    let whole = r#"{"model":"m","choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}"#;
    let chunk = r#"{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}],"model":"m"}"#;
    world
        .backend("b")
        .then(Reply::json(200, whole))
        .then(Reply::stream(vec![Step::Send(format!("data: {chunk}\n\n"))]));
    let auto = |body: String| body.replace(r#""model":"m""#, r#""model":"auto""#);
    assert_eq!(sent(&world, CHAT, &[], &auto(ask("hi"))).await.body, auto(whole.to_owned()));
    let stream = sent(&world, CHAT, &[], &auto(ask_stream("hi"))).await;
    assert_eq!(stream.body, format!("data: {}\n\ndata: [DONE]\n\n", auto(chunk.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_new_configuration_holds_for_new_requests_and_running_ones_keep_theirs() {
    let two = "[[backend]]\nname = \"a\"\nurl = \"http://a\"\nmodel = \"m\"\n[[backend]]\nname = \"b\"\nurl = \"http://b\"\nmodel = \"m\"\n";
    let world = World::configured(two);
    let slow =
        vec![role(), delta("one "), Step::Pause(Duration::from_secs(20)), delta("two"), finish("stop")];
    world.backend("a").then(Reply::stream(slow));
    let mut running = send(world.client().await, CHAT, &[], &ask_stream("hi")).await;
    running.until("one").await;
    world.reload("[[backend]]\nname = \"b\"\nurl = \"http://b\"\nmodel = \"m\"\n");
    world.backend("b").then(Reply::says("x"));
    assert_eq!(sent(&world, CHAT, &[], &ask("hi")).await.header("x-switchback-backend"), "b");
    assert!(!world.get("/health").await.body.contains("\"a\""));
    let running = running.whole().await;
    assert!(running.body.contains("two") && running.body.ends_with("data: [DONE]\n\n"), "{}", running.body);
}

#[tokio::test(start_paused = true)]
async fn a_line_that_changes_with_every_request_is_taken_off_the_prompts_head() {
    let world = World::new(&[("b", 8000)], "");
    world.backend("b").then(Reply::says("x")).then(Reply::says("x"));
    let body = |system: &str| {
        format!(
            r#"{{"model":"m","messages":[{{"role":"system","content":{system}}},{{"role":"user","content":"hi"}}]}}"#
        )
    };
    sent(&world, CHAT, &[], &body(r#""x-anthropic-billing-header: cch=1;\nYou are.""#)).await;
    sent(&world, CHAT, &[], &body(r#"[{"type":"text","text":"x-anthropic-billing-header: cch=2;"},{"type":"text","text":"You are."}]"#)).await;
    let seen = world.backend("b").seen();
    assert_eq!(seen[0].body, body(r#""You are.""#));
    assert_eq!(seen[1].body, body(r#"[{"type":"text","text":"You are."}]"#));
}

#[tokio::test(start_paused = true)]
async fn an_output_limit_that_cannot_be_meant_is_raised_with_tools_only() {
    let world = World::new(&[("b", 8000)], "[[client]]\nname = \"all\"\nmin_output = 1024\n");
    world.backend("b").then(Reply::says("x")).then(Reply::says("x"));
    let plain = ask("hi").replacen('{', r#"{"max_tokens":64,"#, 1);
    let agent = plain.replacen('{', r#"{"tools":[{"type":"function","function":{"name":"a"}}],"#, 1);
    let raised = world.chat(&agent).await;
    world.chat(&plain).await;
    let limits: Vec<_> =
        world.backend("b").seen().iter().map(|seen| seen.json()["max_tokens"].clone()).collect();
    assert_eq!(limits, [1024, 64]);
    assert!(raised.header("x-switchback-reason").contains("output raised to 1024"));
}

#[tokio::test(start_paused = true)]
async fn a_backend_gets_a_request_as_its_template_and_server_can_read_it() {
    let world = World::configured(
        "[[backend]]\nname = \"b\"\nurl = \"http://b\"\nengine = \"llama-cpp\"\nwindow = 8000\nmodel = \"m\"\n\
         needs = [\"string-content\", \"no-null-content\"]\ndrop = [\"/store\"]\ndrop_schema_keywords = [\"pattern\"]\n",
    );
    world.backend("b").then(Reply::says("x"));
    let body = r#"{"model":"m","store":true,"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
        {"role":"assistant","content":null}],
        "tools":[{"type":"function","function":{"name":"a","parameters":{"properties":{"pattern":{"pattern":"\\d"}}}}}]}"#;
    world.chat(body).await;
    let seen = world.backend("b").seen().last().expect("a request").json();
    assert_eq!(
        (&seen["messages"][0]["content"], &seen["messages"][1]["content"]),
        (&"ab".into(), &"".into())
    );
    assert!(seen.get("store").is_none());
    let parameters = &seen["tools"][0]["function"]["parameters"];
    assert_eq!(parameters.to_string(), r#"{"properties":{"pattern":{}}}"#);
}

#[tokio::test(start_paused = true)]
async fn a_client_may_have_an_order_of_its_own_without_losing_the_other_backends() {
    let world = World::new(
        &[("single", 8000), ("llama", 8000)],
        "[[client]]\nname = \"night\"\nwhen = { user_agent = \"nightbot\" }\norder = [\"llama\"]\n",
    );
    world.backend("llama").then(Reply::says("first")).listens(true);
    world.backend("single").then(Reply::says("others"));
    let night = [("user-agent", "nightbot")];
    let first = sent(&world, CHAT, &night, &ask("hi")).await;
    world.backend("llama").listens(false);
    let second = sent(&world, CHAT, &night, &ask("hi")).await;
    assert_eq!(
        (first.header("x-switchback-backend"), second.header("x-switchback-backend")),
        ("llama", "single")
    );
}
