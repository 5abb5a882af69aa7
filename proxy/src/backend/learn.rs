//! What a backend's requests teach of it: faults, deaths and their suspects, what was survived, and how fast it is.
//!
//! An engine that says that it is dead has died. A lost connection is only a doubt: the next probe, which is made at once,
//! tells whether anybody is still there. Must never take a client's hang-up, or an orderly stop, for a death.

use std::sync::atomic::Ordering;
use std::time::Duration;

use switchback_parsers::chunk::Usage;
use switchback_parsers::diagnosis::Engine;
use switchback_policies::facts::{BackendState, Speed};
use switchback_policies::failover::{self, Fault};
use switchback_policies::health::Probe;
use switchback_policies::liveness::Worth;
use switchback_policies::speed::{Reading, Writing};

use tokio::time::Instant;

use super::open::{Place, Took, Witnessed};
use super::{Backend, probe};
use crate::cliffs::Owner;
use crate::preset::Preset;

impl Backend {
    /// Takes a fault that a request met at its place; true: the engine died, and this request is the suspect.
    pub(crate) fn on_fault(&self, fault: Fault, place: &Place) -> bool {
        let mut suspect = false;
        if failover::is_death(fault) {
            let death = place.died();
            suspect = death.suspect;
            match death.lesson {
                Some(witnessed) if fault == Fault::ConnectionLost => {
                    *self.lost.lock() = Some(witnessed);
                    self.doubt.notify_one();
                }
                Some(witnessed) => self.learn(witnessed),
                None => {}
            }
        }
        self.failed(fault);
        if fault == Fault::ModelUnknown {
            // Another model may be served there by now.
            self.doubt.notify_one();
        }
        if let Some(state) = failover::shows(fault) {
            if state.is_gone() {
                self.judge_loss(Probe::Gone);
            }
            self.change(|health| health.on_seen(state));
        }
        suspect
    }

    /// Whose cliffs they are: its own, with the model that it serves; `None` before it has said that.
    pub(super) fn owner(&self) -> Option<Owner> {
        let unnamed = || (self.state() == BackendState::Up).then(String::new);
        Some((self.config.name.clone(), self.names().into_iter().next().or_else(unnamed)?))
    }

    /// A request was answered to its end.
    pub(crate) fn survived(&self, place: &Place, worth: Worth, usage: Option<Usage>) {
        self.answered(worth);
        if let Some(Usage { prompt_tokens: Some(prompt), completion_tokens, .. }) = usage {
            place.used(prompt.saturating_add(completion_tokens.unwrap_or(0)));
        }
        if let (Some(owner), Some(shape)) = (self.owner(), place.shape()) {
            self.cliffs.survived(owner, &shape);
        }
        if let (Some(took), Some(usage)) = (place.took(), usage) {
            self.learn_speed(took, usage);
        }
    }

    fn learn_speed(&self, took: Took, usage: Usage) {
        let Some(prompt) = usage.prompt_tokens else { return };
        let start = self.published_speed();
        let mut speed = self.speed.lock();
        if let Some(seconds) = took.reading {
            let (believed, cached) = (took.believed.min(prompt), usage.cached_tokens);
            speed.read(start, Reading { prompt, believed, cached, seconds: seconds.as_secs_f64() });
        }
        if let (Some((seconds, running)), Some(tokens)) = (took.writing, usage.completion_tokens) {
            speed.wrote(start, Writing { prompt, tokens, seconds: seconds.as_secs_f64(), running });
        }
        if let Some(owner) = self.owner() {
            self.cliffs.is_fast(owner, speed.clone());
        }
    }

    /// It has said which model it serves: what was learned of the two before is known again, and what was learned of another
    /// model forgotten.
    pub(super) fn recall_speed(&self) {
        let Some(owner) = self.owner() else { return };
        let mut whose = self.speed_of.lock();
        if whose.as_ref() == Some(&owner) {
            return;
        }
        let kept = self.cliffs.speed(&owner);
        let other = whose.replace(owner).is_some();
        if other {
            self.is_new(true);
        }
        let mut speed = self.speed.lock();
        if other || speed.is_new() {
            *speed = kept.unwrap_or_default();
        }
    }

    /// What is published of its speed, or of the usual one.
    fn published_speed(&self) -> Speed {
        self.config.preset.and_then(Preset::speed).unwrap_or(Speed::USUAL)
    }

    /// How fast it is for one more request, as far as that was published or seen.
    pub(super) fn speed(&self) -> Option<Speed> {
        let learned = self.speed.lock();
        let published = self.config.preset.and_then(Preset::speed);
        if learned.is_new() {
            return published;
        }
        Some(learned.speed(published.unwrap_or(Speed::USUAL), self.open.running()))
    }

    /// A number that is another one after each restart: caches are empty then.
    pub(crate) fn starts(&self) -> u32 {
        self.starts.load(Ordering::Relaxed)
    }

    /// The part of so many tokens, read here before, that its cache really saves.
    pub(crate) fn cache_saves(&self, tokens: u64) -> u64 {
        self.speed.lock().saved(tokens)
    }

    /// It died of this, or beside it.
    pub(super) fn learn(&self, witnessed: Witnessed) {
        self.died.store(true, Ordering::Relaxed);
        *self.died_at.lock() = Some(Instant::now());
        self.pulse.doubt();
        let shape = match witnessed {
            Witnessed::Prefill(shape) => shape,
            // vLLM keeps what does not fit waiting; what kills it in decode has nothing to do with lengths.
            Witnessed::Crowd(shape) if self.shares_memory() => shape,
            Witnessed::Crowd(_) => return,
        };
        if let Some(owner) = self.owner() {
            self.cliffs.died(owner, &shape);
        }
    }

    /// A connection was lost lately: whether that was a death is what the probe tells. Of one that is loaded and unloaded its
    /// loader has to say first whether it was taken away.
    pub(super) fn judge_loss(&self, probe: Probe) {
        if probe != Probe::Ready && self.asks_loader() {
            return;
        }
        let lost = match probe {
            Probe::TimedOut => None,
            Probe::Ready | Probe::Loading | Probe::Gone | Probe::Dead => self.lost.lock().take(),
        };
        if let Some(witnessed) = lost.filter(|_| probe != Probe::Ready) {
            self.learn(witnessed);
        }
    }

    /// After a silence: waits until the engine has let go of what nobody waits for any more, a second at most. Other users of
    /// the backend make it look busy; then the second passes.
    pub(crate) async fn let_go(&self) {
        probe::until_let_go(self, self.open.running(), Duration::from_secs(1)).await;
    }

    /// It died lately, or fell silent, and may be back before `within` has passed since then: what dies is mostly restarted by
    /// whoever keeps it. What was stopped on purpose is not waited for. A connection that was just lost may have been a
    /// death, too.
    pub(crate) fn may_come_back(&self, within: Duration) -> bool {
        let lately = |died: Instant| died.elapsed() < within;
        let gone = !self.state().takes_requests() && self.died_at.lock().is_some_and(lately);
        gone || self.lost.lock().is_some()
    }

    /// It is up again. If it did not die, somebody stopped and started it, and may have changed it.
    pub(super) fn came_back(&self, was: BackendState) {
        // Seen for the first time, it may have been there all the while.
        if was != BackendState::Unknown {
            self.starts.fetch_add(1, Ordering::Relaxed);
            self.is_new(false);
        }
        if !self.died.swap(false, Ordering::Relaxed)
            && let Some(owner) = self.owner()
        {
            self.cliffs.restarted(owner);
        }
    }

    /// Its slots share the memory that one conversation was seen to fill.
    pub(super) fn shares_memory(&self) -> bool {
        matches!(self.engine(), Engine::LlamaCpp | Engine::IkLlama)
    }
}
