//! Playing one scripted answer onto a connection: exact bytes, pauses, splits, resets.
//!
//! Every text of a stream is a chunk of its own, written at once; so a split cannot be joined again on the way. It
//! adds only the framing that HTTP needs.

use std::io::{self, Write};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::StatusCode;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::sleep;

use super::super::case::{Scripted, Step};

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// It takes the next request.
    Keep,
    /// It is closed (or already reset).
    Close,
}

/// What was sent before a reset must have been read by then: a reset discards what is still under way.
const BEFORE_CUT: Duration = Duration::from_millis(30);

/// Plays an answer whose time has come; `ending` is called just before its last bytes go out.
///
/// # Errors
/// The other side has closed.
pub(super) async fn answer(
    scripted: &Scripted,
    write: &mut OwnedWriteHalf,
    ending: impl Fn(),
) -> io::Result<After> {
    if scripted.close_without_answer {
        ending();
        return Ok(After::Close);
    }
    match &scripted.sse {
        Some(steps) => stream(scripted, steps, write, ending).await,
        None => {
            let mut body = match (&scripted.body, &scripted.body_raw) {
                (Some(json), _) => json.to_string().into_bytes(),
                (None, Some(text)) => text.clone().into_bytes(),
                (None, None) => Vec::new(),
            };
            if scripted.gzip {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(&body)?;
                body = encoder.finish()?;
            }
            let mut bytes = head(scripted, &format!("content-length: {}\r\n", body.len()));
            bytes.extend(body);
            ending();
            write.write_all(&bytes).await?;
            Ok(After::Keep)
        }
    }
}

async fn stream(
    scripted: &Scripted,
    steps: &[Step],
    write: &mut OwnedWriteHalf,
    ending: impl Fn(),
) -> io::Result<After> {
    write.write_all(&head(scripted, "transfer-encoding: chunked\r\n")).await?;
    let mut encoder = scripted.gzip.then(|| GzEncoder::new(Vec::new(), Compression::default()));
    let last = steps.iter().rposition(|step| matches!(step, Step::Text(_) | Step::Pause(_)));
    let mut cut_up = None;
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Pause(ms) => sleep(Duration::from_millis(*ms)).await,
            Step::SplitAt(_) | Step::ByteByByte => cut_up = Some(step),
            Step::Text(text) => {
                if Some(number) == last {
                    ending();
                }
                let bytes = match &mut encoder {
                    Some(encoder) => packed(encoder, text)?,
                    None => text.clone().into_bytes(),
                };
                for part in parts(&bytes, cut_up.take()) {
                    write.write_all(&chunk(part)).await?;
                    tokio::task::yield_now().await;
                }
            }
            Step::Cut => {
                sleep(BEFORE_CUT).await;
                ending();
                write.as_ref().set_zero_linger()?;
                return Ok(After::Close);
            }
        }
    }
    if !last.is_some_and(|last| matches!(steps[last], Step::Text(_))) {
        ending();
    }
    let mut rest = match encoder {
        Some(encoder) => chunk(&encoder.finish()?),
        None => Vec::new(),
    };
    rest.extend(b"0\r\n\r\n");
    write.write_all(&rest).await?;
    Ok(After::Keep)
}

fn packed(encoder: &mut GzEncoder<Vec<u8>>, text: &str) -> io::Result<Vec<u8>> {
    encoder.write_all(text.as_bytes())?;
    encoder.flush()?;
    Ok(std::mem::take(encoder.get_mut()))
}

fn parts<'a>(bytes: &'a [u8], cut_up: Option<&Step>) -> Vec<&'a [u8]> {
    let parts: Vec<&[u8]> = match cut_up {
        Some(Step::SplitAt(at)) => {
            let (one, two) = bytes.split_at((*at).min(bytes.len()));
            vec![one, two]
        }
        Some(Step::ByteByByte) => bytes.chunks(1).collect(),
        _ => vec![bytes],
    };
    // An empty chunk would be the end of the body.
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend(bytes);
    chunk.extend(b"\r\n");
    chunk
}

fn head(scripted: &Scripted, framing: &str) -> Vec<u8> {
    let status = scripted.status.unwrap_or(200);
    let reason =
        StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Unknown");
    let mut head = format!("HTTP/1.1 {status} {reason}\r\n");
    let frames =
        |name: &str| ["content-length", "transfer-encoding"].iter().any(|it| name.eq_ignore_ascii_case(it));
    for (name, value) in scripted.headers.iter().filter(|(name, _)| !frames(name)) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if scripted.gzip {
        head.push_str("content-encoding: gzip\r\n");
    }
    head.push_str(framing);
    head.push_str("\r\n");
    head.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_where_the_script_says_also_inside_a_character() {
        let text = "aé".as_bytes();
        assert_eq!(parts(text, None), [text]);
        assert_eq!(parts(text, Some(&Step::SplitAt(2))), [&text[..2], &text[2..]]);
        assert_eq!(parts(text, Some(&Step::SplitAt(99))), [text]);
        assert_eq!(parts(text, Some(&Step::ByteByByte)).len(), 3);
    }
}
