//! What probing has found of a backend, and how busy it is.
//!
//! Every field but the names is optional, and `None` means that the backend did not tell, never that it has none. Nothing
//! here is guessed: what a default of an engine suggests, but no answer says, stays open.

use std::sync::Arc;

use switchback_parsers::diagnosis::Engine;
use switchback_parsers::needs::Need;

/// What probing has found of a backend. Kept while it is down: a restart seldom changes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The engine, as its answers tell; `Other` for a server that lists models and is none of those known; `None` for one
    /// that lists none.
    pub(crate) engine: Option<Engine>,
    /// The engine's version or build, as it writes it: vLLM `/version`, llama.cpp `/props` `build_info`, SGLang
    /// `/server_info`, Ollama `/api/version`, TGI `/info`.
    pub(crate) version: Option<String>,
    /// The names that it serves, adapters and aliases included; where an engine loads models on request, those that are
    /// loaded come first.
    pub(crate) names: Vec<String>,
    /// How many of the names are loaded, where an engine loads models on request: Ollama, LM Studio.
    pub(crate) loaded: Option<usize>,
    /// Prompt and output together, tokens, in one slot. vLLM, SGLang: `max_model_len`; llama.cpp: `meta.n_ctx`, else
    /// `/props`; ik_llama: `max_model_len` (its total) by its slots; Ollama, LM Studio: of the model that is loaded; TGI:
    /// `max_total_tokens`. Where models differ, that of the configured one, else the smallest.
    pub(crate) window: Option<u64>,
    /// A window that cannot be exceeded, tokens, where the true one is not known before the model is loaded (Ollama
    /// `/api/show`, LM Studio `max_context_length`) or is a share of this (ik_llama without a number of slots). Never to
    /// be taken for the window: the default of Ollama is far below.
    pub(crate) window_at_most: Option<u64>,
    /// The longest prompt that it takes, tokens, where that is less than the window: TGI `max_input_tokens`.
    pub(crate) prompt_limit: Option<u64>,
    /// Requests that run at once; more wait. llama.cpp, ik_llama: `total_slots`; LM Studio: `parallel`; SGLang:
    /// `max_running_requests`; vLLM: `max_num_seqs`, in its development mode only.
    pub(crate) slots: Option<u64>,
    /// Tokens of a long prompt that it reads at once while others wait or run: vLLM's `long_prefill_token_threshold`, 0 if it has
    /// none, in its development mode only.
    pub(crate) long_prefill: Option<u64>,
    /// Tokens that all running requests can hold together, never more than the truth. vLLM: `/metrics`
    /// `kv_cache_size_tokens`; SGLang: `max_total_num_tokens`; llama.cpp: its window, which is the whole pool if its slots
    /// share one, and one slot's part of it if not.
    pub(crate) pool: Option<u64>,
    /// Whether running requests share the pool, so that one can take what another needs. `None` for llama.cpp with several
    /// slots, which does not tell: shared unless `-np` was given, and the careful reading.
    pub(crate) pool_shared: Option<bool>,
    /// Whether the engine itself turns what a model writes into `tool_calls`. vLLM: a parser was named at its start (the
    /// counter of its calls is listed only then, seen in 0.32); SGLang: `tool_call_parser`; llama.cpp: whether its template
    /// knows tools; Ollama: the model's capability.
    pub(crate) tool_parser: Option<bool>,
    /// The family in which its model was taught to write calls, one of the parsers' formats. SGLang: by its parser; llama.cpp,
    /// ik_llama, Ollama: by the markers that the chat template writes.
    pub(crate) family: Option<&'static str>,
    /// What the chat template can do: llama.cpp `/props` `chat_template_caps`.
    pub(crate) template: Option<TemplateCaps>,
    /// The chat template that it runs: llama.cpp, ik_llama `/props` `chat_template`. It need not be that of the model's files.
    pub(crate) chat_template: Option<ChatTemplate>,
    /// What its chat template cannot read, by what it refused to render: vLLM, SGLang `/tokenize`; llama.cpp, ik_llama
    /// `/apply-template`.
    pub(crate) needs: Option<Vec<Need>>,
    /// The member of an answer that carries thoughts.
    pub(crate) reasoning: Option<ReasoningField>,
    /// Whether it reads images. llama.cpp, ik_llama: `modalities`; SGLang: `/model_info`; Ollama, LM Studio: capabilities.
    pub(crate) images: Option<bool>,
    /// The endpoint that counts a chat prompt, by engine. Older builds may lack it: the first count tells.
    pub(crate) counting: Option<Counting>,
}

impl Found {
    /// With the gaps filled from what was known earlier of the same server.
    pub(super) fn or(self, earlier: &Self) -> Self {
        if self.engine != earlier.engine || self.names != earlier.names {
            return self;
        }
        let earlier = earlier.clone();
        Self {
            engine: self.engine,
            version: self.version.or(earlier.version),
            names: self.names,
            loaded: self.loaded.or(earlier.loaded),
            window: self.window.or(earlier.window),
            window_at_most: self.window_at_most.or(earlier.window_at_most),
            prompt_limit: self.prompt_limit.or(earlier.prompt_limit),
            slots: self.slots.or(earlier.slots),
            long_prefill: self.long_prefill.or(earlier.long_prefill),
            pool: self.pool.or(earlier.pool),
            pool_shared: self.pool_shared.or(earlier.pool_shared),
            tool_parser: self.tool_parser.or(earlier.tool_parser),
            family: self.family.or(earlier.family),
            template: self.template.or(earlier.template),
            chat_template: self.chat_template.or(earlier.chat_template),
            needs: self.needs.or(earlier.needs),
            reasoning: self.reasoning.or(earlier.reasoning),
            images: self.images.or(earlier.images),
            counting: self.counting.or(earlier.counting),
        }
    }
}

/// A chat template as a server runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChatTemplate {
    pub(crate) source: Arc<str>,
    /// Another one for requests with tools.
    pub(crate) with_tools: Option<Arc<str>>,
}

/// What a chat template can do. One that does not know tools drops them from the prompt without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TemplateCaps {
    /// Tools of a request reach the prompt.
    pub(crate) tools: bool,
    /// Calls of earlier messages reach the prompt.
    pub(crate) tool_calls: bool,
    /// Several calls in one message reach the prompt.
    pub(crate) parallel_tool_calls: bool,
    /// System messages reach the prompt.
    pub(crate) system_role: bool,
}

/// The member of a message or delta that carries thoughts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReasoningField {
    /// `reasoning`: vLLM since 0.12 (both until 0.15), Ollama.
    Reasoning,
    /// `reasoning_content`: older vLLM, llama.cpp, ik_llama, SGLang.
    ReasoningContent,
}

impl std::fmt::Display for ReasoningField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Reasoning => "reasoning",
            Self::ReasoningContent => "reasoning_content",
        })
    }
}

/// How a chat prompt can be counted by the backend itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// `POST /tokenize` with messages and tools; the answer's `count`. vLLM, SGLang.
    Tokenize,
    /// `POST /v1/chat/completions/input_tokens` with the whole request; `input_tokens`. llama.cpp.
    InputTokens,
    /// `POST /v1/messages/count_tokens`, of the Messages dialect; `input_tokens`. ik_llama.
    CountTokens,
    /// `POST /chat_tokenize` with the whole request. TGI.
    ChatTokenize,
}

impl std::fmt::Display for Counting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tokenize => "/tokenize",
            Self::InputTokens => "/v1/chat/completions/input_tokens",
            Self::CountTokens => "/v1/messages/count_tokens",
            Self::ChatTokenize => "/chat_tokenize",
        })
    }
}

impl Counting {
    pub(super) fn of(engine: Engine) -> Option<Self> {
        match engine {
            Engine::Vllm | Engine::Sglang => Some(Self::Tokenize),
            Engine::LlamaCpp => Some(Self::InputTokens),
            Engine::IkLlama => Some(Self::CountTokens),
            Engine::Tgi => Some(Self::ChatTokenize),
            Engine::Ollama | Engine::LmStudio | Engine::Other => None,
        }
    }
}

/// How busy a backend is, by its own account and with the requests of everybody who uses it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    /// Requests that are being computed.
    pub(crate) running: u64,
    /// Requests that wait inside the engine.
    pub(crate) waiting: u64,
    /// Part of the pool that is taken, 0 to 1; of the fullest one where there are several.
    pub(crate) kv_usage: Option<f64>,
    /// A number that is another one after each of its steps, if it tells that.
    pub(crate) steps: Option<u64>,
}
