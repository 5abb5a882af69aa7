//! From bytes to text, where a read may end inside a character.

/// Holds the bytes of a character until it is whole.
#[derive(Debug, Default)]
pub struct Utf8 {
    held: Vec<u8>,
}

impl Utf8 {
    /// Takes the next bytes and gives all whole characters. A byte that is no UTF-8 becomes U+FFFD, once for each.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.held.len());
        let mut rest = self.held.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(whole) => {
                    text.push_str(whole);
                    rest = &[];
                }
                Err(error) => {
                    let (valid, behind) = rest.split_at(error.valid_up_to());
                    text.push_str(std::str::from_utf8(valid).unwrap_or_default());
                    rest = behind;
                    if let Some(bad) = error.error_len() {
                        text.push(char::REPLACEMENT_CHARACTER);
                        rest = &rest[bad..];
                        continue;
                    }
                }
            }
            break;
        }
        let rest = rest.to_vec();
        self.held = rest;
        text
    }

    /// The stream has ended: U+FFFD if it did so inside a character.
    pub fn finish(&mut self) -> &'static str {
        let cut = !self.held.is_empty();
        self.held.clear();
        if cut { "\u{fffd}" } else { "" }
    }
}
