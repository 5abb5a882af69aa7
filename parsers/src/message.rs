//! A message of a chat request, as a borrowed view.
//!
//! It answers the questions that routing, counting and repair ask of a message, whatever the dialect's shape of
//! content: a string, or a list of parts. It must never refuse a message: what is odd reads as absent, and the
//! backend has the last word.

use std::borrow::Cow;

use crate::json::{Kind, Value};

/// One element of `messages` (or of the Responses API's `input`).
#[derive(Clone, Copy, Debug)]
pub struct Message<'a>(pub Value<'a>);

impl<'a> Message<'a> {
    /// `role`, if it is a string.
    pub fn role(self) -> Option<Cow<'a, str>> {
        self.0.get("role")?.as_str()
    }

    /// `content` as it stands: a string, a list of parts, or null.
    pub fn content(self) -> Option<Value<'a>> {
        self.0.get("content")
    }

    /// The text of the content: the string itself, or the text parts joined with nothing; empty when there is none.
    pub fn text(self) -> Cow<'a, str> {
        if let Some(text) = self.content().and_then(Value::as_str) {
            return text;
        }
        let mut texts = self.parts().filter_map(|part| part.get("text")?.as_str());
        let first = texts.next().unwrap_or_default();
        texts.fold(first, |all, next| all + next)
    }

    /// The parts of a content that is a list; none otherwise.
    pub fn parts(self) -> impl Iterator<Item = Value<'a>> {
        self.content().into_iter().flat_map(Value::elements)
    }

    /// The parts that are images: `image_url` (chat), `input_image` (responses), `image` (messages), also inside a tool
    /// result.
    pub fn images(self) -> impl Iterator<Item = Value<'a>> {
        let within = |part: Value<'a>| part.get("content").into_iter().flat_map(Value::elements);
        self.parts()
            .flat_map(move |part| std::iter::once(part).chain(within(part)))
            .filter(|part| is_image(*part))
    }

    /// Whether there is any.
    pub fn has_image(self) -> bool {
        self.images().next().is_some()
    }

    /// The calls of an assistant message.
    pub fn tool_calls(self) -> impl Iterator<Item = Value<'a>> {
        self.0.get("tool_calls").into_iter().flat_map(Value::elements)
    }
}

fn is_image(part: Value<'_>) -> bool {
    part.kind() == Kind::Object
        && part
            .get("type")
            .and_then(Value::as_str)
            .is_some_and(|kind| matches!(&*kind, "image_url" | "input_image" | "image"))
}
