//! What the proxy finds out about its backends by itself: names and windows, over real sockets, of simulated engines.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use switchback::{Config, Service, Tcp};
use switchback_rig::{Clock, Engine, Rig, Spec};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A proxy that knows nothing of its backends but where they are.
fn proxy(urls: &[&str]) -> Service {
    proxy_with(urls, "")
}

/// The same with more in its configuration.
fn proxy_with(urls: &[&str], more: &str) -> Service {
    let mut text = format!("[probe]\ninterval = \"50ms\"\n{more}");
    for (number, url) in urls.iter().enumerate() {
        text.push_str(&format!("[[backend]]\nname = \"b{number}\"\nurl = \"{url}\"\n"));
    }
    let config = Config::parse(&text, Path::new(".")).expect("a configuration that makes sense");
    Service::new(config, Arc::new(Tcp))
}

/// The model list, as soon as it has this name.
async fn until_listed(proxy: &Service, name: &str) -> Vec<Value> {
    let listed = tokio::time::timeout(Duration::from_secs(60), asked_until_listed(proxy, name));
    listed.await.unwrap_or_else(|_| panic!("{name} was never listed"))
}

async fn asked_until_listed(proxy: &Service, name: &str) -> Vec<Value> {
    loop {
        let (mut near, far) = tokio::io::duplex(64 << 10);
        let serving = tokio::spawn(proxy.connection(far));
        near.write_all(b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1:4000\r\nconnection: close\r\n\r\n")
            .await
            .expect("a connection");
        let mut answer = String::new();
        near.read_to_string(&mut answer).await.expect("an answer");
        serving.await.expect("a served connection");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let list: Value = serde_json::from_str(body).expect("json");
        let cards = list["data"].as_array().expect("a list");
        if cards.iter().any(|card| card["id"] == name) {
            return cards.clone();
        }
    }
}

fn window(cards: &[Value], name: &str) -> u64 {
    let card = cards.iter().find(|card| card["id"] == name);
    card.and_then(|card| card["max_model_len"].as_u64()).unwrap_or(0)
}

fn start(slug: &str, address: SocketAddr) -> Rig {
    let spec = Spec::preset(slug).expect("a preset");
    Rig::start(spec, address, Clock::new(1000.0).expect("a clock")).expect("a free port")
}

const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

#[tokio::test]
async fn names_and_windows_of_backends_are_found_without_any_word_about_them() {
    let (vllm, llama) = (start("vllm/dual", ANY_PORT), start("llamacpp/default", ANY_PORT));
    let proxy = proxy(&[&vllm.url(), &llama.url()]);
    let cards = until_listed(&proxy, "qwen3.6-27b-autoround").await;
    assert_eq!(window(&cards, "qwen3.6-27b-autoround"), 262_144);
    // Both serve this name once both are found; the window is that of the larger.
    assert_eq!(window(&until_listed(&proxy, "qwen3.6-27b").await, "qwen3.6-27b"), 262_144);
}

#[tokio::test]
async fn another_model_that_boots_on_the_same_port_is_served_under_its_own_name() {
    let first = start("vllm/minimal", ANY_PORT);
    let (address, url) = (first.addr(), first.url());
    let proxy = proxy(&[&url]);
    assert_eq!(window(&until_listed(&proxy, "qwen3.6-27b").await, "qwen3.6-27b"), 32_768);
    first.shutdown().await;
    let _second = start("vllm/qwen38-27b-dual-fast", address);
    let cards = until_listed(&proxy, "qwen3.8-27b").await;
    assert_eq!(window(&cards, "qwen3.8-27b"), 262_144);
    assert_eq!(window(&cards, "qwen3.6-27b"), 0, "the old name is gone");
}

#[tokio::test]
async fn a_client_that_may_not_swap_has_no_other_model_loaded_in_place_of_the_one_that_runs() {
    let mut spec = Spec::preset("llamacpp/default").expect("a preset");
    (spec.engine, spec.model, spec.aliases) = (Engine::Ollama, "runs:8b".into(), vec!["lies:70b".into()]);
    let ollama = Rig::start(spec, ANY_PORT, Clock::new(1000.0).expect("a clock")).expect("a free port");
    let rule = "[[client]]\nname = \"guest\"\nwhen = { user_agent = \"guest\" }\nmay_swap = false\n";
    let proxy = proxy_with(&[&ollama.url()], rule);
    until_listed(&proxy, "lies:70b").await;
    let ask = async |agent: &str, model: &str| {
        let body =
            format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}],"max_tokens":3}}"#);
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:4000\r\nuser-agent: {agent}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let (mut near, far) = tokio::io::duplex(64 << 10);
        let serving = tokio::spawn(proxy.connection(far));
        near.write_all(format!("{head}{body}").as_bytes()).await.expect("a connection");
        let mut answer = String::new();
        near.read_to_string(&mut answer).await.expect("an answer");
        serving.await.expect("a served connection");
        answer
    };
    assert!(ask("guest", "runs:8b").await.starts_with("HTTP/1.1 200"));
    let refused = ask("guest", "lies:70b").await;
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("lies:70b is not loaded"), "{refused}");
    assert!(ask("owner", "lies:70b").await.starts_with("HTTP/1.1 200"));
}
