//! Rewrites a template so that whatever can grow in it is weighed.
//!
//! Why: templates come from the model's publisher. minijinja's fuel bounds the steps of a render but not what one step makes, and
//! forty steps of `x = x ~ x` make a terabyte. So the parsed template is written out again with its operators, slices, filters,
//! methods and literal text going through the functions of [`super::budget`], which charge for what they make, and for what they look
//! at: a comparison of two long texts is one step, too.
//!
//! The rewritten template must render exactly as the original does. It must never contain an operation that copies text of the
//! template's choosing without charging for it.

use minijinja::machinery::{Token, WhitespaceConfig, parse, tokenize};

use super::parts;
use super::printer::{self, Hardened};
use super::proven;
use crate::prompt::normalise::Normalisation;

/// The longest template that is read, in bytes. The largest in use has about 40 KiB.
const MAX_SOURCE: usize = 1 << 20;
/// The most tokens in one tag. An expression is a tree as deep as its operators are many, and whoever walks it needs that much
/// stack. The longest tag in use has about 80.
const MAX_TAG: usize = 500;
/// The most `elif` tags: each is one level deeper. Templates in use have up to 60.
const MAX_ELIF: usize = 256;

/// The template `source`, rewritten, and whether vLLM takes it for one that wants contents as lists.
///
/// # Errors
/// The parser's words with the line in `source`, or what chat templates have no use for.
pub(super) fn harden(source: &str, dialect: Normalisation) -> Result<(Hardened, bool), String> {
    if source.len() > MAX_SOURCE {
        return Err(format!("template has {} bytes; the limit is {MAX_SOURCE}", source.len()));
    }
    // As transformers and llama.cpp read chat templates; both take all line ends for line feeds first.
    let whitespace =
        WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true };
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let source = without_generation_tags(&source, whitespace);
    check_depth(&source, whitespace)?;
    let ast = parse(&source, "chat template", Default::default(), whitespace).map_err(|e| e.to_string())?;
    let mut hardened = printer::print(&ast, dialect)?;
    hardened.unsure = !proven::is_source_proven(&source, whitespace) || !proven::is_proven(&ast, &source);
    Ok((hardened, parts::wants_lists(&ast)))
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

/// `{% generation %}` marks what a trainer learns from, prints nothing, and keeps what is set in it to itself; minijinja does not know it. It
/// becomes `{% with %}`.
fn without_generation_tags(source: &str, whitespace: WhitespaceConfig) -> String {
    let mut out = String::with_capacity(source.len());
    let (mut at, mut opens) = (0, false);
    // What cannot be read is the parser's to say; the tokens do not end there.
    for (token, span) in tokenize(source, false, Default::default(), whitespace).map_while(Result::ok) {
        let replacement = match token {
            Token::Ident("generation") if opens => "with",
            Token::Ident("endgeneration") if opens => "endwith",
            _ => "",
        };
        opens = matches!(token, Token::BlockStart);
        if let Some(before) = source.get(at..span.start_offset as usize).filter(|_| !replacement.is_empty()) {
            out.push_str(before);
            out.push_str(replacement);
            at = span.end_offset as usize;
        }
    }
    out.push_str(source.get(at..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::Normalisation;

    fn harden(source: &str) -> Result<String, String> {
        super::harden(source, Normalisation::LlamaCpp).map(|(hardened, _)| hardened.source)
    }

    #[test]
    fn what_can_grow_is_weighed() {
        assert_eq!(harden("{{ a ~ b }}").unwrap(), "{{ __joined(a, b) }}");
        assert_eq!(harden("{{ a + b }}").unwrap(), "{{ (__held(a) + __held(b)) }}");
        assert_eq!(harden("{{ a + 1 }}").unwrap(), "{{ (a + 1) }}");
        assert_eq!(harden("{{ 'x' * n }}").unwrap(), "{{ __times(\"x\", n) }}");
        assert_eq!(harden("{{ a[1:] }}").unwrap(), "{{ __sliced(a, 1, none, none) }}");
        assert_eq!(harden("{{ a.b.strip('x') }}").unwrap(), "{{ __held(a.b).strip(\"x\") }}");
        assert_eq!(harden("{{ a | length }}").unwrap(), "{{ (a|length) }}");
        assert_eq!(harden("{{ a | first }}").unwrap(), "{{ (__read(a)|first) }}");
        assert_eq!(harden("{{ loop.cycle(1) }}").unwrap(), "{{ loop.cycle(1) }}");
        assert_eq!(harden("{{ a | trim | upper }}").unwrap(), "{{ (__held(a)|trim|upper) }}");
        assert_eq!(
            harden("{{ [a, {'b': c, 'd': 1}] }}").unwrap(),
            "{{ [__nested(a), __nested({\"b\": __nested(c), \"d\": 1})] }}"
        );
        assert_eq!(
            harden("{% set ns.a = namespace(b=[]) %}").unwrap(),
            "{% set ns.a = __kept(namespace(b=__kept([]))) %}"
        );
        assert_eq!(harden("plain {# gone #}text").unwrap(), "{{ \"plain \" }}{{ \"text\" }}");
    }

    #[test]
    fn statements_come_out_as_they_went_in() {
        for source in [
            "{% for (k, v) in __read((__held(a)|items)) %}{{ k }}{% else %}{{ v }}{% endfor %}",
            "{% if (not a) %}{{ a }}{% else %}{% set b = 1 %}{% endif %}",
            "{% macro m(a, b=2) %}{{ a }}{% endmacro %}{{ m(1, b=3) }}",
            "{% set x | trim %}{{ \"a\\\\n\\\"\" }}{% endset %}",
            "{% for (a,) in __read(b) %}{% continue %}{% break %}{% endfor %}",
            "{% call(x) m(1) %}{{ x }}{% endcall %}{% with a = [1, 2.0], b = {\"k\": none} %}{% endwith %}",
        ] {
            // The reserved name is the printer's, not the source's.
            let plain = source
                .replace("__held(a)", "a")
                .replace("__read((a|items))", "a|items")
                .replace("__read(b)", "b");
            assert_eq!(harden(&plain).unwrap(), source);
        }
    }

    #[test]
    fn a_template_that_cannot_be_read_is_an_error_and_no_loop() {
        assert!(harden("{{ ? }}").is_err());
        assert!(super::proven::is_source_proven("{{ ? }}", Default::default()));
    }

    #[test]
    fn training_marks_in_texts_are_text() {
        assert_eq!(harden("{{ '{% generation %}' }}").unwrap(), "{{ \"{% generation %}\" }}");
    }

    #[test]
    fn training_marks_print_nothing() {
        assert_eq!(
            harden("{%- generation -%} a {%- endgeneration -%}").unwrap(),
            "{% with  %}{{ \"a\" }}{% endwith %}"
        );
    }

    #[test]
    fn what_no_chat_template_needs_is_refused() {
        for source in
            ["{% include 'x' %}", "{% extends 'x' %}", "{{ __held(1) }}", "{% set __held = 1 %}", "{% for %}"]
        {
            assert!(harden(source).is_err(), "{source}");
        }
        let error = harden(&"x".repeat(2_000_000)).unwrap_err();
        assert_eq!(error, "template has 2000000 bytes; the limit is 1048576");
    }
}
