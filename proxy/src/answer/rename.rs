//! Names in an answer: the client's own for the model, for clients that look for it, and the member under which the client
//! looks for reasoning. Only where that is wanted: an answer leaves byte for byte otherwise, and all but the names does so here.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use serde_json::Value as Json;
use switchback_parsers::chunk::Dialect;
use switchback_parsers::json::Value;
use switchback_parsers::sse::{SseDecoder, SseFrame};

/// Members of a chat answer that engines put reasoning into: vLLM `reasoning` (captured, 0.32), llama.cpp and SGLang `reasoning_content`.
const REASONING: [&str; 2] = ["reasoning", "reasoning_content"];

/// What is called otherwise.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rename {
    /// The model's name; `None`: as the backend says.
    pub(crate) model: Option<String>,
    /// The member for reasoning; `None`: as the backend says.
    pub(crate) reasoning: Option<&'static str>,
}

impl Rename {
    /// A whole answer with other names. What holds none stays as it is.
    pub(crate) fn answer(&self, body: Bytes, dialect: Dialect) -> Bytes {
        match std::str::from_utf8(&body).ok().and_then(|text| self.renamed(text, dialect)) {
            Some(renamed) => renamed.into(),
            None => body,
        }
    }

    /// Whole frames with other names; one that holds none, or not on one line, stays as it is.
    pub(crate) fn frames(&self, bytes: BytesMut, dialect: Dialect) -> BytesMut {
        if bytes.is_empty() || (self.model.is_none() && self.reasoning.is_none()) {
            return bytes;
        }
        let bytes = bytes.freeze();
        let mut decoder = SseDecoder::new();
        let mut renamed = BytesMut::with_capacity(bytes.len());
        if decoder.push(bytes.clone()).is_err() {
            return bytes.into();
        }
        while let Some(frame) = decoder.next_frame() {
            let other = self.frame(&frame, dialect);
            renamed.extend_from_slice(other.as_deref().unwrap_or_else(|| frame.bytes()));
        }
        renamed
    }

    fn frame(&self, frame: &SseFrame, dialect: Dialect) -> Option<Vec<u8>> {
        let data = frame.data().filter(|_| frame.is_canonical())?;
        let renamed = self.renamed(std::str::from_utf8(&data).ok()?, dialect)?;
        let start = memchr::memmem::find(frame.bytes(), &data)?;
        let (before, behind) = (&frame.bytes()[..start], &frame.bytes()[start + data.len()..]);
        Some([before, renamed.as_bytes(), behind].concat())
    }

    /// `None` where nothing is called otherwise.
    fn renamed(&self, text: &str, dialect: Dialect) -> Option<String> {
        if self.model.is_none() && self.reasoning.is_none() {
            return None;
        }
        let root = Value::parse(text).ok()?;
        let mut places: Vec<(Range<usize>, &str)> = Vec::new();
        if let Some(name) = &self.model {
            places.extend(model(root, dialect).map(|range| (range, name.as_str())));
        }
        if let Some(member) = self.reasoning.filter(|_| dialect == Dialect::Chat) {
            places.extend(reasoning(root, member).into_iter().map(|range| (range, member)));
        }
        if places.is_empty() {
            return None;
        }
        places.sort_by_key(|(range, _)| range.start);
        let mut renamed = String::with_capacity(text.len());
        let mut done = 0;
        for (range, name) in places {
            renamed.push_str(&text[done..range.start]);
            renamed.push_str(&Json::from(name).to_string());
            done = range.end;
        }
        renamed.push_str(&text[done..]);
        Some(renamed)
    }
}

/// Where the model's name stands.
fn model(root: Value<'_>, dialect: Dialect) -> Option<Range<usize>> {
    let within = match dialect {
        Dialect::Chat | Dialect::Completions => None,
        Dialect::Messages => root.get("message"),
        Dialect::Responses => root.get("response"),
    };
    let model = within.unwrap_or(root).get("model")?;
    model.as_str().map(|_| model.range())
}

/// Where the keys stand that the client does not know. An answer that carries both stays as it is: the client finds its own.
fn reasoning(root: Value<'_>, member: &str) -> Vec<Range<usize>> {
    let choices = root.get("choices").into_iter().flat_map(Value::elements);
    let bodies = choices.filter_map(|choice| choice.get("delta").or_else(|| choice.get("message")));
    let of_body = |body: Value<'_>| {
        if body.get(member).is_some() {
            return None;
        }
        body.members().find(|one| REASONING.contains(&&*one.name())).map(|one| one.key.range())
    };
    bodies.filter_map(of_body).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_changes() {
        let rename = Rename { model: Some("gpt-4o".to_owned()), reasoning: None };
        let body =
            Bytes::from_static(b" {\"model\" : \"qwen\", \"x\":1.0, \"choices\":[{\"model\":\"no\"}]}");
        assert_eq!(
            rename.answer(body, Dialect::Chat),
            " {\"model\" : \"gpt-4o\", \"x\":1.0, \"choices\":[{\"model\":\"no\"}]}"
        );
        assert_eq!(rename.answer(Bytes::from_static(b"<html>"), Dialect::Chat), "<html>");
    }

    #[test]
    fn reasoning_goes_to_the_member_that_the_client_reads() {
        let rename = Rename { model: None, reasoning: Some("reasoning_content") };
        let renamed = |text: &str| rename.frames(text.into(), Dialect::Chat);
        let other = "data: {\"choices\":[{\"delta\":{ \"reasoning\" : \"a \\\"reasoning\\\" b\"}}]}\n\n";
        assert_eq!(
            renamed(other),
            "data: {\"choices\":[{\"delta\":{ \"reasoning_content\" : \"a \\\"reasoning\\\" b\"}}]}\n\n"
        );
        let both = "data: {\"choices\":[{\"delta\":{\"reasoning\":\"a\",\"reasoning_content\":\"a\"}}]}\n\n";
        assert_eq!(renamed(both), both);
    }
}
