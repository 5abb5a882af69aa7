//! The table: what each engine says, and what it means. One row per recorded sentence; the comment says where it was
//! seen.
//!
//! The rows of the backend's own engine are tried first, in order, then all others, for servers stand between and
//! forks call themselves what they like. So a sentence must be distinctive: no row may match a word that a client
//! could have sent about something else. Rows about memory and dead engines hold for server errors only, since a
//! refusal may quote the request.

use super::{Diagnosis, Engine};

/// Which statuses a row holds for. An error event without a code under status 200 holds for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// 400 to 499.
    Refused,
    /// 500 and up, and TGI's 424.
    Failed,
    /// All.
    Any,
}

/// What a row means.
#[derive(Clone, Debug)]
pub(super) enum Means {
    /// Just that.
    Is(Diagnosis),
    /// The prompt does not fit; with the numbers of the sentence.
    TooLong,
    /// Prompt and answer do not fit together: too long only if the prompt alone does not fit, else the client asked
    /// for too large an answer.
    TooLongWithAnswer,
}

/// One row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) engine: Engine,
    pub(super) when: When,
    /// A pattern of [`super::pattern`] for the message, or after `type:` the whole of `type`, or of a `code` that is
    /// a word.
    pub(super) says: &'static str,
    pub(super) means: Means,
}

const fn row(engine: Engine, when: When, says: &'static str, means: Means) -> Row {
    Row { engine, when, says, means }
}

use Diagnosis::{
    ClientFault, EngineDead, Loading, ModelUnknown, NotServed, OutOfMemory, Overloaded, ParserFailed,
};
use Engine::{IkLlama, LlamaCpp, LmStudio, Ollama, Other, Sglang, Tgi, Vllm};
use Means::{Is, TooLong, TooLongWithAnswer};
use When::{Any, Failed, Refused};

#[rustfmt::skip] // one row a line, to be read as a table
pub(super) static ROWS: &[Row] = &[
    row(Vllm, Failed, "EngineCore encountered an issue", Is(EngineDead)), // vLLM 0.32.0: out of memory, or killed engine
    row(Vllm, Failed, "EngineDeadError", Is(EngineDead)), // vLLM's newer engine
    row(Vllm, Failed, "Background loop has errored already", Is(EngineDead)), // vLLM's older engine, vllm#7356
    row(Vllm, Failed, "Background loop is stopped", Is(EngineDead)), // vLLM's older engine
    row(Vllm, Failed, "CUDA out of memory", Is(OutOfMemory)), // vllm#13100, club-3090#41
    row(Vllm, Failed, "HIP out of memory", Is(OutOfMemory)), // the same on ROCm
    row(Vllm, Failed, "torch.OutOfMemoryError", Is(OutOfMemory)), // torch 2.5 and later
    row(Vllm, Refused, "maximum context length is {limit} tokens. However, your prompt contains at least {} input tokens", TooLong), // vLLM 0.32.0
    row(Vllm, Refused, "maximum context length is {limit} tokens. However, your prompt contains {} characters", TooLong), // vLLM 0.32.0
    row(Vllm, Refused, "maximum context length is {limit} tokens. However, you requested {} output tokens and your prompt contains at least {} input tokens", TooLong), // between the older and 0.32: the count is window + 1 - requested, so no count
    row(Vllm, Refused, "maximum context length is {limit} tokens. However, you requested {} tokens ({prompt} in the messages, {} in the completion)", TooLongWithAnswer), // older vLLM, vllm#20409
    row(Vllm, Refused, "maximum context length is {limit} tokens. However, you requested {prompt} tokens in the", TooLong), // older vLLM, messages or embedding input
    row(Vllm, Refused, "is too large: {}. This model's maximum context length is {limit} tokens and your request has {prompt} input tokens", TooLongWithAnswer), // older vLLM
    row(Vllm, Refused, "max_tokens={} cannot be greater than max_model_len={}", Is(ClientFault)), // vLLM 0.32.0
    row(Vllm, Refused, "the model `…` does not exist", Is(ModelUnknown)), // vLLM 0.32.0
    row(Vllm, Refused, "tool choice requires --enable-auto-tool-choice", Is(NotServed)), // vLLM 0.32.0 without tool parser
    row(Vllm, Refused, "requires --tool-call-parser to be set", Is(NotServed)), // vLLM 0.32.0 without tool parser
    row(Vllm, Refused, "is not a multimodal model", Is(NotServed)), // vLLM 0.32.0
    row(Vllm, Refused, "type:PermissionDeniedError", Is(NotServed)), // vLLM 0.32.0: render without --enable-scale-out
    row(Vllm, Any, "engine is currently busy and cannot accept new requests", Is(Overloaded)), // vLLM 0.32.0

    row(LlamaCpp, Any, "request ({prompt} tokens) exceeds the available context size ({limit} tokens)", TooLong), // llama.cpp Oct 2026, BeeLlama
    row(LlamaCpp, Any, "type:exceed_context_size_error", TooLong), // llama.cpp
    row(LlamaCpp, Any, "request exceeds the available context size", TooLong), // llama.cpp 2025
    row(LlamaCpp, Failed, "input ({prompt} tokens) is too large to process. increase the physical batch size (current batch size: {limit})", TooLong), // llama.cpp Oct 2026, embeddings
    row(LlamaCpp, Failed, "input ({prompt} tokens) is too large to process", TooLong), // llama.cpp Oct 2026, embeddings
    row(LlamaCpp, Failed, "input is too large to process", TooLong), // llama.cpp, embeddings
    row(LlamaCpp, Failed, "Loading model", Is(Loading)), // llama.cpp Oct 2026, ik_llama.cpp 8337e4c
    row(LlamaCpp, Failed, "Context size has been exceeded", Is(Overloaded)), // llama.cpp Oct 2026: the shared pool is full, all slots get this
    row(LlamaCpp, Failed, "Compute error.", Is(OutOfMemory)), // llama.cpp Oct 2026: no room for the compute buffer, all slots get this
    row(LlamaCpp, Failed, "no slot available", Is(Overloaded)), // llama.cpp Oct 2026
    row(LlamaCpp, Failed, "Failed to parse tool call arguments as JSON", Is(ClientFault)), // llama.cpp#25510
    row(LlamaCpp, Failed, "Jinja Exception", Is(ClientFault)), // llama.cpp: the template refuses roles or their order
    row(LlamaCpp, Any, "JSON schema conversion failed", Is(ClientFault)), // llama.cpp
    row(LlamaCpp, Any, "failed to parse grammar", Is(ClientFault)), // llama.cpp
    row(LlamaCpp, Failed, "does not match the expected … format", Is(ParserFailed)), // llama.cpp#27025, #24807
    row(LlamaCpp, Failed, "Failed to parse input at pos", Is(ParserFailed)), // llama.cpp#20532, #24644
    row(LlamaCpp, Failed, "tools param requires --jinja flag", Is(NotServed)), // llama.cpp without --jinja
    row(LlamaCpp, Any, "type:not_supported_error", Is(NotServed)), // llama.cpp Oct 2026
    row(IkLlama, Failed, "Input prompt is too big compared to KV size", Is(Overloaded)), // ik_llama.cpp 8337e4c: the shared pool is full, all slots get this
    row(IkLlama, Failed, "context_length_exceeded: ", TooLong), // ik_llama.cpp 8337e4c: ran out while generating

    row(Sglang, Refused, "The input ({prompt} tokens) is longer than the model's context length ({limit} tokens)", TooLong), // SGLang 0.5.23
    row(Sglang, Refused, "maximum context length of {limit} tokens. You requested a total of {} tokens: {prompt} tokens from the input messages", TooLongWithAnswer), // SGLang 0.5.23
    row(Sglang, Any, "The request queue is full", Is(Overloaded)), // SGLang 0.5.23
    row(Sglang, Any, "aborted by a higher priority request", Is(Overloaded)), // SGLang 0.5.23

    row(Ollama, Any, "maximum pending requests exceeded", Is(Overloaded)), // Ollama fb30760
    row(Ollama, Refused, "model '…' not found", Is(ModelUnknown)), // Ollama fb30760
    row(Ollama, Refused, "not found, try pulling it first", Is(ModelUnknown)), // Ollama fb30760
    row(Ollama, Refused, "does not support tools", Is(NotServed)), // Ollama fb30760
    row(Ollama, Failed, "model requires more system memory", Is(OutOfMemory)), // Ollama 0.12 to 0.20
    row(Ollama, Failed, "CUDA error: out of memory", Is(OutOfMemory)), // ollama#9782
    row(Ollama, Failed, "cudaMalloc failed: out of memory", Is(OutOfMemory)), // Ollama
    row(Ollama, Failed, "llama runner process has terminated", Is(EngineDead)), // Ollama

    row(LmStudio, Any, "n_keep: {}>= n_ctx: {limit}", TooLong), // lmstudio-bug-tracker#237, #2205: what is to be kept is no count of the prompt
    row(LmStudio, Any, "n_keep: {} >= n_ctx: {limit}", TooLong), // openhuman#3550
    row(LmStudio, Any, "n_keep ({}) >= n_ctx ({limit})", TooLong), // lmstudio-bug-tracker#2256
    row(LmStudio, Any, "Trying to keep the first {} tokens when context the overflows. However, the model is loaded with context length of only {limit} tokens", TooLong), // LM Studio 0.3.13, lmstudio-bug-tracker#546
    row(LmStudio, Any, "Trying to keep the first {} tokens when context", TooLong), // LM Studio
    row(LmStudio, Any, "tokens to keep from the initial prompt is greater than the context length", TooLong), // LM Studio
    row(LmStudio, Any, "Reached context length of {limit} tokens with model", TooLong), // lmstudio-bug-tracker#1251
    row(LmStudio, Any, "The model has crashed", Is(EngineDead)), // LM Studio
    row(LmStudio, Any, "The model crashed", Is(EngineDead)), // lmstudio-bug-tracker#1620
    row(LmStudio, Refused, "No models loaded", Is(ModelUnknown)), // LM Studio, Orpheus-TTS#229

    row(Tgi, Refused, "`inputs` must have less than {limit} tokens. Given: {prompt}", TooLong), // TGI db931fc
    row(Tgi, Refused, "`inputs` tokens + `max_new_tokens` must be <= {limit}. Given: {prompt} `inputs` tokens", TooLongWithAnswer), // TGI db931fc
    row(Tgi, Any, "type:overloaded", Is(Overloaded)), // TGI db931fc

    row(Other, Refused, "maximum context length is {limit} tokens. However, your messages resulted in {prompt} tokens", TooLong), // OpenAI, many imitators
    row(Other, Refused, "prompt is too long: {prompt} tokens > {limit} maximum", TooLong), // Anthropic, many imitators
    row(Other, Refused, "This model's maximum context length is {limit} tokens", TooLong), // vLLM's other wordings
    row(Other, Any, "type:context_length_exceeded", TooLong), // OpenAI's code
    row(Other, Any, "type:model_not_found", Is(ModelUnknown)), // OpenAI's code
    row(Other, Any, "type:overloaded_error", Is(Overloaded)), // Anthropic
];
