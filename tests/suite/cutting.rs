//! Calls that the limit cut: asked for once more, or continued where they were cut, for clients whose operator wants that.

use serde_json::{Value, json};

use crate::demanding::{ask, bodies, calls, good_call, reply, wishing};
use crate::harness::Reply;
use crate::repairing::{CALL, assembled, frames};

#[tokio::test(start_paused = true)]
async fn a_call_that_the_limit_cut_is_asked_for_once_more_with_room() {
    for stream in [false, true] {
        for (wish, asked) in [("", 1), ("cut_calls = \"rescue\"", 2)] {
            let world = wishing(wish);
            world.backend("b").then(reply(&CALL[..60], "length", stream)).then(reply(CALL, "stop", stream));
            let answer = ask(&world, stream, json!({ "max_tokens": 20 })).await;
            let limits: Vec<Value> =
                bodies(world.backend("b")).iter().map(|body| body["max_tokens"].clone()).collect();
            assert_eq!(limits, [json!(20), json!(4096)][..asked]);
            assert_eq!(calls(&answer), if asked == 2 { good_call() } else { Vec::new() });
            let says = if asked == 2 { "asked again for 4096 tokens: the limit cut a call" } else { "" };
            assert_eq!(answer.header("x-switchback-adjusted"), says);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_cut_behind_shown_text_goes_on_where_it_was_cut() {
    // In a value, and where a template would trim the end; echoed as by llama.cpp, and not, as by vLLM.
    for (cut, kept) in [(60, 60), (12, 11)] {
        for echoes in [false, true] {
            let world = wishing("cut_calls = \"rescue\"");
            let begun = format!("Let me look.\n{}", &CALL[..kept]);
            let goes_on = format!("{}{}", if echoes { &begun } else { "" }, &CALL[kept..]);
            let text = format!("Let me look.\n{}", &CALL[..cut]);
            world.backend("b").then(Reply::stream(frames(&text, 5, "length")));
            world.backend("b").then(reply(&goes_on, "stop", false));
            let options = json!({ "max_tokens": 20, "stream_options": { "include_usage": true } });
            let answer = ask(&world, true, options).await;
            assert_eq!(calls(&answer), good_call(), "{}", answer.body);
            let message = assembled(&answer);
            assert_eq!(
                (message.content.trim(), message.finish.as_deref()),
                ("Let me look.", Some("tool_calls"))
            );
            assert!(
                answer.body.contains(": adjusted continued: the limit cut a call\n\n"),
                "{}",
                answer.body
            );
            assert!(answer.body.ends_with("data: [DONE]\n\n"));
            let [first, second] = bodies(world.backend("b")).try_into().expect("two requests");
            assert_eq!(second["messages"][0], first["messages"][0]);
            assert_eq!(second["messages"][1], json!({ "role": "assistant", "content": begun }));
            let sent = |member: &str| second[member].clone();
            assert_eq!(
                (sent("continue_final_message"), sent("add_generation_prompt")),
                (json!(true), json!(false))
            );
            assert_eq!(
                (sent("stream"), sent("tool_choice"), sent("max_tokens")),
                (json!(false), json!("none"), json!(4076))
            );
            assert_eq!(second.get("stream_options"), None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_continuation_that_closes_no_call_leaves_the_answer_cut() {
    for (cut, second) in [
        (60, reply("and so on", "stop", false)),
        // A call, but not the one that was begun: the seam does not hold.
        (11, reply(&format!(" is how I call:\n{CALL}"), "stop", false)),
        (60, reply(&CALL[60..90], "length", false)),
        (60, Reply::json(400, r#"{"error":{"message":"no","code":400}}"#)),
        (60, Reply::closes()),
    ] {
        let world = wishing("cut_calls = \"rescue\"");
        world.backend("b").then(Reply::stream(frames(
            &format!("Let me look.\n{}", &CALL[..cut]),
            5,
            "length",
        )));
        world.backend("b").then(second.clone());
        let answer = ask(&world, true, json!({ "max_tokens": 20 })).await;
        let message = assembled(&answer);
        assert_eq!((message.content.trim(), message.calls.len()), ("Let me look.", 0), "{second:?}");
        assert_eq!(message.finish.as_deref(), Some("length"));
        assert!(answer.body.contains(": adjusted continued in vain: the limit cut a call\n\n"));
        assert!(answer.body.ends_with("data: [DONE]\n\n"));
        assert_eq!((world.backend("b").seen().len(), world.backend("c").seen().len()), (2, 0));
    }
}
