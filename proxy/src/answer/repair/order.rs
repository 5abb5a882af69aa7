//! A choice's finish goes last. Some backends say more behind it: calls, or a second finish reason. A client that ends a turn
//! at the first one would run nothing, so the frame with the reason waits for what follows, a tenth of a second at most.
//!
//! It must never change a stream that is in order, nor hold anything but that one frame.

use memchr::memmem;
use serde_json::{Value as Json, json};
use switchback_parsers::json::{Kind, Value};

use super::wire::Frame;

const FINISH: &[u8] = b"\"finish_reason\"";

/// Puts the frames of one stream in order.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The end of a choice, which waits.
    end: Option<(u64, Frame)>,
}

/// What a chunk of one choice says.
struct Chunk {
    choice: u64,
    finishes: bool,
    says: bool,
}

impl Order {
    /// Takes a frame, and gives those that leave.
    pub(super) fn push(&mut self, frame: Frame) -> Vec<Frame> {
        if self.end.is_none() && !may_finish(&frame.json) {
            return vec![frame];
        }
        let mut leave = Vec::new();
        let chunk = read(&frame.json);
        if let Some((choice, end)) = self.end.take() {
            match &chunk {
                Some(chunk) if chunk.choice == choice && (chunk.says || chunk.finishes) => {
                    let (open, alone) = apart(&end.json);
                    leave.push(open);
                    self.end = (!chunk.finishes).then_some((choice, alone));
                }
                _ => leave.push(end),
            }
        }
        match chunk {
            Some(chunk) if chunk.finishes => self.end = Some((chunk.choice, frame)),
            _ => leave.push(frame),
        }
        leave
    }

    /// Something waits.
    pub(super) fn waits(&self) -> bool {
        self.end.is_some()
    }

    /// Nothing follows, or it takes too long.
    pub(super) fn finish(&mut self) -> Option<Frame> {
        self.end.take().map(|(_, end)| end)
    }
}

/// Whether the payload may hold a finish reason: most chunks have `null` there.
fn may_finish(json: &str) -> bool {
    memmem::find_iter(json.as_bytes(), FINISH).any(|at| {
        let rest = json[at + FINISH.len()..].trim_start_matches([' ', ':']);
        !rest.starts_with("null")
    })
}

fn is_said(value: Value<'_>) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn read(json: &str) -> Option<Chunk> {
    let chunk = Value::parse(json).ok()?;
    let mut choices = chunk.get("choices")?.elements();
    let choice = choices.next().filter(|_| choices.next().is_none())?;
    let delta = choice.get("delta");
    let says = |value: Value<'_>| match value.kind() {
        Kind::String => is_said(value),
        Kind::Array => value.elements().next().is_some(),
        _ => false,
    };
    let members = ["content", "reasoning", "reasoning_content", "tool_calls"];
    Some(Chunk {
        choice: choice.get("index").and_then(Value::as_u64).unwrap_or(0),
        finishes: choice.get("finish_reason").is_some_and(is_said),
        says: delta.is_some_and(|delta| members.iter().filter_map(|key| delta.get(key)).any(says)),
    })
}

/// The end of a choice as a frame without its reason, and as one with nothing else.
fn apart(json: &str) -> (Frame, Frame) {
    let mut open: Json = serde_json::from_str(json).unwrap_or_default();
    let mut alone = open.clone();
    if let Some(choice) = open.pointer_mut("/choices/0") {
        choice["finish_reason"] = Json::Null;
    }
    if let Some(choice) = alone.pointer_mut("/choices/0") {
        choice["delta"] = json!({});
    }
    (Frame::own(open.to_string()), Frame::own(alone.to_string()))
}
