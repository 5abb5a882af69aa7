//! What a backend says that it refuses of a request, so that it can be asked once more without that.
//!
//! Why: strict servers answer 400 for one member that they do not know, and grammar converters for one keyword of one
//! tool's schema; both say so before anything is computed. Shapes seen: pydantic's list of errors as JSON and as Python's
//! text, its report of two lines an error, `PATH: Extra inputs are not permitted`, and sentences with a name in quotes.
//!
//! It must never read a place out of what the error quotes of the request.

/// What is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Members, by the steps that lead to each: names, and `*` for any element of a list. Steps may be among them that are
    /// none: validators name the kind of a message where they chose between several.
    Members(Vec<Vec<String>>),
    /// The schema of some tool, or of the answer: a grammar could not be made of it.
    Schema,
}

/// The words for a member that must not be there.
const EXTRA: [&str; 3] = ["extra_forbidden", "extra inputs are not permitted", "extra fields not permitted"];

/// Sentences that name the member behind them: OpenAI's older and newer words, serde's, Go's, Groq's.
const NAMED: [&str; 6] = [
    "unrecognized request argument supplied: ",
    "unrecognized request arguments supplied: ",
    "unknown parameter: ",
    "unsupported parameter: ",
    "unknown field ",
    "unknown field: ",
];

/// Sentences of a schema that no grammar can be made of: llama.cpp's of several years, vLLM's.
const GRAMMAR: [&str; 13] = [
    "json schema conversion failed",
    "failed to parse grammar",
    "error parsing grammar",
    "json-schema-to-grammar",
    "grammar error:",
    "pattern must start with '^'",
    "features not supported by xgrammar",
    "failed to compile grammar",
    "failed to convert the grammar",
    "unsupported json schema",
    "invalid json schema",
    "error compiling schema",
    "unsupported regex",
];

/// The longest error text that is looked at, bytes, and the most places that are read.
const LONGEST: usize = 64 << 10;
const MOST: usize = 64;

/// Reads an error's text: its sentence, or a whole body where the places stand apart from it.
#[must_use]
pub fn refused(text: &str) -> Option<Refused> {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // Ascii only: places stay places.
    let (text, lower) = (&text[..end], text[..end].to_ascii_lowercase());
    if GRAMMAR.iter().any(|words| lower.contains(words)) {
        return Some(Refused::Schema);
    }
    let mut places = listed(text, &lower);
    if places.is_empty() {
        places = before_words(text, &lower);
    }
    if places.is_empty() {
        places = named(text, &lower);
    }
    places.retain(|place| !place.is_empty());
    places.sort();
    places.dedup();
    places.truncate(MOST);
    (!places.is_empty()).then_some(Refused::Members(places))
}

/// `{"type":"extra_forbidden","loc":["body","store"],…}`, as JSON or as Python writes it.
fn listed(text: &str, lower: &str) -> Vec<Vec<String>> {
    let starts: Vec<usize> = ["\"loc\"", "'loc'", "\\\"loc\\\""]
        .into_iter()
        .flat_map(|name| lower.match_indices(name).map(|(at, _)| at))
        .collect();
    let mut starts: Vec<(usize, usize)> =
        starts.into_iter().map(|at| (lower[..at].rfind('{').unwrap_or(at), at)).collect();
    starts.sort_unstable();
    let entry = |nth: usize| {
        let (from, at) = starts[nth];
        let to = starts.get(nth + 1).map_or(text.len(), |(next, _)| *next);
        let about = unquoted(lower.get(from..to)?);
        let extra = EXTRA.iter().any(|words| about.contains(words));
        let rest = text.get(at..to).filter(|_| extra)?;
        let open = rest.find(['[', '('])?;
        let close = rest[open..].find([']', ')'])?;
        Some(steps(rest[open + 1..open + close].split(',')))
    };
    (0..starts.len()).filter_map(entry).collect()
}

/// An entry without what it repeats of the request.
fn unquoted(entry: &str) -> &str {
    let input = ["'input'", "\"input\"", "\\\"input\\\""].iter().filter_map(|name| entry.find(name)).min();
    // The type may stand behind it in older versions, which repeat nothing.
    input.map_or(entry, |at| &entry[..at])
}

/// `messages.0.user.name` before the words, on the same line or the one above.
fn before_words(text: &str, lower: &str) -> Vec<Vec<String>> {
    let mut places = Vec::new();
    for words in &EXTRA[1..] {
        for (at, _) in lower.match_indices(words) {
            let before = text[..at].trim_end().trim_end_matches(':');
            let start = before.rfind(|c: char| !is_of_path(c)).map_or(0, |at| at + 1);
            places.push(path(&before[start..]));
        }
    }
    places
}

fn named(text: &str, lower: &str) -> Vec<Vec<String>> {
    let mut places = Vec::new();
    for words in NAMED {
        let Some(at) = lower.find(words) else { continue };
        let rest = text[at + words.len()..].trim_start_matches(['\'', '"', '`', '\\', ' ']);
        let mut list = rest;
        loop {
            let end = list.find(|c: char| !is_of_path(c)).unwrap_or(list.len());
            places.push(path(list[..end].trim_end_matches('.')));
            // "arguments supplied: a, b"
            match list[end..].strip_prefix(", ").filter(|_| words.contains("arguments")) {
                Some(more) => list = more,
                None => break,
            }
        }
    }
    places
}

fn is_of_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '[' | ']' | '$')
}

/// `messages[0].refusal`, `messages.0.refusal`.
fn path(text: &str) -> Vec<String> {
    steps(text.split(['.', '[', ']']))
}

fn steps<'t>(steps: impl Iterator<Item = &'t str>) -> Vec<String> {
    let bare = steps
        .map(|step| step.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '\\' | '$')));
    let names = bare.filter(|step| !step.is_empty());
    let mut steps: Vec<String> =
        names
            .map(|step| {
                if step.bytes().all(|byte| byte.is_ascii_digit()) { "*".to_owned() } else { step.to_owned() }
            })
            .collect();
    if steps.first().is_some_and(|first| first == "body") {
        steps.remove(0);
    }
    if steps.iter().all(|step| step == "*") {
        steps.clear();
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::{Refused, refused};

    fn places(text: &str) -> Vec<String> {
        match refused(text) {
            Some(Refused::Members(places)) => places.iter().map(|place| place.join("/")).collect(),
            other => panic!("{other:?} of {text}"),
        }
    }

    #[test]
    fn members_are_read_from_every_shape_in_which_validators_name_them() {
        // vllm-project/vllm#10463, #12864; BerriAI/litellm#30835; anthropics/claude-code#4378.
        let python = "[{'type': 'extra_forbidden', 'loc': ('body', 'messages', 0, 'typed-dict', 'id'), 'msg': 'Extra inputs are not permitted', 'input': 1}, {'type': 'literal_error', 'loc': ('body', 'messages', 0, 'typed-dict', 'role'), 'msg': 'x', 'input': 'system'}, {'type': 'extra_forbidden', 'loc': ('body', 'store'), 'msg': 'Extra inputs are not permitted', 'input': {'loc': 1}}]";
        assert_eq!(places(python), ["messages/*/typed-dict/id", "store"]);
        let json = r#"{"detail":[{"type":"extra_forbidden","loc":["body","messages",3,"assistant","refusal"],"msg":"Extra inputs are not permitted","input":null}]}"#;
        assert_eq!(places(json), ["messages/*/assistant/refusal"]);
        let older = r#"{"detail":[{"loc":["body","top_k"],"msg":"extra fields not permitted","type":"value_error.extra"}]}"#;
        assert_eq!(places(older), ["top_k"]);
        let lines = "2 validation errors for ChatCompletionRequest\nmessages.0.user.name\n  Extra inputs are not permitted [type=extra_forbidden, input_value='b', input_type=str]\n    For further information visit x\nstore\n  Extra inputs are not permitted [type=extra_forbidden]";
        assert_eq!(places(lines), ["messages/*/user/name", "store"]);
        assert_eq!(
            places("messages.65.content.1.tool_use.text: Extra inputs are not permitted"),
            ["messages/*/content/*/tool_use/text"]
        );
        assert_eq!(places("Unrecognized request arguments supplied: store, metadata"), ["metadata", "store"]);
        assert_eq!(places("Unknown parameter: 'messages[2].annotations'."), ["messages/*/annotations"]);
        assert_eq!(
            places("unknown field `parallel_tool_calls`, expected one of `model`"),
            ["parallel_tool_calls"]
        );
    }

    #[test]
    fn grammars_that_cannot_be_made_are_known_and_other_errors_say_nothing() {
        for text in [
            "Failed to initialize samplers: failed to parse grammar",
            "Unable to generate parser for this template. Automatic parser generation failed: JSON schema conversion failed:\nPattern must start with '^' and end with '$'",
            "Grammar error: 1 validation error",
        ] {
            assert_eq!(refused(text), Some(Refused::Schema), "{text}");
        }
        for text in [
            "max_tokens must be at least 1",
            "[{'type': 'literal_error', 'loc': ('body', 'messages', 0, 'role'), 'msg': 'x', 'input': 'extra_forbidden'}]",
            "",
            "loc",
            "Extra inputs are not permitted",
        ] {
            assert_eq!(refused(text), None, "{text}");
        }
    }
}
