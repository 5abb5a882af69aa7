//! minijinja's own filters and tests, charged for what they look at.
//!
//! Why here and not where they are called: `map`, `select` and the like call them by name, once for each element. What a value costs is
//! what a walk through all of it costs, each text as often as it stands there: a list of a thousand times one long text is a thousand texts.
//! A filter or a test of minijinja's that looks at more than a value's kind must stand here, in [`super::builtins`], or be taken out.

use std::borrow::Cow;

use minijinja::value::{Kwargs, Rest};
use minijinja::{Environment, Error, State, Value, filters, tests};

use super::budget::{self, Budget};
use super::operators;
use crate::prompt::normalise::Normalisation;

/// Adds them to an environment, in place of those that do not charge.
pub(super) fn add(env: &mut Environment<'static>, dialect: Normalisation) {
    add_filters(env, dialect);
    add_walking_filters(env);
    add_tests(env);
}

fn add_filters(env: &mut Environment<'static>, dialect: Normalisation) {
    type Filter = fn(&State, Value) -> Result<Value, Error>;
    let plain: [(&'static str, Filter); 8] = [
        ("reverse", |_, value| filters::reverse(&value)),
        ("first", |_, value| filters::first(&value)),
        ("last", |_, value| filters::last(value)),
        ("list", filters::list),
        ("int", |state, value| filters::int(state, &value)),
        ("float", |state, value| filters::float(state, &value)),
        ("bool", |state, value| filters::bool(state, &value).map(Value::from)),
        ("sum", filters::sum),
    ];
    for (name, filter) in plain {
        env.add_filter(name, move |state: &State, value: Value| {
            let looked_at = if name == "list" { budget::walk(&value) } else { budget::weight(&value) };
            Budget::of(state).charge(looked_at)?;
            filter(state, value)
        });
    }
    // These write down what is no text.
    let written: [(&'static str, Filter); 5] = [
        ("escape", |state, value| filters::escape(state, &value)),
        ("e", |state, value| filters::escape(state, &value)),
        ("lines", |_, value| filters::lines(&value)),
        ("safe", |_, value| Ok(filters::safe(value.to_string()))),
        ("title", |_, value| Ok(filters::title(value.to_string().into()).into())),
    ];
    for (name, filter) in written {
        env.add_filter(name, move |state: &State, value: Value| {
            budget::charge_all(&Budget::of(state), &value)?;
            filter(state, value)
        });
    }
    env.add_filter("attr", |state: &State, value: &Value, key: &Value| {
        operators::charge_item(state, value, key)?;
        filters::attr(value, key)
    });
    env.add_filter("dictsort", |state: &State, value: &Value, options: Kwargs| {
        charge_sorting(state, value, "")?;
        filters::dictsort(value, options)
    });
    env.add_filter("unique", |state: &State, value: Value, options: Kwargs| {
        charge_sorting(state, &value, options.get::<Option<&str>>("attribute")?.unwrap_or_default())?;
        filters::unique(state, value, options)
    });
    let is_python = dialect == Normalisation::Vllm;
    let checked = move |value: &Value, attribute: Option<&str>| {
        if !is_python {
            return Ok(());
        }
        let items = value.try_iter()?.map(|item| match attribute {
            Some(name) => item.get_attr(name),
            None => Ok(item),
        });
        operators::check_order(&items.collect::<Result<Vec<_>, _>>()?)
    };
    env.add_filter("sort", move |state: &State, value: Value, options: Kwargs| {
        let attribute: Option<&str> = options.get("attribute")?;
        charge_sorting(state, &value, attribute.unwrap_or_default())?;
        checked(&value, attribute)?;
        filters::sort(state, value, options)
    });
    for (name, choose) in [("min", filters::min as Filter), ("max", filters::max)] {
        env.add_filter(name, move |state: &State, value: Value| {
            budget::charge_all(&Budget::of(state), &value)?;
            checked(&value, None)?;
            choose(state, value)
        });
    }
    env.add_filter("capitalize", |state: &State, value: &str| {
        Budget::of(state).charge(value.len() as u64)?;
        let mut letters = value.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        Ok::<_, Error>(first.collect::<String>() + &letters.as_str().to_lowercase())
    });
}

/// Filters that call others, or tests, for each element.
fn add_walking_filters(env: &mut Environment<'static>) {
    env.add_filter("map", |state: &State, value: Value, args: Rest<Value>| {
        charge_each(state, &value, &args)?;
        filters::map(state, value, args)
    });
    type Select = fn(&State, Value, Option<Cow<'_, str>>, Rest<Value>) -> Result<Vec<Value>, Error>;
    for (name, select) in [("select", filters::select as Select), ("reject", filters::reject)] {
        env.add_filter(name, move |state: &State, value: Value, test: Option<&str>, args: Rest<Value>| {
            charge_each(state, &value, &args)?;
            select(state, value, test.map(Cow::from), args)
        });
    }
    type SelectBy =
        fn(&State, Value, Cow<'_, str>, Option<Cow<'_, str>>, Rest<Value>) -> Result<Vec<Value>, Error>;
    for (name, select) in
        [("selectattr", filters::selectattr as SelectBy), ("rejectattr", filters::rejectattr)]
    {
        env.add_filter(
            name,
            move |state: &State, value: Value, attribute: &str, test: Option<&str>, args: Rest<Value>| {
                charge_each(state, &value, &[Value::from(attribute)])?;
                select(state, value, attribute.into(), test.map(Cow::from), args)
            },
        );
    }
}

/// Charges for a walk through `value` that looks for the attributes `names` in each element.
fn charge_each(state: &State, value: &Value, names: &[Value]) -> Result<(), Error> {
    let each = names.iter().map(budget::weight).fold(budget::PER_ELEMENT, u64::saturating_add);
    Budget::of(state).charge((budget::walk(value) / budget::PER_ELEMENT).saturating_mul(each))
}

fn add_tests(env: &mut Environment<'static>) {
    type Compare = fn(&Value, &Value) -> bool;
    let compare: [(&[&'static str], Compare); 6] = [
        (&["eq", "equalto", "=="], tests::is_eq),
        (&["ne", "!="], tests::is_ne),
        (&["lt", "lessthan", "<"], tests::is_lt),
        (&["le", "<="], tests::is_le),
        (&["gt", "greaterthan", ">"], tests::is_gt),
        (&["ge", ">="], tests::is_ge),
    ];
    for (names, compare) in compare {
        for name in names {
            env.add_test(*name, move |state: &State, left: &Value, right: &Value| {
                operators::charge_comparison(state, left, right)?;
                Ok::<_, Error>(compare(left, right))
            });
        }
    }
    env.add_test("in", |state: &State, left: &Value, right: &Value| {
        operators::charge_search(state, left, right)?;
        tests::is_in(state, left, right)
    });
    type OfText = fn(&str, &str) -> bool;
    let ends: [(&'static str, OfText); 2] = [
        ("startingwith", |text, part| text.starts_with(part)),
        ("endingwith", |text, part| text.ends_with(part)),
    ];
    for (name, holds) in ends {
        env.add_test(name, move |state: &State, text: &str, part: &str| {
            Budget::of(state).charge(part.len() as u64)?;
            Ok::<_, Error>(holds(text, part))
        });
    }
    type Letters = fn(&str) -> bool;
    let cases: [(&'static str, Letters); 2] = [("lower", tests::is_lower), ("upper", tests::is_upper)];
    for (name, holds) in cases {
        env.add_test(name, move |state: &State, text: &str| {
            Budget::of(state).charge(text.len() as u64)?;
            Ok::<_, Error>(holds(text))
        });
    }
}

/// Charges for sorting by an attribute: each element is looked at as often as a tree of them is deep.
fn charge_sorting(state: &State, value: &Value, attribute: &str) -> Result<(), Error> {
    let budget = Budget::of(state);
    let elements = budget::walk(value) / budget::PER_ELEMENT;
    let levels = u64::from(elements.checked_ilog2().unwrap_or_default()) + 1;
    let names = elements.saturating_mul(attribute.len() as u64);
    let all = budget::charge_all(&budget, value)?.saturating_add(names);
    budget.charge(all.saturating_mul(levels))
}
