//! Calls written as XML-like blocks: Qwen3-Coder and its heirs, invoke blocks (MiniMax M2, DeepSeek V3.2, Step3), MiniCPM.
//!
//! A value goes verbatim up to the closing tag of its parameter behind which the block goes on; tags inside it are data, and so
//! are whole blocks, whose closers are counted. Typing is the schema's. Damage by speculative decoding is mended only where the split lands on a
//! declared name; a lost closing tag only if the text cannot be read without.

use std::cell::Cell;

use super::grammar::{Call, Context, End, loose_blanks, may_be_blank, may_become};
use super::json_block::{self, Body};
use super::normalise;
use super::values::Values;
pub(crate) use super::wrapper::{Wrapper, functions};
use super::xml_head::{FUNCTIONS, Head, PARAMETERS, assigns, behind_repeats, head};
use super::xml_tags::{Kind, Tags};
use super::xml_value::{Opened, Value, value};

/// What stands where a block should.
pub(crate) enum Function {
    More,
    Bad,
    /// It had begun, for certain, and cannot be read.
    Broken(&'static Kind),
    Is(Call, usize),
}

/// What one block has given so far.
pub(crate) struct Block<'a> {
    pub(crate) values: Values<'a>,
    required: Vec<&'a str>,
    /// The parameters, the open one too.
    pub(crate) keys: Vec<String>,
    /// Parameters that begin inside a value and are not closed there.
    pub(crate) lost: Vec<String>,
    /// A parameter that may have lost its closing tag was seen.
    pub(crate) doubt: bool,
    /// A value holds a closing tag that nothing in it had opened.
    pub(crate) strained: bool,
    /// Parameters inside values are counted.
    pub(crate) counts: bool,
    /// Line breaks between its tags are written out as `\n`, and so are those that frame its values.
    written: bool,
}

impl Block<'_> {
    pub(crate) fn is_complete(&self) -> bool {
        self.required.iter().all(|key| self.keys.iter().any(|known| known == key))
    }
}

/// As it stands, if that can be read; else with the closing tags that were lost.
pub(crate) fn function(
    text: &str,
    at: usize,
    wrapper: Wrapper,
    counts: &Cell<bool>,
    ctx: Context<'_>,
) -> Function {
    let (first, doubt) = block(text, at, wrapper, false, counts, ctx);
    if !doubt || (matches!(first, Function::More) && !ctx.end.is_end()) {
        return first;
    }
    match block(text, at, wrapper, true, counts, ctx).0 {
        Function::More if !ctx.end.is_end() => Function::More,
        Function::Is(call, end) => Function::Is(call, end),
        _ => first,
    }
}

/// Reads one block; `true` if it may be read otherwise.
fn block(
    text: &str,
    at: usize,
    wrapper: Wrapper,
    mend: bool,
    counts: &Cell<bool>,
    ctx: Context<'_>,
) -> (Function, bool) {
    let (name, prefix, element, mut attributes, closed, end) =
        match head(&text[at..], FUNCTIONS, |name| ctx.tools.resolve(name).is_some()) {
            Head::Is { name, prefix, element, attributes, closed, length } => {
                (name, prefix, element, attributes, closed, at + length)
            }
            Head::More => return (Function::More, false),
            Head::No | Head::Bad => return (Function::Bad, false),
        };
    let declared = ctx.tools.resolve(name);
    if !wrapper.opened && declared.is_none() {
        return (Function::Bad, false);
    }
    // Arguments that stand in the tag itself, if that is what they are.
    let mut values = Values::new(name, ctx.tools);
    let known = attributes.iter().filter(|(key, _)| values.has_parameter(key)).count();
    match known {
        0 => attributes.clear(),
        known if known < attributes.len() => return (Function::Bad, false),
        _ => {}
    }
    attributes.iter().for_each(|(key, value)| values.push(key, value));
    if closed {
        return (Function::Is(values.call(), end), false);
    }
    let Some(end) = behind_repeats(text, at, end) else { return (Function::Bad, false) };
    let kind = Kind::of(prefix, element);
    let last = |closer: &String| text.rfind(closer.as_str()).map_or(0, |at| at + 1);
    let last = if ctx.end == End::Stop { kind.parameters.iter().map(last).max().unwrap_or(0) } else { 0 };
    let tags = Tags { kind, wrapper, last, mend, counts, ctx };
    let required = declared.and_then(|name| ctx.tools.tool(name)).map(|tool| tool.required().collect());
    let mut block = Block {
        values,
        required: required.unwrap_or_default(),
        keys: attributes.into_iter().map(|(key, _)| key.to_owned()).collect(),
        lost: Vec::new(),
        doubt: false,
        strained: false,
        counts: true,
        written: text[end..].trim_start().starts_with("\\n"),
    };
    let read = parameters_of(text, end, name, &tags, &mut block);
    let clean = matches!(read, Function::Is(..))
        && block.is_complete()
        && block.lost.iter().all(|key| block.keys.contains(key));
    let read = match read {
        Function::Is(..) if block.strained && !block.is_complete() => Function::Broken(tags.kind),
        Function::Bad if !block.keys.is_empty() => Function::Broken(tags.kind),
        read => read,
    };
    (read, block.doubt && !clean)
}

fn parameters_of(text: &str, at: usize, name: &str, tags: &Tags<'_>, block: &mut Block<'_>) -> Function {
    let (mut end, ctx, wrapper) = (at, tags.ctx, tags.wrapper);
    loop {
        end += loose_blanks(&text[end..]);
        let rest = &text[end..];
        let values = &mut block.values;
        if rest.starts_with(&tags.kind.function) {
            return Function::Is(values.call(), end + tags.kind.function.len());
        }
        if let Some(surplus) = tags.kind.parameters.iter().find(|surplus| rest.starts_with(surplus.as_str()))
        {
            end += surplus.len();
            continue;
        }
        if tags.is_foreign(rest) && (wrapper.opened || values.has_required()) {
            return Function::Is(values.call(), end);
        }
        // Every value is closed and the model ended its turn: only the block's own end is missing.
        let ends = rest.is_empty() || may_become(rest, &tags.kind.function);
        if ends && ctx.end == End::Stop && values.has_required() && !values.is_empty() {
            return Function::Is(values.call(), text.len());
        }
        if rest.starts_with('{') && values.is_empty() {
            return object(text, end, name, tags);
        }
        let (key, attributes, kind) = match head(rest, PARAMETERS, |key| values.has_parameter(key)) {
            Head::Is { closed: true, .. } => return Function::Bad,
            Head::Is { name, attributes, element, length, .. } => {
                end += length;
                (name, attributes, Opened { assigned: assigns(&rest[..length]), wrapped: element == "param" })
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
        if !block.keys.iter().any(|known| known == key) {
            block.keys.push(key.to_owned());
        }
        let (value, next) = match value(text, end, kind, tags, block) {
            Value::Open => return Function::More,
            Value::Bad => return Function::Bad,
            Value::Is(value, next) => (value, next),
        };
        end = next;
        // The grammar of the function element puts each value between two newlines; invoke blocks put none.
        let value = match tags.kind.element == "function" {
            true if block.written => strip_written(value),
            true => strip_newlines(value),
            false => value,
        };
        let value = if kind.wrapped { cdata(value) } else { value };
        // DeepSeek says which values are strings.
        match attributes.iter().find(|(key, _)| *key == "string").map(|(_, flag)| *flag) {
            Some("true") => block.values.push_string(key, value),
            Some("false") => block.values.push_loose(key, value),
            _ if key == "arguments" || key == "input" => block.values.push_loose(key, value),
            _ => block.values.push(key, value),
        }
    }
}

/// A JSON object in place of the parameters, from `at` on.
fn object(text: &str, at: usize, name: &str, tags: &Tags<'_>) -> Function {
    let (json, notes, used) = match json_block::arguments(&text[at..], &[&tags.kind.function], tags.ctx) {
        Body::More => return Function::More,
        Body::Bad => return Function::Broken(tags.kind),
        Body::Object(json, notes, used) => (json, notes, used),
    };
    let end = at + used + loose_blanks(&text[at + used..]);
    let rest = &text[end..];
    let closed = rest.starts_with(&tags.kind.function);
    let closable = tags.ctx.end == End::Stop && rest.is_empty();
    if !closed && !closable {
        return if may_become(rest, &tags.kind.function) { Function::More } else { Function::Bad };
    }
    let mut call = normalise::call(name, &json, tags.ctx.tools);
    call.notes.splice(0..0, notes);
    Function::Is(call, end + if closed { tags.kind.function.len() } else { 0 })
}

/// Exactly one newline on each side is framing; all else is the value.
pub(crate) fn strip_newlines(value: &str) -> &str {
    let value = value.strip_prefix("\r\n").or_else(|| value.strip_prefix('\n')).unwrap_or(value);
    value.strip_suffix("\r\n").or_else(|| value.strip_suffix('\n')).unwrap_or(value)
}

/// The same where line breaks are written out.
fn strip_written(value: &str) -> &str {
    let value = value.strip_prefix("\\n").unwrap_or(value);
    value.strip_suffix("\\n").unwrap_or(value)
}

fn cdata(value: &str) -> &str {
    let inner = value.trim().strip_prefix("<![CDATA[").and_then(|inner| inner.strip_suffix("]]>"));
    inner.unwrap_or(value)
}
