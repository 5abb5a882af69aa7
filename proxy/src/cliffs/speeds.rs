//! How fast backends were, and how long they took to be loaded, kept across restarts in a file beside the cliff maps.
//!
//! A speed belongs to a backend's name and the model that it serves, like a cliff; a load to the name alone, since what serves
//! is not known before. Both are this machine's: unlike cliffs they are never imported from another rig. Numbers that are none are refused; who deletes the file starts from what is published again.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use switchback_policies::speed::{Kept, Learner};

use super::Owner;
use super::file::{FileError, damaged, load, replace};

/// The version of the format.
const FORMAT: u32 = 1;

/// The longest file that is read.
const LONGEST: u64 = 1 << 20;

/// The longest load that is believed: a file may have been written by a hand.
const LONGEST_LOAD: f64 = 86_400.0;

/// All that is kept here.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Speeds {
    /// Of reading and writing tokens.
    pub(super) tokens: BTreeMap<Owner, Learner>,
    /// How long each backend took to be loaded, by its name.
    pub(super) loads: BTreeMap<String, Duration>,
}

impl Speeds {
    /// Takes over what `newer` knows.
    pub(super) fn extend(&mut self, newer: Self) {
        self.tokens.extend(newer.tokens);
        self.loads.extend(newer.loads);
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    switchback_speeds: u32,
    backends: Vec<Speed>,
    /// Seconds, by the backend's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    loads: BTreeMap<String, f64>,
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
    let file = load::<File>(path, LONGEST, ("switchback_speeds", FORMAT))?;
    let Some(file) = file else { return Ok(Speeds::default()) };
    let speed = |speed: Speed| {
        let Speed { backend, model, prefill, decode, company, reuse, readings } = speed;
        let learner = Learner::of(Kept { prefill, decode, company, reuse, readings });
        let problem = format!("the speed of {backend} has a number that is none");
        learner.map(|learner| ((backend, model), learner)).ok_or_else(|| damaged(path, problem))
    };
    let load = |(backend, seconds): (String, f64)| {
        let problem =
            format!("the load time of {backend} is {seconds} s: it must be from 0 to {LONGEST_LOAD}");
        let time = Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds <= LONGEST_LOAD);
        time.map(|time| (backend, time)).ok_or_else(|| damaged(path, problem))
    };
    Ok(Speeds {
        tokens: file.backends.into_iter().map(speed).collect::<Result<_, _>>()?,
        loads: file.loads.into_iter().map(load).collect::<Result<_, _>>()?,
    })
}

/// Replaces the file.
pub(super) fn write(path: &Path, speeds: &Speeds) -> Result<(), FileError> {
    let speed = |((backend, model), learner): (&Owner, &Learner)| {
        let Kept { prefill, decode, company, reuse, readings } = learner.kept();
        let (backend, model) = (backend.clone(), model.clone());
        Speed { backend, model, prefill, decode, company, reuse, readings }
    };
    let file = File {
        switchback_speeds: FORMAT,
        backends: speeds.tokens.iter().map(speed).collect(),
        loads: speeds.loads.iter().map(|(backend, time)| (backend.clone(), time.as_secs_f64())).collect(),
    };
    // Numbers and strings: there is nothing that could fail.
    replace(path, &(serde_json::to_string_pretty(&file).unwrap_or_default() + "\n"))
}
