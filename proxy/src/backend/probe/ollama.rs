//! Ollama: models are loaded on request, and only a loaded one has a window.
//!
//! `/api/ps` tells the window of what is loaded, `/api/show` what the model could have at most: the window in use is a
//! setting of the server and usually far smaller. A prompt above it is cut without a word, so neither may be guessed.
//! Source: ollama fb30760.

use serde_json::{Value, json};
use switchback_parsers::tool_call::family_of_template;

use super::ask::{Answer, Ask};
use super::found::{Found, ReasoningField};
use super::list::text;

/// Whether this is Ollama; if so, fills in what it tells of itself. Its version page has imitators, its greeting has none.
pub(super) async fn describe(ask: &mut Ask<'_>, found: &mut Found) -> bool {
    match ask.get("/").await {
        Answer::Said(said) if said.text().starts_with("Ollama is running") => {}
        _ => return false,
    }
    found.reasoning = Some(ReasoningField::Reasoning);
    let page = ask.json("/api/version").await;
    found.version = page.as_ref().and_then(|page| text(page, "version")).map(str::to_owned);
    if let Some(page) = ask.json("/api/ps").await {
        loaded(&page, ask.model(), found);
    }
    let Some(model) = ask.model().or(found.names.first().map(String::as_str)) else { return true };
    if let Some(page) = ask.post_json("/api/show", &json!({ "model": model })).await {
        show(&page, found);
    }
    true
}

/// Takes the list of loaded models: their windows, and their names to the front.
pub(super) fn loaded(page: &Value, model: Option<&str>, found: &mut Found) {
    let Some(models) = page.get("models").and_then(Value::as_array) else { return };
    let window =
        |model: &Value| model.get("context_length").and_then(Value::as_u64).filter(|window| *window > 0);
    let is = |loaded: &Value, name: &str| {
        text(loaded, "name").is_some_and(|own| own == name || own.strip_suffix(":latest") == Some(name))
    };
    found.window = match model {
        Some(model) => models.iter().find(|loaded| is(loaded, model)).and_then(window),
        None => models.iter().filter_map(window).min(),
    };
    let is_loaded = |name: &String| models.iter().any(|loaded| is(loaded, name));
    found.names.sort_by_key(|name| !is_loaded(name));
    found.loaded = Some(found.names.iter().filter(|name| is_loaded(name)).count());
}

fn show(page: &Value, found: &mut Found) {
    if let Some(capabilities) = page.get("capabilities").and_then(Value::as_array) {
        let can = |what: &str| Some(capabilities.iter().any(|capability| capability == what));
        found.images = can("vision");
        found.tool_parser = can("tools");
    }
    found.family = text(page, "template").and_then(family_of_template);
    let Some(info) = page.get("model_info") else { return };
    let Some(family) = text(info, "general.architecture") else { return };
    found.window_at_most = info.get(format!("{family}.context_length")).and_then(Value::as_u64);
}
