//! Keys: read from the environment or a file, compared in constant time, never printed, never logged.

use std::fmt;
use std::path::Path;

use subtle::{Choice, ConstantTimeEq};

/// A key. Its text is reachable only to send it to its owner.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl Secret {
    /// Keeps a key.
    pub(super) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text, to put into a header for the backend that issued it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Whether `offered` is one of the keys. Takes the same time whichever it is, or is not.
pub(crate) fn matches_any(keys: &[Secret], offered: &[u8]) -> bool {
    let found = keys.iter().fold(Choice::from(0), |found, key| found | key.0.as_bytes().ct_eq(offered));
    found.into()
}

/// The keys in an environment variable (comma separated) or in a file (one a line, `#` comments).
pub(super) fn keys_from_env(name: &str) -> Result<Vec<Secret>, String> {
    let text = std::env::var(name).map_err(|_| format!("environment variable {name} is not set"))?;
    non_empty(text.split(','), &format!("environment variable {name}"))
}

/// The keys in a file, one a line; empty lines and `#` comments are skipped.
pub(super) fn keys_from_file(path: &Path) -> Result<Vec<Secret>, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read keys from {}: {error}", path.display()))?;
    non_empty(text.lines().filter(|line| !line.trim_start().starts_with('#')), &path.display().to_string())
}

fn non_empty<'a>(keys: impl Iterator<Item = &'a str>, whence: &str) -> Result<Vec<Secret>, String> {
    let keys: Vec<Secret> = keys.map(str::trim).filter(|key| !key.is_empty()).map(Secret::new).collect();
    if keys.is_empty() { Err(format!("{whence} holds no key")) } else { Ok(keys) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_matches_only_as_a_whole_and_is_never_printed() {
        let keys = [Secret::new("first"), Secret::new("second")];
        assert!(matches_any(&keys, b"second"));
        for wrong in ["secon", "second ", "", "firstsecond"] {
            assert!(!matches_any(&keys, wrong.as_bytes()), "{wrong}");
        }
        assert_eq!(format!("{keys:?}"), "[(secret), (secret)]");
    }
}
