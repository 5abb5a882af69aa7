//! Where a value of an XML-like block ends, if it may hold the very tags that could end it.
//!
//! A closing tag ends the value only if the block goes on behind it; whole blocks and parameters that open inside are counted.
//! Where the counts do not balance one reading is enough, and two are none. It must never cut a value short because it shows a
//! call.

use memchr::memchr_iter;

use super::grammar::End;
use super::xml_block::Block;
use super::xml_head::{Head, PARAMETERS, assigns, shown_head};
use super::xml_tags::{Next, Tags, closers};

pub(crate) enum Value<'t> {
    Open,
    Bad,
    Is(&'t str, usize),
}

/// How the parameter's tag opens the value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened {
    /// `<parameter=K>`.
    pub(crate) assigned: bool,
    /// `<param name="K">`, MiniCPM's tag: the value may stand in a CDATA section.
    pub(crate) wrapped: bool,
}

/// The value that begins at `at`, and where the text goes on behind it.
pub(crate) fn value<'t>(
    text: &'t str,
    at: usize,
    Opened { assigned, wrapped }: Opened,
    tags: &Tags<'_>,
    block: &mut Block<'_>,
) -> Value<'t> {
    let body = &text[at..];
    let from = match wrapped && body.trim_start().starts_with("<![CDATA[") {
        true => match body.find("]]>") {
            Some(end) => end + 3,
            None if !tags.ctx.end.is_end() => return Value::Open,
            None => 0,
        },
        false => 0,
    };
    let is = |from: usize, to: usize| Value::Is(&body[..from], at + to);
    // Blocks that are open inside the value; its open parameters, by name if they may be the call's own; a lone closer came.
    let (mut blocks, mut inner, mut closed, mut inside_block) = (0usize, Vec::new(), false, true);
    // Where the value ends if the closers behind do not balance.
    let (mut first, mut late, mut ended, mut skip) = (None, None, false, from);
    // Where it ends if the block's wrapper was never closed.
    let mut unwrapped = None;
    for found in memchr_iter(b'<', &body.as_bytes()[from..]) {
        let found = from + found;
        let rest = &body[found..];
        if found < skip {
            continue;
        }
        if let Some(length) = tags.kind.closer(rest) {
            let (chain, behind) = closers(body, found, length, |rest| tags.kind.closer(rest));
            skip = chain[chain.len() - 1].1;
            let next = tags.next(behind, block);
            if matches!(next, Next::Open) {
                break;
            }
            if blocks > 0 {
                late = late.or_else(|| tags.ends_answer(behind).then(|| chain[0]));
                continue;
            }
            let balanced = inner.len() < chain.len();
            if matches!(next, Next::Unwrapped) && balanced {
                unwrapped = unwrapped.or(Some((chain[inner.len()], inner.clone())));
            }
            let goes = matches!(next, Next::Goes) && (balanced || !block.counts);
            if matches!(next, Next::Goes) && !goes && first.is_none() {
                first = Some((chain[0], inner.clone()));
            }
            ended = matches!(next, Next::Ends) && !balanced && first.is_some();
            if ended {
                break;
            }
            // The value began on a line of its own and does not end on one, and text follows the call: two readings.
            let framed = tags.kind.element == "function" && body.starts_with(['\n', '\r']);
            if framed && matches!(next, Next::Ends) && !body[..chain[0].0].ends_with('\n') {
                match tags.goes_on(behind) {
                    None => break,
                    Some(true) => return Value::Bad,
                    Some(false) => {}
                }
            }
            if goes || matches!(next, Next::Ends) || (balanced && matches!(next, Next::Repeats)) {
                let nth = inner.len().min(chain.len() - 1);
                inner.truncate(inner.len() - nth);
                block.lost.extend(inner.into_iter().flatten());
                return is(chain[nth].0, chain[nth].1);
            }
            closed |= balanced;
            block.strained |= balanced;
            inner.truncate(inner.len().saturating_sub(chain.len()));
        } else if rest.starts_with(&tags.kind.function) {
            if blocks > 0 {
                blocks -= 1;
                continue;
            }
            inside_block = false;
            if closed {
                // A closer with words behind it, then the block's end: nobody can tell where the value ended.
                match tags.behind(rest) {
                    Some((wrapped, ..)) if wrapped || !tags.wrapper.opened => return Value::Bad,
                    _ => continue,
                }
            }
            if tags.ends_value(rest, at + found) {
                block.lost.extend(inner.into_iter().flatten());
                return is(found, found);
            }
        } else if tags.opens_block(rest) {
            blocks += 1;
        } else if blocks == 0 {
            let declared = |key: &str| block.values.has_parameter(key);
            let Head::Is { name, prefix, length, .. } = shown_head(rest, PARAMETERS, declared) else {
                continue;
            };
            let line_start = body[..found].trim_end_matches([' ', '\t']).ends_with('\n');
            let own = prefix == tags.kind.prefix && assigns(&rest[..length]) == assigned;
            let lost = inside_block
                && !closed
                && line_start
                && own
                && declared(name)
                && !block.keys.iter().any(|key| key == name);
            // The closing tag was lost: a parameter that is still to come begins on a line of its own.
            if lost && tags.mend {
                return is(found, found);
            }
            block.doubt |= lost;
            inner.push(lost.then(|| name.to_owned()));
        }
    }
    if let Some(((from, to), inner)) = unwrapped.filter(|_| tags.ctx.end.is_end()) {
        block.strained = false;
        block.lost.extend(inner.into_iter().flatten());
        return is(from, to);
    }
    match (first, late) {
        (Some(((from, to), inner)), _) if ended || (blocks == 0 && tags.ctx.end.is_end()) => {
            block.counts = false;
            block.lost.extend(inner.into_iter().flatten());
            is(from, to)
        }
        (_, Some((from, to))) if tags.ctx.end == End::Stop => {
            tags.counts.set(false);
            is(from, to)
        }
        _ => Value::Open,
    }
}
