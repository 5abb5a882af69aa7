//! Any template over any request: a count or an error, in bounded time, and the same whether it is remembered or not.
#![no_main]

use std::sync::OnceLock;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use switchback_parsers::prompt::{Normalisation, PromptCounter, bounds};
use switchback_parsers::request::ChatRequest;

const TOKENIZER: &[u8] = include_bytes!("../../tests/fixtures/tiny/tokenizer.json");

/// Requests that come as far as the template, should the input's own not be one.
const REQUESTS: [&str; 3] = [
    r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"a <|im_end|>"},{"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":[1,null]}"}}]},{"role":"tool","tool_call_id":"1","content":"t"},{"role":"user","content":"b"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":["object","null"]}}}]}"#,
    r#"{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"data:"}}]}],"chat_template_kwargs":{"enable_thinking":false}}"#,
    r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}],"add_generation_prompt":false,"continue_final_message":true}"#,
];

/// A folder for this process, in which the template changes.
fn folder() -> &'static std::path::Path {
    static FOLDER: OnceLock<std::path::PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("switchback-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("tokenizer.json"), TOKENIZER).expect("a file");
        folder
    })
}

fuzz_target!(|input: (&str, &[u8])| {
    let (template, body) = input;
    std::fs::write(folder().join("chat_template.jinja"), template).expect("a file");
    let Ok(counter) = PromptCounter::load(folder()) else { return };
    let mut requests: Vec<ChatRequest> =
        REQUESTS.iter().map(|body| ChatRequest::parse(Bytes::from_static(body.as_bytes())).expect("a request")).collect();
    requests.extend(ChatRequest::parse(Bytes::copy_from_slice(body)));
    let mut counts = Vec::new();
    // The second time everything is known that can be.
    for request in requests.iter().chain(&requests) {
        let rough = bounds(request);
        assert!(rough.low() <= rough.high());
        for engine in [Normalisation::Vllm, Normalisation::LlamaCpp] {
            let count = counter.count_chat(request, engine);
            assert!(count.as_ref().is_ok_and(|count| count.low() <= count.high()) || count.is_err());
            counts.push(count);
        }
    }
    let anew = counter.forgetful();
    let (first, second) = counts.split_at(counts.len() / 2);
    assert_eq!(first, second);
    let whole: Vec<_> = requests
        .iter()
        .flat_map(|request| [Normalisation::Vllm, Normalisation::LlamaCpp].map(|engine| anew.count_chat(request, engine)))
        .collect();
    assert_eq!(first, whole);
});
