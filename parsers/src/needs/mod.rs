//! What a backend's chat template cannot read, put as it can.
//!
//! Why: templates raise on a system message that is not the first, on roles that do not alternate, on a conversation without a
//! question; they add `content` to a string and fail on a list, or print `None`. The engine answers 400 then, and the client
//! is at a loss. Each need is a rule of its own, and acts only where the request breaks it.
//!
//! It must never lose a word of a message, never move one message past another but for the sake of the template, and never
//! touch a request that the template can read. The same messages come out the same each turn, so that cached prefixes stay.

mod content;
mod probe;
mod turns;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde_json::Value as Json;

use crate::edit::Edits;
use crate::json::{Kind, Value};
use crate::request::ChatRequest;

pub use probe::{PROBES, Probe, needs_of};
pub use turns::arrange;

/// A need of a backend's chat template. Turned into edits in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Content is a string: lists that hold only text are joined, nothing is added between (vllm-project/vllm#16245).
    StringContent,
    /// Content is never null: an empty string stands beside calls (vllm-project/vllm#54337).
    NoNullContent,
    /// Ids of calls are nine letters or digits: the templates of Mistral's family (vllm-project/vllm#9019).
    NineCharacterIds,
    /// Ids of calls are `functions.NAME:N`, counted over the conversation, as Kimi's models write them: others confuse it
    /// (its model card).
    KimiIds,
    /// There is no role `developer`: it is called `system` (ggml-org/llama.cpp#20215).
    NoDeveloper,
    /// One system message, at the front: all others are joined to it (ggml-org/llama.cpp#27367).
    SystemFirst,
    /// The same, but a later one becomes the user's words where it stood: the prompt's head stays as it was, and with it what
    /// the backend has read of it (QwenLM/Qwen3.8#244).
    LateSystemAsUser,
    /// User and assistant take turns, the user first: neighbours of one role become one (vllm-project/vllm#6862).
    AlternatingRoles,
    /// There is a question: one message of the user with text (anomalyco/opencode#25168).
    UserTurn,
}

impl Need {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::StringContent,
        Self::NoNullContent,
        Self::NineCharacterIds,
        Self::KimiIds,
        Self::NoDeveloper,
        Self::SystemFirst,
        Self::LateSystemAsUser,
        Self::AlternatingRoles,
        Self::UserTurn,
    ];

    /// Its name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::StringContent => "string-content",
            Self::NoNullContent => "no-null-content",
            Self::NineCharacterIds => "nine-character-ids",
            Self::KimiIds => "kimi-ids",
            Self::NoDeveloper => "no-developer",
            Self::SystemFirst => "system-first",
            Self::LateSystemAsUser => "late-system-as-user",
            Self::AlternatingRoles => "alternating-roles",
            Self::UserTurn => "user-turn",
        }
    }

    /// What is done about it, for headers and logs.
    #[must_use]
    pub const fn done(self) -> &'static str {
        match self {
            Self::StringContent => "content joined to strings",
            Self::NoNullContent => "null content made empty",
            Self::NineCharacterIds => "call ids shortened",
            Self::KimiIds => "call ids written as Kimi does",
            Self::NoDeveloper => "developer called system",
            Self::SystemFirst => "system messages joined at the front",
            Self::LateSystemAsUser => "late system messages made the user's",
            Self::AlternatingRoles => "neighbours of one role joined",
            Self::UserTurn => "a question added",
        }
    }

    /// Whether it is about which messages there are, not about what one of them holds.
    #[must_use]
    pub const fn is_of_turns(self) -> bool {
        matches!(
            self,
            Self::NoDeveloper
                | Self::SystemFirst
                | Self::LateSystemAsUser
                | Self::AlternatingRoles
                | Self::UserTurn
        )
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Edits of single messages of a chat request for one need; none where the request has nothing of the kind. What needs are of turns
/// is for [`arrange`].
pub fn meet(request: &ChatRequest, need: Need, edits: &mut Edits) {
    if need == Need::KimiIds {
        return kimi_ids(request, edits);
    }
    for message in request.messages() {
        match need {
            Need::StringContent => message.content().into_iter().for_each(|content| join(content, edits)),
            Need::NoNullContent => no_null(message.0, edits),
            Need::NineCharacterIds => nine_character_ids(message.0, edits),
            Need::KimiIds
            | Need::NoDeveloper
            | Need::SystemFirst
            | Need::LateSystemAsUser
            | Need::AlternatingRoles
            | Need::UserTurn => {}
        }
    }
}

fn no_null(message: Value<'_>, edits: &mut Edits) {
    match message.get("content") {
        Some(content) if content.is_null() => edits.replace(content, "\"\""),
        None if message.get("role").is_some() => edits.set(message, "content", "\"\""),
        _ => {}
    }
}

fn nine_character_ids(message: Value<'_>, edits: &mut Edits) {
    let calls = message.get("tool_calls").into_iter().flat_map(Value::elements);
    for id in calls.filter_map(|call| call.get("id")).chain(message.get("tool_call_id")) {
        if let Some(written) = id.as_str().filter(|id| !is_nine(id)) {
            edits.replace(id, Json::from(nine(&written)).to_string());
        }
    }
}

/// Ids in that form stay, whatever their number: the model gave them.
fn kimi_ids(request: &ChatRequest, edits: &mut Edits) {
    let mut known: HashMap<String, String> = HashMap::new();
    let mut count = 0;
    for message in request.messages() {
        for call in message.0.get("tool_calls").into_iter().flat_map(Value::elements) {
            let name = call.at("/function/name").and_then(Value::as_str);
            let (Some(name), Some(id)) = (name, call.get("id")) else { continue };
            let number = count;
            count += 1;
            let Some(written) = id.as_str().filter(|id| !is_kimi(id)) else { continue };
            let own = format!("functions.{name}:{number}");
            edits.replace(id, Json::from(own.as_str()).to_string());
            known.insert(written.into_owned(), own);
        }
        if let Some(id) = message.0.get("tool_call_id")
            && let Some(own) = id.as_str().and_then(|id| known.get(&*id))
        {
            edits.replace(id, Json::from(own.as_str()).to_string());
        }
    }
}

fn is_kimi(id: &str) -> bool {
    let number = id.strip_prefix("functions.").and_then(|rest| rest.rsplit_once(':'));
    number.is_some_and(|(name, number)| {
        !name.is_empty() && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn join(content: Value<'_>, edits: &mut Edits) {
    if content.kind() == Kind::Array
        && let Some(texts) = texts(content)
    {
        edits.replace(content, Json::from(texts.concat()).to_string());
    }
}

/// The texts of a list of parts; `None` if it holds anything else.
fn texts(content: Value<'_>) -> Option<Vec<Cow<'_, str>>> {
    let text = |part: Value<'_>| part.get("type").is_some_and(|kind| kind.is_text("text"));
    content.elements().map(|part| part.get("text").and_then(Value::as_str).filter(|_| text(part))).collect()
}

fn is_nine(id: &str) -> bool {
    id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Nine letters and digits, the same for the same id: FNV-1a in base 62.
fn nine(id: &str) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut digit = || {
        let digit = DIGITS[(hash % 62) as usize];
        hash /= 62;
        char::from(digit)
    };
    (0..9).map(|_| digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(body: &str, needs: &[Need]) -> Json {
        let request = ChatRequest::parse(body.to_owned().into()).expect("a request");
        let mut edits = Edits::new();
        needs.iter().for_each(|need| meet(&request, *need, &mut edits));
        serde_json::from_slice(&request.write(&Edits::new(), &edits)).expect("JSON")
    }

    #[test]
    fn the_same_id_becomes_the_same_nine_characters_and_good_ones_stay() {
        let body = r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"call_1"},{"id":"abcdefghi"}]},{"role":"tool","tool_call_id":"call_1","content":"x"}]}"#;
        let met = met(body, &[Need::NineCharacterIds]);
        let id = met["messages"][0]["tool_calls"][0]["id"].as_str().expect("an id");
        assert!(is_nine(id));
        assert_eq!(met["messages"][1]["tool_call_id"], id);
        assert_eq!(met["messages"][0]["tool_calls"][1]["id"], "abcdefghi");
    }

    #[test]
    fn ids_are_written_as_kimi_does_and_its_own_stay() {
        let body = r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"call_1","function":{"name":"a"}},{"id":"functions.b:7","function":{"name":"b"}}]},{"role":"tool","tool_call_id":"call_1"},{"role":"tool","tool_call_id":"functions.b:7"},{"role":"assistant","tool_calls":[{"id":"call_1","function":{"name":"c"}}]},{"role":"tool","tool_call_id":"call_1"}]}"#;
        let met = met(body, &[Need::KimiIds]);
        let id = |place: &str| met.pointer(place).and_then(Json::as_str).map(str::to_owned).expect("an id");
        assert_eq!(id("/messages/0/tool_calls/0/id"), "functions.a:0");
        assert_eq!(id("/messages/0/tool_calls/1/id"), "functions.b:7");
        assert_eq!(id("/messages/1/tool_call_id"), "functions.a:0");
        assert_eq!(id("/messages/2/tool_call_id"), "functions.b:7");
        assert_eq!(id("/messages/3/tool_calls/0/id"), "functions.c:2");
        assert_eq!(id("/messages/4/tool_call_id"), "functions.c:2");
    }

    #[test]
    fn content_with_a_picture_stays_a_list() {
        let body = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:"}}]},{"role":"assistant","content":null}]}"#;
        let met = met(body, &[Need::StringContent, Need::NoNullContent]);
        assert!(met["messages"][0]["content"].is_array());
        assert_eq!(met["messages"][1]["content"], "");
    }

    #[test]
    fn every_need_reads_back_under_its_name() {
        for need in Need::ALL {
            assert_eq!(serde_json::from_value::<Need>(need.name().into()).expect("a need"), need);
        }
    }
}
