//! A tool's name as the tag, its parameters as the tags in it: `<bash><command>ls</command></bash>`, as models write that were
//! shown XML but no notation for calls.
//!
//! Only in a wrapper, and only declared names: any other XML is what the user asked for. A value ends where the next parameter or
//! the end of the call follows its tag, so it may hold tags itself.

use super::grammar::{Context, Step, blanks, may_become, name_length, starts_with_any};
use super::values::Values;
use super::xml_block::strip_newlines;

/// Reads the call whose tag stands at `at`, and the wrapper's closer.
pub(crate) fn call(text: &str, at: usize, closers: &[&str], ctx: Context<'_>) -> Step {
    let (name, mut end) = match tag(&text[at..]) {
        Ok(name) if ctx.tools.resolve(name).is_some() => (name, at + name.len() + 2),
        Err(true) => return Step::More,
        _ => return Step::Not(at),
    };
    let closer = format!("</{name}>");
    let mut values = Values::new(name, ctx.tools);
    loop {
        end += blanks(&text[end..]);
        let rest = &text[end..];
        if let Some(behind) = rest.strip_prefix(closer.as_str()) {
            let behind = behind.trim_start();
            let from = text.len() - behind.len();
            return match starts_with_any(behind, closers) {
                Ok(last) => Step::Calls(vec![values.call()], from + last.len()),
                Err(true) if !ctx.end.is_end() => Step::More,
                Err(true) => Step::Calls(vec![values.call()], text.len()),
                Err(false) => Step::Broken(Vec::new(), at),
            };
        }
        let key = match tag(rest) {
            Ok(key) if values.has_parameter(key) && !values.has(key) => key,
            Err(true) => return Step::More,
            _ if may_become(rest, &closer) => return Step::More,
            Ok(_) | Err(_) => return Step::Broken(Vec::new(), at),
        };
        let value = &rest[key.len() + 2..];
        let Some((length, used)) = extent(value, key, &closer, &values, ctx) else { return Step::More };
        values.push(key, strip_newlines(&value[..length]));
        end += key.len() + 2 + used;
    }
}

/// The name in the tag `<NAME>` at the start; `Err(true)` while that is open.
fn tag(text: &str) -> Result<&str, bool> {
    let Some(rest) = text.strip_prefix('<').filter(|rest| !rest.starts_with('/')) else {
        return Err(text.is_empty());
    };
    let name = &rest[..name_length(rest)];
    match rest[name.len()..].chars().next() {
        Some('>') if !name.is_empty() => Ok(name),
        Some(_) => Err(false),
        None => Err(true),
    }
}

/// The bytes of a value, and those up to the end of its closing tag; none while that is open.
fn extent(
    value: &str,
    key: &str,
    closer: &str,
    values: &Values<'_>,
    ctx: Context<'_>,
) -> Option<(usize, usize)> {
    let own = format!("</{key}>");
    for (at, _) in value.match_indices(&own) {
        let behind = value[at + own.len()..].trim_start();
        let goes_on = match tag(behind) {
            Ok(next) => next != key && values.has_parameter(next) && !values.has(next),
            Err(true) if !ctx.end.is_end() => return None,
            Err(_) if may_become(behind, closer) && !ctx.end.is_end() => return None,
            Err(_) => behind.starts_with(closer),
        };
        if goes_on {
            return Some((at, at + own.len()));
        }
    }
    None
}
