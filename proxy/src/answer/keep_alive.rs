//! What a waiting client hears, so that it does not give up and start the same prefill again.
//!
//! A comment reaches every client's parser but is no progress for each: Codex counts events, Qwen Code chunks. It is never
//! `: ping`, which one reader takes for an end, and never carries an id line.

use bytes::Bytes;
use serde_json::json;
use switchback_parsers::chunk::Dialect;
use switchback_policies::client::KeepAlive;

use crate::call::Call;

const COMMENT: Bytes = Bytes::from_static(b":\n\n");
const BLANK: Bytes = Bytes::from_static(b" ");
const PING: Bytes = Bytes::from_static(b"event: ping\ndata: {\"type\":\"ping\"}\n\n");

/// One client's word for "still here".
#[derive(Clone, Debug)]
pub(crate) struct KeepAliveWord {
    bytes: Bytes,
    may_comment: bool,
}

impl KeepAliveWord {
    /// The word of a kind in a request's dialect. A kind that the dialect has no form for becomes a comment.
    pub(crate) fn new(kind: KeepAlive, call: &Call) -> Self {
        let dialect = call.endpoint.dialect;
        let bytes = match (kind, dialect) {
            (KeepAlive::None, _) => Bytes::new(),
            (KeepAlive::EmptyDelta, Some(Dialect::Chat)) => empty_delta(call),
            (KeepAlive::Ping, Some(Dialect::Messages | Dialect::Responses)) => PING,
            (KeepAlive::Comment | KeepAlive::EmptyDelta | KeepAlive::Ping, _) => COMMENT,
        };
        // Who gets comments may get others; who gets something else may break on them.
        let may_comment = bytes == COMMENT;
        Self { bytes, may_comment }
    }

    /// The word in a plain answer: a blank before its JSON, which all readers of JSON pass over.
    pub(crate) fn blank() -> Self {
        Self { bytes: BLANK, may_comment: false }
    }

    /// What to send.
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// False: the client bears silence and nothing else.
    pub(crate) fn speaks(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Whether other comments may be sent, too.
    pub(crate) fn may_comment(&self) -> bool {
        self.may_comment
    }
}

fn empty_delta(call: &Call) -> Bytes {
    let chunk = json!({
        "id": format!("chatcmpl-{}", call.id),
        "object": "chat.completion.chunk",
        "created": 0,
        "model": call.model,
        "choices": [{ "index": 0, "delta": { "content": "" }, "finish_reason": null }],
    });
    Bytes::from(format!("data: {chunk}\n\n"))
}
