//! Loops that have nothing left to do.
//!
//! Why: templates of thinking models look for the last question with `{% for message in messages[::-1] %}{% if ns.searching and … %}`, and go on
//! through the whole conversation when they have found it. Once the member of the namespace is false, no later round can change anything: what
//! it sets besides is its own, and cannot fail if it did not in the round before.
//!
//! It must never leave a loop whose next round could print, set, or refuse something.

use minijinja::machinery::ast::{BinOpKind, Expr, ForLoop, Stmt, UnaryOpKind};

/// What must be true for a loop to go on, asked at the end of each round; none if that is not known of this loop.
pub(super) fn goes_on_while<'a>(looping: &'a ForLoop<'a>) -> Option<&'a Expr<'a>> {
    if looping.recursive || looping.filter_expr.is_some() || !looping.else_body.is_empty() {
        return None;
    }
    let (last, before) = looping.body.split_last()?;
    let Stmt::IfCond(cond) = last else { return None };
    if !cond.false_body.is_empty() || !before.iter().all(is_harmless) {
        return None;
    }
    let mut first = &cond.expr;
    while let Expr::BinOp(both) = first
        && matches!(both.op, BinOpKind::ScAnd)
    {
        first = &both.left;
    }
    let base = match first {
        Expr::UnaryOp(unary) if matches!(unary.op, UnaryOpKind::Not) => member(&unary.expr),
        other => member(other),
    }?;
    let is_own = |name: &str| {
        let names = before.iter().filter_map(|statement| match statement {
            Stmt::Set(set) => Some(&set.target),
            _ => None,
        });
        std::iter::once(&looping.target).chain(names).any(|target| !is_other_name(target, name))
    };
    (base != "loop" && !is_own(base) && !is_own("messages")).then_some(first)
}

/// A member of a name: the name.
fn member<'a>(expression: &'a Expr<'a>) -> Option<&'a str> {
    match expression {
        Expr::GetAttr(get) => match &get.expr {
            Expr::Var(var) => Some(var.id),
            _ => None,
        },
        _ => None,
    }
}

fn is_other_name(target: &Expr<'_>, name: &str) -> bool {
    matches!(target, Expr::Var(var) if var.id != name)
}

/// A name of the round's own that is given a number.
fn is_harmless(statement: &Stmt<'_>) -> bool {
    matches!(statement, Stmt::Set(set) if matches!(set.target, Expr::Var(_)) && is_number(&set.expr))
}

/// A number in each round if it was one in the first.
fn is_number(expression: &Expr<'_>) -> bool {
    match expression {
        Expr::Const(constant) => constant.value.is_integer(),
        Expr::GetAttr(get) => {
            matches!(&get.expr, Expr::Var(var) if var.id == "loop")
                && ["index", "index0", "revindex", "revindex0", "length"].contains(&get.name)
        }
        Expr::Filter(filter) => {
            matches!(filter.name, "length" | "count")
                && filter.args.is_empty()
                && matches!(&filter.expr, Some(Expr::Var(var)) if var.id == "messages")
        }
        Expr::BinOp(both) => {
            matches!(both.op, BinOpKind::Add | BinOpKind::Sub)
                && is_number(&both.left)
                && is_number(&both.right)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use minijinja::machinery::ast::Stmt;
    use minijinja::machinery::parse;

    fn is_left(source: &str) -> bool {
        let ast = parse(source, "t", Default::default(), Default::default()).unwrap();
        let Stmt::Template(template) = &ast else { panic!("no template") };
        template
            .children
            .iter()
            .any(|child| matches!(child, Stmt::ForLoop(looping) if super::goes_on_while(looping).is_some()))
    }

    #[test]
    fn a_search_that_found_is_over() {
        for source in [
            "{% for m in messages %}{% if ns.on and m.role == 'user' %}{% set ns.on = false %}{% endif %}{% endfor %}",
            "{% for m in messages[::-1] %}{% set i = (messages|length - 1) - loop.index0 %}{% if ns.on and m.a and not m.b %}{% set ns.i = i %}{% endif %}{% endfor %}",
            "{% for m in messages %}{% if not ns.found and m.role %}{% set ns.found = true %}{% endif %}{% endfor %}",
        ] {
            assert!(is_left(source), "{source}");
        }
    }

    #[test]
    fn a_loop_whose_next_round_may_do_something_goes_on() {
        for source in [
            "{% for m in messages %}{% if ns.on and m.x %}{% endif %}x{% endfor %}",
            "{% for m in messages %}x{% if ns.on and m.x %}{% endif %}{% endfor %}",
            "{% for m in messages %}{% if ns.on and m.x %}{% else %}x{% endif %}{% endfor %}",
            "{% for m in messages %}{% if m.x and ns.on %}{% set ns.on = false %}{% endif %}{% endfor %}",
            "{% for m in messages %}{% if ns.on or m.x %}{% set ns.on = false %}{% endif %}{% endfor %}",
            "{% for m in messages %}{% if m.on and x %}{% set ns.on = false %}{% endif %}{% endfor %}",
            "{% for m in messages %}{% set n = m.x.y %}{% if ns.on and x %}{% set ns.on = false %}{% endif %}{% endfor %}",
            "{% for m in messages %}{% set ns = 1 %}{% if ns.on and x %}{% set ns.on = false %}{% endif %}{% endfor %}",
            "{% for m in messages %}{% set ns.on = 1 %}{% if ns.on and x %}{% set ns.on = false %}{% endif %}{% endfor %}",
            "{% for m in messages %}{% if ns.on and x %}{% endif %}{% else %}x{% endfor %}",
            "{% for m in messages if m.x %}{% if ns.on and x %}{% set ns.on = false %}{% endif %}{% endfor %}",
            "{% for m in messages %}{% set messages = 1 %}{% set i = messages|length %}{% if ns.on and x %}{% set ns.on = false %}{% endif %}{% endfor %}",
        ] {
            assert!(!is_left(source), "{source}");
        }
    }
}
