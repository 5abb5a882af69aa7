//! What a template may call: the functions, filters, tests and methods that chat templates use, as their engine has them.
//!
//! Why a list of our own: minijinja follows Jinja2 but is not Python, its own filters know nothing of a budget, and two engines
//! with two Jinjas disagree about white space. What is not here and can make more than it was given is taken out.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value, filters};
use minijinja_contrib::pycompat;

use super::budget::{self, Budget};
use super::expressions::{DIVISOR, EACH, HELD, JOINED, KEPT, LAZY, NESTED, READ, SLICED, TIMES};
use super::text::{JsonStyle, Text};
use crate::prompt::normalise::Normalisation;

/// Marks the message of a template's own `raise_exception`.
pub(super) const RAISED: &str = "raised: ";
/// How deep macros may call each other, four for each: Kimi K3's writes nested schemas by recursion.
const MAX_RECURSION: usize = 192;
/// Where `str.splitlines` cuts.
const LINE_ENDS: [char; 10] =
    ['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}'];
/// minijinja's own filters that make more than they are given.
const WITHOUT: [&str; 8] = ["batch", "slice", "groupby", "zip", "chain", "pprint", "format", "urlencode"];

/// An environment for one dialect, without a template.
pub(super) fn environment(dialect: Normalisation) -> Environment<'static> {
    let mut env = Environment::new();
    env.set_undefined_behavior(match dialect {
        Normalisation::Vllm => UndefinedBehavior::Lenient,
        // An attribute of what is not there is not there either.
        Normalisation::LlamaCpp => UndefinedBehavior::Chainable,
    });
    env.set_recursion_limit(MAX_RECURSION);
    env.set_formatter(move |out, state, value| {
        let mut text = Text::new(dialect, Budget::of(state));
        text.put_value(value)?;
        Ok(out.write_str(&text.finish())?)
    });
    env.set_unknown_method_callback(move |state, value, name, args| match value.as_str() {
        Some(text) => string_method(dialect, state, text, name, args)
            .unwrap_or_else(|| pycompat::unknown_method_callback(state, value, name, args)),
        None => pycompat::unknown_method_callback(state, value, name, args),
    });
    for name in WITHOUT {
        env.remove_filter(name);
    }
    env.remove_global("debug");
    add_functions(&mut env, dialect);
    add_filters(&mut env, dialect);
    env.add_test("iterable", |value: &Value| {
        !matches!(value.kind(), ValueKind::None | ValueKind::Bool | ValueKind::Number)
    });
    env.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Iterable | ValueKind::Map)
    });
    env
}

fn add_functions(env: &mut Environment<'static>, dialect: Normalisation) {
    env.add_function(HELD, budget::held);
    env.add_function(READ, budget::read);
    env.add_function(NESTED, budget::nested);
    env.add_function(KEPT, budget::kept);
    env.add_function(LAZY, |_: Value| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::BadSerialization, "a generator cannot be written as json"))
    });
    env.add_function(EACH, |value: Value| match value.is_none() {
        true => Err(Error::new(ErrorKind::InvalidOperation, "none cannot be walked through")),
        false => Ok(value),
    });
    env.add_function(JOINED, move |state: &State, left: &Value, right: &Value| {
        budget::joined(dialect, state, left, right)
    });
    env.add_function(TIMES, budget::times);
    env.add_function(SLICED, budget::sliced);
    env.add_function(DIVISOR, budget::divisor);
    env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
    });
    // The day is not ours to know: see [`super::Rendered::dated`].
    env.add_function("strftime_now", |state: &State, format: &str| {
        Budget::of(state).note_date();
        Budget::of(state).charge(format.len() as u64 * 8)?;
        Ok::<_, Error>(a_day(format))
    });
}

/// A day in the middle of everything, in the directives that templates use.
fn a_day(format: &str) -> String {
    [
        ("%Y", "2026"),
        ("%m", "06"),
        ("%d", "15"),
        ("%B", "June"),
        ("%b", "Jun"),
        ("%A", "Monday"),
        ("%a", "Mon"),
        ("%H", "12"),
        ("%M", "30"),
        ("%S", "30"),
    ]
    .iter()
    .fold(format.to_owned(), |day, (directive, value)| day.replace(directive, value))
}

fn add_filters(env: &mut Environment<'static>, dialect: Normalisation) {
    env.add_filter("tojson", move |state: &State, value: &Value, indent: Option<usize>, options: Kwargs| {
        let indent = indent.or(options.get("indent")?);
        let separators: Option<Vec<String>> = options.get("separators")?;
        let [between, colon] = separators
            .and_then(|pair| <[String; 2]>::try_from(pair).ok())
            .unwrap_or_else(|| [if indent.is_some() { "," } else { ", " }.into(), ": ".into()]);
        let style = JsonStyle {
            indent,
            between,
            colon,
            ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
            sorted: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        };
        let mut text = Text::new(dialect, Budget::of(state));
        text.put_json(value, &style, 0)?;
        Ok::<_, Error>(text.finish())
    });
    env.add_filter("string", move |state: &State, value: &Value| {
        let mut text = Text::new(dialect, Budget::of(state));
        match (dialect, value.kind()) {
            // In llama.cpp the filter writes numbers as JSON has them, and not as `{{ }}` does.
            (Normalisation::LlamaCpp, ValueKind::Number) => text.put_number(value, true)?,
            _ => text.put_value(value)?,
        }
        Ok::<_, Error>(text.finish())
    });
    env.add_filter("join", move |state: &State, value: &Value, by: Option<&str>, options: Kwargs| {
        let attribute: Option<&str> = options.get("attribute")?;
        join(dialect, state, value, by.unwrap_or_default(), attribute)
    });
    for name in ["length", "count"] {
        // Nothing has no length to minijinja, and 0 to both engines.
        env.add_filter(name, |state: &State, value: &Value| match value.kind() {
            ValueKind::Undefined => Ok(0),
            ValueKind::String => Budget::of(state).charge(budget::weight(value)).and(filters::length(value)),
            _ => filters::length(value),
        });
    }
    env.add_filter("trim", move |state: &State, value: &Value, chars: Option<&str>| {
        let text = match (value.as_str(), dialect) {
            (Some(text), _) => return Ok(Some(strip(dialect, text, chars, true, true).to_owned())),
            (None, Normalisation::LlamaCpp) => return Ok(None),
            // Python trims what anything looks like in print.
            (None, Normalisation::Vllm) => {
                let mut text = Text::new(dialect, Budget::of(state));
                text.put_value(value)?;
                text.finish()
            }
        };
        Ok::<_, Error>(Some(strip(dialect, &text, chars, true, true).to_owned()))
    });
    // Python writes down what is no string, and then changes its letters.
    for (name, change) in [("upper", str::to_uppercase as fn(&str) -> String), ("lower", str::to_lowercase)] {
        env.add_filter(name, move |state: &State, value: &Value| {
            let mut text = Text::new(dialect, Budget::of(state));
            text.put_value(value)?;
            Ok::<_, Error>(change(&text.finish()))
        });
    }
    env.add_filter("items", |value: &Value| match value.is_undefined() {
        true => Ok(Value::from(Vec::<Value>::new())),
        false => filters::items(value),
    });
    env.add_filter("split", move |state: &State, value: &str, by: Option<&str>, most: Option<i64>| {
        split(dialect, state, value, by, most, false)
    });
    env.add_filter("replace", |state: &State, value: &Value, from: &str, to: &str| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        replace(state, &text, from, to, None)
    });
    env.add_filter(
        "indent",
        move |state: &State, value: &str, width: Option<Value>, first: Option<bool>, options: Kwargs| {
            let width = width.or(options.get("width")?).unwrap_or_else(|| Value::from(4));
            let first = first.or(options.get("first")?).unwrap_or(false);
            let blank = options.get::<Option<bool>>("blank")?.unwrap_or(false);
            indent(dialect, state, value, &width, first, blank)
        },
    );
}

/// The methods of strings that Python has and pycompat lacks, takes differently or does not bound. None: pycompat's business.
fn string_method(
    dialect: Normalisation,
    state: &State,
    text: &str,
    name: &str,
    args: &[Value],
) -> Option<Result<Value, Error>> {
    let word = |at: usize| args.get(at).and_then(Value::as_str);
    let number = |at: usize| args.get(at).and_then(Value::as_i64);
    Some(match name {
        "strip" => Ok(Value::from(strip(dialect, text, word(0), true, true))),
        "lstrip" => Ok(Value::from(strip(dialect, text, word(0), true, false))),
        "rstrip" => Ok(Value::from(strip(dialect, text, word(0), false, true))),
        "split" => split(dialect, state, text, word(0), number(1), false),
        "rsplit" => split(dialect, state, text, word(0), number(1), true),
        "replace" => match (word(0), word(1)) {
            (Some(from), Some(to)) => replace(state, text, from, to, number(2)),
            _ => Err(Error::new(ErrorKind::MissingArgument, "replace takes two strings")),
        },
        "removeprefix" => Ok(Value::from(word(0).and_then(|p| text.strip_prefix(p)).unwrap_or(text))),
        "removesuffix" => Ok(Value::from(word(0).and_then(|s| text.strip_suffix(s)).unwrap_or(text))),
        "count" => Ok(Value::from(text.matches(word(0).unwrap_or_default()).count())),
        "isdigit" | "isnumeric" => Ok(Value::from(!text.is_empty() && text.chars().all(char::is_numeric))),
        "join" => match args.first() {
            Some(items) => join(dialect, state, items, text, None).map(Value::from),
            None => Err(Error::new(ErrorKind::MissingArgument, "join takes a list")),
        },
        // A width in a format makes as much as it says.
        "format" if text.contains(':') => {
            Err(Error::new(ErrorKind::InvalidOperation, "formats with a specification are not rendered"))
        }
        _ => return None,
    })
}

/// `str.strip()`: Python takes all white space that Unicode knows and the separators of ASCII, C++ `isspace` that of ASCII.
fn strip<'a>(dialect: Normalisation, text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let goes = |c: char| match (chars, dialect) {
        (Some(chars), _) => chars.contains(c),
        (None, Normalisation::Vllm) => c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c),
        (None, Normalisation::LlamaCpp) => matches!(c, ' ' | '\t'..='\r'),
    };
    let text = if left { text.trim_start_matches(goes) } else { text };
    if right { text.trim_end_matches(goes) } else { text }
}

fn split(
    dialect: Normalisation,
    state: &State,
    text: &str,
    by: Option<&str>,
    most: Option<i64>,
    from_right: bool,
) -> Result<Value, Error> {
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX - 1);
    // llama.cpp has no split at white space: without a separator it cuts at each blank.
    let by = by.or((dialect == Normalisation::LlamaCpp).then_some(" "));
    let Some(by) = by else {
        if most != usize::MAX - 1 || from_right {
            return Err(Error::new(ErrorKind::InvalidOperation, "a split at white space takes no limit"));
        }
        Budget::of(state).charge(text.len() as u64 * 16)?;
        return Ok(text.split_whitespace().map(Value::from).collect());
    };
    if by.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
    }
    Budget::of(state).charge((text.matches(by).count().min(most) as u64 + 1) * 48)?;
    if from_right {
        let mut parts: Vec<Value> = text.rsplitn(most + 1, by).map(Value::from).collect();
        parts.reverse();
        return Ok(Value::from(parts));
    }
    Ok(text.splitn(most + 1, by).map(Value::from).collect())
}

fn replace(state: &State, text: &str, from: &str, to: &str, most: Option<i64>) -> Result<Value, Error> {
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let found = text.matches(from).take(most).count() as u64;
    Budget::of(state).charge(found.saturating_mul(to.len() as u64).saturating_add(text.len() as u64))?;
    Ok(Value::from(text.replacen(from, to, most)))
}

fn join(
    dialect: Normalisation,
    state: &State,
    items: &Value,
    by: &str,
    attribute: Option<&str>,
) -> Result<String, Error> {
    let mut text = Text::new(dialect, Budget::of(state));
    for (at, item) in items.try_iter()?.enumerate() {
        text.put(if at > 0 { by } else { "" })?;
        match attribute {
            None => text.put_value(&item)?,
            Some(name) => text.put_value(&item.get_attr(name)?)?,
        }
    }
    Ok(text.finish())
}

fn indent(
    dialect: Normalisation,
    state: &State,
    text: &str,
    width: &Value,
    first: bool,
    blank: bool,
) -> Result<String, Error> {
    let by = match width.as_str() {
        Some(by) => by.to_owned(),
        None => {
            let width = u64::try_from(width.clone())?;
            Budget::of(state).charge(width)?;
            " ".repeat(width as usize)
        }
    };
    // To Python a line may end in many ways; all are line feeds afterwards.
    let breaks = match dialect {
        Normalisation::Vllm => &LINE_ENDS[..],
        Normalisation::LlamaCpp => &['\n'],
    };
    let text = &if dialect == Normalisation::Vllm { text.replace("\r\n", "\n") } else { text.to_owned() };
    let lines = text.split(breaks).count() as u64;
    Budget::of(state).charge(lines.saturating_mul(by.len() as u64).saturating_add(text.len() as u64))?;
    let mut out = String::with_capacity(text.len());
    for (at, line) in text.split(breaks).enumerate() {
        if at > 0 {
            out.push('\n');
        }
        if if at == 0 { first } else { blank || !line.is_empty() } {
            out.push_str(&by);
        }
        out.push_str(line);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::super::harden::harden;
    use super::*;

    fn run(dialect: Normalisation, expression: &str) -> String {
        let mut env = environment(dialect);
        env.set_fuel(Some(10_000));
        let (hardened, _) = harden(&format!("{{{{ {expression} }}}}"), dialect).unwrap();
        env.render_str(&hardened.source, context! { s => "\u{3000} a b \n", list => vec![1, 2] })
            .unwrap_or_else(|e| format!("error: {e}"))
    }

    #[test]
    fn white_space_is_the_engines_own() {
        assert_eq!(run(Normalisation::Vllm, "s.strip()"), "a b");
        assert_eq!(run(Normalisation::LlamaCpp, "s.strip()"), "\u{3000} a b");
        assert_eq!(run(Normalisation::Vllm, "s | trim"), "a b");
        assert_eq!(run(Normalisation::Vllm, "'  a  b '.split()"), "['a', 'b']");
        assert_eq!(run(Normalisation::LlamaCpp, "' a b'.split()"), "['', 'a', 'b']");
    }

    #[test]
    fn strings_have_the_methods_of_python() {
        for (expression, result) in [
            ("'a,b,c'.split(',', 1)", "['a', 'b,c']"),
            ("'a,b,c'.rsplit(',', 1)", "['a,b', 'c']"),
            ("'xxhix'.strip('x')", "hi"),
            ("'abab'.count('ab')", "2"),
            ("'abc'.count('')", "4"),
            ("'abc'.removeprefix('a').removesuffix('c')", "b"),
            ("', '.join(list)", "1, 2"),
            ("'aXbX'.replace('X', '-', 1)", "a-bX"),
            ("''.isdigit()", "False"),
            ("(nothing | length) ~ (list | count) ~ ('ab' | length)", "022"),
            ("none", "None"),
            ("{'a': [true, 'it\\'s', 1.0]}", "{'a': [True, \"it's\", 1.0]}"),
            ("list | tojson", "[1, 2]"),
            ("{'b': 'é\\n', 'a': none} | tojson", "{\"b\": \"é\\n\", \"a\": null}"),
            (
                "{'b': 'é', 'a': []} | tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':'))",
                "{\"a\":[],\"b\":\"\\u00e9\"}",
            ),
            ("[1, {}] | tojson(indent=2)", "[\n  1,\n  {}\n]"),
            ("'a\\n\\nb' | indent(2)", "a\n\n  b"),
            (
                "(none is iterable) ~ ('x' is iterable) ~ (1 is sequence) ~ ({} is sequence)",
                "FalseTrueFalseTrue",
            ),
            ("strftime_now('%d %B %Y')", "15 June 2026"),
        ] {
            assert_eq!(run(Normalisation::Vllm, expression), result, "{expression}");
        }
    }

    #[test]
    fn what_makes_more_than_it_is_given_is_bounded() {
        for expression in [
            "('a' * 1000) | indent(100000000)",
            "('a' * 1000).replace('a', 'b' * 1000)",
            "[1] * 1000000000",
            "'{:>1000000000}'.format(1)",
            "'x' | batch(10)",
        ] {
            let result = run(Normalisation::Vllm, expression);
            assert!(result.starts_with("error: "), "{expression}: {} bytes", result.len());
        }
    }
}
