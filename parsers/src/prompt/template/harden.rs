//! Rewrites a template so that whatever can grow in it is weighed.
//!
//! Why: templates come from the model's publisher. minijinja's fuel bounds the steps of a render but not what one step makes, and
//! forty steps of `x = x ~ x` make a terabyte. So the parsed template is written out again with its operators, slices, filters,
//! methods and literal text going through the functions of [`super::budget`], which charge for what they make.
//!
//! The rewritten template must render exactly as the original does. It must never contain an operation that copies text of the
//! template's choosing without charging for it.

use std::fmt::Write;

use minijinja::machinery::ast::{BinOpKind, CallArg, CompareOpKind, Expr, Stmt, UnaryOpKind};
use minijinja::machinery::{Token, WhitespaceConfig, parse, tokenize};
use minijinja::value::ValueKind;

/// The longest template that is read, in bytes. The largest in use has about 40 KiB.
const MAX_SOURCE: usize = 1 << 20;
/// The most tokens in one tag. An expression is a tree as deep as its operators are many, and whoever walks it needs that much
/// stack. The longest tag in use has about 80.
const MAX_TAG: usize = 500;
/// The most `elif` tags: each is one level deeper. Templates in use have up to 60.
const MAX_ELIF: usize = 256;

/// Charges for a value that is about to be copied, and gives it back.
pub(super) const HELD: &str = "__held";
/// Checks what is put into a list or a mapping, and gives it back.
pub(super) const NESTED: &str = "__nested";
/// Checks what a namespace is given to keep, and gives it back.
pub(super) const KEPT: &str = "__kept";
/// `a ~ b`
pub(super) const JOINED: &str = "__joined";
/// `a * b`
pub(super) const TIMES: &str = "__times";
/// `a[start:stop:step]`
pub(super) const SLICED: &str = "__sliced";

/// The template `source`, rewritten.
///
/// # Errors
/// The parser's words with the line in `source`, or what chat templates have no use for.
pub(super) fn harden(source: &str) -> Result<String, String> {
    if source.len() > MAX_SOURCE {
        return Err(format!("template has {} bytes; the limit is {MAX_SOURCE}", source.len()));
    }
    let source = without_generation_tags(source);
    // As transformers and llama.cpp read chat templates.
    let whitespace = WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true };
    check_depth(&source, whitespace)?;
    let ast = parse(&source, "chat template", Default::default(), whitespace).map_err(|e| e.to_string())?;
    let mut printer = Printer { out: String::with_capacity(source.len() * 2) };
    printer.statement(&ast)?;
    Ok(printer.out)
}

/// Refuses what would make the syntax tree too deep for those who walk it, which the parser itself does not.
fn check_depth(source: &str, whitespace: WhitespaceConfig) -> Result<(), String> {
    let (mut in_tag, mut elifs) = (0, 0);
    for token in tokenize(source, false, Default::default(), whitespace) {
        let (token, at) = token.map_err(|e| e.to_string())?;
        in_tag = if matches!(token, Token::VariableStart | Token::BlockStart) { 0 } else { in_tag + 1 };
        elifs += usize::from(in_tag == 1 && matches!(token, Token::Ident("elif")));
        if in_tag > MAX_TAG || elifs > MAX_ELIF {
            return Err(format!(
                "template has a tag of more than {MAX_TAG} tokens or more than {MAX_ELIF} elif tags in line {}",
                at.start_line
            ));
        }
    }
    Ok(())
}

/// `{% generation %}` marks what a trainer learns from and prints nothing; minijinja does not know it. It becomes `{% if true %}`.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let Some(close) = rest[open..].find("%}").map(|at| open + at) else { break };
        let inner = &rest[open + 2..close];
        let name = inner.trim_matches(['-', '+']).trim();
        out.push_str(&rest[..open + 2]);
        match name {
            "generation" => out.push_str(&inner.replace(name, " if true ")),
            "endgeneration" => out.push_str(&inner.replace(name, " endif ")),
            _ => out.push_str(inner),
        }
        out.push_str("%}");
        rest = &rest[close + 2..];
    }
    out.push_str(rest);
    out
}

struct Printer {
    out: String,
}

type Printed = Result<(), String>;

impl Printer {
    fn put(&mut self, text: &str) {
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
                self.expression(&looping.iter)?;
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

    fn expression(&mut self, expression: &Expr<'_>) -> Printed {
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
                    self.held(&step.expr)?;
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
            Expr::GetAttr(get) => {
                self.expression(&get.expr)?;
                self.put(".");
                self.put(get.name);
                Ok(())
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
                    own.expression(key)?;
                    own.put(": ");
                    own.nested(value)
                })?;
                self.put("}");
                Ok(())
            }
        }
    }

    fn binary(&mut self, op: BinOpKind, left: &Expr<'_>, right: &Expr<'_>) -> Printed {
        let (sign, weighed) = match op {
            BinOpKind::Concat => return self.function(JOINED, [left, right]),
            BinOpKind::Mul => return self.function(TIMES, [left, right]),
            BinOpKind::Add => (" + ", true),
            BinOpKind::In => (" in ", true),
            BinOpKind::Eq => (" == ", false),
            BinOpKind::Ne => (" != ", false),
            BinOpKind::Lt => (" < ", false),
            BinOpKind::Lte => (" <= ", false),
            BinOpKind::Gt => (" > ", false),
            BinOpKind::Gte => (" >= ", false),
            BinOpKind::ScAnd => (" and ", false),
            BinOpKind::ScOr => (" or ", false),
            BinOpKind::Sub => (" - ", false),
            BinOpKind::Div => (" / ", false),
            BinOpKind::FloorDiv => (" // ", false),
            BinOpKind::Rem => (" % ", false),
            BinOpKind::Pow => (" ** ", false),
        };
        // What is added to a number is a number.
        let weighed = weighed && !is_number(left) && !is_number(right);
        let operand = if weighed { Self::held } else { Self::expression };
        self.put("(");
        operand(self, left)?;
        self.put(sign);
        operand(self, right)?;
        self.put(")");
        Ok(())
    }

    /// `base|filter(…)|filter(…)`; inside a filter block there is no base.
    fn filter_chain(&mut self, expression: &Expr<'_>) -> Printed {
        let Expr::Filter(filter) = expression else { return self.held(expression) };
        if let Some(base) = &filter.expr {
            match base {
                Expr::Filter(_) => self.filter_chain(base)?,
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

    fn call(&mut self, callee: &Expr<'_>, args: &[CallArg<'_>]) -> Printed {
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

    fn arguments(&mut self, args: &[CallArg<'_>]) -> Printed {
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
                own.expression(value)
            }
            CallArg::KwargSplat(value) => {
                own.put("**");
                own.expression(value)
            }
        })?;
        self.put(")");
        Ok(())
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

    fn held(&mut self, expression: &Expr<'_>) -> Printed {
        match expression {
            // Constants are as long as the template, which is bounded; numbers have no size.
            Expr::Const(constant) if constant.value.kind() != ValueKind::String => self.expression(expression),
            _ => self.function(HELD, [expression]),
        }
    }

    fn nested(&mut self, expression: &Expr<'_>) -> Printed {
        match expression {
            Expr::Const(_) => self.expression(expression),
            _ => self.function(NESTED, [expression]),
        }
    }

    fn function<const N: usize>(&mut self, name: &str, args: [&Expr<'_>; N]) -> Printed {
        self.put(name);
        self.put("(");
        self.separated(&args, |own, arg| own.expression(arg))?;
        self.put(")");
        Ok(())
    }

    fn separated<T>(&mut self, items: &[T], mut print: impl FnMut(&mut Self, &T) -> Printed) -> Printed {
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.put(", ");
            }
            print(self, item)?;
        }
        Ok(())
    }

    /// Names of our own functions are not the template's to use or to hide.
    fn name(&mut self, name: &str) -> Printed {
        if name.starts_with("__") {
            return Err(format!("template uses the reserved name {name}"));
        }
        self.put(name);
        Ok(())
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

    fn literal(&mut self, text: &str) {
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

fn is_number(expression: &Expr<'_>) -> bool {
    matches!(expression, Expr::Const(constant) if constant.value.kind() == ValueKind::Number)
}

#[cfg(test)]
mod tests {
    use super::harden;

    #[test]
    fn what_can_grow_is_weighed() {
        assert_eq!(harden("{{ a ~ b }}").unwrap(), "{{ __joined(a, b) }}");
        assert_eq!(harden("{{ a + b }}").unwrap(), "{{ (__held(a) + __held(b)) }}");
        assert_eq!(harden("{{ a + 1 }}").unwrap(), "{{ (a + 1) }}");
        assert_eq!(harden("{{ 'x' * n }}").unwrap(), "{{ __times(\"x\", n) }}");
        assert_eq!(harden("{{ a[1:] }}").unwrap(), "{{ __sliced(a, 1, none, none) }}");
        assert_eq!(harden("{{ a.b.strip('x') }}").unwrap(), "{{ __held(a.b).strip(\"x\") }}");
        assert_eq!(harden("{{ loop.cycle(1) }}").unwrap(), "{{ loop.cycle(1) }}");
        assert_eq!(harden("{{ a | trim | upper }}").unwrap(), "{{ (__held(a)|trim|upper) }}");
        assert_eq!(harden("{{ [a, {'b': c, 'd': 1}] }}").unwrap(), "{{ [__nested(a), __nested({\"b\": __nested(c), \"d\": 1})] }}");
        assert_eq!(harden("{% set ns.a = namespace(b=[]) %}").unwrap(), "{% set ns.a = __kept(namespace(b=__kept([]))) %}");
        assert_eq!(harden("plain {# gone #}text").unwrap(), "{{ \"plain \" }}{{ \"text\" }}");
    }

    #[test]
    fn statements_come_out_as_they_went_in() {
        for source in [
            "{% for (k, v) in (__held(a)|items) %}{{ k }}{% else %}{{ v }}{% endfor %}",
            "{% if (not a) %}{{ a }}{% else %}{% set b = 1 %}{% endif %}",
            "{% macro m(a, b=2) %}{{ a }}{% endmacro %}{{ m(1, b=3) }}",
            "{% set x | trim %}{{ \"a\\\\n\\\"\" }}{% endset %}",
            "{% for (a,) in b %}{% continue %}{% break %}{% endfor %}",
            "{% call(x) m(1) %}{{ x }}{% endcall %}{% with a = [1, 2.0], b = {\"k\": none} %}{% endwith %}",
        ] {
            // The reserved name is the printer's, not the source's.
            assert_eq!(harden(&source.replace("__held(a)", "a")).unwrap(), source);
        }
    }

    #[test]
    fn training_marks_print_nothing() {
        assert_eq!(harden("{%- generation -%} a {%- endgeneration -%}").unwrap(), "{% if true %}{{ \"a\" }}{% endif %}");
    }

    #[test]
    fn what_no_chat_template_needs_is_refused() {
        for source in ["{% include 'x' %}", "{% extends 'x' %}", "{{ __held(1) }}", "{% set __held = 1 %}", "{% for %}"] {
            assert!(harden(source).is_err(), "{source}");
        }
        let error = harden(&"x".repeat(2_000_000)).unwrap_err();
        assert_eq!(error, "template has 2000000 bytes; the limit is 1048576");
    }
}
