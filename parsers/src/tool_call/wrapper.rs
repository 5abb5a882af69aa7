//! What stands behind a wrapper's opener. The tag does not name the grammar: the next bytes do.

use super::formats::{self, Format};
use super::grammar::{Context, Step, loose_blanks, may_be_blank, name_length, starts_with_any};
use super::json_block;
use super::xml_block::{self, Wrapper};
use super::xml_head::{FUNCTIONS, Head, head};
use super::{keyed, pythonic};

/// Reads what stands behind the opener that ends at `at`.
pub(crate) fn read(text: &str, at: usize, format: &'static Format, ctx: Context<'_>) -> Step {
    let mut from = at + loose_blanks(&text[at..]);
    if text[from..].starts_with('`') {
        match json_block::skip_fence(&text[from..]) {
            Ok(used) => from += used,
            Err(()) if ctx.end.is_end() => return Step::Not(at),
            Err(()) => return Step::More,
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
            if length == 0 {
                Step::Not(at)
            } else if length == rest.len() {
                if length > 128 { Step::Not(at) } else { Step::More }
            } else if behind.starts_with('(') {
                pythonic::calls(text, from, format.closers, ctx)
            } else if format.openers.contains(&"<tool_call>") {
                keyed::call(text, from, ctx)
            } else {
                Step::Not(at)
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
            return xml_block::functions(text, from, wrapper, ctx);
        }
        Head::More if !ctx.end.is_end() => return Step::More,
        Head::More => return Step::More,
        Head::Bad => return Step::Not(from),
        Head::No => {}
    }
    match formats::at(rest) {
        Ok(_) => Step::Opener(from),
        Err(true) => Step::More,
        Err(false) => Step::Not(from),
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
