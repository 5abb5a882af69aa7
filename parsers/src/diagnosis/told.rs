//! What an error body tells, whatever its shape: a sentence, and where given a type, a parameter and a code.
//!
//! Shapes: `{"error":{…}}` of OpenAI, vLLM, llama.cpp; `{"type":"error","error":{…}}` of Messages; flat
//! `{"object":"error",…}` of SGLang and older vLLM; `{"error":"…"}` of LM Studio, TGI and Ollama; `{"detail":…}` of
//! FastAPI; `response.failed` of Responses; text; HTML; nothing.

use crate::json::{Kind, Value};

/// The most that is kept of an engine's sentence. Validation errors repeat the whole request.
const MESSAGE_LIMIT: usize = 2048;

/// What a body tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// Its sentence, at most 2 KiB.
    pub(super) message: String,
    /// `type`, else TGI's `error_type`.
    pub(super) kind: Option<String>,
    /// A `code` that is a word: `context_length_exceeded`.
    pub(super) word: Option<String>,
    /// `param`.
    pub(super) param: Option<String>,
    /// A `code` that is a number: the status that the engine would have sent, had it not sent 200 before.
    pub(super) code: Option<u16>,
    /// llama.cpp's count of the prompt, and its window.
    pub(super) prompt: Option<u64>,
    pub(super) limit: Option<u64>,
}

/// Reads a body.
pub(super) fn read(body: &[u8]) -> Told {
    let Ok(text) = std::str::from_utf8(body) else {
        return Told { message: format!("{} bytes that are no text", body.len()), ..Told::default() };
    };
    let text = text.trim();
    let mut told = match Value::parse(text) {
        Ok(root) => read_json(root),
        Err(_) => Told::default(),
    };
    if told.message.is_empty() {
        told.message = match text {
            "" => "empty body".to_owned(),
            _ => title(text).unwrap_or(text).to_owned(),
        };
    }
    shorten(&mut told.message);
    told
}

fn read_json(root: Value<'_>) -> Told {
    let error = root.get("error").or_else(|| root.at("/response/error")).filter(|e| !e.is_null());
    let inner = error.filter(|e| e.kind() == Kind::Object).unwrap_or(root);
    let text = |name: &str| inner.get(name).and_then(Value::as_str).filter(|s| !s.is_empty());
    let mut told = Told::default();
    // An error that is a string may stand beside a message; both are told.
    let sentences =
        [error.and_then(Value::as_str), text("message"), inner.get("detail").and_then(Value::as_str)];
    for sentence in sentences.into_iter().flatten().filter(|s| !s.is_empty()) {
        if !told.message.contains(&*sentence) {
            told.message.push_str(if told.message.is_empty() { "" } else { ": " });
            told.message.push_str(&sentence);
        }
    }
    let code = inner.get("code").or_else(|| root.get("code"));
    told.code =
        code.and_then(|c| c.as_u64().or_else(|| c.as_str()?.parse().ok())).and_then(|c| c.try_into().ok());
    told.word = code.and_then(Value::as_str).filter(|_| told.code.is_none()).map(Into::into);
    told.kind = text("type").filter(|kind| kind != "error").or_else(|| text("error_type")).map(Into::into);
    told.param = text("param").map(Into::into);
    told.prompt = inner.get("n_prompt_tokens").and_then(Value::as_u64);
    told.limit = inner.get("n_ctx").and_then(Value::as_u64);
    if let Some(first) = inner.get("detail").and_then(|detail| detail.elements().next()) {
        read_fastapi(first, &mut told);
    }
    told
}

/// `{"loc":["body","messages",0,"role"],"msg":"Field required"}`
fn read_fastapi(detail: Value<'_>, told: &mut Told) {
    let steps = detail.get("loc").into_iter().flat_map(Value::elements);
    let path: Vec<_> =
        steps.map(|step| step.as_str().unwrap_or(step.raw().into())).filter(|s| s != "body").collect();
    let message = detail.get("msg").and_then(Value::as_str).unwrap_or_default();
    told.message = if path.is_empty() { message.into() } else { format!("{}: {message}", path.join(".")) };
    told.param = (!path.is_empty()).then(|| path.join("."));
}

/// The title of an HTML page, as servers in front of an engine send it: `502 Bad Gateway`.
fn title(text: &str) -> Option<&str> {
    if !text.starts_with('<') {
        return None;
    }
    let (_, behind) = text.split_once("<title>")?;
    let (title, _) = behind.split_once("</title>")?;
    Some(title.trim()).filter(|t| !t.is_empty())
}

fn shorten(message: &mut String) {
    if message.len() > MESSAGE_LIMIT {
        const MARK: &str = " …";
        let mut end = MESSAGE_LIMIT - MARK.len();
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push_str(MARK);
    }
}
