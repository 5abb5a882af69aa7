//! The opening tags of XML-like blocks, as models write them: well, in a neighbour's dialect, or damaged.
//!
//! `<function=N>`, `<function name="N">`, `<invoke name='N'>`, `<parameter=K>`, with any known prefix, spaces, quotes; `<<`,
//! a repeated `parameter=`, a lost `>`, an `=` in its place, a tag that closes itself. Damage is mended only where the name is a declared one.

use super::grammar::{loose_blanks, window};

/// Elements that begin a call.
pub(crate) const FUNCTIONS: &[&str] = &["function", "invoke"];
/// Elements that hold a value.
pub(crate) const PARAMETERS: &[&str] = &["parameter", "param"];
/// Prefixes of elements, the longer ones first.
pub(crate) const PREFIXES: &[&str] =
    &["｜DSML｜ ", "｜DSML｜", "|DSML| ", "|DSML|", "steptml:", "atem:", "antml:", ""];
/// Longest opening tag, in bytes.
const LONGEST: usize = 512;
/// A tag may be said so many times too often.
const REPEATS: usize = 2;
/// What stands at the start of the text.
#[derive(Debug)]
pub(crate) enum Head<'t> {
    /// No such tag.
    No,
    /// The beginning of one.
    More,
    /// One that cannot be read.
    Bad,
    /// One with a name.
    Is {
        name: &'t str,
        prefix: &'static str,
        element: &'static str,
        /// Other attributes.
        attributes: Vec<(&'t str, &'t str)>,
        /// It closes itself: `<function=N/>`.
        closed: bool,
        length: usize,
    },
}

/// Reads an opening tag of one of these elements, which no text beyond the longest tag can change. `declared`: whether a name is known.
pub(crate) fn head<'t>(
    text: &'t str,
    elements: &[&'static str],
    declared: impl Fn(&str) -> bool,
) -> Head<'t> {
    let near = window(text, LONGEST);
    let (text, whole) = (near, near.len() == text.len());
    let Some(inner) = text.strip_prefix('<') else { return Head::No };
    if inner.is_empty() {
        return Head::More;
    }
    let inner = inner.strip_prefix('<').unwrap_or(inner);
    let mut partial = inner.is_empty();
    for prefix in PREFIXES {
        let Some(named) = inner.strip_prefix(prefix) else {
            partial |= prefix.starts_with(inner);
            continue;
        };
        for element in elements {
            if let Some(rest) = named.strip_prefix(element) {
                let at = text.len() - rest.len();
                match tag(rest, element, &declared) {
                    Tag::No => {}
                    Tag::More => return if whole { Head::More } else { Head::Bad },
                    Tag::Bad => return Head::Bad,
                    Tag::Is(Opening { name, attributes, closed, length }) => {
                        return Head::Is { name, prefix, element, attributes, closed, length: at + length };
                    }
                }
            } else {
                partial |= element.starts_with(named);
            }
        }
    }
    if partial { Head::More } else { Head::No }
}

/// The same inside a value, where such a tag is only shown: it does not reach over a closing tag. So whatever could end the value
/// comes when it is known whether a tag stands before it.
pub(crate) fn shown_head<'t>(
    text: &'t str,
    elements: &[&'static str],
    declared: impl Fn(&str) -> bool,
) -> Head<'t> {
    match head(text, elements, declared) {
        Head::More if text.contains("</") => Head::Bad,
        Head::Is { length, .. } if text[..length].contains("</") => Head::Bad,
        head => head,
    }
}

/// True for a complete opening tag of the kind `<parameter=K>`.
pub(crate) fn assigns(tag: &str) -> bool {
    tag.find(['=', ' ']).is_some_and(|at| tag[at..].trim_start().starts_with('='))
}

enum Tag<'t> {
    No,
    More,
    Bad,
    Is(Opening<'t>),
}

/// What a tag says behind the element's name.
struct Opening<'t> {
    name: &'t str,
    attributes: Vec<(&'t str, &'t str)>,
    /// It closes itself: `<function=N/>`.
    closed: bool,
    length: usize,
}

/// What follows the element's name.
fn tag<'t>(text: &'t str, element: &str, declared: impl Fn(&str) -> bool) -> Tag<'t> {
    let rest = text.trim_start();
    match rest.chars().next() {
        None => Tag::More,
        Some('=') => assigned(text, &rest[1..], element, declared),
        Some('>') if rest.len() == text.len() => Tag::Bad,
        Some(c) if rest.len() < text.len() && c.is_alphabetic() => match attributes(text) {
            Attributes::No => Tag::No,
            Attributes::More => Tag::More,
            Attributes::Are(mut all, closed, length) => {
                match all.iter().position(|(key, _)| *key == "name") {
                    Some(at) => {
                        let (_, name) = all.remove(at);
                        Tag::Is(Opening { name, attributes: all, closed, length })
                    }
                    None => Tag::Bad,
                }
            }
        },
        Some(_) => Tag::No,
    }
}

/// `=NAME>`
fn assigned<'t>(text: &'t str, rest: &'t str, element: &str, declared: impl Fn(&str) -> bool) -> Tag<'t> {
    let again = format!("{element}=");
    let mut rest = rest.trim_start();
    while let Some(after) = rest.strip_prefix(&again) {
        rest = after;
    }
    if rest.is_empty() || again.starts_with(rest) {
        return Tag::More;
    }
    let rest = rest.strip_prefix(['"', '\'']).unwrap_or(rest);
    let ends = |c: char| c.is_whitespace() || matches!(c, '>' | '=' | '<' | '{' | '"' | '\'');
    let Some(length) = rest.find(ends) else { return Tag::More };
    let (mut name, after) = rest.split_at(length);
    let after = after.strip_prefix(['"', '\'']).unwrap_or(after);
    let mut behind = after.trim_start();
    let bare = name.strip_suffix('/').filter(|_| behind.starts_with('>'));
    let closed = bare.is_some() || behind.starts_with("/>");
    name = bare.unwrap_or(name);
    if name.is_empty() {
        return Tag::Bad;
    }
    if closed {
        behind = behind.strip_prefix('/').unwrap_or(behind);
    }
    let is = |rest: &str| {
        let length = text.len() - rest.len();
        Tag::Is(Opening { name, attributes: Vec::new(), closed, length })
    };
    match behind.chars().next() {
        None => Tag::More,
        Some('>') => is(&behind[1..]),
        Some('/') if behind.len() == 1 => Tag::More,
        Some(c) if c.is_alphabetic() && behind.len() < after.len() => match attributes(behind) {
            Attributes::No => Tag::Bad,
            Attributes::More => Tag::More,
            Attributes::Are(attributes, closed, length) => {
                let length = text.len() - behind.len() + length;
                Tag::Is(Opening { name, attributes, closed, length })
            }
        },
        Some('=') if declared(name) => is(&behind[1..]),
        Some('<' | '{') if declared(name) => is(behind),
        Some(_) => Tag::Bad,
    }
}

/// Attributes of a tag.
pub(crate) enum Attributes<'t> {
    No,
    More,
    /// Each with its value, whether the tag closes itself, and the bytes up to behind its `>`.
    Are(Vec<(&'t str, &'t str)>, bool, usize),
}

/// ` name="N" string="true">`
pub(crate) fn attributes(text: &str) -> Attributes<'_> {
    let (mut rest, mut all) = (text, Vec::new());
    loop {
        rest = rest.trim_start();
        for (end, closed) in [(">", false), ("/>", true)] {
            if let Some(after) = rest.strip_prefix(end) {
                return Attributes::Are(all, closed, text.len() - after.len());
            }
        }
        let Some(equals) = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '-') else {
            return Attributes::More;
        };
        let key = &rest[..equals];
        let after = rest[equals..].trim_start();
        if after.is_empty() || rest == "/" {
            return Attributes::More;
        }
        let Some(value) = after.strip_prefix('=').map(str::trim_start) else { return Attributes::No };
        let (value, after) = match value.chars().next() {
            None => return Attributes::More,
            Some(quote @ ('"' | '\'')) => match value[1..].split_once(quote) {
                Some(parts) => parts,
                None => return Attributes::More,
            },
            Some(_) => match value.find(|c: char| c.is_whitespace() || c == '>') {
                Some(end) => value.split_at(end),
                None => return Attributes::More,
            },
        };
        all.push((key, value));
        rest = after;
    }
}

/// Where the tag at `at`, which ends at `end`, has been said for the last time: speculative decoding says it twice. None if it is
/// said again and again.
pub(crate) fn behind_repeats(text: &str, at: usize, end: usize) -> Option<usize> {
    let (tag, mut last) = (&text[at..end], end);
    for _ in 0..=REPEATS {
        let next = last + loose_blanks(&text[last..]);
        if !text[next..].starts_with(tag) {
            return Some(last);
        }
        last = next + tag.len();
    }
    None
}
