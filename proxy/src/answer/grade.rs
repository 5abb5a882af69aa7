//! What an answer was worth, seen while it passes: whether it said something, and whether its calls are what was asked for.
//!
//! It is read as its client gets it, behind all repair; only frames that speak of calls are looked into. Must never hold anything back,
//! nor blame a backend for what the client's own limit cut.

use memchr::memmem;
use switchback_parsers::chunk::{Finish, GoodFinish, Said};
use switchback_parsers::event::Folded;
use switchback_parsers::schema::ToolSet;
use switchback_parsers::sse::SseDecoder;
use switchback_policies::liveness::Worth;
use switchback_policies::quality::Flaw;

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
    calls: Folded,
}

impl Seen {
    /// A whole answer as its client gets it.
    pub(crate) fn of_answer(said: &Said, body: &[u8]) -> Self {
        let mut seen = Self::default();
        seen.said(said);
        if memmem::find(body, b"\"tool_calls\"").is_some() {
            seen.calls = Folded::of_answer(std::str::from_utf8(body).unwrap_or_default());
        }
        seen
    }

    /// A whole answer that was written as a stream.
    pub(crate) fn of_frames(frames: &[u8]) -> Self {
        let mut seen = Self { says: true, ..Self::default() };
        seen.leaves(frames);
        seen.at_limit = seen.calls.finish_reason == "length";
        seen
    }

    /// The backend says this.
    pub(crate) fn said(&mut self, said: &Said) {
        if said.content {
            self.says = true;
            self.marks_now = if said.marks > 0 { self.marks_now + said.marks } else { 0 };
            self.marks = self.marks.max(self.marks_now);
        }
        let cut = |finish: &Option<Finish>| *finish == Some(Finish::Good(GoodFinish::Length));
        self.at_limit |= said.choices.iter().any(|choice| cut(&choice.finish));
    }

    /// These frames leave.
    pub(crate) fn leaves(&mut self, frames: &[u8]) {
        if memmem::find(frames, b"\"tool_calls\"").is_none() {
            return;
        }
        let mut decoder = SseDecoder::new();
        if decoder.push(bytes::Bytes::copy_from_slice(frames)).is_ok() {
            while let Some(frame) = decoder.next_frame() {
                self.calls.add_frame(&frame);
            }
        }
    }

    /// Whether it had content, and was not one exclamation mark after the other.
    pub(crate) fn worth(&self) -> Worth {
        match self.says {
            false => Worth::Empty,
            true if self.marks >= MARKS => Worth::Garbage,
            true => Worth::Answer,
        }
    }

    /// What it was worth. `tools`: those that the request declares, if it may call any.
    pub(crate) fn grade(&self, tools: Option<&ToolSet>, traces: Traces) -> Grade {
        let calls = tools.filter(|_| !self.at_limit).and_then(|tools| {
            let undeclared = self.calls.calls.iter().any(|call| tools.tool(&call.name).is_none());
            let flaw = match () {
                () if traces.unread => Some(Flaw::Unreadable),
                () if undeclared => Some(Flaw::Undeclared),
                () if !self.calls.wrong_calls(tools).is_empty() => Some(Flaw::Invalid),
                () if traces.mended => Some(Flaw::Mended),
                () => None,
            };
            (flaw.is_some() || !self.calls.calls.is_empty()).then_some(flaw)
        });
        Grade { worth: self.worth(), calls }
    }
}

#[cfg(test)]
mod tests {
    use switchback_parsers::chunk::Dialect;

    use super::*;

    const TOOLS: &str = r#"[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}}}]"#;

    fn answer(name: &str, arguments: &str, finish: &str) -> Grade {
        let call = serde_json::json!([{ "id": "a", "type": "function", "function": { "name": name, "arguments": arguments } }]);
        let answer = serde_json::json!({ "choices": [{ "index": 0, "finish_reason": finish,
            "message": { "role": "assistant", "content": null, "tool_calls": call } }] });
        let body = answer.to_string();
        let seen = Seen::of_answer(&Dialect::Chat.read_answer(body.as_bytes()), body.as_bytes());
        seen.grade(Some(&ToolSet::from_json(TOOLS)), Traces::default())
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
        assert_eq!(seen.grade(Some(&tools), Traces::default()), Grade { worth: Worth::Answer, calls: None });
        let unread = Traces { unread: true, ..Traces::default() };
        assert_eq!(seen.grade(Some(&tools), unread).calls, Some(Some(Flaw::Unreadable)));
        assert_eq!(seen.grade(None, unread).calls, None, "no tools, no calls");
    }
}
