//! What stands in a template's syntax: who assigns a name, what an expression reads. For [`super::inputs`].
//!
//! It must see everything: a statement or an expression that it does not know makes the template one that is not looked into.

use std::collections::{HashMap, HashSet};

use minijinja::machinery::ast::{CallArg, Expr, Macro, Stmt};

/// A template, looked through once.
pub(super) struct Seen<'a> {
    pub(super) macros: HashMap<&'a str, &'a Macro<'a>>,
    /// Names that stand for a namespace somewhere.
    pub(super) namespaces: HashSet<&'a str>,
    all: Assigned<'a>,
    /// Names that are assigned once, where every render passes at most once.
    once: HashSet<&'a str>,
    is_plain: bool,
}

/// What a list of statements assigns: names, how often each, and members of namespaces.
#[derive(Default)]
pub(super) struct Assigned<'a> {
    pub(super) names: HashMap<&'a str, usize>,
    pub(super) members: Vec<(&'a str, &'a str)>,
    /// A target that is neither, or a statement that nobody knows.
    unknown: bool,
}

/// What an expression reads.
#[derive(Default)]
pub(super) struct Reads<'a> {
    pub(super) names: HashSet<&'a str>,
    /// `name.member`, where the name is all that stands before the point; such names are not in `names`.
    pub(super) members: HashSet<(&'a str, &'a str)>,
    /// Members of `loop`.
    pub(super) of_loop: HashSet<&'a str>,
    /// Functions and macros that it calls; such names are not in `names`. Empty for one that has no name. Methods do not count.
    pub(super) called: HashSet<&'a str>,
}

impl Reads<'_> {
    pub(super) fn is_constant(&self) -> bool {
        self.names.is_empty() && self.members.is_empty() && self.of_loop.is_empty()
    }
}

impl<'a> Seen<'a> {
    pub(super) fn of(template: &'a Stmt<'a>) -> Self {
        let body = match template {
            Stmt::Template(template) => template.children.as_slice(),
            _ => &[],
        };
        let all = assigned(body);
        let mut seen = Self {
            macros: HashMap::new(),
            namespaces: all.members.iter().map(|(ns, _)| *ns).collect(),
            once: HashSet::new(),
            is_plain: !all.unknown,
            all,
        };
        seen.outermost(body);
        let mut expressions = Vec::new();
        every_expression(body, &mut expressions);
        // A namespace that is more than the left side of a point might be known by two names.
        let reads: Vec<Reads<'a>> = expressions.iter().map(|expression| reads(expression)).collect();
        seen.is_plain &=
            !reads.iter().any(|reads| reads.names.iter().any(|name| seen.namespaces.contains(name)));
        seen
    }

    /// Whether all of it was understood.
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Whether a name stands for no plain value.
    pub(super) fn is_special(&self, name: &str) -> bool {
        self.macros.contains_key(name) || self.namespaces.contains(name)
    }

    /// Whether a name is assigned anywhere.
    pub(super) fn is_assigned(&self, name: &str) -> bool {
        self.all.names.contains_key(name)
    }

    /// Names that are assigned in other places than those counted in `inside`.
    pub(super) fn assigned_outside(&self, inside: &HashMap<&'a str, usize>) -> HashMap<&'a str, usize> {
        let rest = self.all.names.iter().map(|(name, count)| (*name, count - inside.get(name).unwrap_or(&0)));
        rest.filter(|(_, count)| *count > 0).collect()
    }

    /// Whether a name has one value at most during a render.
    pub(super) fn is_set_once(&self, name: &str) -> bool {
        self.once.contains(name)
    }

    fn outermost(&mut self, body: &'a [Stmt<'a>]) {
        for statement in body {
            match statement {
                Stmt::Set(set) => {
                    if let Expr::Var(var) = &set.target {
                        if self.all.names.get(var.id) == Some(&1) {
                            self.once.insert(var.id);
                        }
                        self.namespaces.extend(makes_namespace(&set.expr).then_some(var.id));
                    }
                }
                Stmt::IfCond(cond) => {
                    self.outermost(&cond.true_body);
                    self.outermost(&cond.false_body);
                }
                Stmt::ForLoop(looping) => self.nested(&looping.body),
                Stmt::Macro(declared) => {
                    let twice = self.macros.insert(declared.name, declared).is_some();
                    self.is_plain &= !twice && self.all.names.get(declared.name) == Some(&1);
                }
                _ => {}
            }
        }
    }

    /// Namespaces that are made inside of loops, and no macros.
    fn nested(&mut self, body: &'a [Stmt<'a>]) {
        for statement in body {
            match statement {
                Stmt::Set(set) => {
                    if let Expr::Var(var) = &set.target {
                        self.namespaces.extend(makes_namespace(&set.expr).then_some(var.id));
                    }
                }
                Stmt::IfCond(cond) => {
                    self.nested(&cond.true_body);
                    self.nested(&cond.false_body);
                }
                Stmt::ForLoop(looping) => self.nested(&looping.body),
                Stmt::Macro(_) => self.is_plain = false,
                _ => {}
            }
        }
    }
}

fn makes_namespace(expression: &Expr<'_>) -> bool {
    matches!(expression, Expr::Call(call) if matches!(&call.expr, Expr::Var(callee) if callee.id == "namespace"))
}

/// Whether something of `body` may print.
pub(super) fn prints(body: &[Stmt<'_>]) -> bool {
    body.iter().any(|statement| match statement {
        Stmt::EmitExpr(_) | Stmt::EmitRaw(_) | Stmt::CallBlock(_) | Stmt::FilterBlock(_) => true,
        Stmt::ForLoop(looping) => prints(&looping.body) || prints(&looping.else_body),
        Stmt::IfCond(cond) => prints(&cond.true_body) || prints(&cond.false_body),
        Stmt::WithBlock(with) => prints(&with.body),
        _ => false,
    })
}

/// What `body` assigns, at any depth; of a macro its name, its parameters and what it assigns.
pub(super) fn assigned<'a>(body: &'a [Stmt<'a>]) -> Assigned<'a> {
    let mut found = Assigned::default();
    body.iter().for_each(|statement| found.statement(statement));
    found
}

impl<'a> Assigned<'a> {
    fn target(&mut self, target: &'a Expr<'a>) {
        match target {
            Expr::Var(var) => *self.names.entry(var.id).or_default() += 1,
            Expr::List(list) => list.items.iter().for_each(|item| self.target(item)),
            Expr::GetAttr(get) => match &get.expr {
                Expr::Var(var) => self.members.push((var.id, get.name)),
                _ => self.unknown = true,
            },
            _ => self.unknown = true,
        }
    }

    fn all(&mut self, body: &'a [Stmt<'a>]) {
        body.iter().for_each(|statement| self.statement(statement));
    }

    fn statement(&mut self, statement: &'a Stmt<'a>) {
        match statement {
            Stmt::EmitExpr(_) | Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => {}
            Stmt::ForLoop(looping) => {
                self.target(&looping.target);
                self.all(&looping.body);
                self.all(&looping.else_body);
            }
            Stmt::IfCond(cond) => {
                self.all(&cond.true_body);
                self.all(&cond.false_body);
            }
            Stmt::WithBlock(with) => {
                with.assignments.iter().for_each(|(target, _)| self.target(target));
                self.all(&with.body);
            }
            Stmt::Set(set) => self.target(&set.target),
            Stmt::SetBlock(set) => {
                self.target(&set.target);
                self.all(&set.body);
            }
            Stmt::FilterBlock(block) => self.all(&block.body),
            Stmt::Macro(declared) => {
                *self.names.entry(declared.name).or_default() += 1;
                declared.args.iter().for_each(|parameter| self.target(parameter));
                self.all(&declared.body);
            }
            _ => self.unknown = true,
        }
    }
}

/// What `expression` reads, at any depth.
pub(super) fn reads<'a>(expression: &'a Expr<'a>) -> Reads<'a> {
    let mut found = Reads::default();
    found.expression(expression);
    found
}

impl<'a> Reads<'a> {
    fn expression(&mut self, expression: &'a Expr<'a>) {
        match expression {
            Expr::Var(var) => {
                self.names.insert(var.id);
            }
            Expr::GetAttr(get) => match &get.expr {
                Expr::Var(var) if var.id == "loop" => {
                    self.of_loop.insert(get.name);
                }
                Expr::Var(var) => {
                    self.members.insert((var.id, get.name));
                }
                base => self.expression(base),
            },
            Expr::Call(call) => {
                match &call.expr {
                    Expr::GetAttr(get) => match &get.expr {
                        Expr::Var(var) if var.id == "loop" => {
                            self.of_loop.insert(get.name);
                        }
                        // A method: the name is read as a whole.
                        base => self.expression(base),
                    },
                    Expr::Var(callee) => {
                        self.called.insert(callee.id);
                    }
                    callee => {
                        self.called.insert("");
                        self.expression(callee);
                    }
                }
                call.args.iter().for_each(|arg| self.expression(argument(arg)));
            }
            other => children(other).into_iter().for_each(|child| self.expression(child)),
        }
    }
}

/// What a macro reads besides its parameters, with the bases of members among the names. None if that is not to be told.
pub(super) fn reads_of_macro<'a>(declared: &'a Macro<'a>) -> Option<Reads<'a>> {
    let mut expressions: Vec<&'a Expr<'a>> = declared.defaults.iter().collect();
    every_expression(&declared.body, &mut expressions);
    let mut parameters = HashSet::new();
    for parameter in &declared.args {
        let Expr::Var(var) = parameter else { return None };
        parameters.insert(var.id);
    }
    let within = assigned(&declared.body);
    // A parameter might be a namespace of somebody else.
    if within.unknown || within.members.iter().any(|(ns, _)| parameters.contains(ns)) {
        return None;
    }
    let mut all = Reads::default();
    expressions.into_iter().for_each(|expression| all.expression(expression));
    // A loop of its own may tell everything, that of its caller nothing.
    let loops = !all.of_loop.is_empty();
    if loops && !declared.body.iter().all(|statement| loop_is_own(statement)) || all.names.contains("loop") {
        return None;
    }
    all.names.extend(all.members.iter().map(|(base, _)| *base));
    all.names.retain(|name| !parameters.contains(name));
    all.members.retain(|(base, _)| !parameters.contains(base));
    Some(all)
}

/// Whether `loop` stands in loops only.
fn loop_is_own(statement: &Stmt<'_>) -> bool {
    let mut expressions = Vec::new();
    match statement {
        Stmt::ForLoop(looping) => {
            expressions.push(&looping.iter);
            expressions.extend(&looping.filter_expr);
            every_expression(&looping.else_body, &mut expressions);
        }
        Stmt::IfCond(cond) => {
            return reads(&cond.expr).of_loop.is_empty()
                && cond.true_body.iter().chain(&cond.false_body).all(loop_is_own);
        }
        other => every_expression(std::slice::from_ref(other), &mut expressions),
    }
    expressions.iter().all(|expression| reads(expression).of_loop.is_empty())
}

/// The expressions of `body`, at any depth; targets of assignments are none.
pub(super) fn every_expression<'a>(body: &'a [Stmt<'a>], found: &mut Vec<&'a Expr<'a>>) {
    for statement in body {
        match statement {
            Stmt::EmitExpr(emit) => found.push(&emit.expr),
            Stmt::ForLoop(looping) => {
                found.push(&looping.iter);
                found.extend(&looping.filter_expr);
                every_expression(&looping.body, found);
                every_expression(&looping.else_body, found);
            }
            Stmt::IfCond(cond) => {
                found.push(&cond.expr);
                every_expression(&cond.true_body, found);
                every_expression(&cond.false_body, found);
            }
            Stmt::WithBlock(with) => {
                found.extend(with.assignments.iter().map(|(_, value)| value));
                every_expression(&with.body, found);
            }
            Stmt::Set(set) => found.push(&set.expr),
            Stmt::SetBlock(set) => {
                found.extend(&set.filter);
                every_expression(&set.body, found);
            }
            Stmt::FilterBlock(block) => {
                found.push(&block.filter);
                every_expression(&block.body, found);
            }
            Stmt::Macro(declared) => {
                found.extend(&declared.defaults);
                every_expression(&declared.body, found);
            }
            _ => {}
        }
    }
}

pub(super) fn argument<'a>(argument: &'a CallArg<'a>) -> &'a Expr<'a> {
    match argument {
        CallArg::Pos(value)
        | CallArg::Kwarg(_, value)
        | CallArg::PosSplat(value)
        | CallArg::KwargSplat(value) => value,
    }
}

/// What an expression is made of.
pub(super) fn children<'a>(expression: &'a Expr<'a>) -> Vec<&'a Expr<'a>> {
    match expression {
        Expr::Var(_) | Expr::Const(_) => Vec::new(),
        Expr::Slice(slice) => {
            std::iter::once(&slice.expr).chain(&slice.start).chain(&slice.stop).chain(&slice.step).collect()
        }
        Expr::UnaryOp(unary) => vec![&unary.expr],
        Expr::BinOp(binary) => vec![&binary.left, &binary.right],
        Expr::Compare(compare) => {
            std::iter::once(&compare.expr).chain(compare.ops.iter().map(|step| &step.expr)).collect()
        }
        Expr::IfExpr(choice) => {
            [&choice.test_expr, &choice.true_expr].into_iter().chain(&choice.false_expr).collect()
        }
        Expr::Filter(filter) => filter.expr.iter().chain(filter.args.iter().map(argument)).collect(),
        Expr::Test(test) => std::iter::once(&test.expr).chain(test.args.iter().map(argument)).collect(),
        Expr::GetAttr(get) => vec![&get.expr],
        Expr::GetItem(get) => vec![&get.expr, &get.subscript_expr],
        Expr::Call(call) => std::iter::once(&call.expr).chain(call.args.iter().map(argument)).collect(),
        Expr::List(list) => list.items.iter().collect(),
        Expr::Map(map) => map.keys.iter().chain(&map.values).collect(),
    }
}
