//! Calls written as a tool's name and alternating keys and values: GLM 4.5 to 5, Ling 3, Laguna, Hunyuan 3.
//!
//! Values of strings are verbatim, down to the last newline; all others are typed by the tool's schema.

use super::grammar::{
    Context, End, Step, loose_blanks, may_be_blank, may_become, name_length, starts_with_any, window,
};
use super::inner::{self, Found, Inner};
use super::json_block::{self, Body};
use super::normalise;
use super::values::Values;

pub(super) const KEY: &str = "<arg_key>";
const KEY_END: &str = "</arg_key>";
const VALUE: &str = "<arg_value>";
const VALUE_END: &str = "</arg_value>";
pub(super) const OPENER: &str = "<tool_call>";
const CLOSER: &str = "</tool_call>";
/// The rest of a line behind a call is looked through for so many bytes.
const LINE: usize = 512;

/// Reads `NAME<arg_key>…`, `NAME{…}` or `NAME</tool_call>` from `at` on.
pub(crate) fn call(text: &str, at: usize, ctx: Context<'_>) -> Step {
    let Some((name, mut at)) = name(text, at) else { return Step::Not(at) };
    if at == text.len() {
        return Step::More;
    }
    at += loose_blanks(&text[at..]);
    if let Some(after) = text[at..].strip_prefix("<tool_sep>") {
        at = text.len() - after.len();
        at += loose_blanks(&text[at..]);
    }
    let declared = ctx.tools.resolve(name).is_some();
    if text[at..].starts_with('{') && declared {
        return match json_block::arguments(&text[at..], &[CLOSER], ctx) {
            Body::More => Step::More,
            Body::Bad => Step::Broken(Vec::new(), at),
            Body::Object(json, notes, used) => {
                let mut call = normalise::call(name, &json, ctx.tools);
                call.notes.splice(0..0, notes);
                Step::Calls(vec![call], at + used)
            }
        };
    }
    let mut values = Values::new(name, ctx.tools);
    loop {
        let rest = &text[at..];
        match starts_with_any(rest, &[KEY, CLOSER, "<tool_sep>", OPENER]) {
            Ok(KEY) => match pair(&text[at..], &values, ctx) {
                Pair::More => return Step::More,
                Pair::Bad => return Step::Broken(Vec::new(), at),
                Pair::Is(key, value, used) => {
                    values.push(key, value);
                    at += used;
                }
            },
            Ok(CLOSER) if declared || !values.is_empty() => {
                return match goes_on(&rest[CLOSER.len()..], ctx) {
                    None => Step::More,
                    Some(true) if !values.is_empty() => Step::Broken(Vec::new(), at),
                    Some(_) => Step::Calls(vec![values.call()], at + CLOSER.len()),
                };
            }
            Ok(OPENER) if declared && !values.is_empty() => {
                return Step::Calls(vec![values.call()], at);
            }
            Ok(_) if !values.is_empty() => return Step::Broken(Vec::new(), at),
            Ok(_) => return Step::Not(at),
            Err(_)
                if ctx.end == End::Stop
                    && may_become(rest, CLOSER)
                    && !values.is_empty()
                    && values.has_required() =>
            {
                return Step::Calls(vec![values.call()], text.len());
            }
            Err(true) => return Step::More,
            Err(false) if may_be_blank(rest) => return Step::More,
            Err(false) if !values.is_empty() && values.has_required() => {
                return Step::Calls(vec![values.call()], at);
            }
            Err(false) if !values.is_empty() => return Step::Broken(Vec::new(), at),
            Err(false) => return Step::Not(at),
        }
        at += loose_blanks(&text[at..]);
    }
}

/// The line goes on behind the end of a call, and closes a value there: whether that end was one, or shown in a value, nobody
/// can tell. `None` while that is open.
fn goes_on(behind: &str, ctx: Context<'_>) -> Option<bool> {
    let line = behind.split('\n').next().unwrap_or(behind);
    let line = window(line, LINE);
    let closer = line.find(VALUE_END);
    let opener = [KEY, OPENER].iter().filter_map(|opener| line.find(opener)).min();
    match (closer, opener) {
        (Some(closer), opener) => Some(opener.is_none_or(|opener| closer < opener)),
        (None, None) if line.len() == behind.len() && !ctx.end.is_end() => None,
        (None, _) => Some(false),
    }
}

/// The tool's name, and where it ends. A literal `\n` behind it is none of it.
fn name(text: &str, at: usize) -> Option<(&str, usize)> {
    let length = name_length(&text[at..]);
    (length > 0).then(|| (&text[at..at + length], at + length))
}

enum Pair<'t> {
    More,
    Bad,
    Is(&'t str, &'t str, usize),
}

/// `<arg_key>K</arg_key><arg_value>V</arg_value>`; a lost end of the value is where the next key or the end of the call stands.
fn pair<'t>(text: &'t str, values: &Values<'_>, ctx: Context<'_>) -> Pair<'t> {
    let Some(key_end) = window(text, 256).find(KEY_END) else {
        return if text.len() > 256 { Pair::Bad } else { Pair::More };
    };
    let key = text[KEY.len()..key_end].trim();
    let mut at = key_end + KEY_END.len();
    at += loose_blanks(&text[at..]);
    let Some(value) = text[at..].strip_prefix(VALUE) else {
        let undecided = VALUE.starts_with(&text[at..]) || may_be_blank(&text[at..]);
        return if undecided { Pair::More } else { Pair::Bad };
    };
    at += VALUE.len();
    let lost = |rest: &str| {
        let known = window(rest, 512).strip_prefix(KEY).and_then(|rest| rest.split_once(KEY_END));
        known.is_some_and(|(other, behind)| {
            let other = other.trim();
            let to_come = other != key && values.has_parameter(other) && !values.has(other);
            to_come && behind.trim_start().starts_with(VALUE)
        })
    };
    let next = [KEY, OPENER, CLOSER];
    let tags = Inner { opener: VALUE, closer: VALUE_END, next: &next, opens_call: &opens_call, lost: &lost };
    match inner::value(value, &tags, ctx) {
        Found::More => Pair::More,
        Found::Bad => Pair::Bad,
        // Without its closer the value ends before the line on which the next key stands.
        Found::Is(end, behind) if value[end..].starts_with(VALUE_END) => {
            Pair::Is(key, &value[..end], at + behind)
        }
        Found::Is(end, behind) => {
            Pair::Is(key, value[..end].strip_suffix('\n').unwrap_or(&value[..end]), at + behind)
        }
    }
}

/// A whole call begins here, as it stands in a value that shows one.
fn opens_call(text: &str) -> bool {
    let Some(inside) = text.strip_prefix(OPENER) else { return false };
    let inside = &inside[loose_blanks(inside)..];
    let behind = &inside[name_length(inside)..];
    let behind = &behind[loose_blanks(behind)..];
    behind.len() < inside.len() && starts_with_any(behind, &[KEY, CLOSER, "<tool_sep>"]).is_ok()
}
