//! What one render may make, in bytes, and the operations that charge for it.
//!
//! Why: see [`super::harden`]. One budget per render, in proportion to the request, lives in the render's own state, where the
//! template cannot reach it. Charging comes before making, so that a refused operation has allocated nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use minijinja::value::{Object, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::text::Text;
use crate::prompt::normalise::Normalisation;

/// Bytes that a render may make, or look at, per step of fuel that it was given: 16 MB, and 128 bytes for each of the request. Of 144 hostile
/// templates with a small request, for both engines, the worst took 0.28 s of one core (release).
const BYTES_PER_STEP: u64 = 16;
/// What an element of a list or a mapping is charged, in bytes.
pub(super) const PER_ELEMENT: u64 = 16;

/// How deep lists and mappings may be: a request's 127 levels, and some that a template puts around them.
const MAX_DEPTH: usize = 160;

/// What is left of a render's budget, and what was seen on the way.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    left: AtomicU64,
    dated: AtomicBool,
}

impl Object for Budget {}

impl Budget {
    /// The budget of the render that `state` belongs to.
    pub(super) fn of(state: &State) -> Arc<Self> {
        state.get_or_set_temp_object("budget", || {
            let (used, left) = state.fuel_levels().unwrap_or_default();
            let limit = used.saturating_add(left).saturating_mul(BYTES_PER_STEP);
            Self { limit, left: AtomicU64::new(limit), dated: AtomicBool::new(false) }
        })
    }

    /// Takes `bytes` from the budget.
    ///
    /// # Errors
    /// When the render has made too much.
    pub(super) fn charge(&self, bytes: u64) -> Result<(), Error> {
        let taken =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        match taken {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::new(
                ErrorKind::OutOfFuel,
                format!("the template makes more than {} bytes of text for this request", self.limit),
            )),
        }
    }

    /// Notes that the template asked for today's date.
    pub(super) fn note_date(&self) {
        self.dated.store(true, Ordering::Relaxed);
    }

    /// Whether the template asked for today's date.
    pub(super) fn is_dated(&self) -> bool {
        self.dated.load(Ordering::Relaxed)
    }
}

/// What copying `value`, or walking through it once, looks at.
pub(super) fn weight(value: &Value) -> u64 {
    if let Some(text) = value.as_str() {
        return text.len() as u64;
    }
    let elements = match (value.len(), value.kind()) {
        (Some(elements), _) => elements,
        // A range.
        (None, ValueKind::Iterable) => value.try_iter().map_or(0, |items| items.size_hint().0),
        _ => 0,
    };
    (elements as u64).saturating_mul(PER_ELEMENT)
}

/// What making a value of each element looks at: the elements of a text are its letters.
pub(super) fn walk(value: &Value) -> u64 {
    weight(value).saturating_mul(if value.kind() == ValueKind::String { PER_ELEMENT } else { 1 })
}

/// Charges for all that a value holds, a text as often as it stands there. Gives what it was.
pub(super) fn charge_all(budget: &Budget, value: &Value) -> Result<u64, Error> {
    let mut all = weight(value);
    budget.charge(all)?;
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter()? {
                all = all.saturating_add(charge_all(budget, &item)?);
            }
        }
        ValueKind::Map => {
            for key in value.try_iter()? {
                all = all.saturating_add(charge_all(budget, &key)?);
                all = all.saturating_add(charge_all(budget, &value.get_item(&key)?)?);
            }
        }
        _ => {}
    }
    Ok(all)
}

/// Charges for a copy of `value` and gives it back.
///
/// A namespace is no value: a view of one, kept in that same namespace, would never be freed.
pub(super) fn held(state: &State, value: Value) -> Result<Value, Error> {
    if is_part_of_the_render(&value) {
        return Err(Error::new(ErrorKind::InvalidOperation, "a namespace has attributes only"));
    }
    match weight(&value) {
        0 => {}
        bytes => Budget::of(state).charge(bytes)?,
    }
    Ok(value)
}

/// Charges for a text that is looked through and gives it back; a list is not looked through.
pub(super) fn read(state: &State, value: Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::String { held(state, value) } else { Ok(value) }
}

/// Refuses to put into a list or a mapping what would make it too deep to walk, or what holds more than data.
pub(super) fn nested(state: &State, value: Value) -> Result<Value, Error> {
    check_nested(&Budget::of(state), &value, 0)?;
    Ok(value)
}

fn check_nested(budget: &Budget, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        let reason = format!("a list or mapping is nested deeper than {MAX_DEPTH} levels");
        return Err(Error::new(ErrorKind::InvalidOperation, reason));
    }
    check_data(value)?;
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => value.try_iter()?.try_for_each(|item| {
            budget.charge(PER_ELEMENT)?;
            check_nested(budget, &item, depth + 1)
        }),
        ValueKind::Map => value.try_iter()?.try_for_each(|key| {
            budget.charge(PER_ELEMENT)?;
            check_nested(budget, &value.get_item(&key)?, depth + 1)
        }),
        _ => Ok(()),
    }
}

/// Refuses to let a namespace keep what could hold that namespace.
pub(super) fn kept(value: Value) -> Result<Value, Error> {
    check_data(&value)?;
    Ok(value)
}

fn check_data(value: &Value) -> Result<(), Error> {
    if value.kind() == ValueKind::Plain || is_part_of_the_render(value) {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "only data can be kept, not namespaces and macros",
        ));
    }
    Ok(())
}

/// Namespaces, macros and loops. minijinja keeps their types to itself, but tells their names.
pub(super) fn is_part_of_the_render(value: &Value) -> bool {
    value.as_object().is_some_and(|object| {
        let name = object.type_name();
        name.ends_with("::Namespace") || name.starts_with("minijinja::vm::")
    })
}

/// `left ~ right`
pub(super) fn joined(
    dialect: Normalisation,
    state: &State,
    left: &Value,
    right: &Value,
) -> Result<Value, Error> {
    let mut text = Text::new(dialect, Budget::of(state));
    text.put_value(left)?;
    text.put_value(right)?;
    Ok(Value::from(text.finish()))
}

/// `left * right`
pub(super) fn times(state: &State, left: &Value, right: &Value) -> Result<Value, Error> {
    let repeated = |kind: ValueKind| matches!(kind, ValueKind::String | ValueKind::Seq | ValueKind::Iterable);
    let (base, count) = match (repeated(left.kind()), repeated(right.kind())) {
        (true, false) => (left, right),
        (false, true) => (right, left),
        _ => return product(left, right),
    };
    let count = i64::try_from(count.clone())?.max(0) as u64;
    Budget::of(state).charge(weight(base).max(1).saturating_mul(count))?;
    match base.as_str() {
        Some(text) => Ok(Value::from(text.repeat(count as usize))),
        None => {
            let items: Vec<Value> = base.try_iter()?.collect();
            Ok((0..count).flat_map(|_| items.iter().cloned()).collect())
        }
    }
}

/// The right side of `/`, `//` and `%`. Python raises an error for 0, and rounds otherwise than is done here for what is negative.
pub(super) fn divisor(value: Value, whole: bool) -> Result<Value, Error> {
    let number = f64::try_from(value.clone()).unwrap_or(1.0);
    if number == 0.0 || whole && number < 0.0 {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("the template divides by {number}")));
    }
    Ok(value)
}

/// `value[start:stop:step]`, as Python cuts it. minijinja 2.24 panics on an empty list that is cut backwards.
pub(super) fn sliced(
    state: &State,
    value: Value,
    start: Option<i64>,
    stop: Option<i64>,
    step: Option<i64>,
) -> Result<Value, Error> {
    let value = held(state, value)?;
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(Error::new(ErrorKind::InvalidOperation, "a slice cannot have the step 0"));
    }
    if let Some(text) = value.as_str() {
        let letters: Vec<char> = text.chars().collect();
        let kept: String =
            places(letters.len(), start, stop, step).filter_map(|at| letters.get(at)).collect();
        return Ok(Value::from(kept));
    }
    let items: Vec<Value> = match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => value.try_iter()?.collect(),
        ValueKind::Undefined => vec![],
        kind => return Err(Error::new(ErrorKind::InvalidOperation, format!("{kind} cannot be sliced"))),
    };
    Ok(Value::from(
        places(items.len(), start, stop, step).filter_map(|at| items.get(at).cloned()).collect::<Vec<_>>(),
    ))
}

/// The indices that a slice of a list of `length` elements has.
fn places(length: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> impl Iterator<Item = usize> {
    let length = length as i64;
    let (lowest, highest) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let bound = |bound: Option<i64>, open: i64| match bound {
        None => open,
        Some(bound) if bound < 0 => bound.saturating_add(length).max(lowest),
        Some(bound) => bound.min(highest),
    };
    let (first, last) = if step > 0 { (lowest, highest) } else { (highest, lowest) };
    let stop = bound(stop, last);
    let mut at = bound(start, first);
    std::iter::from_fn(move || {
        let here = usize::try_from(at).ok()?;
        if (step > 0 && at >= stop) || (step < 0 && at <= stop) {
            return None;
        }
        at = at.saturating_add(step);
        Some(here)
    })
}

fn product(left: &Value, right: &Value) -> Result<Value, Error> {
    if left.is_integer() && right.is_integer() {
        let factors = i64::try_from(left.clone()).ok().zip(i64::try_from(right.clone()).ok());
        return factors
            .and_then(|(a, b)| a.checked_mul(b))
            .map(Value::from)
            .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "a product is too large"));
    }
    Ok(Value::from(f64::try_from(left.clone())? * f64::try_from(right.clone())?))
}

#[cfg(test)]
mod tests {
    use super::places;

    #[test]
    fn slices_are_cut_as_python_cuts_them() {
        for (length, start, stop, step, expected) in [
            (5, None, None, 1, vec![0, 1, 2, 3, 4]),
            (5, None, None, -1, vec![4, 3, 2, 1, 0]),
            (5, Some(1), None, 1, vec![1, 2, 3, 4]),
            (5, None, Some(-1), 1, vec![0, 1, 2, 3]),
            (5, Some(-2), None, 1, vec![3, 4]),
            (5, Some(-9), Some(9), 2, vec![0, 2, 4]),
            (5, Some(3), Some(0), -2, vec![3, 1]),
            (5, Some(9), Some(-9), -3, vec![4, 1]),
            (5, Some(3), Some(2), 1, vec![]),
            (0, None, None, -1, vec![]),
            (0, Some(-1), Some(5), 1, vec![]),
            (3, Some(i64::MIN), Some(i64::MAX), i64::MAX, vec![0]),
        ] {
            assert_eq!(
                places(length, start, stop, step).collect::<Vec<_>>(),
                expected,
                "{length} {start:?}:{stop:?}:{step}"
            );
        }
    }
}
