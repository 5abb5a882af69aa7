//! What a request says of itself, and why it is refused.

use bytes::Bytes;
use switchback_parsers::edit::Edits;
use switchback_parsers::request::{ChatRequest, RequestError};

fn request(body: &str) -> ChatRequest {
    ChatRequest::parse(Bytes::copy_from_slice(body.as_bytes()))
        .unwrap_or_else(|error| panic!("{body}: {error}"))
}

fn refusal(body: impl AsRef<[u8]>) -> String {
    ChatRequest::parse(Bytes::copy_from_slice(body.as_ref())).unwrap_err().to_string()
}

#[test]
fn a_request_is_read_where_its_members_stand() {
    let request = request(
        r#"{"model":"qwen","stream":true,"stream_options":{"include_usage":true},"max_tokens":64,
            "messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function"}]}"#,
    );
    assert_eq!(request.model().as_deref(), Some("qwen"));
    assert!(request.stream() && request.wants_usage());
    assert_eq!(request.output_limit(), Some(64));
    assert_eq!(request.messages().count(), 1);
    assert_eq!(request.tools().next().unwrap().raw(), r#"{"type":"function"}"#);
    assert_eq!(request.check_chat(), Ok(()));
}

#[test]
fn only_a_literal_true_asks_for_a_stream() {
    for body in
        [r#"{}"#, r#"{"stream":false}"#, r#"{"stream":null}"#, r#"{"stream":"true"}"#, r#"{"stream":1}"#]
    {
        assert!(!request(body).stream(), "{body}");
    }
    assert!(request(r#"{"stream":false,"stream":true}"#).stream(), "the last one counts");
    assert!(!request(r#"{"stream_options":true}"#).wants_usage());
}

#[test]
fn the_newest_name_of_the_output_limit_counts() {
    assert_eq!(request(r#"{"max_tokens":1,"max_completion_tokens":2}"#).output_limit(), Some(2));
    assert_eq!(request(r#"{"max_tokens":1,"max_completion_tokens":null}"#).output_limit(), Some(1));
    assert_eq!(request(r#"{"max_output_tokens":3}"#).output_limit(), Some(3));
    assert_eq!(request(r#"{"max_tokens":-1}"#).output_limit(), None, "llama.cpp's word for no limit");
    assert_eq!(request(r#"{"max_tokens":"1"}"#).output_limit(), None);
}

#[test]
fn messages_of_every_shape_are_read() {
    let request = request(
        r#"{"messages":[{"role":"user","content":"a\nb"},
            {"role":"user","content":[{"type":"text","text":"c"},{"type":"image_url","image_url":{}},{"type":"text","text":"d"}]},
            {"role":"assistant","content":null,"tool_calls":[{"id":"1"},{"id":"2"}]},
            {"role":"user","content":[{"type":"tool_result","content":[{"type":"image","source":{}}]}]},
            {"role":7,"content":{"text":"odd"}}, "no object"]}"#,
    );
    let messages: Vec<_> = request.messages().collect();
    assert_eq!(messages[0].role().as_deref(), Some("user"));
    assert_eq!(messages[0].text(), "a\nb");
    assert_eq!((messages[1].text(), messages[1].has_image()), ("cd".into(), true));
    assert_eq!(messages[2].tool_calls().count(), 2);
    assert_eq!((messages[2].text(), messages[2].has_image()), ("".into(), false));
    assert!(messages[3].has_image(), "in a tool's result");
    assert_eq!((messages[4].role(), messages[4].text()), (None, "".into()));
    assert_eq!((messages[5].role(), messages[5].content().is_none()), (None, true));
}

#[test]
fn a_body_that_is_no_request_is_refused_with_the_place() {
    assert_eq!(refusal(""), "body is empty");
    assert_eq!(refusal(" \r\n"), "body is empty");
    assert_eq!(refusal(b"{\"model\":\"m\xff\"}"), "body is not utf-8: invalid byte at 11");
    assert_eq!(refusal("\u{feff}{}"), "body begins with a byte order mark: send utf-8 without it");
    assert_eq!(refusal("{\"a\":}"), "body is not valid json: expected value at line 1 column 6");
    assert_eq!(refusal("{\"a\":1"), "body is not valid json: EOF while parsing an object at line 1 column 6");
    assert_eq!(refusal("[]"), "body must be a json object, found an array");
    assert_eq!(refusal("null"), "body must be a json object, found null");
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200));
    assert_eq!(refusal(deep), "body is nested 201 levels deep, the limit is 128");
}

#[test]
fn what_every_chat_backend_refuses_is_refused_with_its_param() {
    let cases = [
        (r#"{}"#, "messages is missing", "messages"),
        (r#"{"messages":"hi"}"#, "messages must be an array, found a string", "messages"),
        (r#"{"messages":[]}"#, "messages is empty", "messages"),
        (
            r#"{"messages":[{"role":"user"},"hi"]}"#,
            "messages[1] must be an object, found a string",
            "messages[1]",
        ),
        (r#"{"messages":[{"content":"hi"}]}"#, "messages[0].role is missing", "messages[0].role"),
        (
            r#"{"messages":[{"role":"a"},{"role":"b"},{"role":"c"},{"role":7}]}"#,
            "messages[3].role must be a string, found a number",
            "messages[3].role",
        ),
        (r#"{"model":1}"#, "model must be a string, found a number", "model"),
        (r#"{"stream":"yes"}"#, "stream must be a boolean, found a string", "stream"),
        (r#"{"tools":{}}"#, "tools must be an array, found an object", "tools"),
        (r#"{"max_tokens":1.5}"#, "max_tokens must be an integer, found 1.5", "max_tokens"),
        (
            r#"{"max_completion_tokens":[]}"#,
            "max_completion_tokens must be an integer, found an array",
            "max_completion_tokens",
        ),
    ];
    for (body, message, param) in cases {
        let error = request(body).check_chat().unwrap_err();
        assert_eq!((error.to_string().as_str(), error.param()), (message, Some(param)), "{body}");
    }
}

#[test]
fn what_some_backend_accepts_is_not_refused() {
    for members in [
        r#""stream":null"#,
        r#""tools":null"#,
        r#""tools":[]"#,
        r#""max_tokens":null"#,
        r#""max_tokens":-1"#,
        r#""max_tokens":64.0"#,
        r#""unknown":{"a":[1]}"#,
        r#""model":"""#,
        r#""temperature":"hot""#,
    ] {
        let body = format!(r#"{{"messages":[{{"role":"anything","content":7}}],{members}}}"#);
        assert_eq!(request(&body).check_chat(), Ok(()), "{body}");
    }
}

#[test]
fn a_body_without_edits_is_handed_on_without_a_copy() {
    let body = Bytes::from(r#"{"model":"m"}"#.to_owned());
    let place = body.as_ptr();
    let request = ChatRequest::parse(body).unwrap();
    let written = request.clone().write(&Edits::new(), &Edits::new());
    assert_eq!((written.as_ptr(), request.body().as_ptr()), (place, place));
}

#[test]
fn a_shared_body_is_read_all_the_same() {
    let body = Bytes::from_static(br#"{"model":"m"}"#);
    let other = body.clone();
    assert_eq!(ChatRequest::parse(body).unwrap().body(), &other);
}

#[test]
fn a_top_level_of_many_members_is_read_like_any_other() {
    let members: Vec<_> = (0..1000).map(|n| format!("\"k{n}\":{n}")).collect();
    let request = request(&format!("{{{},\"model\":\"last\"}}", members.join(",")));
    assert_eq!(request.model().as_deref(), Some("last"));
    assert_eq!(request.root().get("k999").unwrap().as_u64(), Some(999));
    let mut edits = Edits::new();
    edits.set(request.root(), "model", "\"x\"");
    edits.remove(request.root(), "k0");
    let written = request.write(&edits, &Edits::new());
    assert!(written.starts_with(b"{\"k1\":1,") && written.ends_with(b",\"model\":\"x\"}"));
}

#[test]
fn the_debug_form_of_a_request_does_not_show_it() {
    let request = request(r#"{"secret":"prompt"}"#);
    assert!(!format!("{request:?}").contains("prompt"));
}

#[test]
fn a_body_fault_names_no_param() {
    assert_eq!(RequestError::Empty.param(), None);
    assert_eq!(RequestError::NotJson("x".into()).param(), None);
}
