//! What a request tells the decision besides its length: pictures, turns, whether a call is demanded, whether to think.
//!
//! Read from the messages as they came. Nothing here looks at a backend or a client.

use switchback_parsers::json::{Kind, Value};
use switchback_parsers::message::Message;
use switchback_parsers::request::ChatRequest;
use switchback_policies::facts::Images;

/// What its messages tell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    pub(crate) images: Images,
    /// With this one.
    pub(crate) turns: u64,
    pub(crate) pictures: u64,
    /// Answers that are asked for at once.
    pub(crate) sequences: u64,
}

pub(crate) fn read(request: &ChatRequest) -> Told {
    Told {
        images: images_of(request),
        turns: turns_of(request),
        pictures: pictures_of(request),
        sequences: sequences_of(request),
    }
}

/// Sequences that an engine computes for it: texts times answers to each. Numbers in a list are tokens of one text.
pub(crate) fn sequences_of(request: &ChatRequest) -> u64 {
    let root = request.root();
    let number = |name: &str| root.get(name).and_then(Value::as_u64).unwrap_or(1);
    let answers = number("n").max(number("best_of")).max(1);
    let texts = |name: &str| {
        let list = root.get(name).filter(|list| list.kind() == Kind::Array)?;
        Some(list.elements().filter(|text| text.kind() != Kind::Number).count() as u64)
    };
    // Conversations stand in `messages`, and in the `input` of another API as objects.
    let turns = request.messages().next().is_some()
        || root.get("input").is_some_and(|input| input.elements().any(|turn| turn.kind() == Kind::Object));
    let texts = ["prompt", "input", "documents", "texts"].into_iter().find_map(texts);
    texts.filter(|_| !turns).unwrap_or(1).max(1).saturating_mul(answers)
}

/// Pictures after the last answer are what is asked about; those before it have been looked at.
pub(crate) fn images_of(request: &ChatRequest) -> Images {
    let mut images = Images::None;
    for message in request.messages() {
        if message.has_image() {
            images = Images::New;
        } else if images == Images::New && message.role().as_deref() == Some("assistant") {
            images = Images::Old;
        }
    }
    images
}

/// Turns of the conversation: those that were answered, and this one.
pub(crate) fn turns_of(request: &ChatRequest) -> u64 {
    let answered = |message: &Message<'_>| message.role().as_deref() == Some("assistant");
    request.messages().filter(answered).count() as u64 + 1
}

pub(crate) fn pictures_of(request: &ChatRequest) -> u64 {
    request.messages().map(|message| message.images().count() as u64).sum()
}

/// Whether it switches thinking on or off, in one of the ways that engines and templates know.
pub(crate) fn thinks(request: &ChatRequest) -> Option<bool> {
    let root = request.root();
    let kwargs = ["enable_thinking", "thinking"]
        .into_iter()
        .find_map(|name| root.get("chat_template_kwargs")?.get(name)?.as_bool());
    let word = |place: &str| root.at(place).and_then(|word| word.as_str());
    // Claude Code's words, then OpenAI's.
    let kind = word("/thinking/type").map(|kind| kind != "disabled");
    let none = ["/reasoning_effort", "/reasoning/effort"]
        .into_iter()
        .any(|place| word(place).is_some_and(|word| word == "none"));
    kwargs.or(none.then_some(false)).or(kind)
}

/// It must answer with a call, whichever.
pub(crate) fn requires_call(request: &ChatRequest) -> bool {
    request.root().get("tool_choice").is_some_and(|choice| choice.as_str().as_deref() == Some("required"))
}
