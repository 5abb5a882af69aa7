//! LM Studio: models are loaded on request, and only a loaded one has a window.
//!
//! `/api/v1/models` (0.4) and `/api/v0/models` before. Its server answers 200 with an error to paths that it does not know:
//! only the shape of an answer tells. Embedding models are listed beside the others and serve no chat.
//! Source: the documentation's examples, and answers of 0.4 published by users.

use serde_json::Value;

use super::ask::Ask;
use super::found::Found;
use super::list::text;

/// A model of the list, in the words of either version.
#[derive(Debug)]
struct Model<'a> {
    key: &'a str,
    embeds: bool,
    images: Option<bool>,
    longest: Option<u64>,
    /// Names and windows under which it is loaded.
    instances: Vec<(&'a str, Option<u64>)>,
    parallel: Option<u64>,
}

/// Whether this is LM Studio; if so, fills in what it tells of itself.
pub(super) async fn describe(ask: &mut Ask<'_>, found: &mut Found) -> bool {
    if let Some(page) = ask.json("/api/v1/models").await
        && let Some(models) = listed(&page, "models", version_1)
    {
        fill(&models, ask.model(), found);
        return true;
    }
    if let Some(page) = ask.json("/api/v0/models").await
        && let Some(models) = listed(&page, "data", version_0)
    {
        fill(&models, ask.model(), found);
        return true;
    }
    false
}

/// The models of a page; `None` if none has the expected shape.
fn listed<'a>(
    page: &'a Value,
    member: &str,
    read: fn(&'a Value) -> Option<Model<'a>>,
) -> Option<Vec<Model<'a>>> {
    let models: Vec<_> = page.get(member)?.as_array()?.iter().filter_map(read).collect();
    (!models.is_empty()).then_some(models)
}

fn version_1(model: &Value) -> Option<Model<'_>> {
    let loaded = model.get("loaded_instances")?.as_array()?;
    let number = |instance: &Value, name: &str| instance.get("config")?.get(name)?.as_u64();
    Some(Model {
        key: text(model, "key")?,
        embeds: text(model, "type")? == "embedding",
        images: model.pointer("/capabilities/vision").and_then(Value::as_bool),
        longest: model.get("max_context_length").and_then(Value::as_u64),
        instances: loaded
            .iter()
            .filter_map(|instance| Some((text(instance, "id")?, number(instance, "context_length"))))
            .collect(),
        parallel: loaded.iter().filter_map(|instance| number(instance, "parallel")).min(),
    })
}

fn version_0(model: &Value) -> Option<Model<'_>> {
    let (key, kind) = (text(model, "id")?, text(model, "type")?);
    let window = model.get("loaded_context_length").and_then(Value::as_u64);
    let is_loaded = text(model, "state")? == "loaded";
    Some(Model {
        key,
        embeds: kind == "embeddings",
        images: Some(kind == "vlm"),
        longest: model.get("max_context_length").and_then(Value::as_u64),
        instances: if is_loaded { vec![(key, window)] } else { Vec::new() },
        parallel: None,
    })
}

fn fill(models: &[Model<'_>], asked: Option<&str>, found: &mut Found) {
    let chat = || models.iter().filter(|model| !model.embeds);
    let is_meant = |model: &&Model<'_>| {
        asked.is_none_or(|asked| model.key == asked || model.instances.iter().any(|(id, _)| *id == asked))
    };
    let loaded = || chat().flat_map(|model| &model.instances);
    let mut names: Vec<String> = loaded().map(|(id, _)| (*id).to_owned()).collect();
    found.loaded = Some(names.len());
    for name in std::mem::take(&mut found.names) {
        let embeds = models.iter().any(|model| model.embeds && model.key == name);
        if !embeds && !names.contains(&name) {
            names.push(name);
        }
    }
    found.names = names;
    let meant = || chat().filter(is_meant);
    found.window = meant().flat_map(|model| &model.instances).filter_map(|(_, window)| *window).min();
    found.slots = meant().filter_map(|model| model.parallel).min();
    // Of one model these are facts; of several that may be loaded next, nothing is known.
    let one = meant().find(|model| !model.instances.is_empty()).or_else(|| meant().next());
    let one = one.filter(|_| asked.is_some() || loaded().count() == 1 || chat().count() == 1);
    found.window_at_most = one.and_then(|model| model.longest);
    found.images = one.and_then(|model| model.images);
}
