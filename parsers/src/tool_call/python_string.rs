//! String literals of Python, as models write them.
//!
//! A quote inside a string of the same quotes is read as text only if that leaves one reading: it stands in a word, or is one of
//! a pair around text, no punctuation follows it, and Python could not go on there.

use super::normalise::quoted;
use super::pythonic::Stop;

/// What may stand behind or before a string in an expression.
const KEYWORDS: &[&str] = &["if", "else", "or", "and", "in", "not", "is", "for", "await", "lambda"];

/// A string literal, with Python's escapes; triple quotes too.
///
/// The text begins with its first quote; the string as JSON, and the bytes of the literal.
pub(super) fn read(text: &str, quote: char) -> Result<(String, usize), Stop> {
    let triple = [quote; 3].iter().collect::<String>();
    if let Some(body) = text.strip_prefix(&triple) {
        let end = body.find(&triple).ok_or(Stop::Short)?;
        return Ok((quoted(&unescape(&body[..end])), end + 6));
    }
    let bytes = text.as_bytes();
    let mut at = 1;
    // Behind the inner quote that has no partner yet.
    let mut open = None;
    loop {
        let found = bytes.get(at..).and_then(|rest| memchr::memchr2(quote as u8, b'\\', rest));
        at += found.ok_or(Stop::Short)?;
        if bytes[at] == b'\\' {
            at += 2;
            continue;
        }
        let next = bytes[at + 1..].iter().find(|byte| !byte.is_ascii_whitespace()).ok_or(Stop::Short)?;
        if matches!(next, b',' | b')' | b']' | b'}' | b':') {
            break;
        }
        let (before, behind) = (&text[..at], &text[at + 1..]);
        open = match open {
            None if quote == '\'' && in_word(before, behind)? => None,
            None if behind.starts_with(|c: char| c.is_whitespace() || matches!(c, '"' | '\'')) => {
                return Err(Stop::Bad);
            }
            None => Some(at + 1),
            Some(from) => {
                let inner = &text[from..at];
                if inner.ends_with(char::is_whitespace) || joins(inner) {
                    return Err(Stop::Bad);
                }
                None
            }
        };
        at += 1;
    }
    if open.is_some() {
        return Err(Stop::Bad);
    }
    Ok((quoted(&unescape(&text[1..at])), at + 1))
}

/// Whether an apostrophe stands inside a word: not where a keyword, or the prefix of a string, follows instead.
fn in_word(before: &str, behind: &str) -> Result<bool, Stop> {
    if !before.ends_with(char::is_alphanumeric) || !behind.starts_with(char::is_alphanumeric) {
        return Ok(false);
    }
    let length = behind.find(|c: char| !c.is_alphanumeric()).ok_or(Stop::Short)?;
    let (word, rest) = behind.split_at(length);
    let program = KEYWORDS.contains(&word) || (rest.starts_with(['"', '\'']) && is_prefix(word));
    Ok(!program)
}

/// Whether Python would read this text between two strings as what makes one expression of them: `+`, `if x ==`, `.join(`, `f`.
fn joins(text: &str) -> bool {
    let joint = |c: char| "+-*/%@&|^<>=!.,:;([{~".contains(c);
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let (first, behind) = text.split_at(text.find(|c| !word(c)).unwrap_or(text.len()));
    // `3or` is a number and a keyword.
    let last = text[text.trim_end_matches(word).len()..].trim_start_matches(|c: char| c.is_ascii_digit());
    let string = behind.starts_with(['"', '\'']) && is_prefix(first);
    let goes_on = text.starts_with(joint) || KEYWORDS.contains(&first) || string;
    let expects = text.ends_with(|c| joint(c) || matches!(c, '"' | '\''))
        || KEYWORDS.contains(&last)
        || is_prefix(last);
    is_prefix(text) || (goes_on && expects)
}

/// The letters before a string that change how it is read.
fn is_prefix(word: &str) -> bool {
    matches!(
        word.to_ascii_lowercase().as_str(),
        "r" | "b" | "u" | "f" | "t" | "br" | "rb" | "fr" | "rf" | "tr" | "rt"
    )
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(c) = rest.chars().next() else {
            plain.push('\\');
            break;
        };
        let digits = match c {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        let code = (digits > 0).then(|| rest.get(1..=digits)).flatten();
        let code = code.and_then(|code| u32::from_str_radix(code, 16).ok()).and_then(char::from_u32);
        rest = &rest[c.len_utf8()..];
        match (c, code) {
            (_, Some(code)) => {
                plain.push(code);
                rest = &rest[digits..];
            }
            ('n', _) => plain.push('\n'),
            ('t', _) => plain.push('\t'),
            ('r', _) => plain.push('\r'),
            ('\\' | '\'' | '"', _) => plain.push(c),
            ('\n', _) => {}
            // Python keeps the backslash of an escape that it does not know.
            (c, _) => plain.extend(['\\', c]),
        }
    }
    plain.push_str(rest);
    plain
}
