//! Images: how many tokens they become, from their size in pixels and the model's rule.
//!
//! Why: an image is a few bytes of a link or a megabyte of base64, and neither says what it costs. Models cut it into patches by a rule
//! of their own, so the pixels alone decide, and they stand in the first bytes of the file. What lies behind a link is not fetched: it
//! counts as the largest image that the rule allows. This must never decode an image, nor more than the front of one.

mod rule;
mod size;

pub use self::rule::ImageRule;
pub use self::size::ImageSize;
pub(in crate::prompt) use self::size::decode as decode_base64;
use crate::json::Value;
use crate::request::ChatRequest;

/// An image of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Position of its message.
    pub message: usize,
    /// Its size; none for one behind a link, or of a kind that is not known.
    pub size: Option<ImageSize>,
}

/// The images of a request's messages, in their order.
pub fn images(request: &ChatRequest) -> Vec<Image> {
    let of_message = |(message, found): (usize, crate::message::Message<'_>)| {
        let images: Vec<Image> = found.images().map(|part| Image { message, size: size_of(part) }).collect();
        images
    };
    request.messages().enumerate().flat_map(of_message).collect()
}

fn size_of(part: Value<'_>) -> Option<ImageSize> {
    let data =
        part.at("/image_url/url").or_else(|| part.get("image_url")).or_else(|| part.at("/source/data"))?;
    let text = data.raw().strip_prefix('"')?;
    let base64 = match text.strip_prefix("data:") {
        Some(_) => text.split_once("base64,")?.1,
        None if part.at("/source/data").is_some() => text,
        None => return None,
    };
    size::of_base64(base64)
}
