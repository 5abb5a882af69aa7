//! Which messages there are, and whose they are: a conversation as a strict template takes it.
//!
//! Messages that need nothing are copied byte for byte; made ones keep all their members. What is joined stands apart by an
//! empty line. A system message that comes between a call and its result becomes the user's words behind the result.

use serde_json::{Map, Value as Json};

use super::Need;
use super::content::{joined, merged};
use crate::json::Value;
use crate::message::Message;
use crate::request::ChatRequest;

/// The least that a user can say when something must be said.
const GO_ON: &str = "Continue.";

/// What `arrange` gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arranged {
    /// The list of messages, JSON; `None`: as it was sent.
    pub messages: Option<String>,
    /// The `system` member of the Messages dialect, JSON; `None`: as it was sent.
    pub system: Option<String>,
    /// The needs that the request broke.
    pub acted: Vec<Need>,
}

/// One message of the outcome.
enum Turn<'a> {
    /// As it was sent.
    Sent(Message<'a>),
    /// Changed or added.
    Made(Map<String, Json>),
}

/// Arranges the messages of a request. `apart`: system prompts stand in a member of their own (the Messages dialect), so that
/// every system message among the others is late.
#[must_use]
pub fn arrange(request: &ChatRequest, needs: &[Need], apart: bool) -> Arranged {
    let mut turns: Vec<Turn<'_>> = request.messages().map(Turn::Sent).collect();
    let mut arranged = Arranged::default();
    let has = |need: Need| needs.contains(&need);
    if has(Need::NoDeveloper) && rename(&mut turns, "developer", "system") {
        arranged.acted.push(Need::NoDeveloper);
    }
    if has(Need::SystemFirst) {
        let late = take_late_systems(&mut turns, usize::from(!apart));
        if !late.is_empty() {
            arranged.acted.push(Need::SystemFirst);
            if apart {
                let system = request.root().get("system").map(read).filter(|system| !system.is_null());
                arranged.system = Some(late.into_iter().fold(system, joined).unwrap_or_default().to_string());
            } else {
                fold_into_front(&mut turns, late);
            }
        }
    } else if has(Need::LateSystemAsUser) && late_systems_to_users(&mut turns, apart) {
        arranged.acted.push(Need::LateSystemAsUser);
    }
    if has(Need::UserTurn) && question(&mut turns) {
        arranged.acted.push(Need::UserTurn);
    }
    if has(Need::AlternatingRoles) && alternate(&mut turns) {
        arranged.acted.push(Need::AlternatingRoles);
    }
    if !arranged.acted.is_empty() {
        let list: Vec<String> = turns.into_iter().map(Turn::write).collect();
        arranged.messages = Some(format!("[{}]", list.join(",")));
    }
    arranged
}

impl Turn<'_> {
    fn is(&self, role: &str) -> bool {
        match self {
            Self::Sent(message) => message.0.get("role").is_some_and(|own| own.is_text(role)),
            Self::Made(members) => members.get("role").and_then(Json::as_str) == Some(role),
        }
    }

    /// Its members; a message that is no object has none.
    fn members(&self) -> Map<String, Json> {
        match self {
            Self::Sent(message) => match read(message.0) {
                Json::Object(members) => members,
                _ => Map::new(),
            },
            Self::Made(members) => members.clone(),
        }
    }

    /// It calls tools: in Chat's way, or as a part of its content.
    fn calls(&self) -> bool {
        let has = |list: Option<&Json>| list.and_then(Json::as_array).is_some_and(|list| !list.is_empty());
        let members = self.members();
        has(members.get("tool_calls")) || parts_of(members.get("content"), "tool_use")
    }

    /// It answers calls: in Chat's way, or as a part of its content.
    fn answers(&self) -> bool {
        self.is("tool") || parts_of(self.members().get("content"), "tool_result")
    }

    fn has_text(&self) -> bool {
        match self.members().get("content") {
            Some(Json::String(text)) => !text.trim().is_empty(),
            Some(Json::Array(parts)) => parts.iter().any(|part| {
                part.get("text").and_then(Json::as_str).is_none_or(|text| !text.trim().is_empty())
            }),
            _ => false,
        }
    }

    fn write(self) -> String {
        match self {
            Self::Sent(message) => message.0.raw().to_owned(),
            Self::Made(members) => Json::Object(members).to_string(),
        }
    }
}

fn parts_of(content: Option<&Json>, kind: &str) -> bool {
    let parts = content.and_then(Json::as_array).into_iter().flatten();
    parts.filter_map(|part| part.get("type")).any(|own| own == kind)
}

/// A value of a checked body always reads.
fn read(value: Value<'_>) -> Json {
    serde_json::from_str(value.raw()).unwrap_or_default()
}

fn rename(turns: &mut [Turn<'_>], from: &str, to: &str) -> bool {
    let mut renamed = false;
    for turn in turns.iter_mut().filter(|turn| turn.is(from)) {
        let mut members = turn.members();
        members.insert("role".to_owned(), to.into());
        *turn = Turn::Made(members);
        renamed = true;
    }
    renamed
}

/// Takes the contents of all system messages out but of those that may stay at the front.
fn take_late_systems(turns: &mut Vec<Turn<'_>>, front: usize) -> Vec<Json> {
    let mut late = Vec::new();
    let mut at = 0;
    turns.retain(|turn| {
        let is_late = turn.is("system") && at >= front;
        at += 1;
        if is_late {
            late.extend(turn.members().remove("content"));
        }
        !is_late
    });
    late
}

fn fold_into_front(turns: &mut Vec<Turn<'_>>, late: Vec<Json>) {
    let mut first = match turns.first() {
        Some(first) if first.is("system") => turns.remove(0).members(),
        _ => Map::from_iter([("role".to_owned(), "system".into())]),
    };
    let content = late.into_iter().fold(first.remove("content").filter(|own| !own.is_null()), joined);
    first.insert("content".to_owned(), content.unwrap_or_default());
    turns.insert(0, Turn::Made(first));
}

/// Several at the front become one; all later ones become the user's.
fn late_systems_to_users(turns: &mut Vec<Turn<'_>>, apart: bool) -> bool {
    let leading = if apart { 0 } else { turns.iter().take_while(|turn| turn.is("system")).count() };
    let is_strict = leading <= 1 && !turns.iter().skip(leading).any(|turn| turn.is("system"));
    if is_strict {
        return false;
    }
    let mut rest = turns.split_off(leading);
    if leading > 1 {
        let texts = take_late_systems(turns, 1);
        fold_into_front(turns, texts);
    }
    // Those that wait for the results of a call.
    let mut waiting: Vec<Turn<'_>> = Vec::new();
    let mut called = false;
    for turn in rest.drain(..) {
        if turn.is("system") {
            let mut members = turn.members();
            members.insert("role".to_owned(), "user".into());
            waiting.push(Turn::Made(members));
            continue;
        }
        let stays_behind = called && turn.answers();
        if !stays_behind {
            turns.append(&mut waiting);
            called = turn.calls();
        }
        turns.push(turn);
    }
    turns.append(&mut waiting);
    true
}

/// Joins neighbours of one role, and lets the user begin.
fn alternate(turns: &mut Vec<Turn<'_>>) -> bool {
    let mut changed = false;
    let mut out: Vec<Turn<'_>> = Vec::with_capacity(turns.len());
    for turn in turns.drain(..) {
        let same = |role: &str| turn.is(role) && out.last().is_some_and(|last| last.is(role));
        // Two messages that both call have lost what came between: there is nothing that would make them one.
        let both_call = || turn.calls() && out.last().is_some_and(Turn::calls);
        if same("user") || same("system") || (same("assistant") && !both_call()) {
            if let Some(last) = out.last_mut() {
                *last = Turn::Made(merged(last.members(), turn.members()));
                changed = true;
            }
        } else {
            out.push(turn);
        }
    }
    let first = out.iter().position(|turn| !turn.is("system"));
    if let Some(first) = first.filter(|first| out.get(*first).is_some_and(|turn| turn.is("assistant"))) {
        out.insert(first, user(GO_ON));
        changed = true;
    }
    *turns = out;
    changed
}

/// Gives the conversation a question if it has none: in place of an empty one, else before all that was said.
fn question(turns: &mut Vec<Turn<'_>>) -> bool {
    let asks = |turn: &Turn<'_>| turn.is("user") && turn.has_text() && !turn.answers();
    if turns.iter().any(asks) {
        return false;
    }
    if let Some(empty) = turns.iter_mut().find(|turn| turn.is("user") && !turn.has_text()) {
        let mut members = empty.members();
        members.insert("content".to_owned(), GO_ON.into());
        *empty = Turn::Made(members);
    } else {
        let front = turns.iter().take_while(|turn| turn.is("system")).count();
        turns.insert(front, user(GO_ON));
    }
    true
}

fn user<'a>(text: &str) -> Turn<'a> {
    Turn::Made(Map::from_iter([("role".to_owned(), "user".into()), ("content".to_owned(), text.into())]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arranged(messages: Json, needs: &[Need]) -> (Json, Vec<Need>) {
        let body = json!({ "messages": messages }).to_string();
        let request = ChatRequest::parse(body.into()).expect("a request");
        let arranged = arrange(&request, needs, false);
        let list = arranged.messages.map_or(messages, |list| serde_json::from_str(&list).expect("JSON"));
        // What was arranged needs nothing more.
        let body = json!({ "messages": list }).to_string();
        let again = arrange(&ChatRequest::parse(body.into()).expect("a request"), needs, false);
        assert_eq!(again, Arranged::default(), "{list}");
        (list, arranged.acted)
    }

    fn said(role: &str, content: &str) -> Json {
        json!({ "role": role, "content": content })
    }

    fn call(content: &str) -> Json {
        json!({ "role": "assistant", "content": content, "tool_calls": [{ "id": "a", "function": { "name": "f" } }] })
    }

    fn result() -> Json {
        json!({ "role": "tool", "tool_call_id": "a", "content": "seen" })
    }

    #[test]
    fn what_a_template_can_read_is_not_touched() {
        let fine = json!([
            said("system", "s"),
            said("user", "u"),
            call(""),
            result(),
            said("assistant", "a"),
            said("user", "v")
        ]);
        for needs in [&Need::ALL[..], &[Need::LateSystemAsUser, Need::AlternatingRoles]] {
            assert_eq!(arranged(fine.clone(), needs), (fine.clone(), vec![]));
        }
    }

    #[test]
    fn late_system_messages_are_joined_to_the_first_or_become_the_users_words_where_they_stood() {
        let late = json!([
            said("system", "s"),
            said("system", "t"),
            said("user", "u"),
            said("system", "x"),
            said("user", "v")
        ]);
        let (list, _) = arranged(late.clone(), &[Need::SystemFirst]);
        assert_eq!(list, json!([said("system", "s\n\nt\n\nx"), said("user", "u"), said("user", "v")]));
        let (list, acted) = arranged(late.clone(), &[Need::LateSystemAsUser]);
        assert_eq!(
            list,
            json!([said("system", "s\n\nt"), said("user", "u"), said("user", "x"), said("user", "v")])
        );
        assert_eq!(acted, [Need::LateSystemAsUser]);
        let (list, _) = arranged(late, &[Need::LateSystemAsUser, Need::AlternatingRoles]);
        assert_eq!(list, json!([said("system", "s\n\nt"), said("user", "u\n\nx\n\nv")]));
        let only = json!([said("user", "u"), said("system", "x")]);
        assert_eq!(arranged(only, &[Need::SystemFirst]).0, json!([said("system", "x"), said("user", "u")]));
    }

    #[test]
    fn a_late_system_message_never_stands_between_a_call_and_its_result() {
        let late =
            json!([said("user", "u"), call(""), said("system", "x"), result(), said("assistant", "a")]);
        let (list, _) = arranged(late, &[Need::LateSystemAsUser]);
        assert_eq!(
            list,
            json!([said("user", "u"), call(""), result(), said("user", "x"), said("assistant", "a")])
        );
    }

    #[test]
    fn neighbours_of_one_role_become_one_and_calls_are_kept() {
        let list = json!([said("user", "u"), { "role": "user", "content": [{ "type": "image_url" }] }, said("assistant", "a"), call("")]);
        let (list, acted) = arranged(list, &[Need::AlternatingRoles]);
        let parts = json!([{ "type": "text", "text": "u" }, { "type": "image_url" }]);
        assert_eq!(list, json!([{ "role": "user", "content": parts }, call("a")]));
        assert_eq!(acted, [Need::AlternatingRoles]);
    }

    #[test]
    fn a_conversation_without_a_question_gets_one_at_its_beginning() {
        let (list, _) = arranged(json!([said("system", "s"), call(""), result()]), &[Need::UserTurn]);
        assert_eq!(list, json!([said("system", "s"), said("user", GO_ON), call(""), result()]));
        let (list, _) = arranged(json!([said("user", " "), said("assistant", "a")]), &[Need::UserTurn]);
        assert_eq!(list, json!([said("user", GO_ON), said("assistant", "a")]));
    }

    #[test]
    fn with_the_system_prompt_apart_all_system_messages_are_late() {
        let body = r#"{"system":[{"type":"text","text":"s","cache_control":{}}],"messages":[{"role":"user","content":[{"type":"text","text":"u"}]},{"role":"system","content":"x"},{"role":"assistant","content":"a"}]}"#;
        let request = ChatRequest::parse(body.to_owned().into()).expect("a request");
        let folded = arrange(&request, &[Need::SystemFirst], true);
        assert_eq!(folded.system.as_deref(), Some("\"s\\n\\nx\""));
        assert_eq!(
            folded.messages.as_deref(),
            Some(
                r#"[{"role":"user","content":[{"type":"text","text":"u"}]},{"role":"assistant","content":"a"}]"#
            )
        );
        let kept = arrange(&request, &[Need::LateSystemAsUser, Need::AlternatingRoles], true);
        assert_eq!(kept.system, None);
        assert_eq!(
            kept.messages.as_deref(),
            Some(r#"[{"role":"user","content":"u\n\nx"},{"role":"assistant","content":"a"}]"#)
        );
    }
}
