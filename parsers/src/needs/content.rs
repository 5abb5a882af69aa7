//! Contents that become one: text behind text, parts behind parts.
//!
//! Nothing is lost but what no template reads: cache marks on parts that hold only text.

use serde_json::{Map, Value as Json, json};

/// What stands between texts that are joined.
const APART: &str = "\n\n";

/// Two messages as one: all members of both, the first one's where both have it, and both contents.
pub(super) fn merged(mut first: Map<String, Json>, mut second: Map<String, Json>) -> Map<String, Json> {
    let contents = [first.remove("content"), second.remove("content")].into_iter().flatten();
    let content = contents.filter(|content| !content.is_null()).fold(None, joined);
    for (name, value) in second {
        first.entry(name).or_insert(value);
    }
    first.insert("content".to_owned(), content.unwrap_or_default());
    first
}

/// One content behind another: text if both are, else a list of parts.
pub(super) fn joined(first: Option<Json>, second: Json) -> Option<Json> {
    let Some(first) = first else { return Some(second) };
    Some(match (text_of(&first), text_of(&second)) {
        (Some(first), Some(second)) if first.is_empty() || second.is_empty() => (first + &second).into(),
        (Some(first), Some(second)) => (first + APART + &second).into(),
        _ => {
            let mut parts = parts(first);
            let mut behind = self::parts(second);
            // Parts are joined without anything between by some engines.
            let text = |part: Option<&Json>| part.is_some_and(|part| part.get("text").is_some());
            if text(parts.last())
                && let Some(Json::String(next)) = behind.first_mut().and_then(|part| part.get_mut("text"))
            {
                next.insert_str(0, APART);
            }
            parts.append(&mut behind);
            parts.into()
        }
    })
}

/// A content that is nothing but text.
fn text_of(content: &Json) -> Option<String> {
    match content {
        Json::String(text) => Some(text.clone()),
        Json::Array(parts) => parts
            .iter()
            .map(|part| {
                part.get("text").and_then(Json::as_str).filter(|_| part.get("type") == Some(&"text".into()))
            })
            .collect::<Option<Vec<_>>>()
            .map(|texts| texts.concat()),
        _ => None,
    }
}

fn parts(content: Json) -> Vec<Json> {
    match content {
        Json::Array(parts) => parts,
        Json::String(text) if text.is_empty() => Vec::new(),
        Json::String(text) => vec![json!({ "type": "text", "text": text })],
        other => vec![other],
    }
}
