//! What frames and answers of all dialects say, on the shapes that engines were recorded with.

use bytes::Bytes;
use switchback_parsers::chunk::{ChoiceSaid, Dialect, Finish, GoodFinish, Said, Usage};
use switchback_parsers::sse::SseDecoder;

/// What one frame says.
fn frame(dialect: Dialect, text: &str) -> Said {
    let mut decoder = SseDecoder::new();
    decoder.push(Bytes::copy_from_slice(text.as_bytes())).unwrap();
    let said = dialect.read_frame(&decoder.finish().unwrap());
    assert!(decoder.finish().is_none(), "one frame: {text}");
    said
}

fn chat(json: &str) -> Said {
    frame(Dialect::Chat, &format!("data: {json}\n\n"))
}

pub(super) fn messages(json: &str) -> Said {
    frame(Dialect::Messages, &format!("event: whatever\ndata: {json}\n\n"))
}

pub(super) fn responses(json: &str) -> Said {
    frame(Dialect::Responses, &format!("event: whatever\ndata: {json}\n\n"))
}

/// A short form of what is said: letters for the flags, then the finish of choice 0.
pub(super) fn brief(said: &Said) -> String {
    let flags = [
        (said.token, 't'),
        (said.content, 'c'),
        (said.done, 'd'),
        (said.error, 'e'),
        (said.empty_choices, '0'),
        (said.unreadable, '?'),
        (said.usage.is_some(), 'u'),
    ];
    let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, letter)| letter).collect();
    match said.choices.first().and_then(|choice| choice.finish.clone()) {
        None => flags,
        Some(Finish::Good(good)) => format!("{flags} {good:?}"),
        Some(Finish::Bad(word)) => format!("{flags} bad {word}"),
    }
}

#[test]
fn a_chat_chunk_says_its_token_and_its_content() {
    let delta = |delta: &str| {
        brief(&chat(&format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)))
    };
    assert_eq!(
        delta(r#"{"role":"assistant","content":""}"#),
        "t",
        "vLLM's role chunk comes with the first token"
    );
    assert_eq!(delta(r#"{"role":"assistant","content":null}"#), "t", "llama.cpp's role chunk");
    for shown in [
        r#"{"content":"a"}"#,
        r#"{"reasoning":"a"}"#,
        r#"{"reasoning_content":"a"}"#,
        r#"{"refusal":"a"}"#,
        r#"{"content":[{"type":"text","text":"a"}]}"#,
        r#"{"function_call":{"name":"f"}}"#,
        r#"{"audio":{"data":"x"}}"#,
        r#"{"content":null,"tool_calls":[{"id":"chatcmpl-tool-9e","type":"function","index":0,"function":{"name":"f"}}]}"#,
        r#"{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}"#,
    ] {
        assert_eq!(delta(shown), "tc", "{shown}");
    }
    for silent in
        ["{}", "null", "[]", r#"{"content":"","tool_calls":[]}"#, r#"{"content":true}"#, r#"{"unknown":"a"}"#]
    {
        assert_eq!(delta(silent), "t", "{silent}");
    }
}

#[test]
fn a_report_of_prefill_progress_is_no_token() {
    let progress = r#""prompt_progress":{"total":731,"cache":0,"processed":128,"time_ms":15228}"#;
    let with = |delta: &str| {
        brief(&chat(&format!(
            r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}],{progress}}}"#
        )))
    };
    assert_eq!(with(r#"{"role":"assistant","content":null}"#), "");
    assert_eq!(with(r#"{"content":"a"}"#), "tc", "unless it brings one along");
    assert_eq!(brief(&chat(r#"{"choices":[{"delta":{}}],"prompt_progress":null}"#)), "t");
}

#[test]
fn only_a_good_finish_reason_is_a_good_finish() {
    let finish = |word: &str| {
        brief(&chat(&format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":""}},"finish_reason":{word}}}]}}"#
        )))
    };
    assert_eq!(finish("\"stop\""), "t Stop");
    assert_eq!(finish("\"length\""), "t Length");
    assert_eq!(finish("\"tool_calls\""), "t ToolCalls");
    assert_eq!(finish("\"content_filter\""), "t ContentFilter");
    assert_eq!(finish("\"function_call\""), "t FunctionCall");
    assert_eq!(finish("\"abort\""), "t bad abort", "vLLM on SIGTERM");
    assert_eq!(finish("\"error\""), "t bad error");
    assert_eq!(finish("\"repetition\""), "t bad repetition");
    assert_eq!(finish("\"end_turn\""), "t bad end_turn", "another dialect's word");
    assert_eq!(finish("\"\""), "t", "nothing yet");
    assert_eq!(finish("7"), "t");
}

#[test]
fn each_choice_is_told_by_its_index() {
    let said = chat(
        r#"{"choices":[{"index":2,"delta":{},"finish_reason":"stop"},{"delta":{"content":"a"}},{"index":"x","delta":{}}]}"#,
    );
    let stop = Some(Finish::Good(GoodFinish::Stop));
    let choice = |index, finish| ChoiceSaid { index, finish };
    assert_eq!(said.choices, [choice(2, stop), choice(1, None), choice(2, None)]);
}

#[test]
fn usage_comes_in_the_words_of_every_dialect() {
    let usage = |prompt, completion, cached| {
        Some(Usage { prompt_tokens: prompt, completion_tokens: completion, cached_tokens: cached })
    };
    let said = chat(
        r#"{"choices":[],"usage":{"prompt_tokens":150,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":128}}}"#,
    );
    assert_eq!(
        (said.empty_choices, said.token, said.usage),
        (true, false, usage(Some(150), Some(7), Some(128)))
    );
    let continuous = chat(
        r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":0,"prompt_tokens_details":null}}"#,
    );
    assert_eq!(continuous.usage, usage(Some(9), Some(0), None));
    assert_eq!(chat(r#"{"choices":[{"delta":{}}],"usage":null}"#).usage, None);
    let timings = chat(
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"timings":{"cache_n":20,"prompt_n":4,"predicted_n":3}}"#,
    );
    assert_eq!(timings.usage, usage(Some(24), Some(3), Some(20)), "llama.cpp, when nobody asked for usage");
    let start = messages(
        r#"{"type":"message_start","message":{"usage":{"input_tokens":4,"cache_read_input_tokens":20,"output_tokens":1}}}"#,
    );
    assert_eq!(start.usage, usage(Some(24), Some(1), Some(20)), "the parts of the prompt are summed");
    let done = responses(
        r#"{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":5,"output_tokens":6,"input_tokens_details":{"cached_tokens":2}}}}"#,
    );
    assert_eq!(done.usage, usage(Some(5), Some(6), Some(2)));
    assert_eq!(
        chat(r#"{"choices":[],"usage":{"prompt_tokens":-1,"completion_tokens":"7"}}"#).usage,
        usage(None, None, None)
    );
}

#[test]
fn later_usage_keeps_what_only_the_earlier_told() {
    let start =
        messages(r#"{"type":"message_start","message":{"usage":{"input_tokens":24,"output_tokens":1}}}"#);
    let end = messages(
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}"#,
    );
    let usage = start.usage.unwrap().then(end.usage.unwrap());
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (Some(24), Some(9)));
}

#[test]
fn the_end_marker_is_no_success() {
    assert_eq!(brief(&frame(Dialect::Chat, "data: [DONE]\n\n")), "d");
    assert_eq!(brief(&frame(Dialect::Completions, "data:[DONE] \r\n\r\n")), "d");
    assert_eq!(brief(&frame(Dialect::Chat, "data: [DONE]")), "d");
}

#[test]
fn errors_of_every_shape_are_seen() {
    for text in [
        // vLLM 0.32.0, engine dead under status 200
        "data: {\"error\": {\"message\": \"EngineCore encountered an issue.\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}\n\n",
        // llama.cpp, first event
        "data: {\"error\":{\"code\":400,\"message\":\"request (19185 tokens) exceeds\",\"type\":\"exceed_context_size_error\"}}\n\n",
        // older llama.cpp
        "error: {\"code\":500,\"message\":\"decode failed\",\"type\":\"server_error\"}\n\n",
        // a server in between, without any framing
        "{\"error\":{\"code\":400,\"message\":\"request (19185 tokens) exceeds\"}}",
        // LM Studio
        "event: error\ndata: {\"error\":\"Context overflow\",\"message\":\"n_keep\"}\n\n",
        "event: error\ndata: not even json\n\n",
        // SGLang in a stream, and flat
        "data: {\"error\":{\"object\":\"error\",\"message\":\"m\",\"code\":503}}\n\n",
        "data: {\"object\":\"error\",\"message\":\"m\",\"code\":400}\n\n",
        // Ollama's native error
        "data: {\"error\":\"llama runner process has terminated\"}\n\n",
    ] {
        for dialect in [Dialect::Chat, Dialect::Completions, Dialect::Messages, Dialect::Responses] {
            let said = frame(dialect, text);
            assert!(
                said.error && !said.token && !said.content && said.choices.is_empty(),
                "{dialect:?} {text}"
            );
        }
    }
    assert_eq!(brief(&messages(r#"{"type":"error","error":{"type":"internal_error","message":"m"}}"#)), "e");
    assert_eq!(brief(&responses(r#"{"type":"error","code":"x","message":"m"}"#)), "e");
    for fine in [
        r#"{"choices":[{"delta":{}}],"error":null}"#,
        r#"{"choices":[{"delta":{}}],"error":""}"#,
        r#"{"choices":[{"delta":{"content":""}}],"error":{}}"#,
    ] {
        assert!(!chat(fine).error, "{fine}");
    }
}

#[test]
fn what_says_nothing_is_no_fault() {
    for text in [": ping\n\n", ":\n\n", "\n", "id: 7\n\n", "data:\n\n", "event: ping\ndata:\n\n"] {
        assert_eq!(frame(Dialect::Chat, text), Said::default(), "{text:?}");
    }
    for json in ["null", "[]", "7", "\"text\"", "{}", r#"{"choices":null}"#, r#"{"choices":{"delta":1}}"#] {
        assert_eq!(chat(json), Said::default(), "{json}");
    }
    assert_eq!(brief(&messages(r#"{"type":"ping"}"#)), "");
}

#[test]
fn what_is_no_json_is_unreadable() {
    assert_eq!(brief(&frame(Dialect::Chat, "data: {\"choices\":[{\"delta\":{\"content\":\"BinConten")), "?");
    assert_eq!(brief(&Dialect::Chat.read_answer(b"\xff\xfe")), "?");
    assert_eq!(brief(&Dialect::Chat.read_answer(b"")), "?");
    assert_eq!(brief(&Dialect::Chat.read_answer(b"<html>")), "?");
}

#[test]
fn events_without_blank_lines_between_them_are_read_one_a_line() {
    let chunk = r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}"#;
    assert_eq!(brief(&frame(Dialect::Chat, &format!("data: {chunk}\ndata: [DONE]\n\n"))), "tcd Stop");
    assert_eq!(
        brief(&frame(Dialect::Chat, "data: {\"choices\":\ndata: []}\n\n")),
        "0",
        "one JSON over two lines is one"
    );
}

#[test]
fn completions_speak_in_text() {
    let said = |json: &str| brief(&frame(Dialect::Completions, &format!("data: {json}\n\n")));
    assert_eq!(said(r#"{"choices":[{"index":0,"text":"a","finish_reason":null}]}"#), "tc");
    assert_eq!(said(r#"{"choices":[{"index":0,"text":"","finish_reason":"length"}]}"#), "t Length");
}

#[test]
fn an_error_frame_is_one_that_its_dialect_reads() {
    let error = b"{\n\"message\":\"gone\",\"type\":\"server_error\",\"code\":null}";
    let text =
        |dialect: Dialect| String::from_utf8(dialect.error_frame(error, "server_error").into()).unwrap();
    assert_eq!(
        text(Dialect::Chat),
        "data: {\"error\":{ \"message\":\"gone\",\"type\":\"server_error\",\"code\":null}}\n\n"
    );
    assert_eq!(text(Dialect::Completions), text(Dialect::Chat));
    assert_eq!(
        text(Dialect::Messages),
        "event: error\ndata: {\"type\":\"error\",\"error\":{ \"message\":\"gone\",\"type\":\"server_error\",\"code\":null}}\n\n"
    );
    assert_eq!(
        text(Dialect::Responses),
        "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"object\":\"response\",\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"gone\"}},\"error\":{ \"message\":\"gone\",\"type\":\"server_error\",\"code\":null}}\n\n"
    );
    for dialect in [Dialect::Chat, Dialect::Completions, Dialect::Messages] {
        assert_eq!(brief(&frame(dialect, &text(dialect))), "e");
    }
    assert_eq!(brief(&frame(Dialect::Responses, &text(Dialect::Responses))), "de bad failed");
}

#[test]
fn what_ends_a_whole_answer_ends_none_that_has_an_error() {
    let done = Some(&b"data: [DONE]\n\n"[..]);
    for dialect in [Dialect::Chat, Dialect::Completions] {
        assert_eq!((dialect.end_marker(), dialect.end_behind_an_error()), (done, done));
    }
    let stop = &b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"[..];
    assert_eq!((Dialect::Messages.end_marker(), Dialect::Messages.end_behind_an_error()), (Some(stop), None));
    assert_eq!((Dialect::Responses.end_marker(), Dialect::Responses.end_behind_an_error()), (None, None));
}
