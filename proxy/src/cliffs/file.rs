//! The file of cliff maps: small JSON that people can read, mend and send to each other.
//!
//! Written beside itself and renamed, so that a crash leaves the old file or the new one. What is not known here is refused
//! by name, never dropped; a damaged file is moved aside, never overwritten. It holds names of backends and models, sizes and times; nothing of any prompt.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use switchback_policies::cliff::{Axis, Cliffs, Dimension, Killer, first_of, step};

use super::Maps;

/// The version of the format.
const FORMAT: u32 = 1;

/// The longest file that is read.
const LONGEST: u64 = 16 << 20;

/// Why the maps could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{}: {problem}", path.display())]
    Senseless { path: PathBuf, problem: String },
    /// What this program has written is not what stands there.
    #[error("{} is damaged: {problem}", path.display())]
    Damaged { path: PathBuf, problem: String },
    #[error("cannot write {}: {source}", path.display())]
    Unwritable { path: PathBuf, source: std::io::Error },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// The format's version.
    switchback_cliffs: u32,
    backends: Vec<Map>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Map {
    backend: String,
    model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    forgotten: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    deaths: u64,
    #[serde(default)]
    new: Sizes,
    #[serde(default)]
    accumulated: Sizes,
    #[serde(default)]
    resident: Sizes,
    #[serde(default)]
    running: Sizes,
    #[serde(default)]
    images: Sizes,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Sizes {
    deaths: Vec<Death>,
    /// From so many on: so often.
    survived: BTreeMap<u64, u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Death {
    size: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    survived: u64,
    confidence: f64,
    at: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What a kept file holds. A damaged one is moved aside, said so, and counts as none: what is learned from now on is kept.
pub(super) fn or_aside<T: Default>(read: Result<T, FileError>) -> Result<T, FileError> {
    let Err(FileError::Damaged { path, problem }) = read else { return read };
    let mut aside = path.clone().into_os_string();
    aside.push(".damaged");
    let aside = PathBuf::from(aside);
    match std::fs::rename(&path, &aside) {
        Ok(()) => {
            let (file, aside) = (path.display(), aside.display());
            tracing::warn!(%file, %aside, problem, "a damaged file is moved aside, and what it held is learned anew");
            Ok(T::default())
        }
        Err(_) => Err(FileError::Damaged { path, problem }),
    }
}

/// What stands in a file of at most `longest` bytes, and of this format by the member `version`; `None`: there is no file.
pub(crate) fn load<T: DeserializeOwned>(
    path: &Path,
    longest: u64,
    (version, format): (&str, u32),
) -> Result<Option<T>, FileError> {
    let unreadable = |source| FileError::Unreadable { path: path.to_owned(), source };
    let senseless = |problem: String| FileError::Senseless { path: path.to_owned(), problem };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
        // A pipe would be waited for without an end.
        Ok(meta) if !meta.is_file() => return Err(senseless("is no file".to_owned())),
        Ok(meta) if meta.len() > longest => {
            return Err(senseless(format!("has {} bytes, the limit is {longest}", meta.len())));
        }
        Ok(_) => {}
    }
    let text = std::fs::read(path).map_err(unreadable)?;
    let damaged = |error: serde_json::Error| damaged(path, error.to_string());
    let value: serde_json::Value = serde_json::from_slice(&text).map_err(damaged)?;
    match value.get(version).and_then(serde_json::Value::as_u64) {
        // Of another version of this program, which may want it back.
        Some(other) if other != u64::from(format) => {
            Err(senseless(format!("is format {other}, this program reads {format}")))
        }
        _ => serde_json::from_value(value).map(Some).map_err(damaged),
    }
}

pub(super) fn damaged(path: &Path, problem: String) -> FileError {
    FileError::Damaged { path: path.to_owned(), problem }
}

/// The maps in a file; none if there is no file.
pub(crate) fn read(path: &Path) -> Result<Maps, FileError> {
    let Some(file) = load::<File>(path, LONGEST, ("switchback_cliffs", FORMAT))? else {
        return Ok(Maps::new());
    };
    let mut maps = Maps::new();
    for map in file.backends {
        let name = (map.backend.clone(), map.model.clone());
        if maps.contains_key(&name) {
            return Err(damaged(path, format!("has backend {} with model {} twice", name.0, name.1)));
        }
        maps.insert(name, map.into());
    }
    Ok(maps)
}

/// The maps as text.
pub(crate) fn to_json(maps: &Maps) -> String {
    let backends = maps.iter().map(|((backend, model), cliffs)| Map::of(backend, model, cliffs)).collect();
    let file = File { switchback_cliffs: FORMAT, backends };
    // Numbers and strings: there is nothing that could fail.
    serde_json::to_string_pretty(&file).unwrap_or_default()
}

/// Replaces the file.
pub(crate) fn write(path: &Path, maps: &Maps) -> Result<(), FileError> {
    replace(path, &(to_json(maps) + "\n"))
}

/// Puts a text in the place of a file, whole or not at all.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), FileError> {
    let unwritable = |source| FileError::Unwritable { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(unwritable)?;
    }
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let replaced = std::fs::File::create(&beside).and_then(|mut file| {
        std::io::Write::write_all(&mut file, text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    });
    if replaced.is_err() {
        // The error that counts is the first.
        let _ = std::fs::remove_file(&beside);
    }
    replaced.map_err(unwritable)
}

impl Map {
    fn of(backend: &str, model: &str, cliffs: &Cliffs) -> Self {
        let sizes = |dimension| Sizes::of(cliffs.axis(dimension));
        Self {
            backend: backend.to_owned(),
            model: model.to_owned(),
            version: cliffs.version.clone(),
            forgotten: cliffs.forgotten,
            deaths: cliffs.deaths,
            new: sizes(Dimension::New),
            accumulated: sizes(Dimension::Accumulated),
            resident: sizes(Dimension::Resident),
            running: sizes(Dimension::Running),
            images: sizes(Dimension::Images),
        }
    }
}

impl From<Map> for Cliffs {
    fn from(map: Map) -> Self {
        let axes = [map.new, map.accumulated, map.resident, map.running, map.images].map(Axis::from);
        Self { axes, version: map.version, forgotten: map.forgotten, deaths: map.deaths }
    }
}

impl Sizes {
    fn of(axis: &Axis) -> Self {
        let death = |killer: &Killer| Death {
            size: killer.size,
            survived: killer.survived,
            confidence: killer.confidence,
            at: killer.at,
        };
        let survived = axis.survived.iter().map(|(step, count)| (first_of(*step), *count));
        Self { deaths: axis.killers.iter().map(death).collect(), survived: survived.collect() }
    }
}

impl From<Sizes> for Axis {
    fn from(sizes: Sizes) -> Self {
        let killer = |death: Death| Killer {
            size: death.size,
            survived: death.survived,
            // A hand may have written it.
            confidence: if death.confidence.is_finite() { death.confidence.clamp(0.0, 1.0) } else { 1.0 },
            at: death.at,
        };
        let mut axis = Self { killers: sizes.deaths.into_iter().map(killer).collect(), ..Self::default() };
        for (size, count) in sizes.survived {
            let own = axis.survived.entry(step(size)).or_default();
            *own = own.saturating_add(count);
        }
        axis
    }
}
