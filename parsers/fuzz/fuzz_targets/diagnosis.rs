//! Any body under any status has a diagnosis and a bounded sentence.
#![no_main]

use libfuzzer_sys::fuzz_target;
use switchback_parsers::diagnosis::{Engine, diagnose};

const ENGINES: [Engine; 8] = [
    Engine::Vllm,
    Engine::LlamaCpp,
    Engine::IkLlama,
    Engine::Sglang,
    Engine::Ollama,
    Engine::LmStudio,
    Engine::Tgi,
    Engine::Other,
];

fuzz_target!(|input: (u8, u16, Vec<u8>)| {
    let (engine, status, body) = input;
    let error = diagnose(ENGINES[usize::from(engine) % ENGINES.len()], status, &body);
    assert!(!error.message.is_empty() && error.message.len() <= 2048);
});
