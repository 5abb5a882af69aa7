//! Whether all of a template is known to render as Python renders it; if not, its counts are bounds.
//!
//! A white list: [`table`] names the filters, tests, functions and methods with the arguments that were compared with Jinja2 as
//! transformers sets it up, and the rules here say where a value may stand that is another thing in Python than it is here: a generator can be
//! walked through once and is never empty, a tuple prints in parentheses, a `safe` text escapes what is added to it. What depends on values is
//! not decided here but by the render, which then fails (see [`super::operators`]). Must never take an unknown construct for a proven one.

mod source;
mod table;

use minijinja::machinery::ast::{BinOpKind, CallArg, CompareOpKind, Expr, Filter, Stmt};
use minijinja::value::ValueKind;

pub(super) use self::source::is_proven as is_source_proven;
use self::table::{FILTERS, FUNCTIONS, LAZY, METHODS, MISSING, OF_LOOPS, PYTHON_ONLY, TESTS, WALKING, has};
use super::operators::is_method_of_mappings;

/// Whether every construct of `template`, which was parsed from `source`, is one of those that render as in Python.
pub(super) fn is_proven(template: &Stmt<'_>, source: &str) -> bool {
    let mut proof = Proof { source: source.as_bytes(), macros: Vec::new(), hidden: Vec::new(), holds: true };
    proof.find_macros(template);
    proof.statement(template);
    proof.holds
}

struct Proof<'a> {
    source: &'a [u8],
    /// Macros with the names of their parameters.
    macros: Vec<(&'a str, Vec<&'a str>)>,
    /// Names that mean another thing here than in Python, for the moment.
    hidden: Vec<&'a str>,
    holds: bool,
}

/// What an expression is in Python, where it is another thing here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Nothing special.
    Plain,
    /// A generator.
    Lazy,
    /// Something that gives tuples of two.
    Pairs,
    /// The keys or values of a mapping, or a range.
    View,
    /// A text that is not escaped, and escapes.
    Safe,
    Tuple,
}

/// Where an expression stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place<'a> {
    /// Anywhere.
    Value,
    /// As text.
    Printed,
    /// Walked through, its elements going to so many names.
    Walked(usize),
    /// Right of `in`.
    Searched,
    Filtered(&'a str),
    Tested(&'a str),
}

impl Shape {
    fn may_stand(self, place: Place<'_>) -> bool {
        match self {
            Self::Plain => true,
            Self::Lazy => match place {
                Place::Walked(_) | Place::Searched => true,
                Place::Filtered(name) => WALKING.contains(&name),
                _ => false,
            },
            Self::Pairs => matches!(place, Place::Walked(2) | Place::Filtered("tojson" | "length")),
            Self::View => match place {
                Place::Walked(_) | Place::Searched | Place::Filtered("length") => true,
                Place::Filtered(name) => WALKING.contains(&name),
                _ => false,
            },
            Self::Safe => place == Place::Printed,
            Self::Tuple => matches!(place, Place::Walked(_) | Place::Searched),
        }
    }
}

impl<'a> Proof<'a> {
    fn demand(&mut self, holds: bool) {
        self.holds &= holds;
    }

    fn statements(&mut self, body: &'a [Stmt<'a>]) {
        body.iter().for_each(|statement| self.statement(statement));
    }

    fn find_macros(&mut self, statement: &'a Stmt<'a>) {
        match statement {
            Stmt::Template(template) => template.children.iter().for_each(|inner| self.find_macros(inner)),
            Stmt::IfCond(cond) => {
                cond.true_body.iter().chain(&cond.false_body).for_each(|inner| self.find_macros(inner));
            }
            Stmt::ForLoop(looping) => looping.body.iter().for_each(|inner| self.find_macros(inner)),
            Stmt::Macro(declared) => {
                self.macros.push((declared.name, declared.args.iter().filter_map(name_of).collect()));
                declared.body.iter().for_each(|inner| self.find_macros(inner));
            }
            _ => {}
        }
    }

    fn statement(&mut self, statement: &'a Stmt<'a>) {
        match statement {
            Stmt::Template(template) => self.statements(&template.children),
            Stmt::EmitExpr(emit) => self.expression(&emit.expr, Place::Printed),
            Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => {}
            Stmt::ForLoop(looping) => {
                self.demand(!looping.recursive);
                self.expression(&looping.iter, Place::Walked(names_in(&looping.target)));
                looping.filter_expr.iter().for_each(|filter| self.expression(filter, Place::Value));
                self.statements(&looping.body);
                self.statements(&looping.else_body);
            }
            Stmt::IfCond(cond) => {
                self.expression(&cond.expr, Place::Value);
                self.statements(&cond.true_body);
                self.statements(&cond.false_body);
            }
            Stmt::WithBlock(with) => {
                // In Python none of the values sees the names beside it.
                for (target, value) in &with.assignments {
                    self.expression(value, Place::Value);
                    self.hidden.extend(name_of(target));
                    self.demand(name_of(target).is_some());
                }
                self.hidden.clear();
                self.statements(&with.body);
            }
            Stmt::Set(set) => {
                let place = match &set.target {
                    Expr::List(_) => Place::Walked(names_in(&set.target)),
                    _ => Place::Value,
                };
                self.expression(&set.expr, place);
            }
            Stmt::SetBlock(set) => {
                set.filter.iter().for_each(|filter| self.expression(filter, Place::Value));
                self.statements(&set.body);
            }
            Stmt::FilterBlock(block) => {
                self.expression(&block.filter, Place::Printed);
                self.statements(&block.body);
            }
            Stmt::Macro(declared) => {
                // In Python a default may speak of the parameters before it.
                self.hidden.extend(declared.args.iter().filter_map(name_of));
                declared.defaults.iter().for_each(|default| self.expression(default, Place::Value));
                self.hidden.clear();
                self.statements(&declared.body);
            }
            _ => self.demand(false),
        }
    }

    fn expression(&mut self, expression: &'a Expr<'a>, place: Place<'a>) {
        let shape = self.shape(expression);
        self.demand(shape.may_stand(place));
        match expression {
            Expr::Var(var) => self.name(var.id, place),
            Expr::Const(_) => {}
            Expr::Slice(slice) => {
                self.value(&slice.expr);
                for bound in [&slice.start, &slice.stop, &slice.step].into_iter().flatten() {
                    self.value(bound);
                }
            }
            Expr::UnaryOp(unary) => self.value(&unary.expr),
            Expr::BinOp(binary) => {
                let is_bool =
                    |side: &Expr<'_>| matches!(side, Expr::Const(it) if it.value.kind() == ValueKind::Bool);
                let (left, right) = match binary.op {
                    BinOpKind::In => (Place::Value, Place::Searched),
                    BinOpKind::Concat => (Place::Printed, Place::Printed),
                    _ => (Place::Value, Place::Value),
                };
                self.demand(match binary.op {
                    // Of two constants the engine makes true or false, Python gives the one that decides.
                    BinOpKind::ScAnd => binary.left.as_const().is_none(),
                    BinOpKind::Pow => false,
                    BinOpKind::Eq | BinOpKind::Ne | BinOpKind::ScOr | BinOpKind::In | BinOpKind::Concat => {
                        true
                    }
                    _ => !is_bool(&binary.left) && !is_bool(&binary.right),
                });
                self.expression(&binary.left, left);
                self.expression(&binary.right, right);
            }
            Expr::Compare(compare) => {
                self.value(&compare.expr);
                for step in &compare.ops {
                    self.demand(matches!(step.op, CompareOpKind::Eq | CompareOpKind::Ne));
                    self.value(&step.expr);
                }
            }
            Expr::IfExpr(choice) => {
                self.value(&choice.test_expr);
                self.expression(&choice.true_expr, place);
                choice.false_expr.iter().for_each(|otherwise| self.expression(otherwise, place));
            }
            Expr::Filter(filter) => self.filter(filter),
            Expr::Test(test) => {
                let (places, names) = shape_of(&test.args);
                self.demand(has(TESTS, test.name, places, &names));
                self.expression(&test.expr, Place::Tested(test.name));
                self.arguments(&test.args, if test.name == "in" { Place::Searched } else { Place::Value });
            }
            Expr::GetAttr(get) => {
                self.demand(!get.name.starts_with('_') && !matches!(get.expr, Expr::Const(_)));
                match &get.expr {
                    Expr::Var(var) if var.id == "loop" => self.demand(OF_LOOPS.contains(&get.name)),
                    base => self.value(base),
                }
            }
            Expr::GetItem(get) => {
                if let Expr::Const(key) = &get.subscript_expr {
                    let is_index = key.value.is_integer();
                    self.demand(is_index || key.value.as_str().is_some_and(|key| !key.starts_with('_')));
                }
                self.value(&get.expr);
                self.value(&get.subscript_expr);
            }
            Expr::Call(call) => self.call(&call.expr, &call.args),
            Expr::List(list) => list.items.iter().for_each(|item| self.value(item)),
            Expr::Map(map) => {
                for key in &map.keys {
                    self.demand(matches!(key, Expr::Const(key) if key.value.as_str().is_some()));
                }
                map.values.iter().for_each(|value| self.value(value));
            }
        }
    }

    fn value(&mut self, expression: &'a Expr<'a>) {
        self.expression(expression, Place::Value);
    }

    fn name(&mut self, name: &'a str, place: Place<'a>) {
        let is_function = name == "loop"
            || FUNCTIONS.iter().any(|(known, ..)| *known == name)
            || self.macros.iter().any(|(known, _)| *known == name);
        let is_asked_for = matches!(place, Place::Tested("defined" | "undefined"));
        self.demand(!PYTHON_ONLY.contains(&name) && !self.hidden.contains(&name));
        self.demand(!is_function || is_asked_for);
    }

    fn filter(&mut self, filter: &'a Filter<'a>) {
        let (places, names) = shape_of(&filter.args);
        self.demand(has(FILTERS, filter.name, places, &names));
        filter.expr.iter().for_each(|base| self.expression(base, Place::Filtered(filter.name)));
        self.arguments(&filter.args, Place::Value);
        let word = |at: usize| match filter.args.get(at) {
            Some(CallArg::Pos(Expr::Const(word)) | CallArg::Kwarg(_, Expr::Const(word))) => {
                word.value.as_str()
            }
            _ => None,
        };
        let is_attribute =
            |at| word(at).is_some_and(|name| !name.contains('.') && !is_method_of_mappings(name));
        let is_test = |at: usize| {
            filter.args.len() <= at
                || word(at).is_some_and(|name| has(TESTS, name, filter.args.len() - at - 1, &[]))
        };
        self.demand(match filter.name {
            "map" if names.is_empty() => word(0).is_some_and(|name| {
                has(FILTERS, name, 0, &[]) && !LAZY.contains(&name) && !["safe", "items"].contains(&name)
            }),
            "map" => is_attribute(0),
            "sort" => filter.args.is_empty() || is_attribute(0),
            "join" => names.is_empty() || is_attribute(places),
            "selectattr" | "rejectattr" => is_attribute(0) && is_test(1),
            "select" | "reject" => is_test(0),
            _ => true,
        });
    }

    fn call(&mut self, callee: &'a Expr<'a>, args: &'a [CallArg<'a>]) {
        let (places, names) = shape_of(args);
        match callee {
            Expr::Var(var) => {
                let parameters = self.macros.iter().find(|(name, _)| *name == var.id);
                let holds = match parameters {
                    Some((_, parameters)) => {
                        let by_name = parameters.get(places..).unwrap_or_default();
                        places <= parameters.len() && names.iter().all(|name| by_name.contains(name))
                    }
                    None => has(FUNCTIONS, var.id, places, &names),
                };
                self.demand(holds && !self.hidden.contains(&var.id));
                self.arguments(args, Place::Value);
            }
            Expr::GetAttr(get) => {
                match &get.expr {
                    Expr::Var(var) if var.id == "loop" => {
                        self.demand(get.name == "cycle" && places > 0 && names.is_empty());
                    }
                    base => {
                        let missing = MISSING.contains(&get.name);
                        self.demand(missing || has(METHODS, get.name, places, &names));
                        self.value(base);
                    }
                }
                self.arguments(args, if get.name == "join" { Place::Walked(1) } else { Place::Value });
            }
            _ => self.demand(false),
        }
    }

    fn arguments(&mut self, args: &'a [CallArg<'a>], place: Place<'a>) {
        for arg in args {
            match arg {
                CallArg::Pos(value) | CallArg::Kwarg(_, value) => self.expression(value, place),
                _ => self.demand(false),
            }
        }
    }

    fn shape(&self, expression: &Expr<'_>) -> Shape {
        let either = |left, right| match self.shape(left) {
            Shape::Plain => self.shape(right),
            shape => shape,
        };
        match expression {
            Expr::Filter(filter) => match filter.name {
                "safe" => Shape::Safe,
                "items" | "dictsort" => Shape::Pairs,
                name if LAZY.contains(&name) => Shape::Lazy,
                _ => Shape::Plain,
            },
            Expr::Call(call) => match &call.expr {
                Expr::Var(var) if var.id == "range" => Shape::View,
                Expr::GetAttr(get) => match get.name {
                    "items" => Shape::Pairs,
                    "keys" | "values" => Shape::View,
                    _ => Shape::Plain,
                },
                _ => Shape::Plain,
            },
            Expr::List(list) if !self.has_brackets(expression, list.items.first()) => Shape::Tuple,
            Expr::IfExpr(choice) => match &choice.false_expr {
                Some(otherwise) => either(&choice.true_expr, otherwise),
                None => self.shape(&choice.true_expr),
            },
            Expr::BinOp(binary) if matches!(binary.op, BinOpKind::ScAnd | BinOpKind::ScOr) => {
                either(&binary.left, &binary.right)
            }
            _ => Shape::Plain,
        }
    }

    /// The parser makes lists of tuples.
    fn has_brackets(&self, list: &Expr<'_>, first: Option<&Expr<'_>>) -> bool {
        let start = list.span().start_offset;
        self.source.get(start as usize) == Some(&b'[')
            && first.is_none_or(|item| item.span().start_offset > start)
    }
}

fn name_of<'a>(target: &Expr<'a>) -> Option<&'a str> {
    match target {
        Expr::Var(var) => Some(var.id),
        _ => None,
    }
}

fn names_in(target: &Expr<'_>) -> usize {
    match target {
        Expr::List(list) => list.items.len(),
        _ => 1,
    }
}

/// How many arguments stand by place, and which by name.
fn shape_of<'a>(args: &[CallArg<'a>]) -> (usize, Vec<&'a str>) {
    let names = args.iter().filter_map(|arg| match arg {
        CallArg::Kwarg(name, _) => Some(*name),
        _ => None,
    });
    let names: Vec<_> = names.collect();
    (args.len() - names.len(), names)
}
