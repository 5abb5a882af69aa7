//! What stands behind a wrapper's opener. The tag does not name the grammar: the next bytes do. Function blocks, one after the
//! other, come with or without one.

use std::cell::Cell;

use super::formats::{self, Format};
use super::grammar::{
    self, Context, End, Step, loose_blanks, may_be_blank, name_length, starts_with_any, window,
};
use super::xml_block::{Function, function};
use super::xml_head::{Attributes, FUNCTIONS, Head, attributes, head};
use super::xml_tags::Kind;
use super::{json_block, keyed, named, own_tags, pythonic};

/// Longest opener with attributes, in bytes.
const LONGEST: usize = 256;
/// The longest name of a tool behind an opener, in bytes.
const LONGEST_NAME: usize = 128;

/// Reads what stands behind the opener that ends at `at`: its `>`, or the blank before its attributes.
pub(crate) fn read(text: &str, at: usize, format: &'static Format, ctx: Context<'_>) -> Step {
    if !text[..at].ends_with(' ') {
        return inside(text, at, format, ctx);
    }
    match attributes(window(&text[at..], LONGEST)) {
        Attributes::More if text.len() - at < LONGEST => Step::More,
        Attributes::Are(attributes, false, length) => {
            let step = inside(text, at + length, format, ctx);
            let name = attributes.into_iter().find(|(key, _)| *key == "name");
            let tool = name.and_then(|(_, name)| ctx.tools.resolve(name));
            match (step, tool) {
                (Step::Not(_) | Step::Broken(..), Some(tool)) => {
                    named::body(text, at + length, tool, None, format.closers, ctx)
                }
                (step, _) => step,
            }
        }
        _ => Step::Not(at),
    }
}

/// The same behind an opener that is complete.
fn inside(text: &str, at: usize, format: &'static Format, ctx: Context<'_>) -> Step {
    let mut from = at + loose_blanks(&text[at..]);
    if text[from..].starts_with('`') {
        match json_block::skip_fence(&text[from..]) {
            Ok(used) => from += used,
            Err(()) if ctx.end == End::Stop => return Step::Not(at),
            Err(()) => return Step::More,
        }
    }
    // The word of a fence that is not there, on a line of its own.
    if let Some(body) = text[from..].strip_prefix("json").filter(|_| ctx.tools.resolve("json").is_none()) {
        let behind = body.trim_start();
        if behind.is_empty() {
            return Step::More;
        }
        if behind.starts_with(['{', '[']) && body[..body.len() - behind.len()].contains('\n') {
            from = text.len() - behind.len();
        }
    }
    let rest = &text[from..];
    let Some(first) = rest.chars().next() else { return Step::More };
    let step = match first {
        '{' => json_block::list(text, from, format.closers, ctx),
        '[' => match rest[1..].trim_start().chars().next() {
            None => Step::More,
            Some('{' | ']') => json_block::list(text, from, format.closers, ctx),
            Some(c) if c.is_alphabetic() || c == '_' => pythonic::calls(text, from, format.closers, ctx),
            Some(_) => Step::Not(at),
        },
        '<' | ']' => tagged(text, from, format, ctx),
        '\\' if rest.len() == 1 => Step::More,
        _ => {
            let length = name_length(rest);
            let behind = &rest[length..];
            // Too long for a name, whatever follows: what follows may come in another piece.
            if length == 0 || length > LONGEST_NAME {
                Step::Not(at)
            } else if length == rest.len() {
                Step::More
            } else if behind.starts_with('(') {
                pythonic::calls(text, from, format.closers, ctx)
            } else {
                let mut families = [&keyed::GLM, &keyed::HORIZON].into_iter();
                match families.find(|tags| format.openers.contains(&tags.opener)) {
                    Some(tags) => keyed::call(text, from, tags, ctx),
                    None => Step::Not(at),
                }
            }
        }
    };
    match step {
        // Only the opener is known to be text; what it encloses is looked at again, unless its end was found.
        Step::Not(used) if used <= from => Step::Not(at),
        step => step,
    }
}

/// A function block, or another opener, behind this one.
fn tagged(text: &str, from: usize, format: &'static Format, ctx: Context<'_>) -> Step {
    let rest = &text[from..];
    match head(rest, FUNCTIONS, |name| ctx.tools.resolve(name).is_some()) {
        Head::Is { .. } => {
            let wrapper = Wrapper { opened: true, openers: format.openers, closers: format.closers };
            return functions(text, from, wrapper, ctx);
        }
        Head::More if !ctx.end.is_end() => return Step::More,
        Head::More => return Step::More,
        Head::Bad => return Step::Not(from),
        Head::No => {}
    }
    match formats::at(rest) {
        Ok(_) => Step::Opener(from),
        Err(true) => Step::More,
        Err(false) => own_tags::call(text, from, format.closers, ctx),
    }
}

/// A section's opener: markup if a call's opener or the section's closer follows.
pub(crate) fn section(text: &str, at: usize, format: &'static Format, ctx: Context<'_>) -> Step {
    let from = at + loose_blanks(&text[at..]);
    let rest = &text[from..];
    if may_be_blank(rest) {
        return Step::More;
    }
    match starts_with_any(rest, format.closers) {
        Ok(closer) => return Step::Calls(Vec::new(), from + closer.len()),
        Err(true) if !ctx.end.is_end() => return Step::More,
        Err(_) => {}
    }
    match formats::at(rest) {
        Ok(_) => Step::Opener(from),
        Err(true) => Step::More,
        Err(false) => Step::Not(at),
    }
}

/// Reads function blocks from `at` on. `wrapper`: the tag around them, whose opener came (`true`) or may have been lost.
pub(crate) fn functions(text: &str, at: usize, wrapper: Wrapper, ctx: Context<'_>) -> Step {
    let (mut calls, start, mut at) = (Vec::new(), at, at);
    let counts = Cell::new(true);
    loop {
        match function(text, at, wrapper, &counts, ctx) {
            Function::More if ctx.end == End::Cut && !calls.is_empty() => return Step::CutAfter(calls),
            // The model ended its turn inside a further one: those before it are good.
            Function::More if ctx.end == End::Stop && !calls.is_empty() => {
                return Step::Before(calls, at, text.len());
            }
            Function::More => return Step::More,
            Function::Broken(kind) if calls.is_empty() => {
                return extent(text, start, wrapper, kind);
            }
            Function::Bad if calls.is_empty() => return Step::Not(start.max(1)),
            Function::Bad | Function::Broken(_) => return Step::Calls(calls, at),
            Function::Is(call, end) => {
                calls.push(call);
                at = end;
            }
        }
        if !wrapper.opened {
            return Step::Calls(calls, at);
        }
        let end = at + loose_blanks(&text[at..]);
        let rest = &text[end..];
        match starts_with_any(rest, wrapper.closers) {
            Ok(closer) => return Step::Calls(calls, end + closer.len()),
            Err(may) if !ctx.end.is_end() && (may || may_be_blank(rest)) => return Step::More,
            Err(true) => return Step::Calls(calls, text.len()),
            Err(false) => {}
        }
        match head(rest, FUNCTIONS, |name| ctx.tools.resolve(name).is_some()) {
            Head::More if !ctx.end.is_end() => return Step::More,
            Head::Is { .. } => at = end,
            _ => return Step::Calls(calls, at),
        }
    }
}

/// The tags around function blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wrapper {
    pub(crate) opened: bool,
    pub(crate) openers: &'static [&'static str],
    pub(crate) closers: &'static [&'static str],
}

/// What a block that cannot be read encloses is text: none of it may run. Without a closer that is all the rest.
fn extent(text: &str, start: usize, wrapper: Wrapper, kind: &Kind) -> Step {
    let (bare, own) = ([kind.opening.as_str()], [kind.function.as_str()]);
    let (openers, closers): (&[&str], &[&str]) = match wrapper.opened && !wrapper.closers.is_empty() {
        true => (wrapper.openers, wrapper.closers),
        false => (&bare, &own),
    };
    match grammar::extent(&text[start + 1..], openers, closers) {
        Some(end) => Step::Not(start + 1 + end),
        None => Step::More,
    }
}
