//! From text to the file as written, and from a complaint to the line that it speaks of.
//!
//! serde stops at the first key or value that it does not like; people want to hear of all. So what is refused is taken out of the
//! parsed document, and the rest is read again. Complaints about what keys mean (`check`) open with their place in the
//! file's own words, `[table] key` or `[[table]] name: key`, and are found by it. Must never refuse what TOML allows, nor drop
//! a complaint whose line it cannot find.

use serde::Deserialize as _;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer, Error};

use super::{check, file};

/// Complaints about keys and kinds that are told at once; each costs another reading of the file.
const MOST_REFUSED: usize = 20;

/// What is wrong, and the byte at which it stands.
#[derive(Debug)]
pub(super) struct Complaint {
    at: Option<usize>,
    text: String,
}

impl Complaint {
    fn refused(mut error: Error, text: &str) -> Self {
        error.set_input(Some(text));
        Self { at: error.span().map(|span| span.start), text: check::syntax(&error) }
    }

    /// As they stand in the file; those that speak of no place come last.
    pub(super) fn in_order(mut complaints: Vec<Self>) -> Vec<String> {
        complaints.sort_by_key(|complaint| complaint.at.unwrap_or(usize::MAX));
        complaints.into_iter().map(|complaint| complaint.text).collect()
    }
}

/// A parsed text.
#[derive(Debug)]
pub(super) struct Document<'t> {
    text: &'t str,
    root: Spanned<DeTable<'t>>,
}

impl<'t> Document<'t> {
    /// Reads a text as TOML.
    ///
    /// # Errors
    /// All that is no TOML, each with its place shown.
    pub(super) fn parse(text: &'t str) -> Result<Self, Vec<String>> {
        let (root, errors) = DeTable::parse_recoverable(text);
        if errors.is_empty() {
            return Ok(Self { text, root });
        }
        let complaints = errors.into_iter().map(|error| Complaint::refused(error, text)).collect();
        Err(Complaint::in_order(complaints))
    }

    /// The file as written, without what was refused, and a complaint about each of that.
    pub(super) fn file(&self) -> (Option<file::File>, Vec<Complaint>) {
        let mut rest = self.root.clone();
        let mut complaints = Vec::new();
        loop {
            let error = match file::File::deserialize(Deserializer::from(rest.clone())) {
                Ok(file) => return (Some(file), complaints),
                Err(error) => error,
            };
            let span = error.span();
            complaints.push(Complaint::refused(error, self.text));
            let taken = span.is_some_and(|span| take_table(rest.get_mut(), &span));
            if !taken || complaints.len() == MOST_REFUSED {
                return (None, complaints);
            }
        }
    }

    /// The complaint with its line in front, if its place is found.
    pub(super) fn located(&self, complaint: String) -> Complaint {
        let at = self.place_of(&complaint);
        let before = at.and_then(|at| self.text.as_bytes().get(..at));
        let text = match before.map(|before| 1 + before.iter().filter(|byte| **byte == b'\n').count()) {
            Some(line) => format!("line {line}: {complaint}"),
            None => complaint,
        };
        Complaint { at, text }
    }

    fn place_of(&self, complaint: &str) -> Option<usize> {
        let root = self.root.get_ref();
        if let Some(rest) = complaint.strip_prefix("[[") {
            let (table, rest) = rest.split_once("]] ")?;
            place_in_entries(root.get(table)?.get_ref().as_array()?, rest)
        } else {
            let (table, rest) = complaint.strip_prefix('[')?.split_once("] ")?;
            let (header, written) = root.get_key_value(table)?;
            Some(key(written.get_ref().as_table()?, rest).unwrap_or(header.span().start))
        }
    }
}

/// Of several entries with the name that a complaint gives, it speaks of the last one that has the key.
fn place_in_entries(entries: &DeArray<'_>, rest: &str) -> Option<usize> {
    let (name, rest) = match rest.strip_suffix(" is used twice") {
        Some(repeated) => (repeated.rsplit(' ').next()?, ""),
        None => rest.split_once(": ")?,
    };
    if let Some(nth) = name.strip_prefix("number ").and_then(|nth| nth.parse::<usize>().ok()) {
        let entry = entries.get(nth.checked_sub(1)?)?;
        let at = entry.get_ref().as_table().and_then(|table| key(table, rest));
        return Some(at.unwrap_or(entry.span().start));
    }
    let called = |value: &DeValue<'_>| value.as_str() == Some(name);
    // A backend without a name of its own is called by the end of its preset's.
    let by_preset =
        |value: &DeValue<'_>| value.as_str().and_then(|slug| slug.rsplit('/').next()) == Some(name);
    let is_named = |entry: &&Spanned<DeValue<'_>>| {
        let Some(table) = entry.get_ref().as_table() else { return false };
        let aliases = table.get("aliases").and_then(|aliases| aliases.get_ref().as_array());
        let named = table.get("name").is_some_and(|written| called(written.get_ref()));
        let preset = || table.get("preset").is_some_and(|written| by_preset(written.get_ref()));
        named
            || (table.get("name").is_none() && preset())
            || aliases.is_some_and(|aliases| aliases.iter().any(|alias| called(alias.get_ref())))
    };
    let named = || entries.iter().rev().filter(is_named);
    let keyed = named().find_map(|entry| key(entry.get_ref().as_table()?, rest));
    keyed.or_else(|| named().next().map(|entry| entry.span().start))
}

/// Where the key stands with which a complaint begins, such as `limit.single`.
fn key(table: &DeTable<'_>, rest: &str) -> Option<usize> {
    let path = rest.split([' ', ':']).next()?;
    let mut table = table;
    let mut found = None;
    for part in path.split('.') {
        let (written, value) = table.get_key_value(part)?;
        found = Some(written.span().start);
        match value.get_ref().as_table() {
            Some(inner) => table = inner,
            None => break,
        }
    }
    found
}

/// Takes out the key or value that stands there; whether there was one.
fn take_table(table: &mut DeTable<'_>, span: &std::ops::Range<usize>) -> bool {
    let there = table.iter().find(|(key, value)| key.span() == *span || value.span() == *span);
    match there.map(|(key, _)| key.get_ref().to_string()) {
        Some(key) => table.remove(key.as_str()).is_some(),
        None => table.iter_mut().any(|(_, value)| take_value(value.get_mut(), span)),
    }
}

fn take_value(value: &mut DeValue<'_>, span: &std::ops::Range<usize>) -> bool {
    match value {
        DeValue::Table(table) => take_table(table, span),
        DeValue::Array(array) => {
            let written = std::mem::replace(array, DeArray::new());
            let before = written.len();
            *array = written.into_iter().filter(|value| value.span() != *span).collect();
            array.len() < before || array.iter_mut().any(|value| take_value(value.get_mut(), span))
        }
        _ => false,
    }
}
