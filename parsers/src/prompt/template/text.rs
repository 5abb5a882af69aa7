//! How an engine's Jinja prints values: as text (`{{ x }}`, `~`, `|string`) and as JSON (`|tojson`).
//!
//! vLLM renders with Python's Jinja2, so `none` prints `None`, a list prints its Python form, and JSON has a space behind commas and
//! colons and keeps its letters. llama.cpp's own Jinja follows Python, but prints floats as C++ does: `1.0` becomes `1` in JSON.
//!
//! Everything that is written is charged to the render's budget before it is written.

use std::fmt::Write;
use std::sync::Arc;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

use super::budget::{self, Budget};
use super::printable;
use crate::prompt::normalise::Normalisation;

/// What writing a value down costs besides its text, in bytes.
const PER_VALUE: u64 = 8;

/// Text in the making.
pub(super) struct Text {
    dialect: Normalisation,
    budget: Arc<Budget>,
    out: String,
}

/// How `tojson` was asked to write.
pub(super) struct JsonStyle {
    /// Spaces per level, or everything on one line.
    pub(super) indent: Option<usize>,
    /// Between elements and members.
    pub(super) between: String,
    /// Between a key and its value.
    pub(super) colon: String,
    /// Whether letters outside of ASCII are escaped.
    pub(super) ascii: bool,
    /// Whether keys are sorted.
    pub(super) sorted: bool,
}

impl Text {
    pub(super) fn new(dialect: Normalisation, budget: Arc<Budget>) -> Self {
        Self { dialect, budget, out: String::new() }
    }

    pub(super) fn finish(self) -> String {
        self.out
    }

    /// Literal text.
    pub(super) fn put(&mut self, text: &str) -> Result<(), Error> {
        self.budget.charge(text.len() as u64)?;
        self.out.push_str(text);
        Ok(())
    }

    /// A value as Python's `str()` has it.
    pub(super) fn put_value(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::Undefined => Ok(()),
            ValueKind::String => self.put(value.as_str().unwrap_or_default()),
            _ => self.put_repr(value),
        }
    }

    /// A value as Python's `repr()` has it, as inside of a printed list.
    fn put_repr(&mut self, value: &Value) -> Result<(), Error> {
        let generator = self.dialect == Normalisation::Vllm && value.kind() == ValueKind::Iterable;
        if generator || value.kind() == ValueKind::Plain || budget::is_part_of_the_render(value) {
            // Engines print its name and its address.
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "the template prints an object that has no text",
            ));
        }
        self.budget.charge(PER_VALUE)?;
        match value.kind() {
            ValueKind::Undefined => self.put("Undefined"),
            ValueKind::None => self.put("None"),
            ValueKind::Bool => self.put(if value.is_true() { "True" } else { "False" }),
            ValueKind::Number => self.put_number(value, false),
            ValueKind::String => self.put_quoted(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                self.put("[")?;
                for (at, item) in value.try_iter()?.enumerate() {
                    self.put(if at > 0 { ", " } else { "" })?;
                    self.put_repr(&item)?;
                }
                self.put("]")
            }
            ValueKind::Map => {
                self.put("{")?;
                for (at, key) in value.try_iter()?.enumerate() {
                    self.put(if at > 0 { ", " } else { "" })?;
                    self.put_repr(&key)?;
                    self.put(": ")?;
                    self.put_repr(&value.get_item(&key)?)?;
                }
                self.put("}")
            }
            _ => self.put(&value.to_string()),
        }
    }

    fn put_quoted(&mut self, text: &str) -> Result<(), Error> {
        if self.dialect == Normalisation::LlamaCpp {
            return match text.contains('\'') {
                true => self.put_json_string(text, false),
                false => self.put(&format!("'{text}'")),
            };
        }
        self.budget.charge(text.len() as u64)?;
        let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
        let mut quoted = String::with_capacity(text.len() + 2);
        quoted.push(quote);
        for c in text.chars() {
            match c {
                '\\' => quoted.push_str("\\\\"),
                '\n' => quoted.push_str("\\n"),
                '\r' => quoted.push_str("\\r"),
                '\t' => quoted.push_str("\\t"),
                c if c == quote => quoted.extend(['\\', c]),
                c if !printable::is_assigned(c) => {
                    let reason =
                        "a character that is new or unknown prints as the engine's version of Unicode has it";
                    return Err(Error::new(ErrorKind::InvalidOperation, reason));
                }
                c if printable::is_printable(c) => quoted.push(c),
                c => {
                    let _ = match c as u32 {
                        code @ ..0x100 => write!(quoted, "\\x{code:02x}"),
                        code @ ..0x1_0000 => write!(quoted, "\\u{code:04x}"),
                        code => write!(quoted, "\\U{code:08x}"),
                    };
                }
            }
        }
        quoted.push(quote);
        self.put(&quoted)
    }

    /// A number, as JSON has it or as text.
    pub(super) fn put_number(&mut self, value: &Value, json: bool) -> Result<(), Error> {
        if value.is_integer() {
            // llama.cpp keeps 64 bits with a sign, whatever was written.
            let wraps = u64::try_from(value.clone()).ok().filter(|_| self.dialect == Normalisation::LlamaCpp);
            return self
                .put(&wraps.map_or_else(|| value.to_string(), |number| number.cast_signed().to_string()));
        }
        let number = f64::try_from(value.clone())?;
        if !number.is_finite() {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "the template prints a number that is not finite",
            ));
        }
        self.put(&match (self.dialect, json) {
            (Normalisation::Vllm, _) => python_float(number),
            (Normalisation::LlamaCpp, true) => stream_float(number),
            (Normalisation::LlamaCpp, false) => fixed_float(number),
        })
    }

    /// A value as JSON, `level` containers deep.
    pub(super) fn put_json(&mut self, value: &Value, style: &JsonStyle, level: usize) -> Result<(), Error> {
        self.budget.charge(PER_VALUE)?;
        match value.kind() {
            ValueKind::None => self.put("null"),
            ValueKind::Undefined if self.dialect == Normalisation::LlamaCpp => self.put("null"),
            ValueKind::Bool => self.put(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.put_number(value, true),
            ValueKind::String => self.put_json_string(value.as_str().unwrap_or_default(), style.ascii),
            // In Python that is a generator, a range or a view.
            ValueKind::Iterable if self.dialect == Normalisation::Vllm => {
                Err(Error::new(ErrorKind::BadSerialization, "only lists and mappings are written as json"))
            }
            ValueKind::Seq | ValueKind::Iterable => {
                self.put("[")?;
                let mut empty = true;
                for item in value.try_iter()? {
                    self.put(if empty { "" } else { &style.between })?;
                    self.new_line(style, level + 1)?;
                    self.put_json(&item, style, level + 1)?;
                    empty = false;
                }
                if !empty {
                    self.new_line(style, level)?;
                }
                self.put("]")
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if style.sorted {
                    keys.sort();
                }
                self.put("{")?;
                for (at, key) in keys.iter().enumerate() {
                    self.put(if at > 0 { &style.between } else { "" })?;
                    self.new_line(style, level + 1)?;
                    match key.as_str() {
                        Some(text) => self.put_json_string(text, style.ascii)?,
                        None if key.is_integer() || self.dialect == Normalisation::LlamaCpp => {
                            budget::charge_all(&self.budget, key)?;
                            self.put_json_string(&key.to_string(), style.ascii)?;
                        }
                        None => {
                            let reason = format!("a key that is {} is not written as json", key.kind());
                            return Err(Error::new(ErrorKind::BadSerialization, reason));
                        }
                    }
                    self.put(&style.colon)?;
                    self.put_json(&value.get_item(key)?, style, level + 1)?;
                }
                if !keys.is_empty() {
                    self.new_line(style, level)?;
                }
                self.put("}")
            }
            kind => Err(Error::new(ErrorKind::BadSerialization, format!("{kind} cannot be written as json"))),
        }
    }

    fn new_line(&mut self, style: &JsonStyle, level: usize) -> Result<(), Error> {
        let Some(indent) = style.indent else { return Ok(()) };
        let spaces = indent.saturating_mul(level);
        self.budget.charge(spaces as u64 + 1)?;
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n(' ', spaces));
        Ok(())
    }

    fn put_json_string(&mut self, text: &str, ascii: bool) -> Result<(), Error> {
        self.budget.charge(text.len() as u64 + 2)?;
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if (c as u32) < 0x20
                    || (ascii
                        && !(c.is_ascii() && (c != '\u{7f}' || self.dialect == Normalisation::LlamaCpp))) =>
                {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
        Ok(())
    }
}

/// `repr(float)`: the shortest digits that read back as the same number, with an exponent below 1e-4 and from 1e16 on.
fn python_float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let (digits, exponent) = split_exponent(&scientific);
    if number == 0.0 || (-4..16).contains(&exponent) {
        let plain = number.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// `std::ostream << double`: six digits, without trailing zeros.
fn stream_float(number: f64) -> String {
    let scientific = format!("{number:.5e}");
    let (digits, exponent) = split_exponent(&scientific);
    if (-4..6).contains(&exponent) {
        return without_zeros(&format!("{number:.*}", (5 - exponent).max(0) as usize)).into();
    }
    format!("{}e{}{:02}", without_zeros(digits), if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// `std::to_string(double)` as llama.cpp trims it: six decimals, and one zero is left.
fn fixed_float(number: f64) -> String {
    let text = format!("{number:.6}");
    let trimmed = text.trim_end_matches('0');
    if trimmed.ends_with('.') { format!("{trimmed}0") } else { trimmed.into() }
}

fn split_exponent(scientific: &str) -> (&str, i32) {
    let (digits, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    (digits, exponent.parse().unwrap_or_default())
}

fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::{fixed_float, python_float, stream_float};

    #[test]
    fn floats_print_as_python_prints_them() {
        for (number, printed) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123_456.789, "123456.789"),
        ] {
            assert_eq!(python_float(number), printed);
        }
    }

    #[test]
    fn floats_print_as_llama_cpp_prints_them() {
        for (number, in_json, as_text) in [
            (1.0, "1", "1.0"),
            (0.1, "0.1", "0.1"),
            (2.345_678_912, "2.34568", "2.345679"),
            (1e20, "1e+20", "100000000000000000000.0"),
            (123_456.789, "123457", "123456.789"),
            (1_234_567.0, "1.23457e+06", "1234567.0"),
            (0.00001, "1e-05", "0.00001"),
        ] {
            assert_eq!((stream_float(number).as_str(), fixed_float(number).as_str()), (in_json, as_text));
        }
    }
}
