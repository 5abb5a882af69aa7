//! What a fault of a backend means for the request: who is next, whether to wait, what to say at the end.
//!
//! One out-of-memory kills every stream of an engine, so the innocent move anywhere; the prompt that did it must not be
//! carried from card to card, so it moves only to a backend with a larger limit. A client's own mistake is nobody's fault
//! and is never tried again. None of this applies once content was shown.

use std::fmt;

use crate::facts::BackendState;

/// What went wrong in one attempt, before anything was shown to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No connection: refused, unreachable or timed out.
    Unreachable,
    /// The connection ended before the answer did.
    ConnectionLost,
    /// The engine behind the server is dead.
    EngineDead,
    /// The card's memory is full.
    OutOfMemory,
    /// The server is being stopped: vLLM ends its answers with `abort` on SIGTERM, under status 200.
    Stopping,
    /// The server broke the answer off for another reason (`error`, `repetition`), or ended it without one.
    Aborted,
    /// No first token in time.
    NoFirstToken,
    /// No progress in a stream that had begun.
    Stalled,
    /// The prompt is longer than the backend's context.
    TooLong {
        /// Tokens of the prompt as the backend counted them, if it told.
        prompt: Option<u64>,
        /// Its limit, if it told.
        limit: Option<u64>,
    },
    /// The body has too many bytes for it, which says nothing of tokens: another backend may take it.
    BodyTooLarge,
    /// It is loading its model.
    Loading,
    /// Its queue is full.
    Overloaded,
    /// Its own parser refused what the model wrote.
    ParserFailed,
    /// It does not know the model.
    ModelUnknown,
    /// It does not serve the path.
    NotServed,
    /// It does not accept the proxy's key.
    Unauthorized,
    /// It dropped a part of the prompt without a word: its own count is far below ours.
    SilentTruncation {
        /// Prompt tokens that the backend reported.
        said: u64,
        /// The least that the prompt has.
        counted: u64,
    },
    /// It was to go on with an answer that another had begun, and did something else.
    DidNotGoOn,
    /// The request itself is wrong.
    ClientMistake,
    /// Something else; the backend's message is in the log.
    Other,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "unreachable",
            Self::ConnectionLost => "connection lost",
            Self::EngineDead => "engine dead",
            Self::OutOfMemory => "out of memory",
            Self::Stopping => "server stopping",
            Self::Aborted => "answer broken off",
            Self::NoFirstToken => "no first token",
            Self::Stalled => "stalled",
            Self::TooLong { .. } => "prompt too long",
            Self::BodyTooLarge => "body too large",
            Self::Loading => "loading",
            Self::Overloaded => "overloaded",
            Self::ParserFailed => "parser failed",
            Self::ModelUnknown => "model unknown",
            Self::NotServed => "path not served",
            Self::Unauthorized => "key not accepted",
            Self::SilentTruncation { said, counted } => {
                return write!(f, "prompt shortened to {said} of at least {counted} tokens");
            }
            Self::DidNotGoOn => "did not go on with the answer",
            Self::ClientMistake => "client's mistake",
            Self::Other => "fault",
        })
    }
}

/// What to do after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Try the next candidate.
    Next,
    /// Try the next candidate whose prompt limit is above this many tokens.
    NextAbove(u64),
    /// The same, once and never again: it must not kill a third.
    LastAbove(u64),
    /// Not a fault: ask the same backend again once it has loaded, unless another can answer sooner.
    Wait,
    /// Nothing was asked of it, and nothing spent: try the next candidate, and this one again if it comes back.
    Away,
    /// Tell the client: nobody else would answer otherwise.
    Refuse,
}

/// Judges a fault. `prompt`: tokens of the request; `limit`: prompt limit of the backend that failed, if known; `guilty`:
/// the engine died, and this is the prompt that did it.
#[must_use]
pub fn verdict(fault: Fault, prompt: u64, limit: Option<u64>, guilty: bool) -> Verdict {
    match fault {
        Fault::ClientMistake => Verdict::Refuse,
        Fault::Loading => Verdict::Wait,
        Fault::Unreachable => Verdict::Away,
        Fault::TooLong { limit: told, .. } => Verdict::NextAbove(told.or(limit).unwrap_or(prompt)),
        fault if guilty && is_death(fault) => Verdict::LastAbove(limit.unwrap_or(prompt)),
        Fault::ConnectionLost
        | Fault::EngineDead
        | Fault::OutOfMemory
        | Fault::Stopping
        | Fault::Aborted
        | Fault::NoFirstToken
        | Fault::Stalled
        | Fault::BodyTooLarge
        | Fault::Overloaded
        | Fault::ParserFailed
        | Fault::ModelUnknown
        | Fault::NotServed
        | Fault::Unauthorized
        | Fault::SilentTruncation { .. }
        | Fault::DidNotGoOn
        | Fault::Other => Verdict::Next,
    }
}

/// What a fault shows of the backend itself, so that others need not find out one by one; `None`: nothing.
#[must_use]
pub fn shows(fault: Fault) -> Option<BackendState> {
    match fault {
        Fault::Unreachable => Some(BackendState::Absent),
        Fault::EngineDead | Fault::OutOfMemory => Some(BackendState::Dead),
        Fault::Stopping => Some(BackendState::Draining),
        Fault::Loading => Some(BackendState::Loading),
        Fault::ConnectionLost
        | Fault::Aborted
        | Fault::NoFirstToken
        | Fault::Stalled
        | Fault::TooLong { .. }
        | Fault::BodyTooLarge
        | Fault::Overloaded
        | Fault::ParserFailed
        | Fault::ModelUnknown
        | Fault::NotServed
        | Fault::Unauthorized
        | Fault::SilentTruncation { .. }
        | Fault::DidNotGoOn
        | Fault::ClientMistake
        | Fault::Other => None,
    }
}

/// Whether the backend may have read the prompt, or a part of it, before the fault: trying elsewhere reads it again.
#[must_use]
pub fn was_read(fault: Fault) -> bool {
    !matches!(
        fault,
        Fault::Unreachable
            | Fault::Stopping
            | Fault::TooLong { .. }
            | Fault::BodyTooLarge
            | Fault::Loading
            | Fault::Overloaded
            | Fault::ModelUnknown
            | Fault::NotServed
            | Fault::Unauthorized
            | Fault::ClientMistake
    )
}

/// Whether a fault is one of the engine's process: another one, started since, has not failed the request.
#[must_use]
pub fn ends_with_the_process(fault: Fault) -> bool {
    is_death(fault) || is_silence(fault) || matches!(fault, Fault::Unreachable | Fault::Stopping)
}

/// Whether a fault is a silence: the backend may still be at work on what nobody waits for any more.
#[must_use]
pub fn is_silence(fault: Fault) -> bool {
    matches!(fault, Fault::NoFirstToken | Fault::Stalled)
}

/// Whether a fault says that the engine died, and all that it carried with it. A lost connection may say that.
#[must_use]
pub fn is_death(fault: Fault) -> bool {
    matches!(fault, Fault::EngineDead | Fault::OutOfMemory | Fault::ConnectionLost)
}

/// Whether a suspect of so many tokens is held guilty of a death: below `guilty_above` no cliff is known. A guilty prompt is
/// reported as an overflow, which makes a client shorten the conversation, and not as a server error, which makes it send
/// the killer again up to thirty times. Returns the number of tokens that is now held for safe.
#[must_use]
pub fn safe_after_death(prompt: u64, guilty_above: u64) -> Option<u64> {
    (prompt > guilty_above).then(|| (prompt - prompt / 10).max(guilty_above))
}

/// Whether the backend's own prompt count shows that it dropped a part of the prompt. `low` is a lower bound that holds
/// for any tokenizer; a tenth is left for templates that the bound could not foresee.
#[must_use]
pub fn silently_truncated(said: u64, low: u64) -> bool {
    said > 0 && said < low - low / 10
}
