//! `[[model]]`: which names are asked for, and who serves them in which order.

use serde_json::Value;

use super::quoted;
use crate::wire::case::Case;

/// One table for each model name that is asked for; all backends, the preferred ones first.
pub(super) fn models(case: &Case) -> String {
    let listed = || case.backends.iter().map(|backend| backend.name.as_str());
    let preferred: Vec<&str> = case
        .settings
        .get("failover")
        .and_then(|failover| failover.get("order")?.as_array())
        .map(|order| order.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let mut order = preferred.clone();
    order.extend(listed().filter(|name| !preferred.contains(name)));
    let order: Vec<String> = order.into_iter().map(quoted).collect();

    let asked = case.requests.iter().filter_map(|request| request.body.get("model")?.as_str());
    let mut tables: Vec<(&str, Vec<&str>)> = Vec::new();
    for asked in asked {
        let name = target(case, asked).unwrap_or(asked);
        let place = tables.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            tables.push((name, Vec::new()));
            tables.len() - 1
        });
        let aliases = &mut tables[place].1;
        if asked != name && !aliases.contains(&asked) {
            aliases.push(asked);
        }
    }
    if tables.is_empty() {
        tables.push((
            case.backends.iter().find_map(|backend| backend.serves.as_deref()).unwrap_or("model"),
            Vec::new(),
        ));
    }
    let table = |(name, aliases): &(&str, Vec<&str>)| {
        let aliases: Vec<String> = aliases.iter().copied().map(quoted).collect();
        let (name, aliases, order) = (quoted(name), aliases.join(", "), order.join(", "));
        format!("[[model]]\nname = {name}\naliases = [{aliases}]\nbackends = [{order}]\n\n")
    };
    tables.iter().map(table).collect()
}

/// What a name that is asked for stands for. We list names and have no `*`: the operator lists those that are used.
fn target<'a>(case: &'a Case, asked: &str) -> Option<&'a str> {
    let aliases = case.settings.get("model_aliases")?;
    aliases.get(asked).or_else(|| aliases.get("*"))?.as_str()
}
