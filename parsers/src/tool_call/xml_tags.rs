//! The tags of one XML-like block, and what stands behind the closing tag of a parameter: does the block go on, end, or was the
//! closing tag part of the value?
//!
//! It must never say that a value ends where the text so far leaves that open.

use std::cell::Cell;
use std::sync::LazyLock;

use super::formats::LEAKS;
use super::grammar::{Context, End, loose_blanks, may_be_blank, may_become, starts_with_any};
use super::xml_block::{Block, Wrapper};
use super::xml_head::{FUNCTIONS, Head, PARAMETERS, PREFIXES, head, shown_head};

/// As many closers too many are passed over behind a block.
const SURPLUS: usize = 8;

/// A kind of block: the element that begins it, and its tags.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) prefix: &'static str,
    pub(crate) element: &'static str,
    /// What an opening tag of the block begins with, and one of a parameter.
    pub(crate) opening: String,
    pub(crate) own: String,
    /// The closing tags.
    pub(crate) function: String,
    pub(crate) parameters: [String; 2],
}

static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let kind = |prefix: &'static str, element: &'static str| Kind {
        prefix,
        element,
        opening: format!("<{prefix}{element}"),
        own: format!("<{prefix}{}", PARAMETERS[1]),
        function: format!("</{prefix}{element}>"),
        parameters: [0, 1].map(|at| format!("</{prefix}{}>", PARAMETERS[at])),
    };
    let elements =
        |prefix: &&'static str| FUNCTIONS.iter().map(|element| kind(prefix, element)).collect::<Vec<_>>();
    PREFIXES.iter().flat_map(elements).collect()
});

impl Kind {
    /// The kind that an opening tag of this prefix and element begins.
    pub(crate) fn of(prefix: &str, element: &str) -> &'static Self {
        let known = KINDS.iter().find(|kind| kind.prefix == prefix && kind.element == element);
        known.unwrap_or(&KINDS[0])
    }

    pub(crate) fn closer(&self, rest: &str) -> Option<usize> {
        self.parameters.iter().find_map(|closer| closed_by(rest, closer))
    }
}

/// The tags that end the parts of one block.
pub(crate) struct Tags<'c> {
    pub(crate) kind: &'static Kind,
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
            || may_become(rest, &self.kind.function)
            || self.kind.parameters.iter().any(|closer| may_close(rest, closer))
    }

    /// What follows the function's own end: whether its wrapper ends, whether the next one begins, and the text behind.
    pub(crate) fn behind<'t>(&self, rest: &'t str) -> Option<(bool, bool, &'t str)> {
        let after = rest.strip_prefix(&self.kind.function)?.trim_start();
        let wrapped = starts_with_any(after, self.wrapper.closers).ok();
        let behind = wrapped.map_or(after, |closer| after[closer.len()..].trim_start());
        let next = starts_with_any(behind, self.wrapper.openers).ok().filter(|_| wrapped.is_some());
        let inside = next.map(|opener| behind[opener.len()..].trim_start()).unwrap_or_default();
        let next = matches!(shown_head(inside, FUNCTIONS, |name| self.declared(name)), Head::Is { .. });
        Some((wrapped.is_some(), next, behind))
    }

    /// The function's own end closes the value too: its wrapper ends behind it, and the next one or nothing follows.
    pub(crate) fn ends_value(&self, rest: &str, at: usize) -> bool {
        let Some((wrapped, next, behind)) = self.behind(rest) else { return false };
        next || self.ctx.end == End::Stop && at >= self.last && (behind.is_empty() || wrapped)
    }

    /// Text goes on behind the wrapper's closer, on its line; none while that is open.
    pub(crate) fn goes_on(&self, rest: &str) -> Option<bool> {
        let Some(after) = rest.strip_prefix(&self.kind.function).map(str::trim_start) else {
            return Some(false);
        };
        let closer = match starts_with_any(after, self.wrapper.closers) {
            Ok(closer) => closer,
            Err(may)
                if (may || after.is_empty())
                    && !self.wrapper.closers.is_empty()
                    && !self.ctx.end.is_end() =>
            {
                return None;
            }
            Err(_) => return Some(false),
        };
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
        if !rest.starts_with(&self.kind.opening) || !self.counts.get() {
            return false;
        }
        let Head::Is { length, .. } = shown_head(rest, &[self.kind.element], |_| false) else {
            return false;
        };
        let inside = &rest[length + loose_blanks(&rest[length..])..];
        let parameter = shown_head(inside, PARAMETERS, |_| false);
        inside.starts_with(&self.kind.function) || matches!(parameter, Head::Is { .. })
    }

    /// Behind a block's end its wrapper ends, if that was opened, or another block begins.
    fn next_behind(&self, rest: &str) -> Next {
        if !self.wrapper.opened || self.wrapper.closers.is_empty() {
            return Next::Ends;
        }
        let mut rest = rest;
        for _ in 0..SURPLUS {
            rest = &rest[loose_blanks(rest)..];
            let surplus = self.kind.parameters.iter().chain([&self.kind.function]);
            match surplus.into_iter().find_map(|closer| rest.strip_prefix(closer.as_str())) {
                Some(behind) => rest = behind,
                None => break,
            }
        }
        let block = head(rest, FUNCTIONS, |name| self.declared(name));
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
        let stopped = self.ctx.end == End::Stop && (rest.is_empty() || may_become(rest, &self.kind.function));
        if let Some(behind) = rest.strip_prefix(&self.kind.function) {
            return self.next_behind(behind);
        }
        if stopped || (self.is_foreign(rest) && (self.wrapper.opened || block.is_complete())) {
            return Next::Ends;
        }
        match head(rest, PARAMETERS, |key| block.values.has_parameter(key)) {
            Head::Is { name, .. } if block.keys.iter().any(|key| key == name) => Next::Repeats,
            Head::Is { .. } => Next::Goes,
            Head::More => Next::Open,
            Head::Bad => Next::Other,
            Head::No if may_be_blank(rest) || self.may_begin(rest) => Next::Open,
            Head::No => match head(rest, FUNCTIONS, |name| self.declared(name)) {
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

/// The closing tags that follow each other from the one of `length` bytes at `at` on, each with its end, and the text behind.
pub(crate) fn closers(
    text: &str,
    at: usize,
    length: usize,
    closer: impl Fn(&str) -> Option<usize>,
) -> (Vec<(usize, usize)>, &str) {
    let mut all = vec![(at, at + length)];
    let mut end = at + length;
    loop {
        let next = end + loose_blanks(&text[end..]);
        let Some(length) = closer(&text[next..]) else { return (all, &text[next..]) };
        end = next + length;
        all.push((next, end));
    }
}
