//! Lines of a system prompt that differ from request to request, and mean nothing to a model behind this proxy.
//!
//! Why: no prompt begins like the one before it then, and every turn is read from its start: 50 s instead of 3.7 s a turn were
//! measured. Only what stands in system messages goes; who quotes such a line elsewhere keeps it.

use std::borrow::Cow;

use serde_json::Value as Json;
use switchback_parsers::edit::Edits;
use switchback_parsers::json::{Kind, Value};
use switchback_parsers::request::ChatRequest;

/// What Claude Code puts before its system prompt: a number of the conversation, in older versions of the request
/// (vllm-project/vllm#36829). Its addressee is not behind this proxy.
pub(crate) const BILLING: &str = "x-anthropic-billing-header:";

/// What Claude Code appends to its system prompt, or sends as a system message of its own: a budget that shrinks with every request,
/// old ones kept (jundot/omlx#2881).
const COUNTER: (&str, &str) = ("<total_tokens>", "</total_tokens>");

/// Takes them out.
pub(super) fn strip(request: &ChatRequest, edits: &mut Edits) {
    let root = request.root();
    let mut is_first = true;
    if let Some(system) = root.get("system") {
        content(system, &mut is_first, edits);
    }
    let Some(messages) = root.get("messages") else { return };
    for (index, message) in request.messages().enumerate() {
        let system = matches!(message.role().as_deref(), Some("system" | "developer"));
        let Some(own) = message.content().filter(|_| system) else { continue };
        if content(own, &mut is_first, edits) && index > 0 {
            edits.remove_element(messages, index);
        }
    }
}

/// Strips a content. True if nothing else was in it.
fn content(content: Value<'_>, is_first: &mut bool, edits: &mut Edits) -> bool {
    if content.kind() == Kind::String {
        return text(content, is_first, edits) == Left::Nothing;
    }
    let parts: Vec<_> = content.elements().collect();
    let mut left = parts.len();
    for (index, part) in parts.iter().enumerate() {
        let Some(value) = part.get("text") else { continue };
        if text(value, is_first, edits) == Left::Nothing {
            left -= 1;
            // The last one stays as an empty text: a list without parts is refused by some.
            if left > 0 {
                edits.remove_element(content, index);
            }
        }
    }
    left == 0 && !parts.is_empty()
}

#[derive(PartialEq)]
enum Left {
    Nothing,
    Something,
}

fn text(value: Value<'_>, is_first: &mut bool, edits: &mut Edits) -> Left {
    let Some(text) = value.as_str() else { return Left::Something };
    let mut rest: Cow<'_, str> = match text.strip_prefix(BILLING).filter(|_| *is_first) {
        Some(line) => line.split_once('\n').map_or("", |(_, rest)| rest).to_owned().into(),
        None => Cow::Borrowed(&text),
    };
    *is_first = false;
    if let Some(without) = without_counters(&rest) {
        rest = without.into();
    }
    if *rest == *text {
        return Left::Something;
    }
    let left = if rest.is_empty() { Left::Nothing } else { Left::Something };
    edits.replace(value, Json::from(&*rest).to_string());
    left
}

/// `None` if there is none.
fn without_counters(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(COUNTER.0) {
        let Some((count, after)) = behind.split_once(COUNTER.1) else { break };
        // A number and a few words: what is longer is somebody's text.
        if count.len() > 64 || count.contains('<') {
            out.push_str(&rest[..rest.len() - behind.len()]);
            rest = behind;
            continue;
        }
        out.push_str(before.strip_suffix('\n').unwrap_or(before));
        rest = after;
    }
    if rest.len() == text.len() {
        return None;
    }
    out.push_str(rest);
    (out != text).then_some(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stripped(body: &Json) -> Json {
        let request = ChatRequest::parse(body.to_string().into()).expect("a request");
        let mut edits = Edits::new();
        strip(&request, &mut edits);
        serde_json::from_slice(&request.write(&Edits::new(), &edits)).expect("JSON")
    }

    #[test]
    fn a_counter_goes_from_system_prompts_and_stays_where_somebody_quotes_it() {
        let counter = "<total_tokens>14999436 tokens left</total_tokens>";
        let body = json!({ "system": format!("You are.\n{counter}\n{counter}"), "messages": [
            { "role": "user", "content": counter }, { "role": "system", "content": counter },
            { "role": "assistant", "content": "a" },
        ]});
        let left = json!({ "system": "You are.", "messages": [
            { "role": "user", "content": counter }, { "role": "assistant", "content": "a" },
        ]});
        assert_eq!(stripped(&body), left);
        let fine = json!({ "system": "<total_tokens> is a tag; <total_tokens>", "messages": [] });
        assert_eq!(stripped(&fine), fine);
    }

    #[test]
    fn the_billing_line_goes_with_its_part_and_nothing_else_does() {
        let line = "x-anthropic-billing-header: cch=1;";
        let part = |text: &str| json!({ "type": "text", "text": text });
        let body = json!({ "system": [part(line), part("You are.")] });
        assert_eq!(stripped(&body), json!({ "system": [part("You are.")] }));
        let later = json!({ "messages": [{ "role": "system", "content": "s" }, { "role": "system", "content": line }] });
        assert_eq!(stripped(&later), later);
    }
}
