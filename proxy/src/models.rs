//! Which names clients may ask for, and which backends serve each.
//!
//! A configured model has its own list. Every name that a backend serves may be asked for, too; `auto`, or no name at all,
//! means the first configured model, else all backends. Where ports are shared, names change with each boot: so the
//! backends' own names are read from the last probe, not remembered.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};
use switchback_policies::facts::BackendState;

use crate::app::App;
use crate::error::ApiError;

/// Takes the first backend that fits.
const AUTO: &str = "auto";

/// As an alias of a model: whatever nobody else is called.
const ANY: &str = "*";

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Positions in the fleet, in order of preference.
    pub(crate) backends: Vec<usize>,
    /// Position of the configured model, if it is one.
    pub(crate) model: Option<usize>,
}

impl Target {
    /// Only the backends that a client may use, in its order; those of `first` before the others.
    pub(crate) fn only(mut self, allowed: Option<&[usize]>, first: &[usize]) -> Result<Self, ApiError> {
        if let Some(allowed) = allowed {
            self.backends =
                allowed.iter().copied().filter(|backend| self.backends.contains(backend)).collect();
            if self.backends.is_empty() {
                return Err(ApiError::not_for_client());
            }
        }
        let place = |backend: &usize| first.iter().position(|first| first == backend);
        self.backends.sort_by_key(|backend| place(backend).unwrap_or(usize::MAX));
        Ok(self)
    }
}

/// Finds the backends for a name.
pub(crate) fn resolve(app: &App, asked: Option<&str>) -> Result<Target, ApiError> {
    let configured = |name: &str| {
        app.config
            .models
            .iter()
            .position(|model| model.name == name || model.aliases.iter().any(|alias| alias == name))
    };
    let of_model =
        |model: usize| Target { backends: app.config.models[model].backends.clone(), model: Some(model) };
    let everything = || match app.config.models.first() {
        Some(_) => of_model(0),
        None => Target { backends: (0..app.fleet.all().len()).collect(), model: None },
    };
    let Some(asked) = asked.filter(|asked| !asked.is_empty()) else { return Ok(everything()) };
    if let Some(model) = configured(asked) {
        return Ok(of_model(model));
    }
    let serves: Vec<usize> = app
        .fleet
        .all()
        .iter()
        .enumerate()
        .filter(|(_, backend)| backend.names().iter().any(|name| name == asked))
        .map(|(position, _)| position)
        .collect();
    if !serves.is_empty() {
        // The model that lists one of them lends its vocabulary.
        let model =
            app.config.models.iter().position(|model| serves.iter().all(|at| model.backends.contains(at)));
        return Ok(Target { backends: serves, model });
    }
    if asked == AUTO {
        return Ok(everything());
    }
    if let Some(model) = configured(ANY) {
        return Ok(of_model(model));
    }
    let all_unseen = app.fleet.all().iter().all(|backend| backend.names().is_empty());
    if app.config.models.is_empty() && all_unseen {
        // Nobody has told any name yet: whoever answers will say whether it knows this one.
        return Ok(everything());
    }
    let known = names(app);
    let near = crate::config::nearest(asked, known.iter().map(String::as_str)).map(str::to_owned);
    Err(ApiError::model_not_found(asked, &known, near.as_deref()))
}

/// Whether the operator lists both backends under one model, and that is what was asked for. What takes any name is no model.
pub(crate) fn are_one(app: &App, asked: Option<&str>, backends: [&str; 2]) -> bool {
    let model = resolve(app, asked).ok().and_then(|target| target.model);
    let Some(model) = model.and_then(|model| app.config.models.get(model)) else { return false };
    let listed = app.fleet.at(&model.backends);
    ![AUTO, ANY].contains(&model.name.as_str())
        && backends.iter().all(|name| listed.iter().any(|backend| backend.name() == *name))
}

/// All names that may be asked for.
pub(crate) fn names(app: &App) -> Vec<String> {
    let mut seen = HashSet::new();
    let configured =
        app.config.models.iter().flat_map(|model| std::iter::once(&model.name).chain(&model.aliases));
    let served = app.fleet.all().iter().flat_map(|backend| backend.names());
    let all = configured.cloned().chain(served).chain(std::iter::once(AUTO.to_owned()));
    all.filter(|name| name != ANY && seen.insert(name.clone())).collect()
}

/// The model list: one card a name.
pub(crate) fn list(app: &App) -> Vec<Value> {
    // Names that only backends know stand for exactly those that serve them; looked up once, since lists may be long.
    let mut serves: HashMap<String, Vec<usize>> = HashMap::new();
    for (position, backend) in app.fleet.all().iter().enumerate() {
        for name in backend.names() {
            serves.entry(name).or_default().push(position);
        }
    }
    let known = |name: &str| {
        app.config
            .models
            .iter()
            .any(|model| model.name == name || model.aliases.iter().any(|alias| alias == name))
    };
    let card = |name: &String| match serves.get(name).filter(|_| !known(name)) {
        Some(positions) => Some(card_of(app, name, positions)),
        None => card(app, name),
    };
    names(app).iter().filter_map(card).collect()
}

/// One entry of the model list, for a name that may be asked for.
pub(crate) fn card(app: &App, name: &str) -> Option<Value> {
    resolve(app, Some(name)).ok().map(|target| card_of(app, name, &target.backends))
}

/// The window is the largest that can be served now, under every name that clients read: `max_model_len` (vLLM),
/// `context_length` (OpenRouter), `context_window`, `meta.n_ctx` (llama.cpp).
fn card_of(app: &App, name: &str, positions: &[usize]) -> Value {
    let backends = app.fleet.at(positions);
    let largest = |up_only: bool| {
        // What can be loaded can be served.
        let serves = |state: BackendState| state == BackendState::NotLoaded || !state.is_gone();
        let counted = backends.iter().filter(|backend| !up_only || serves(backend.state()));
        counted
            .filter_map(|backend| {
                let facts = backend.facts();
                facts.window.into_iter().chain(facts.single).chain(facts.resident).min()
            })
            .max()
    };
    let mut card = json!({ "id": name, "object": "model", "created": 0, "owned_by": "switchback" });
    if let (Some(window), Some(members)) = (largest(true).or_else(|| largest(false)), card.as_object_mut()) {
        for member in ["max_model_len", "context_length", "context_window"] {
            members.insert(member.to_owned(), window.into());
        }
        members.insert("meta".to_owned(), json!({ "n_ctx": window }));
    }
    card
}
