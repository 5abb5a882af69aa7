//! Every error that engines were recorded with, and what it means; and words that must not mislead.

use switchback_parsers::diagnosis::{BackendError, Diagnosis, Engine, diagnose};

const RECORDED: &str = include_str!("recorded_errors.tsv");

/// A diagnosis as the record has it.
fn words(diagnosis: &Diagnosis) -> String {
    let number = |number: &Option<u64>| number.map_or("-".to_owned(), |n| n.to_string());
    match diagnosis {
        Diagnosis::ContextTooLong { prompt, limit } => {
            format!("too-long {} {}", number(prompt), number(limit))
        }
        Diagnosis::OutOfMemory => "out-of-memory".to_owned(),
        Diagnosis::EngineDead => "engine-dead".to_owned(),
        Diagnosis::Loading => "loading".to_owned(),
        Diagnosis::BodyTooLarge => "body-too-large".to_owned(),
        Diagnosis::Overloaded => "overloaded".to_owned(),
        Diagnosis::ParserFailed => "parser-failed".to_owned(),
        Diagnosis::ModelUnknown => "model-unknown".to_owned(),
        Diagnosis::NotServed => "not-served".to_owned(),
        Diagnosis::Unauthorized => "unauthorized".to_owned(),
        Diagnosis::ClientFault => "client-fault".to_owned(),
        Diagnosis::Other => "other".to_owned(),
    }
}

/// Each recorded error is understood, also when the engine is not known or named wrongly: servers stand between, and
/// forks.
#[test]
fn every_recorded_error_is_understood() {
    let lines = RECORDED.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let [engine, status, expected, body] = line.splitn(4, '\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        for engine in [engine, "other", "vllm", "llama-cpp"] {
            let error = diagnose(engine.parse().unwrap(), status.parse().unwrap(), body.as_bytes());
            assert_eq!(words(&error.diagnosis), expected, "{engine} {status} {body}");
        }
    }
}

#[test]
fn the_engines_sentence_its_type_and_its_param_are_told() {
    let BackendError { message, param, kind, .. } = diagnose(
        Engine::Vllm,
        404,
        br#"{"error":{"message":"The model `nope` does not exist.","type":"NotFoundError","param":"model","code":404}}"#,
    );
    assert_eq!(
        (&*message, param.as_deref(), kind.as_deref()),
        ("The model `nope` does not exist.", Some("model"), Some("NotFoundError"))
    );

    let told = |status, body: &[u8]| {
        let error = diagnose(Engine::Other, status, body);
        (error.message, error.param, error.kind)
    };
    let say = |message: &str, param: Option<&str>, kind: Option<&str>| {
        (message.to_owned(), param.map(str::to_owned), kind.map(str::to_owned))
    };
    assert_eq!(told(500, b""), say("empty body", None, None));
    assert_eq!(told(500, b"\xff\x00\xfe"), say("3 bytes that are no text", None, None));
    assert_eq!(told(502, b"<html><title>502 Bad Gateway</title>"), say("502 Bad Gateway", None, None));
    assert_eq!(told(500, b" Internal Server Error\n"), say("Internal Server Error", None, None));
    assert_eq!(told(400, br#"{"error":"one","message":"two"}"#), say("one: two", None, None));
    assert_eq!(told(400, br#"{"error":"x","error_type":"validation"}"#), say("x", None, Some("validation")));
    assert_eq!(
        told(400, br#"{"error":{"message":"x","code":"context_length_exceeded"}}"#),
        say("x", None, Some("context_length_exceeded"))
    );
    assert_eq!(
        told(422, br#"{"detail":[{"loc":["body","messages",0,"role"],"msg":"Field required"}]}"#),
        say("messages.0.role: Field required", Some("messages.0.role"), None)
    );
    assert_eq!(
        told(400, br#"{"error":{"code":400}}"#).0,
        r#"{"error":{"code":400}}"#,
        "else the body itself"
    );
}

#[test]
fn too_large_an_answer_names_its_param() {
    let body = br#"{"object":"error","message":"This model's maximum context length is 8192 tokens. However, you requested 9224 tokens (1224 in the messages, 8000 in the completion).","param":null}"#;
    let error = diagnose(Engine::Vllm, 400, body);
    assert_eq!((error.diagnosis, error.param.as_deref()), (Diagnosis::ClientFault, Some("max_tokens")));
}

#[test]
fn a_long_sentence_is_cut_at_a_character() {
    for head in 0..4 {
        let body = format!("{}{}", "x".repeat(head), "汉".repeat(5000));
        let message = diagnose(Engine::Other, 500, body.as_bytes()).message;
        assert!(message.len() <= 2048 && message.len() > 2040 && message.ends_with('…'));
    }
}

#[test]
fn engines_are_named_as_in_the_configuration() {
    for name in ["vllm", "llama-cpp", "ik-llama", "sglang", "ollama", "lm-studio", "tgi", "other"] {
        assert_eq!(name.parse::<Engine>().unwrap().to_string(), name);
    }
    assert_eq!(
        "llama.cpp".parse::<Engine>().unwrap_err().to_string(),
        "unknown engine \"llama.cpp\": use vllm, llama-cpp, ik-llama, sglang, ollama, lm-studio, tgi or other"
    );
}
