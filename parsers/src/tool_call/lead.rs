//! How the text before a call leads to it: a sentence that has ended, one that goes on into the call, words that deny it.
//!
//! Who calls has said what there was to say, or says what they are about to do. Who shows a call announces it ("The log was:") and
//! goes on behind it. Only the end of the last line counts, and few words: punctuation is the same in most languages.

use super::formats;

/// How the last line before a place ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lead {
    /// A sentence or a block has ended, or the model says what it does.
    Ended,
    /// It goes on: a colon that announces what follows, an open sentence, a heading, a name.
    Open,
    /// A shell's prompt, and what was typed there.
    Prompt,
}

/// Said right before weak evidence, these deny that it is meant.
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
    "i need",
    "ich werde",
    "je vais",
    "voy a",
    "我来",
    "我先",
    "我将",
    "让我",
];

/// Who is at these calls: "Checking the host:", "I'm reading it:".
const DOINGS: &[&str] = &[
    "calling",
    "checking",
    "creating",
    "executing",
    "fetching",
    "finding",
    "getting",
    "invoking",
    "listing",
    "loading",
    "looking",
    "opening",
    "pinging",
    "querying",
    "reading",
    "retrieving",
    "running",
    "searching",
    "trying",
    "updating",
    "writing",
];
/// Who says "I" before these does so, too.
const DOES: &[&str] = &[
    "ask", "call", "check", "fetch", "find", "get", "invoke", "list", "load", "look", "open", "query",
    "read", "retrieve", "run", "search", "try", "use",
];
/// These stand before either, and between.
const FILLERS: &[&str] =
    &["now", "so", "ok", "okay", "sure", "and", "first", "then", "next", "am", "m", "also"];
/// With one of these it is a sentence about a call: "Calling it gives:", "When I call it:".
const FINITE: &[&str] = &[
    "are", "as", "because", "can", "could", "crashed", "crashes", "does", "failed", "fails", "found", "gave",
    "gives", "has", "how", "if", "is", "like", "looks", "means", "must", "needs", "printed", "prints",
    "requires", "returned", "returns", "sends", "should", "showed", "shows", "takes", "that", "was", "were",
    "what", "when", "which", "will", "works", "would", "writes", "yields",
];
/// As many words at most.
const FEW: usize = 6;

/// Who means to do these does not call.
const TELLING: &[&str] = &[
    "show",
    "let me know",
    "explain",
    "describ",
    "quote",
    "repeat",
    "paste",
    "demonstrat",
    "illustrat",
    "give you",
];

/// Before weak evidence these point at it, or tell of it, and say nothing of what the model does.
const POINTING: &[&str] = &[
    "here is",
    "here's",
    "here it is",
    "here are",
    "this is",
    "that is",
    "that's",
    "these are",
    "below",
    "following",
    "above",
    "as follows",
    "not a call",
    "documentation",
    "the log",
    "you asked",
    "you wanted",
];

/// Who says these tells the reader how a call is written, and makes none.
const LESSONS: &[&str] = &[
    "how you'd",
    "how you would",
    "is how you",
    "'s how you",
    "is how to",
    "'s how to",
    "you would call",
    "you'd call",
    "you would write",
    "you'd write",
];

/// A sentence that ends so introduces one that is only shown.
const EXAMPLES: &[&str] = &[
    "example",
    "for instance",
    "e.g",
    "would be",
    "would look like",
    "would look like this",
    "looks like",
    "looks like this",
    "look like this",
    "format",
    "syntax",
    "beispiel",
    "exemple",
    "ejemplo",
    "例如",
    "示例",
];

/// These, or one of [`WILLS`] with a `not`, before one of [`ACTS`]: it is not run.
const REFUSALS: &[&str] =
    &["refuse", "decline", "won't", "don't", "never", "mustn't", "shouldn't", "wouldn't"];
const WILLS: &[&str] = &["will", "i'll", "do", "must", "should", "would", "shall"];
const ACTS: &[&str] = &["run", "call", "execute", "invoke", "running", "calling", "executing", "invoking"];
/// Behind so many words at most.
const REACH: usize = 4;
/// What they point at is what follows.
const POINTERS: &[&str] = &["this", "that", "it", "these", "those", "them", "such", "anything"];

/// A few words that begin with one of these are a step.
const ORDER: [&str; 5] = ["first", "then", "now", "next", "finally"];
/// As many words at most.
const STEP: usize = 3;

/// How this line leads to what follows it.
pub(super) fn of(line: &str) -> Lead {
    let line = line.trim();
    if ["$ ", "% ", ">>> ", "PS "].iter().any(|prompt| line.starts_with(prompt)) {
        return Lead::Prompt;
    }
    if ends(line) || intends(line) { Lead::Ended } else { Lead::Open }
}

/// A sentence, or a block of other text, ends with this line.
fn ends(line: &str) -> bool {
    if line.starts_with("```") || line.starts_with("~~~") {
        return true;
    }
    // An element; the markup of a call that was none ends nothing.
    if line.ends_with('>') {
        let marks = |text: &str| formats::at(text).is_ok() || formats::closer_at(text).is_ok();
        return !marks(line) && !line.rfind('<').is_some_and(|tag| marks(&line[tag..]));
    }
    let line = line.trim_end_matches(['*', '_', '"', '\'', ')', ']', '”', '’', '»', '」', '）', ' ']);
    let mut back = line.chars().rev();
    match back.next() {
        None => true,
        // `e.g.`
        Some('.') => !(back.next().is_some_and(char::is_alphabetic) && back.next() == Some('.')),
        Some(c) => {
            matches!(c, '!' | '…' | '。' | '！')
                || !(c.is_ascii() || c.is_alphanumeric() || "：，、；？「“‘«—–→".contains(c))
        }
    }
}

/// The last sentence says what the model is about to do, or in which order.
fn intends(line: &str) -> bool {
    let sentence = last_sentence(line);
    let word = &sentence[..sentence.find(|c: char| !c.is_alphabetic()).unwrap_or(sentence.len())];
    let step = ORDER.contains(&word) && sentence.split_whitespace().count() <= STEP;
    // Amid a sentence the call is a part of it.
    let pauses = !line.trim_end_matches(['*', '_', ' ']).ends_with(char::is_alphanumeric);
    let acts = step
        || (pauses && is_doing(&sentence))
        || INTENTIONS.iter().any(|intention| sentence.contains(intention));
    acts && !TELLING.iter().any(|telling| sentence.contains(telling)) && refusal(&sentence) == 0
}

/// The sentence says what the model is doing.
fn is_doing(sentence: &str) -> bool {
    let words = sentence.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    let words: Vec<&str> = words.filter(|word| !FILLERS.contains(word)).collect();
    let act = words.iter().position(|word| *word == "i").map(|at| at + 1);
    let verb = words.get(act.unwrap_or(0)).copied().unwrap_or_default();
    let few = act.is_some() || words.len() <= FEW;
    (DOINGS.contains(&verb) || (act.is_some() && DOES.contains(&verb)))
        && few
        && !words.iter().any(|word| FINITE.contains(word))
        && !LESSONS.iter().chain(EXAMPLES).any(|words| sentence.contains(words))
}

/// The last sentence of a line, in small letters and without what ends it.
fn last_sentence(line: &str) -> String {
    let line = line.to_lowercase().replace('’', "'");
    let line = line.trim_end_matches(['*', '_', ' ', ':', '：', '.', '。', '!', '！']);
    let ends = [". ", "! ", "? ", "。", "！", "？"];
    let start = ends.iter().filter_map(|end| line.rfind(end).map(|at| at + end.len())).max().unwrap_or(0);
    line[start..].trim_start().to_owned()
}

/// True for a line that denies that what follows is meant, points at it, asks, or tells the reader what to do.
pub(super) fn denies(line: &str) -> bool {
    let lower = line.to_lowercase();
    let lower = lower.trim_end_matches(['*', '_', ' ']);
    let points = || {
        let sentence = last_sentence(line);
        let own = sentence.starts_with("i ") || intends(line);
        !own && POINTING.iter().any(|pointing| sentence.contains(pointing))
    };
    lower.ends_with(['?', '？'])
        || DENIALS.iter().any(|denial| lower.contains(denial))
        || doubts(line) > 0
        || points()
}

/// What the last sentence has against a call that follows: nothing, one doubt, or two, which make it talk.
pub(super) fn doubts(line: &str) -> usize {
    let sentence = last_sentence(line);
    match refusal(&sentence) {
        0 if intends(line) => 0,
        0 if LESSONS.iter().any(|lesson| sentence.contains(lesson)) => 2,
        0 => usize::from(EXAMPLES.iter().any(|example| sentence.ends_with(example))),
        doubts => doubts,
    }
}

/// Says that something will not be run: one doubt; that it is *this*: two.
fn refusal(sentence: &str) -> usize {
    let words: Vec<&str> =
        sentence.split(|c: char| !c.is_alphabetic() && c != '\'').filter(|word| !word.is_empty()).collect();
    let refused = |at: usize| {
        let next = words.get(at + 1).copied().unwrap_or_default();
        let certain = REFUSALS.contains(&words[at]) || (next == "not" && WILLS.contains(&words[at]));
        let behind = &words[at + 1..];
        let verb = behind.iter().take(REACH).position(|word| ACTS.contains(word));
        let able = matches!(words[at], "cannot" | "can't") || (words[at], next) == ("can", "not");
        match verb {
            Some(verb) if certain || able => {
                let this = behind.get(verb + 1).is_some_and(|word| POINTERS.contains(word));
                if this && certain { 2 } else { 1 }
            }
            _ => 0,
        }
    };
    (0..words.len()).map(refused).max().unwrap_or(0)
}
