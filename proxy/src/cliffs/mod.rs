//! The cliff maps of all backends: learned while serving, kept across restarts in one JSON file.
//!
//! A map belongs to a backend's name and the model that it serves: a port is no identity. Deaths are written at once, successes
//! now and then. Numbers from another rig, imported into the file while the proxy runs, are taken over and not overwritten.
//! Without a file all is learned anew after a restart; who starts the proxy is told so.
//!
//! How fast backends were, and how long they loaded, is kept beside it ([`speeds`]). Must never hold up a request: writing happens aside.

mod file;
mod speeds;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use switchback_policies::cliff::{Cliffs, Lesson, Region, Shape};
use switchback_policies::speed::Learner;
use tokio::sync::Notify;

use speeds::Speeds;

use file::or_aside;
pub(crate) use file::{load, read, replace, to_json, write};

/// How long successes may wait to be written. Also how soon an imported file is seen.
const SAVE_EVERY: Duration = Duration::from_secs(30);

/// Backend and model.
pub(crate) type Owner = (String, String);

/// All maps, as they are kept.
pub(crate) type Maps = BTreeMap<Owner, Cliffs>;

/// What is set about learning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Where the maps are kept; `None`: in memory only.
    pub(crate) file: Option<PathBuf>,
    pub(crate) learn: bool,
    /// Sizes a little above a learned limit may be tried on an idle backend if nobody else is left.
    pub(crate) explore: bool,
    /// Shorter prompts are guilty only if it happens again and again.
    pub(crate) floor: u64,
}

/// The maps while the proxy runs.
#[derive(Debug)]
pub(crate) struct CliffMaps {
    settings: Settings,
    maps: Mutex<Maps>,
    /// How fast backends were, and the file for that.
    speeds: Mutex<Speeds>,
    speeds_file: Option<PathBuf>,
    /// Something was learned that must not be lost.
    urgent: Notify,
}

impl Settings {
    /// Prompts that may have more tokens than this are worth an exact count: half of what could be guilty of a death.
    pub(crate) fn exact_above(&self) -> u64 {
        if self.learn { self.floor / 2 } else { u64::MAX }
    }
}

impl CliffMaps {
    /// Reads the file, if there is one. A damaged one is moved aside; one that cannot be read, or is no file, is said so and
    /// left alone.
    pub(crate) fn open(settings: Settings) -> Self {
        let mut settings = settings;
        let mut maps = Maps::new();
        if let Some(path) = &settings.file {
            match or_aside(read(path)) {
                Ok(known) => maps = known,
                Err(error) => {
                    tracing::error!(%error, "what is learned of cliffs is not kept: the file is left as it is");
                    settings.file = None;
                }
            }
        }
        let mut speeds_file = settings.file.as_ref().map(|file| file.with_file_name("speeds.json"));
        let mut speeds = Speeds::default();
        match speeds_file.as_deref().map(|file| or_aside(speeds::read(file))) {
            Some(Ok(known)) => speeds = known,
            Some(Err(error)) => {
                tracing::error!(%error, "what is learned of speeds is not kept: the file is left as it is");
                speeds_file = None;
            }
            None => {}
        }
        Self {
            settings,
            maps: Mutex::new(maps),
            speeds: Mutex::new(speeds),
            speeds_file,
            urgent: Notify::new(),
        }
    }

    /// Maps that learn nothing, for backends that are only looked for.
    pub(crate) fn nothing() -> Arc<Self> {
        Arc::new(Self::open(Settings { file: None, learn: false, explore: false, floor: 0 }))
    }

    /// The same maps under other settings; read anew if they are kept elsewhere.
    pub(crate) fn under(self: &Arc<Self>, settings: Settings) -> Arc<Self> {
        if self.settings == settings {
            return self.clone();
        }
        let other = Self::open(settings);
        merge(&mut other.maps.lock(), &self.maps.lock().clone());
        other.speeds.lock().extend(self.speeds.lock().clone());
        Arc::new(other)
    }

    /// The limits of a backend. Before it has said what it serves, those of the model that it served.
    pub(crate) fn region(&self, name: &str, model: Option<&str>) -> Region {
        if !self.settings.learn {
            return Region::default();
        }
        let maps = self.maps.lock();
        let known = match model {
            Some(model) => maps.get(&(name.to_owned(), model.to_owned())),
            None => maps.iter().find(|((owner, _), _)| owner == name).map(|(_, cliffs)| cliffs),
        };
        known.map(|cliffs| cliffs.region(self.settings.floor, self.settings.explore)).unwrap_or_default()
    }

    /// How fast a backend was with its model.
    pub(crate) fn speed(&self, owner: &Owner) -> Option<Learner> {
        self.speeds.lock().tokens.get(owner).cloned()
    }

    /// That is how fast it is.
    pub(crate) fn is_fast(&self, owner: Owner, speed: Learner) {
        self.speeds.lock().tokens.insert(owner, speed);
    }

    /// How long a backend took to be loaded.
    pub(crate) fn load_time(&self, backend: &str) -> Option<Duration> {
        self.speeds.lock().loads.get(backend).copied()
    }

    /// So long it took. Kept at once: loads are rare.
    pub(crate) fn took(&self, backend: &str, time: Duration) {
        self.speeds.lock().loads.insert(backend.to_owned(), time);
        self.urgent.notify_one();
    }

    /// A request of this shape was answered to its end.
    pub(crate) fn survived(&self, owner: Owner, shape: &Shape) {
        self.learn(owner, |cliffs| cliffs.survived(shape));
    }

    /// The backend died with a suspect of this shape.
    pub(crate) fn died(&self, owner: Owner, shape: &Shape) {
        let name = owner.0.clone();
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let lesson = self.learn(owner, |cliffs| cliffs.died(shape, at, self.settings.floor));
        let Lesson { lowered } = lesson.unwrap_or_default();
        if lowered.is_empty() {
            tracing::warn!(backend = name, ?shape, "engine died; its length is no proof yet");
        }
        for (dimension, was, limit) in lowered {
            tracing::warn!(
                backend = name,
                dimension = dimension.name(),
                died_of = shape.size(dimension),
                was,
                limit,
                "engine died: its limit is lowered (`switchback cliffs --forget NAME` takes that back)"
            );
        }
        self.urgent.notify_one();
    }

    /// The backend was stopped and started, and did not die.
    pub(crate) fn restarted(&self, owner: Owner) {
        self.learn(owner, Cliffs::restarted);
    }

    /// The backend says its version.
    pub(crate) fn is_version(&self, owner: Owner, version: &str) {
        self.learn(owner, |cliffs| cliffs.is_version(version));
    }

    fn learn<T>(&self, owner: Owner, change: impl FnOnce(&mut Cliffs) -> T) -> Option<T> {
        self.settings.learn.then(|| change(self.maps.lock().entry(owner).or_default()))
    }

    /// Keeps the file up to date, for ever. Cancelled by dropping; [`CliffMaps::save`] writes what is left then.
    pub(crate) async fn keep(self: Arc<Self>) {
        while self.settings.file.is_some() {
            tokio::select! {
                biased;
                () = self.urgent.notified() => {}
                () = tokio::time::sleep(SAVE_EVERY) => {}
            }
            let maps = self.clone();
            if tokio::task::spawn_blocking(move || maps.save()).await.is_err() {
                tracing::error!("cliff maps are not kept any more: writing them failed unexpectedly");
                return;
            }
        }
    }

    /// Takes over what the file knows more, and writes it if it knows less.
    pub(crate) fn save(&self) {
        self.save_speeds();
        let Some(path) = &self.settings.file else { return };
        let saved = (|| {
            let kept = or_aside(read(path))?;
            let mut maps = self.maps.lock();
            merge(&mut maps, &kept);
            let now = maps.clone();
            drop(maps);
            if now == kept { Ok(()) } else { write(path, &now) }
        })();
        if let Err(error) = saved {
            tracing::error!(%error, "what is learned of cliffs could not be kept");
        }
    }
}

impl CliffMaps {
    /// What another process has written of other backends stays.
    fn save_speeds(&self) {
        let Some(path) = &self.speeds_file else { return };
        let saved = or_aside(speeds::read(path)).and_then(|kept| {
            let mut now = kept.clone();
            now.extend(self.speeds.lock().clone());
            if now == kept { Ok(()) } else { speeds::write(path, &now) }
        });
        if let Err(error) = saved {
            tracing::error!(%error, "what is learned of speeds could not be kept");
        }
    }
}

/// Takes over what `more` knows.
pub(crate) fn merge(maps: &mut Maps, more: &Maps) {
    for (owner, cliffs) in more {
        maps.entry(owner.clone()).or_default().merge(cliffs);
    }
}

#[cfg(test)]
mod tests;
