//! The vocabularies of the configured models, and the places in which they count.
//!
//! Loading takes seconds and counting a first ten megabytes a good part of one, so both happen on threads that may block, and fewer counts
//! run at a time than there are cores: what forwards streams always finds one. What cannot be loaded is said once, in the log.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use switchback_parsers::prompt::PromptCounter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::backend::ChatTemplate;
use crate::config::Model;

/// A vocabulary that is being loaded.
type Loading = watch::Receiver<Loaded>;

/// Counters with templates that servers run and the model's files do not have, the latest few. Making one takes some milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Running(Mutex<Vec<Variant>>);

/// How many of them are kept.
const VARIANTS: usize = 16;

/// A counter, another template, and the counter that has that; none if the template is not understood.
type Variant = (Arc<PromptCounter>, ChatTemplate, Option<Arc<PromptCounter>>);

impl Running {
    /// The counter for a server that runs `template`: `own`, unless it is another one. It may block.
    pub(crate) fn counter(
        &self,
        own: &Arc<PromptCounter>,
        template: Option<&ChatTemplate>,
    ) -> Option<Arc<PromptCounter>> {
        let Some(template) = template.filter(|template| !own.has_template(&template.source)) else {
            return Some(own.clone());
        };
        let is_it = |known: &&Variant| Arc::ptr_eq(&known.0, own) && known.1 == *template;
        let known = self.0.lock().iter().find(is_it).map(|known| known.2.clone());
        if let Some(known) = known {
            return known;
        }
        let made = own.with_template(&template.source, template.with_tools.as_deref());
        if let Err(error) = &made {
            tracing::warn!(%error, "the template that a backend runs is not understood: it is asked to count");
        }
        let made = made.ok().map(Arc::new);
        let mut all = self.0.lock();
        if all.len() >= VARIANTS {
            all.remove(0);
        }
        all.push((own.clone(), template.clone(), made.clone()));
        made
    }
}

#[derive(Clone, Debug)]
enum Loaded {
    NotYet,
    /// `None`: it cannot be loaded; the log says why.
    Done(Option<Arc<PromptCounter>>),
}

/// The vocabularies of the configured models. Loading takes seconds and happens aside; until then backends are asked.
#[derive(Debug)]
pub(crate) struct Vocabularies {
    by_path: HashMap<PathBuf, Loading>,
    by_model: Vec<Option<Loading>>,
    /// As many counts at a time as leave a core to the streams.
    places: Arc<Semaphore>,
    running: Arc<Running>,
}

impl Default for Vocabularies {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let places = Arc::new(Semaphore::new(cores.saturating_sub(1).max(1)));
        Self { by_path: HashMap::new(), by_model: Vec::new(), places, running: Arc::default() }
    }
}

impl Vocabularies {
    /// Starts to load those that are configured, each file once, and none that `former` has.
    pub(crate) fn load(models: &[Model], former: Option<&Self>) -> Self {
        let mut all = Self::default();
        if let Some(former) = former {
            all.places = former.places.clone();
        }
        for model in models {
            let loading = model.tokenizer.as_ref().map(|path| {
                let known =
                    all.by_path.get(path).or_else(|| former.and_then(|former| former.by_path.get(path)));
                let loading =
                    known.cloned().unwrap_or_else(|| start_loading(path.clone(), model.name.clone()));
                all.by_path.insert(path.clone(), loading.clone());
                loading
            });
            all.by_model.push(loading);
        }
        all
    }

    pub(crate) fn get(&self, model: Option<usize>) -> Option<Arc<PromptCounter>> {
        match &*self.by_model.get(model?)?.as_ref()?.borrow() {
            Loaded::Done(counter) => counter.clone(),
            Loaded::NotYet => None,
        }
    }

    /// Counters for templates that differ from the files'.
    pub(crate) fn running(&self) -> &Arc<Running> {
        &self.running
    }

    /// Takes a place for one count; it is free again when the permit is dropped.
    pub(super) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        self.places.clone().acquire_owned().await.ok()
    }

    /// Waits until all are loaded, or have failed.
    pub(crate) async fn loaded(&self) {
        for loading in self.by_path.values() {
            // An error means that the loader is gone, so there is nothing to wait for.
            let _ = loading.clone().wait_for(|loaded| matches!(loaded, Loaded::Done(_))).await;
        }
    }
}

fn start_loading(path: PathBuf, model: String) -> Loading {
    let (loaded, loading) = watch::channel(Loaded::NotYet);
    tokio::task::spawn_blocking(move || {
        let counter = match PromptCounter::load(&path) {
            Ok(counter) => {
                tracing::info!(model, tokenizer = counter.describe(), "vocabulary loaded");
                Some(Arc::new(counter))
            }
            Err(error) => {
                tracing::error!(model, path = %path.display(), %error, "vocabulary not loaded: backends are asked to count");
                None
            }
        };
        // Nobody listens any more if the configuration has changed meanwhile.
        let _ = loaded.send(Loaded::Done(counter));
    });
    loading
}
