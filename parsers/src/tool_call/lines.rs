//! What single lines tell of their place: gutters of diffs and listings, turns of a transcript, elements that show, words that deny.

/// Elements that show their content.
pub(super) const SHOWING: [&str; 7] = ["pre", "code", "samp", "kbd", "blockquote", "example", "xmp"];
/// A comment shows nothing, and runs nothing.
pub(super) const COMMENT: &str = "<!--";
pub(super) const COMMENT_END: &str = "-->";
/// Said right before a trailing example, these deny that it is meant.
const DENIALS: &[&str] = &[
    "example",
    "e.g.",
    "for instance",
    "sample",
    "hypothetical",
    "would be",
    "would look",
    "would call",
    "would use",
    "would make",
    "would write",
    "could be",
    "could look",
    "look like",
    "looks like",
    "format",
    "syntax",
    "schema",
    "template",
    "do not",
    "don't",
    "don’t",
    "never",
    "not run",
    "not call",
    "not execut",
    "without running",
    "cannot",
    "can't",
    "can’t",
    "won't",
    "won’t",
    "instead of",
    "beispiel",
    "würde",
    "nicht",
    "exemple",
    "ejemplo",
    "例如",
    "示例",
    "格式",
];

/// Said right before a block of its own, these show what a call is like, if words follow it.
const EXAMPLES: &[&str] = &[
    "for example",
    "for instance",
    "e.g.",
    "example of",
    "example call",
    "is an example",
    "is the example",
    "here's an example",
    "here’s an example",
    "as an example",
    "hypothetical",
    "look like",
    "looks like",
    "would be",
    "would call",
    "would write",
    "format",
    "syntax",
    "do not run",
    "don't run",
    "don’t run",
    "do not call",
    "do not execute",
    "not run this",
    "beispiel",
    "par exemple",
    "un exemple",
    "por ejemplo",
    "un ejemplo",
    "例如",
    "示例",
    "格式",
    "例えば",
    "形式",
    "например",
    "пример",
];
/// Who says these means to do it.
const INTENTIONS: &[&str] = &[
    "i'll",
    "i’ll",
    "i will",
    "let me",
    "let's",
    "let’s",
    "i am going",
    "i'm going",
    "we'll",
    "我来",
    "让我",
];
/// A line of so many bytes that has the word in it is a heading.
const HEADING: usize = 40;

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

/// What a diff, `grep -n`, `cat -n` or a table puts before a line's text.
pub(super) fn is_gutter(head: &str) -> bool {
    let line = head.trim_start();
    if matches!(head, "+" | "-") || line.starts_with('|') {
        return true;
    }
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // `12\t`, `12|`, `12→`
    if let Some(number) = line.trim_end().strip_suffix(['|', '→']).or_else(|| line.strip_suffix('\t')) {
        return digits(number.trim_end());
    }
    // `12:`, `src/a.rs:12:`, `src/a.rs-12-`, `src/a.rs:12:5:`
    let Some(rest) = line.strip_suffix([':', '-']).filter(|rest| !rest.contains(char::is_whitespace)) else {
        return false;
    };
    digits(rest)
        || rest.rsplit_once([':', '-']).is_some_and(|(path, number)| digits(number) && !path.is_empty())
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    User,
    Model,
}

/// Whose turn of a transcript a line begins, and whether it is the label alone: `User:`, `**Assistant:**`, `[assistant]:`.
pub(super) fn speaker(line: &str) -> Option<(Speaker, bool)> {
    let line = line.trim_start_matches(['*', '_', '#', '[', ' ', '\t']);
    if !line.as_bytes().first().is_some_and(|first| b"uhamUHAM".contains(first)) {
        return None;
    }
    let length = line.find(|c: char| !c.is_ascii_alphabetic())?;
    let (word, rest) = line.split_at(length);
    let speaker = match word.to_ascii_lowercase().as_str() {
        "user" | "human" => Speaker::User,
        "assistant" | "model" | "ai" | "agent" => Speaker::Model,
        _ => return None,
    };
    let rest = rest.trim_start_matches(['*', '_', ']', ' ']).strip_prefix(':')?;
    Some((speaker, rest.trim_matches(['*', '_', ' ', '\t', '\r']).is_empty()))
}

/// True for a line that shows what follows, as a heading or in its last sentence, and says nothing of doing it.
pub(super) fn exemplifies(line: &str) -> bool {
    let line = line.to_lowercase();
    let line = line.trim_end_matches(['*', '_', ' ', ':', '：']);
    if line.len() < HEADING && (line.contains("example") || line.contains("beispiel")) {
        return INTENTIONS.iter().all(|intention| !line.contains(intention));
    }
    let ends = [". ", "! ", "? ", "。", "！", "？"];
    let start = ends.iter().filter_map(|end| line.rfind(end).map(|at| at + end.len())).max().unwrap_or(0);
    let sentence = &line[start..];
    let does = INTENTIONS.iter().any(|intention| sentence.contains(intention)) && !sentence.contains("show");
    !does && EXAMPLES.iter().any(|example| sentence.contains(example))
}

/// True for a line that denies that what follows is meant, or asks.
pub(super) fn denies(line: &str) -> bool {
    let line = line.to_lowercase();
    let line = line.trim_end_matches(['*', '_', ' ']);
    line.ends_with(['?', '？']) || DENIALS.iter().any(|denial| line.contains(denial))
}
