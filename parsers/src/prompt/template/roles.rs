//! Which messages a branch of a template is for.
//!
//! Why: `{% elif message.role == "assistant" %}{% if loop.last %}` makes the last message another one for assistants only. What a round reads
//! in such a branch is no input of the rounds that never come there, so a question that was the last one prints what it printed.
//!
//! It must never leave out a role for which a branch may be taken.

use std::collections::BTreeSet;

use minijinja::machinery::ast::{BinOpKind, Expr};

/// The roles that may come to a place of a template; none: all.
pub(super) type Roles<'a> = Option<BTreeSet<&'a str>>;

/// The roles for which `condition` can be true, where `item` is the message.
pub(super) fn implied<'a>(condition: &'a Expr<'a>, item: &str) -> Roles<'a> {
    let Expr::BinOp(both) = condition else { return None };
    match both.op {
        BinOpKind::ScAnd => narrowed(&implied(&both.left, item), implied(&both.right, item)),
        BinOpKind::ScOr => {
            let (left, right) = (implied(&both.left, item)?, implied(&both.right, item)?);
            Some(left.union(&right).copied().collect())
        }
        BinOpKind::Eq if is_role(&both.left, item) => Some([text(&both.right)?].into()),
        BinOpKind::Eq if is_role(&both.right, item) => Some([text(&both.left)?].into()),
        BinOpKind::In if is_role(&both.left, item) => match &both.right {
            Expr::List(list) => list.items.iter().map(text).collect(),
            _ => None,
        },
        _ => None,
    }
}

/// Those of `roles` that are also among `others`.
pub(super) fn narrowed<'a>(roles: &Roles<'a>, others: Roles<'a>) -> Roles<'a> {
    match (roles, others) {
        (Some(roles), Some(others)) => Some(roles.intersection(&others).copied().collect()),
        (Some(roles), None) => Some(roles.clone()),
        (None, others) => others,
    }
}

fn is_role(expression: &Expr<'_>, item: &str) -> bool {
    let is_item = |base: &Expr<'_>| matches!(base, Expr::Var(var) if var.id == item);
    match expression {
        Expr::GetAttr(get) => get.name == "role" && is_item(&get.expr),
        Expr::GetItem(get) => text(&get.subscript_expr) == Some("role") && is_item(&get.expr),
        _ => false,
    }
}

fn text<'a>(expression: &'a Expr<'a>) -> Option<&'a str> {
    match expression {
        Expr::Const(constant) => constant.value.as_str(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use minijinja::machinery::ast::Stmt;
    use minijinja::machinery::parse;

    fn roles(condition: &str) -> Option<Vec<String>> {
        let source = format!("{{{{ {condition} }}}}");
        let ast = parse(&source, "t", Default::default(), Default::default()).unwrap();
        let Stmt::Template(template) = &ast else { panic!("no template") };
        let [Stmt::EmitExpr(emit)] = template.children.as_slice() else { panic!("no expression") };
        super::implied(&emit.expr, "m").map(|roles| roles.into_iter().map(str::to_owned).collect())
    }

    #[test]
    fn a_condition_tells_the_roles_that_it_can_be_true_for() {
        for (condition, expected) in [
            ("m.role == 'user'", vec!["user"]),
            ("'user' == m['role']", vec!["user"]),
            ("(m.role == 'user') or (m.role == 'system' and not loop.first)", vec!["system", "user"]),
            ("m.role in ['a', 'b'] and x", vec!["a", "b"]),
            ("m.role == 'a' and m.role == 'b'", vec![]),
        ] {
            assert_eq!(roles(condition).unwrap(), expected, "{condition}");
        }
    }

    #[test]
    fn what_may_be_true_for_all_roles_tells_none() {
        for condition in [
            "m.role != 'user'",
            "not m.role == 'user'",
            "m.role == 'user' or x",
            "n.role == 'user'",
            "m.role == x",
            "m.role in x",
            "m.kind == 'user'",
            "m.role in ['a', x]",
        ] {
            assert_eq!(roles(condition), None, "{condition}");
        }
    }
}
