//! An engine that lives but does not work is found out by its own counters, and gets work again once it has produced a token.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use http::uri::Authority;
use switchback::{Config, Connect, Connecting, Service};
use switchback_rig::{Clock, Faults, Rig, Spec};
use tokio::time::{Duration, Instant};

use crate::harness::{Answer, Client, Reply, World, ask, ask_stream};

/// A proxy before two simulated engines, over pipes in memory.
struct Engines {
    service: Service,
    rigs: Arc<HashMap<&'static str, Rig>>,
}

#[derive(Debug)]
struct Dial(Arc<HashMap<&'static str, Rig>>);

impl Connect for Dial {
    fn connect(&self, to: &Authority) -> Connecting {
        let (rigs, host) = (self.0.clone(), to.host().to_owned());
        Box::pin(async move {
            let rig = rigs.get(host.as_str()).ok_or(std::io::ErrorKind::ConnectionRefused)?;
            Ok(Box::new(rig.connect().await?) as Box<dyn switchback::Io>)
        })
    }
}

impl Engines {
    fn new(presets: [&str; 2]) -> Self {
        let clock = Clock::new(1.0).expect("a clock");
        let rigs: HashMap<&'static str, Rig> = ["one", "two"]
            .into_iter()
            .zip(presets)
            .map(|(name, preset)| {
                let mut spec = Spec::preset(preset).expect("a preset");
                "m".clone_into(&mut spec.model);
                spec.faults = Faults::default();
                spec.dies_above = None;
                let rig = Rig::start(spec, ([127, 0, 0, 1], 0).into(), clock).expect("a rig");
                (name, rig)
            })
            .collect();
        let config = "[[backend]]\nname = \"one\"\nurl = \"http://one\"\n[[backend]]\nname = \"two\"\nurl = \"http://two\"\n\
                      [[model]]\nname = \"m\"\nbackends = [\"one\", \"two\"]\n";
        let rigs = Arc::new(rigs);
        let config = Config::parse(config, Path::new(".")).expect("a configuration that makes sense");
        Self { service: Service::new(config, Arc::new(Dial(rigs.clone()))), rigs }
    }

    async fn chat(&self, body: &str) -> Answer {
        let (near, far) = tokio::io::duplex(64 << 10);
        tokio::spawn(self.service.connection(far));
        Client::over(near).await.post("/v1/chat/completions", body).await.whole().await
    }

    /// Time to be probed.
    async fn look(&self) {
        tokio::time::sleep(Duration::from_secs(15)).await;
    }
}

fn backend(answer: &Answer) -> &str {
    let told = answer.header("x-switchback-backend");
    // The head was sent before it was known.
    let comment = answer.body.lines().find_map(|line| line.strip_prefix(": backend "));
    comment.unwrap_or(told)
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_falls_silent_is_found_out_by_its_own_counters_and_not_by_a_timeout() {
    for presets in [["vllm/dual", "vllm/dual"], ["llamacpp/default", "vllm/dual"]] {
        let engines = Engines::new(presets);
        engines.look().await;
        engines.rigs["one"].silence();
        let began = Instant::now();
        let answer = engines.chat(&ask_stream("hi")).await;
        assert_eq!(backend(&answer), "two", "{}", answer.body);
        assert!(began.elapsed() < Duration::from_secs(45), "{presets:?}: {:?}", began.elapsed());

        let while_silent = engines.chat(&ask_stream("hi")).await;
        assert_eq!(backend(&while_silent), "two", "it gets no work while it produces no token");
        engines.rigs["one"].resume();
        tokio::time::sleep(Duration::from_secs(120)).await;
        // Another conversation: the first has its home now.
        assert_eq!(backend(&engines.chat(&ask_stream("hello")).await), "one");
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_reads_a_long_prompt_is_not_doubted() {
    let engines = Engines::new(["vllm/dual", "vllm/dual"]);
    engines.look().await;
    let long = ask_stream(&switchback_rig::text_of_tokens(90_000, 1));
    let answer = engines.chat(&long).await;
    assert_eq!(backend(&answer), "one");
    assert!(answer.body.ends_with("data: [DONE]\n\n") && !answer.body.contains("\"error\""));
}

#[tokio::test(start_paused = true)]
async fn failures_in_a_row_leave_a_backend_alone_until_it_has_produced_a_token() {
    let world = World::new(&[("bad", 8000), ("good", 8000)], "");
    world.backend("bad").token(Reply::json(500, r#"{"error":{"message":"broken"}}"#));
    for conversation in ["a", "b", "c", "d", "e"] {
        world.backend("bad").then(Reply::json(500, r#"{"error":{"message":"broken"}}"#));
        world.backend("good").then(Reply::says("ok"));
        world.chat(&ask(conversation)).await;
    }
    world.backend("good").then(Reply::says("ok"));
    tokio::time::sleep(Duration::from_secs(30)).await;
    world.chat(&ask("f")).await;
    assert_eq!(world.backend("bad").seen().len(), 5, "left alone");

    world.backend("bad").token(Reply::says(".")).then(Reply::says("back"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.chat(&ask("g")).await.header("x-switchback-backend"), "bad");
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_answers_with_garbage_gets_no_work_until_it_was_restarted() {
    let world = World::new(&[("ill", 8000), ("good", 8000)], "");
    let garbage = "!".repeat(200);
    world.backend("ill").token(Reply::says("!!!!!!!!!!!!!!!!"));
    for _ in 0..3 {
        world.backend("ill").then(Reply::streams(&[&garbage]));
        world.chat(&ask_stream("hi")).await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.backend("good").then(Reply::says("ok"));
    assert_eq!(world.chat(&ask("hi")).await.header("x-switchback-backend"), "good");
    let metrics = world.get("/metrics").await.body;
    assert!(metrics.contains("switchback_backend_needs_restart{backend=\"ill\"} 1"), "{metrics}");

    world.backend("ill").token(Reply::says(".")).listens(false);
    tokio::time::sleep(Duration::from_secs(20)).await;
    world.backend("ill").listens(true).then(Reply::says("well"));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(world.chat(&ask("hi")).await.header("x-switchback-backend"), "ill");
}

#[tokio::test(start_paused = true)]
async fn empty_answers_to_one_client_do_not_stop_an_engine_that_still_speaks() {
    let world = World::new(&[("well", 8000), ("other", 8000)], "");
    for _ in 0..4 {
        world.backend("well").then(Reply::says(""));
        world.chat(&ask("hi")).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    world.backend("well").then(Reply::says("still there"));
    assert!(world.chat(&ask("hi")).await.body.contains("still there"));
}
