//! A reader of almost-JSON that writes JSON: Python literals, foreign quotes, raw line breaks, lost closers.
//!
//! It reads twice at most: first with each quote taken as what it is; if that fails, with quotes that can't be
//! delimiters taken as text. There every quote that could end a string does end it, and each string must hold an even
//! number of others: a quote whose role is doubtful makes the text unreadable.
//!
//! It must never choose between two readings, and never look back: the time is linear.

use std::borrow::Cow;

use super::{DEPTH, Repair, is_space, unicode_escape};

/// The longest key that is looked for behind a quote that may end a string.
const KEY: usize = 256;

/// The JSON, and what had to be repaired.
pub(super) fn read(text: &str, complete: bool) -> Option<(String, Vec<Repair>)> {
    let read = |inner_quotes| {
        let mut reader = Reader { text, complete, inner_quotes, ..Reader::default() };
        reader.run().map(|()| (reader.out, reader.repairs))
    };
    read(false).or_else(|| complete.then(|| read(true))?)
}

#[derive(Default)]
struct Reader<'a> {
    text: &'a str,
    at: usize,
    complete: bool,
    inner_quotes: bool,
    out: String,
    repairs: Vec<Repair>,
    /// The containers that are open: `{` or `[`.
    open: Vec<u8>,
    /// Where the comma was written that nothing has followed yet.
    comma: Option<usize>,
}

/// What may stand next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    /// The value of a member, or the whole text.
    Value,
    /// A key or an element, or the container's end.
    Item,
    /// A comma or the container's end.
    After,
}

impl<'a> Reader<'a> {
    fn run(&mut self) -> Option<()> {
        let mut want = Want::Value;
        loop {
            self.skip_blank();
            let Some(next) = self.peek() else {
                return self.close_all(want);
            };
            want = match (want, next) {
                (Want::Value | Want::Item, _) if want == Want::Value || !self.in_object() => match next {
                    '{' | '[' => self.enter(next)?,
                    ']' if want == Want::Item => self.leave(next)?,
                    _ => self.scalar()?,
                },
                (Want::Value | Want::Item, '}') => self.leave(next)?,
                (Want::Value | Want::Item, _) => self.key()?,
                (Want::After, ',') => {
                    self.comma = Some(self.out.len());
                    self.copy(next);
                    Want::Item
                }
                (Want::After, _) => self.leave(next)?,
            };
            if self.open.is_empty() {
                return self.end();
            }
        }
    }

    fn in_object(&self) -> bool {
        self.open.last() == Some(&b'{')
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn copy(&mut self, c: char) {
        self.out.push(c);
        self.at += c.len_utf8();
    }

    fn note(&mut self, repair: Repair) {
        if !self.repairs.contains(&repair) {
            self.repairs.push(repair);
        }
    }

    /// White space is copied, comments are not.
    fn skip_blank(&mut self) {
        while let Some(next) = self.peek() {
            let rest = self.rest();
            let comment = if rest.starts_with("//") || next == '#' {
                rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                rest.find("*/").map_or(0, |end| end + 2)
            } else {
                0
            };
            if comment > 0 {
                self.note(Repair::Comment);
                self.at += comment;
            } else if ["\\n", "\\r", "\\t"].iter().any(|blank| rest.starts_with(blank)) {
                self.note(Repair::WrittenBreak);
                self.at += 2;
            } else if is_space(next) {
                self.copy(next);
            } else {
                return;
            }
        }
    }

    fn enter(&mut self, opener: char) -> Option<Want> {
        self.comma = None;
        self.open.push(if opener == '{' { b'{' } else { b'[' });
        self.copy(opener);
        (self.open.len() <= DEPTH).then_some(Want::Item)
    }

    fn leave(&mut self, closer: char) -> Option<Want> {
        let fits = matches!((self.open.pop(), closer), (Some(b'{'), '}') | (Some(b'['), ']'));
        if !fits {
            return None;
        }
        if let Some(comma) = self.comma.take() {
            self.out.remove(comma);
            self.note(Repair::TrailingComma);
        }
        self.copy(closer);
        Some(Want::After)
    }

    /// The text has ended inside containers: only their closers may be missing.
    fn close_all(&mut self, want: Want) -> Option<()> {
        if want != Want::After || !self.complete {
            return None;
        }
        self.note(Repair::ClosersAdded);
        self.out.truncate(self.out.trim_end_matches(is_space).len());
        while let Some(opener) = self.open.pop() {
            self.out.push(if opener == b'{' { '}' } else { ']' });
        }
        Some(())
    }

    /// Behind the value: nothing but closers too many.
    fn end(&mut self) -> Option<()> {
        // A scalar is no body to repair.
        self.out.ends_with(['}', ']']).then_some(())?;
        let rest = self.rest().trim_matches(is_space);
        if !rest.is_empty() {
            rest.chars().all(|c| is_space(c) || matches!(c, '}' | ']')).then_some(())?;
            self.note(Repair::SurplusClosers);
        }
        Some(())
    }

    fn key(&mut self) -> Option<Want> {
        self.comma = None;
        if !self.string(true)? {
            let name = identifier(self.rest());
            if name.is_empty() {
                return None;
            }
            self.out.extend(["\"", name, "\""]);
            self.at += name.len();
            self.note(Repair::UnquotedKey);
        }
        self.skip_blank();
        if self.peek() != Some(':') {
            return None;
        }
        self.copy(':');
        Some(Want::Value)
    }

    /// A string, a number or a word.
    fn scalar(&mut self) -> Option<Want> {
        self.comma = None;
        if self.string(false)? {
            return Some(Want::After);
        }
        let rest = self.rest();
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_')))
            .unwrap_or(rest.len());
        let (json, repair) = word(&rest[..end])?;
        self.out.push_str(&json);
        self.at += end;
        repair.into_iter().for_each(|repair| self.note(repair));
        Some(Want::After)
    }

    /// A string in any quotes; `false` when there is none, nothing when it does not end.
    fn string(&mut self, is_key: bool) -> Option<bool> {
        let Some((quote, end)) = self.peek().and_then(closing_quote) else {
            return Some(false);
        };
        match quote {
            '\'' => self.note(Repair::SingleQuotes),
            '"' => {}
            _ => self.note(Repair::SmartQuotes),
        }
        self.at += quote.len_utf8();
        self.out.push('"');
        let mut inner = 0_usize;
        loop {
            let c = self.peek()?;
            match c {
                '\\' => {
                    self.escape(quote)?;
                    continue;
                }
                _ if c == end && (is_key || !self.inner_quotes || self.may_end()) => break,
                _ if c == end => {
                    // An apostrophe inside a word stands alone; other quotes come in pairs around something: the inner
                    // quotes of `"a" + "b"` do not.
                    if c != '\'' || !self.inside_word() {
                        self.faces_text(inner.is_multiple_of(2)).then_some(())?;
                        inner += 1;
                    }
                    self.note(Repair::InnerQuotes);
                    if c == '"' {
                        self.out.push('\\');
                    }
                    self.out.push(c);
                }
                '"' => self.out.push_str("\\\""),
                '\0'..='\u{1f}' => {
                    self.note(Repair::RawControl);
                    match c {
                        '\n' => self.out.push_str("\\n"),
                        '\r' => self.out.push_str("\\r"),
                        '\t' => self.out.push_str("\\t"),
                        _ => self.out.push_str(&format!("\\u{:04x}", u32::from(c))),
                    }
                }
                _ => self.out.push(c),
            }
            self.at += c.len_utf8();
        }
        self.at += end.len_utf8();
        self.out.push('"');
        inner.is_multiple_of(2).then_some(true)
    }

    /// A backslash and, where it makes an escape, what follows.
    fn escape(&mut self, quote: char) -> Option<()> {
        let rest = self.rest();
        let next = rest[1..].chars().next()?;
        let length = match next {
            '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' => 2,
            'u' => unicode_escape(rest.as_bytes()).unwrap_or(1),
            '\'' if quote == '\'' => {
                self.out.push('\'');
                self.at += 2;
                return Some(());
            }
            // In a Python string these would be other characters.
            'x' | 'U' | 'N' | 'a' | 'v' | '0'..='7' if quote == '\'' => return None,
            _ => 1,
        };
        if length == 1 {
            self.out.push_str("\\\\");
            self.note(Repair::InvalidEscape);
        } else {
            self.out.push_str(&self.text[self.at..self.at + length]);
        }
        self.at += length;
        Some(())
    }

    /// Whether the quote here has text, not white space, on the side that it would quote.
    fn faces_text(&self, opens: bool) -> bool {
        let quoted = match opens {
            true => self.rest().chars().nth(1),
            false => self.text[..self.at].chars().next_back(),
        };
        quoted.is_some_and(|c| !c.is_whitespace())
    }

    fn inside_word(&self) -> bool {
        let before = self.text[..self.at].chars().next_back();
        let behind = self.rest().chars().nth(1);
        before.is_some_and(char::is_alphanumeric) && behind.is_some_and(char::is_alphanumeric)
    }

    /// Whether what follows the quote here is what may follow a value.
    fn may_end(&self) -> bool {
        let mut behind = self.rest().chars();
        behind.next();
        let behind = behind.as_str().trim_start_matches(is_space);
        let Some(after) = behind.strip_prefix(',') else {
            return match self.open.last() {
                Some(b'{') => behind.is_empty() || behind.starts_with('}'),
                _ => behind.is_empty() || behind.starts_with(']'),
            };
        };
        let next = after.trim_start_matches(is_space);
        if !self.in_object() {
            return next.starts_with(|c: char| "\"'“[]{-+.tfnTFNI".contains(c) || c.is_ascii_digit());
        }
        let key = match next.chars().next().and_then(closing_quote) {
            Some((quote, end)) => {
                let name = &next[quote.len_utf8()..];
                name.char_indices()
                    .take(KEY)
                    .find(|(_, c)| *c == end)
                    .map(|(at, _)| &name[at + end.len_utf8()..])
            }
            None => Some(&next[identifier(next).len()..]),
        };
        next.starts_with('}') || key.is_some_and(|rest| rest.trim_start_matches(is_space).starts_with(':'))
    }
}

/// The quote that begins a string, and the one that ends it.
fn closing_quote(c: char) -> Option<(char, char)> {
    match c {
        '"' | '\'' => Some((c, c)),
        '“' => Some((c, '”')),
        _ => None,
    }
}

fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    let name = &text[..end];
    if name.starts_with(|c: char| c.is_ascii_digit()) { "" } else { name }
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && serde_json::from_str::<serde::de::IgnoredAny>(word).is_ok()
}

/// A number or a word as JSON, and what had to be repaired for it.
pub(crate) fn word(word: &str) -> Option<(Cow<'_, str>, Option<Repair>)> {
    Some(match word {
        "true" | "false" | "null" => (word.into(), None),
        "True" => ("true".into(), Some(Repair::PythonLiteral)),
        "False" => ("false".into(), Some(Repair::PythonLiteral)),
        "None" => ("null".into(), Some(Repair::PythonLiteral)),
        _ if is_number(word) => (word.into(), None),
        _ if is_odd_number(word) => (format!("\"{word}\"").into(), Some(Repair::OddNumber)),
        _ => return None,
    })
}

/// A number as other languages write it: `030`, `+5`, `.5`, `5.`, `NaN`, `Infinity`.
fn is_odd_number(word: &str) -> bool {
    let plain = word.strip_prefix(['+', '-']).unwrap_or(word);
    if matches!(plain, "NaN" | "Infinity") {
        return true;
    }
    let (number, exponent) = match plain.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.strip_prefix(['+', '-']).unwrap_or(exponent)),
        None => (plain, "0"),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole)
        && digits(fraction)
        && digits(exponent)
        && !exponent.is_empty()
        && whole.len() + fraction.len() > 0
}
