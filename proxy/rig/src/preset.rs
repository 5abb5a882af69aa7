//! Presets: the published machines by slug, and how a file's entry is laid over one.
//!
//! The figures are data (`presets.toml`, with their sources); this file only finds and merges them. It must never
//! hold a figure.

use toml::{Table, Value};

use crate::{Spec, SpecError};

const PRESETS: &str = include_str!("presets.toml");

impl Spec {
    /// The published machine with this slug, such as `vllm/dual`. Its name is the slug.
    ///
    /// # Errors
    /// [`SpecError::Preset`] with the known slugs.
    pub fn preset(slug: &str) -> Result<Self, SpecError> {
        read(slug, preset_table(slug)?)
    }

    /// All presets: slug and spec, in the order of the slugs.
    ///
    /// # Errors
    /// None that a build can have: the presets are part of it.
    pub fn presets() -> Result<Vec<(String, Self)>, SpecError> {
        let mut presets = Vec::new();
        for slug in tables()?.keys() {
            presets.push((slug.clone(), Self::preset(slug)?));
        }
        Ok(presets)
    }
}

/// The preset's own members, with its slug as the name.
pub(crate) fn preset_table(slug: &str) -> Result<Table, SpecError> {
    let mut tables = tables()?;
    let known = tables.keys().cloned().collect::<Vec<_>>().join(", ");
    match tables.remove(slug) {
        Some(Value::Table(mut table)) => {
            table.insert("name".to_owned(), Value::from(slug));
            Ok(table)
        }
        _ => Err(SpecError::Preset { slug: slug.to_owned(), known }),
    }
}

fn tables() -> Result<Table, SpecError> {
    PRESETS.parse().map_err(|error: toml::de::Error| syntax("presets", &error))
}

/// Lays `over` on `base`, member by member, tables within tables too.
pub(crate) fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// A spec from its members, checked.
pub(crate) fn read(place: &str, table: Table) -> Result<Spec, SpecError> {
    let mut spec: Spec = table.try_into().map_err(|error: toml::de::Error| syntax(place, &error))?;
    if spec.name.is_empty() {
        spec.name = spec.engine.as_str().to_owned();
    }
    spec.check()?;
    Ok(spec)
}

pub(crate) fn syntax(place: &str, error: &toml::de::Error) -> SpecError {
    SpecError::Syntax { place: place.to_owned(), problem: error.to_string().trim_end().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_sound_spec() {
        let presets = Spec::presets().unwrap();
        for slug in ["vllm/dual", "vllm/minimal", "vllm/long-text", "llamacpp/default"] {
            assert!(presets.iter().any(|(known, spec)| known == slug && spec.name == slug), "{slug}");
        }
    }

    #[test]
    fn an_unknown_preset_is_answered_with_the_known_ones() {
        let error = Spec::preset("vllm/duel").unwrap_err().to_string();
        assert!(error.contains("\"vllm/duel\"") && error.contains("vllm/dual,"), "{error}");
    }
}
