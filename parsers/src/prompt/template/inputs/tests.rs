//! What a round is found to read, on small templates.

use minijinja::machinery::parse;

use super::find;

/// How many inputs of the one loop are fixed, and of each round, and how many members are state.
fn inputs(source: &str) -> Option<(usize, usize, usize)> {
    let ast = parse(source, "t", Default::default(), Default::default()).unwrap();
    let found = find(&ast);
    assert!(found.len() < 2, "{source}");
    found.first().map(|rounds| (rounds.fixed.len(), rounds.each.len(), rounds.state.len()))
}

#[test]
fn a_round_depends_on_what_stands_outside_of_it() {
    for (source, expected) in [
        ("{% for m in messages %}{{ m.role }}{% endfor %}", (0, 0, 0)),
        (
            "{% for m in messages %}{% if loop.last or messages[loop.index0 + 1].role != 'x' %}{{ m.role }}{% endif %}{% endfor %}",
            (0, 1, 0),
        ),
        (
            "{% set p = 1 %}{% for m in messages %}{{ m.role + (p if loop.first else '') }}{% endfor %}",
            (0, 1, 0),
        ),
        (
            "{% set n = namespace(a=1) %}{% for m in messages %}{{ loop.index0 > n.a }}{{ n.a }}{% endfor %}",
            (1, 1, 0),
        ),
        (
            "{% set n = namespace(a=1) %}{% for m in messages %}{{ n.a }}{% set n.a = 2 %}{% endfor %}",
            (0, 0, 1),
        ),
        (
            "{% set c = 1 %}{% for m in messages %}{% if m.x %}{% set c = 2 %}{% endif %}{{ c }}{% endfor %}",
            (1, 0, 0),
        ),
        (
            "{% set k = namespace(v=0) %}{% macro s(c) %}{% set k.v = k.v + 1 %}{{ c }}{{ w }}{% endmacro %}{% for m in messages %}{{ s(m.content) }}{% endfor %}",
            (0, 0, 1),
        ),
        (
            "{% for m in messages %}{% set f = namespace(x=0) %}{% for c in m.t %}{% set f.x = loop.index %}{{ c }}{% endfor %}{{ f.x }}{% endfor %}",
            (0, 0, 0),
        ),
    ] {
        assert_eq!(inputs(source), Some(expected), "{source}");
    }
}

#[test]
fn what_is_not_understood_is_not_remembered() {
    for source in [
        "{% for m in messages %}{{ m.role }}{% if m.x %}{% break %}{% endif %}{% endfor %}",
        "{% for m in messages %}{{ loop.changed(m.role) }}{% endfor %}",
        "{% for m in messages %}{{ strftime_now('%Y') }}{{ m }}{% endfor %}",
        "{% set a = namespace(x=1) %}{% set b = a %}{% for m in messages %}{% set b.x = 2 %}{{ a.x }}{% endfor %}",
        "{% set a = namespace(x=1) %}{% macro f(n) %}{% set n.x = 2 %}{% endmacro %}{% for m in messages %}{{ f(a) }}{{ a.x }}{% endfor %}",
        "{% set p = 1 %}{% macro f() %}{{ p }}{% endmacro %}{% set p = 2 %}{% for m in messages %}{{ f() }}{% endfor %}",
        "{% macro f() %}{{ strftime_now('%Y') }}{% endmacro %}{% for m in messages %}{{ f() }}{% endfor %}",
        "{% macro f() %}x{% endmacro %}{% for m in messages %}{% set g = f %}{{ g() }}{% endfor %}",
        "{% for m in messages %}{{ unheard_of(m) }}{% endfor %}",
        "{% for k, v in messages %}{{ v }}{% endfor %}",
    ] {
        assert_eq!(inputs(source), None, "{source}");
    }
}
