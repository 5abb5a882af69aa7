//! What Python's Jinja reads otherwise in a template's text than the parser here does: a few escapes, numbers and white spaces.

use minijinja::machinery::{Token, WhitespaceConfig, tokenize};

/// Whether the text of a template, with line feeds only, is read the same by both.
pub(in super::super) fn is_proven(source: &str, whitespace: WhitespaceConfig) -> bool {
    // White space to Python alone; a sign that only tags may have; the line break behind `{% raw %}` is kept.
    let is_odd = |c: char| ('\u{1c}'..='\u{1f}').contains(&c);
    if source.contains(is_odd) || source.contains("{{+") || has_raw_block(source) {
        return false;
    }
    // At what cannot be read the tokens do not end: it is the same error for ever.
    tokenize(source, false, Default::default(), whitespace).map_while(Result::ok).all(|(token, span)| {
        let written = source.get(span.start_offset as usize..span.end_offset as usize).unwrap_or_default();
        match token {
            Token::String(_) | Token::Str(_) => has_common_escapes(written),
            Token::Float(number) => number.is_finite() && !written.ends_with('.'),
            _ => true,
        }
    })
}

fn has_raw_block(source: &str) -> bool {
    source.split("{%").skip(1).any(|tag| {
        let tag = tag.trim_start_matches(['-', '+']).trim_start();
        tag.strip_prefix("raw")
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

/// Whether all escapes of a string mean the same to both: not the bell, names of characters, 32 bits, surrogates, `\/`.
fn has_common_escapes(written: &str) -> bool {
    let mut rest = written;
    while let Some(at) = rest.find('\\') {
        let escaped = &rest[at + 1..];
        let code = escaped.get(1..3).unwrap_or_default().to_ascii_lowercase();
        let surrogate = escaped.starts_with('u') && ("d8".."e0").contains(&code.as_str());
        if surrogate || escaped.starts_with(['/', 'a', 'v', 'N', 'U', '\n']) {
            return false;
        }
        let mut letters = escaped.chars();
        letters.next();
        rest = letters.as_str();
    }
    true
}
