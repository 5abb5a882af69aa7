//! Inputs of rounds that are told without the template engine.
//!
//! Why: nearly all that a round reads from outside is where it stands (`loop.last`, `loop.index0 > ns.last_query_index`) and who stands beside
//! it (`messages[loop.index0 + 1].role`). Through the engine that is a microsecond a round, which in a long conversation is more than all
//! the rest of a turn. So such expressions are made small trees here; what in them does not depend on the round is evaluated once, by the engine.
//!
//! It must never tell another value than the engine would: what it does not know to the letter is `None`, and then the round is run.

use minijinja::Value;
use minijinja::machinery::ast::{BinOpKind, Expr, UnaryOpKind};
use minijinja::value::ValueKind;

use super::inputs::Input;
use super::roles::Roles;
use super::walk;
use crate::prompt::turns::Lazy;

/// Where a round stands.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// What the loop walks through.
    pub(super) items: &'a [Value],
    pub(super) at: usize,
    /// What is the same in all rounds.
    pub(super) outer: &'a [Outer],
}

/// An expression.
enum Quick {
    Constant(Value),
    /// The same in all rounds: which of the values that were evaluated before the loop.
    Outer(usize),
    /// `loop.index0`, and how much is added.
    Index(i64),
    Length,
    First,
    Last,
    /// `loop.previtem` or `loop.nextitem`: how far away.
    Neighbour(isize),
    Not(Box<Self>),
    /// The operator, and its sides.
    Both(BinOpKind, Box<[Self; 2]>),
    /// Condition, what stands before `if`, what stands behind `else`.
    Choice(Box<[Self; 3]>),
    /// An element of one of the values that were evaluated before the loop.
    Element(usize, Box<Self>),
    /// `.role` of a message.
    Role(Box<Self>),
    IsDefined(Box<Self>),
}

/// An input, and the roles of the messages that read it; none: all.
pub(super) struct Asked {
    roles: Option<Vec<String>>,
    quick: Quick,
}

/// The inputs of each round as trees, with the expressions that have to be evaluated before the loop. None if one of them is too much.
pub(super) fn compile<'a>(inputs: &[(Roles<'a>, Input<'a>)]) -> Option<(Vec<Asked>, Vec<&'a Expr<'a>>)> {
    let mut outer = Vec::new();
    let asked = inputs.iter().map(|(roles, input)| {
        let quick = match input {
            Input::Expr(expression) => Quick::of(expression, &mut outer),
            Input::Member("loop", member) => Quick::of_loop(member),
            Input::Member(..) | Input::Name(_) => None,
        };
        let roles = roles.as_ref().map(|roles| roles.iter().map(|role| (*role).to_owned()).collect());
        Some(Asked { roles, quick: quick? })
    });
    let asked = asked.collect::<Option<Vec<_>>>()?;
    Some((asked, outer))
}

impl Asked {
    /// What the input is in a round; undefined for a message that does not read it.
    pub(super) fn tell<'a>(&'a self, role: Option<&str>, place: Place<'a>) -> Option<Told<'a>> {
        match (&self.roles, role) {
            (Some(roles), Some(role)) if !roles.iter().any(|other| other == role) => Some(Told::Undefined),
            _ => self.quick.tell(place),
        }
    }
}

impl Quick {
    fn of<'a>(expression: &'a Expr<'a>, outer: &mut Vec<&'a Expr<'a>>) -> Option<Self> {
        let reads = walk::reads(expression);
        if let Expr::Const(constant) = expression {
            return Some(Self::Constant(constant.value.clone()));
        }
        if reads.of_loop.is_empty() {
            // `messages` mostly stands there more than once.
            let same = |other: &&Expr<'_>| matches!((*other, expression), (Expr::Var(a), Expr::Var(b)) if a.id == b.id);
            let known = outer.iter().position(same);
            return Some(Self::Outer(known.unwrap_or_else(|| {
                outer.push(expression);
                outer.len() - 1
            })));
        }
        match expression {
            Expr::GetAttr(get) if is_of_loop(&get.expr) => Self::of_loop(get.name),
            Expr::GetAttr(get) if get.name == "role" => Some(Self::Role(Self::of(&get.expr, outer)?.into())),
            Expr::GetItem(get) => match &get.subscript_expr {
                Expr::Const(name) if name.value.as_str() == Some("role") => {
                    Some(Self::Role(Self::of(&get.expr, outer)?.into()))
                }
                Expr::Const(_) => None,
                index => match Self::of(&get.expr, outer)? {
                    Self::Outer(list) => Some(Self::Element(list, Self::of(index, outer)?.into())),
                    _ => None,
                },
            },
            Expr::UnaryOp(unary) if matches!(unary.op, UnaryOpKind::Not) => {
                Some(Self::Not(Self::of(&unary.expr, outer)?.into()))
            }
            Expr::BinOp(binary) if is_known(binary.op) => {
                let sides = [Self::of(&binary.left, outer)?, Self::of(&binary.right, outer)?];
                Some(Self::Both(binary.op, sides.into()))
            }
            Expr::IfExpr(choice) => {
                let test = Self::of(&choice.test_expr, outer)?;
                let then = Self::of(&choice.true_expr, outer)?;
                Some(Self::Choice(Box::new([test, then, Self::of(choice.false_expr.as_ref()?, outer)?])))
            }
            Expr::Test(test) if test.args.is_empty() && test.name == "defined" => {
                Some(Self::IsDefined(Self::of(&test.expr, outer)?.into()))
            }
            _ => None,
        }
    }

    fn of_loop(member: &str) -> Option<Self> {
        Some(match member {
            "index0" => Self::Index(0),
            "index" => Self::Index(1),
            "length" => Self::Length,
            "first" => Self::First,
            "last" => Self::Last,
            "previtem" => Self::Neighbour(-1),
            "nextitem" => Self::Neighbour(1),
            _ => return None,
        })
    }

    /// What it is in a round.
    fn tell<'a>(&'a self, place: Place<'a>) -> Option<Told<'a>> {
        Some(match self {
            Self::Constant(value) => Told::Ref(value),
            Self::Outer(which) => Told::Ref(&place.outer.get(*which)?.value),
            Self::Index(more) => Told::Whole(place.at as i64 + more),
            Self::Length => Told::Whole(place.items.len() as i64),
            Self::First => Told::Flag(place.at == 0),
            Self::Last => Told::Flag(place.at + 1 == place.items.len()),
            Self::Neighbour(away) => {
                let at = place.at.checked_add_signed(*away);
                at.and_then(|at| place.items.get(at)).map_or(Told::Undefined, Told::Ref)
            }
            Self::Not(value) => Told::Flag(!value.tell(place)?.is_true()),
            Self::Both(BinOpKind::ScAnd, sides) => match sides[0].tell(place)? {
                left if left.is_true() => sides[1].tell(place)?,
                left => left,
            },
            Self::Both(BinOpKind::ScOr, sides) => match sides[0].tell(place)? {
                left if left.is_true() => left,
                _ => sides[1].tell(place)?,
            },
            Self::Both(op, sides) => both(*op, sides[0].tell(place)?, sides[1].tell(place)?)?,
            Self::Choice(parts) => {
                let chosen = if parts[0].tell(place)?.is_true() { 1 } else { 2 };
                parts[chosen].tell(place)?
            }
            Self::Element(list, index) => place.outer.get(*list)?.element(index.tell(place)?.whole()?)?,
            Self::Role(message) => match message.tell(place)? {
                Told::Ref(message) => Told::Ref(message.downcast_object_ref::<Lazy>()?.role()?),
                _ => return None,
            },
            Self::IsDefined(value) => Told::Flag(!value.tell(place)?.is_undefined()),
        })
    }
}

/// What an expression is.
#[derive(Clone, Copy)]
pub(super) enum Told<'a> {
    Ref(&'a Value),
    Undefined,
    Whole(i64),
    Flag(bool),
}

impl<'a> Told<'a> {
    fn value(self) -> Option<&'a Value> {
        match self {
            Self::Ref(value) => Some(value),
            _ => None,
        }
    }

    fn is_true(self) -> bool {
        match self {
            Self::Whole(number) => number != 0,
            Self::Flag(flag) => flag,
            Self::Ref(value) => value.is_true(),
            Self::Undefined => false,
        }
    }

    fn is_undefined(self) -> bool {
        match self {
            Self::Undefined => true,
            other => other.value().is_some_and(Value::is_undefined),
        }
    }

    fn is_missing(self) -> bool {
        self.is_undefined() || self.value().is_some_and(Value::is_none)
    }

    fn whole(self) -> Option<i64> {
        match self {
            Self::Whole(number) => Some(number),
            other => other.value().filter(|value| value.is_integer())?.as_i64(),
        }
    }

    fn text(self) -> Option<&'a str> {
        self.value()?.as_str()
    }
}

/// A value from outside of the loop, with its elements if it is a list.
pub(super) struct Outer {
    value: Value,
    items: Vec<Value>,
}

impl Outer {
    pub(super) fn of(value: &Value) -> Self {
        let items = (value.kind() == ValueKind::Seq).then(|| value.try_iter().ok()).flatten();
        Self { value: value.clone(), items: items.into_iter().flatten().collect() }
    }

    /// An element, from the end where the index is negative; undefined where there is none.
    fn element(&self, index: i64) -> Option<Told<'_>> {
        if self.value.kind() != ValueKind::Seq {
            return None;
        }
        let index = if index < 0 { index.checked_add_unsigned(self.items.len() as u64)? } else { index };
        let found = self.items.get(usize::try_from(index).ok()?);
        Some(found.map_or(Told::Undefined, Told::Ref))
    }
}

/// Whole numbers and texts; and texts against what is missing, which are never the same.
fn both<'a>(op: BinOpKind, left: Told<'_>, right: Told<'_>) -> Option<Told<'a>> {
    if let (Some(left), Some(right)) = (left.whole(), right.whole()) {
        return Some(match op {
            BinOpKind::Add => Told::Whole(left.checked_add(right)?),
            BinOpKind::Sub => Told::Whole(left.checked_sub(right)?),
            // Of what is negative, Python has another remainder.
            BinOpKind::Rem if left >= 0 && right > 0 => Told::Whole(left % right),
            BinOpKind::Eq => Told::Flag(left == right),
            BinOpKind::Ne => Told::Flag(left != right),
            BinOpKind::Lt => Told::Flag(left < right),
            BinOpKind::Lte => Told::Flag(left <= right),
            BinOpKind::Gt => Told::Flag(left > right),
            BinOpKind::Gte => Told::Flag(left >= right),
            _ => return None,
        });
    }
    let same = match (left.text(), right.text()) {
        (Some(left), Some(right)) => left == right,
        (Some(_), None) if right.is_missing() => false,
        (None, Some(_)) if left.is_missing() => false,
        _ => return None,
    };
    match op {
        BinOpKind::Eq => Some(Told::Flag(same)),
        BinOpKind::Ne => Some(Told::Flag(!same)),
        _ => None,
    }
}

fn is_known(op: BinOpKind) -> bool {
    use BinOpKind as Op;
    let compares = matches!(op, Op::Eq | Op::Ne | Op::Lt | Op::Lte | Op::Gt | Op::Gte);
    compares || matches!(op, Op::ScAnd | Op::ScOr | Op::Add | Op::Sub | Op::Rem)
}

fn is_of_loop(base: &Expr<'_>) -> bool {
    matches!(base, Expr::Var(var) if var.id == "loop")
}
