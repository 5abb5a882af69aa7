//! Whether a template walks through the parts of a message's content, as vLLM finds out.
//!
//! Why not by rendering: vLLM 0.32 reads the syntax tree (`renderers/hf.py`, `_detect_content_format`) and hands contents over as lists
//! where it finds a loop over them, and else joins their texts with line breaks. Its eye misses loops behind `message.get('content')` and
//! finds some that never run, and the prompt follows its eye. So the same tree is read here by the same rules.

use std::collections::HashSet;

use minijinja::machinery::ast::{Call, CallArg, Expr, Stmt};

/// What the rules look at, gathered in one walk.
#[derive(Default)]
struct Seen<'a> {
    /// `{% set target = value %}`
    sets: Vec<(&'a Expr<'a>, &'a Expr<'a>)>,
    /// `{% for target in iter %}`, and the macro around it.
    loops: Vec<(&'a Expr<'a>, &'a Expr<'a>, Option<usize>)>,
    /// Names and parameters of macros.
    macros: Vec<(&'a str, Vec<&'a str>)>,
    calls: Vec<&'a Call<'a>>,
}

/// Whether vLLM takes the template for one that wants lists of parts.
pub(super) fn wants_lists(template: &Stmt<'_>) -> bool {
    let mut seen = Seen::default();
    seen.statement(template, None);
    // vLLM gives up, and joins texts, where a target is not a plain name.
    seen.walks_through_parts().unwrap_or(false)
}

impl<'a> Seen<'a> {
    /// `None` where vLLM's own search fails.
    fn walks_through_parts(&self) -> Option<bool> {
        let messages = self.messages()?;
        let is_content =
            |expr: &Expr<'_>| messages.iter().any(|name| is_or_filters(expr, name, Some("content")));
        let fed: Vec<HashSet<&str>> =
            self.macros.iter().map(|found| self.fed_with(found, &is_content)).collect();
        for (target, iter, within) in &self.loops {
            let named = |wanted: &dyn Fn(&str) -> bool| matches!(iter, Expr::Var(var) if wanted(var.id));
            let found = is_content(iter)
                || match within {
                    Some(at) => named(&|name| fed.get(*at).is_some_and(|fed| fed.contains(name))),
                    None => named(&|name| name == "content"),
                };
            if found {
                return matches!(target, Expr::Var(_)).then_some(true);
            }
        }
        Some(false)
    }

    /// The names of single messages: targets of loops over `messages` or over what was made of it.
    fn messages(&self) -> Option<Vec<&'a str>> {
        let mut lists = vec!["messages"];
        let mut at = 0;
        while let Some(list) = lists.get(at).copied() {
            at += 1;
            for (target, value) in &self.sets {
                if is_or_filters(value, list, None) {
                    let Expr::Var(var) = target else { return None };
                    if !lists.contains(&var.id) {
                        lists.push(var.id);
                    }
                }
            }
        }
        let mut names = Vec::new();
        for (target, iter, _) in &self.loops {
            if lists.iter().any(|list| is_or_filters(iter, list, None)) {
                let Expr::Var(var) = target else { return None };
                names.push(var.id);
            }
        }
        Some(names)
    }

    /// The parameters of a macro that are given a message's content somewhere.
    fn fed_with(
        &self,
        (name, parameters): &(&str, Vec<&'a str>),
        is_content: &dyn Fn(&Expr<'_>) -> bool,
    ) -> HashSet<&'a str> {
        let mut fed = HashSet::new();
        for call in self.calls.iter().filter(|call| matches!(&call.expr, Expr::Var(var) if var.id == *name)) {
            for (at, argument) in call.args.iter().enumerate() {
                fed.extend(match argument {
                    CallArg::Pos(value) if is_content(value) => parameters.get(at).copied(),
                    CallArg::Kwarg(key, value) if is_content(value) => {
                        parameters.iter().find(|name| *name == key).copied()
                    }
                    _ => None,
                });
            }
        }
        fed
    }

    fn statements(&mut self, body: &'a [Stmt<'a>], within: Option<usize>) {
        body.iter().for_each(|statement| self.statement(statement, within));
    }

    fn statement(&mut self, statement: &'a Stmt<'a>, within: Option<usize>) {
        match statement {
            Stmt::Template(template) => self.statements(&template.children, within),
            Stmt::EmitExpr(emit) => self.expression(&emit.expr),
            Stmt::ForLoop(looping) => {
                self.loops.push((&looping.target, &looping.iter, within));
                self.expression(&looping.iter);
                self.statements(&looping.body, within);
                self.statements(&looping.else_body, within);
            }
            Stmt::IfCond(cond) => {
                self.expression(&cond.expr);
                self.statements(&cond.true_body, within);
                self.statements(&cond.false_body, within);
            }
            Stmt::WithBlock(with) => {
                with.assignments.iter().for_each(|(_, value)| self.expression(value));
                self.statements(&with.body, within);
            }
            Stmt::Set(set) => {
                self.sets.push((&set.target, &set.expr));
                self.expression(&set.expr);
            }
            Stmt::SetBlock(set) => self.statements(&set.body, within),
            Stmt::FilterBlock(block) => self.statements(&block.body, within),
            Stmt::Macro(declared) => {
                let name = |parameter: &'a Expr<'a>| match parameter {
                    Expr::Var(var) => var.id,
                    _ => "",
                };
                self.macros.push((declared.name, declared.args.iter().map(name).collect()));
                self.statements(&declared.body, Some(self.macros.len() - 1));
            }
            Stmt::CallBlock(block) => {
                self.call(&block.call);
                self.statements(&block.macro_decl.body, within);
            }
            Stmt::Do(action) => self.call(&action.call),
            _ => {}
        }
    }

    fn call(&mut self, call: &'a Call<'a>) {
        self.calls.push(call);
        self.expression(&call.expr);
        self.arguments(&call.args);
    }

    fn arguments(&mut self, arguments: &'a [CallArg<'a>]) {
        for argument in arguments {
            let (CallArg::Pos(value)
            | CallArg::Kwarg(_, value)
            | CallArg::PosSplat(value)
            | CallArg::KwargSplat(value)) = argument;
            self.expression(value);
        }
    }

    fn expression(&mut self, expression: &'a Expr<'a>) {
        match expression {
            Expr::Call(call) => self.call(call),
            Expr::Filter(filter) => {
                filter.expr.iter().for_each(|base| self.expression(base));
                self.arguments(&filter.args);
            }
            Expr::Test(test) => self.expression(&test.expr),
            Expr::Slice(slice) => self.expression(&slice.expr),
            Expr::UnaryOp(unary) => self.expression(&unary.expr),
            Expr::BinOp(binary) => {
                self.expression(&binary.left);
                self.expression(&binary.right);
            }
            Expr::IfExpr(choice) => {
                self.expression(&choice.true_expr);
                choice.false_expr.iter().for_each(|otherwise| self.expression(otherwise));
            }
            Expr::GetAttr(get) => self.expression(&get.expr),
            Expr::GetItem(get) => self.expression(&get.expr),
            Expr::List(list) => list.items.iter().for_each(|item| self.expression(item)),
            Expr::Map(map) => map.values.iter().for_each(|value| self.expression(value)),
            Expr::Compare(_) | Expr::Var(_) | Expr::Const(_) => {}
        }
    }
}

/// The variable, or its member `key`, with filters, tests and slices around it.
fn is_or_filters(expression: &Expr<'_>, name: &str, key: Option<&str>) -> bool {
    let is_name = |expr: &Expr<'_>| matches!(expr, Expr::Var(var) if var.id == name);
    match (expression, key) {
        (Expr::Filter(filter), _) => filter.expr.as_ref().is_some_and(|base| is_or_filters(base, name, key)),
        (Expr::Test(test), _) => is_or_filters(&test.expr, name, key),
        (Expr::Slice(slice), _) => is_or_filters(&slice.expr, name, key),
        (_, None) => is_name(expression),
        (Expr::GetAttr(get), Some(key)) => get.name == key && is_name(&get.expr),
        (Expr::GetItem(get), Some(key)) => {
            is_name(&get.expr)
                && matches!(&get.subscript_expr, Expr::Const(constant) if constant.value.as_str() == Some(key))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use minijinja::machinery::parse;

    use super::wants_lists;

    fn wants(source: &str) -> bool {
        wants_lists(&parse(source, "t", Default::default(), Default::default()).unwrap())
    }

    #[test]
    fn a_loop_over_content_is_found_wherever_vllm_looks() {
        for source in [
            "{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}",
            "{% for m in messages[1:] %}{% for p in m['content'] | list %}{% endfor %}{% endfor %}",
            "{% set rest = messages %}{% for m in rest %}{% for p in m.content %}{% endfor %}{% endfor %}",
            "{% for m in messages %}{% set content = m.content %}{% for p in content %}{% endfor %}{% endfor %}",
            "{% macro say(c) %}{% for p in c %}{% endfor %}{% endmacro %}{% for m in messages %}{{ 'x' + say(m.content) }}{% endfor %}",
            "{% macro say(c=1) %}{% for p in c %}{% endfor %}{% endmacro %}{% for m in messages %}{{ say(c=m.content) }}{% endfor %}",
        ] {
            assert!(wants(source), "{source}");
        }
    }

    #[test]
    fn where_vllm_does_not_look_texts_are_joined() {
        for source in [
            "{% for m in messages %}{{ m.content }}{% endfor %}",
            "{% for m in messages %}{% set c = m.get('content') %}{% for p in c %}{% endfor %}{% endfor %}",
            "{% macro say(content) %}{% for p in content %}{% endfor %}{% endmacro %}{% for m in messages %}{{ say(m) }}{% endfor %}",
            "{% set ns = namespace() %}{% set ns.all = messages %}{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}",
        ] {
            assert!(!wants(source), "{source}");
        }
    }
}
