//! The engine of a simulated backend: drives the schedule along the clock, and dies.
//!
//! A wire hands in a [`Job`] and holds the [`Ticket`]; the ticket shows how many tokens are out (the texts are the
//! wire's business), and dropping it cancels the work, wherever it is. Progress is one value that is overwritten,
//! so a client that does not read holds nothing up and nothing grows. A death ends every job at once, the innocent
//! too. It must never know what an answer says or how it travels.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::{
    Clock, EventKind, Load, Phase, Spec,
    answer::Ending,
    event::EventLog,
    schedule::{Advance, Schedule, Sequence},
};

/// Where in a prompt the cliff is: at this part of its prefill (published: 0.8).
const CLIFF_AT: f64 = 0.8;

/// One request's work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) prompt_tokens: usize,
    pub(crate) output_tokens: usize,
    pub(crate) ending: Ending,
    /// The script has it kill the engine.
    pub(crate) deadly: bool,
}

/// How far a job is. Times are simulated seconds since the clock's epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) phase: Phase,
    pub(crate) prefilled: usize,
    pub(crate) decoded: usize,
    pub(crate) prefill_from: f64,
    pub(crate) decode_from: f64,
    /// When this progress was made.
    pub(crate) at: f64,
    pub(crate) end: Option<End>,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Complete,
    Died,
}

/// What an engine has done since its process began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) prompt_tokens: usize,
    pub(crate) output_tokens: usize,
    pub(crate) prefill_seconds: f64,
    pub(crate) decode_seconds: f64,
    pub(crate) steps: usize,
    pub(crate) busy_slots: usize,
    pub(crate) longest: usize,
    pub(crate) stopped: usize,
    pub(crate) cut_by_length: usize,
}

#[derive(Debug)]
pub(crate) struct Gpu {
    clock: Clock,
    dies_above: Option<usize>,
    log: Arc<EventLog>,
    state: Mutex<State>,
    /// Work came, or death.
    woken: Notify,
}

#[derive(Debug)]
struct State {
    alive: bool,
    killed_by: Option<u64>,
    schedule: Schedule,
    jobs: HashMap<u64, (Job, watch::Sender<Progress>)>,
    totals: Totals,
}

impl Gpu {
    /// An engine that has not been started.
    pub(crate) fn new(spec: &Spec, clock: Clock, log: Arc<EventLog>) -> Self {
        let state = State {
            alive: false,
            killed_by: None,
            schedule: Schedule::new(spec, clock.now()),
            jobs: HashMap::new(),
            totals: Totals::default(),
        };
        Self { clock, dies_above: spec.dies_above, log, state: Mutex::new(state), woken: Notify::new() }
    }

    /// Starts it with nothing in it. [`Self::run`] must follow.
    pub(crate) fn boot(&self, spec: &Spec) {
        let mut state = self.state.lock();
        state.alive = true;
        state.schedule = Schedule::new(spec, self.clock.now());
        state.totals = Totals::default();
    }

    /// Takes a job on; none if the engine is dead.
    pub(crate) fn submit(self: &Arc<Self>, job: Job) -> Option<Ticket> {
        let now = self.clock.now();
        let cliff = self.dies_above.is_some_and(|most| job.prompt_tokens > most);
        let dies_at = (job.deadly || cliff).then(|| ((job.prompt_tokens as f64 * CLIFF_AT) as usize).max(1));
        let mut state = self.state.lock();
        if !state.alive {
            return None;
        }
        let (prefilled, decoded, end) = (0, 0, None);
        let (prefill_from, decode_from, at) = (now, now, now);
        let progress =
            Progress { phase: Phase::Queued, prefilled, decoded, prefill_from, decode_from, at, end };
        let (sender, receiver) = watch::channel(progress);
        state.jobs.insert(job.id, (job, sender));
        state.schedule.push(Sequence::new(job.id, job.prompt_tokens, job.output_tokens, dies_at, now));
        drop(state);
        self.woken.notify_one();
        Some(Ticket { id: job.id, progress: receiver, gpu: Arc::clone(self) })
    }

    /// Works until the engine dies; returns who killed it.
    pub(crate) async fn run(&self) -> Option<u64> {
        loop {
            let step = {
                let mut state = self.state.lock();
                if !state.alive {
                    return state.killed_by;
                }
                let step = state.schedule.begin();
                for &id in step.iter().flat_map(|step| &step.admitted) {
                    self.admitted(&mut state, id, step.as_ref().map_or(0.0, |step| step.starts));
                }
                step
            };
            let Some(step) = step else {
                self.woken.notified().await;
                continue;
            };
            tokio::select! {
                () = self.clock.sleep_until(step.ends) => {}
                () = self.death() => continue,
            }
            let mut state = self.state.lock();
            if !state.alive {
                continue;
            }
            let (advances, killer) = state.schedule.finish(&step);
            state.totals.steps += 1;
            state.totals.busy_slots += advances.len();
            for advance in advances {
                self.advanced(&mut state, advance, step.ends);
            }
            if killer.is_some() {
                self.die(&mut state, killer, step.ends);
            }
        }
    }

    /// Waits until the engine is dead.
    async fn death(&self) {
        while self.state.lock().alive {
            self.woken.notified().await;
        }
    }

    fn admitted(&self, state: &mut State, id: u64, at: f64) {
        if let Some((_, progress)) = state.jobs.get(&id) {
            self.log.write(at, Some(id), EventKind::PrefillStarted);
            progress.send_modify(|now| {
                (now.phase, now.prefill_from, now.decode_from, now.at) = (Phase::Prefill, at, at, at);
            });
        }
    }

    fn advanced(&self, state: &mut State, advance: Advance, at: f64) {
        let Advance { id, prefilled, decoded, first_token, complete } = advance;
        let Some((job, progress)) = state.jobs.get(&id) else { return };
        let (job, before) = (*job, *progress.borrow());
        if first_token {
            self.log.write(at, Some(id), EventKind::FirstToken);
        }
        if complete {
            let completion_tokens = decoded;
            self.log.write(
                at,
                Some(id),
                match job.ending {
                    Ending::Finish(reason) => EventKind::Finished { completion_tokens, reason },
                    Ending::Stall => EventKind::Stalled { completion_tokens },
                    Ending::Break => EventKind::Broken { completion_tokens },
                },
            );
        }
        progress.send_modify(|now| {
            (now.prefilled, now.decoded, now.at) = (prefilled, decoded, at);
            if first_token {
                (now.phase, now.decode_from) = (Phase::Decode, at);
            }
            now.end = complete.then_some(End::Complete);
        });
        let totals = &mut state.totals;
        totals.output_tokens += decoded - before.decoded;
        totals.longest = totals.longest.max(prefilled + decoded);
        if first_token {
            totals.prompt_tokens += job.prompt_tokens;
            totals.prefill_seconds += at - before.prefill_from;
        } else if decoded > before.decoded {
            totals.decode_seconds += at - before.at;
        }
        if complete {
            totals.cut_by_length += usize::from(job.ending == Ending::Finish("length"));
            totals.stopped += usize::from(matches!(job.ending, Ending::Finish(reason) if reason != "length"));
            state.jobs.remove(&id);
        }
    }

    /// Kills it from outside.
    pub(crate) fn kill(&self) {
        let mut state = self.state.lock();
        if state.alive {
            self.die(&mut state, None, self.clock.now());
        }
    }

    fn die(&self, state: &mut State, by: Option<u64>, at: f64) {
        state.alive = false;
        state.killed_by = by;
        self.log.write(at, None, EventKind::Died { by });
        let mut lost: Vec<_> = state.jobs.drain().collect();
        lost.sort_by_key(|(id, _)| *id);
        for (id, (_, progress)) in lost {
            let phase = progress.borrow().phase;
            self.log.write(at, Some(id), EventKind::Lost { phase });
            progress.send_modify(|now| (now.at, now.end) = (at, Some(End::Died)));
        }
        self.woken.notify_one();
    }

    /// The ticket's holder has gone.
    fn leave(&self, id: u64) {
        let mut state = self.state.lock();
        if state.jobs.remove(&id).is_some()
            && let Some(phase) = state.schedule.leave(id)
        {
            self.log.write(self.clock.now(), Some(id), EventKind::Cut { phase });
        }
    }

    pub(crate) fn load(&self) -> Load {
        let state = self.state.lock();
        if !state.alive {
            return Load::default();
        }
        Load {
            running: state.schedule.running().count(),
            waiting: state.schedule.waiting(),
            resident_tokens: state.schedule.running().map(|job| job.prefilled + job.decoded).sum(),
        }
    }

    /// The requests in slots.
    pub(crate) fn slots(&self) -> Vec<Sequence> {
        let state = self.state.lock();
        if state.alive { state.schedule.running().cloned().collect() } else { Vec::new() }
    }

    pub(crate) fn totals(&self) -> Totals {
        self.state.lock().totals
    }
}

/// A job on the engine. Dropping it before its end cancels it.
#[derive(Debug)]
pub(crate) struct Ticket {
    id: u64,
    progress: watch::Receiver<Progress>,
    gpu: Arc<Gpu>,
}

impl Ticket {
    pub(crate) fn now(&mut self) -> Progress {
        *self.progress.borrow_and_update()
    }

    /// The next progress that has not been seen.
    pub(crate) async fn next(&mut self) -> Progress {
        // the sender leaves only after it has sent the end
        let _ended = self.progress.changed().await;
        self.now()
    }

    /// The first progress that `wanted` accepts, or the end.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Progress) -> bool) -> Progress {
        loop {
            let now = self.now();
            if wanted(&now) || now.end.is_some() {
                return now;
            }
            self.next().await;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.gpu.leave(self.id);
    }
}
