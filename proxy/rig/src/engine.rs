//! The engines whose servers are simulated, and where they differ beneath the wire.
//!
//! vLLM and llama.cpp are simulated as captured from running servers; the others from source (marked so), which means
//! that names and order of members may be off where nobody has looked. It must never hold a wording.

use serde::{Deserialize, Serialize};

/// Whose wire a simulated backend speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Engine {
    /// vLLM's OpenAI-compatible server: 0.32.0 as captured; before 0.11 (see [`field@crate::Spec::version`]) from source.
    Vllm,
    /// llama.cpp's `llama-server`, build 11434, as captured.
    LlamaCpp,
    /// ik_llama.cpp's `llama-server`, commit 8337e4c, from source.
    IkLlama,
    /// SGLang's server, 0.5.23, from source.
    Sglang,
    /// Ollama's OpenAI-compatible API, commit fb30760, from source. Its API dies with its runner here.
    Ollama,
}

impl Engine {
    /// Its name in files and on command lines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::LlamaCpp => "llama-cpp",
            Self::IkLlama => "ik-llama",
            Self::Sglang => "sglang",
            Self::Ollama => "ollama",
        }
    }

    /// The version that it is simulated as unless a spec says otherwise.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Vllm => "0.32.0",
            Self::LlamaCpp => "b11434-switchback",
            Self::IkLlama => "8337e4c-switchback",
            Self::Sglang => "0.5.23",
            Self::Ollama => "0.21.0",
        }
    }

    /// The `server` header; none for those that send none.
    pub(crate) fn server(self) -> Option<&'static str> {
        match self {
            Self::Vllm | Self::Sglang => Some("uvicorn"),
            Self::LlamaCpp => Some("llama.cpp"),
            Self::IkLlama => Some("ik_llama.cpp"),
            Self::Ollama => None,
        }
    }

    /// Whether a death takes the whole process at once, and resets its sockets.
    pub(crate) fn aborts(self) -> bool {
        self != Self::Vllm
    }

    /// Whether its port is open while the model loads.
    pub(crate) fn opens_early(self) -> bool {
        self != Self::Vllm
    }

    /// Whether each slot has a context of its own (and a cache in it), instead of a pool for all.
    pub(crate) fn has_slots(self) -> bool {
        matches!(self, Self::LlamaCpp | Self::IkLlama | Self::Ollama)
    }

    /// Whether decodes go on in a step that reads prompts (SGLang without `--enable-mixed-chunk` lets them wait).
    pub(crate) fn mixes(self) -> bool {
        self != Self::Sglang
    }

    /// Whether it continues a trailing assistant message unasked, and says its beginning again.
    pub(crate) fn repeats_beginnings(self) -> bool {
        self == Self::LlamaCpp
    }
}
