//! Where a value between tags ends, if it may hold the very tags that could end it.
//!
//! A closer ends the value only if the call goes on behind it, and if nothing that opened inside the value is open still: whole
//! calls and values are counted. Where that leads nowhere, one reading is enough and two are none. The value is never cut short
//! because it shows a call.

use memchr::memchr_iter;

use super::grammar::{Context, End, loose_blanks, may_be_blank, starts_with_any};

/// The tags of one grammar.
pub(crate) struct Inner<'a> {
    /// Opens a value, also one that is only shown.
    pub(crate) opener: &'a str,
    pub(crate) closer: &'a str,
    /// What goes on behind a value; the last one ends the call.
    pub(crate) next: &'a [&'a str],
    /// A whole call begins here.
    pub(crate) opens_call: &'a dyn Fn(&str) -> bool,
    /// Another argument of this call begins here, if the closer before it was lost.
    pub(crate) lost: &'a dyn Fn(&str) -> bool,
}

/// What was found.
pub(crate) enum Found {
    More,
    Bad,
    /// The value's length, and where the text goes on.
    Is(usize, usize),
}

/// The extent of the value that begins with the text.
pub(crate) fn value(text: &str, tags: &Inner<'_>, ctx: Context<'_>) -> Found {
    let end_of_call = tags.next.last().copied().unwrap_or_default();
    let is = |found: usize| Found::Is(found, found + tags.closer.len());
    let (mut calls, mut values, mut lost) = (0usize, 0usize, None);
    // Closers that could end it although something is open: a value, or a call.
    let (mut unbalanced, mut late, mut closers) = (Vec::new(), Vec::new(), 0usize);
    for found in memchr_iter(b'<', text.as_bytes()) {
        let rest = &text[found..];
        if let Some(behind) = rest.strip_prefix(tags.closer) {
            closers += 1;
            let goes = match goes_on(&behind[loose_blanks(behind)..], tags.next, ctx) {
                Some(goes) => goes,
                None => return Found::More,
            };
            match (calls, values) {
                (0, 0) if goes => return is(found),
                (0, 0) => {}
                (0, _) => {
                    values -= 1;
                    unbalanced.extend(goes.then_some(found));
                }
                _ => late.extend(goes.then_some(found)),
            }
        } else if rest.starts_with(end_of_call) {
            calls = calls.saturating_sub(1);
        } else if (tags.opens_call)(rest) {
            calls += 1;
        } else if calls == 0 && rest.starts_with(tags.opener) {
            values += 1;
        } else if calls == 0 && lost.is_none() && (tags.lost)(rest) {
            lost = Some((found, closers == 0));
        }
    }
    if ctx.end != End::Stop {
        return Found::More;
    }
    match (lost, unbalanced.as_slice(), late.as_slice()) {
        (Some((found, true)), [_, ..], _) => Found::Is(found, found),
        (None, [found], _) | (None, [], [found]) => is(*found),
        (_, [], []) => match text.find(end_of_call) {
            Some(end) if closers == 0 && text[end..].trim_end() == end_of_call => Found::Is(end, end),
            _ => Found::More,
        },
        _ => Found::Bad,
    }
}

/// The call goes on here; `None` while that is open.
fn goes_on(behind: &str, next: &[&str], ctx: Context<'_>) -> Option<bool> {
    match starts_with_any(behind, next) {
        Ok(_) => Some(true),
        Err(partial) if ctx.end.is_end() => Some(ctx.end == End::Stop && (partial || behind.is_empty())),
        Err(partial) if partial || may_be_blank(behind) => None,
        Err(_) => Some(false),
    }
}
