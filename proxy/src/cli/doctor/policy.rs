//! The configuration that follows from what was found: the operator's own text with lines added, or a whole file where there
//! was none.
//!
//! It edits text, so that comments and order stay; what it writes is read again as any configuration is before anybody gets it.
//! Must never touch a key that was not seen to be wrong.

use std::ops::Range;
use std::path::Path;

use toml::de::DeTable;

use super::finding::Setting;
use crate::config::{Backend, Config};

/// What to set for the backends, by their positions.
pub(super) type Settings = [(usize, Vec<Setting>)];

/// One line a key: lists that several trials want are one list.
pub(super) fn joined(all: impl Iterator<Item = Setting>) -> Vec<Setting> {
    let mut joined: Vec<Setting> = Vec::new();
    for setting in all {
        match joined.iter_mut().find(|earlier| earlier.key == setting.key) {
            Some(earlier) => earlier.value = union(&earlier.value, &setting.value),
            None => joined.push(setting),
        }
    }
    joined
}

/// Two lists as one; of two values that are none, the later.
fn union(one: &str, other: &str) -> String {
    let list = |text: &str| match text.parse::<toml::Value>() {
        Ok(toml::Value::Array(list)) => Some(list),
        _ => None,
    };
    let (Some(mut all), Some(more)) = (list(one), list(other)) else { return other.to_owned() };
    for value in more {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    toml::Value::Array(all).to_string()
}

/// The operator's text with the settings in it.
///
/// # Errors
/// A sentence, where the text cannot be edited so.
pub(super) fn merged(text: &str, base: &Path, settings: &Settings) -> Result<String, String> {
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    for (nth, wanted) in settings {
        let header = header(text, *nth).ok_or("the entries are not written as [[backend]] tables")?;
        for setting in wanted {
            let Setting { key, value, because } = setting;
            edits.push(match written(text, *nth, key) {
                Some(place) => (place, format!("{key} = {value}")),
                None => (header..header, format!("# {because}{end}{key} = {value}{end}")),
            });
        }
    }
    edits.sort_by_key(|(place, _)| place.start);
    let mut merged = text.to_owned();
    for (place, line) in edits.into_iter().rev() {
        merged.replace_range(place, &line);
    }
    checked(merged, base)
}

/// A file for backends that were found without one.
///
/// # Errors
/// A sentence, if it makes no sense as a configuration.
pub(super) fn whole(backends: &[(&Backend, Option<String>, Vec<Setting>)]) -> Result<String, String> {
    let mut text = String::new();
    for (backend, engine, settings) in backends {
        let (name, address) = (&backend.name, &backend.authority);
        text.push_str(&format!(
            "[[backend]]\nname = {name:?}\nurl = \"http://{address}{}\"\n",
            backend.prefix
        ));
        if let Some(engine) = engine {
            text.push_str(&format!("engine = {engine:?}\n"));
        }
        for Setting { key, value, because } in settings {
            text.push_str(&format!("# {because}\n{key} = {value}\n"));
        }
        text.push('\n');
    }
    checked(text, Path::new("."))
}

fn checked(text: String, base: &Path) -> Result<String, String> {
    match Config::parse(&text, base) {
        Ok(_) => Ok(text),
        Err(error) => Err(format!("the result makes no sense: {error}")),
    }
}

/// The byte behind the header line of the `nth` entry.
fn header(text: &str, nth: usize) -> Option<usize> {
    let entry = entry_start(text, nth)?;
    let line = text.get(entry..)?.find('\n').map_or(text.len(), |end| entry + end + 1);
    text.get(entry..line)?.trim_start_matches('\u{feff}').trim_start().starts_with("[[").then_some(line)
}

fn entry_start(text: &str, nth: usize) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let start = root.get_ref().get("backend")?.get_ref().as_array()?.get(nth)?.span().start;
    Some(text.get(..start)?.rfind('\n').map_or(0, |end| end + 1))
}

/// Where the `nth` entry has this key already, its value included.
fn written(text: &str, nth: usize, key: &str) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    let entries = root.get_ref().get("backend")?.get_ref().as_array()?;
    let (key, value) = entries.get(nth)?.get_ref().as_table()?.get_key_value(key)?;
    Some(key.span().start..value.span().end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(key: &'static str, value: &str) -> Setting {
        Setting { key, value: value.to_owned(), because: "it was seen".to_owned() }
    }

    const TEXT: &str = "# mine\n[[backend]] # the big one\nname = \"a\"\nurl = \"http://a\"\ndrop = [\n  \"/store\",\n]\n\n[[backend]]\nname = \"b\"\nurl = \"http://b\" # far\n\n[repair]\n";

    #[test]
    fn settings_go_to_their_backend_and_all_else_stays_as_it_was_written() {
        let settings = [
            (0, vec![set("drop", r#"["/store", "/user"]"#), set("images", "false")]),
            (1, vec![set("tool_parser", "false")]),
        ];
        let merged = merged(TEXT, Path::new("."), &settings).expect("a configuration");
        assert_eq!(
            merged,
            "# mine\n[[backend]] # the big one\n# it was seen\nimages = false\nname = \"a\"\nurl = \"http://a\"\ndrop = [\"/store\", \"/user\"]\n\n[[backend]]\n# it was seen\ntool_parser = false\nname = \"b\"\nurl = \"http://b\" # far\n\n[repair]\n"
        );
    }

    #[test]
    fn a_text_from_another_system_keeps_its_line_ends_and_its_mark() {
        let text = "\u{feff}[[backend]]\r\nname = \"a\"\r\nurl = \"http://a\"\r\n";
        assert_eq!(
            merged(text, Path::new("."), &[(0, vec![set("images", "false")])]).expect("a configuration"),
            "\u{feff}[[backend]]\r\n# it was seen\r\nimages = false\r\nname = \"a\"\r\nurl = \"http://a\"\r\n"
        );
    }

    #[test]
    fn what_several_trials_want_left_out_is_one_list() {
        let all =
            [set("drop", r#"["/store"]"#), set("images", "false"), set("drop", r#"["/store", "/user"]"#)];
        let joined = joined(all.into_iter());
        let lines: Vec<_> = joined.iter().map(|one| format!("{} = {}", one.key, one.value)).collect();
        assert_eq!(lines, [r#"drop = ["/store", "/user"]"#, "images = false"]);
    }

    #[test]
    fn a_text_that_cannot_be_edited_or_would_make_no_sense_is_said_to_be_so() {
        let inline = "backend = [{ name = \"a\", url = \"http://a\" }]\n";
        assert!(merged(inline, Path::new("."), &[(0, vec![set("images", "false")])]).is_err());
        assert!(merged(TEXT, Path::new("."), &[(0, vec![set("window", "0")])]).is_err());
        assert!(merged(TEXT, Path::new("."), &[(7, vec![set("images", "false")])]).is_err());
    }
}
