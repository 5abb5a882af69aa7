//! Counts against what real engines gave for the same requests.
//!
//! `fixtures/counts.jsonl` has 149 requests (roles, tools, calls and results, reasoning, parts, trailing assistant messages, scripts,
//! emoji, code, white space, special tokens typed by the user), each with what was recorded for it: null where the engine refused it.
//!
//! | member | recorded from |
//! |---|---|
//! | `tiny_vllm` | vLLM 0.32.0 render server, tokens of the prompt, with the model in `fixtures/tiny` |
//! | `tiny_llama_cpp` | llama.cpp server (b11549), `/apply-template` with the template in `fixtures/tiny` |
//! | `qwen3_vllm` | vLLM 0.32.0 render server, with Qwen3's tokenizer: see `real_counts.rs` |
//! | `smollm2_llama_cpp` | llama.cpp server (b11549), `/v1/chat/completions/input_tokens` with SmolLM2: see `real_counts.rs` |

#[cfg(test)]
mod recorded;

use std::path::Path;

use recorded::{compare, records};
use switchback_parsers::prompt::{CountError, Normalisation, PromptCounter, TokenCount, bounds};

#[cfg(test)]
fn tiny() -> PromptCounter {
    PromptCounter::load(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny"))).unwrap()
}

#[test]
fn a_request_has_as_many_tokens_as_vllm_says() {
    compare(&tiny(), Normalisation::Vllm, "tiny_vllm");
}

#[test]
fn a_request_becomes_the_prompt_that_llama_cpp_makes_of_it() {
    let counter = tiny();
    for record in records() {
        let rendered = counter.render_chat(&record.request, Normalisation::LlamaCpp);
        match (rendered, record.answer["tiny_llama_cpp"].as_str()) {
            (Ok(prompt), Some(expected)) => assert_eq!(prompt, expected, "{}", record.line),
            (Err(CountError::Refused(_) | CountError::Raised(_)), None) => {}
            (ours, theirs) => panic!("{ours:?} where llama.cpp has {theirs:?}: {}", record.line),
        }
    }
}

#[test]
fn every_count_lies_between_its_bounds() {
    let counter = tiny();
    for record in records() {
        let bounds = bounds(&record.request);
        let recorded =
            ["tiny_vllm", "qwen3_vllm", "smollm2_llama_cpp"].map(|name| record.answer[name].as_u64());
        let ours = [Normalisation::Vllm, Normalisation::LlamaCpp]
            .map(|engine| counter.count_chat(&record.request, engine).ok().map(TokenCount::low));
        for count in recorded.into_iter().chain(ours).flatten() {
            assert!(
                bounds.low() <= count && count <= bounds.high(),
                "{count} is not in {bounds}: {}",
                record.line
            );
        }
    }
}

#[test]
fn a_counter_says_what_it_is() {
    assert_eq!(tiny().describe(), "tiny: bpe, 609 tokens, template of 2386 bytes");
}
