//! Calls that name the tool in a header and give the arguments as JSON: Kimi K2, DeepSeek V3 and V3.1, Step3, Mistral,
//! Functionary, Inkling.
//!
//! Kimi's header and Mistral's `[CALL_ID]` are ids, and are kept as they are.

use super::channels;
use super::formats::Grammar;
use super::grammar::{
    Call, Context, Step, blanks, find_any, held_suffix, name_length, starts_with_any, window,
};
use super::json_block::{self, Body};
use super::normalise;
use super::xml_block::{self, Wrapper};

/// Between header and arguments.
pub(crate) const SEPARATORS: &[&str] =
    &["<|tool_call_argument_begin|>", "<｜tool▁sep｜>", "<|tool▁sep|>", "<|tool_sep|>", "<｜tool_sep｜>"];
/// Longest header, in bytes.
const LONGEST: usize = 256;

/// `HEADER separator {…} closer`, the header from `at` on.
pub(crate) fn section(text: &str, at: usize, closers: &'static [&'static str], ctx: Context<'_>) -> Step {
    let rest = &text[at..];
    let near = window(rest, LONGEST);
    let near = near.split('{').next().unwrap_or(near);
    let Some((length, separator)) = find_any(near, SEPARATORS) else {
        return if near.len() == rest.len() { Step::More } else { Step::Not(at) };
    };
    let header = rest[..length].trim();
    let mut from = at + length + separator.len();
    if header == "function" {
        from += blanks(&text[from..]);
        if text[from..].starts_with('<') {
            let wrapper = Wrapper { opened: true, openers: &[], closers };
            return xml_block::functions(text, from, wrapper, ctx);
        }
        let line = &text[from..];
        let length = name_length(line);
        if length == line.len() {
            return Step::More;
        }
        return body(text, from + length, &line[..length], None, closers, ctx);
    }
    let (name, id) = identified(header);
    body(text, from, name, id, closers, ctx)
}

/// `functions.NAME:N` is an id; its middle is the name.
pub(crate) fn identified(header: &str) -> (&str, Option<String>) {
    let counted = header
        .rsplit_once(':')
        .filter(|(_, count)| !count.is_empty() && count.chars().all(|c| c.is_ascii_digit()));
    match counted {
        Some((name, _)) => (name.strip_prefix("functions.").unwrap_or(name), Some(header.to_owned())),
        None => (header.strip_prefix("functions.").unwrap_or(header), None),
    }
}

/// Tool and id of a complete header, which ends where the arguments begin: for calls that stream.
pub(crate) fn header(header: &str, grammar: Grammar) -> Option<(String, Option<String>)> {
    let header = header.trim_end();
    match grammar {
        Grammar::Harmony => channels::header(header).map(|tool| (tool.to_owned(), None)),
        Grammar::Mistral => {
            let header = header.strip_suffix(ARGS).unwrap_or(header);
            let (name, id) = match header.split_once(CALL_ID) {
                Some((name, id)) => (name, Some(id.trim().to_owned())),
                None => (header, None),
            };
            Some((name.trim().to_owned(), id))
        }
        _ => {
            let (length, separator) = find_any(header, SEPARATORS)?;
            let (before, behind) = (header[..length].trim(), &header[length + separator.len()..]);
            if before == "function" {
                return Some((behind.trim_start().split(['\n', '`']).next()?.trim().to_owned(), None));
            }
            let (name, id) = identified(before);
            behind.trim().trim_start_matches("```json").trim().is_empty().then(|| (name.to_owned(), id))
        }
    }
}

/// The arguments from `at` on.
pub(crate) fn body(
    text: &str,
    at: usize,
    name: &str,
    id: Option<String>,
    closers: &[&str],
    ctx: Context<'_>,
) -> Step {
    if name.is_empty() || name.contains(char::is_whitespace) || name.contains('<') {
        return Step::Not(at);
    }
    let (json, notes, used) = match json_block::arguments(&text[at..], closers, ctx) {
        Body::More => return Step::More,
        Body::Bad if text[at..].trim_start().starts_with(['{', '`']) => {
            return Step::Broken(Vec::new(), at + blanks(&text[at..]));
        }
        Body::Bad => return Step::Not(at),
        Body::Object(json, notes, used) => (json, notes, used),
    };
    let inferred = name.chars().all(|c| c.is_ascii_digit()).then(|| by_keys(&json, ctx));
    let name = match &inferred {
        Some(Some(name)) => name,
        Some(None) => return Step::Not(at + used),
        None => name,
    };
    let mut call = normalise::call(name, &json, ctx.tools);
    call.id = id;
    call.notes.splice(0..0, notes);
    closed(text, at + used, vec![call], closers, ctx)
}

/// The calls that end at `end`, and one of the closers, if it is there.
fn closed(text: &str, end: usize, calls: Vec<Call>, closers: &[&str], ctx: Context<'_>) -> Step {
    let after = end + blanks(&text[end..]);
    match starts_with_any(&text[after..], closers) {
        Ok(closer) => Step::Calls(calls, after + closer.len()),
        Err(true) if !ctx.end.is_end() => Step::More,
        Err(true) => Step::Calls(calls, text.len()),
        Err(false) => Step::Calls(calls, end),
    }
}

/// The only declared tool that takes these keys and requires no others.
fn by_keys(json: &str, ctx: Context<'_>) -> Option<String> {
    let value = crate::json::Value::parse(json).ok()?;
    let fits = |name: &&str| {
        ctx.tools.tool(name).is_some_and(|tool| {
            value.members().all(|member| tool.has_parameter(&member.name()))
                && tool.required().all(|key| value.get(key).is_some())
                && value.members().next().is_some()
        })
    };
    let mut fitting = ctx.tools.names().filter(fits);
    fitting.next().filter(|_| fitting.next().is_none()).map(str::to_owned)
}

const CALL_ID: &str = "[CALL_ID]";
const ARGS: &str = "[ARGS]";

/// Mistral: `[TOOL_CALLS]` and then a list, or `NAME{…}`, `NAME[ARGS]{…}`, `NAME[CALL_ID]id[ARGS]{…}`.
pub(crate) fn mistral(text: &str, at: usize, ctx: Context<'_>) -> Step {
    let start = at + blanks(&text[at..]);
    let rest = &text[start..];
    if rest.is_empty() {
        return Step::More;
    }
    if rest.starts_with(['[', '{']) {
        return json_block::list(text, start, &[], ctx);
    }
    let length = name_length(rest);
    let (name, mut rest) = rest.split_at(length);
    if length == 0 {
        return Step::Not(at);
    }
    // Blanks before a marker are none of the call.
    let marked = |rest: &'_ str, marker: &str| rest.trim_start().starts_with(marker);
    let mut id = None;
    if marked(rest, CALL_ID) {
        let after = rest.trim_start()[CALL_ID.len()..].trim_start();
        let length = after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len());
        let (written, behind) = after.split_at(length);
        id = Some(written.to_owned()).filter(|id| !id.is_empty());
        rest = behind;
    }
    if marked(rest, ARGS) {
        rest = rest.trim_start()[ARGS.len()..].trim_start();
    }
    if ctx.tools.resolve(name).is_some() {
        rest = rest.trim_start();
    }
    if rest.starts_with('{') {
        return body(text, text.len() - rest.len(), name, id, &[], ctx);
    }
    let marker = rest.trim_start();
    if [CALL_ID, ARGS].iter().any(|known| known.starts_with(marker)) { Step::More } else { Step::Not(at) }
}

/// Functionary: `>>>NAME` newline `{…}`, and `>>>all` newline before text.
pub(crate) fn functionary(text: &str, at: usize, ctx: Context<'_>) -> Step {
    let Some((line, _)) = window(&text[at..], LONGEST).split_once('\n') else {
        return if text.len() - at <= LONGEST { Step::More } else { Step::Not(at) };
    };
    let name = line.trim_end();
    if name == "all" {
        return Step::Calls(Vec::new(), at + line.len() + 1);
    }
    if ctx.tools.resolve(name).is_none() {
        return Step::Not(at);
    }
    body(text, at + line.len() + 1, name, None, &[], ctx)
}

/// Around all calls of PLaMo 3, and around each.
pub(crate) const PLAMO_CALLS: &str = "<|plamo:begin_tool_requests:plamo|>";
pub(crate) const PLAMO_CALL: &str = "<|plamo:begin_tool_request:plamo|>";
const PLAMO_NAME: [&str; 2] = ["<|plamo:begin_tool_name:plamo|>", "<|plamo:end_tool_name:plamo|>"];
const PLAMO_ARGUMENTS: [&str; 2] =
    ["<|plamo:begin_tool_arguments:plamo|>", "<|plamo:end_tool_arguments:plamo|>"];
/// What may stand before the arguments' JSON.
const PLAMO_MARKS: [&str; 3] = ["<|plamo:constrain|>", "json", "<|plamo:msg|>"];

/// PLaMo 3: a request with the name and the arguments in tags of their own.
pub(crate) fn plamo(text: &str, at: usize, closers: &'static [&'static str], ctx: Context<'_>) -> Step {
    let from = at + blanks(&text[at..]);
    let [opened, named] = PLAMO_NAME;
    let Some(rest) = text[from..].strip_prefix(opened) else {
        return if opened.starts_with(&text[from..]) { Step::More } else { Step::Not(at) };
    };
    let Some(length) = window(rest, LONGEST).find(named) else {
        return if rest.len() <= LONGEST { Step::More } else { Step::Not(at) };
    };
    let name = rest[..length].trim();
    let mut from = from + opened.len() + length + named.len();
    for (number, mark) in PLAMO_ARGUMENTS[..1].iter().chain(&PLAMO_MARKS).enumerate() {
        from += blanks(&text[from..]);
        let rest = &text[from..];
        if rest.starts_with(mark) {
            from += mark.len();
        } else if mark.starts_with(rest) {
            return Step::More;
        } else if number == 0 {
            return match starts_with_any(rest, closers) {
                // No arguments at all.
                Ok(_) => body(text, from, name, None, closers, ctx),
                Err(true) => Step::More,
                Err(false) => Step::Not(at),
            };
        }
    }
    match body(text, from, name, None, &PLAMO_ARGUMENTS[1..], ctx) {
        Step::Calls(calls, used) => closed(text, used, calls, closers, ctx),
        step => step,
    }
}

const INKLING_CALL: &str = "<|content_invoke_tool_json|>";
const INKLING_THOUGHT: &str = "<|content_thinking|>";
const INKLING_TEXT: &str = "<|content_text|>";

/// Inkling: typed blocks behind `<|message_model|>`.
pub(crate) fn inkling(text: &str, at: usize, closers: &'static [&'static str], ctx: Context<'_>) -> Step {
    let rest = &text[at..];
    let kinds = [INKLING_CALL, INKLING_THOUGHT, INKLING_TEXT];
    let Some((length, kind)) = find_any(window(rest, LONGEST), &kinds) else {
        let name = &rest[..rest.len() - held_suffix(rest, &kinds)];
        let more = name_length(name) == name.len() && rest.len() <= LONGEST;
        return if more { Step::More } else { Step::Not(at) };
    };
    if name_length(rest) < length {
        return Step::Not(at);
    }
    let from = at + length + kind.len();
    match kind {
        INKLING_CALL => json_block::list(text, from + blanks(&text[from..]), closers, ctx),
        INKLING_THOUGHT => Step::Reasoning(from, closers),
        _ => Step::Shell(from, closers),
    }
}
