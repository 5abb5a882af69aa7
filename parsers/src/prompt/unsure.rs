//! What in a request makes an exact count a guess, whatever the template.
//!
//! Integers beyond 64 bits in tools and calls: Python prints all their digits, llama.cpp a double, and the tree that is
//! rendered here has neither. Numbers in arguments that only Python reads. Template variables that stand for the request itself: vLLM refuses them, llama.cpp takes
//! them instead of the messages. Must never look at what a user merely writes: digits in a text are text.

use serde::de::IgnoredAny;

use super::count::TokenCount;
use crate::json::Value;
use crate::message::Message;
use crate::request::ChatRequest;

/// Variables of `chat_template_kwargs` that replace what is counted.
const REPLACED: [&str; 3] = ["messages", "tools", "chat_template"];

/// Tokens by which `-0.0` may differ from `0`.
const NEGATIVE_ZERO: usize = 4;

/// Whether a variable stands for what is counted, or the arguments of a call hold what only Python reads, so that a count says
/// nothing.
pub(super) fn is_unsure(request: &ChatRequest) -> bool {
    replaces(request) || request.messages().any(has_odd_arguments)
}

/// What a prompt has of which `count` is no more than a guess. A template that the request brings may leave everything out, and may print itself for each
/// message.
pub(super) fn bounds(request: &ChatRequest, count: u64) -> TokenCount {
    let rough = super::bounds::bounds(request);
    let brought = request.root().get("chat_template").map_or(0, |template| template.raw().len() as u64);
    let turns = request.messages().count() as u64 + 1;
    let high = rough.high().max(count.saturating_mul(3)).saturating_add(brought.saturating_mul(turns));
    let low = if replaces(request) { 0 } else { rough.low().min(count / 2) };
    TokenCount::Between { low, high }
}

/// Whether a variable, or a member of the request itself, stands for what is counted: the messages, the template.
pub(super) fn replaces(request: &ChatRequest) -> bool {
    let root = request.root();
    let is_set = |value: Option<Value<'_>>| value.is_some_and(|value| !value.is_null());
    let variables = root.get("chat_template_kwargs");
    ["chat_template", "documents"].iter().any(|name| is_set(root.get(name)))
        || variables.is_some_and(|variables| REPLACED.iter().any(|name| variables.get(name).is_some()))
}

/// Whether the arguments of a call hold what only Python reads.
pub(super) fn has_odd_arguments(message: Message<'_>) -> bool {
    message
        .tool_calls()
        .any(|call| call.at("/function/arguments").and_then(Value::as_str).is_some_and(|text| is_odd(&text)))
}

/// Numbers that JSON has not, or a double cannot hold: Python reads them as NaN and infinity, all others refuse the text.
fn is_odd(arguments: &str) -> bool {
    match serde_json::from_str::<IgnoredAny>(arguments) {
        Ok(_) => serde_json::from_str::<serde_json::Value>(arguments).is_err(),
        Err(_) => ["NaN", "Infinity"].iter().any(|word| arguments.contains(word)),
    }
}

/// Tokens that integers beyond 64 bits leave open, to either side; 0: there are none.
pub(super) fn wide_integers(request: &ChatRequest) -> usize {
    let in_tools: usize = request.tools().map(|tool| wide_digits(tool.raw())).sum();
    in_tools + request.messages().map(wide_in_calls).sum::<usize>()
}

/// The same of the calls of one message.
pub(super) fn wide_in_calls(message: Message<'_>) -> usize {
    message.tool_calls().map(|call| wide_digits(call.raw())).sum()
}

/// The digits of runs that are no part of a fraction and fit neither 64 bits with a sign nor without.
pub(super) fn wide_digits(raw: &str) -> usize {
    let bytes = raw.as_bytes();
    let (mut at, mut digits) = (0, 0);
    while let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit).map(|found| at + found) {
        let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        at = start + length;
        // Behind a point, or in front of a point or an exponent, they belong to a double.
        let fraction = start > 0 && bytes[start - 1] == b'.';
        let double = matches!(bytes.get(at), Some(b'.' | b'e' | b'E'));
        let negative = start > 0 && bytes[start - 1] == b'-';
        let fits = match negative {
            true => raw[start - 1..at].parse::<i64>().is_ok(),
            false => raw[start..at].parse::<u64>().is_ok(),
        };
        if !fraction && !double && !fits {
            digits += length;
        }
        // A whole number to Python, which prints 0; here it is a double.
        let stands_alone =
            |byte: Option<&u8>| byte.is_none_or(|byte| byte.is_ascii_whitespace() || b":,[]}".contains(byte));
        let before = start.checked_sub(2).and_then(|before| bytes.get(before));
        if negative && &raw[start..at] == "0" && stands_alone(before) && stands_alone(bytes.get(at)) {
            digits += NEGATIVE_ZERO;
        }
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::{is_odd, wide_digits};

    #[test]
    fn what_only_python_reads_is_odd_and_what_nobody_reads_is_not() {
        for odd in [r#"{"a": NaN}"#, r#"{"a": -Infinity}"#, r#"{"a": 1e400}"#] {
            assert!(is_odd(odd), "{odd}");
        }
        for plain in [r#"{"a": 1e300}"#, r#"{"a": "NaN"}"#, "{broken", ""] {
            assert!(!is_odd(plain), "{plain}");
        }
    }

    #[test]
    fn a_negative_zero_is_seen_where_it_is_a_number() {
        for seen in [r#"{"a": -0}"#, "[-0,1]", "-0"] {
            assert!(wide_digits(seen) > 0, "{seen}");
        }
        for other in [r#"{"a": -0.0}"#, "1e-0", "T-0", "-01", "10-0"] {
            assert!(wide_digits(other) == 0, "{other}");
        }
    }

    #[test]
    fn integers_beyond_64_bits_are_seen_and_doubles_are_none() {
        for wide in
            ["18446744073709551616", "-9223372036854775809", r#"{"a":"{\"y\":100000000000000000000000}"}"#]
        {
            assert!(wide_digits(wide) > 18, "{wide}");
        }
        for narrow in [
            "18446744073709551615",
            "-9223372036854775808",
            "1.00000000000000000000000",
            "100000000000000000000000.5",
            "100000000000000000000e3",
            "é1",
        ] {
            assert!(wide_digits(narrow) == 0, "{narrow}");
        }
    }
}
