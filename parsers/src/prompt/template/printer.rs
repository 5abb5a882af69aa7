//! Writes a parsed template out again: the statements. See [`super::harden`] for why, and [`super::expressions`] for the rest.
//!
//! Every pair of parentheses that an expression might need is written, so that no rule of precedence has to be repeated here. Names
//! that begin with two underscores are ours.

use std::sync::Arc;

use minijinja::machinery::ast::{Expr, Stmt};

use super::expressions::{EACH, KEPT, READ};
use super::idle;
use super::inputs::{self as rounds, Rounds};
use super::quick::Asked;
use super::rounds::LOOP;
use crate::prompt::normalise::Normalisation;

/// `template` as source.
///
/// # Errors
/// What chat templates have no use for.
pub(super) fn print(template: &Stmt<'_>, dialect: Normalisation) -> Result<Hardened, String> {
    let mut printer =
        Printer { out: String::new(), dialect, rounds: Vec::new(), quick: Vec::new(), depth: None };
    printer.statement(template)?;
    let source = std::mem::take(&mut printer.out);
    printer.rounds = rounds::find(template);
    let by_rounds = match printer.rounds.is_empty() {
        true => None,
        false => {
            printer.statement(template)?;
            Some(ByRounds { source: printer.out, inputs: Arc::new(printer.quick) })
        }
    };
    Ok(Hardened { source, by_rounds, unsure: false })
}

/// The source in the making.
pub(super) struct Printer<'a> {
    pub(super) out: String,
    pub(super) dialect: Normalisation,
    /// Loops whose rounds are asked for before they are run.
    pub(super) rounds: Vec<Rounds<'a>>,
    /// The inputs of each of them that is walked through.
    pub(super) quick: Vec<Vec<Asked>>,
    /// In the body of such a loop: how many loops of its own stand around.
    pub(super) depth: Option<usize>,
}

/// A template, written out again.
pub(super) struct Hardened {
    pub(super) source: String,
    /// The same, asking for each round of its loops whether it is known; none if that cannot be known.
    pub(super) by_rounds: Option<ByRounds>,
    /// Something in it is not known to render as in Python: see [`super::proven`].
    pub(super) unsure: bool,
}

/// A template that asks for rounds.
pub(super) struct ByRounds {
    pub(super) source: String,
    /// What the rounds of each of its loops read from outside.
    pub(super) inputs: Arc<Vec<Vec<Asked>>>,
}

/// What printing gives besides text: nothing, or what is refused.
pub(super) type Printed = Result<(), String>;

impl<'a> Printer<'a> {
    pub(super) fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    pub(super) fn statements(&mut self, body: &[Stmt<'_>]) -> Printed {
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
                let known = self.rounds.iter().position(|rounds| rounds.are_of(looping));
                if let Some(at) = known {
                    self.before_rounds(at)?;
                    if self.walk(at, looping)? {
                        return Ok(());
                    }
                }
                self.put("{% for ");
                self.target(&looping.target)?;
                self.put(" in ");
                self.each(&looping.iter)?;
                if let Some(filter) = &looping.filter_expr {
                    self.put(" if ");
                    self.expression(filter)?;
                }
                if looping.recursive {
                    self.put(" recursive");
                }
                self.put(" %}");
                let depth = self.depth;
                self.depth = depth.map(|depth| depth + 1);
                match known {
                    Some(at) => self.round(at, &looping.body)?,
                    None => self.statements(&looping.body)?,
                }
                self.depth = depth;
                if let Some(condition) = idle::goes_on_while(looping) {
                    self.put("{% if not ");
                    self.expression(condition)?;
                    self.put(" %}{% break %}{% endif %}");
                }
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

    /// What a loop walks through.
    pub(super) fn each(&mut self, list: &Expr<'_>) -> Printed {
        match self.dialect {
            Normalisation::Vllm => self.function(EACH, [list]),
            Normalisation::LlamaCpp => self.function(READ, [list]),
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
            // A member of a namespace, whatever its name.
            Expr::GetAttr(get) => {
                self.expression(&get.expr)?;
                self.put(".");
                self.put(get.name);
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
        // Rounds that are not run are not counted by the loop that is.
        self.put(if name == "loop" && self.depth == Some(0) { LOOP } else { name });
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
