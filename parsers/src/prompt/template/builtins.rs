//! What a template may call: the functions, filters, tests and methods that chat templates use, as their engine has them.
//!
//! Why a list of our own: minijinja follows Jinja2 but is not Python, its own filters know nothing of a budget, and two engines
//! with two Jinjas disagree about white space. What is not here and can make more than it was given is taken out.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value, filters};

use super::budget::{self, Budget};
use super::expressions::{ALL, AT, DIVISOR, EACH, HELD, JOINED, KEPT, LAZY, NESTED, READ, SLICED, TIMES};
use super::operators::{self, ADDED, COMPARED, ITEM, MEMBER, REMAINDER, SAME, WITHIN};
use super::text::{JsonStyle, Text};
use super::{strings, weighed};
use crate::prompt::normalise::Normalisation;

/// Marks the message of a template's own `raise_exception`.
pub(super) const RAISED: &str = "raised: ";
/// How deep macros may call each other, four for each: Kimi K3's writes nested schemas by recursion.
const MAX_RECURSION: usize = 192;
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
    env.set_unknown_method_callback(move |state, value, name, args| {
        strings::method(dialect, state, value, name, args)
    });
    for name in WITHOUT {
        env.remove_filter(name);
    }
    env.remove_global("debug");
    add_functions(&mut env, dialect);
    weighed::add(&mut env, dialect);
    add_filters(&mut env, dialect);
    env.add_test("iterable", |value: &Value| {
        !matches!(value.kind(), ValueKind::None | ValueKind::Bool | ValueKind::Number)
    });
    // Whoever has a length and elements: to Python also what is not there.
    env.add_test("sequence", move |value: &Value| match value.kind() {
        ValueKind::Undefined => dialect == Normalisation::Vllm,
        kind => matches!(kind, ValueKind::String | ValueKind::Seq | ValueKind::Iterable | ValueKind::Map),
    });
    if dialect == Normalisation::Vllm {
        add_pythons_own(&mut env);
    }
    env
}

/// What Python takes otherwise than minijinja does, or refuses.
fn add_pythons_own(env: &mut Environment<'static>) {
    env.add_function(ADDED, operators::added);
    env.add_function(COMPARED, operators::compared);
    env.add_function(WITHIN, operators::within);
    env.add_function(REMAINDER, operators::remainder);
    env.add_function(MEMBER, operators::member);
    env.add_function(ITEM, operators::item);
    // To Python true is 1.
    env.add_test("number", |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool));
    env.add_filter("list", |state: &State, value: Value| match value.kind() {
        ValueKind::None => Err(Error::new(ErrorKind::InvalidOperation, "none cannot be walked through")),
        _ => Budget::of(state).charge(budget::walk(&value)).and(filters::list(state, value)),
    });
    env.add_filter("capitalize", |state: &State, value: &str| match value.is_ascii() {
        true => Budget::of(state).charge(value.len() as u64).map(|()| strings::capitalized(value)),
        false => Err(Error::new(
            ErrorKind::InvalidOperation,
            "letters beyond ASCII are written by Python's own tables",
        )),
    });
    env.add_filter("int", |state: &State, value: &Value| match (value.kind(), value.as_str()) {
        (ValueKind::Number, _) if value.is_integer() => Ok(value.clone()),
        (ValueKind::Bool, _) => Ok(Value::from(i64::from(value.is_true()))),
        (_, Some(text)) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Budget::of(state).charge(text.len() as u64)?;
            let number = text.parse::<i64>().map(Value::from);
            number.map_err(|e| Error::new(ErrorKind::InvalidOperation, e.to_string()))
        }
        _ => Err(Error::new(ErrorKind::InvalidOperation, "only plain whole numbers are read")),
    });
    // Engines have no such filter in Python.
    env.remove_filter("split");
}

fn add_functions(env: &mut Environment<'static>, dialect: Normalisation) {
    env.add_function(HELD, budget::held);
    env.add_function(READ, budget::read);
    env.add_function(NESTED, budget::nested);
    env.add_function(KEPT, budget::kept);
    env.add_function(LAZY, |_: Value| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::BadSerialization, "a generator cannot be written as json"))
    });
    env.add_function(EACH, |state: &State, value: Value| match value.kind() {
        ValueKind::None => Err(Error::new(ErrorKind::InvalidOperation, "none cannot be walked through")),
        // Its letters are counted first.
        ValueKind::String => budget::held(state, value),
        _ => Ok(value),
    });
    env.add_function(JOINED, move |state: &State, left: &Value, right: &Value| {
        budget::joined(dialect, state, left, right)
    });
    env.add_function(TIMES, budget::times);
    env.add_function(SLICED, budget::sliced);
    env.add_function(DIVISOR, budget::divisor);
    env.add_function(SAME, operators::same);
    env.add_function(AT, |state: &State, base: Value, key: &Value| {
        operators::charge_item(state, &base, key)?;
        // Of what is not there nothing is there.
        if base.is_undefined() { Ok(base) } else { base.get_item(key) }
    });
    env.add_function(ALL, |state: &State, value: Value| {
        budget::charge_all(&Budget::of(state), &value)?;
        Ok::<_, Error>(value)
    });
    env.add_function("raise_exception", |state: &State, message: &Value| -> Result<Value, Error> {
        budget::charge_all(&Budget::of(state), message)?;
        Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
    });
    // The day is not ours to know: see [`super::Rendered::dated`].
    env.add_function("strftime_now", |state: &State, format: &str| {
        Budget::of(state).note_date();
        Budget::of(state).charge(format.len() as u64 * 8)?;
        let day = a_day(format);
        match day.contains('%') {
            true => Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("the date format {format} is not rendered"),
            )),
            false => Ok(day),
        }
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
    // In this order in both engines; Jinja2's own filter has no other argument than the width.
    type Width = Option<usize>;
    env.add_filter(
        "tojson",
        move |state: &State, value: &Value, ascii: Option<bool>, indent: Width, options: Kwargs| {
            let indent = indent.or(options.get("indent")?);
            let separators: Option<Vec<Value>> = options.get("separators")?;
            let separators: Option<Vec<String>> = separators
                .and_then(|pair| pair.iter().map(|text| text.as_str().map(str::to_owned)).collect());
            let [between, colon] = separators
                .and_then(|pair| <[String; 2]>::try_from(pair).ok())
                .unwrap_or_else(|| [if indent.is_some() { "," } else { ", " }.into(), ": ".into()]);
            let style = JsonStyle {
                indent,
                between,
                colon,
                ascii: ascii.or(options.get("ensure_ascii")?).unwrap_or(false),
                sorted: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
            };
            let mut text = Text::new(dialect, Budget::of(state));
            text.put_json(value, &style, 0)?;
            Ok::<_, Error>(text.finish())
        },
    );
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
        Budget::of(state).charge(budget::weight(value) + chars.map_or(0, str::len) as u64)?;
        let text = match (value.as_str(), dialect) {
            (Some(text), _) => return Ok(Some(strings::strip(dialect, text, chars, true, true).to_owned())),
            (None, Normalisation::LlamaCpp) => return Ok(None),
            // Python trims what anything looks like in print.
            (None, Normalisation::Vllm) => {
                let mut text = Text::new(dialect, Budget::of(state));
                text.put_value(value)?;
                text.finish()
            }
        };
        Ok::<_, Error>(Some(strings::strip(dialect, &text, chars, true, true).to_owned()))
    });
    // Python writes down what is no string, and then changes its letters.
    for (name, change) in [("upper", str::to_uppercase as fn(&str) -> String), ("lower", str::to_lowercase)] {
        env.add_filter(name, move |state: &State, value: &Value| {
            let mut text = Text::new(dialect, Budget::of(state));
            text.put_value(value)?;
            Ok::<_, Error>(change(&text.finish()))
        });
    }
    env.add_filter("items", |state: &State, value: &Value| match value.is_undefined() {
        true => Ok(Value::from(Vec::<Value>::new())),
        false => Budget::of(state).charge(budget::weight(value)).and(filters::items(value)),
    });
    env.add_filter("split", move |state: &State, value: &str, by: Option<&str>, most: Option<i64>| {
        strings::split(dialect, state, value, by, most, false)
    });
    env.add_filter("replace", move |state: &State, value: &Value, from: &str, to: &str| {
        let mut text = Text::new(dialect, Budget::of(state));
        text.put_value(value)?;
        strings::replace(state, &text.finish(), from, to, None)
    });
    env.add_filter(
        "indent",
        move |state: &State, value: &str, width: Option<Value>, first: Option<bool>, options: Kwargs| {
            let width = width.or(options.get("width")?).unwrap_or_else(|| Value::from(4));
            let first = first.or(options.get("first")?).unwrap_or(false);
            let blank = options.get::<Option<bool>>("blank")?.unwrap_or(false);
            strings::indent(dialect, state, value, &width, first, blank)
        },
    );
}

fn join(
    dialect: Normalisation,
    state: &State,
    items: &Value,
    by: &str,
    attribute: Option<&str>,
) -> Result<String, Error> {
    let mut text = Text::new(dialect, Budget::of(state));
    if items.is_none() && dialect == Normalisation::Vllm {
        return Err(Error::new(ErrorKind::InvalidOperation, "none cannot be walked through"));
    }
    for (at, item) in items.try_iter()?.enumerate() {
        text.put(if at > 0 { by } else { "" })?;
        match attribute {
            None => text.put_value(&item)?,
            Some(name) => text.put_value(&item.get_attr(name)?)?,
        }
    }
    Ok(text.finish())
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
            ("', '.join(['a', 'b'])", "a, b"),
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
