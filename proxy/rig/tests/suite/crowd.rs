//! Many streams at once, on one core and paused time: `cargo test -p switchback-rig thousand -- --nocapture` says what
//! it took.

use serde_json::json;
use switchback_rig::{EventKind, Rig, Spec};
use tokio::task::JoinSet;

use crate::client::*;

const STREAMS: usize = 1_000;
const TOKENS: usize = 60;

#[tokio::test(start_paused = true)]
async fn a_thousand_streams_on_one_core_hold_their_pace() {
    let begun = std::time::Instant::now();
    let rig = start(Spec { slots: STREAMS, batch_tokens: 16_384, ..vllm() });
    let mut streams = JoinSet::new();
    for stream in 0..STREAMS {
        let more = json!({"stream": true, "max_tokens": TOKENS, "ignore_eos": true});
        let body = chat(&format!("stream {stream}"), more).to_string();
        let connection = rig.connect().await.unwrap();
        streams.spawn(async move {
            let mut answer = exchange(connection, "POST", CHAT, body, &[]).await.unwrap();
            let (mut chunks, mut gaps, mut last) = (0, Vec::new(), None);
            while let Some(event) = answer.event().await {
                let now = tokio::time::Instant::now();
                if event.contains("\"content\":\"\"") || event == "data: [DONE]" {
                    continue;
                }
                chunks += 1;
                gaps.extend(last.map(|last| now.duration_since(last).as_secs_f64()));
                last = Some(now);
            }
            (chunks, gaps)
        });
    }
    let mut longest = 0.0_f64;
    while let Some(stream) = streams.join_next().await {
        let (chunks, gaps) = stream.unwrap();
        assert_eq!(chunks, TOKENS);
        longest = gaps.into_iter().fold(longest, f64::max);
    }
    assert_eq!(count(&rig, |kind| matches!(kind, EventKind::Finished { .. })), STREAMS);
    // a prefill of all that came together is one step; after it all have the pace of one
    let prefill = rig.spec().timing.first_token(STREAMS * 10);
    assert!(longest < prefill + 0.02, "{longest} s, a step of all prefills is {prefill} s");
    let last = rig.events().last().unwrap().at;
    let pace = prefill + TOKENS as f64 * rig.spec().timing.decode_step(STREAMS, 0.0);
    assert!(last < pace * 1.5 + 0.5, "{last} s, at the pace of the machine {pace} s");
    println!(
        "{STREAMS} streams of {TOKENS} tokens: {last:.1} simulated s, {:.1} real s",
        begun.elapsed().as_secs_f64()
    );
}

fn count(rig: &Rig, wanted: impl Fn(&EventKind) -> bool) -> usize {
    rig.events().iter().filter(|event| wanted(&event.kind)).count()
}
