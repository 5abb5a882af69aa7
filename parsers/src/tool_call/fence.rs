//! Calls in a fence: weak evidence, since most fences are documentation.
//!
//! With JSON or program text in it a fence counts if nothing follows it, with a family's own markers or a bare list of calls only
//! if nothing precedes it either: then it is the whole message, and no words say that it is an example. One that is never closed
//! is talk. Nothing in a fence may run by less evidence than the same text would need outside of it.

use super::Settings;
use super::formats;
use super::grammar::{self, Call, Context, Step, blanks, loose_blanks, may_become};
use super::weak::{Plausible, at_the_end, fits, is_complete, plausible};
use super::{json_block, named, pythonic};

/// A call has at most so many openers: a doubled wrapper, a section.
const OPENERS: usize = 4;

/// A fence at the start of a line: one or several with calls and nothing behind them. `Not`: the fence is documentation. `start`:
/// nothing but reasoning stands before it.
pub(super) fn read(text: &str, start: bool, settings: &Settings, ctx: Context<'_>) -> Step {
    let (mut calls, mut at) = (Vec::new(), 0);
    loop {
        let rest = &text[at..];
        let Ok(body) = json_block::skip_fence(rest) else { return Step::More };
        if body == 0 || !rest.starts_with("```") {
            return if "```".starts_with(rest) { Step::More } else { Step::Not(3) };
        }
        let label = rest[3..].split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        let inside = at + body;
        let marked = if start { marked(text, inside, settings, ctx) } else { None };
        let strong = marked.is_some();
        let step = marked.unwrap_or_else(|| plain(text, inside, start, label, ctx));
        match step {
            Step::Calls(found, used)
                if !found.is_empty() && (strong || found.iter().all(|call| fits(call, ctx))) =>
            {
                if !text[..used].ends_with("```") && !ctx.end.is_end() {
                    return Step::Not(3);
                }
                calls.extend(found);
                at = used + blanks(&text[used..]);
                if !text[at..].starts_with("```") {
                    return match at_the_end(text, calls, at, ctx) {
                        Step::Shown(_) if may_become(&text[at..], "```") && !ctx.end.is_end() => Step::More,
                        step => step,
                    };
                }
            }
            Step::More => return Step::More,
            _ => return Step::Not(3),
        }
    }
}

/// What stands from `at` on without a marker: JSON, or Python where a label or the place says that it may be a call.
fn plain(text: &str, at: usize, start: bool, label: &str, ctx: Context<'_>) -> Step {
    let program = matches!(label, "tool_code" | "tool_call" | "python");
    let rest = &text[at..];
    let list = rest.strip_prefix('[').map(str::trim_start);
    match (rest.chars().next(), list.map(|list| list.chars().next())) {
        (None, _) | (_, Some(None)) => Step::More,
        (_, Some(Some(c))) if (start || program) && (c.is_alphabetic() || c == '_') => {
            pythonic::calls(text, at, &["```"], ctx)
        }
        (Some('{' | '['), _) => match plausible(rest, ctx) {
            Plausible::No | Plausible::Unnamed => Step::Not(3),
            Plausible::Yet => Step::More,
            Plausible::Yes => json_block::list(text, at, &["```"], ctx),
        },
        _ if program => pythonic::calls(text, at, &["```"], ctx),
        _ => Step::Not(3),
    }
}

/// Calls behind a family's markers from `at` on, and the end of the fence around them. `None`: no marker stands there.
fn marked(text: &str, at: usize, settings: &Settings, ctx: Context<'_>) -> Option<Step> {
    let (mut calls, mut at, mut openers) = (Vec::new(), at, 0);
    loop {
        let rest = &text[at..];
        let quoted = rest.starts_with(">>>") && settings.looks_for_name("functionary");
        let step = match formats::at(rest) {
            _ if quoted => grammar::settle(named::functionary(rest, 3, ctx), rest, &[], &[], ctx),
            Ok((format, opener)) if settings.looks_for(format) => format.read(rest, opener, ctx),
            Ok(_) => return Some(Step::Not(3)),
            Err(may) if !ctx.end.is_end() && (may || may_become(rest, ">>>")) => Step::More,
            Err(_) if calls.is_empty() && openers == 0 => return None,
            // The closers of a section.
            Err(_) => match formats::closer_at(rest) {
                Ok(closer) if !rest.starts_with('`') => {
                    at += closer + blanks(&rest[closer..]);
                    continue;
                }
                Err(true) if !ctx.end.is_end() && !rest.starts_with('`') => Step::More,
                _ => return Some(closed(text, calls, at, ctx)),
            },
        };
        match step {
            Step::Opener(used) if openers < OPENERS => {
                openers += 1;
                at += used + loose_blanks(&rest[used..]);
            }
            Step::Calls(found, used)
                if !found.is_empty() && found.iter().all(|call| is_complete(call, ctx)) =>
            {
                calls.extend(found);
                openers = 0;
                at += used + blanks(&rest[used..]);
            }
            Step::More => return Some(Step::More),
            _ => return Some(Step::Not(3)),
        }
    }
}

/// The end of the fence at `at`.
fn closed(text: &str, calls: Vec<Call>, at: usize, ctx: Context<'_>) -> Step {
    let rest = &text[at..];
    if rest.starts_with("```") {
        Step::Calls(calls, at + 3)
    } else if "```".starts_with(rest) && !ctx.end.is_end() {
        Step::More
    } else {
        Step::Not(3)
    }
}
