//! The opening tags of XML-like blocks, as models write them: well, in a neighbour's dialect, or damaged.
//!
//! `<function=N>`, `<function name="N">`, `<invoke name='N'>`, `<parameter=K>`, with any known prefix, spaces, quotes; `<<`,
//! a repeated `parameter=`, a lost `>`, an `=` in its place. Damage is mended only where the name is a declared one.

/// Elements that begin a call.
pub(crate) const FUNCTIONS: &[&str] = &["function", "invoke"];
/// Elements that hold a value.
pub(crate) const PARAMETERS: [&str; 2] = ["parameter", "param"];
/// Prefixes of elements, the longer ones first.
pub(crate) const PREFIXES: &[&str] =
    &["｜DSML｜ ", "｜DSML｜", "|DSML| ", "|DSML|", "steptml:", "atem:", "antml:", ""];
/// Longest opening tag, in bytes.
const LONGEST: usize = 512;

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
