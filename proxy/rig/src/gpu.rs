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
    Clock, Death, EventKind, Faults, Load, Phase, Spec, Timing,
    answer::Ending,
    event::EventLog,
    schedule::{Advance, Begun, Schedule},
    sequence::Sequence,
    ticket::{End, Job, Progress, Ticket},
    timing::Bursts,
};

/// Conversations whose turns are counted; with more, the count begins anew.
const CONVERSATIONS: usize = 65_536;

/// What an engine has done since its process began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) prompt_tokens: usize,
    pub(crate) cached_tokens: usize,
    pub(crate) preemptions: usize,
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
    timing: Timing,
    faults: Faults,
    log: Arc<EventLog>,
    state: Mutex<State>,
    /// Work came, or death, or silence began or ended.
    woken: Notify,
    /// A step is over, or the engine.
    stepped: Notify,
}

#[derive(Debug)]
struct State {
    alive: bool,
    silent: bool,
    stepping: bool,
    killed_by: Option<u64>,
    schedule: Schedule,
    jobs: HashMap<u64, (Job, watch::Sender<Progress>)>,
    /// How many turns each conversation has had since the process began.
    turns: HashMap<u64, usize>,
    totals: Totals,
}

impl Gpu {
    /// An engine that has not been started.
    pub(crate) fn new(spec: &Spec, clock: Clock, log: Arc<EventLog>) -> Self {
        let state = State {
            alive: false,
            silent: false,
            stepping: false,
            killed_by: None,
            schedule: Schedule::new(spec, clock.now()),
            jobs: HashMap::new(),
            turns: HashMap::new(),
            totals: Totals::default(),
        };
        let (timing, faults) = (spec.timing, spec.faults);
        Self {
            clock,
            timing,
            faults,
            log,
            state: Mutex::new(state),
            woken: Notify::new(),
            stepped: Notify::new(),
        }
    }

    /// Starts it with nothing in it. [`Self::run`] must follow.
    pub(crate) fn boot(&self, spec: &Spec) {
        let mut state = self.state.lock();
        (state.alive, state.silent, state.stepping) = (true, false, false);
        state.schedule = Schedule::new(spec, self.clock.now());
        state.turns.clear();
        state.totals = Totals::default();
    }

    /// Takes a job on; none if the engine is dead.
    pub(crate) fn submit(self: &Arc<Self>, job: Job) -> Option<Ticket> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if !state.alive {
            return None;
        }
        let (cached, prefilled, decoded, end) = (0, 0, 0, None);
        let (phase, prefill_from, decode_from, at) = (Phase::Queued, now, now, now);
        let progress = Progress { phase, cached, prefilled, decoded, prefill_from, decode_from, at, end };
        let (sender, receiver) = watch::channel(progress);
        let bursts = Bursts::new(&self.timing, job.seed);
        let mut sequence = Sequence::new(job.id, job.prompt_tokens, job.output_tokens, now, bursts);
        sequence.seed = job.seed;
        sequence.chain = Arc::clone(&job.chain);
        sequence.turn = state.turn(job.conversation);
        sequence.deadly = job.deadly;
        sequence.crashes_at = self.faults.crashes_after(job.seed);
        let id = job.id;
        state.schedule.push(sequence);
        state.jobs.insert(id, (job, sender));
        drop(state);
        self.woken.notify_one();
        Some(Ticket::new(id, receiver, Arc::clone(self)))
    }

    /// Works until the engine dies; returns who killed it.
    pub(crate) async fn run(&self) -> Option<u64> {
        loop {
            let step = {
                let mut state = self.state.lock();
                if !state.alive {
                    return state.killed_by;
                }
                let step = if state.silent { None } else { state.schedule.begin() };
                state.stepping = step.is_some();
                if let Some(step) = &step {
                    self.begun(&mut state, step);
                }
                step
            };
            let Some(step) = step else {
                self.woken.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                () = self.clock.sleep_until(step.ends) => {}
                () = self.death() => continue,
            }
            let mut state = self.state.lock();
            if !state.alive {
                continue;
            }
            state.stepping = false;
            self.stepped.notify_waiters();
            let (advances, killer) = state.schedule.finish(&step);
            state.totals.steps += 1;
            state.totals.busy_slots += advances.len();
            for advance in advances {
                self.advanced(&mut state, advance, step.ends);
            }
            match killer {
                Some(_) if self.faults.death == Death::Hang => self.hang(&mut state, killer, step.ends),
                Some(_) => self.die(&mut state, killer, step.ends),
                None => {}
            }
        }
    }

    /// Waits until the engine is dead.
    async fn death(&self) {
        while self.state.lock().alive {
            self.woken.notified().await;
        }
    }

    fn begun(&self, state: &mut State, step: &Begun) {
        let at = step.starts;
        state.totals.preemptions += step.preempted.len();
        for &id in &step.preempted {
            self.log.write(at, Some(id), EventKind::Preempted);
        }
        for &(id, cached) in &step.admitted {
            let Some((_, progress)) = state.jobs.get(&id) else { continue };
            self.log.write(at, Some(id), EventKind::PrefillStarted);
            if cached > 0 {
                self.log.write(at, Some(id), EventKind::CacheHit { tokens: cached });
            }
            if progress.borrow().phase == Phase::Queued {
                progress.send_modify(|now| {
                    (now.phase, now.cached, now.prefilled) = (Phase::Prefill, cached, cached);
                    (now.prefill_from, now.decode_from, now.at) = (at, at, at);
                });
            }
        }
    }

    fn advanced(&self, state: &mut State, advance: Advance, at: f64) {
        let Advance { id, prefilled, decoded, first_token, complete } = advance;
        let Some((job, progress)) = state.jobs.get(&id) else { return };
        let (prompt_tokens, ending, before) = (job.prompt_tokens, job.ending, *progress.borrow());
        if first_token {
            self.log.write(at, Some(id), EventKind::FirstToken);
        }
        if complete {
            let completion_tokens = decoded;
            self.log.write(
                at,
                Some(id),
                match ending {
                    Ending::Finish(reason) => EventKind::Finished { completion_tokens, reason },
                    Ending::Stall => EventKind::Stalled { completion_tokens },
                    Ending::Break => EventKind::Broken { completion_tokens },
                },
            );
        }
        progress.send_modify(|now| {
            (now.prefilled, now.decoded, now.at) = (prefilled.max(now.prefilled), decoded, at);
            if first_token {
                (now.phase, now.decode_from) = (Phase::Decode, at);
            }
            now.end = complete.then_some(End::Complete);
        });
        let totals = &mut state.totals;
        totals.output_tokens += decoded - before.decoded;
        totals.longest = totals.longest.max(prefilled + decoded);
        if first_token {
            totals.prompt_tokens += prompt_tokens;
            totals.cached_tokens += before.cached;
            totals.prefill_seconds += at - before.prefill_from;
        } else if decoded > before.decoded {
            totals.decode_seconds += at - before.at;
        }
        if complete {
            totals.cut_by_length += usize::from(ending == Ending::Finish("length"));
            totals.stopped += usize::from(matches!(ending, Ending::Finish(reason) if reason != "length"));
            state.jobs.remove(&id);
        }
    }

    /// From now on it computes nothing, or works on. It still takes requests.
    pub(crate) fn silence(&self, silent: bool) {
        let mut state = self.state.lock();
        if state.alive && state.silent != silent {
            state.silent = silent;
            let kind = if silent { EventKind::Silent } else { EventKind::Resumed };
            self.log.write(self.clock.now(), None, kind);
            state.schedule.wait_until(self.clock.now());
        }
        drop(state);
        self.woken.notify_one();
        self.stepped.notify_waiters();
    }

    /// What should kill it makes it hang.
    fn hang(&self, state: &mut State, by: Option<u64>, at: f64) {
        state.silent = true;
        self.log.write(at, by, EventKind::Silent);
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
        self.stepped.notify_waiters();
    }

    /// Waits for the moment between two steps, in which an engine hears what is asked of itself; for ever if it is
    /// silent.
    pub(crate) async fn between_steps(&self) {
        loop {
            let stepped = self.stepped.notified();
            tokio::pin!(stepped);
            stepped.as_mut().enable();
            let silent = {
                let state = self.state.lock();
                if !state.alive || !(state.stepping || state.silent) {
                    return;
                }
                state.silent
            };
            stepped.await;
            if !silent {
                return;
            }
        }
    }

    /// The ticket's holder has gone.
    pub(crate) fn leave(&self, id: u64) {
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
        let (running, waiting) = (state.schedule.running().count(), state.schedule.waiting());
        let resident_tokens = state.schedule.running().map(Sequence::resident).sum();
        // a silent engine, as seen with vLLM: nothing runs, everything waits
        let (running, waiting) = if state.silent { (0, running + waiting) } else { (running, waiting) };
        Load {
            running,
            waiting,
            resident_tokens,
            prefilled: state.schedule.computed(),
            decoded: state.totals.output_tokens,
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

impl State {
    fn turn(&mut self, conversation: Option<u64>) -> usize {
        let Some(conversation) = conversation else { return 1 };
        if self.turns.len() >= CONVERSATIONS {
            self.turns.clear();
        }
        let turn = self.turns.entry(conversation).or_default();
        *turn += 1;
        *turn
    }
}
