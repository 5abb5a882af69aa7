//! What an answer was worth, seen while it passes: whether it said something, and whether its calls are what was asked for.
//!
//! It is read as its client gets it, behind all repair; only frames that speak of calls are looked into. Must never hold anything back,
//! nor blame a backend for what the client's own limit cut.

use bytes::Bytes;
use memchr::memmem;
use switchback_parsers::chunk::{Dialect, Finish, GoodFinish, Said};
use switchback_parsers::event::Folded;
use switchback_parsers::schema::ToolSet;
use switchback_parsers::sse::SseDecoder;
use switchback_policies::liveness::Worth;
use switchback_policies::quality::Flaw;

use super::repair;

/// The calls of a whole answer as its client has them.
pub(crate) fn calls_of_answer(body: &[u8], dialect: Dialect) -> Folded {
    match repair::in_chat(body, dialect) {
        Some(chat) => Folded::of_answer(&chat),
        None if memmem::find(body, b"\"tool_calls\"").is_some() => {
            Folded::of_answer(std::str::from_utf8(body).unwrap_or_default())
        }
        None => Folded::default(),
    }
}

/// The calls of a chat's frames.
pub(crate) fn calls_of_frames(frames: &Bytes) -> Folded {
    let mut calls = Folded::default();
    let mut decoder = SseDecoder::new();
    if decoder.push(frames.clone()).is_ok() {
        while let Some(frame) = decoder.next_frame() {
            calls.add_frame(&frame);
        }
    }
    calls
}

/// Exclamation marks in a row that no model means.
const MARKS: u64 = 64;

/// What the repair of an answer came upon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traces {
    /// The limit cut it inside a call that came as text, of which nothing is left.
    pub(crate) cut_call: bool,
    /// A call had to be mended.
    pub(crate) mended: bool,
    /// The markup of a call could not be read, and stayed text.
    pub(crate) unread: bool,
}

/// What an answer was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grade {
    pub(crate) worth: Worth,
    /// What is wrong with its calls; `None`: it has none.
    pub(crate) calls: Option<Option<Flaw>>,
}

/// What is seen of an answer.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Something has come that a client may show.
    pub(crate) says: bool,
    /// The longest row of exclamation marks with nothing else between them, and the one at its end.
    marks: u64,
    marks_now: u64,
    at_limit: bool,
}

impl Seen {
    /// A whole answer.
    pub(crate) fn of_answer(said: &Said) -> Self {
        let mut seen = Self::default();
        seen.said(said);
        seen
    }

    /// A whole answer that was written as a stream, by its calls.
    pub(crate) fn of_written(calls: &Folded) -> Self {
        Self { says: true, at_limit: calls.finish_reason == "length", ..Self::default() }
    }

    /// The backend says this.
    pub(crate) fn said(&mut self, said: &Said) {
        if said.content {
            self.says = true;
            self.marks_now = if said.marks > 0 { self.marks_now + said.marks } else { 0 };
            self.marks = self.marks.max(self.marks_now);
        }
        let cut = |finish: &Option<Finish>| {
            use GoodFinish::{Incomplete, Length, MaxTokens};
            matches!(finish, Some(Finish::Good(Length | MaxTokens | Incomplete)))
        };
        self.at_limit |= said.choices.iter().any(|choice| cut(&choice.finish));
    }

    /// Whether it had content, and was not one exclamation mark after the other.
    pub(crate) fn worth(&self) -> Worth {
        match self.says {
            false => Worth::Empty,
            true if self.marks >= MARKS => Worth::Garbage,
            true => Worth::Answer,
        }
    }

    /// What it was worth. `calls`: as its client has them. `tools`: those that the request declares, if it may call any.
    pub(crate) fn grade(&self, calls: &Folded, tools: Option<&ToolSet>, traces: Traces) -> Grade {
        let flaws = tools.filter(|_| !self.at_limit).and_then(|tools| {
            let undeclared = calls.calls.iter().any(|call| tools.tool(&call.name).is_none());
            let flaw = match () {
                () if traces.unread => Some(Flaw::Unreadable),
                () if undeclared => Some(Flaw::Undeclared),
                () if !calls.wrong_calls(tools).is_empty() => Some(Flaw::Invalid),
                () if traces.mended => Some(Flaw::Mended),
                () => None,
            };
            (flaw.is_some() || !calls.calls.is_empty()).then_some(flaw)
        });
        Grade { worth: self.worth(), calls: flaws }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOLS: &str = r#"[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}}]"#;

    fn answer(name: &str, arguments: &str, finish: &str) -> Grade {
        let call = serde_json::json!([{ "id": "a", "type": "function", "function": { "name": name, "arguments": arguments } }]);
        let answer = serde_json::json!({ "choices": [{ "index": 0, "finish_reason": finish,
            "message": { "role": "assistant", "content": null, "tool_calls": call } }] });
        let body = answer.to_string();
        let seen = Seen::of_answer(&Dialect::Chat.read_answer(body.as_bytes()));
        let calls = calls_of_answer(body.as_bytes(), Dialect::Chat);
        seen.grade(&calls, Some(&ToolSet::from_json(TOOLS)), Traces::default())
    }

    #[test]
    fn a_call_is_worth_what_its_client_can_do_with_it() {
        let calls = |name, arguments| answer(name, arguments, "tool_calls").calls;
        assert_eq!(calls("look", r#"{"path":"/a"}"#), Some(None));
        assert_eq!(calls("look", r#"{"pa"#), Some(Some(Flaw::Invalid)));
        assert_eq!(calls("look", "{}"), Some(Some(Flaw::Invalid)));
        assert_eq!(calls("lock", r#"{"path":"/a"}"#), Some(Some(Flaw::Undeclared)));
    }

    #[test]
    fn what_the_limit_cut_is_not_the_backends_fault() {
        assert_eq!(answer("look", r#"{"pa"#, "length").calls, None);
    }

    #[test]
    fn text_without_calls_says_nothing_of_calls() {
        let mut seen = Seen::default();
        seen.said(
            &Dialect::Chat.read_answer(
                br#"{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"hi"}}]}"#,
            ),
        );
        let tools = ToolSet::from_json(TOOLS);
        let none = Folded::default();
        let grade = |tools, traces| seen.grade(&none, tools, traces);
        assert_eq!(grade(Some(&tools), Traces::default()), Grade { worth: Worth::Answer, calls: None });
        let unread = Traces { unread: true, ..Traces::default() };
        assert_eq!(grade(Some(&tools), unread).calls, Some(Some(Flaw::Unreadable)));
        assert_eq!(grade(None, unread).calls, None, "no tools, no calls");
    }
}
