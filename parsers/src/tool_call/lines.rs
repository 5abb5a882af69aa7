//! What single lines tell of their place: gutters of diffs and listings, turns of a transcript, elements that show, blocks that
//! end further down.

use super::formats::{self, INVENTED};
use super::grammar::starts_with_any;

/// Elements that show their content.
pub(super) const SHOWING: [&str; 7] = ["pre", "code", "samp", "kbd", "blockquote", "example", "xmp"];
/// A comment shows nothing, and runs nothing.
pub(super) const COMMENT: &str = "<!--";
pub(super) const COMMENT_END: &str = "-->";
/// Columns that blanks take.
pub(super) fn columns(blanks: &str) -> usize {
    blanks.chars().map(|c| if c == '\t' { 4 } else { 1 }).sum()
}

/// The closing tag of the element that a line opens first and does not close.
pub(super) fn showing(line: &str) -> Option<&'static str> {
    const CLOSERS: [&str; 7] =
        ["</pre>", "</code>", "</samp>", "</kbd>", "</blockquote>", "</example>", "</xmp>"];
    let line = line.trim_start();
    if line.starts_with(COMMENT) {
        return comments(line).then_some(COMMENT_END);
    }
    let at = SHOWING.iter().position(|name| line.starts_with('<') && opens(line, name))?;
    line[1..].starts_with(SHOWING[at]).then_some(CLOSERS[at])
}

/// True if the line opens the element and does not close it.
pub(super) fn opens(line: &str, name: &str) -> bool {
    let tag = |(at, _): &(usize, &str)| {
        line[at + 1..].strip_prefix(name).is_some_and(|rest| rest.starts_with(['>', ' ']))
    };
    line.match_indices('<').rfind(tag).is_some_and(|(at, _)| !line[at..].contains(&format!("</{name}>")))
}

/// True if the line opens a comment and does not close it.
pub(super) fn comments(line: &str) -> bool {
    line.rfind(COMMENT).is_some_and(|at| !line[at + COMMENT.len()..].contains(COMMENT_END))
}

/// What closes a showing element, at the start of the text; `Err(true)` while it may.
pub(super) fn closes_showing(text: &str) -> Result<(), bool> {
    if text.starts_with('-') {
        return if text.starts_with(COMMENT_END) { Ok(()) } else { Err(COMMENT_END.starts_with(text)) };
    }
    let Some(rest) = text.strip_prefix("</") else { return Err("</".starts_with(text)) };
    match rest.find('>') {
        Some(end) if SHOWING.contains(&&rest[..end]) => Ok(()),
        Some(_) => Err(false),
        None => Err(SHOWING.iter().any(|name| name.starts_with(rest))),
    }
}

/// True while the text may become the opening tag of a showing element.
pub(super) fn may_show(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('<') else { return false };
    COMMENT.starts_with(text) || SHOWING.iter().any(|name| name.starts_with(rest))
}

/// What lists, diffs, logs, shells, `grep -n`, `cat -n`, tables and code put before a line's text: nothing but signs and numbers, a
/// place or a time, or something that is still open.
pub(super) fn is_gutter(head: &str) -> bool {
    let line = head.trim();
    if line.is_empty() {
        return false;
    }
    let sign =
        |c: char| c.is_ascii_punctuation() || c.is_ascii_digit() || c.is_whitespace() || "•→│–—".contains(c);
    line.chars().all(sign)
        || line.starts_with('|')
        || line.ends_with(['(', '[', '{', '=', '/', '\\', '|', '+', '&'])
        || is_prompt(line)
        || is_place(line)
        || is_time(line)
}

/// `bash-5.2$`, `root@host:/#`, `>>>`, `name>`
fn is_prompt(line: &str) -> bool {
    match line.as_bytes() {
        [.., b'$'] => true,
        [.., before, b'#' | b'%'] => !before.is_ascii_alphanumeric(),
        [.., b'>'] => !line.contains('<'),
        _ => false,
    }
}

/// The line ends with an element's opening tag.
pub(super) fn ends_open(line: &str) -> bool {
    let tag = line.trim_end().strip_suffix('>').and_then(|line| line.rsplit_once('<'));
    tag.is_some_and(|(_, tag)| tag.starts_with(|c: char| c.is_ascii_alphabetic()) && !tag.ends_with('/'))
}

/// `src/a.rs:12:`, `src/a.rs-12-`, `src/a.rs:12:5:`
fn is_place(line: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let rest = line.strip_suffix([':', '-']).filter(|rest| !rest.contains(char::is_whitespace));
    rest.and_then(|rest| rest.rsplit_once([':', '-'])).is_some_and(|(_, number)| digits(number))
}

/// A date or the time of day begins the line: `2026-01-31`, `[12:00:07`.
fn is_time(line: &str) -> bool {
    let shape: String = line
        .trim_start_matches(['[', '(', '<'])
        .chars()
        .take(10)
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    ["0000-00-00", "0000/00/00", "00:00", "0:00"].iter().any(|time| shape.starts_with(time))
}

pub(super) fn starts_diff(line: &str) -> bool {
    ["@@ -", "diff --git ", "--- a/", "--- /dev/null"].iter().any(|mark| line.starts_with(mark))
}

pub(super) fn goes_on_as_diff(line: &str) -> bool {
    line.starts_with([' ', '+', '-', '\\', '@'])
        || ["diff ", "index ", "new ", "old ", "deleted ", "similarity ", "rename "]
            .iter()
            .any(|mark| line.starts_with(mark))
}

/// A line that gives somebody else's turn: `User:`, `**Human:** …`, `[user]: …`, `Q: …`, a turn's token.
pub(super) fn is_turn(line: &str) -> bool {
    let line = line.trim_start();
    // Nearly every line is none: its first byte says so.
    if !line.as_bytes().first().is_some_and(|first| b"<[*_#uhqUHQ".contains(first)) {
        return false;
    }
    if line.starts_with(['<', '[']) && starts_with_any(line, INVENTED).is_ok() {
        return true;
    }
    let line = line.trim_start_matches(['*', '_', '#', '[', ' ', '\t']);
    if !line.as_bytes().first().is_some_and(|first| b"uhqUHQ".contains(first)) {
        return false;
    }
    let (word, rest) = line.split_at(line.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(line.len()));
    ["user", "human", "q"].iter().any(|label| word.eq_ignore_ascii_case(label))
        && rest.trim_start_matches(['*', '_', ']', ' ']).starts_with(':')
}

/// Elements that stand alone, or are seldom closed.
const VOID: [&str; 8] = ["br", "hr", "img", "input", "meta", "link", "p", "li"];

/// What ends the block that a line opens and does not close, in small letters.
pub(super) fn encloses(line: &str) -> Option<String> {
    let first = *line.as_bytes().first()?;
    let opened = |closer: String| (!line.to_ascii_lowercase().contains(&closer)).then_some(closer);
    let word = |text: &str| {
        let length = text.find(|c: char| !c.is_ascii_alphanumeric() && !"-_.:".contains(c));
        text[..length.unwrap_or(text.len())].to_ascii_lowercase()
    };
    match first {
        b'<' if line[1..].starts_with(|c: char| c.is_ascii_alphabetic()) => {
            let name = word(&line[1..]);
            let tag = &line[..line.find('>')?];
            let none = tag.ends_with('/') || VOID.contains(&name.as_str()) || formats::at(line).is_ok();
            return opened(format!("</{name}>")).filter(|_| !none);
        }
        b'/' if line.starts_with("/*") => return opened("*/".to_owned()),
        b'\\' if line.starts_with("\\begin{") => return opened(format!("\\end{{{}", word(&line[7..]))),
        b'[' | b'#' => {
            for (opener, closer) in [("[code", "[/code]"), ("[quote", "[/quote]"), ("#+begin_", "#+end_")] {
                if line.get(..opener.len()).is_some_and(|start| start.eq_ignore_ascii_case(opener)) {
                    return opened(closer.to_owned());
                }
            }
        }
        _ => {}
    }
    if !has_run(line) {
        return None;
    }
    for quotes in ["\"\"\"", "'''"] {
        if line.contains(quotes) {
            return (line.matches(quotes).count() % 2 == 1).then(|| quotes.to_owned());
        }
    }
    // `cat <<'EOF' > file`
    let heredoc = line.split_once("<<")?.1.trim_start_matches(['-', '~', '\'', '"', '\\']);
    let end = word(heredoc);
    (end.len() > 1 && heredoc[..end.len()].bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'))
        .then_some(end)
}

/// Whether three quotation marks or two `<` stand beside each other: one pass, since every line is asked.
fn has_run(line: &str) -> bool {
    let bytes = line.as_bytes();
    memchr::memchr3_iter(b'"', b'\'', b'<', bytes).any(|at| {
        let next = |by: usize| bytes.get(at + by) == Some(&bytes[at]);
        next(1) && (bytes[at] == b'<' || next(2))
    })
}
