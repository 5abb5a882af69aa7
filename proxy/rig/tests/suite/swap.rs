//! The swap API: one card, one backend at a time.

use serde_json::{Value, json};
use switchback_rig::{Clock, Fleet, Member, Spec, Swap};

use crate::client::*;

/// Two backends that load for 97 and 30 seconds, on ports that were free a moment ago.
fn swap(token: Option<&str>) -> Swap {
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let member = |name: &str, model: &str, load_time, spec: Spec| {
        let spec = Spec { name: name.to_owned(), model: model.to_owned(), load_time, ..spec };
        Member { spec, listen: free() }
    };
    let members =
        vec![member("vllm/a", "qwen-a", 97.0, vllm()), member("llamacpp/b", "qwen-b", 30.0, llama())];
    Swap::start(Fleet { members }, ([127, 0, 0, 1], 0).into(), Clock::real(), token.map(str::to_owned))
        .unwrap()
}

async fn ask(swap: &Swap, method: &str, path: &str, body: Value) -> (u16, Value) {
    let stream = swap.connect().await.unwrap();
    let answer = exchange(stream, method, path, body.to_string(), &[]).await.unwrap();
    (answer.status().as_u16(), answer.json().await)
}

#[tokio::test(start_paused = true)]
async fn a_switch_blocks_until_the_other_backend_is_ready_and_takes_the_first_one_down() {
    let swap = swap(None);
    let (_, status) = ask(&swap, "GET", "/status", json!({})).await;
    assert_eq!((&status["docker_state"], &status["current_slug"]), (&json!("absent"), &Value::Null));

    let (code, answer) = ask(&swap, "POST", "/switch", json!({"slug": "vllm/a"})).await;
    assert_eq!(
        (code, answer),
        (200, json!({"ok": true, "slug": "vllm/a", "model": "qwen-a", "took_s": 97.0}))
    );
    let (_, status) = ask(&swap, "GET", "/status", json!({})).await;
    assert_eq!((&status["healthy"], &status["current_model"]), (&json!(true), &json!("qwen-a")));
    let (_, again) = ask(&swap, "POST", "/switch", json!({"model": "qwen-a"})).await;
    assert_eq!((&again["status"], &again["took_s"]), (&json!("already-running"), &json!(0)));

    let first = status["port"].as_u64().unwrap() as u16;
    let (code, answer) = ask(&swap, "POST", "/switch", json!({"model": "qwen-b"})).await;
    assert_eq!((code, &answer["slug"], &answer["took_s"]), (200, &json!("llamacpp/b"), &json!(33.0)));
    assert_eq!(swap.current().as_deref(), Some("llamacpp/b"));
    let refused = tokio::net::TcpStream::connect(("127.0.0.1", first)).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);

    assert_eq!(ask(&swap, "POST", "/down", json!({})).await, (200, json!({"ok": true, "status": "down"})));
    assert_eq!(swap.current(), None);
}

#[tokio::test(start_paused = true)]
async fn a_second_switch_gets_409_and_the_first_goes_on_though_its_client_hangs_up() {
    let swap = swap(None);
    let first = swap.connect().await.unwrap();
    let body = json!({"slug": "vllm/a"}).to_string();
    let first = tokio::spawn(exchange(first, "POST", "/switch", body, &[]));
    while swap.current().is_none() {
        tokio::task::yield_now().await;
    }
    let (code, answer) = ask(&swap, "POST", "/switch", json!({"slug": "llamacpp/b"})).await;
    assert_eq!((code, answer), (409, json!({"error": "a transition is already in progress"})));
    let (_, status) = ask(&swap, "GET", "/status", json!({})).await;
    assert_eq!((&status["docker_state"], &status["desired_slug"]), (&json!("unready"), &json!("vllm/a")));
    first.abort();
    tokio::time::advance(std::time::Duration::from_secs(98)).await;
    let again = ask(&swap, "POST", "/switch", json!({"slug": "vllm/a"}));
    let (code, answer) = again.await;
    assert_eq!((code, &answer["status"]), (200, &json!("already-running")));
}

#[tokio::test(start_paused = true)]
async fn what_is_unknown_ambiguous_or_unauthorized_is_refused_as_there() {
    let swap = swap(None);
    let (code, answer) = ask(&swap, "POST", "/switch", json!({"slug": "vllm/c"})).await;
    assert_eq!((code, &answer["available"]), (400, &json!(["vllm/a", "llamacpp/b"])));
    let (code, answer) = ask(&swap, "POST", "/switch", json!({"model": "qwen"})).await;
    assert_eq!((code, &answer["candidates"]), (400, &json!(["qwen-a", "qwen-b"])));
    assert_eq!(ask(&swap, "POST", "/switch", json!({})).await.0, 400);
    assert_eq!(ask(&swap, "POST", "/switch", json!([])).await.0, 400);
    assert_eq!(ask(&swap, "GET", "/nope", json!({})).await, (404, json!({"error": "not found"})));

    let locked = self::swap(Some("secret"));
    assert_eq!(ask(&locked, "GET", "/status", json!({})).await, (401, json!({"error": "unauthorized"})));
    assert_eq!(ask(&locked, "GET", "/healthz", json!({})).await.0, 200);
    let stream = locked.connect().await.unwrap();
    let known = [("authorization", "Bearer secret")];
    assert_eq!(exchange(stream, "GET", "/models", String::new(), &known).await.unwrap().status(), 200);
}
