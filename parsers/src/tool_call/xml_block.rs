//! Calls written as XML-like blocks: Qwen3-Coder and its heirs, invoke blocks (MiniMax M2, DeepSeek V3.2, Step3), MiniCPM.
//!
//! A value goes verbatim up to the closing tag of its parameter; tags inside it are data. Typing is the schema's. Damage by
//! speculative decoding is mended only where the split lands on a declared name.

use memchr::memchr_iter;

use super::grammar::{Call, Context, End, Step, loose_blanks, may_be_blank, may_become, starts_with_any};
use super::json_block::{self, Body};
use super::normalise;
use super::values::Values;
use super::xml_head::{FUNCTIONS, Head, PARAMETERS, head};

/// Reads function blocks from `at` on. `wrapper`: the tag around them, whose opener came (`true`) or may have been lost.
pub(crate) fn functions(text: &str, at: usize, wrapper: Wrapper, ctx: Context<'_>) -> Step {
    let (mut calls, start, mut at) = (Vec::new(), at, at);
    loop {
        match function(text, at, wrapper, ctx) {
            Function::More if ctx.end == End::Cut && !calls.is_empty() => return Step::CutAfter(calls),
            Function::More => return Step::More,
            Function::Bad if calls.is_empty() => return Step::Not(start.max(1)),
            Function::Bad => return Step::Calls(calls, at),
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
            Err(_) => {}
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

enum Function {
    More,
    Bad,
    Is(Call, usize),
}

/// The tags that end the parts of one block.
struct Tags<'c> {
    function: String,
    parameters: [String; 2],
    wrapper: Wrapper,
    /// Behind the last closing tag of a parameter; known only when nothing more comes.
    last: usize,
    ctx: Context<'c>,
}

impl Tags<'_> {
    fn declared(&self, name: &str) -> bool {
        self.ctx.tools.resolve(name).is_some()
    }

    /// A tag of the wrapper stands here.
    fn is_foreign(&self, rest: &str) -> bool {
        starts_with_any(rest, self.wrapper.closers).is_ok()
            || starts_with_any(rest, self.wrapper.openers).is_ok()
    }

    /// A tag of the block or its wrapper may stand here when more has come.
    fn may_begin(&self, rest: &str) -> bool {
        let partial = |list: &[&str]| starts_with_any(rest, list) == Err(true);
        partial(self.wrapper.closers)
            || partial(self.wrapper.openers)
            || may_become(rest, &self.function)
            || self.parameters.iter().any(|closer| may_become(rest, closer))
    }

    /// The function's own end closes the value too: its wrapper ends behind it, and the next one or nothing follows.
    fn ends_value(&self, rest: &str, at: usize) -> bool {
        let Some(after) = rest.strip_prefix(&self.function).map(str::trim_start) else { return false };
        let wrapped = starts_with_any(after, self.wrapper.closers).ok();
        let behind = wrapped.map(|closer| after[closer.len()..].trim_start()).unwrap_or_default();
        let next = starts_with_any(behind, self.wrapper.openers).ok();
        let inside = next.map(|opener| behind[opener.len()..].trim_start()).unwrap_or_default();
        if matches!(head(inside, FUNCTIONS, |name| self.declared(name)), Head::Is { .. }) {
            return true;
        }
        self.ctx.end == End::Stop && at >= self.last && (after.is_empty() || wrapped.is_some())
    }
}

fn function(text: &str, at: usize, wrapper: Wrapper, ctx: Context<'_>) -> Function {
    let (name, prefix, element, mut end) =
        match head(&text[at..], FUNCTIONS, |name| ctx.tools.resolve(name).is_some()) {
            Head::Is { name, prefix, element, length, .. } => (name, prefix, element, at + length),
            Head::More => return Function::More,
            Head::No | Head::Bad => return Function::Bad,
        };
    if !wrapper.opened && ctx.tools.resolve(&name).is_none() {
        return Function::Bad;
    }
    let function = format!("</{prefix}{element}>");
    let parameters = PARAMETERS.map(|parameter| format!("</{prefix}{parameter}>"));
    let last = |closer: &String| text.rfind(closer.as_str()).map_or(0, |at| at + 1);
    let last = if ctx.end == End::Stop { parameters.iter().map(last).max().unwrap_or(0) } else { 0 };
    let tags = Tags { function, parameters, wrapper, last, ctx };
    let mut values = Values::new(&name, ctx.tools);
    loop {
        end += loose_blanks(&text[end..]);
        let rest = &text[end..];
        if rest.starts_with(&tags.function) {
            return Function::Is(values.call(), end + tags.function.len());
        }
        if let Some(surplus) = tags.parameters.iter().find(|surplus| rest.starts_with(surplus.as_str())) {
            end += surplus.len();
            continue;
        }
        if tags.is_foreign(rest) && (wrapper.opened || values.has_required()) {
            return Function::Is(values.call(), end);
        }
        // Every value is closed and the model ended its turn: only the block's own end is missing.
        let ends = rest.is_empty() || may_become(rest, &tags.function);
        if ends && ctx.end == End::Stop && values.has_required() && !values.is_empty() {
            return Function::Is(values.call(), text.len());
        }
        if rest.starts_with('{') && values.is_empty() {
            return object(text, end, &name, &tags);
        }
        let (key, attributes) = match head(rest, PARAMETERS, |key| values.has_parameter(key)) {
            Head::Is { name, attributes, length, .. } => {
                end += length;
                (name, attributes)
            }
            Head::More => return Function::More,
            Head::Bad => return Function::Bad,
            Head::No if may_be_blank(rest) || tags.may_begin(rest) => return Function::More,
            Head::No => {
                return match head(rest, FUNCTIONS, |name| tags.declared(name)) {
                    Head::Is { .. } if values.has_required() => Function::Is(values.call(), end),
                    Head::More => Function::More,
                    _ => Function::Bad,
                };
            }
        };
        let Some((value, next)) = value(text, end, &values, &tags) else { return Function::More };
        end = next;
        // The grammar of the function element puts each value between two newlines; invoke blocks put none.
        let value = cdata(if element == "function" { strip_newlines(value) } else { value });
        let typed = attributes.iter().any(|(key, flag)| key == "string" && flag == "false");
        match typed || key == "arguments" || key == "input" {
            true => values.push_loose(&key, value),
            false => values.push(&key, value),
        }
    }
}

/// A JSON object in place of the parameters, from `at` on.
fn object(text: &str, at: usize, name: &str, tags: &Tags<'_>) -> Function {
    let (json, notes, used) = match json_block::arguments(&text[at..], &[&tags.function], tags.ctx) {
        Body::More => return Function::More,
        Body::Bad => return Function::Bad,
        Body::Object(json, notes, used) => (json, notes, used),
    };
    let end = at + used + loose_blanks(&text[at + used..]);
    let rest = &text[end..];
    let closed = rest.starts_with(&tags.function);
    let closable = tags.ctx.end == End::Stop && rest.is_empty();
    if !closed && !closable {
        return if may_become(rest, &tags.function) { Function::More } else { Function::Bad };
    }
    let mut call = normalise::call(name, &json, tags.ctx.tools);
    call.notes.splice(0..0, notes);
    Function::Is(call, end + if closed { tags.function.len() } else { 0 })
}

/// The value that begins at `at`, and where the text goes on behind it; `None` while it is open.
fn value<'t>(text: &'t str, at: usize, values: &Values<'_>, tags: &Tags<'_>) -> Option<(&'t str, usize)> {
    let body = &text[at..];
    let from = if body.trim_start().starts_with("<![CDATA[") { body.find("]]>")? + 3 } else { 0 };
    let mut inside_block = true;
    for found in memchr_iter(b'<', &body.as_bytes()[from..]) {
        let found = from + found;
        let rest = &body[found..];
        if let Some(length) = tags.parameters.iter().find_map(|closer| closed_by(rest, closer)) {
            return Some((&body[..found], at + found + length));
        }
        if rest.starts_with(&tags.function) {
            inside_block = false;
            if tags.ends_value(rest, at + found) {
                return Some((&body[..found], at + found));
            }
        }
        // The closing tag was lost: a declared parameter begins on a line of its own.
        let line_start = || body[..found].trim_end_matches([' ', '\t']).ends_with('\n');
        let declared = |key: &str| values.has_parameter(key);
        if inside_block
            && line_start()
            && matches!(head(rest, PARAMETERS, declared), Head::Is { name, .. } if declared(&name))
        {
            return Some((&body[..found], at + found));
        }
    }
    None
}

/// Bytes of this closer, or of one that repeats the name: `</parameter=k>`.
pub(crate) fn closed_by(rest: &str, closer: &str) -> Option<usize> {
    let behind = rest.strip_prefix(closer.strip_suffix('>')?)?;
    match behind.as_bytes().first()? {
        b'>' => Some(closer.len()),
        b'=' => behind
            .find(['>', '\n'])
            .filter(|end| behind[*end..].starts_with('>'))
            .map(|end| closer.len() + end),
        _ => None,
    }
}

/// Exactly one newline on each side is framing; all else is the value.
pub(crate) fn strip_newlines(value: &str) -> &str {
    let value = value.strip_prefix("\r\n").or_else(|| value.strip_prefix('\n')).unwrap_or(value);
    value.strip_suffix("\r\n").or_else(|| value.strip_suffix('\n')).unwrap_or(value)
}

fn cdata(value: &str) -> &str {
    let inner = value.trim().strip_prefix("<![CDATA[").and_then(|inner| inner.strip_suffix("]]>"));
    inner.unwrap_or(value)
}
