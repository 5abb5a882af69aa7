//! A text field of a multipart form, found without unpacking it: forms carry audio and pictures of many megabytes.
//!
//! Only what stands in a part's own head counts: a file may hold anything.

use http::HeaderValue;

/// Longer values are no names.
const LONGEST: usize = 1024;

/// The value of a field. `content_type` is the header that names the boundary.
pub(crate) fn field(content_type: Option<&HeaderValue>, body: &[u8], name: &str) -> Option<String> {
    let content_type = content_type?.to_str().ok()?;
    let boundary = parameter(content_type, "boundary")?;
    let mark = format!("--{boundary}");
    let mut rest = body;
    loop {
        let start = memchr::memmem::find(rest, mark.as_bytes())? + mark.len();
        rest = &rest[start..];
        let part = rest.strip_prefix(b"\r\n")?;
        let head_end = memchr::memmem::find(part, b"\r\n\r\n")?;
        let head = std::str::from_utf8(&part[..head_end]).unwrap_or_default();
        let value = &part[head_end + 4..];
        let is_wanted = head.split("\r\n").any(|line| {
            let (key, what) = line.split_once(':').unwrap_or_default();
            key.eq_ignore_ascii_case("content-disposition")
                && parameter(what, "name").as_deref() == Some(name)
        });
        if is_wanted {
            let end = memchr::memmem::find(value, format!("\r\n{mark}").as_bytes())?;
            let value = value.get(..end).filter(|value| value.len() <= LONGEST)?;
            return std::str::from_utf8(value).ok().map(|value| value.trim().to_owned());
        }
        rest = value;
    }
}

/// A parameter of a header's value, quoted or not.
fn parameter(header: &str, name: &str) -> Option<String> {
    header.split(';').skip(1).find_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"').to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(body: &str) -> Option<String> {
        field(
            Some(&HeaderValue::from_static("multipart/form-data; boundary=\"x\"")),
            body.as_bytes(),
            "model",
        )
    }

    #[test]
    fn the_model_of_a_form_is_found_in_every_spelling() {
        for head in [
            "Content-Disposition: form-data; name=\"model\"",
            "content-disposition: form-data; name=model",
            "Content-Disposition: form-data; name=\"model\"\r\nContent-Type: text/plain",
        ] {
            let file = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"model\"\r\n\r\nname=\"model\"\r\n\r\nno\r\n";
            assert_eq!(
                model(&format!("{file}--x\r\n{head}\r\n\r\nwhisper-1\r\n--x--\r\n")).as_deref(),
                Some("whisper-1"),
                "{head}"
            );
        }
    }

    #[test]
    fn what_is_no_field_of_that_name_is_none() {
        for body in [
            "",
            "--x",
            "--x--\r\n",
            "--x\r\nContent-Disposition: form-data; name=\"xmodel\"\r\n\r\nno\r\n--x--\r\n",
            "name=\"model\"\r\n\r\n",
        ] {
            assert_eq!(model(body), None, "{body}");
        }
    }
}
