//! Weak evidence: bare JSON, Python lists, a tool's name at the start. Any of these may be just what the user asked for; so may
//! fences (`fence.rs`).
//!
//! So much more is demanded than of a marker: a declared tool, its required arguments, the keys of a call and no others, and
//! nothing behind it. Whatever contradicts that, in the order in which it arrives, makes it text.

use super::Settings;
use super::braces::Marks;
use super::formats::{self, Format, INVENTED, LEAKS};
use super::grammar::{Call, Context, End, Step, blanks, may_become, name_length, starts_with_any, window};
use super::json_block::{self, Scan};
use super::normalise::{self, ARGUMENTS, MESSAGE, NAMES, OTHERS};
use super::{braces, keyed, named, pythonic, wrapper};

/// Without a declared name in so many bytes it is no call.
const EVIDENCE: usize = 512;
/// The end of one that could not be read is looked for in so many bytes.
const EXTENT: usize = 4096;
/// Closers of wrappers whose opener was lost: with one of these behind it, a call may stand anywhere.
pub(super) const ORPHANS: &[&str] = &[
    "</tool_call>",
    "</tool_calls>",
    "</TOOLCALL>",
    "</function_call>",
    "<|tool_call_end|>",
    "<｜tool▁call▁end｜>",
    "<|tool▁call▁end|>",
    "<｜tool_call_end｜>",
];

/// Reads a candidate at the start of a line. `start`: nothing but reasoning stands before it.
pub(crate) fn read(text: &str, start: bool, ctx: Context<'_>) -> Step {
    match text.chars().next() {
        Some('{') => json(text, start, ctx),
        Some('[') => match text[1..].trim_start().chars().next() {
            None => Step::More,
            Some('{') => json(text, start, ctx),
            Some(c) if c.is_alphabetic() || c == '_' => python(text, 1, ctx),
            Some(_) => Step::Not(1),
        },
        Some(_) if start => by_name(text, ctx),
        _ => Step::Not(1),
    }
}

/// A wrapper whose opener was lost ends here.
pub(super) fn is_closed(text: &str) -> bool {
    ORPHANS.iter().any(|closer| text.ends_with(closer))
}

/// Only calls that such a wrapper's end closes, or may still.
pub(super) fn may_close(text: &str, step: &Step, open: bool) -> bool {
    match step {
        Step::Calls(_, used) => is_closed(&text[..*used]),
        Step::More => open,
        _ => false,
    }
}

/// Calls in tags that may hold anything else as well: a list of tools, program text.
pub(crate) fn wrapped(text: &str, at: usize, format: &'static Format, ctx: Context<'_>) -> Step {
    match wrapper::read(text, at, format, ctx) {
        Step::Calls(calls, used) if !calls.is_empty() && calls.iter().all(|call| fits(call, ctx)) => {
            Step::Calls(calls, used)
        }
        Step::More if !ctx.end.is_end() => Step::More,
        _ => Step::Not(at),
    }
}

/// True for calls that have no tag of a family that is looked for.
pub(super) fn is_bare(text: &str, step: &Step, settings: &Settings) -> bool {
    let Step::Calls(_, used) = step else { return false };
    let text = &text[..*used];
    let tag = |format: &Format| match text.contains(keyed::GLM.key) {
        true => format.openers.contains(&keyed::GLM.opener),
        false => ORPHANS.iter().any(|closer| text.ends_with(closer) && format.closers.contains(closer)),
    };
    !formats::FORMATS.iter().any(|format| settings.looks_for(format) && tag(format))
}

/// True for a first character that `read` has something to say to.
pub(crate) fn is_candidate(first: u8, start: bool) -> bool {
    matches!(first, b'{' | b'[') || (start && (first.is_ascii_alphabetic() || first == b'_'))
}

fn json(text: &str, start: bool, ctx: Context<'_>) -> Step {
    let named = ctx.named.filter(|_| start && text.starts_with('{'));
    if let Some(name) = named {
        return match normalise_named(text, name, ctx) {
            Some(step) => step,
            None => Step::More,
        };
    }
    match plausible(text, ctx) {
        Plausible::No => return Step::Not(1),
        Plausible::Unnamed => return no_call(text, EVIDENCE, ctx),
        Plausible::Yet => return Step::More,
        Plausible::Yes => {}
    }
    match json_block::list(text, 0, ORPHANS, ctx) {
        Step::Calls(calls, used) if !calls.is_empty() && calls.iter().all(|call| fits(call, ctx)) => {
            if is_closed(&text[..used]) {
                return Step::Calls(calls, used);
            }
            at_the_end(text, calls, used, ctx)
        }
        Step::CutAfter(calls) if ctx.demanded && calls.iter().all(|call| fits(call, ctx)) => {
            Step::CutAfter(calls)
        }
        Step::More => Step::More,
        _ => no_call(text, EXTENT, ctx),
    }
}

/// What looked like a call is none; nor is anything in it, if its end is near.
fn no_call(text: &str, most: usize, ctx: Context<'_>) -> Step {
    match json_block::scan(window(text, most), &[]) {
        Scan::End(end) => Step::Not(end),
        _ if text.len() < most && !ctx.end.is_end() => Step::More,
        _ => Step::Not(1),
    }
}

/// The tool is demanded by name: the whole answer may be its arguments. `None` while that is open.
fn normalise_named(text: &str, name: &str, ctx: Context<'_>) -> Option<Step> {
    let end = match json_block::scan(text, &[]) {
        Scan::End(end) => end,
        _ if ctx.end == End::Stop => text.len(),
        _ => return None,
    };
    let complete = end < text.len() || ctx.end != End::Stop || text.trim_end().ends_with('}');
    let calls = normalise::calls(&text[..end], complete, ctx);
    if let Some(calls) = calls.filter(|calls| !calls.is_empty() && calls.iter().all(|call| call.declared)) {
        return Some(at_the_end(text, calls, end, ctx));
    }
    let Some((json, notes)) = normalise::object_text(&text[..end], complete) else {
        return Some(Step::Not(1));
    };
    let mut call = normalise::call(name, &json, ctx.tools);
    if !normalise::has_required(&call, ctx.tools) {
        return Some(Step::Not(1));
    }
    call.notes.splice(0..0, notes);
    Some(at_the_end(text, vec![call], end, ctx))
}

/// A declared tool with all that it requires, under the keys of a call and no others.
pub(super) fn fits(call: &Call, ctx: Context<'_>) -> bool {
    call.plain && is_complete(call, ctx)
}

/// A declared tool with all that it requires.
pub(super) fn is_complete(call: &Call, ctx: Context<'_>) -> bool {
    call.declared && normalise::has_required(call, ctx.tools) && !is_schema(call, ctx)
}

/// A tool's own schema, quoted: an object of `type` and `properties`.
fn is_schema(call: &Call, ctx: Context<'_>) -> bool {
    let Ok(arguments) = crate::json::Value::parse(&call.arguments) else { return false };
    let foreign = |key: &str| !ctx.tools.tool(&call.name).is_some_and(|tool| tool.has_parameter(key));
    arguments.get("type").is_some() && arguments.get("properties").is_some() && foreign("properties")
}

/// The calls, if nothing but blanks and leaked tokens stands behind them; else they are only shown.
pub(super) fn at_the_end(text: &str, calls: Vec<Call>, used: usize, ctx: Context<'_>) -> Step {
    let mut at = used + blanks(&text[used..]);
    loop {
        let rest = &text[at..];
        // A result or a turn that the model invents is no part of its answer.
        let invented = starts_with_any(rest, INVENTED);
        match starts_with_any(rest, LEAKS) {
            _ if invented.is_ok() => return Step::Calls(calls, at),
            Ok(leak) => at += leak.len() + blanks(&rest[leak.len()..]),
            Err(_) if rest.is_empty() => {
                return if ctx.end.is_end() { Step::Calls(calls, at) } else { Step::More };
            }
            Err(may) if (may || invented == Err(true)) && !ctx.end.is_end() => return Step::More,
            Err(_) if rest.starts_with(">>>") => return Step::Calls(calls, at),
            Err(_) if ">>>".starts_with(rest) && !ctx.end.is_end() => return Step::More,
            // Words show it; another call does not.
            Err(_) => match formats::at(rest) {
                Ok(_) => return Step::Not(used),
                Err(true) if !ctx.end.is_end() => return Step::More,
                Err(_) => return Step::Shown(used),
            },
        }
    }
}

pub(super) enum Plausible {
    Yes,
    No,
    /// The key is one, but no declared name stands near.
    Unnamed,
    Yet,
}

/// Whether the first key is a call's, and a declared name stands near.
pub(super) fn plausible(text: &str, ctx: Context<'_>) -> Plausible {
    let inner = text.trim_start_matches(|c: char| matches!(c, '[' | '{') || c.is_whitespace());
    let Some(quote) = inner.chars().next() else { return Plausible::Yet };
    if may_become(inner, "&quot;") {
        return Plausible::Yet;
    }
    let key = inner.strip_prefix("&quot;").unwrap_or(inner).trim_start_matches(['"', '\'', '“']);
    let length = key.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(key.len());
    let open = length == key.len();
    let known = NAMES.iter().chain(&ARGUMENTS).chain(&OTHERS);
    let fits = |known: &str| if open { known.starts_with(key) } else { *known == key[..length] };
    let message = MESSAGE.iter().find(|(known, _)| fits(known));
    if quote == '}' || !(known.into_iter().any(|known| fits(known)) || message.is_some()) {
        return Plausible::No;
    }
    if open {
        return Plausible::Yet;
    }
    if let Some((_, values)) = message {
        let behind = key[length..].trim_start_matches(['"', '\'', '”']).trim_start();
        let Some(value) = behind.strip_prefix(':') else {
            return if behind.is_empty() { Plausible::Yet } else { Plausible::No };
        };
        match starts_with_any(value.trim_start(), values) {
            Ok(_) => {}
            Err(true) => return Plausible::Yet,
            Err(false) => return Plausible::No,
        }
    }
    if text.len() >= EVIDENCE && !ctx.demanded {
        let near: String = text.char_indices().take_while(|(at, _)| *at < EVIDENCE).map(|(_, c)| c).collect();
        let lower = near.to_lowercase().replace('-', "_");
        let stands = |name: &str| lower.contains(&name.to_lowercase().replace('-', "_"));
        if !ctx.tools.names().any(stands) {
            return Plausible::Unnamed;
        }
    }
    Plausible::Yes
}

fn python(text: &str, name_at: usize, ctx: Context<'_>) -> Step {
    let rest = text[name_at..].trim_start();
    let length = name_length(rest);
    let name = &rest[..length];
    if length == rest.len() {
        return if may_be_name(name, ctx) { Step::More } else { Step::Not(1) };
    }
    let resolved = |name: &str| ctx.tools.resolve(name).is_some();
    let known = resolved(name) || name.strip_suffix(".call").is_some_and(resolved);
    if !known || !rest[length..].starts_with('(') {
        return Step::Not(1);
    }
    match pythonic::calls(text, 0, &[], ctx) {
        Step::Calls(calls, used) if calls.iter().all(|call| fits(call, ctx)) => {
            at_the_end(text, calls, used, ctx)
        }
        Step::More => Step::More,
        _ => Step::Not(1),
    }
}

/// True while a word may still become a declared name.
fn may_be_name(word: &str, ctx: Context<'_>) -> bool {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    // Kimi's ids count: `functions.NAME:0`.
    let word = plain(named::identified(word).0.trim_end_matches(':'));
    let prefixes = ["functions.", "function.", "tool."];
    let bare = prefixes.iter().find_map(|prefix| word.strip_prefix(prefix)).unwrap_or(&word);
    prefixes.iter().any(|prefix| prefix.starts_with(&word))
        || ctx
            .tools
            .names()
            .any(|name| plain(name).starts_with(bare) || bare == format!("{}.call", plain(name)))
}

/// `NAME(…)`, `NAME` newline `{…}`, `NAME[ARGS]{…}`, `NAME<arg_key>…`: a declared name whose marker was lost.
fn by_name(text: &str, ctx: Context<'_>) -> Step {
    if may_become(text, "call:") {
        return Step::More;
    }
    if text.starts_with("call:") {
        let marks = Marks { quote: "<|\"|>", openers: &["<|tool_call>"], closers: &["<tool_call|>"] };
        return match braces::call(text, 0, marks, ctx) {
            Step::Calls(calls, used) if calls.iter().all(|call| fits(call, ctx)) => {
                at_the_end(text, calls, used, ctx)
            }
            Step::More => Step::More,
            _ => Step::Not(1),
        };
    }
    let length = name_length(text);
    let name = &text[..length];
    if length == text.len() {
        return if may_be_name(name, ctx) { Step::More } else { Step::Not(1) };
    }
    let behind = &text[length..];
    if behind.starts_with('(') {
        return python(text, 0, ctx);
    }
    let headed = ctx.tools.resolve(named::identified(name).0).is_some() || name == "function";
    match starts_with_any(behind, named::SEPARATORS) {
        Ok(_) if headed => {
            return match named::section(text, 0, ORPHANS, ctx) {
                Step::Calls(calls, used) if calls.iter().all(|call| fits(call, ctx)) => {
                    if is_closed(&text[..used]) {
                        Step::Calls(calls, used)
                    } else {
                        at_the_end(text, calls, used, ctx)
                    }
                }
                Step::More => Step::More,
                _ => Step::Not(1),
            };
        }
        Err(true) if headed && ctx.tools.resolve(name).is_none() => return Step::More,
        _ => {}
    }
    if ctx.tools.resolve(name).is_none() {
        return Step::Not(1);
    }
    let body = behind.trim_start();
    let markers = ["<arg_key>", "[ARGS]", "[CALL_ID]"];
    let step = if behind.starts_with("<arg_key>") {
        // The grammar's own tags: strong, once it is complete.
        return match keyed::call(text, 0, &keyed::GLM, ctx) {
            Step::Not(_) | Step::Broken(..) => Step::Not(1),
            step => step,
        };
    } else if behind.starts_with("[ARGS]") || behind.starts_with("[CALL_ID]") {
        named::mistral(text, 0, ctx)
    } else if body.starts_with('{') && (behind.starts_with('\n') || behind.starts_with('{')) {
        named::body(text, length, name, None, &[], ctx)
    } else if body.is_empty() && behind.starts_with(['\n', '\r']) {
        return Step::More;
    } else {
        let undecided = markers.iter().chain(named::SEPARATORS).any(|marker| may_become(behind, marker));
        return if undecided { Step::More } else { Step::Not(1) };
    };
    match step {
        Step::Calls(calls, used) if calls.iter().all(|call| fits(call, ctx)) => {
            at_the_end(text, calls, used, ctx)
        }
        Step::More => Step::More,
        _ => Step::Not(1),
    }
}
