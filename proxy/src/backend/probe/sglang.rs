//! SGLang: `/model_info`, and `/server_info`, which asks its scheduler and so may come late.
//!
//! Must never ask `/health`, which computes a token and waits at least a second. `/server_info` holds keys in the clear:
//! only what is named here is kept. Source: SGLang 0.5.23 (`srt/entrypoints/http_server.py`).

use serde_json::Value;
use switchback_parsers::tool_call::family_of_parser;

use super::ask::Ask;
use super::found::{Found, ReasoningField};
use super::list::text;

/// Fills in what SGLang tells of itself.
pub(super) async fn describe(ask: &mut Ask<'_>, found: &mut Found) {
    found.reasoning = Some(ReasoningField::ReasoningContent);
    found.pool_shared = Some(true);
    if let Some(model) = ask.json("/model_info").await {
        found.images = model.get("has_image_understanding").and_then(Value::as_bool);
    }
    let Some(server) = ask.json("/server_info").await else { return };
    let number = |member: &str| server.get(member).and_then(Value::as_u64).filter(|number| *number > 0);
    found.version = text(&server, "version").map(str::to_owned);
    found.pool = number("max_total_num_tokens");
    found.slots = number("max_running_requests");
    found.tool_parser = server.get("tool_call_parser").map(|parser| !parser.is_null());
    found.family = text(&server, "tool_call_parser").and_then(family_of_parser);
}
