//! A backend's error, and what it means for routing.
//!
//! Why: an out-of-memory, an overflow, a model that still loads and a client's mistake come in the same statuses, and
//! in other shapes per engine and version; llama.cpp answers clients' mistakes with 500, vLLM an engine's death under
//! 200. So what they say is matched against a table of recorded sentences, and only what no row knows is judged by
//! its status.
//!
//! It must never call something an overflow, or a death, for a mere word in it.

mod pattern;
mod refused;
mod table;
mod told;

use std::fmt;
use std::str::FromStr;

pub use refused::{Refused, refused};

use pattern::Numbers;
use table::{Means, ROWS, Row, When};
use told::Told;

/// Which program serves a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// llama.cpp's llama-server and its close forks.
    LlamaCpp,
    /// ik_llama.cpp's llama-server.
    IkLlama,
    /// SGLang.
    Sglang,
    /// Ollama.
    Ollama,
    /// LM Studio.
    LmStudio,
    /// Hugging Face's Text Generation Inference.
    Tgi,
    /// Anything else that speaks the API.
    Other,
}

const ENGINES: [(Engine, &str); 8] = [
    (Engine::Vllm, "vllm"),
    (Engine::LlamaCpp, "llama-cpp"),
    (Engine::IkLlama, "ik-llama"),
    (Engine::Sglang, "sglang"),
    (Engine::Ollama, "ollama"),
    (Engine::LmStudio, "lm-studio"),
    (Engine::Tgi, "tgi"),
    (Engine::Other, "other"),
];

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ENGINES.iter().find(|(engine, _)| engine == self).map_or("other", |(_, name)| name))
    }
}

/// An engine's name that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown engine {0:?}: use vllm, llama-cpp, ik-llama, sglang, ollama, lm-studio, tgi or other")]
pub struct UnknownEngine(pub String);

impl FromStr for Engine {
    type Err = UnknownEngine;

    fn from_str(name: &str) -> Result<Self, UnknownEngine> {
        let found = ENGINES.iter().find(|(_, own)| *own == name);
        found.map(|(engine, _)| *engine).ok_or_else(|| UnknownEngine(name.to_owned()))
    }
}

/// What an error means for routing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Diagnosis {
    /// The card's memory ran out; the engine is likely gone.
    OutOfMemory,
    /// The engine is gone, and all its answers with it.
    EngineDead,
    /// The prompt does not fit.
    ContextTooLong {
        /// Its tokens, where the engine says them; none when it only says "at least".
        prompt: Option<u64>,
        /// The engine's window.
        limit: Option<u64>,
    },
    /// The body has too many bytes, whatever its tokens: mostly a server in between.
    BodyTooLarge,
    /// The model is being loaded.
    Loading,
    /// Full for now: its queue, its slots, or the pool that its slots share.
    Overloaded,
    /// The engine could not read what its own model wrote.
    ParserFailed,
    /// No such model there.
    ModelUnknown,
    /// The backend does not serve it: no such path there, or tools or images that it was not started for.
    NotServed,
    /// The proxy's key is not accepted.
    Unauthorized,
    /// The request is at fault, with any backend.
    ClientFault,
    /// Something else.
    Other,
}

/// An error, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendError {
    /// What it means.
    pub diagnosis: Diagnosis,
    /// The status that it stands under; `None`: an error event without a code.
    pub status: Option<u16>,
    /// The engine's own sentence, at most 2 KiB.
    pub message: String,
    /// The member at fault, if the engine names one.
    pub param: Option<String>,
    /// The engine's `type`, else its `code` if that is a word.
    pub kind: Option<String>,
    /// What of the request it does not take, if it says so and would take the rest.
    pub refused: Option<Refused>,
}

/// What a backend's error means: its status and body, or status 200 and the JSON of an error event, whose own code
/// then counts.
///
/// First the table is asked, the engine's rows before all others, then the status.
pub fn diagnose(engine: Engine, status: u16, body: &[u8]) -> BackendError {
    let told = told::read(body);
    let status = if status < 400 { told.code.filter(|code| (400..600).contains(code)) } else { Some(status) };
    // The rows of no engine in particular stay last.
    let is_own = |row: &&Row| row.engine == engine && engine != Engine::Other;
    let own = ROWS.iter().filter(is_own);
    let others = ROWS.iter().filter(|row| !is_own(row));
    let known = own.chain(others).find_map(|row| Some((row, row.numbers(status, &told)?)));
    let mut param = told.param.clone();
    let diagnosis = match known {
        None => by_status(status),
        Some((row, found)) => {
            let (prompt, limit) = (told.prompt.or(found.prompt), told.limit.or(found.limit));
            match &row.means {
                Means::Is(diagnosis) => diagnosis.clone(),
                Means::TooLongWithAnswer if matches!((prompt, limit), (Some(p), Some(l)) if p < l) => {
                    param = Some("max_tokens".to_owned());
                    Diagnosis::ClientFault
                }
                Means::TooLong | Means::TooLongWithAnswer => Diagnosis::ContextTooLong { prompt, limit },
            }
        }
    };
    // The whole body: sentences are shortened, and places may stand apart from them.
    let refused = (diagnosis == Diagnosis::ClientFault)
        .then(|| refused(&told.message).or_else(|| refused(std::str::from_utf8(body).unwrap_or_default())))
        .flatten();
    BackendError { diagnosis, status, message: told.message, param, kind: told.kind.or(told.word), refused }
}

impl Row {
    /// Whether the row speaks of this error, and the numbers that its sentence gives.
    fn numbers(&self, status: Option<u16>, told: &Told) -> Option<Numbers> {
        let holds = match (self.when, status) {
            (When::Any, _) | (_, None) => true,
            (When::Refused, Some(status)) => (400..500).contains(&status) && status != 424,
            (When::Failed, Some(status)) => status >= 500 || status == 424,
        };
        if !holds {
            return None;
        }
        match self.says.strip_prefix("type:") {
            Some(name) => {
                [&told.kind, &told.word].iter().any(|own| own.as_deref() == Some(name)).then(Numbers::default)
            }
            None => pattern::find(self.says, unquoted(&told.message)),
        }
    }
}

/// The sentence without what a validator quotes of the request, which may say anything.
fn unquoted(message: &str) -> &str {
    let quotes = ["'input':", "\"input\":", "input_value="];
    let end = quotes.iter().filter_map(|quote| message.find(quote)).min().unwrap_or(message.len());
    &message[..end]
}

/// What is left to tell by the status alone.
fn by_status(status: Option<u16>) -> Diagnosis {
    match status {
        Some(401 | 403 | 407) => Diagnosis::Unauthorized,
        Some(404 | 405 | 501) => Diagnosis::NotServed,
        Some(413) => Diagnosis::BodyTooLarge,
        Some(408 | 429 | 503 | 529) => Diagnosis::Overloaded,
        // 424 is TGI's own failure, 499 a request that was cancelled.
        Some(424 | 499) => Diagnosis::Other,
        Some(400..=498) => Diagnosis::ClientFault,
        _ => Diagnosis::Other,
    }
}
