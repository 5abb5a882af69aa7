//! The dialects in which an answer comes and leaves. The repair itself knows the chunks of a chat only: what a frame of another
//! dialect says is put in chat's words, with the event beside it, and what the repair has to say is written back as events.
//!
//! A frame that the repair lets go as it came leaves as those bytes. Must never decide what is a call, nor change what was not.

mod blocks;
mod items;
mod messages;
mod plain;
mod responses;

use bytes::{Bytes, BytesMut};
use switchback_parsers::chunk::Dialect;
use switchback_parsers::json::Value;
use switchback_parsers::request::ChatRequest;
use switchback_parsers::sse::write_data;

use self::blocks::Blocks;
use self::items::{Items, Names};
use self::messages::{Events, Messages};
pub(super) use self::plain::Plain;
use self::responses::Responses;

/// A frame in chat's words.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    /// As the backend sent it; `None`: it is the repair's own.
    pub(super) came: Option<Bytes>,
    /// A chunk of a chat. In another dialect its member `event` is what the backend sent.
    pub(super) json: String,
}

impl Frame {
    /// One of the repair's own.
    pub(super) fn own(json: String) -> Self {
        Self { came: None, json }
    }
}

/// How an answer comes and leaves.
#[derive(Debug)]
pub(super) struct Wire(Words);

#[derive(Debug)]
enum Words {
    /// In chat's own words.
    Chat,
    /// As the events of a message.
    Messages(Events, Blocks<Messages>),
    /// As the events of a response.
    Responses(Items, Blocks<Responses>),
}

impl Wire {
    /// For an answer to this request. `seed` makes the ids of what the backend did not name.
    pub(super) fn of(dialect: Dialect, request: &ChatRequest, seed: &str) -> Self {
        Self(match dialect {
            Dialect::Chat | Dialect::Completions => Words::Chat,
            Dialect::Messages => Words::Messages(Events::default(), Blocks::new(Messages)),
            Dialect::Responses => {
                let names = Names::of(request);
                Words::Responses(Items::new(names.clone()), Blocks::new(Responses::new(names, seed)))
            }
        })
    }

    /// What a frame of the backend says.
    pub(super) fn read(&mut self, frame: &Bytes, json: &str) -> Frame {
        let event = Value::parse(json);
        let (json, stays) = match (&mut self.0, event) {
            (Words::Messages(events, _), Ok(event)) => events.read(event),
            (Words::Responses(items, _), Ok(event)) => items.read(event),
            (Words::Chat, _) | (_, Err(_)) => (json.to_owned(), true),
        };
        Frame { came: stays.then(|| frame.clone()), json }
    }

    /// A frame leaves.
    pub(super) fn write(&mut self, frame: Frame, out: &mut BytesMut) {
        match &mut self.0 {
            Words::Chat => match frame.came {
                Some(bytes) => out.extend_from_slice(&bytes),
                None => out.extend_from_slice(&write_data(frame.json.as_bytes())),
            },
            Words::Messages(_, blocks) => blocks.write(frame, out),
            Words::Responses(_, blocks) => blocks.write(frame, out),
        }
    }

    /// From here on the answer is not the backend's own: its blocks are opened, numbered and closed here.
    pub(super) fn take_over(&mut self) {
        match &mut self.0 {
            Words::Chat => {}
            Words::Messages(_, blocks) => blocks.take_over(),
            Words::Responses(_, blocks) => blocks.take_over(),
        }
    }

    /// The stream has ended: what waits leaves.
    pub(super) fn finish(&mut self, out: &mut BytesMut) {
        match &mut self.0 {
            Words::Chat => {}
            Words::Messages(_, blocks) => blocks.flush(out),
            Words::Responses(_, blocks) => blocks.flush(out),
        }
    }
}

/// A chunk that says this. `delta`: JSON; `ended`: calls before it are over; `event`: what the backend sent.
fn chunk(delta: &str, finish: Option<&str>, ended: bool, event: Value<'_>) -> String {
    let finish = finish.map(|reason| format!(r#","finish_reason":{}"#, quoted(reason))).unwrap_or_default();
    let ended = if ended { r#","tool_calls_ended":true"# } else { "" };
    format!(r#"{{"choices":[{{"index":0,"delta":{delta}{finish}}}]{ended},"event":{}}}"#, event.raw())
}

/// A delta that goes on with a call.
fn call_delta(number: usize, arguments: &str) -> String {
    format!(r#"{{"tool_calls":[{{"index":{number},"function":{{"arguments":{}}}}}]}}"#, quoted(arguments))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// An event of a stream.
fn event(kind: &str, json: &serde_json::Value, out: &mut BytesMut) {
    out.extend_from_slice(format!("event: {kind}\n").as_bytes());
    out.extend_from_slice(&write_data(json.to_string().as_bytes()));
}

fn text_of(value: Value<'_>, member: &str) -> Option<String> {
    value.get(member).and_then(Value::as_str).map(std::borrow::Cow::into_owned)
}

/// What a chunk says of a call.
struct CallPiece {
    index: usize,
    id: Option<String>,
    name: Option<String>,
    arguments: String,
}

/// What a chunk says.
struct Said<'a> {
    thought: String,
    text: String,
    calls: Vec<CallPiece>,
    finish: Option<String>,
    /// What the backend sent.
    event: Option<Value<'a>>,
}

impl<'a> Said<'a> {
    fn of(json: &'a str) -> Option<Self> {
        let chunk = Value::parse(json).ok()?;
        let event = chunk.get("event");
        let choice = chunk.get("choices").and_then(|choices| choices.elements().next());
        let delta = choice.and_then(|choice| choice.get("delta"));
        let text = |member: &str| delta.and_then(|delta| text_of(delta, member)).unwrap_or_default();
        let calls = delta.and_then(|delta| delta.get("tool_calls")).into_iter().flat_map(Value::elements);
        Some(Self {
            thought: text("reasoning_content"),
            text: text("content"),
            calls: calls.map(CallPiece::of).collect(),
            finish: choice.and_then(|choice| text_of(choice, "finish_reason")),
            event,
        })
    }

    fn is_nothing(&self) -> bool {
        self.thought.is_empty() && self.text.is_empty() && self.calls.is_empty() && self.finish.is_none()
    }
}

impl CallPiece {
    fn of(call: Value<'_>) -> Self {
        let index = call.get("index").and_then(Value::as_u64).and_then(|index| usize::try_from(index).ok());
        let function = call.get("function");
        let of_function = |member: &str| function.and_then(|function| text_of(function, member));
        Self {
            index: index.unwrap_or(0),
            id: text_of(call, "id"),
            name: of_function("name"),
            arguments: of_function("arguments").unwrap_or_default(),
        }
    }
}
