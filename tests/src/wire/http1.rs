//! Just enough HTTP/1.1 to read one message at a time from a socket: heads, and bodies piece by piece as they arrive.
//!
//! Written by hand so that the harness sees every chunk when it comes and knows how a body ended. It must never
//! repair what it reads: a body that stops before its promised end is an error, not a short body.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest head that is read, bytes.
const LONGEST_HEAD: usize = 256 << 10;

/// Header fields in the order in which they came, names in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// The value of a field, several of one name joined by `, `. The name is given in lower case.
    pub fn get(&self, name: &str) -> Option<String> {
        let values: Vec<&str> =
            self.0.iter().filter(|(have, _)| have == name).map(|(_, value)| value.as_str()).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    fn has_word(&self, name: &str, word: &str) -> bool {
        self.get(name)
            .is_some_and(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
    }

    /// Whether the sender closes the connection after this message.
    pub fn closes(&self) -> bool {
        self.has_word("connection", "close")
    }
}

/// A request or status line and the header fields below it.
#[derive(Clone, Debug)]
pub struct Head {
    /// The first line without its line end.
    pub first: String,
    /// The fields.
    pub headers: Headers,
}

impl Head {
    /// How the body of a request with this head ends.
    ///
    /// # Errors
    /// A content length that is not a number.
    pub fn request_body(&self) -> io::Result<Framing> {
        self.framing(Framing::Length(0))
    }

    /// How the body of a response with this status and head ends. `to_head`: it answers a HEAD request.
    ///
    /// # Errors
    /// A content length that is not a number.
    pub fn response_body(&self, status: u16, to_head: bool) -> io::Result<Framing> {
        if to_head || status == 204 || status == 304 || (100..200).contains(&status) {
            return Ok(Framing::Length(0));
        }
        self.framing(Framing::ToClose)
    }

    fn framing(&self, otherwise: Framing) -> io::Result<Framing> {
        if self.headers.has_word("transfer-encoding", "chunked") {
            return Ok(Framing::Chunked(Chunk::Size));
        }
        match self.headers.get("content-length") {
            Some(length) => length
                .parse()
                .map(Framing::Length)
                .map_err(|_| malformed(format!("content-length \"{length}\" is not a number"))),
            None => Ok(otherwise),
        }
    }
}

/// Where a body ends, and how much of it is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After so many more bytes.
    Length(u64),
    /// After the last chunk.
    Chunked(Chunk),
    /// When the sender closes.
    ToClose,
}

/// What comes next in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// A size line.
    Size,
    /// So many more bytes of the chunk.
    Data(u64),
    /// The line end behind a chunk's bytes.
    DataEnd,
    /// Trailer lines up to the empty one.
    Trailer,
    /// Nothing: the body has ended.
    Ended,
}

/// One direction of a connection, read message by message.
#[derive(Debug)]
pub struct Wire<R> {
    reader: R,
    unread: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Wire<R> {
    /// Begins to read.
    pub fn new(reader: R) -> Self {
        Self { reader, unread: Vec::new() }
    }

    /// The next head, or nothing if the other side closed before its first byte.
    ///
    /// # Errors
    /// The connection broke, or what came is no head.
    pub async fn head(&mut self) -> io::Result<Option<Head>> {
        loop {
            if let Some(end) = find(&self.unread, b"\r\n\r\n") {
                let head: Vec<u8> = self.unread.drain(..end + 4).collect();
                return parse_head(&head[..end]).map(Some);
            }
            if self.unread.len() > LONGEST_HEAD {
                return Err(malformed(format!("no end of the head within {LONGEST_HEAD} bytes")));
            }
            if !self.fill().await? {
                return if self.unread.is_empty() { Ok(None) } else { Err(cut("in a head")) };
            }
        }
    }

    /// The next piece of a body as it arrived, or nothing when the body has properly ended.
    ///
    /// # Errors
    /// The connection broke or closed before the promised end.
    pub async fn piece(&mut self, framing: &mut Framing) -> io::Result<Option<Vec<u8>>> {
        loop {
            match framing {
                Framing::Length(0) | Framing::Chunked(Chunk::Ended) => return Ok(None),
                Framing::Length(left) | Framing::Chunked(Chunk::Data(left)) if !self.unread.is_empty() => {
                    let piece = self.take(left);
                    if *framing == Framing::Chunked(Chunk::Data(0)) {
                        *framing = Framing::Chunked(Chunk::DataEnd);
                    }
                    return Ok(Some(piece));
                }
                Framing::ToClose if !self.unread.is_empty() => {
                    return Ok(Some(std::mem::take(&mut self.unread)));
                }
                Framing::Chunked(next @ (Chunk::Size | Chunk::DataEnd | Chunk::Trailer)) => {
                    if let Some(line) = self.line() {
                        *next = after_line(*next, &line)?;
                        continue;
                    }
                }
                _ => {}
            }
            if !self.fill().await? {
                return match framing {
                    Framing::ToClose => Ok(None),
                    Framing::Length(left) => Err(cut(&format!("{left} bytes before the body's end"))),
                    Framing::Chunked(_) => Err(cut("before the last chunk")),
                };
            }
        }
    }

    /// A whole body.
    ///
    /// # Errors
    /// As for [`Wire::piece`].
    pub async fn body(&mut self, mut framing: Framing) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece(&mut framing).await? {
            body.extend(piece);
        }
        Ok(body)
    }

    /// Waits until the other side has closed or reset; what still comes before that is kept for later reading.
    pub async fn closed(&mut self) {
        while self.fill().await.unwrap_or(false) {}
    }

    fn take(&mut self, left: &mut u64) -> Vec<u8> {
        let now = usize::try_from(*left).unwrap_or(usize::MAX).min(self.unread.len());
        *left -= now as u64;
        self.unread.drain(..now).collect()
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        let end = find(&self.unread, b"\r\n")?;
        let mut line: Vec<u8> = self.unread.drain(..end + 2).collect();
        line.truncate(end);
        Some(line)
    }

    /// Reads more; false at the end.
    async fn fill(&mut self) -> io::Result<bool> {
        self.unread.reserve(16 << 10);
        Ok(self.reader.read_buf(&mut self.unread).await? > 0)
    }
}

fn after_line(before: Chunk, line: &[u8]) -> io::Result<Chunk> {
    match before {
        Chunk::Size => {
            let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
            let size = std::str::from_utf8(digits)
                .ok()
                .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
            match size {
                Some(0) => Ok(Chunk::Trailer),
                Some(size) => Ok(Chunk::Data(size)),
                None => Err(malformed(format!("\"{}\" is no chunk size", line.escape_ascii()))),
            }
        }
        Chunk::DataEnd if line.is_empty() => Ok(Chunk::Size),
        Chunk::DataEnd => Err(malformed("a chunk is longer than its size says".to_owned())),
        Chunk::Trailer if line.is_empty() => Ok(Chunk::Ended),
        other => Ok(other),
    }
}

fn parse_head(bytes: &[u8]) -> io::Result<Head> {
    // Header bytes above ASCII are Latin-1 by tradition; so every byte has a character.
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default().to_owned();
    let mut headers = Headers::default();
    for line in lines {
        let (name, value) =
            line.split_once(':').ok_or_else(|| malformed(format!("\"{line}\" is no header field")))?;
        headers.0.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
    Ok(Head { first, headers })
}

/// The first place of `needle` in `hay`.
pub fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    let first = needle.first()?;
    let mut from = 0;
    while let Some(step) = hay.get(from..)?.iter().position(|byte| byte == first) {
        if hay[from + step..].starts_with(needle) {
            return Some(from + step);
        }
        from += step + 1;
    }
    None
}

fn cut(place: &str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("the connection was closed {place}"))
}

fn malformed(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(text: &str, status: u16) -> (Head, io::Result<Vec<u8>>) {
        let mut wire = Wire::new(text.as_bytes());
        let head = wire.head().await.unwrap().unwrap();
        let framing = head.response_body(status, false).unwrap();
        let body = wire.body(framing).await;
        (head, body)
    }

    #[tokio::test]
    async fn bodies_end_where_their_framing_says() {
        let head = "HTTP/1.1 200 OK\r\nX-A: one\r\nx-a: two\r\n";
        let (seen, body) = read(&format!("{head}Content-Length: 3\r\n\r\nabcd"), 200).await;
        assert_eq!(seen.headers.get("x-a").as_deref(), Some("one, two"));
        assert_eq!(body.unwrap(), b"abc");
        let (_, body) = read(
            &format!("{head}Transfer-Encoding: chunked\r\n\r\n2;x=1\r\nab\r\n1\r\nc\r\n0\r\nt: u\r\n\r\n"),
            200,
        )
        .await;
        assert_eq!(body.unwrap(), b"abc");
        let (_, body) = read(&format!("{head}\r\nabc"), 200).await;
        assert_eq!(body.unwrap(), b"abc");
        let (_, body) = read(&format!("{head}\r\nabc"), 204).await;
        assert_eq!(body.unwrap(), b"");
    }

    #[tokio::test]
    async fn a_body_that_stops_early_is_an_error() {
        for text in [
            "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nabc",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
        ] {
            assert!(read(text, 200).await.1.is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_close_between_messages_is_no_error_and_inside_a_head_is_one() {
        assert!(Wire::new(&b""[..]).head().await.unwrap().is_none());
        assert!(Wire::new(&b"GET / HT"[..]).head().await.is_err());
    }
}
