//! Writes a parsed template out again: the expressions, with what can grow in them weighed ([`super::harden`]).

use std::fmt::Write;

use minijinja::machinery::ast::{BinOpKind, CallArg, CompareOpKind, Expr, UnaryOpKind};
use minijinja::value::ValueKind;

use super::operators::{self, ADDED, COMPARED, ITEM, MEMBER, REMAINDER, SAME, WITHIN};
use super::printer::{Printed, Printer};
use super::shapes::{CHARGE, is_cheap, is_number, is_plain_key, is_positive, is_whole};
use crate::prompt::normalise::Normalisation;

/// Charges for a value that is about to be copied, and gives it back.
pub(super) const HELD: &str = "__held";
/// Charges for a text that is about to be looked through, and gives it back.
pub(super) const READ: &str = "__read";
/// Charges for all that a value holds, and gives it back.
pub(super) const ALL: &str = "__all";
/// `a[key]` in llama.cpp
pub(super) const AT: &str = "__at";
/// Checks what is put into a list or a mapping, and gives it back.
pub(super) const NESTED: &str = "__nested";
/// Checks what a namespace is given to keep, and gives it back.
pub(super) const KEPT: &str = "__kept";
/// What a loop walks through, in Python: nothing can be walked through if it is not there, but not if it is none.
pub(super) const EACH: &str = "__each";
/// What some filters give in Python, where `tojson` refuses it: they walk through their list only when they are walked through.
pub(super) const LAZY: &str = "__lazy";
/// `a ~ b`
pub(super) const JOINED: &str = "__joined";
/// `a * b`
pub(super) const TIMES: &str = "__times";
/// `a[start:stop:step]`
pub(super) const SLICED: &str = "__sliced";
/// `a / b`, `a // b`, `a % b`: gives back `b`.
pub(super) const DIVISOR: &str = "__divisor";

/// Filters that do not copy the list that they are given.
const COPY_NOTHING: [&str; 4] = ["first", "last", "default", "d"];
/// Filters that give a generator in Python.
pub(super) const LAZY_IN_PYTHON: [&str; 7] =
    ["map", "select", "reject", "selectattr", "rejectattr", "unique", "items"];

impl Printer<'_> {
    pub(super) fn expression(&mut self, expression: &Expr<'_>) -> Printed {
        match expression {
            Expr::Var(var) => self.name(var.id),
            Expr::Const(constant) => self.constant(&constant.value),
            Expr::Slice(slice) => {
                self.put(SLICED);
                self.put("(");
                self.expression(&slice.expr)?;
                for bound in [&slice.start, &slice.stop, &slice.step] {
                    self.put(", ");
                    match bound {
                        Some(bound) => self.expression(bound)?,
                        None => self.put("none"),
                    }
                }
                self.put(")");
                Ok(())
            }
            Expr::UnaryOp(unary) => {
                self.put(match unary.op {
                    UnaryOpKind::Not => "(not ",
                    UnaryOpKind::Neg => "(-",
                });
                self.expression(&unary.expr)?;
                self.put(")");
                Ok(())
            }
            Expr::BinOp(binary) => self.binary(binary.op, &binary.left, &binary.right),
            Expr::Compare(compare) => {
                self.put("(");
                self.expression(&compare.expr)?;
                for step in &compare.ops {
                    self.put(match step.op {
                        CompareOpKind::Eq => " == ",
                        CompareOpKind::Ne => " != ",
                        CompareOpKind::Lt => " < ",
                        CompareOpKind::Lte => " <= ",
                        CompareOpKind::Gt => " > ",
                        CompareOpKind::Gte => " >= ",
                        CompareOpKind::In => " in ",
                        CompareOpKind::NotIn => " not in ",
                    });
                    match is_cheap(&step.expr) {
                        true => self.expression(&step.expr)?,
                        false => self.function(ALL, [&step.expr])?,
                    }
                }
                self.put(")");
                Ok(())
            }
            Expr::IfExpr(choice) => {
                self.put("(");
                self.expression(&choice.true_expr)?;
                self.put(" if ");
                self.expression(&choice.test_expr)?;
                if let Some(otherwise) = &choice.false_expr {
                    self.put(" else ");
                    self.expression(otherwise)?;
                }
                self.put(")");
                Ok(())
            }
            Expr::Filter(_) => {
                self.put("(");
                self.filter_chain(expression)?;
                self.put(")");
                Ok(())
            }
            Expr::Test(test) => {
                self.put("((");
                self.expression(&test.expr)?;
                self.put(") is ");
                // Tests may be called like operators: `is eq(1)` is the same test as `is ==(1)`.
                self.put(test.name);
                if !test.args.is_empty() {
                    self.arguments(&test.args)?;
                }
                self.put(")");
                Ok(())
            }
            Expr::GetAttr(get) if self.is_python() && operators::is_method(get.name) => {
                self.put(MEMBER);
                self.put("(");
                self.expression(&get.expr)?;
                self.put(", ");
                self.literal(get.name);
                self.put(")");
                Ok(())
            }
            Expr::GetAttr(get) => {
                self.expression(&get.expr)?;
                self.put(".");
                self.put(get.name);
                Ok(())
            }
            Expr::GetItem(get) if !is_plain_key(&get.subscript_expr) => {
                self.function(if self.is_python() { ITEM } else { AT }, [&get.expr, &get.subscript_expr])
            }
            Expr::GetItem(get) => {
                self.expression(&get.expr)?;
                self.put("[");
                self.expression(&get.subscript_expr)?;
                self.put("]");
                Ok(())
            }
            Expr::Call(call) => self.call(&call.expr, &call.args),
            Expr::List(list) => {
                self.put("[");
                self.separated(&list.items, Self::nested)?;
                self.put("]");
                Ok(())
            }
            Expr::Map(map) => {
                self.put("{");
                let pairs: Vec<_> = map.keys.iter().zip(&map.values).collect();
                self.separated(&pairs, |own, (key, value)| {
                    match key {
                        Expr::Const(_) => own.expression(key)?,
                        _ => own.function(READ, [key])?,
                    }
                    own.put(": ");
                    own.nested(value)
                })?;
                self.put("}");
                Ok(())
            }
        }
    }

    fn constant(&mut self, value: &minijinja::Value) -> Printed {
        match value.kind() {
            ValueKind::String => self.literal(value.as_str().unwrap_or_default()),
            ValueKind::None => self.put("none"),
            ValueKind::Bool => self.put(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => self.put(&value.to_string()),
            ValueKind::Number => {
                let number = f64::try_from(value.clone()).map_err(|e| e.to_string())?;
                // Debug keeps the point or the exponent that makes it a float.
                write!(self.out, "{number:?}").map_err(|e| e.to_string())?;
            }
            kind => return Err(format!("template has a constant of kind {kind}")),
        }
        Ok(())
    }

    fn binary(&mut self, op: BinOpKind, left: &Expr<'_>, right: &Expr<'_>) -> Printed {
        let (sign, weighed) = match op {
            BinOpKind::Concat => return self.function(JOINED, [left, right]),
            BinOpKind::Mul => return self.function(TIMES, [left, right]),
            BinOpKind::Add if self.is_python() && !is_number(left) && !is_number(right) => {
                return self.function(ADDED, [left, right]);
            }
            BinOpKind::In if self.is_python() => return self.function(WITHIN, [left, right]),
            BinOpKind::Rem if self.is_python() && !(is_whole(left) && is_positive(right)) => {
                return self.function(REMAINDER, [left, right]);
            }
            BinOpKind::Lt | BinOpKind::Lte | BinOpKind::Gt | BinOpKind::Gte
                if self.is_python() && !(is_whole(left) && is_whole(right)) =>
            {
                return self.comparison(op, left, right);
            }
            BinOpKind::Eq if !is_cheap(left) && !is_cheap(right) => {
                return self.function(SAME, [left, right]);
            }
            BinOpKind::Ne if !is_cheap(left) && !is_cheap(right) => {
                self.put("(not ");
                self.function(SAME, [left, right])?;
                self.put(")");
                return Ok(());
            }
            BinOpKind::Add => (" + ", Some(HELD)),
            BinOpKind::In => (" in ", Some(ALL)),
            BinOpKind::Eq => (" == ", None),
            BinOpKind::Ne => (" != ", None),
            BinOpKind::Lt => (" < ", Some(ALL)),
            BinOpKind::Lte => (" <= ", Some(ALL)),
            BinOpKind::Gt => (" > ", Some(ALL)),
            BinOpKind::Gte => (" >= ", Some(ALL)),
            BinOpKind::ScAnd => (" and ", None),
            BinOpKind::ScOr => (" or ", None),
            BinOpKind::Sub => (" - ", None),
            BinOpKind::Div => (" / ", None),
            BinOpKind::FloorDiv => (" // ", None),
            BinOpKind::Rem => (" % ", None),
            BinOpKind::Pow => (" ** ", None),
        };
        // What is added to a number is a number, and what is compared with one too.
        let weighed = weighed.filter(|_| !is_number(left) && !is_number(right));
        let operand = |own: &mut Self, side: &Expr<'_>| match weighed {
            Some(function) => own.weighed(function, side),
            None => own.expression(side),
        };
        self.put("(");
        operand(self, left)?;
        self.put(sign);
        let divides = matches!(op, BinOpKind::Div | BinOpKind::FloorDiv | BinOpKind::Rem);
        match divides && !is_positive(right) {
            true => {
                self.put(&format!("{DIVISOR}("));
                self.expression(right)?;
                self.put(if matches!(op, BinOpKind::Div) { ", false)" } else { ", true)" });
            }
            false => operand(self, right)?,
        }
        self.put(")");
        Ok(())
    }

    fn comparison(&mut self, op: BinOpKind, left: &Expr<'_>, right: &Expr<'_>) -> Printed {
        self.put(COMPARED);
        self.put("(");
        self.expression(left)?;
        self.put(match op {
            BinOpKind::Lt => ", \"<\", ",
            BinOpKind::Lte => ", \"<=\", ",
            BinOpKind::Gt => ", \">\", ",
            _ => ", \">=\", ",
        });
        self.expression(right)?;
        self.put(")");
        Ok(())
    }

    fn is_python(&self) -> bool {
        self.dialect == Normalisation::Vllm
    }

    /// `base|filter(…)|filter(…)`; inside a filter block there is no base.
    pub(super) fn filter_chain(&mut self, expression: &Expr<'_>) -> Printed {
        let Expr::Filter(filter) = expression else { return self.held(expression) };
        if let Some(base) = &filter.expr {
            match base {
                Expr::Filter(inner)
                    if self.dialect == Normalisation::Vllm
                        && filter.name == "tojson"
                        && LAZY_IN_PYTHON.contains(&inner.name) =>
                {
                    self.function(LAZY, [base])?;
                }
                Expr::Filter(_) => self.filter_chain(base)?,
                _ if CHARGE.contains(&filter.name) => self.expression(base)?,
                _ if COPY_NOTHING.contains(&filter.name) => self.function(READ, [base])?,
                _ => self.held(base)?,
            }
            self.put("|");
        }
        self.put(filter.name);
        if !filter.args.is_empty() {
            self.arguments(&filter.args)?;
        }
        Ok(())
    }

    pub(super) fn call(&mut self, callee: &Expr<'_>, args: &[CallArg<'_>]) -> Printed {
        match callee {
            Expr::Var(var) if matches!(var.id, "namespace" | "dict") => {
                self.put(var.id);
                let check = if var.id == "dict" { NESTED } else { KEPT };
                self.put("(");
                self.separated(args, |own, arg| match arg {
                    CallArg::Kwarg(name, value) => {
                        own.put(name);
                        own.put("=");
                        own.function(check, [value])
                    }
                    CallArg::Pos(value) => own.function(NESTED, [value]),
                    _ => Err(format!("template calls {} with a list of arguments", var.id)),
                })?;
                self.put(")");
                return Ok(());
            }
            // A method: what it is called on is what it copies.
            Expr::GetAttr(get) => {
                match &get.expr {
                    Expr::Var(var) if var.id == "loop" => self.put("loop"),
                    base => self.held(base)?,
                }
                self.put(".");
                self.put(get.name);
            }
            _ => self.expression(callee)?,
        }
        self.arguments(args)
    }

    pub(super) fn arguments(&mut self, args: &[CallArg<'_>]) -> Printed {
        self.put("(");
        self.separated(args, |own, arg| match arg {
            CallArg::Pos(value) => own.expression(value),
            CallArg::Kwarg(name, value) => {
                own.put(name);
                own.put("=");
                own.expression(value)
            }
            CallArg::PosSplat(value) => {
                own.put("*");
                own.held(value)
            }
            CallArg::KwargSplat(value) => {
                own.put("**");
                own.held(value)
            }
        })?;
        self.put(")");
        Ok(())
    }

    fn held(&mut self, expression: &Expr<'_>) -> Printed {
        self.weighed(HELD, expression)
    }

    fn weighed(&mut self, function: &str, expression: &Expr<'_>) -> Printed {
        match expression {
            // Constants are as long as the template, which is bounded; numbers have no size.
            Expr::Const(constant) if constant.value.kind() != ValueKind::String => {
                self.expression(expression)
            }
            _ => self.function(function, [expression]),
        }
    }

    fn nested(&mut self, expression: &Expr<'_>) -> Printed {
        match expression {
            Expr::Const(_) => self.expression(expression),
            _ => self.function(NESTED, [expression]),
        }
    }

    pub(super) fn function<const N: usize>(&mut self, name: &str, args: [&Expr<'_>; N]) -> Printed {
        self.put(name);
        self.put("(");
        self.separated(&args, |own, arg| own.expression(arg))?;
        self.put(")");
        Ok(())
    }
}
