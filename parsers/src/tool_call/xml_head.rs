//! The opening tags of XML-like blocks, as models write them: well, in a neighbour's dialect, or damaged.
//!
//! `<function=N>`, `<function name="N">`, `<invoke name='N'>`, `<parameter=K>`, with any known prefix, spaces, quotes; `<<`,
//! a repeated `parameter=`, a lost `>`, an `=` in its place. Damage is mended only where the name is a declared one.

use std::cell::Cell;

use super::formats::LEAKS;
use super::grammar::{Context, End, loose_blanks, may_be_blank, may_become, starts_with_any, window};
use super::xml_block::{Block, Wrapper};

/// Elements that begin a call.
pub(crate) const FUNCTIONS: &[&str] = &["function", "invoke"];
/// Elements that hold a value.
pub(crate) const PARAMETERS: [&str; 2] = ["parameter", "param"];
/// Prefixes of elements, the longer ones first.
pub(crate) const PREFIXES: &[&str] =
    &["｜DSML｜ ", "｜DSML｜", "|DSML| ", "|DSML|", "steptml:", "atem:", "antml:", ""];
/// Longest opening tag, in bytes.
const LONGEST: usize = 512;

/// As many closers too many are passed over behind a block.
const SURPLUS: usize = 8;
/// An opening tag is looked for in so many bytes.
pub(crate) const TAG: usize = 640;
/// What stands at the start of the text.
#[derive(Debug)]
pub(crate) enum Head {
    /// No such tag.
    No,
    /// The beginning of one.
    More,
    /// One that cannot be read.
    Bad,
    /// One with a name.
    Is {
        name: String,
        prefix: String,
        element: String,
        /// Other attributes.
        attributes: Vec<(String, String)>,
        length: usize,
    },
}

/// Reads an opening tag of one of these elements. `declared`: whether a name is known.
pub(crate) fn head<'e>(text: &str, elements: impl AsRef<[&'e str]>, declared: impl Fn(&str) -> bool) -> Head {
    let elements = elements.as_ref();
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
                    Tag::More if text.len() > LONGEST => return Head::Bad,
                    Tag::More => return Head::More,
                    Tag::Bad => return Head::Bad,
                    Tag::Is(name, attributes, length) => {
                        let (prefix, element) = ((*prefix).to_owned(), (*element).to_owned());
                        return Head::Is { name, prefix, element, attributes, length: at + length };
                    }
                }
            } else {
                partial |= element.starts_with(named);
            }
        }
    }
    if partial { Head::More } else { Head::No }
}

/// True for a complete opening tag of the kind `<parameter=K>`.
pub(crate) fn assigns(tag: &str) -> bool {
    tag.find(['=', ' ']).is_some_and(|at| tag[at..].trim_start().starts_with('='))
}

enum Tag {
    No,
    More,
    Bad,
    Is(String, Vec<(String, String)>, usize),
}

/// What follows the element's name.
fn tag(text: &str, element: &str, declared: impl Fn(&str) -> bool) -> Tag {
    let rest = text.trim_start();
    match rest.chars().next() {
        None => Tag::More,
        Some('=') => assigned(text, &rest[1..], element, declared),
        Some('>') if rest.len() == text.len() => Tag::Bad,
        Some(c) if rest.len() < text.len() && c.is_alphabetic() => attributes(text, rest),
        Some(_) => Tag::No,
    }
}

/// `=NAME>`
fn assigned(text: &str, rest: &str, element: &str, declared: impl Fn(&str) -> bool) -> Tag {
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
    let name = &rest[..length];
    if name.is_empty() {
        return Tag::Bad;
    }
    let after = &rest[length..];
    let after = after.strip_prefix(['"', '\'']).unwrap_or(after);
    let behind = after.trim_start();
    let at = |rest: &str| text.len() - rest.len();
    match behind.chars().next() {
        None => Tag::More,
        Some('>') => Tag::Is(name.to_owned(), Vec::new(), at(&behind[1..])),
        Some('=') if declared(name) => Tag::Is(name.to_owned(), Vec::new(), at(&behind[1..])),
        Some('<' | '{') if declared(name) => Tag::Is(name.to_owned(), Vec::new(), at(behind)),
        Some(_) => Tag::Bad,
    }
}

/// ` name="N" string="true">`
fn attributes(text: &str, rest: &str) -> Tag {
    let (mut rest, mut name, mut others) = (rest, None, Vec::new());
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('>') {
            let length = text.len() - after.len();
            return name.map_or(Tag::Bad, |name| Tag::Is(name, others, length));
        }
        let Some(equals) = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '-') else {
            return Tag::More;
        };
        let key = &rest[..equals];
        let after = rest[equals..].trim_start();
        if after.is_empty() {
            return Tag::More;
        }
        let Some(value) = after.strip_prefix('=').map(str::trim_start) else { return Tag::No };
        let (value, after) = match value.chars().next() {
            None => return Tag::More,
            Some(quote @ ('"' | '\'')) => match value[1..].split_once(quote) {
                Some(parts) => parts,
                None => return Tag::More,
            },
            Some(_) => match value.find(|c: char| c.is_whitespace() || c == '>') {
                Some(end) => value.split_at(end),
                None => return Tag::More,
            },
        };
        match key {
            "name" => name = Some(value.to_owned()),
            key => others.push((key.to_owned(), value.to_owned())),
        }
        rest = after;
    }
}

/// The tags that end the parts of one block.
pub(crate) struct Tags<'c> {
    pub(crate) prefix: String,
    pub(crate) element: String,
    pub(crate) function: String,
    pub(crate) parameters: [String; 2],
    pub(crate) wrapper: Wrapper,
    /// Behind the last closing tag of a parameter; known only when nothing more comes.
    pub(crate) last: usize,
    /// A closing tag that was lost is added before the next parameter.
    pub(crate) mend: bool,
    /// Blocks inside values are counted; false once that has led nowhere.
    pub(crate) counts: &'c Cell<bool>,
    pub(crate) ctx: Context<'c>,
}

/// What stands behind the closing tag of a parameter.
pub(crate) enum Next {
    Open,
    /// The end of the block.
    Ends,
    /// Another parameter.
    Goes,
    /// One that is set already.
    Repeats,
    /// The end of a block, but its wrapper does not end behind it.
    Unwrapped,
    Other,
}

impl Tags<'_> {
    pub(crate) fn declared(&self, name: &str) -> bool {
        self.ctx.tools.resolve(name).is_some()
    }

    /// A tag of the wrapper stands here.
    pub(crate) fn is_foreign(&self, rest: &str) -> bool {
        starts_with_any(rest, self.wrapper.closers).is_ok()
            || starts_with_any(rest, self.wrapper.openers).is_ok()
    }

    /// A tag of the block or its wrapper may stand here when more has come.
    pub(crate) fn may_begin(&self, rest: &str) -> bool {
        let partial = |list: &[&str]| starts_with_any(rest, list) == Err(true);
        partial(self.wrapper.closers)
            || partial(self.wrapper.openers)
            || may_become(rest, &self.function)
            || self.parameters.iter().any(|closer| may_close(rest, closer))
    }

    pub(crate) fn closer(&self, rest: &str) -> Option<usize> {
        self.parameters.iter().find_map(|closer| closed_by(rest, closer))
    }

    /// What follows the function's own end: whether its wrapper ends, whether the next one begins, and the text behind.
    pub(crate) fn behind<'t>(&self, rest: &'t str) -> Option<(bool, bool, &'t str)> {
        let after = rest.strip_prefix(&self.function)?.trim_start();
        let wrapped = starts_with_any(after, self.wrapper.closers).ok();
        let behind = wrapped.map_or(after, |closer| after[closer.len()..].trim_start());
        let next = starts_with_any(behind, self.wrapper.openers).ok().filter(|_| wrapped.is_some());
        let inside = next.map(|opener| behind[opener.len()..].trim_start()).unwrap_or_default();
        let next =
            matches!(head(window(inside, TAG), FUNCTIONS, |name| self.declared(name)), Head::Is { .. });
        Some((wrapped.is_some(), next, behind))
    }

    /// The function's own end closes the value too: its wrapper ends behind it, and the next one or nothing follows.
    pub(crate) fn ends_value(&self, rest: &str, at: usize) -> bool {
        let Some((wrapped, next, behind)) = self.behind(rest) else { return false };
        next || self.ctx.end == End::Stop && at >= self.last && (behind.is_empty() || wrapped)
    }

    /// Text goes on behind the wrapper's closer, on its line; none while that is open.
    pub(crate) fn goes_on(&self, rest: &str) -> Option<bool> {
        let Some(after) = rest.strip_prefix(&self.function).map(str::trim_start) else { return Some(false) };
        let Ok(closer) = starts_with_any(after, self.wrapper.closers) else { return Some(false) };
        match after[closer.len()..].trim_start_matches([' ', '\t']).chars().next() {
            None => self.ctx.end.is_end().then_some(false),
            Some(c) => Some(!c.is_whitespace() && c != '<'),
        }
    }

    /// The closers here are the last ones of the call or of the answer.
    pub(crate) fn ends_answer(&self, rest: &str) -> bool {
        let end = |behind: &str| behind.is_empty() || starts_with_any(behind, LEAKS).is_ok();
        self.behind(rest).is_some_and(|(_, next, behind)| next || end(behind))
    }

    /// A block of the same kind begins here, as it stands in a value that shows one.
    pub(crate) fn opens_block(&self, rest: &str) -> bool {
        let named = rest[1..].strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with(&self.element));
        if !named || !self.counts.get() {
            return false;
        }
        let Head::Is { length, .. } = head(window(rest, TAG), [self.element.as_str()], |_| false) else {
            return false;
        };
        let inside = &rest[length + loose_blanks(&rest[length..])..];
        let parameter = head(window(inside, TAG), PARAMETERS, |_| false);
        inside.starts_with(&self.function) || matches!(parameter, Head::Is { .. })
    }

    /// Behind a block's end its wrapper ends, if that was opened, or another block begins.
    fn next_behind(&self, rest: &str) -> Next {
        if !self.wrapper.opened || self.wrapper.closers.is_empty() {
            return Next::Ends;
        }
        let mut rest = rest;
        for _ in 0..SURPLUS {
            rest = &rest[loose_blanks(rest)..];
            let surplus = self.parameters.iter().chain([&self.function]);
            match surplus.into_iter().find_map(|closer| rest.strip_prefix(closer.as_str())) {
                Some(behind) => rest = behind,
                None => break,
            }
        }
        let block = head(window(rest, TAG), FUNCTIONS, |name| self.declared(name));
        if self.is_foreign(rest)
            || matches!(block, Head::Is { .. })
            || starts_with_any(rest, LEAKS).is_ok()
            || (self.ctx.end.is_end() && (rest.is_empty() || self.may_begin(rest)))
        {
            return Next::Ends;
        }
        let partial = starts_with_any(rest, LEAKS) == Err(true);
        let open = may_be_blank(rest) || self.may_begin(rest) || partial || matches!(block, Head::More);
        if open && !self.ctx.end.is_end() { Next::Open } else { Next::Unwrapped }
    }

    pub(crate) fn next(&self, rest: &str, block: &Block<'_>) -> Next {
        let stopped = self.ctx.end == End::Stop && (rest.is_empty() || may_become(rest, &self.function));
        if let Some(behind) = rest.strip_prefix(&self.function) {
            return self.next_behind(behind);
        }
        if stopped || (self.is_foreign(rest) && (self.wrapper.opened || block.is_complete())) {
            return Next::Ends;
        }
        match head(window(rest, TAG), PARAMETERS, |key| block.values.has_parameter(key)) {
            Head::Is { name, .. } if block.keys.contains(&name) => Next::Repeats,
            Head::Is { .. } => Next::Goes,
            Head::More => Next::Open,
            Head::Bad => Next::Other,
            Head::No if may_be_blank(rest) || self.may_begin(rest) => Next::Open,
            Head::No => match head(window(rest, TAG), FUNCTIONS, |name| self.declared(name)) {
                Head::Is { .. } if block.is_complete() => Next::Ends,
                Head::More => Next::Open,
                _ => Next::Other,
            },
        }
    }
}

/// True if the text is too short to tell whether it is this closer, or one that repeats the name.
pub(crate) fn may_close(rest: &str, closer: &str) -> bool {
    let named = rest.strip_prefix(closer.trim_end_matches('>'));
    may_become(rest, closer) || named.is_some_and(|name| name.starts_with('=') && !name.contains(['>', '\n']))
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
