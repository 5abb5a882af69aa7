//! An event stream as a client reads it: comments, events and what is neither, each with the time of its arrival.
//!
//! Follows the WHATWG rules, all three line ends and the byte order mark included: an event counts once its blank line
//! has come, and a block that the stream leaves unfinished is no event.

use std::time::Duration;

use serde_json::Value;

use super::observed::Piece;

/// The stream, in order.
#[derive(Debug, Default)]
pub struct Stream {
    /// What came.
    pub items: Vec<Item>,
}

/// One thing on the stream.
#[derive(Debug)]
pub struct Item {
    /// When it was complete.
    pub at: Duration,
    /// What it is.
    pub what: What,
}

/// What a stream can hold.
#[derive(Debug)]
pub enum What {
    /// A comment line, without its colon.
    Comment,
    /// A line that no field begins, such as bare JSON.
    Stray(String),
    /// An event with data.
    Event(Event),
}

/// An event.
#[derive(Debug)]
pub struct Event {
    /// Its data lines; one that is not UTF-8 is an error with its bytes escaped.
    pub lines: Vec<Result<String, String>>,
    /// The data as JSON.
    pub json: Option<Value>,
    /// The data, lines joined.
    pub data: String,
}

impl Event {
    fn new(lines: Vec<Result<String, String>>) -> Self {
        let texts: Vec<&str> =
            lines.iter().map(|line| line.as_ref().map_or_else(String::as_str, String::as_str)).collect();
        let data = texts.join("\n");
        let json = if lines.iter().all(Result::is_ok) { serde_json::from_str(&data).ok() } else { None };
        Self { lines, json, data }
    }

    /// Whether it is the marker of the end.
    pub fn is_done(&self) -> bool {
        self.data.trim() == "[DONE]"
    }

    /// The error object in it, if there is one.
    pub fn error(&self) -> Option<&Value> {
        let json = self.json.as_ref()?;
        let of_response = || {
            json.get("response").filter(|_| json.get("type") == Some(&"response.failed".into()))?.get("error")
        };
        json.get("error").or_else(of_response).filter(|error| !error.is_null())
    }
}

impl Stream {
    /// Reads a whole stream.
    pub fn read(pieces: &[Piece]) -> Self {
        let mut stream = Self::default();
        let mut block = Vec::new();
        let mut line = Vec::new();
        let mut after_cr = false;
        let mut first = true;
        for piece in pieces {
            for byte in &piece.bytes {
                let ends_line = match byte {
                    b'\n' if after_cr => {
                        after_cr = false;
                        continue;
                    }
                    b'\n' | b'\r' => true,
                    other => {
                        line.push(*other);
                        false
                    }
                };
                after_cr = *byte == b'\r';
                if ends_line {
                    let whole = std::mem::take(&mut line);
                    let whole = whole.strip_prefix(b"\xef\xbb\xbf").filter(|_| first).unwrap_or(&whole);
                    first = false;
                    stream.line(whole, piece.at, &mut block);
                }
            }
        }
        stream
    }

    fn line(&mut self, line: &[u8], at: Duration, block: &mut Vec<Result<String, String>>) {
        if line.is_empty() {
            if !block.is_empty() {
                let event = Event::new(std::mem::take(block));
                self.items.push(Item { at, what: What::Event(event) });
            }
            return;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = match colon {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        match field {
            b"" => self.items.push(Item { at, what: What::Comment }),
            b"data" => block.push(text(value.strip_prefix(b" ").unwrap_or(value))),
            b"event" | b"id" | b"retry" => {}
            _ => self.items.push(Item { at, what: What::Stray(line.escape_ascii().to_string()) }),
        }
    }

    /// The events with their times.
    pub fn events(&self) -> impl Iterator<Item = (Duration, &Event)> {
        self.items.iter().filter_map(|item| match &item.what {
            What::Event(event) => Some((item.at, event)),
            _ => None,
        })
    }

    /// The events that are JSON.
    pub fn chunks(&self) -> impl Iterator<Item = &Value> {
        self.events().filter_map(|(_, event)| event.json.as_ref())
    }

    /// The number of comment lines.
    pub fn comments(&self) -> usize {
        self.items.iter().filter(|item| matches!(item.what, What::Comment)).count()
    }
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|error| error.as_bytes().escape_ascii().to_string())
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;

    /// A stream that came at once.
    pub(crate) fn stream(text: &str) -> Stream {
        Stream::read(&[Piece { at: Duration::ZERO, bytes: text.to_owned().into() }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pieces: &[&[u8]]) -> Vec<String> {
        let pieces: Vec<Piece> = pieces
            .iter()
            .enumerate()
            .map(|(at, bytes)| Piece { at: Duration::from_millis(at as u64), bytes: bytes.to_vec().into() })
            .collect();
        let say = |item: &Item| match &item.what {
            What::Comment => format!("{}:comment", item.at.as_millis()),
            What::Stray(line) => format!("{}:stray {line}", item.at.as_millis()),
            What::Event(event) => format!("{}:{}", item.at.as_millis(), event.data),
        };
        Stream::read(&pieces).items.iter().map(say).collect()
    }

    #[test]
    fn events_comments_and_strays_are_told_apart_with_every_line_end() {
        assert_eq!(
            seen(&[
                b"\xef\xbb\xbf: hi\r\n\r\ndata:{\"a\":\r\ndata: 1}\r",
                b"\n\r\nid: 7\nevent: ping\n\ndata\n\n",
                b"bare: no field\rdata: x\r\r"
            ]),
            ["0:comment", "1:{\"a\":\n1}", "1:", "2:stray bare: no field", "2:x"]
        );
    }

    #[test]
    fn an_event_without_its_blank_line_is_none_and_broken_text_is_no_json() {
        assert!(seen(&[b"data: [DONE]\n"]).is_empty());
        let stream =
            Stream::read(&[Piece { at: Duration::ZERO, bytes: b"data: \"\xff\"\n\n".to_vec().into() }]);
        let (_, event) = stream.events().next().unwrap();
        assert!(event.json.is_none() && event.lines[0].is_err());
    }

    #[test]
    fn a_character_cut_between_pieces_is_whole_again() {
        let text = "data: \"\u{1f680}\"\n\n".as_bytes();
        assert_eq!(seen(&[&text[..9], &text[9..]]), ["1:\"\u{1f680}\""]);
    }
}
