//! Where the first JSON object or array of a text ends, found as the text grows.
//!
//! Why: a body that is streamed must be looked at once per byte, not once per piece; and a closing bracket in a string
//! ends nothing. It never judges whether the text is JSON.

/// A scan that goes on where it stopped. Feed it the same text each time, as far as it is known.
#[derive(Clone, Debug, Default)]
pub struct ObjectScan {
    at: usize,
    depth: usize,
    /// The quote that ends the string that is open.
    quote: Option<u8>,
    /// The last byte outside strings that was no white space.
    before: u8,
}

impl ObjectScan {
    /// The end (exclusive) of the object or array that `text` begins with, white space before it allowed. None: not
    /// closed so far, or the text begins with something else.
    pub fn end(&mut self, text: &str) -> Option<usize> {
        let bytes = text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            if let Some(quote) = self.quote {
                match byte {
                    b'\\' if bytes.get(self.at + 1).is_none() => return None,
                    b'\\' => self.at += 1,
                    _ if byte == quote => {
                        self.quote = None;
                        self.before = byte;
                    }
                    _ => {}
                }
                self.at += 1;
                continue;
            }
            match byte {
                b' ' | b'\n' | b'\r' | b'\t' => {
                    self.at += 1;
                    continue;
                }
                b'{' | b'[' => self.depth += 1,
                _ if self.depth == 0 => return None,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Some(self.at + 1);
                    }
                }
                b'"' => self.quote = Some(byte),
                // A Python string, only where a value may begin: an apostrophe elsewhere is none.
                b'\'' if matches!(self.before, b'{' | b'[' | b',' | b':') => self.quote = Some(byte),
                _ => {}
            }
            self.before = byte;
            self.at += 1;
        }
        None
    }
}

/// The end (exclusive) of the first balanced JSON object or array at the start of `text`; strings and escapes are
/// respected. None: not closed yet. Use [`ObjectScan`] where the text grows.
pub fn object_end(text: &str) -> Option<usize> {
    ObjectScan::default().end(text)
}
