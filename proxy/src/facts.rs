//! What a request tells the decision besides its length: pictures, turns, whether a call is demanded.
//!
//! Read from the messages as they came. Nothing here looks at a backend or a client.

use switchback_parsers::message::Message;
use switchback_parsers::request::ChatRequest;
use switchback_policies::facts::Images;

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

/// It must answer with a call, whichever.
pub(crate) fn requires_call(request: &ChatRequest) -> bool {
    request.root().get("tool_choice").is_some_and(|choice| choice.as_str().as_deref() == Some("required"))
}
