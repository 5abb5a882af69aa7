//! Text Generation Inference: `/info`, a page of its router.
//!
//! Must never ask `/health`, which may run a prefill on the card. Source: text-generation-inference db931fc.

use serde_json::Value;

use super::ask::Ask;
use super::found::Found;
use super::list::text;

/// Whether this is TGI; if so, fills in what it tells of itself.
pub(super) async fn describe(ask: &mut Ask<'_>, found: &mut Found) -> bool {
    let Some(page) = ask.json("/info").await else { return false };
    let number = |member: &str| page.get(member).and_then(Value::as_u64).filter(|number| *number > 0);
    let (Some(window), true) = (number("max_total_tokens"), text(&page, "model_id").is_some()) else {
        return false;
    };
    found.window = Some(window);
    // Older routers call it length.
    found.prompt_limit = number("max_input_tokens").or_else(|| number("max_input_length"));
    found.version = text(&page, "version").map(str::to_owned);
    true
}
