//! Deaths, restarts, hang-ups and the queue: what happens to whom.

use std::io;

use serde_json::json;
use switchback_rig::{Clock, EventKind, Fleet, Phase, Spec, text_of_tokens};
use tokio::net::TcpStream;

use crate::client::*;

const DEATH: &str = "data: {\"error\": {\"message\": \"EngineCore encountered an issue. See stack trace (above) for the \
                     root cause.\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}\n\ndata: [DONE]\n\n";

fn endless() -> serde_json::Value {
    chat("hi", json!({"stream": true, "max_tokens": 4_000, "ignore_eos": true}))
}

fn killing() -> serde_json::Value {
    chat(&text_of_tokens(2_000, 1), json!({"stream": true}))
}

#[tokio::test(start_paused = true)]
async fn one_prompt_over_the_cliff_takes_every_vllm_stream_with_it() {
    let rig = start(Spec { dies_above: Some(1_500), slots: 3, ..vllm() });
    let plain = chat("hi", json!({"max_tokens": 4_000, "ignore_eos": true}));
    let innocent_plain = post(&rig, CHAT, &plain);
    tokio::pin!(innocent_plain);
    tokio::select! {
        _ = &mut innocent_plain => panic!("still decoding"),
        _ = happens(&rig, 1, |kind| *kind == EventKind::FirstToken) => {}
    }
    let mut innocent = post(&rig, CHAT, &endless()).await;
    innocent.event().await.unwrap();
    let guilty = post(&rig, CHAT, &killing()).await;
    assert_eq!(guilty.status(), 200, "the head was out before");

    assert_eq!(guilty.text().await, DEATH, "no role chunk before it");
    let rest = innocent.rest().await.unwrap();
    assert!(rest.contains("\"content\"") && rest.ends_with(DEATH), "tokens, then the same two lines");
    let plain = innocent_plain.await;
    assert_eq!(plain.status(), 500);
    assert_eq!(plain.json().await["error"]["type"], "InternalServerError");

    let died = rig.event(|event| matches!(event.kind, EventKind::Died { .. })).await;
    assert_eq!(died.kind, EventKind::Died { by: Some(3) });
    let started = happens(&rig, 3, |kind| *kind == EventKind::PrefillStarted).await.at;
    let expect = 0.1 + 2_007.0 * 0.8 * 1e-3;
    assert!(
        (died.at - started - expect).abs() < 0.03,
        "at four fifths of the prefill: {}",
        died.at - started
    );
    let lost = |request| happens(&rig, request, |kind| matches!(kind, EventKind::Lost { .. }));
    assert_eq!(lost(2).await.kind, EventKind::Lost { phase: Phase::Decode });
    assert_eq!(lost(3).await.kind, EventKind::Lost { phase: Phase::Prefill });
}

#[tokio::test(start_paused = true)]
async fn a_dead_vllm_says_503_then_refuses_then_returns() {
    let rig = start(Spec { restart_after: Some(3.0), load_time: 97.0, ..vllm() });
    let mut stream = post(&rig, CHAT, &endless()).await;
    stream.event().await.unwrap();
    rig.kill();
    stream.rest().await.unwrap();
    let killed = rig.event(|event| event.kind == EventKind::Died { by: None }).await;
    assert_eq!(get(&rig, "/health").await.status(), 503);
    assert_eq!(get(&rig, "/version").await.status(), 200, "only the engine is dead");
    let down = rig.event(|event| event.kind == EventKind::Down).await;
    assert!((down.at - killed.at - 2.5).abs() < 0.05, "{}", down.at - killed.at);
    assert_eq!(rig.connect().await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);

    let ready = rig.event_since(down.number, |event| event.kind == EventKind::Ready).await;
    assert!((ready.at - down.at - 100.0).abs() < 0.05, "3 s down, 97 s of loading");
    assert_eq!(get(&rig, "/health").await.status(), 200);
    assert_eq!(post(&rig, CHAT, &chat("hi", json!({}))).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_plain_request_to_a_dead_vllm_gets_500_and_hastens_its_end() {
    let rig = start(vllm());
    rig.kill();
    let killed = rig.event(|event| matches!(event.kind, EventKind::Died { .. })).await;
    assert_eq!(get(&rig, "/health").await.status(), 503);
    let answer = post(&rig, CHAT, &chat("hi", json!({"stream": true}))).await;
    assert_eq!(answer.status(), 500);
    let down = rig.event(|event| event.kind == EventKind::Down).await;
    assert!((down.at - killed.at - 0.5).abs() < 0.05, "{}", down.at - killed.at);
}

#[tokio::test]
async fn a_dead_port_refuses_and_a_new_one_is_the_same() {
    let fast = || Clock::new(1_000.0).unwrap();
    for spec in [vllm(), llama()] {
        let stays = start_at(Spec { restart_after: None, ..spec.clone() }, fast());
        assert_eq!(dial(&stays, "GET", "/v1/models", None).await.unwrap().status(), 200);
        stays.kill();
        stays.event(|event| event.kind == EventKind::Down).await;
        let refused = TcpStream::connect(stays.addr()).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);

        let returns = start_at(Spec { restart_after: Some(3.0), load_time: 5.0, ..spec }, fast());
        returns.kill();
        let down = returns.event(|event| event.kind == EventKind::Down).await;
        returns.event_since(down.number, |event| event.kind == EventKind::Ready).await;
        assert_eq!(dial(&returns, "GET", "/v1/models", None).await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn an_aborting_llama_resets_every_connection() {
    let rig = start_at(Spec { dies_above: Some(1_500), ..llama() }, Clock::new(10.0).unwrap());
    let idle = TcpStream::connect(rig.addr()).await.unwrap();
    let mut innocent = dial(&rig, "POST", CHAT, Some(&endless())).await.unwrap();
    innocent.event().await.unwrap();
    let guilty = dial(&rig, "POST", CHAT, Some(&chat(&text_of_tokens(2_000, 1), json!({})))).await;
    assert!(guilty.is_err(), "no answer at all");
    let broken = innocent.rest().await.unwrap_err();
    let cause = std::error::Error::source(&broken).map(ToString::to_string).unwrap_or_default();
    assert!(cause.contains("reset"), "{broken}: {cause}");
    idle.readable().await.unwrap();
    assert_eq!(idle.try_read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test(start_paused = true)]
async fn hanging_up_cancels_in_the_queue_in_prefill_and_in_decode() {
    for spec in [vllm(), llama()] {
        for stream in [true, false] {
            let rig = start(Spec { slots: 1, ..spec.clone() });
            let long = chat(
                &text_of_tokens(3_000, 1),
                json!({"stream": stream, "max_tokens": 900, "ignore_eos": true}),
            );
            let running = rig.connect().await.unwrap();
            let running = tokio::spawn(exchange(running, "POST", CHAT, long.to_string(), &[]));
            happens(&rig, 1, |kind| *kind == EventKind::PrefillStarted).await;

            let queued = rig.connect().await.unwrap();
            let queued = tokio::spawn(exchange(queued, "POST", CHAT, long.to_string(), &[]));
            happens(&rig, 2, |kind| matches!(kind, EventKind::Arrived { .. })).await;
            hang_up(queued).await;
            let cut = happens(&rig, 2, |kind| matches!(kind, EventKind::Cut { .. })).await;
            assert_eq!(cut.kind, EventKind::Cut { phase: Phase::Queued });
            hang_up(running).await;
            let cut = happens(&rig, 1, |kind| matches!(kind, EventKind::Cut { .. })).await;
            assert_eq!(cut.kind, EventKind::Cut { phase: Phase::Prefill });

            let decoding = rig.connect().await.unwrap();
            let decoding = tokio::spawn(exchange(decoding, "POST", CHAT, long.to_string(), &[]));
            happens(&rig, 3, |kind| *kind == EventKind::FirstToken).await;
            hang_up(decoding).await;
            let cut = happens(&rig, 3, |kind| matches!(kind, EventKind::Cut { .. })).await;
            assert_eq!(cut.kind, EventKind::Cut { phase: Phase::Decode });
            assert_eq!((rig.load().running, rig.load().waiting), (0, 0));
        }
    }
}

/// Ends a request that may or may not have its head.
async fn hang_up(request: tokio::task::JoinHandle<hyper::Result<Answer>>) {
    request.abort();
    drop(request.await);
}

#[tokio::test(start_paused = true)]
async fn a_cut_prefill_gives_its_time_to_the_next() {
    let rig = start(Spec { slots: 1, batch_tokens: 500, ..vllm() });
    let long = post(&rig, CHAT, &chat(&text_of_tokens(4_000, 1), json!({"stream": true}))).await;
    happens(&rig, 1, |kind| *kind == EventKind::PrefillStarted).await;
    let mut next = post(&rig, CHAT, &chat("hi", json!({"stream": true}))).await;
    drop(long);
    let cut = happens(&rig, 1, |kind| matches!(kind, EventKind::Cut { .. })).await;
    next.event().await.unwrap();
    let first = happens(&rig, 2, |kind| *kind == EventKind::FirstToken).await;
    assert_eq!(rig.load().prefilled, 1_000 / 2 + 8, "one step of the long one, and the short one");
    assert!(
        first.at - cut.at < 1.0,
        "the running step ends, the rest is not computed: {}",
        first.at - cut.at
    );
}

#[tokio::test]
async fn a_fleet_starts_whole_or_not_at_all() {
    let file = |ports: [u16; 2]| {
        let entry = |(name, port): (&str, u16)| {
            format!("[[backend]]\nname = '{name}'\nengine = 'vllm'\nlisten = '127.0.0.1:{port}'\n")
        };
        Fleet::from_toml(&(entry(("a", ports[0])) + &entry(("b", ports[1])))).unwrap()
    };
    let clock = Clock::real();
    let fleet = file([0, 0]).start(clock).unwrap();
    let taken = fleet[1].addr().port();
    let free = {
        let rig = start(vllm());
        let port = rig.addr().port();
        rig.shutdown().await;
        port
    };
    let error = file([free, taken]).start(clock).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(error.to_string().starts_with(&format!("b at 127.0.0.1:{taken}: ")), "{error}");
    for rig in fleet {
        rig.shutdown().await;
    }
    drop(std::net::TcpListener::bind(("127.0.0.1", taken)).unwrap());
}

#[tokio::test]
async fn a_spec_out_of_range_does_not_start() {
    let wrong = Spec { slots: 0, ..vllm() };
    let error = switchback_rig::Rig::start(wrong, ([127, 0, 0, 1], 0).into(), Clock::real()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), "small: slots is 0, it must be at least 1");
}
