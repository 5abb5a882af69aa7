//! gpt-oss's harmony: messages with a role, a channel and a recipient in the header.
//!
//! Analysis is reasoning, final is text, commentary without a recipient is a preamble for the user. A message with a tool as its
//! recipient is a call, in whatever channel. Talk about a call inside a message's body is talk.

use super::grammar::{Context, Step, find_any, may_become, name_length, starts_with_any, window};
use super::named;

pub(crate) const MESSAGE: &str = "<|message|>";
const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const CONSTRAIN: &str = "<|constrain|>";
const CHANNELS: &[&str] = &["analysis", "commentary", "final"];
/// What ends a message.
pub(crate) const CLOSERS: &[&str] = &["<|end|>", "<|call|>", "<|return|>", "<|eom|>", "<|eot|>"];
/// What ends its body, if only because the next message begins.
const ENDS: &[&str] =
    &["<|end|>", "<|call|>", "<|return|>", "<|eom|>", "<|eot|>", "<|start|>", "<|channel|>"];
/// Longest header, in bytes.
const LONGEST: usize = 256;
/// Longest thought without its special tokens, in bytes: it is held back until what follows proves it.
const THOUGHT: usize = 4096;

/// A message whose header begins with the text (`<|start|>assistant…` or `<|channel|>…`).
pub(crate) fn message(text: &str, ctx: Context<'_>) -> Step {
    let length = match header_length(text) {
        Ok(length) => length,
        Err(true) => return Step::More,
        Err(false) => return Step::Not(1),
    };
    let (header, from) = (&text[..length], length + MESSAGE.len());
    let body = text[from..].trim_start();
    let channel = header.rsplit("<|channel|>").next().unwrap_or_default().trim_start();
    let to_itself = recipient(header) == Some("self") && ctx.tools.resolve("self").is_none();
    // To one of the model's own tools, such as `python`, it thinks aloud; Muse does to itself.
    let thinks = channel.starts_with("analysis") || to_itself;
    if let Some(tool) = recipient(header).filter(|tool| !thinks || ctx.tools.resolve(tool).is_some()) {
        // A message to a tool may hold blocks of tags instead, which name the tool themselves.
        if body.starts_with("<atem:") {
            return Step::Opener(from);
        }
        if may_become(body, "<atem:") {
            return Step::More;
        }
        return named::body(text, from, tool, None, CLOSERS, ctx);
    }
    if thinks { Step::Reasoning(from, ENDS) } else { Step::Shell(from, CLOSERS) }
}

/// Bytes of the header at the start of the text: a role, channels, recipients, a type of content, and no other words. Without
/// that rule all that stands between the mention of two tokens would be markup. `Err(true)` while it is open.
fn header_length(text: &str) -> Result<usize, bool> {
    let near = window(text, LONGEST);
    let (mut at, mut before, mut addressed) = (0, "", false);
    loop {
        at += near[at..].len() - near[at..].trim_start_matches([' ', '\t']).len();
        let rest = &near[at..];
        match starts_with_any(rest, &[START, CHANNEL, CONSTRAIN, MESSAGE]) {
            // A channel has a name.
            Ok(MESSAGE) => return if before == CHANNEL { Err(false) } else { Ok(at) },
            Ok(token) => {
                (before, at) = (token, at + token.len());
                continue;
            }
            Err(true) => return Err(text.len() <= LONGEST),
            Err(false) => {}
        }
        let length = rest.find(|c: char| c.is_whitespace() || c == '<').unwrap_or(rest.len());
        let word = &rest[..length];
        let open = length == rest.len();
        let fits = |known: &str| if open { known.starts_with(word) } else { known == word };
        let recipient = word.strip_prefix("to=");
        let typed = name_length(word) == length && (before == CONSTRAIN || addressed);
        let known = match before {
            START => fits("assistant"),
            CHANNEL => CHANNELS.iter().any(|channel| fits(channel)),
            _ => {
                typed
                    || (open && may_become(word, "to="))
                    || recipient.is_some_and(|name| name_length(name) == name.len())
            }
        };
        if word.is_empty() || !known {
            return Err(false);
        }
        (before, addressed, at) = ("", addressed || recipient.is_some(), at + length);
    }
}

/// The tool of a message whose body begins where this header ends.
pub(crate) fn header(header: &str) -> Option<&str> {
    recipient(header.strip_suffix(MESSAGE)?)
}

/// The tool that a header addresses.
fn recipient(header: &str) -> Option<&str> {
    let mut places = header
        .match_indices("to=")
        .filter(|(at, _)| *at == 0 || header[..*at].ends_with(char::is_whitespace));
    let names = places.by_ref().map(|(at, _)| {
        let name = &header[at + 3..];
        &name[..name_length(name)]
    });
    let name = names.filter(|name| !matches!(*name, "" | "assistant" | "user" | "all")).last()?;
    Some(name.strip_prefix("functions.").unwrap_or(name))
}

/// Where a backend ate the special tokens: `analysis…assistantcommentary to=functions.NAME json{…}`, `assistantfinal…`.
pub(crate) fn stripped(text: &str, ctx: Context<'_>) -> Step {
    const NEXT: &[&str] = &["assistantcommentary to=functions.", "assistantfinal"];
    for opener in ["assistantcommentary to=functions.", "commentary to=functions."] {
        if let Some(rest) = window(text, LONGEST).strip_prefix(opener) {
            let length = name_length(rest);
            let name = &rest[..length];
            let after = rest[length..].trim_start();
            let after = after.strip_prefix("json").or_else(|| after.strip_prefix("code")).unwrap_or(after);
            if after.trim_start().starts_with('{') && ctx.tools.resolve(name).is_some() {
                let at = opener.len() + rest.len() - after.len();
                return named::body(text, at, name, None, &[], ctx);
            }
            let undecided = ["json", "code"].iter().any(|word| word.starts_with(after.trim_start()));
            return if undecided && text.len() <= LONGEST { Step::More } else { Step::Not(opener.len()) };
        }
        if opener.starts_with(text) {
            return Step::More;
        }
    }
    if let Some(rest) = text.strip_prefix("to=") {
        // The prompt has ended with the role.
        let behind = rest[name_length(rest)..].trim_start();
        return match behind.starts_with(MESSAGE) {
            true => message(text, ctx),
            false if MESSAGE.starts_with(behind) && text.len() <= LONGEST => Step::More,
            false => Step::Not(1),
        };
    }
    if "to=".starts_with(text) {
        return Step::More;
    }
    if text.starts_with("assistantfinal") {
        return Step::Calls(Vec::new(), "assistantfinal".len());
    }
    let Some(thought) = text.strip_prefix("analysis") else {
        let may = "analysis".starts_with(text) || "assistantfinal".starts_with(text);
        return if may { Step::More } else { Step::Not(1) };
    };
    match thought.chars().next() {
        None => Step::More,
        Some(c) if c.is_lowercase() || c.is_whitespace() || c.is_ascii_punctuation() => Step::Not(1),
        Some(_) => match find_any(window(thought, THOUGHT), NEXT) {
            Some(_) => Step::Reasoning("analysis".len(), NEXT),
            None if thought.len() <= THOUGHT && !ctx.end.is_end() => Step::More,
            None => Step::Not(1),
        },
    }
}
