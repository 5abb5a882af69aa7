//! What a case expects, typed: one set of expectations for each answer, and one for what was sent upstream.
//!
//! What is not named is not checked; what is named but unknown makes the case unreadable. A yes-or-no word that
//! stands with `false` asks for nothing, unless its documentation here gives `false` a meaning.

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Everything that a case expects.
#[derive(Debug)]
pub struct Expect {
    /// One set for each request, in their order.
    pub answers: Vec<Answer>,
    /// What the backends must have seen.
    pub upstream: Upstream,
}

impl Expect {
    /// Reads `expect` for so many requests; what is not said for each of them holds for all.
    ///
    /// # Errors
    /// Unknown words, or lists of another length than the requests'.
    pub fn read(written: Value, requests: usize) -> Result<Self> {
        let Value::Object(mut members) = written else { anyhow::bail!("is no object") };
        let upstream = match members.remove("upstream") {
            Some(upstream) => serde_json::from_value(upstream).context("upstream")?,
            None => Upstream::default(),
        };
        members.remove("notes");
        let sets: Vec<Map<String, Value>> = match members.remove("each") {
            Some(each) => {
                ensure!(members.is_empty(), "beside each stands something else: {members:?}");
                serde_json::from_value(each).context("each")?
            }
            None => {
                let messages: Option<Vec<Value>> =
                    members.remove("messages").map(serde_json::from_value).transpose()?;
                ensure!(
                    messages.as_ref().is_none_or(|list| list.len() == requests),
                    "messages: not one for each request"
                );
                let with = |number: usize| {
                    let mut set = members.clone();
                    if let Some(message) = messages.as_ref().and_then(|list| list.get(number)) {
                        set.insert("message".to_owned(), message.clone());
                    }
                    set
                };
                (0..requests).map(with).collect()
            }
        };
        ensure!(sets.len() == requests, "each: {} sets for {requests} requests", sets.len());
        let answers = sets
            .into_iter()
            .map(|set| Ok(serde_json::from_value(Value::Object(set))?))
            .collect::<Result<_>>()?;
        Ok(Self { answers, upstream })
    }
}

/// What one answer must be.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the names and meanings are those of the corpus's README, section Comparing")]
pub struct Answer {
    pub status: Option<u16>,
    pub status_in: Option<Vec<u16>>,
    pub headers: Map<String, Value>,
    pub headers_have_token: Table<Texts>,
    pub headers_absent: Vec<String>,
    pub message: Option<Message>,
    pub tool_ids: Option<ToolIds>,
    pub arguments_are_strings: bool,
    pub body_equals: Map<String, Value>,
    pub body_absent: Vec<String>,
    pub raw_has: Texts,
    pub raw_never_has: Texts,
    pub body_matches_content_encoding: bool,
    pub usage: Option<Usage>,
    pub error: Option<Error>,
    pub stream: Option<Stream>,
    pub notes: Option<String>,
}

/// The answer put together. A member that stands with null is checked: it must be empty.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the API's own names")]
pub struct Message {
    #[serde(deserialize_with = "named")]
    pub role: Option<Option<String>>,
    #[serde(deserialize_with = "named")]
    pub content: Option<Option<String>>,
    #[serde(deserialize_with = "named")]
    pub reasoning: Option<Option<String>>,
    #[serde(deserialize_with = "named")]
    pub finish_reason: Option<Option<String>>,
    #[serde(deserialize_with = "named")]
    pub tool_calls: Option<Option<Vec<Call>>>,
}

/// A call in the answer.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the API's own names")]
pub struct Call {
    pub name: Option<String>,
    pub id: Option<String>,
    #[serde(deserialize_with = "named")]
    pub arguments: Option<Value>,
    pub arguments_raw: Option<String>,
}

/// The rule for call ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolIds {
    /// Each call has one, no two the same.
    UniqueNonempty,
}

/// Token counts of the answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Whether there are any; absent: not checked.
    pub present: Option<bool>,
    /// The numbers, by their names.
    #[serde(flatten)]
    pub numbers: Map<String, Value>,
}

/// The error object of a refusal.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the names and meanings are those of the corpus's README, section Comparing")]
pub struct Error {
    #[serde(deserialize_with = "named")]
    pub r#type: Option<Value>,
    #[serde(deserialize_with = "named")]
    pub code: Option<Value>,
    #[serde(deserialize_with = "named")]
    pub code_not: Option<Value>,
    pub message_has: Texts,
    pub message_lacks: Texts,
    pub message_matches: Texts,
}

/// What an event stream must be like.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the names and meanings are those of the corpus's README, section Comparing")]
pub struct Stream {
    /// true, false, or "either".
    pub done_marker: Option<Value>,
    /// true: there is one, and no finish reason after it; false: there is none.
    pub error_event: Option<bool>,
    pub error_event_has: Texts,
    pub content_never_has: Texts,
    pub raw_never_has: Texts,
    pub tool_indexes: Option<Vec<i64>>,
    pub tool_ids: Option<ToolIds>,
    pub id_sent_once: bool,
    pub name_sent_once: bool,
    pub every_tool_delta_has_index: bool,
    pub one_entry_per_index_per_delta: bool,
    pub arguments_raw: Option<Vec<String>>,
    pub every_data_line_is_json_or_done: bool,
    pub every_chunk_has_choices: bool,
    pub chunks_with_usage: Option<usize>,
    pub delta_never_has_empty_tool_calls: bool,
    pub delta_has_field: Texts,
    pub delta_never_has_field: Texts,
    pub content_visible_by: Several<Visible>,
    pub first_byte_within_ms: Option<u64>,
    pub longest_silence_ms: Option<u64>,
    pub longest_event_silence_ms: Option<u64>,
    pub comments_at_least: Option<usize>,
    pub comments_at_most: Option<usize>,
    pub empty_deltas_at_least: Option<usize>,
}

/// A text that has arrived in time.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names and meanings are those of the corpus's README, section Comparing")]
pub struct Visible {
    pub text: String,
    pub within_ms: u64,
}

/// What the backends must have seen.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the names and meanings are those of the corpus's README, section Comparing")]
pub struct Upstream {
    pub attempts: Option<usize>,
    pub backends: Option<Vec<String>>,
    pub same_backend: Vec<Vec<usize>>,
    pub different_backend: Vec<Vec<usize>>,
    pub same_across: Table<Vec<usize>>,
    pub request_1_arrives_after_response_0_ended: bool,
    pub connection_closed_by_proxy_within_ms: Option<u64>,
    pub requests: Vec<Option<Request>>,
    pub notes: Option<String>,
}

/// What one request to a backend must be. Keys of the tables are JSON pointers.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the names and meanings are those of the corpus's README, section Comparing")]
pub struct Request {
    pub equals: Map<String, Value>,
    pub absent: Vec<String>,
    pub lengths: Table<usize>,
    pub between: Table<(f64, f64)>,
    pub matches: Table<Texts>,
    pub text_has: Table<Texts>,
    pub text_lacks: Table<Texts>,
    pub json_object_at: Texts,
    pub json_equals_at: Map<String, Value>,
    pub same_value: Vec<Vec<String>>,
    pub different_value: Vec<Vec<String>>,
    pub some_message: Several<Map<String, Value>>,
    pub no_message: Several<Map<String, Value>>,
    pub body_never_has: Texts,
    pub body_bytes_at_least: Option<usize>,
    pub path: Option<String>,
    pub headers_equal: Map<String, Value>,
    pub headers_absent: Vec<String>,
    pub notes: Option<String>,
}

/// Texts: one or a list.
pub type Texts = Several<String>;

/// One value or a list of them.
#[derive(Debug)]
pub struct Several<T>(pub Vec<T>);

impl<T> Default for Several<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Several<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let list = match Value::deserialize(input)? {
            Value::Array(list) => list,
            one => vec![one],
        };
        let list = list.into_iter().map(serde_json::from_value).collect::<Result<_, _>>();
        list.map(Self).map_err(serde::de::Error::custom)
    }
}

/// Values under names, in the order of the file.
#[derive(Debug)]
pub struct Table<T>(pub Vec<(String, T)>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let members: Map<String, Value> = Map::deserialize(input)?;
        let entries = members.into_iter().map(|(key, value)| Ok((key, serde_json::from_value(value)?)));
        entries.collect::<Result<_, serde_json::Error>>().map(Self).map_err(serde::de::Error::custom)
    }
}

/// Keeps apart "not named" from "named with null".
fn named<'de, T: Deserialize<'de>, D: Deserializer<'de>>(input: D) -> Result<Option<T>, D::Error> {
    T::deserialize(input).map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_set_holds_for_all_and_each_holds_for_its_own() {
        let all = Expect::read(json!({"status": 200, "messages": [{"content": "a"}, {"content": null}]}), 2)
            .unwrap();
        assert_eq!(all.answers.iter().map(|set| set.status).collect::<Vec<_>>(), [Some(200), Some(200)]);
        let content = |number: usize| all.answers[number].message.as_ref().unwrap().content.clone();
        assert_eq!((content(0), content(1)), (Some(Some("a".to_owned())), Some(None)));
        let each = Expect::read(
            json!({"each": [{"status": 400}, {"status": null}], "upstream": {"attempts": 0}}),
            2,
        )
        .unwrap();
        assert_eq!(each.answers.iter().map(|set| set.status).collect::<Vec<_>>(), [Some(400), None]);
        assert!(Expect::read(json!({"each": [{}]}), 2).is_err());
        assert!(Expect::read(json!({"each": [{}, {}], "status": 200}), 2).is_err());
        assert!(Expect::read(json!({"stream": {"no_such_check": true}}), 1).is_err());
    }
}
