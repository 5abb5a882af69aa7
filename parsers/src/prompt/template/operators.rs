//! Operators as Python has them, where minijinja's are others.
//!
//! Python compares, adds and searches only what belongs together, and gives the method where a member has a method's name. What would
//! be another value there, or an error, fails here, so that nothing is counted; what is plain is done. Must never give a value that Python would not give.

use std::cmp::Ordering;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

use super::budget::{self, Budget, is_part_of_the_render};

/// `a + b`
pub(super) const ADDED: &str = "__added";
/// `a == b`
pub(super) const SAME: &str = "__same";
/// `a < b` and the like: the sign stands between.
pub(super) const COMPARED: &str = "__compared";
/// `a in b`
pub(super) const WITHIN: &str = "__within";
/// `a % b`
pub(super) const REMAINDER: &str = "__remainder";
/// `a.name`
pub(super) const MEMBER: &str = "__member";
/// `a[key]`
pub(super) const ITEM: &str = "__item";

/// So many bytes cost no more than a step does.
const SHORT: u64 = 64;

/// Methods of Python's mappings.
const OF_MAPPINGS: [&str; 11] =
    ["clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"];
/// Methods of its texts and lists, and members of its numbers.
const OF_OTHERS: [&str; 62] = [
    "append",
    "as_integer_ratio",
    "bit_count",
    "bit_length",
    "capitalize",
    "casefold",
    "center",
    "clear",
    "conjugate",
    "copy",
    "count",
    "denominator",
    "encode",
    "endswith",
    "expandtabs",
    "extend",
    "find",
    "format",
    "format_map",
    "from_bytes",
    "fromhex",
    "hex",
    "imag",
    "index",
    "insert",
    "is_integer",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "numerator",
    "partition",
    "pop",
    "real",
    "remove",
    "removeprefix",
    "removesuffix",
    "replace",
    "reverse",
    "rfind",
    "rsplit",
    "rstrip",
    "sort",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "title",
    "upper",
];

/// Whether a member of that name may be a method in Python.
pub(super) fn is_method(name: &str) -> bool {
    is_method_of_mappings(name) || OF_OTHERS.contains(&name)
}

/// Whether a member of that name of a mapping is a method in Python.
pub(super) fn is_method_of_mappings(name: &str) -> bool {
    OF_MAPPINGS.contains(&name)
}

fn otherwise(reason: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

pub(super) fn added(state: &State, left: Value, right: Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        Budget::of(state).charge((a.len() + b.len()) as u64)?;
        let mut both = String::with_capacity(a.len() + b.len());
        both.push_str(a);
        both.push_str(b);
        return Ok(Value::from(both));
    }
    match (left.kind(), right.kind()) {
        (ValueKind::Seq, ValueKind::Seq) => {
            let (left, right) = (budget::held(state, left)?, budget::held(state, right)?);
            Ok(Value::from(left.try_iter()?.chain(right.try_iter()?).collect::<Vec<_>>()))
        }
        (ValueKind::Number, ValueKind::Number) if left.is_integer() && right.is_integer() => {
            let sum = i64::try_from(left).ok().zip(i64::try_from(right).ok());
            let sum = sum.and_then(|(a, b)| a.checked_add(b));
            sum.map(Value::from).ok_or_else(|| otherwise("a sum is too large"))
        }
        (ValueKind::Number, ValueKind::Number) => {
            Ok(Value::from(f64::try_from(left)? + f64::try_from(right)?))
        }
        (a, b) => Err(otherwise(format!("{b} cannot be added to {a}"))),
    }
}

/// Charges for a comparison: of texts, as far as they may be alike, else of all that the right side holds.
pub(super) fn charge_comparison(state: &State, left: &Value, right: &Value) -> Result<(), Error> {
    let is_simple = |value: &Value| {
        !matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::Plain)
    };
    match (left.as_str(), right.as_str()) {
        (Some(a), Some(b)) => Budget::of(state).charge(a.len().min(b.len()) as u64),
        _ if is_simple(left) || is_simple(right) => Ok(()),
        _ => budget::charge_all(&Budget::of(state), right).map(|_| ()),
    }
}

/// Charges for looking for `left` in `right`.
pub(super) fn charge_search(state: &State, left: &Value, right: &Value) -> Result<(), Error> {
    let budget = Budget::of(state);
    budget.charge(left.as_str().map_or(0, str::len) as u64)?;
    match right.kind() {
        ValueKind::Seq | ValueKind::Iterable => budget::charge_all(&budget, right).map(|_| ()),
        ValueKind::Map => Ok(()),
        _ => budget.charge(budget::weight(right)),
    }
}

pub(super) fn same(state: &State, left: &Value, right: &Value) -> Result<bool, Error> {
    charge_comparison(state, left, right)?;
    Ok(left == right)
}

pub(super) fn compared(state: &State, left: &Value, sign: &str, right: &Value) -> Result<bool, Error> {
    let kinds = (left.kind(), right.kind());
    if !matches!(kinds, (ValueKind::Number, ValueKind::Number) | (ValueKind::String, ValueKind::String)) {
        return Err(otherwise(format!("{} and {} cannot be compared", kinds.0, kinds.1)));
    }
    charge_comparison(state, left, right)?;
    let order = left.cmp(right);
    Ok(match sign {
        "<" => order == Ordering::Less,
        "<=" => order != Ordering::Greater,
        ">" => order == Ordering::Greater,
        _ => order != Ordering::Less,
    })
}

pub(super) fn within(state: &State, left: &Value, right: Value) -> Result<bool, Error> {
    match right.kind() {
        ValueKind::String if left.kind() != ValueKind::String => {
            return Err(otherwise(format!("{} cannot be looked for in a text", left.kind())));
        }
        ValueKind::Map if matches!(left.kind(), ValueKind::Seq | ValueKind::Map) => {
            return Err(otherwise("only what can be hashed can be a key"));
        }
        ValueKind::String | ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => {}
        ValueKind::Undefined => return Ok(false),
        kind => return Err(otherwise(format!("nothing can be looked for in {kind}"))),
    }
    charge_search(state, left, &right)?;
    minijinja::tests::is_in(state, left, &right)
}

pub(super) fn remainder(left: Value, right: Value) -> Result<Value, Error> {
    if let (Ok(a), Ok(b)) = (i64::try_from(left.clone()), i64::try_from(right.clone()))
        && left.is_integer()
        && right.is_integer()
    {
        let rest = a.checked_rem(b).ok_or_else(|| otherwise(format!("the template divides by {b}")))?;
        // With the sign of the divisor.
        return Ok(Value::from(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }));
    }
    Err(otherwise(format!("the remainder of {} and {} is not rendered", left.kind(), right.kind())))
}

pub(super) fn member(base: &Value, name: &str) -> Result<Value, Error> {
    let hides = match base.kind() {
        ValueKind::Map => !is_part_of_the_render(base) && is_method_of_mappings(name),
        ValueKind::Undefined | ValueKind::None | ValueKind::Plain => false,
        _ => is_method(name),
    };
    if hides {
        return Err(otherwise(format!("{name} is a method in Python")));
    }
    base.get_attr(name)
}

/// Charges for `base[key]`: the letters of a text and the elements of a range are counted off, a key that is a text is hashed.
pub(super) fn charge_item(state: &State, base: &Value, key: &Value) -> Result<(), Error> {
    let counted = match base.kind() {
        ValueKind::String | ValueKind::Iterable => budget::weight(base),
        _ => 0,
    };
    match counted + key.as_str().map_or(0, str::len) as u64 {
        ..=SHORT => Ok(()),
        bytes => Budget::of(state).charge(bytes),
    }
}

pub(super) fn item(state: &State, base: &Value, key: &Value) -> Result<Value, Error> {
    charge_item(state, base, key)?;
    let found = base.get_item(key)?;
    let hides = match (base.kind(), key.as_str()) {
        _ if !key.is_integer() && matches!(key.kind(), ValueKind::Number | ValueKind::Bool) => true,
        (ValueKind::Map, Some(name)) => found.is_undefined() && is_method_of_mappings(name),
        (_, Some(name)) => base.kind() != ValueKind::Undefined && is_method(name),
        _ => false,
    };
    if hides {
        return Err(otherwise(format!("[{key}] is something else in Python")));
    }
    Ok(found)
}

/// Refuses to sort what Python cannot sort: texts go with texts, numbers with numbers.
pub(super) fn check_order(items: &[Value]) -> Result<(), Error> {
    let kind = items.first().map_or(ValueKind::String, Value::kind);
    let sorts = matches!(kind, ValueKind::String | ValueKind::Number);
    match items.iter().all(|item| sorts && item.kind() == kind) {
        true => Ok(()),
        false => Err(otherwise("only texts, or only numbers, can be sorted")),
    }
}
