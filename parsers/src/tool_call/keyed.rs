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

/// The tags of a family.
#[derive(Debug)]
pub(super) struct Tags {
    pub(super) key: &'static str,
    key_end: &'static str,
    value: &'static str,
    value_end: &'static str,
    pub(super) opener: &'static str,
    closer: &'static str,
    opens_call: fn(&str) -> bool,
}

/// GLM's, which others share.
pub(super) const GLM: Tags = Tags {
    key: "<arg_key>",
    key_end: "</arg_key>",
    value: "<arg_value>",
    value_end: "</arg_value>",
    opener: "<tool_call>",
    closer: "</tool_call>",
    opens_call: |text| opens_call(text, &GLM),
};

/// K2 Horizon's, which may tell a value's type, too.
pub(super) const HORIZON: Tags = Tags {
    key: "<ifm|arg_key>",
    key_end: "</ifm|arg_key>",
    value: "<ifm|arg_value>",
    value_end: "</ifm|arg_value>",
    opener: "<ifm|tool_call>",
    closer: "</ifm|tool_call>",
    opens_call: |text| opens_call(text, &HORIZON),
};

/// Between a key and its value.
const TYPE: [&str; 2] = ["<ifm|arg_type>", "</ifm|arg_type>"];
/// Between the tool's name and the first key.
const SEPARATOR: &str = "<tool_sep>";
/// The rest of a line behind a call is looked through for so many bytes.
const LINE: usize = 512;

/// Reads `NAME<arg_key>…`, `NAME{…}` or `NAME</tool_call>` from `at` on.
pub(crate) fn call(text: &str, at: usize, tags: &Tags, ctx: Context<'_>) -> Step {
    let Some((name, mut at)) = name(text, at) else { return Step::Not(at) };
    if at == text.len() {
        return Step::More;
    }
    at += loose_blanks(&text[at..]);
    if let Some(after) = text[at..].strip_prefix(SEPARATOR) {
        at = text.len() - after.len();
        at += loose_blanks(&text[at..]);
    }
    let declared = ctx.tools.resolve(name).is_some();
    if text[at..].starts_with('{') && declared {
        return match json_block::arguments(&text[at..], &[tags.closer], ctx) {
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
        match starts_with_any(rest, &[tags.key, tags.closer, SEPARATOR, tags.opener]) {
            Ok(key) if key == tags.key => match pair(&text[at..], &values, tags, ctx) {
                Pair::More => return Step::More,
                Pair::Bad => return Step::Broken(Vec::new(), at),
                Pair::Is(key, kind, value, used) => {
                    match kind {
                        None | Some("any") => values.push(key, value),
                        Some("string" | "str") => values.push_string(key, value),
                        Some(_) => values.push_loose(key, value),
                    }
                    at += used;
                }
            },
            Ok(closer) if closer == tags.closer && (declared || !values.is_empty()) => {
                return match goes_on(&rest[closer.len()..], tags, ctx) {
                    None => Step::More,
                    Some(true) if !values.is_empty() => Step::Broken(Vec::new(), at),
                    Some(_) => Step::Calls(vec![values.call()], at + closer.len()),
                };
            }
            Ok(opener) if opener == tags.opener && declared && !values.is_empty() => {
                return Step::Calls(vec![values.call()], at);
            }
            Ok(_) if !values.is_empty() => return Step::Broken(Vec::new(), at),
            Ok(_) => return Step::Not(at),
            Err(_)
                if ctx.end == End::Stop
                    && may_become(rest, tags.closer)
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
fn goes_on(behind: &str, tags: &Tags, ctx: Context<'_>) -> Option<bool> {
    let line = behind.split('\n').next().unwrap_or(behind);
    let line = window(line, LINE);
    let closer = line.find(tags.value_end);
    let opener = [tags.key, tags.opener].iter().filter_map(|opener| line.find(opener)).min();
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
    /// The key, the type that stands beside it, the value, and the bytes of all.
    Is(&'t str, Option<&'t str>, &'t str, usize),
}

/// `<arg_key>K</arg_key><arg_value>V</arg_value>`; a lost end of the value is where the next key or the end of the call stands.
fn pair<'t>(text: &'t str, values: &Values<'_>, tags: &Tags, ctx: Context<'_>) -> Pair<'t> {
    let Some(key_end) = window(text, 256).find(tags.key_end) else {
        return if text.len() > 256 { Pair::Bad } else { Pair::More };
    };
    let key = text[tags.key.len()..key_end].trim();
    let mut at = key_end + tags.key_end.len();
    at += loose_blanks(&text[at..]);
    let mut kind = None;
    if let Some(rest) = text[at..].strip_prefix(TYPE[0]) {
        let Some(length) = window(rest, 256).find(TYPE[1]) else {
            return if rest.len() > 256 { Pair::Bad } else { Pair::More };
        };
        kind = Some(rest[..length].trim());
        at += TYPE[0].len() + length + TYPE[1].len();
        at += loose_blanks(&text[at..]);
    }
    let Some(value) = text[at..].strip_prefix(tags.value) else {
        let rest = &text[at..];
        let undecided = tags.value.starts_with(rest) || TYPE[0].starts_with(rest) || may_be_blank(rest);
        return if undecided { Pair::More } else { Pair::Bad };
    };
    at += tags.value.len();
    let lost = |rest: &str| {
        let known = window(rest, 512).strip_prefix(tags.key).and_then(|rest| rest.split_once(tags.key_end));
        known.is_some_and(|(other, behind)| {
            let other = other.trim();
            let to_come = other != key && values.has_parameter(other) && !values.has(other);
            to_come && behind.trim_start().starts_with(tags.value)
        })
    };
    let next = [tags.key, tags.opener, tags.closer];
    let inner = Inner {
        opener: tags.value,
        closer: tags.value_end,
        next: &next,
        opens_call: &tags.opens_call,
        lost: &lost,
    };
    match inner::value(value, &inner, ctx) {
        Found::More => Pair::More,
        Found::Bad => Pair::Bad,
        // Without its closer the value ends before the line on which the next key stands.
        Found::Is(end, behind) if value[end..].starts_with(tags.value_end) => {
            Pair::Is(key, kind, &value[..end], at + behind)
        }
        Found::Is(end, behind) => {
            Pair::Is(key, kind, value[..end].strip_suffix('\n').unwrap_or(&value[..end]), at + behind)
        }
    }
}

/// A whole call begins here, as it stands in a value that shows one.
fn opens_call(text: &str, tags: &Tags) -> bool {
    let Some(inside) = text.strip_prefix(tags.opener) else { return false };
    let inside = &inside[loose_blanks(inside)..];
    let behind = &inside[name_length(inside)..];
    let behind = &behind[loose_blanks(behind)..];
    behind.len() < inside.len() && starts_with_any(behind, &[tags.key, tags.closer, SEPARATOR]).is_ok()
}
