//! Keys: read from the environment or a file, compared in constant time, never printed, never logged.

use std::fmt;
use std::path::Path;

use subtle::ConstantTimeEq as _;

/// A key. Its text is reachable only to send it to its owner.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
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

/// A client's key, with the operator's name for whoever holds it.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) name: Option<String>,
    pub(super) secret: Secret,
}

impl Key {
    /// Reads `KEY` or `NAME=KEY`. Padding at the end of a base64 key is no name's sign.
    fn read(text: &str) -> Self {
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        match text
            .split_once('=')
            .filter(|(name, key)| is_name(name) && !key.is_empty() && !key.starts_with('='))
        {
            Some((name, key)) => Self { name: Some(name.to_owned()), secret: Secret(key.to_owned()) },
            None => Self { name: None, secret: Secret(text.to_owned()) },
        }
    }
}

/// Which of the keys was offered. All are compared, each in constant time.
pub(crate) fn which<'a>(keys: &'a [Key], offered: &[u8]) -> Option<&'a Key> {
    keys.iter().fold(None, |found, key| {
        let same: bool = key.secret.0.as_bytes().ct_eq(offered).into();
        if same { Some(key) } else { found }
    })
}

/// The keys in an environment variable, comma separated, each `KEY` or `NAME=KEY`.
pub(super) fn keys_from_env(name: &str) -> Result<Vec<Key>, String> {
    let text = std::env::var(name).map_err(|_| format!("environment variable {name} is not set"))?;
    non_empty(text.split(','), &format!("environment variable {name}"))
}

/// The keys in a file, one a line, each `KEY` or `NAME=KEY`; empty lines and `#` comments are skipped.
pub(super) fn keys_from_file(path: &Path) -> Result<Vec<Key>, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read keys from {}: {error}", path.display()))?;
    non_empty(text.lines().filter(|line| !line.trim_start().starts_with('#')), &path.display().to_string())
}

fn non_empty<'a>(keys: impl Iterator<Item = &'a str>, whence: &str) -> Result<Vec<Key>, String> {
    let keys: Vec<Key> = keys.map(str::trim).filter(|key| !key.is_empty()).map(Key::read).collect();
    if keys.is_empty() { Err(format!("{whence} holds no key")) } else { Ok(keys) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_matches_only_as_a_whole_and_is_never_printed() {
        let keys = [Key::read("first"), Key::read("kitchen=second"), Key::read("cGFkZGVk==")];
        assert_eq!(which(&keys, b"second").and_then(|key| key.name.as_deref()), Some("kitchen"));
        assert!(which(&keys, b"cGFkZGVk==").is_some_and(|key| key.name.is_none()));
        for wrong in ["secon", "second ", "", "firstsecond", "kitchen=second"] {
            assert!(which(&keys, wrong.as_bytes()).is_none(), "{wrong}");
        }
        let printed = format!("{keys:?}");
        assert!(!printed.contains("second") && printed.contains("kitchen"), "{printed}");
    }
}
