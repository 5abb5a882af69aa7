//! Chat answers without what clients stumble over, each thing a rule of its own.
//!
//! Why: typed clients refuse a `delta` that is null, take an empty finish reason for an end (servers written in Go send one with
//! every chunk), read `content: null` beside a call as an answer (vllm-project/vllm-ascend#14501), or drop the text that comes in one
//! chunk with the finish reason (vllm-project/vllm#35705). An answer without such a thing leaves byte for byte. What is wrong by the
//! API's own schema is put right for everybody; the rest only for whom the operator says so.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use memchr::memmem;
use serde::Deserialize;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::edit::Edits;
use switchback_parsers::json::{Kind, Value};
use switchback_parsers::request::ChatRequest;
use switchback_parsers::sse::{SseDecoder, write_data};

/// A rule for answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AnswerRule {
    /// `finish_reason: ""` is null.
    EmptyFinish,
    /// A `delta` that is null or absent is an empty one.
    NoDelta,
    /// Members that are null are left out, but the finish reason, and the content of a whole message.
    NullMembers,
    /// The finish reason comes in a chunk of its own.
    FinishApart,
}

impl AnswerRule {
    /// All of them.
    pub(crate) const ALL: [Self; 4] =
        [Self::EmptyFinish, Self::NoDelta, Self::NullMembers, Self::FinishApart];

    /// Its name in configurations.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::EmptyFinish => "empty-finish",
            Self::NoDelta => "no-delta",
            Self::NullMembers => "null-members",
            Self::FinishApart => "finish-apart",
        }
    }

    /// What it does, and where it is on.
    pub(crate) const fn sentence(self) -> &'static str {
        match self {
            Self::EmptyFinish => "an empty finish reason is null",
            Self::NoDelta => "a delta that is null or absent is an empty one",
            Self::NullMembers => "members that are null are left out; off unless switched on",
            Self::FinishApart => "the finish reason comes in a chunk of its own; off unless switched on",
        }
    }

    /// Whether it is on for clients of which the operator said nothing.
    pub(crate) const fn is_usual(self) -> bool {
        matches!(self, Self::EmptyFinish | Self::NoDelta)
    }

    /// Whether bytes may hold a reason for it: all are looked at, so this must be quick.
    fn may_act_on(self, bytes: &[u8]) -> bool {
        let has = |text: &[u8]| memmem::find(bytes, text).is_some();
        match self {
            Self::EmptyFinish => has(b"\"finish_reason\":\"\"") || has(b"\"finish_reason\": \"\""),
            Self::NoDelta => !has(b"\"delta\":{") && !has(b"\"delta\": {"),
            Self::NullMembers => has(b"null"),
            Self::FinishApart => has(b"\"finish_reason\""),
        }
    }
}

/// The rules that hold for one answer, and those that have acted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tidy {
    rules: Vec<AnswerRule>,
    acted: BTreeSet<&'static str>,
}

impl Tidy {
    pub(crate) fn by(is_on: impl Fn(AnswerRule) -> bool) -> Self {
        let rules = AnswerRule::ALL.into_iter().filter(|rule| is_on(*rule)).collect();
        Self { rules, acted: BTreeSet::new() }
    }

    /// Names of the rules that have changed something.
    pub(crate) fn acted(&self) -> impl Iterator<Item = String> {
        self.acted.iter().map(|name| (*name).to_owned())
    }

    /// A whole answer.
    pub(crate) fn answer(&mut self, body: Bytes, dialect: Dialect) -> Bytes {
        match self.tidied(&body, dialect, false).as_deref() {
            Some([only]) => only.clone(),
            _ => body,
        }
    }

    /// Whole frames.
    pub(crate) fn frames(&mut self, bytes: BytesMut, dialect: Dialect) -> BytesMut {
        if bytes.is_empty() || dialect != Dialect::Chat {
            return bytes;
        }
        let bytes = bytes.freeze();
        let mut decoder = SseDecoder::new();
        let mut tidied = BytesMut::with_capacity(bytes.len());
        if !self.rules.iter().any(|rule| rule.may_act_on(&bytes)) || decoder.push(bytes.clone()).is_err() {
            return bytes.into();
        }
        while let Some(frame) = decoder.next_frame() {
            let data = frame.data().filter(|_| frame.is_canonical());
            match data.and_then(|data| self.tidied(&Bytes::from(data.into_owned()), dialect, true)) {
                Some(chunks) => chunks.iter().for_each(|chunk| tidied.extend_from_slice(&write_data(chunk))),
                None => tidied.extend_from_slice(frame.bytes()),
            }
        }
        tidied
    }

    /// `None` where nothing is to be done; else what stands in its place.
    fn tidied(&mut self, json: &Bytes, dialect: Dialect, streamed: bool) -> Option<Vec<Bytes>> {
        let rules = self.rules.iter().filter(|rule| rule.may_act_on(json));
        let rules: Vec<AnswerRule> = rules.copied().collect();
        if rules.is_empty() || dialect != Dialect::Chat {
            return None;
        }
        // Any object may be edited like a request.
        let chunk = ChatRequest::parse(json.clone()).ok()?;
        let mut edits = Edits::new();
        let mut apart = None;
        for rule in rules {
            let before = edits.len();
            match rule {
                AnswerRule::EmptyFinish => empty_finish(chunk.root(), &mut edits),
                AnswerRule::NoDelta if streamed => no_delta(chunk.root(), &mut edits),
                AnswerRule::NullMembers => null_members(chunk.root(), &mut edits),
                AnswerRule::FinishApart if streamed => apart = finish_apart(chunk.root(), &mut edits),
                AnswerRule::NoDelta | AnswerRule::FinishApart => {}
            }
            if edits.len() > before {
                self.acted.insert(rule.name());
            }
        }
        if edits.is_empty() {
            return None;
        }
        let first = chunk.write(&edits, &Edits::new());
        let second = apart.map(|apart| chunk.write(&edits, &apart));
        Some(std::iter::once(first).chain(second).collect())
    }
}

fn choices(root: Value<'_>) -> impl Iterator<Item = Value<'_>> {
    root.get("choices").into_iter().flat_map(Value::elements)
}

fn empty_finish(root: Value<'_>, edits: &mut Edits) {
    for finish in choices(root).filter_map(|choice| choice.get("finish_reason")) {
        if finish.as_str().as_deref() == Some("") {
            edits.replace(finish, "null");
        }
    }
}

fn no_delta(root: Value<'_>, edits: &mut Edits) {
    for choice in choices(root) {
        if choice.get("delta").is_none_or(Value::is_null) && choice.get("text").is_none() {
            edits.set(choice, "delta", "{}");
        }
    }
}

fn null_members(root: Value<'_>, edits: &mut Edits) {
    let mut without = |object: Value<'_>, but: &str| {
        for member in object.members().filter(|member| member.value.is_null() && member.name() != but) {
            edits.remove(object, &member.name());
        }
    };
    without(root, "");
    for choice in choices(root) {
        without(choice, "finish_reason");
        choice.get("delta").into_iter().for_each(|delta| without(delta, ""));
        choice.get("message").into_iter().for_each(|message| without(message, "content"));
    }
}

/// The first chunk loses its finish reason by `edits`, and a second one says nothing but that.
fn finish_apart(root: Value<'_>, edits: &mut Edits) -> Option<Edits> {
    let mut all = choices(root);
    let choice = all.next().filter(|_| all.next().is_none())?;
    let finish = choice.get("finish_reason").filter(|finish| finish.kind() == Kind::String)?;
    let delta = choice.get("delta")?;
    let says = |name: &str| {
        delta.get(name).is_some_and(|said| !said.is_null() && said.raw() != "\"\"" && said.raw() != "[]")
    };
    if !["content", "reasoning", "reasoning_content", "tool_calls"].into_iter().any(says) {
        return None;
    }
    edits.set(choice, "finish_reason", "null");
    edits.remove(root, "usage");
    let mut second = Edits::new();
    second.set(choice, "delta", "{}");
    second.set(choice, "finish_reason", finish.raw().to_owned());
    if let Some(usage) = root.get("usage") {
        second.set(root, "usage", usage.raw().to_owned());
    }
    Some(second)
}

/// A payload on several lines as frames of one line each: one if it is a whole, else one a line.
pub(super) fn reframe(data: &[u8], out: &mut BytesMut) {
    if serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok() {
        out.extend_from_slice(&write_data(data));
        return;
    }
    for line in data.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        out.extend_from_slice(&write_data(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(rules: &[AnswerRule], text: &str) -> (String, Vec<String>) {
        let mut tidy = Tidy::by(|rule| rules.contains(&rule));
        let tidied = tidy.frames(text.into(), Dialect::Chat);
        (String::from_utf8(tidied.to_vec()).expect("text"), tidy.acted().collect())
    }

    #[test]
    fn what_the_schema_does_not_know_is_put_right_and_nothing_else_changes() {
        let usual = [AnswerRule::EmptyFinish, AnswerRule::NoDelta];
        let odd = "data: {\"choices\":[{ \"delta\":{\"content\":\"a\"},\"finish_reason\":\"\"}]}\n\ndata: {\"choices\":[{\"delta\":null,\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
        let right = "data: {\"choices\":[{ \"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
        // Each as it comes.
        let both = odd.split_inclusive("\n\n").map(|frame| frames(&usual, frame).0).collect::<String>();
        assert_eq!(both, right);
        for fine in [
            "data: {\"choices\":[{\"delta\":{\"content\":null},\"finish_reason\":null}], \"usage\":null}\n\n",
            "data: {\"choices\":[],\"usage\":{}}\n\n",
            ": comment\n\n",
            "data: [DONE]\n\n",
        ] {
            assert_eq!(frames(&usual, fine), (fine.to_owned(), Vec::new()));
        }
    }

    #[test]
    fn null_members_go_but_the_finish_reason_and_a_messages_content_stay() {
        let rules = [AnswerRule::NullMembers];
        let frame = "data: {\"id\":\"a\",\"usage\":null,\"choices\":[{\"delta\":{\"content\":null,\"tool_calls\":[]},\"finish_reason\":null,\"logprobs\":null}]}\n\n";
        let (text, acted) = frames(&rules, frame);
        assert_eq!(
            text,
            "data: {\"id\":\"a\",\"choices\":[{\"delta\":{\"tool_calls\":[]},\"finish_reason\":null}]}\n\n"
        );
        assert_eq!(acted, ["null-members"]);
        let mut tidy = Tidy::by(|rule| rules.contains(&rule));
        let whole = tidy.answer(
            "{\"choices\":[{\"message\":{\"content\":null,\"refusal\":null},\"finish_reason\":\"stop\"}],\"x\":null}".into(),
            Dialect::Chat,
        );
        assert_eq!(whole, "{\"choices\":[{\"message\":{\"content\":null},\"finish_reason\":\"stop\"}]}");
    }

    #[test]
    fn a_finish_reason_beside_text_comes_in_a_chunk_of_its_own() {
        let rules = [AnswerRule::FinishApart];
        let frame = "data: {\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":\"length\"}],\"usage\":{\"n\":1}}\n\n";
        let apart = "data: {\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":null}]}\n\ndata: {\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}],\"usage\":{\"n\":1}}\n\n";
        assert_eq!(frames(&rules, frame).0, apart);
        let alone = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
        assert_eq!(frames(&rules, alone).0, alone);
    }
}
