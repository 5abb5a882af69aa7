//! Writes a parsed template out again: the statements. See [`super::harden`] for why, and [`super::expressions`] for the rest.
//!
//! Every pair of parentheses that an expression might need is written, so that no rule of precedence has to be repeated here. Names
//! that begin with two underscores are ours.

use minijinja::machinery::ast::{Expr, Stmt};

use super::expressions::{EACH, KEPT};
use crate::prompt::normalise::Normalisation;

/// `template` as source.
///
/// # Errors
/// What chat templates have no use for.
pub(super) fn print(template: &Stmt<'_>, dialect: Normalisation) -> Result<Hardened, String> {
    let mut printer = Printer { out: String::new(), dialect, unsure: false };
    printer.statement(template)?;
    Ok(Hardened { source: printer.out, unsure: printer.unsure })
}

/// The source in the making.
pub(super) struct Printer {
    pub(super) out: String,
    pub(super) dialect: Normalisation,
    /// See [`Hardened::unsure`].
    pub(super) unsure: bool,
}

/// A template, written out again.
pub(super) struct Hardened {
    pub(super) source: String,
    /// Python would do what is not done here: it escapes what is added to a `safe` text, and `x.items` without a call is a method to it,
    /// whatever members `x` has.
    pub(super) unsure: bool,
}

/// What printing gives besides text: nothing, or what is refused.
pub(super) type Printed = Result<(), String>;

impl Printer {
    pub(super) fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn statements(&mut self, body: &[Stmt<'_>]) -> Printed {
        body.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Stmt<'_>) -> Printed {
        match statement {
            Stmt::Template(template) => self.statements(&template.children),
            Stmt::EmitExpr(emit) => {
                self.put("{{ ");
                self.expression(&emit.expr)?;
                self.put(" }}");
                Ok(())
            }
            // As an expression, literal text passes the formatter and is charged there, also inside a capture.
            Stmt::EmitRaw(raw) => {
                self.put("{{ ");
                self.literal(raw.raw);
                self.put(" }}");
                Ok(())
            }
            Stmt::ForLoop(looping) => {
                self.put("{% for ");
                self.target(&looping.target)?;
                self.put(" in ");
                match self.dialect {
                    Normalisation::Vllm => self.function(EACH, [&looping.iter])?,
                    Normalisation::LlamaCpp => self.expression(&looping.iter)?,
                }
                if let Some(filter) = &looping.filter_expr {
                    self.put(" if ");
                    self.expression(filter)?;
                }
                if looping.recursive {
                    self.put(" recursive");
                }
                self.put(" %}");
                self.statements(&looping.body)?;
                if !looping.else_body.is_empty() {
                    self.put("{% else %}");
                    self.statements(&looping.else_body)?;
                }
                self.put("{% endfor %}");
                Ok(())
            }
            Stmt::IfCond(cond) => {
                self.put("{% if ");
                self.expression(&cond.expr)?;
                self.put(" %}");
                self.statements(&cond.true_body)?;
                if !cond.false_body.is_empty() {
                    self.put("{% else %}");
                    self.statements(&cond.false_body)?;
                }
                self.put("{% endif %}");
                Ok(())
            }
            Stmt::WithBlock(with) => {
                self.put("{% with ");
                self.separated(&with.assignments, |own, (target, value)| {
                    own.target(target)?;
                    own.put(" = ");
                    own.expression(value)
                })?;
                self.put(" %}");
                self.statements(&with.body)?;
                self.put("{% endwith %}");
                Ok(())
            }
            Stmt::Set(set) => {
                self.put("{% set ");
                self.target(&set.target)?;
                self.put(" = ");
                match &set.target {
                    Expr::Var(_) | Expr::List(_) => self.expression(&set.expr)?,
                    _ => self.function(KEPT, [&set.expr])?,
                }
                self.put(" %}");
                Ok(())
            }
            Stmt::SetBlock(set) => {
                self.put("{% set ");
                self.target(&set.target)?;
                if let Some(filter) = &set.filter {
                    self.put(" | ");
                    self.filter_chain(filter)?;
                }
                self.put(" %}");
                self.statements(&set.body)?;
                self.put("{% endset %}");
                Ok(())
            }
            Stmt::FilterBlock(block) => {
                self.put("{% filter ");
                self.filter_chain(&block.filter)?;
                self.put(" %}");
                self.statements(&block.body)?;
                self.put("{% endfilter %}");
                Ok(())
            }
            Stmt::Macro(declared) => {
                self.put("{% macro ");
                self.name(declared.name)?;
                self.parameters(&declared.args, &declared.defaults)?;
                self.put(" %}");
                self.statements(&declared.body)?;
                self.put("{% endmacro %}");
                Ok(())
            }
            Stmt::CallBlock(block) => {
                self.put("{% call");
                self.parameters(&block.macro_decl.args, &block.macro_decl.defaults)?;
                self.put(" ");
                self.expression(&block.call.expr)?;
                self.arguments(&block.call.args)?;
                self.put(" %}");
                self.statements(&block.macro_decl.body)?;
                self.put("{% endcall %}");
                Ok(())
            }
            Stmt::Do(action) => {
                self.put("{% do ");
                self.call(&action.call.expr, &action.call.args)?;
                self.put(" %}");
                Ok(())
            }
            Stmt::Continue(_) => {
                self.put("{% continue %}");
                Ok(())
            }
            Stmt::Break(_) => {
                self.put("{% break %}");
                Ok(())
            }
            _ => Err("template uses blocks, imports or escaping, which chat templates do not".into()),
        }
    }

    /// A macro's parameters; the defaults belong to the last ones.
    fn parameters(&mut self, names: &[Expr<'_>], defaults: &[Expr<'_>]) -> Printed {
        self.put("(");
        let plain = names.len().saturating_sub(defaults.len());
        let numbered: Vec<_> = names.iter().enumerate().collect();
        self.separated(&numbered, |own, (at, name)| {
            own.expression(name)?;
            match at.checked_sub(plain).and_then(|at| defaults.get(at)) {
                None => Ok(()),
                Some(default) => {
                    own.put("=");
                    own.expression(default)
                }
            }
        })?;
        self.put(")");
        Ok(())
    }

    /// What stands left of `=` or behind `for`.
    fn target(&mut self, target: &Expr<'_>) -> Printed {
        match target {
            Expr::List(list) => {
                self.put("(");
                self.separated(&list.items, Self::target)?;
                // One name in parentheses is a name; with the comma it is a list of one.
                self.put(if list.items.len() == 1 { ",)" } else { ")" });
                Ok(())
            }
            other => self.expression(other),
        }
    }

    pub(super) fn separated<T>(
        &mut self,
        items: &[T],
        mut print: impl FnMut(&mut Self, &T) -> Printed,
    ) -> Printed {
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.put(", ");
            }
            print(self, item)?;
        }
        Ok(())
    }

    /// Names of our own functions are not the template's to use or to hide.
    pub(super) fn name(&mut self, name: &str) -> Printed {
        if name.starts_with("__") {
            return Err(format!("template uses the reserved name {name}"));
        }
        self.put(name);
        Ok(())
    }

    pub(super) fn literal(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.put("\\\""),
                '\\' => self.put("\\\\"),
                '\n' => self.put("\\n"),
                '\r' => self.put("\\r"),
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}
