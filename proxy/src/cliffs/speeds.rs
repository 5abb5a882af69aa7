//! How fast backends were, kept across restarts in a file beside the cliff maps.
//!
//! A speed belongs to a backend's name and the model that it serves, like a cliff. It is this machine's: unlike cliffs it is never
//! imported from another rig. Numbers that are none are refused; who deletes the file starts from what is published again.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use switchback_policies::speed::{Kept, Learner};

use super::Owner;
use super::file::{FileError, load, replace};

/// The version of the format.
const FORMAT: u32 = 1;

/// The longest file that is read.
const LONGEST: u64 = 1 << 20;

/// All speeds, as they are kept.
pub(crate) type Speeds = BTreeMap<Owner, Learner>;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    switchback_speeds: u32,
    backends: Vec<Speed>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Speed {
    backend: String,
    model: String,
    prefill: [f64; 5],
    decode: [f64; 5],
    company: [f64; 4],
    reuse: f64,
    readings: u32,
}

/// The speeds in a file; none if there is no file.
pub(super) fn read(path: &Path) -> Result<Speeds, FileError> {
    let Some(file) = load::<File>(path, LONGEST)? else { return Ok(Speeds::new()) };
    let senseless = |problem: String| FileError::Senseless { path: path.to_owned(), problem };
    if file.switchback_speeds != FORMAT {
        return Err(senseless(format!("is format {}, this program reads {FORMAT}", file.switchback_speeds)));
    }
    let speed = |speed: Speed| {
        let Speed { backend, model, prefill, decode, company, reuse, readings } = speed;
        let learner = Learner::of(Kept { prefill, decode, company, reuse, readings });
        let problem = format!("the speed of {backend} has a number that is none");
        learner.map(|learner| ((backend, model), learner)).ok_or_else(|| senseless(problem))
    };
    file.backends.into_iter().map(speed).collect()
}

/// Replaces the file.
pub(super) fn write(path: &Path, speeds: &Speeds) -> Result<(), FileError> {
    let speed = |((backend, model), learner): (&Owner, &Learner)| {
        let Kept { prefill, decode, company, reuse, readings } = learner.kept();
        let (backend, model) = (backend.clone(), model.clone());
        Speed { backend, model, prefill, decode, company, reuse, readings }
    };
    let file = File { switchback_speeds: FORMAT, backends: speeds.iter().map(speed).collect() };
    // Numbers and strings: there is nothing that could fail.
    replace(path, &(serde_json::to_string_pretty(&file).unwrap_or_default() + "\n"))
}
