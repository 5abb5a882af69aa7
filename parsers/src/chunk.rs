//! What a frame of a stream, or a whole answer, says: the few facts that routing, failover and accounting live on.
//!
//! Why: status 200, a clean end and `[DONE]` prove nothing; only a good finish reason does. And the backend's first
//! token is another moment than the first content that a client may show: the one frees the prefill place, the other
//! ends invisible failover.
//!
//! A reader must never keep the answer and never fail: what it does not know is not said, and what is no JSON is
//! `unreadable`.

mod read;

use std::borrow::Cow;

use bytes::Bytes;

use crate::json::Value;
use crate::sse::{SseFrame, write_data};

/// The API that an answer is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI's `/v1/chat/completions`.
    Chat,
    /// OpenAI's `/v1/completions`.
    Completions,
    /// Anthropic's `/v1/messages`.
    Messages,
    /// OpenAI's `/v1/responses`.
    Responses,
}

/// What one frame, or one whole answer, says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The stream says that it is over: `[DONE]`, `message_stop`, `response.completed`, `.incomplete`, `.failed`,
    /// `.cancelled`; or this is a whole answer. It may still be a failed one.
    pub done: bool,
    /// Something that a client may show: text, reasoning, a refusal, a call, audio. Neither a role chunk nor an empty
    /// string is.
    pub content: bool,
    /// The backend has produced its first token: a chunk with choices (a role chunk, too) that is no mere report of
    /// prefill progress, or the block, item or delta of the other dialects. `message_start` and `response.created`
    /// may come before prefill and are not.
    pub token: bool,
    /// Chat and Completions: each choice of this frame. Messages and Responses: one choice 0, when there is a token
    /// or an end.
    pub choices: Vec<ChoiceSaid>,
    /// `choices` is there and empty, as in a chunk of usage only.
    pub empty_choices: bool,
    /// Tokens as the backend counted them, so far.
    pub usage: Option<Usage>,
    /// It is an error, or holds one.
    pub error: bool,
    /// It is not JSON.
    pub unreadable: bool,
    /// Exclamation marks, if all the text and reasoning in it is made of them: what an engine writes whose numbers have
    /// become none.
    pub marks: u64,
}

/// What is said of one choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChoiceSaid {
    /// Its `index`, else its position.
    pub index: u64,
    /// Why it ended, if it did.
    pub finish: Option<Finish>,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// As it should.
    Good(GoodFinish),
    /// It was broken off: `abort`, `error`, or any word that is no success. The backend's word.
    Bad(String),
}

/// The ends that are successes; each word belongs to the dialects named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoodFinish {
    /// `stop`, `eos_token`, `stop_sequence`: Chat, Completions.
    Stop,
    /// `length`: Chat, Completions.
    Length,
    /// `tool_calls`: Chat, Completions.
    ToolCalls,
    /// `content_filter`: Chat, Completions.
    ContentFilter,
    /// `function_call`: Chat, Completions.
    FunctionCall,
    /// `end_turn`: Messages.
    EndTurn,
    /// `max_tokens`: Messages.
    MaxTokens,
    /// `stop_sequence`: Messages.
    StopSequence,
    /// `tool_use`: Messages.
    ToolUse,
    /// `pause_turn`: Messages.
    PauseTurn,
    /// `refusal`: Messages.
    Refusal,
    /// `completed`: Responses.
    Completed,
    /// `incomplete`: Responses.
    Incomplete,
}

/// Tokens as the backend counted them; none where it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The whole prompt, its cached part included.
    pub prompt_tokens: Option<u64>,
    /// The answer so far.
    pub completion_tokens: Option<u64>,
    /// The part of the prompt that was not computed again.
    pub cached_tokens: Option<u64>,
}

impl Usage {
    /// The later numbers, and the earlier ones where it has none: Messages tells the prompt in its first event and the
    /// answer in its last.
    #[must_use]
    pub fn then(self, later: Usage) -> Usage {
        Usage {
            prompt_tokens: later.prompt_tokens.or(self.prompt_tokens),
            completion_tokens: later.completion_tokens.or(self.completion_tokens),
            cached_tokens: later.cached_tokens.or(self.cached_tokens),
        }
    }
}

impl Dialect {
    /// What a frame says: its data, and JSON that stands outside any data field.
    pub fn read_frame(self, frame: &SseFrame) -> Said {
        let data = frame.data().map(|data| self.read(&data)).unwrap_or_default();
        let mut said = match data.unreadable && !frame.is_canonical() {
            // Events without blank lines between them, one a line.
            true => frame.data_values().map(|line| self.read(line)).fold(Said::default(), Said::and),
            false => data,
        };
        if let Some(stray) = frame.stray() {
            said = said.and(self.read(stray));
        }
        said.error |= frame.event() == Some("error") || frame.has_error_field();
        said
    }

    /// What a whole answer says, one that was not streamed.
    pub fn read_answer(self, body: &[u8]) -> Said {
        let mut said = self.read(body);
        said.unreadable |= body.trim_ascii().is_empty();
        said.done = !said.unreadable && !said.error;
        said
    }

    fn read(self, payload: &[u8]) -> Said {
        let payload = payload.trim_ascii();
        match payload {
            b"" => Said::default(),
            b"[DONE]" => Said { done: true, ..Said::default() },
            _ => match std::str::from_utf8(payload).map(Value::parse) {
                Ok(Ok(value)) => read::read(self, value),
                _ => Said { unreadable: true, ..Said::default() },
            },
        }
    }

    /// The frame that ends a whole answer behind its finish reason, where that does not end it.
    pub fn end_marker(self) -> Option<&'static [u8]> {
        match self {
            Self::Chat | Self::Completions => Some(b"data: [DONE]\n\n"),
            Self::Messages => Some(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"),
            Self::Responses => None,
        }
    }

    /// The frame that ends a stream behind an error: of the dialects whose end says nothing of success.
    pub fn end_behind_an_error(self) -> Option<&'static [u8]> {
        match self {
            Self::Chat | Self::Completions => self.end_marker(),
            Self::Messages | Self::Responses => None,
        }
    }

    /// The frame that tells a client of an error in mid-stream. `error_json` is the error object itself:
    /// `{"message":…,"type":…,"code":…}`.
    ///
    /// In Responses it is the failure of the response, since Codex passes over every other event (its source,
    /// codex-api/src/sse/responses.rs); the object stands beside it, too, where the SDKs look for it. `word` is the code there,
    /// of those that Codex acts on.
    pub fn error_frame(self, error_json: &[u8], word: &str) -> Bytes {
        match self {
            Self::Chat | Self::Completions => write_data(&[br#"{"error":"#, error_json, b"}"].concat()),
            Self::Messages => {
                let data = write_data(&[br#"{"type":"error","error":"#, error_json, b"}"].concat());
                [b"event: error\n", &data[..]].concat().into()
            }
            Self::Responses => {
                let error = std::str::from_utf8(error_json).ok().and_then(|text| Value::parse(text).ok());
                let message = error.and_then(|error| error.get("message")).map_or("null", Value::raw);
                let head = format!(
                    r#"{{"type":"response.failed","response":{{"object":"response","status":"failed","error":{{"code":"{word}","message":{message}}}}},"error":"#
                );
                let data = write_data(&[head.as_bytes(), error_json, b"}"].concat());
                [b"event: response.failed\n", &data[..]].concat().into()
            }
        }
    }
}

impl Said {
    /// Both.
    fn and(mut self, later: Said) -> Said {
        self.choices.extend(later.choices);
        Said {
            done: self.done | later.done,
            content: self.content | later.content,
            token: self.token | later.token,
            choices: self.choices,
            empty_choices: self.empty_choices | later.empty_choices,
            usage: match (self.usage, later.usage) {
                (Some(usage), Some(later)) => Some(usage.then(later)),
                (usage, later) => later.or(usage),
            },
            error: self.error | later.error,
            unreadable: self.unreadable | later.unreadable,
            marks: self.marks + later.marks,
        }
    }
}

impl Finish {
    /// What a backend's word means in a dialect; the empty word means nothing yet.
    fn read(dialect: Dialect, word: Cow<'_, str>) -> Option<Self> {
        use Dialect::{Chat, Completions, Messages, Responses};
        let good = match (dialect, &*word) {
            (_, "") => return None,
            // The others are words of TGI.
            (Chat | Completions, "stop" | "eos_token" | "stop_sequence") => GoodFinish::Stop,
            (Chat | Completions, "length") => GoodFinish::Length,
            (Chat | Completions, "tool_calls") => GoodFinish::ToolCalls,
            (Chat | Completions, "content_filter") => GoodFinish::ContentFilter,
            (Chat | Completions, "function_call") => GoodFinish::FunctionCall,
            (Messages, "end_turn") => GoodFinish::EndTurn,
            (Messages, "max_tokens") => GoodFinish::MaxTokens,
            (Messages, "stop_sequence") => GoodFinish::StopSequence,
            (Messages, "tool_use") => GoodFinish::ToolUse,
            (Messages, "pause_turn") => GoodFinish::PauseTurn,
            (Messages, "refusal") => GoodFinish::Refusal,
            (Responses, "completed") => GoodFinish::Completed,
            (Responses, "incomplete") => GoodFinish::Incomplete,
            _ => return Some(Self::Bad(word.into_owned())),
        };
        Some(Self::Good(good))
    }
}
