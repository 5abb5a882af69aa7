//! gpt-oss's prompts: vLLM renders them with openai-harmony and not with the model's template.
//!
//! Mirrors vLLM 0.32, `entrypoints/openai/parser/harmony_utils.py`, over openai-harmony 0.0.8, `src/encoding.rs`. The two give different
//! prompts for a third of varied requests: Harmony keeps what users type as text, special tokens included, puts what was said before a
//! call into the commentary channel, and forgets thoughts before the last final answer. So a prompt is a list of pieces here: marks,
//! which are one token each, and texts, which are tokenised by themselves and in which no special token is looked for.

mod typescript;

use serde_json::{Map, Value as Json};

use super::normalise::{Refused, has_role, member, messages, text};
use crate::request::ChatRequest;

/// The tokens that only a vocabulary of this kind has all of.
pub(super) const MARKS: [&str; 5] = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>"];

/// A part of a prompt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// One special token.
    Mark(&'static str),
    /// Text without special tokens.
    Text(String),
}

/// The whole prompt, up to the role of the answer.
///
/// Any date has as many tokens as any other, so the count is exact although this crate knows no clock.
pub(super) fn render(request: &ChatRequest) -> Result<Vec<Piece>, Refused> {
    let mut conversation = messages(request)?;
    let effort = member(request, "reasoning_effort")?;
    let effort = match effort.as_ref().map(|effort| effort.as_str().unwrap_or_default()) {
        None => "medium",
        Some(effort @ ("low" | "medium" | "high")) => effort,
        Some(other) => {
            return Err(Refused::new(format!("Harmony does not support reasoning_effort {other:?}")));
        }
    };
    let tools = typescript::tools(request)?;
    let leads = conversation.first().is_some_and(is_instruction);
    let instructions = if leads { flat_text(&conversation.remove(0)) } else { None };
    let mut told = vec![Said::new("system", system(effort, tools.is_some()))];
    if tools.is_some() || instructions.as_ref().is_some_and(|text| !text.is_empty()) {
        told.push(Said::new("developer", developer(instructions, tools)));
    }
    let names: Vec<(Json, String)> =
        conversation.iter().flat_map(calls).map(|call| (id(call), name(call))).collect();
    for message in &conversation {
        read_message(message, &names, &mut told)?;
    }
    let last_final = told.iter().rposition(|said| said.channel == Some("final")).unwrap_or(0);
    let mut pieces = Vec::new();
    for (at, said) in told.into_iter().enumerate() {
        if at >= last_final || said.channel != Some("analysis") {
            said.write(&mut pieces);
        }
    }
    pieces.extend([Piece::Mark("<|start|>"), Piece::Text("assistant".into())]);
    Ok(pieces)
}

/// A message as Harmony has it.
struct Said {
    /// The author and, for calls, to whom.
    author: String,
    channel: Option<&'static str>,
    /// What stands behind the channel.
    behind: &'static str,
    contents: Vec<String>,
    /// A call of a tool ends with a mark of its own.
    is_call: bool,
}

impl Said {
    fn new(author: impl Into<String>, content: String) -> Self {
        Self { author: author.into(), channel: None, behind: "", contents: vec![content], is_call: false }
    }

    fn on(channel: &'static str, content: String) -> Self {
        Self { channel: Some(channel), ..Self::new("assistant", content) }
    }

    fn write(self, pieces: &mut Vec<Piece>) {
        pieces.extend([Piece::Mark("<|start|>"), Piece::Text(self.author)]);
        if let Some(channel) = self.channel {
            pieces.extend([Piece::Mark("<|channel|>"), Piece::Text(format!("{channel}{}", self.behind))]);
        }
        pieces.push(Piece::Mark("<|message|>"));
        pieces.extend(self.contents.into_iter().map(Piece::Text));
        pieces.push(Piece::Mark(if self.is_call { "<|call|>" } else { "<|end|>" }));
    }
}

/// What the request's message becomes: none, one, or one for each call.
fn read_message(
    message: &Map<String, Json>,
    names: &[(Json, String)],
    told: &mut Vec<Said>,
) -> Result<(), Refused> {
    let role = text(message, "role").unwrap_or_default();
    // An empty `reasoning` hides the old name of the same thing.
    let reasoning =
        message.get("reasoning").filter(|value| !value.is_null()).or(message.get("reasoning_content"));
    let reasoning = reasoning.and_then(Json::as_str).filter(|text| role == "assistant" && !text.is_empty());
    let thought = reasoning.map(|text| Said::on("analysis", text.to_owned()));
    let mut calls = calls(message).peekable();
    if role == "assistant" && calls.peek().is_some() {
        told.extend(
            flat_text(message).filter(|text| !text.is_empty()).map(|text| Said::on("commentary", text)),
        );
        told.extend(thought);
        told.extend(calls.map(|call| Said {
            author: format!("assistant to=functions.{}", name(call)),
            behind: " json",
            is_call: true,
            ..Said::on("commentary", arguments(call))
        }));
        return Ok(());
    }
    match role {
        "tool" => {
            let id = message.get("tool_call_id").cloned().unwrap_or_else(|| "".into());
            let name = names.iter().rev().find(|(known, _)| *known == id).map_or("", |(_, name)| name);
            told.push(Said {
                author: format!("functions.{name}"),
                behind: " to=assistant",
                ..Said::on("commentary", flat_text(message).unwrap_or_default())
            });
        }
        "assistant" => {
            told.extend(thought);
            let contents = contents(message)?;
            if contents.first().is_some_and(|first| !first.is_empty()) {
                told.push(Said { contents, ..Said::on("final", String::new()) });
            }
        }
        "system" | "developer" => {
            told.extend(flat_text(message).map(|text| Said::new("developer", developer(Some(text), None))));
        }
        "user" => told.push(Said { contents: contents(message)?, ..Said::new("user", String::new()) }),
        other => return Err(Refused::new(format!("Harmony knows no role {other:?}"))),
    }
    Ok(())
}

fn is_instruction(message: &Map<String, Json>) -> bool {
    has_role(message, "system") || has_role(message, "developer")
}

fn calls(message: &Map<String, Json>) -> impl Iterator<Item = &Json> {
    message.get("tool_calls").and_then(Json::as_array).into_iter().flatten()
}

fn id(call: &Json) -> Json {
    call.get("id").cloned().unwrap_or_default()
}

fn name(call: &Json) -> String {
    call.pointer("/function/name").and_then(Json::as_str).unwrap_or_default().to_owned()
}

fn arguments(call: &Json) -> String {
    match call.pointer("/function/arguments") {
        None | Some(Json::Null) => String::new(),
        Some(Json::String(text)) => text.clone(),
        // Mended before it is sent.
        Some(other) => other.to_string(),
    }
}

/// The text of all parts, joined without anything between; none if there is no text.
fn flat_text(message: &Map<String, Json>) -> Option<String> {
    match message.get("content")? {
        Json::String(text) => Some(text.clone()),
        Json::Array(parts) => {
            let texts: Vec<&str> = parts
                .iter()
                .filter_map(|part| part.as_str().or_else(|| part.get("text")?.as_str()))
                .collect();
            (!texts.is_empty()).then(|| texts.concat())
        }
        _ => None,
    }
}

/// The parts, each with its text; what has none, such as an image, is empty.
fn contents(message: &Map<String, Json>) -> Result<Vec<String>, Refused> {
    match message.get("content") {
        Some(Json::Array(parts)) if !parts.is_empty() => {
            let text = |part: &Json| match part.as_object()?.get("text") {
                None => Some(String::new()),
                Some(text) => text.as_str().map(str::to_owned),
            };
            let refused = || Refused::new("Harmony takes parts that have a text or none");
            parts.iter().map(|part| text(part).ok_or_else(refused)).collect()
        }
        Some(Json::String(text)) => Ok(vec![text.clone()]),
        _ => Ok(vec![String::new()]),
    }
}

fn system(effort: &str, has_tools: bool) -> String {
    let tools =
        if has_tools { "\nCalls to these tools must go to the commentary channel: 'functions'." } else { "" };
    format!(
        "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\nCurrent date: 2026-06-15\n\n\
         Reasoning: {effort}\n\n\
         # Valid channels: analysis, commentary, final. Channel must be included for every message.{tools}"
    )
}

fn developer(instructions: Option<String>, tools: Option<String>) -> String {
    let instructions = instructions.map(|text| format!("# Instructions\n\n{text}"));
    instructions.into_iter().chain(tools).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Value as Json, json};

    use super::{Piece, render};
    use crate::request::ChatRequest;

    fn said(body: &Json) -> String {
        let request = ChatRequest::parse(Bytes::from(body.to_string())).unwrap();
        let text = |piece: Piece| match piece {
            Piece::Mark(mark) => mark.to_owned(),
            Piece::Text(text) => text,
        };
        let prompt: String = render(&request).unwrap().into_iter().map(text).collect();
        let (_, behind_system) = prompt.split_once("<|end|>").unwrap();
        behind_system.to_owned()
    }

    #[test]
    fn the_systems_words_become_the_developers() {
        let system = json!({"role": "system", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}]});
        let user = json!({"role": "user", "content": "hi"});
        assert_eq!(
            said(&json!({"messages": [system, user]})),
            "<|start|>developer<|message|># Instructions\n\nbe brief<|end|><|start|>user<|message|>hi<|end|><|start|>assistant"
        );
        assert_eq!(said(&json!({"messages": [user]})), "<|start|>user<|message|>hi<|end|><|start|>assistant");
    }

    #[test]
    fn a_call_is_addressed_and_its_result_comes_back() {
        let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let messages = json!([
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "so", "reasoning_content": "hm", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "r"}]);
        assert_eq!(
            said(&json!({"messages": messages})),
            "<|start|>user<|message|>q<|end|><|start|>assistant<|channel|>commentary<|message|>so<|end|>\
             <|start|>assistant<|channel|>analysis<|message|>hm<|end|>\
             <|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>\
             <|start|>functions.f<|channel|>commentary to=assistant<|message|>r<|end|><|start|>assistant"
        );
    }

    #[test]
    fn thoughts_before_the_last_final_answer_are_forgotten() {
        let answer = |thought: &str| json!({"role": "assistant", "reasoning": thought, "content": "a"});
        let user = json!({"role": "user", "content": "q"});
        let prompt = said(&json!({"messages": [user, answer("old"), user, answer("new"), user]}));
        assert!(!prompt.contains("old") && !prompt.contains("new"), "{prompt}");
        let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": ""}});
        let thinking = json!({"role": "assistant", "reasoning": "now", "tool_calls": [call]});
        let prompt = said(&json!({"messages": [user, answer("old"), user, thinking]}));
        assert!(
            !prompt.contains("old") && prompt.contains("<|channel|>analysis<|message|>now<|end|>"),
            "{prompt}"
        );
    }

    #[test]
    fn what_harmony_cannot_say_is_refused() {
        let refused =
            |body: Json| render(&ChatRequest::parse(Bytes::from(body.to_string())).unwrap()).unwrap_err().0;
        let effort = refused(json!({"messages": [], "reasoning_effort": "none"}));
        assert_eq!(effort, "Harmony does not support reasoning_effort \"none\"");
        assert!(refused(json!({"messages": [{"role": "judge", "content": ""}]})).contains("no role"));
    }
}
