//! What backends get of a request: turns as their template takes them, numbers within the operator's bounds. All else is as sent.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Reply, World, request};

fn strict(needs: &str) -> World {
    let world = World::configured(&format!(
        "[[backend]]\nname = \"b\"\nurl = \"http://b\"\nmodel = \"m\"\nneeds = [{needs}]\n\
         [[client]]\nname = \"own\"\nwhen = {{ user_agent = \"own\" }}\nrules_off = [\"late-system-as-user\"]\n"
    ));
    world.backend("b").then(Reply::says("x"));
    world
}

fn said(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

fn seen(world: &World) -> Value {
    world.backend("b").seen().last().expect("a request").json()
}

#[tokio::test(start_paused = true)]
async fn a_conversation_is_put_as_the_template_takes_it_and_its_tools_stay_as_they_were() {
    let world = strict(r#""no-developer", "late-system-as-user", "alternating-roles""#);
    let list = [
        said("developer", "s"),
        said("user", "u"),
        said("system", "x"),
        said("assistant", "a"),
        said("user", "v"),
    ];
    let tools = r#""tools": [ {"type":"function", "function":{"parameters":{"b":1,"a":2},"name":"f"}} ]"#;
    let body = format!(r#"{{{tools},"model":"m","messages":{}}}"#, Value::from(list.to_vec()));
    world.chat(&body).await;
    assert_eq!(
        seen(&world)["messages"],
        json!([said("system", "s"), said("user", "u\n\nx"), said("assistant", "a"), said("user", "v")])
    );
    assert!(world.backend("b").seen()[0].body.contains(tools));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_knows_what_it_sends_keeps_its_messages() {
    let world = strict(r#""late-system-as-user""#);
    let body = json!({ "model": "m", "messages": [said("user", "u"), said("system", "x")] }).to_string();
    let mut sent = request(Method::POST, "/v1/chat/completions", &body);
    sent.headers_mut().insert("user-agent", "own/1".parse().expect("a value"));
    world.client().await.send(sent).await.whole().await;
    assert_eq!(world.backend("b").seen()[0].body, body);
}

#[tokio::test(start_paused = true)]
async fn a_picture_for_a_backend_that_reads_none_is_replaced_also_where_messages_are_joined() {
    let world = World::configured(
        "[[backend]]\nname = \"b\"\nurl = \"http://b\"\nmodel = \"m\"\nimages = false\nneeds = [\"alternating-roles\"]\n",
    );
    world.backend("b").then(Reply::says("x"));
    let picture = json!({ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } }] });
    let list = json!([picture, said("user", "look"), said("assistant", "a"), said("user", "v")]);
    world.chat(&json!({ "model": "m", "messages": list }).to_string()).await;
    let body = &world.backend("b").seen()[0].body;
    assert!(
        !body.contains("image_url")
            && seen(&world)["messages"].as_array().is_some_and(|list| list.len() == 3),
        "{body}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_number_beyond_the_operators_bounds_is_put_within_them_and_others_stay_as_written() {
    let world = World::new(
        &[("b", 8000)],
        "[[client]]\nname = \"all\"\nsampling = { temperature = { at_least = 0.6, at_most = 1 }, min_p = 0.05 }\n",
    );
    let body = |temperature: &str| {
        format!(r#"{{"model":"m",{temperature}"messages":[{{"role":"user","content":"u"}}]}}"#)
    };
    for (sent, expected) in
        [(r#""temperature":0,"#, json!(0.6)), (r#""temperature":2.0,"#, json!(1)), ("", Value::Null)]
    {
        world.backend("b").then(Reply::says("x"));
        world.chat(&body(sent)).await;
        assert_eq!(
            (&seen(&world)["temperature"], &seen(&world)["min_p"]),
            (&expected, &json!(0.05)),
            "{sent}"
        );
    }
    world.backend("b").then(Reply::says("x"));
    world.chat(&body(r#""temperature":0.70,"#)).await;
    assert!(
        world.backend("b").seen().last().is_some_and(|seen| seen.body.contains(r#""temperature":0.70,"#))
    );
}
