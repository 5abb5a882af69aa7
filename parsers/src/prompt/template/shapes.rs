//! What can be told of an expression by its shape alone: that it is a number, short, or one step to look at.
//!
//! Why: what costs no more than a step needs no function that charges for it, and templates are mostly that. Where the shape does not say
//! it, the answer is no.

use minijinja::machinery::ast::{BinOpKind, Expr, UnaryOpKind};
use minijinja::value::ValueKind;

use super::operators;

/// The longest text of the template's own that is compared without being charged for, in bytes.
const SHORT: usize = 64;

/// Filters that charge for what they look through themselves. Templates ask for the length of all messages at each message.
pub(super) const CHARGE: [&str; 2] = ["length", "count"];

/// Whether it is a number of the template's own above 0.
pub(super) fn is_positive(expression: &Expr<'_>) -> bool {
    matches!(expression, Expr::Const(constant) if constant.value.as_i64().is_some_and(|number| number > 0))
}

/// What costs no more to compare than a step does: roles, numbers, answers.
pub(super) fn is_cheap(expression: &Expr<'_>) -> bool {
    use BinOpKind::{Eq, Gt, Gte, In, Lt, Lte, Ne};
    match expression {
        Expr::Const(constant) => constant.value.as_str().is_none_or(|text| text.len() <= SHORT),
        Expr::BinOp(binary) => matches!(binary.op, Eq | Ne | Lt | Lte | Gt | Gte | In),
        Expr::Test(_) | Expr::Compare(_) => true,
        Expr::UnaryOp(unary) => matches!(unary.op, UnaryOpKind::Not),
        other => is_whole(other),
    }
}

/// Whether it is surely a whole number.
pub(super) fn is_whole(expression: &Expr<'_>) -> bool {
    match expression {
        Expr::Const(constant) => constant.value.is_integer(),
        Expr::Filter(filter) => CHARGE.contains(&filter.name),
        Expr::GetAttr(get) => {
            matches!(&get.expr, Expr::Var(var) if var.id == "loop")
                && ["index", "index0", "length", "revindex", "revindex0"].contains(&get.name)
        }
        Expr::BinOp(it) if matches!(it.op, BinOpKind::Add | BinOpKind::Sub) => {
            is_whole(&it.left) && is_whole(&it.right)
        }
        _ => false,
    }
}

/// Whether `a[key]` gives the same to Python and is one step, whatever `a` is.
pub(super) fn is_plain_key(key: &Expr<'_>) -> bool {
    match key {
        Expr::Const(constant) => {
            constant.value.as_str().is_some_and(|name| name.len() <= SHORT && !operators::is_method(name))
        }
        _ => false,
    }
}

/// Whether it is a number of the template's own.
pub(super) fn is_number(expression: &Expr<'_>) -> bool {
    matches!(expression, Expr::Const(constant) if constant.value.kind() == ValueKind::Number)
}
