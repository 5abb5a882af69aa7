//! Two grammars of nested tags with delimiters of their own: MiniMax M3 and Kimi K3.
//!
//! M3 prefixes every tag, and the parameter's name is the tag; lists are `<item>` elements. K3 writes `<|open|>tag attributes
//! <|sep|>` and `<|close|>tag<|sep|>`. Text of leaves is verbatim and typed by the schema.

use super::grammar::{Call, Context, End, Step, blanks, may_become, name_length, window};
use super::inner::{self, Found, Inner};
use super::normalise::quoted;
use super::values::Values;

/// MiniMax M3's prefix of every tag.
pub(crate) const M3: &str = "]<]minimax[>[";

/// Longest tag, in bytes.
const HEAD: usize = 256;
/// Deepest nesting of M3's elements.
const DEPTH: usize = 32;

/// `<invoke name="N">…</invoke>` with M3's prefix, from `at` on, then the wrapper's closer.
pub(crate) fn minimax3(text: &str, at: usize) -> impl Fn(Context<'_>) -> Step {
    move |ctx| {
        let (mut at, mut calls) = (at, Vec::new());
        loop {
            at += blanks(&text[at..]);
            match tag(text, at) {
                Ok(("/tool_call", end)) => return Step::Calls(calls, end),
                Ok((name, end)) if name.starts_with("invoke ") => match invoke(text, name, end, ctx) {
                    Ok((call, end)) => {
                        calls.push(call);
                        at = end;
                    }
                    Err(true) if ctx.end == End::Cut && !calls.is_empty() => return Step::CutAfter(calls),
                    Err(true) if ctx.end == End::Stop && !calls.is_empty() => {
                        return Step::Before(calls, at, text.len());
                    }
                    Err(true) => return Step::More,
                    Err(false) => return extent(text, calls, at, end, ctx),
                },
                Err(true) if text.len() == at && ctx.end.is_end() && !calls.is_empty() => {
                    return Step::Calls(calls, at);
                }
                Err(true) if ctx.end == End::Cut && !calls.is_empty() => return Step::CutAfter(calls),
                Err(true) => return Step::More,
                _ if !calls.is_empty() => return Step::Calls(calls, at),
                _ => return Step::Not(M3.len()),
            }
        }
    }
}

/// A call that had begun at `start` and cannot be read is text up to its wrapper's closer: none of it may run. Those before it are
/// good.
fn extent(text: &str, calls: Vec<Call>, start: usize, at: usize, ctx: Context<'_>) -> Step {
    let until = |end| match calls.is_empty() {
        true => Step::Not(end),
        false => Step::Before(calls, start, end),
    };
    let mut depth = 0usize;
    for (found, _) in text[at..].match_indices(M3) {
        match tag(text, at + found) {
            Ok(("tool_call", _)) => depth += 1,
            Ok(("/tool_call", end)) if depth == 0 => return until(end),
            Ok(("/tool_call", _)) => depth -= 1,
            _ => {}
        }
    }
    match ctx.end {
        End::Stop => until(text.len()),
        End::Open | End::Cut => Step::More,
    }
}

/// A prefixed tag at `at`: what stands between its brackets, and where it ends. `Err(true)`: the text is too short.
fn tag(text: &str, at: usize) -> Result<(&str, usize), bool> {
    let rest = &text[at..];
    let Some(inner) = rest.strip_prefix(M3).and_then(|rest| rest.strip_prefix('<')) else {
        return Err(rest.len() <= M3.len() && (M3.starts_with(rest) || rest == M3));
    };
    let end = window(inner, HEAD).find('>').ok_or(inner.len() <= HEAD)?;
    Ok((&inner[..end], text.len() - inner.len() + end + 1))
}

fn invoke(text: &str, head: &str, at: usize, ctx: Context<'_>) -> Result<(Call, usize), bool> {
    let name = head.split_once('=').map(|(_, name)| name.trim().trim_matches(['"', '\''])).ok_or(false)?;
    let (mut values, mut at) = (Values::new(name, ctx.tools), at);
    loop {
        let start = at + blanks(&text[at..]);
        let (name, end) = tag(text, start)?;
        if name == "/invoke" {
            return Ok((values.call(), end));
        }
        if values.is_string(name) {
            let (value, closed) = leaf(text, end, name)?;
            values.push(name, value);
            at = closed;
            continue;
        }
        match element(text, end, name, DEPTH)? {
            (Element::Leaf(value), end) if value.trim().is_empty() => {
                values.push_empty(name, value);
                at = end;
            }
            (Element::Leaf(value), end) => {
                values.push(name, value);
                at = end;
            }
            (Element::Json(json), end) => {
                values.push_json(name, json);
                at = end;
            }
        }
    }
}

/// The text of the string `name` from `at` on, and where it ends: where its closing tag is followed by the next parameter or the
/// end of the call, so it may hold tags itself.
fn leaf<'t>(text: &'t str, at: usize, name: &str) -> Result<(&'t str, usize), bool> {
    let mut depth = 0usize;
    for (found, _) in text[at..].match_indices(M3) {
        let found = at + found;
        let (inner, end) = match tag(text, found) {
            Ok(tag) => tag,
            Err(true) => return Err(true),
            Err(false) => continue,
        };
        if inner == name {
            depth += 1;
        } else if inner.strip_prefix('/') == Some(name) {
            match depth.checked_sub(1) {
                Some(outer) => depth = outer,
                None => match tag(text, end + blanks(&text[end..])) {
                    Ok((next, _)) if next == "/invoke" || !next.starts_with('/') => {
                        return Ok((&text[at..found], end));
                    }
                    Err(true) => return Err(true),
                    _ => {}
                },
            }
        }
    }
    Err(true)
}

enum Element<'t> {
    Leaf(&'t str),
    Json(String),
}

/// The content of the element `name` from `at` on, and where it ends.
fn element<'t>(text: &'t str, at: usize, name: &str, depth: usize) -> Result<(Element<'t>, usize), bool> {
    let depth = depth.checked_sub(1).ok_or(false)?;
    let (mut here, mut items, mut members) = (at, Vec::new(), Vec::new());
    loop {
        let next = here + text[here..].find(M3).ok_or(true)?;
        let (inner, end) = tag(text, next)?;
        if inner.strip_prefix('/') == Some(name) {
            let element = match (items.is_empty(), members.is_empty()) {
                (true, true) => Element::Leaf(&text[at..next]),
                (false, true) => Element::Json(format!("[{}]", items.join(", "))),
                (true, false) => Element::Json(format!("{{{}}}", members.join(", "))),
                (false, false) => return Err(false),
            };
            return Ok((element, end));
        }
        if inner.starts_with('/') || !text[here..next].trim().is_empty() {
            return Err(false);
        }
        let (child, end) = element(text, end, inner, depth)?;
        let json = match child {
            Element::Leaf(value) => quoted(value),
            Element::Json(json) => json,
        };
        match inner {
            "item" => items.push(json),
            key => members.push(format!("{}: {json}", quoted(key))),
        }
        here = end;
    }
}

const OPEN: &str = "<|open|>";
const CLOSE: &str = "<|close|>";
const SEP: &str = "<|sep|>";

/// Kimi K3: `<|open|>call tool="N" …<|sep|>`, arguments, `<|close|>call<|sep|>`, from the start of the text on.
pub(crate) fn kimi3(text: &str, ctx: Context<'_>) -> Step {
    match kimi3_call(text, ctx) {
        Ok((call, end)) => Step::Calls(vec![call], end),
        Err(true) => Step::More,
        Err(false) if kimi3_tag(text, 0, OPEN).is_ok_and(|(head, _)| attribute(head, "tool").is_some()) => {
            Step::Broken(Vec::new(), OPEN.len())
        }
        Err(false) => Step::Not(OPEN.len()),
    }
}

fn kimi3_call(text: &str, ctx: Context<'_>) -> Result<(Call, usize), bool> {
    let (head, mut at) = kimi3_tag(text, 0, OPEN)?;
    let name = attribute(head, "tool").filter(|_| head.starts_with("call ")).ok_or(false)?;
    let mut values = Values::new(&name, ctx.tools);
    loop {
        at += blanks(&text[at..]);
        let (head, from) = match kimi3_tag(text, at, OPEN) {
            Ok(opened) => opened,
            Err(open) => {
                return match kimi3_tag(text, at, CLOSE) {
                    Ok(("call", end)) => Ok((values.call(), end)),
                    Ok(_) => Err(false),
                    Err(closes) => Err(open || closes),
                };
            }
        };
        let key = attribute(head, "key").filter(|_| head.starts_with("argument")).ok_or(false)?;
        let opens_call = |rest: &str| {
            let head = kimi3_tag(window(rest, 2 * HEAD), 0, OPEN);
            head.is_ok_and(|(head, _)| head.starts_with("call ") && attribute(head, "tool").is_some())
        };
        let tags = Inner {
            opener: "<|open|>argument ",
            closer: "<|close|>argument<|sep|>",
            next: &["<|open|>argument ", "<|close|>call<|sep|>"],
            opens_call: &opens_call,
            lost: &|_| false,
        };
        let (end, next) = match inner::value(&text[from..], &tags, ctx) {
            Found::More => return Err(true),
            Found::Bad => return Err(false),
            Found::Is(end, next) => (end, next),
        };
        let value = &text[from..from + end];
        match attribute(head, "type").as_deref() {
            Some("string") => values.push_string(&key, value),
            None => values.push(&key, value),
            Some(_) => values.push_loose(&key, value),
        }
        at = from + next;
    }
}

/// What stands between an opening or closing token and the separator, and where that ends.
fn kimi3_tag<'t>(text: &'t str, at: usize, token: &str) -> Result<(&'t str, usize), bool> {
    let rest = &text[at..];
    let Some(inner) = rest.strip_prefix(token) else { return Err(token.starts_with(rest)) };
    let end = head_length(window(inner, HEAD), inner.len() <= HEAD)?;
    Ok((&inner[..end], text.len() - inner.len() + end + SEP.len()))
}

/// Bytes of `NAME key="value" …` before the separator. What else stands there is no list of attributes: a separator that was lost
/// must not be found behind a value. `open`: more of the text may come.
fn head_length(text: &str, open: bool) -> Result<usize, bool> {
    let mut at = name_length(text);
    loop {
        let rest = &text[at..];
        let attribute = rest.trim_start_matches(' ');
        let (key, behind) = attribute.split_at(name_length(attribute));
        match behind.strip_prefix("=\"") {
            Some(value) if !key.is_empty() && attribute.len() < rest.len() => {
                let end = value.find('"');
                if value[..end.unwrap_or(value.len())].contains("<|") {
                    return Err(false);
                }
                at = text.len() - value.len() + end.ok_or(open)? + 1;
            }
            None if key.is_empty() && behind.starts_with(SEP) => return Ok(text.len() - behind.len()),
            None if may_become(behind, SEP) || may_become(behind, "=\"") => return Err(open),
            _ => return Err(false),
        }
    }
}

/// An attribute's value; `&quot;` and `&amp;` are the only escapes.
fn attribute(head: &str, key: &str) -> Option<String> {
    let (_, rest) = head.split_once(&format!(" {key}=\""))?;
    let (value, _) = rest.split_once('"')?;
    Some(value.replace("&quot;", "\"").replace("&amp;", "&"))
}
