//! What a backend's chat template cannot read: the engine itself renders some small conversations.
//!
//! `/tokenize` of vLLM and SGLang and `/apply-template` of the llama.cpp family render without computing anything, beside a
//! running prefill, as the engine would in earnest. A page that is missing or late says nothing. Sources: vLLM 0.32
//! (`entrypoints/serve/tokenize`), llama.cpp build 11434 (`server-context.cpp`).

use http::StatusCode;
use serde_json::Value;
use switchback_parsers::needs::{Need, PROBES, needs_of};

use super::ask::{Answer, Ask};

/// Asks for the needs; `None` if the engine does not render, or not in time.
pub(super) async fn ask(ask: &mut Ask<'_>, path: &str) -> Option<Vec<Need>> {
    let mut told = Vec::with_capacity(PROBES.len());
    for probe in PROBES {
        let body = format!("{{\"messages\":{}}}", probe.messages());
        let rendered = rendered(&ask.post(path, body).await);
        // Without the first one the others say nothing.
        if told.is_empty() && rendered != Some(true) {
            return None;
        }
        told.push((probe, rendered));
    }
    needs_of(|probe| told.iter().find(|(asked, _)| *asked == probe).and_then(|(_, rendered)| *rendered))
}

/// An error object under 400 or 500 is a template's refusal; any other status is about something else.
fn rendered(answer: &Answer) -> Option<bool> {
    let Answer::Said(said) = answer else { return None };
    match said.status {
        StatusCode::OK => Some(true),
        StatusCode::BAD_REQUEST | StatusCode::INTERNAL_SERVER_ERROR => {
            serde_json::from_slice::<Value>(&said.body).is_ok_and(|body| body.is_object()).then_some(false)
        }
        _ => None,
    }
}
