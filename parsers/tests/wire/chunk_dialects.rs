//! Streams of the Messages and Responses dialects, and whole answers of all.

use switchback_parsers::chunk::Dialect;

use super::chunk::{brief, messages, responses};

#[test]
fn a_messages_stream_is_read_by_its_events() {
    let said = |json: &str| brief(&messages(json));
    assert_eq!(
        said(r#"{"type":"message_start","message":{"role":"assistant","content":[]}}"#),
        "",
        "may come before prefill"
    );
    assert_eq!(
        said(r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#),
        "t"
    );
    assert_eq!(
        said(
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"1","name":"f","input":{}}}"#
        ),
        "tc"
    );
    assert_eq!(
        said(r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}"#),
        "tc"
    );
    assert_eq!(
        said(r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}"#),
        "t"
    );
    assert_eq!(
        said(r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"a"}}"#),
        "tc"
    );
    assert_eq!(
        said(
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{"}}"#
        ),
        "tc"
    );
    assert_eq!(
        said(
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"x"}}"#
        ),
        "t"
    );
    assert_eq!(said(r#"{"type":"content_block_stop","index":0}"#), "t");
    assert_eq!(
        said(r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}"#),
        "tu ToolUse"
    );
    assert_eq!(said(r#"{"type":"message_delta","delta":{"stop_reason":"abort"}}"#), "t bad abort");
    assert_eq!(said(r#"{"type":"message_stop"}"#), "d");
    for (word, finish) in [
        ("end_turn", "EndTurn"),
        ("max_tokens", "MaxTokens"),
        ("stop_sequence", "StopSequence"),
        ("pause_turn", "PauseTurn"),
        ("refusal", "Refusal"),
    ] {
        assert_eq!(
            said(&format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{word}"}}}}"#)),
            format!("t {finish}")
        );
    }
}

#[test]
fn a_responses_stream_is_read_by_its_events() {
    let said = |json: &str| brief(&responses(json));
    assert_eq!(
        said(r#"{"type":"response.created","response":{"status":"in_progress","output":[],"error":null}}"#),
        ""
    );
    assert_eq!(said(r#"{"type":"response.in_progress","response":{"status":"in_progress"}}"#), "");
    assert_eq!(said(r#"{"type":"response.output_item.added","item":{"type":"message","content":[]}}"#), "t");
    assert_eq!(
        said(r#"{"type":"response.output_item.added","item":{"type":"reasoning","summary":[]}}"#),
        "t"
    );
    assert_eq!(
        said(
            r#"{"type":"response.output_item.added","item":{"type":"function_call","name":"f","arguments":""}}"#
        ),
        "tc"
    );
    assert_eq!(
        said(r#"{"type":"response.content_part.added","part":{"type":"output_text","text":""}}"#),
        "t"
    );
    assert_eq!(said(r#"{"type":"response.output_text.delta","delta":"a"}"#), "tc");
    assert_eq!(said(r#"{"type":"response.output_text.delta","delta":""}"#), "t");
    assert_eq!(said(r#"{"type":"response.reasoning_text.delta","delta":"a"}"#), "tc");
    assert_eq!(said(r#"{"type":"response.function_call_arguments.delta","delta":"{"}"#), "tc");
    assert_eq!(
        said(
            r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"a"}]}]}}"#
        ),
        "tcd Completed"
    );
    assert_eq!(
        said(
            r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}"#
        ),
        "d Incomplete"
    );
    // Broken off, whatever it calls that.
    assert_eq!(
        said(
            r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"abort"}}}"#
        ),
        "d bad abort"
    );
    assert_eq!(
        said(
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"m"}}}"#
        ),
        "de bad failed"
    );
    assert_eq!(said(r#"{"type":"response.cancelled","response":{"status":"cancelled"}}"#), "d bad cancelled");
}

#[test]
fn a_whole_answer_says_all_at_once() {
    let answer = |dialect: Dialect, json: &str| brief(&dialect.read_answer(json.as_bytes()));
    assert_eq!(
        answer(
            Dialect::Chat,
            r#"{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi","tool_calls":[]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#
        ),
        "tcdu Stop"
    );
    assert_eq!(
        answer(
            Dialect::Chat,
            r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"cut"},"finish_reason":"abort"}]}"#
        ),
        "tcd bad abort",
        "vLLM on SIGTERM, status 200"
    );
    assert_eq!(
        answer(
            Dialect::Chat,
            r#"{"choices":[{"index":0,"message":{"content":null},"finish_reason":"length"}]}"#
        ),
        "td Length"
    );
    assert_eq!(
        answer(Dialect::Completions, r#"{"choices":[{"text":"a","finish_reason":"stop"}]}"#),
        "tcd Stop"
    );
    assert_eq!(
        answer(
            Dialect::Messages,
            r#"{"type":"message","content":[{"type":"tool_use","name":"f","input":{}}],"stop_reason":"tool_use","usage":{"input_tokens":1}}"#
        ),
        "tcdu ToolUse"
    );
    assert_eq!(
        answer(
            Dialect::Messages,
            r#"{"type":"message","content":[{"type":"text","text":""}],"stop_reason":"max_tokens"}"#
        ),
        "td MaxTokens"
    );
    assert_eq!(
        answer(
            Dialect::Responses,
            r#"{"object":"response","status":"completed","error":null,"output":[{"type":"function_call","name":"f"}],"usage":{"input_tokens":1}}"#
        ),
        "tcdu Completed"
    );
    assert_eq!(
        answer(
            Dialect::Responses,
            r#"{"object":"response","status":"failed","error":{"message":"m"},"output":[]}"#
        ),
        "e bad failed"
    );
    assert_eq!(answer(Dialect::Chat, r#"{"error":{"message":"m"}}"#), "e");
}
