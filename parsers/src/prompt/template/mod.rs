//! Chat templates: compiled once, rendered per request, as the engine that serves the model renders them.
//!
//! Templates come from the model's publisher and are untrusted. A render has fuel for its steps and a budget for what it makes, both
//! in proportion to the request; a template can neither hang a thread nor fill the memory, and reaches nothing but its context.

mod budget;
mod builtins;
mod by_rounds;
mod expressions;
mod harden;
mod idle;
mod inputs;
mod operators;
mod parts;
mod printable;
mod printer;
mod proven;
mod quick;
mod roles;
mod rounds;
mod shapes;
mod strings;
mod text;
mod walk;
mod weighed;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ahash::AHashMap;
use minijinja::value::{Object, ObjectRepr};
use minijinja::{Environment, ErrorKind, Value};

use self::budget::Budget;
use self::quick::Asked;
pub(super) use self::rounds::{Record, Round};
use crate::prompt::normalise::{Normalisation, llama_cpp};
use crate::prompt::turns::{Key, Memory};

/// Steps that any render may take.
const BASE_FUEL: u64 = 1_000_000;
/// Steps that a render of one of our own small conversations may take.
const SMALL_FUEL: u64 = 100_000;
/// Further steps per byte of the request. A message of 40 bytes takes about 200 steps.
const FUEL_PER_BYTE: u64 = 8;
/// The name under which the only template is kept.
const NAME: &str = "chat";
/// The same, written out by rounds.
const BY_ROUNDS: &str = "chat by rounds";

/// A chat template in one engine's dialect.
pub(super) struct Template {
    env: Environment<'static>,
    source: String,
    wants_lists: bool,
    unsure: bool,
    /// What the rounds of its loops read from outside; none if it cannot be rendered by rounds.
    rounds: Option<Arc<Vec<Vec<Asked>>>>,
    /// It has spent all that a small conversation may take: nobody need try it any further.
    is_greedy: AtomicBool,
}

/// What a render gave.
#[derive(Debug)]
pub(super) struct Rendered {
    /// The prompt.
    pub(super) text: String,
    /// Whether the template asked for today's date. This crate knows no clock: some day stands in the text.
    pub(super) dated: bool,
}

/// Why a render gave nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RenderError {
    /// The template refused the request in its own words, as it would in the engine.
    Raised(String),
    /// The template failed.
    Failed(String),
    /// It went beyond its bounds.
    Exhausted(String),
}

impl Template {
    /// Compiles `source`.
    ///
    /// # Errors
    /// What the template's author got wrong, with the line, or what chat templates have no use for.
    pub(super) fn compile(source: &str, dialect: Normalisation) -> Result<Self, String> {
        let (hardened, wants_lists) = harden::harden(source, dialect)?;
        let mut env = builtins::environment(dialect);
        env.add_template_owned(NAME, hardened.source).map_err(|e| e.to_string())?;
        let by_rounds = hardened.by_rounds.map(|by_rounds| {
            env.add_template_owned(BY_ROUNDS, by_rounds.source).is_ok().then_some(by_rounds.inputs)
        });
        Ok(Self {
            rounds: by_rounds.flatten(),
            env,
            source: source.to_owned(),
            wants_lists,
            is_greedy: AtomicBool::new(false),
            unsure: match dialect {
                Normalisation::Vllm => hardened.unsure,
                Normalisation::LlamaCpp => llama_cpp::has_handler(source),
            },
        })
    }

    /// Whether vLLM gives this template contents as lists of parts.
    pub(super) fn wants_lists(&self) -> bool {
        self.wants_lists
    }

    /// The template as it was given.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// Whether the engine may render it otherwise than it is rendered here.
    pub(super) fn is_unsure(&self) -> bool {
        self.unsure
    }

    /// A record of a render by rounds; none if it cannot be rendered so.
    pub(super) fn record(&self, memory: &Arc<Memory>, context: Key) -> Option<Arc<Record>> {
        Some(Record::new(memory.clone(), context, self.rounds.clone()?))
    }

    /// Whether it can be rendered by rounds.
    pub(super) fn has_rounds(&self) -> bool {
        self.rounds.is_some() && !self.is_greedy.load(Ordering::Relaxed)
    }

    /// Renders as a whole from now on.
    pub(super) fn forget_rounds(&mut self) {
        self.rounds = None;
    }

    /// Renders `context`, which was made from a request of `size` bytes.
    pub(super) fn render(&self, context: Value, size: usize) -> Result<Rendered, RenderError> {
        self.render_as(NAME, context, fuel(size))
    }

    /// Renders `context`, one of our own, which is small: whoever tries out a template does so many times.
    pub(super) fn render_small(&self, context: Value) -> Result<Rendered, RenderError> {
        if self.is_greedy.load(Ordering::Relaxed) {
            return Err(RenderError::Exhausted(
                "the template takes too much for a small conversation".into(),
            ));
        }
        let rendered = self.render_as(NAME, context, SMALL_FUEL);
        let is_greedy = matches!(rendered, Err(RenderError::Exhausted(_)));
        self.is_greedy.fetch_or(is_greedy, Ordering::Relaxed);
        rendered
    }

    /// Renders what stands around the rounds of the template's loops, and of these only what the context's [`Record`] does not know.
    pub(super) fn render_rounds(&self, context: Value, size: usize) -> Result<Rendered, RenderError> {
        self.render_as(BY_ROUNDS, context, fuel(size))
    }

    fn render_as(&self, name: &str, context: Value, fuel: u64) -> Result<Rendered, RenderError> {
        let context = Value::from_object(Variables::of(&context));
        let mut env = self.env.clone();
        env.set_fuel(Some(fuel));
        let template = env.get_template(name).map_err(|e| RenderError::Failed(e.to_string()))?;
        // The engine has panicked on a slice before; a template that makes it panic again is not to take the thread with it.
        let rendered = catch_unwind(AssertUnwindSafe(|| {
            let captured = template.render_captured(context)?;
            let dated = Budget::of(captured.state()).is_dated();
            Ok(Rendered { dated, text: captured.into_output() })
        }));
        match rendered {
            Ok(rendered) => rendered.map_err(|error| explain(&error)),
            Err(_) => Err(RenderError::Failed("the template engine failed on this template".into())),
        }
    }
}

/// The steps that a render of a request of `size` bytes may take.
fn fuel(size: usize) -> u64 {
    (size as u64).saturating_mul(FUEL_PER_BYTE).saturating_add(BASE_FUEL)
}

/// A template's variables. Every name that a template says is looked for here first, so it must be quick.
#[derive(Debug)]
struct Variables(AHashMap<String, Value>);

impl Variables {
    fn of(context: &Value) -> Self {
        let names = context.try_iter().into_iter().flatten();
        Self(
            names
                .filter_map(|name| Some((name.as_str()?.to_owned(), context.get_item(&name).ok()?)))
                .collect(),
        )
    }
}

impl Object for Variables {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.0.get(key).cloned()
    }
}

fn explain(error: &minijinja::Error) -> RenderError {
    let mut cause = Some(error as &dyn std::error::Error);
    while let Some(error) = cause.and_then(|e| e.downcast_ref::<minijinja::Error>()) {
        let detail = error.detail().unwrap_or_default();
        if let Some(message) = detail.strip_prefix(builtins::RAISED) {
            return RenderError::Raised(message.to_owned());
        }
        if error.kind() == ErrorKind::OutOfFuel {
            let reason = if detail.is_empty() { "the template takes too many steps" } else { detail };
            return RenderError::Exhausted(reason.to_owned());
        }
        cause = std::error::Error::source(error);
    }
    // Without the line: it would be one of the rewritten template.
    let reason =
        error.detail().map_or_else(|| error.kind().to_string(), |d| format!("{}: {d}", error.kind()));
    RenderError::Failed(reason)
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::{RenderError, Template};
    use crate::prompt::normalise::Normalisation;

    fn render(source: &str) -> Result<String, RenderError> {
        let template = Template::compile(source, Normalisation::Vllm).expect("compiles");
        template.render(context! { text => "hello", list => vec![1, 2, 3] }, 100).map(|r| r.text)
    }

    #[test]
    fn white_space_is_trimmed_as_transformers_does() {
        let source = "a\n  {% if true %}\n  b\n  {% endif %}\nc {{- ' d' }}\n";
        assert_eq!(render(source).unwrap(), "a\n  b\nc d");
    }

    #[test]
    fn a_rewritten_template_renders_like_the_original() {
        let source = "{% set ns = namespace(n=0, t='') %}{% for i in list[::-1] %}{% set ns.n = ns.n + i %}\
                      {% set ns.t = ns.t ~ i ~ ',' %}{% if loop.last %}!{% endif %}{% endfor %}{{ ns.t + text.upper() }} {{ ns.n * 2 }} \
                      {%- macro m(a, b='y') %}[{{ a }}{{ b }}]{% endmacro %}{{ m('x') }}{{ m('x', b='z') }}\
                      {% for k, v in {'p': 1, 'q': none}.items() %}{{ k }}={{ v }};{% endfor %}{{ 'el' in text and 1 not in [2] }}";
        assert_eq!(render(source).unwrap(), "!3,2,1,HELLO 12[xy][xz]p=1;q=None;True");
    }

    #[test]
    fn a_templates_refusal_is_told_from_its_failure() {
        let refusal = render("{{ raise_exception('roles must alternate') }}").unwrap_err();
        assert_eq!(refusal, RenderError::Raised("roles must alternate".into()));
        assert!(matches!(render("{{ text.nothing() }}").unwrap_err(), RenderError::Failed(_)));
        let within = render("{% macro m() %}{{ raise_exception('x') }}{% endmacro %}{{ m() }}").unwrap_err();
        assert_eq!(within, RenderError::Raised("x".into()));
    }

    #[test]
    fn a_hostile_template_neither_hangs_nor_grows() {
        for source in [
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "{% set ns = namespace(x='x') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "{% set ns = namespace(x='x') %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
            "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
            "{% set ns = namespace(x=['a']) %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
            "{% set ns = namespace(x='x') %}{% for i in range(64) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
            "{% set ns = namespace(x='x') %}{% for i in range(64) %}{% set ns.x = ns.x.replace('x', 'xx') %}{% endfor %}",
            "{% set ns = namespace(x=['x']) %}{% for i in range(64) %}{% set ns.x = [(ns.x + ns.x) | join(',')] %}{% endfor %}",
            "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}",
            "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = {'a': ns.x} %}{% endfor %}",
            "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = dict(a=ns.x) %}{% endfor %}",
            "{% set ns = namespace() %}{% set ns.me = ns %}",
            "{% set ns = namespace() %}{% set ns.me = [ns] %}",
            "{% set ns = namespace() %}{% set ns.me = ns.items() %}",
            "{% set ns = namespace() %}{% set ns.me = ns | items %}",
            "{% macro m() %}{{ ns }}{% endmacro %}{% set ns = namespace() %}{% set ns.me = m %}",
            "{{ 'a' * 9999999999 }}",
            "{{ ([1] * 9999999999) | length }}",
            "{{ 5 in ([1] * 9999999999) }}",
            "{{ [1] * 9999999999 | tojson }}",
            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
            "{% macro m(x) %}{{ m(x ~ x) }}{% endmacro %}{{ m('x') }}",
            "{% for i in range(99999) %}{{ text * 1000 }}{% endfor %}",
            "{% set ns = namespace(x=('a' * 999999)) %}{% for i in range(99999) %}{% set y = ns.x[1:] %}{% endfor %}",
            "{{ ('a' * 999999).replace('a', 'b' * 999999) }}",
            "{{ 'a' | indent(9999999999) }}",
            "{{ {'a': [[[1]]]} | tojson(indent=9999999999) }}",
            "{{ '%999999999d' | format(1) }}",
            "{{ 2 ** 99999 }}",
            "{% set x = 'x' * 90000 %}{% set y = 'x' * 90000 %}{% for i in range(9999) %}{{ x == y }}{% endfor %}",
            "{% set x = 'x' * 90000 %}{% set y = 'x' * 90000 %}{% for i in range(9999) %}{{ x < y }}{% endfor %}",
            "{% set x = 'x' * 90000 %}{% set y = 'x' * 90000 %}{% for i in range(9999) %}{{ x is eq(y) }}{% endfor %}",
            "{% set x = 'x' * 90000 %}{% set y = 'x' * 90000 %}{% for i in range(9999) %}{{ x in [y, y] }}{% endfor %}",
            "{% set x = 'x' * 90000 %}{% for i in range(9999) %}{% set y = {x: 1} %}{% endfor %}",
            "{% set x = 'x' * 90000 %}{% for i in range(9999) %}{{ {'a': 1}[x] }}{{ {'a': 1}.get(x) }}{% endfor %}",
            "{% set x = 'x' * 90000 %}{% for i in range(9999) %}{{ x[-1] }}{% endfor %}",
            "{% set x = 'x' * 90000 %}{% for i in range(9999) %}{% for c in x %}{% break %}{% endfor %}{% endfor %}",
            "{% set x = 'x' * 90000 %}{% for i in range(9999) %}{{ x is upper }}{% endfor %}",
            "{% set x = ['x' * 90000] * 9000 %}{{ raise_exception(x) }}",
            "{% set x = ['x' * 90000] * 9000 %}{{ x | safe | length }}{{ x | title | length }}",
            "{% set x = 'x' * 90000 %}{% for i in range(9999) %}{% set y = x.title() %}{% endfor %}",
            "{% set x = ['x' * 90000] * 9000 %}{{ x | unique | length }}",
            "{% set x = ['x' * 90000] * 9000 %}{{ x | sort | length }}",
            "{% set x = ['x' * 90000] * 9000 %}{{ x | max }}",
            "{% set x = ['x' * 90000] * 9000 %}{{ x | replace('x', 'y') | length }}",
            "{% set x = ['x' * 90000] * 9000 %}{{ x | map('trim') | list | length }}",
            "{% set x = ['x' * 90000] * 9000 %}{{ x | map('length') | sum }}",
            "{% set x = ['x' * 90000] * 9000 %}{{ x | select('equalto', 'x' * 90000) | list | length }}",
            "{% set x = ['x' * 90000] * 9000 %}{% set y = ['x' * 90000] * 9000 %}{{ x == y }}",
            "{% set x = range(99999) %}{% for i in range(9999) %}{{ x | unique | first }}{{ -1 in x }}{{ x[9] }}{% endfor %}",
        ] {
            let failed = render(source);
            assert!(
                matches!(failed, Err(RenderError::Failed(_) | RenderError::Exhausted(_))),
                "{source}: {failed:?}"
            );
        }
    }

    #[test]
    fn a_template_that_asks_for_the_date_is_marked() {
        let template = Template::compile("{{ strftime_now('%Y') }}", Normalisation::Vllm).unwrap();
        assert!(template.render(context! {}, 0).unwrap().dated);
        let template = Template::compile("{{ 1 }}", Normalisation::Vllm).unwrap();
        assert!(!template.render(context! {}, 0).unwrap().dated);
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_overflow() {
        let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(5000), close.repeat(5000));
        for source in [
            format!("{{{{ {} }}}}", deep("(", ")")),
            format!("{{{{ {} }}}}", deep("[", "]")),
            format!("{{{{ {} }}}}", deep("not ", "")),
            format!("{{{{ 1{} }}}}", "+1".repeat(5000)),
            format!("{{{{ a{} }}}}", ".b".repeat(5000)),
            format!("{{{{ a{} }}}}", "|trim".repeat(5000)),
            deep("{% if 1 %}", "{% endif %}"),
            deep("{% if 0 %}{% elif 1 %}", "{% endif %}"),
            format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(5000)),
            deep("{% for i in [1] %}", "{% endfor %}"),
            "{% if 1 %}".repeat(5000),
        ] {
            // On a thread with the stack that a runtime's blocking threads have.
            let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
                let _ = Template::compile(&source, Normalisation::Vllm).map(|t| t.render(context! {}, 0));
            });
            thread.unwrap().join().expect("no overflow");
        }
    }
}
