//! The schedule: which request gets what in each step of an engine.
//!
//! Both engines work in steps. In each, every decoding request gets its burst; what is left of the step's token
//! budget goes to prefills in order of arrival; the step takes as long as the larger of the two. So one long prompt
//! slows every stream beside it, as published. Requests beyond the slots, or whose prompt the KV pool has no room for,
//! wait in order; when the pool is full, the newest request gives its place up and is computed again later.
//!
//! A plain state machine over simulated seconds: `begin` plans a step and says when it ends, `finish` says what it
//! brought. It must never know a clock: whoever drives it waits between the two.

use std::collections::VecDeque;

use crate::{
    Phase, Spec, Timing,
    cache::Held,
    faults::{Faults, Risk},
    sequence::Sequence,
};

/// Where in a prompt a cliff is: at this part of what is computed of it (published: 0.8).
const CLIFF_AT: f64 = 0.8;

/// What bounds a step, and what goes wrong.
#[derive(Clone, Copy, Debug)]
struct Limits {
    slots: usize,
    batch: usize,
    threshold: usize,
    block: usize,
    pool: usize,
    plans_ahead: bool,
    mixes: bool,
    reuse: f64,
    dies_above: Option<usize>,
    faults: Faults,
}

/// A planned step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Begun {
    pub(crate) starts: f64,
    pub(crate) ends: f64,
    /// Requests that lost their slot to older ones.
    pub(crate) preempted: Vec<u64>,
    /// Requests that got a slot, and how many tokens of each the cache saves.
    pub(crate) admitted: Vec<(u64, usize)>,
}

/// What a step brought to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advance {
    pub(crate) id: u64,
    pub(crate) prefilled: usize,
    pub(crate) decoded: usize,
    /// Its prefill ended in this step.
    pub(crate) first_token: bool,
    /// It has all its tokens, and has left its slot.
    pub(crate) complete: bool,
}

#[derive(Debug)]
pub(crate) struct Schedule {
    timing: Timing,
    limits: Limits,
    held: Held,
    /// Simulated time up to which work is done.
    cursor: f64,
    /// When the step before the next one began: what came later, the next one does not know of if it plans ahead.
    planned: f64,
    waiting: VecDeque<Sequence>,
    /// In the order in which they got their slots.
    running: Vec<Sequence>,
    /// Which slots are taken, and when each was last given.
    slots: Vec<(bool, u64)>,
    given: u64,
    /// The running step only reads prompts; decodes wait.
    paused: bool,
    /// Context tokens computed so far, for whomever.
    computed: usize,
}

impl Schedule {
    pub(crate) fn new(spec: &Spec, now: f64) -> Self {
        let pooled = !spec.engine.has_slots();
        let limits = Limits {
            slots: spec.slots,
            batch: spec.batch_tokens,
            threshold: spec.long_prefill_threshold,
            block: spec.block_tokens,
            // llama.cpp's slots have a part of the context each
            pool: if pooled { spec.kv_pool().div_ceil(spec.block_tokens) } else { usize::MAX },
            plans_ahead: spec.plans_ahead,
            mixes: spec.engine.mixes(),
            reuse: spec.prefix_cache.map_or(0.0, |cache| cache.reuse),
            dies_above: spec.dies_above,
            faults: spec.faults,
        };
        Self {
            timing: spec.timing,
            limits,
            held: Held::new(spec),
            cursor: now,
            planned: now,
            waiting: VecDeque::new(),
            running: Vec::new(),
            slots: vec![(false, 0); spec.slots],
            given: 0,
            paused: false,
            computed: 0,
        }
    }

    pub(crate) fn push(&mut self, sequence: Sequence) {
        self.waiting.push_back(sequence);
    }

    /// Takes a request off; returns where it was. What it has of the running step is still computed.
    pub(crate) fn leave(&mut self, id: u64) -> Option<Phase> {
        if let Some(at) = self.waiting.iter().position(|sequence| sequence.id == id) {
            self.waiting.remove(at);
            return Some(Phase::Queued);
        }
        let sequence = self.running.iter_mut().find(|sequence| sequence.id == id && !sequence.left)?;
        sequence.left = true;
        Some(if sequence.decodes() { Phase::Decode } else { Phase::Prefill })
    }

    /// Plans the next step; none if there is nothing to do.
    pub(crate) fn begin(&mut self) -> Option<Begun> {
        self.drop_those(|sequence| sequence.left);
        if self.running.is_empty() {
            self.cursor = self.cursor.max(self.waiting.front()?.arrived);
            self.planned = self.cursor;
        }
        let preempted = self.make_room();
        let seen = if self.limits.plans_ahead { self.planned } else { self.cursor };
        let admitted = self.admit(seen);
        self.planned = self.cursor;
        let decoding = self.running.iter().filter(|sequence| sequence.decodes());
        let (streams, depth) =
            decoding.fold((0, 0), |(streams, depth), sequence| (streams + 1, depth + sequence.resident()));
        let prefill = self.plan_chunks(self.limits.batch.saturating_sub(streams));
        self.paused = !self.limits.mixes && self.running.iter().any(|sequence| sequence.chunk > 0);
        let streams = if self.paused { 0 } else { streams };
        let decode = self.timing.decode_step(streams, depth as f64 / streams.max(1) as f64);
        Some(Begun { starts: self.cursor, ends: self.cursor + prefill.max(decode), preempted, admitted })
    }

    /// Blocks that the running requests need for the next step.
    fn needed(&self) -> usize {
        self.running.iter().map(|sequence| self.blocks(sequence)).sum()
    }

    fn blocks(&self, sequence: &Sequence) -> usize {
        sequence.needs().div_ceil(self.limits.block)
    }

    /// Takes the newest requests off until the others fit the pool; they go first when there is room again.
    fn make_room(&mut self) -> Vec<u64> {
        let mut preempted = Vec::new();
        while self.running.len() > 1
            && self.needed() > self.limits.pool
            && let Some(mut newest) = self.running.pop()
        {
            self.slots[newest.slot].0 = false;
            newest.preempt();
            preempted.push(newest.id);
            self.waiting.push_front(newest);
        }
        preempted
    }

    /// Gives slots to those that had arrived by the time `seen`.
    fn admit(&mut self, seen: f64) -> Vec<(u64, usize)> {
        let mut admitted = Vec::new();
        let mut needed = self.needed();
        while self.running.len() < self.limits.slots
            && let Some(next) = self.waiting.front()
            && next.arrived <= seen
            && (self.running.is_empty() || needed + self.blocks(next) <= self.limits.pool)
            && let Some(mut next) = self.waiting.pop_front()
        {
            needed += self.blocks(&next);
            self.seat(&mut next);
            admitted.push((next.id, next.cached));
            self.running.push(next);
        }
        admitted
    }

    /// Finds a free slot, preferably one that holds its beginning, and what the cache saves.
    fn seat(&mut self, next: &mut Sequence) {
        let free = (0..self.slots.len()).filter(|slot| !self.slots[*slot].0);
        let best = match self.held {
            Held::Slots { .. } => free.max_by_key(|slot| {
                (self.held.hit(&next.chain, *slot), u64::MAX - self.slots[*slot].1, usize::MAX - *slot)
            }),
            _ => free.min(),
        };
        next.slot = best.unwrap_or_default();
        self.given += 1;
        self.slots[next.slot] = (true, self.given);
        // the last token is always computed: it gives the first one of the answer
        let hit = self.held.hit(&next.chain, next.slot).min(next.prompt - 1);
        next.cached = (hit as f64 * self.limits.reuse) as usize;
        next.filled = next.cached;
        let (prompt, fresh) = (next.prompt, next.prompt - next.cached);
        let risk = Risk { prompt, new: prompt - hit, fresh, turn: next.turn, seed: next.seed };
        let Limits { faults, dies_above, .. } = self.limits;
        let falls = next.decoded == 0 && (next.deadly || faults.kills(dies_above, &risk));
        next.dies_at = falls.then(|| next.cached + ((fresh as f64 * CLIFF_AT) as usize).max(1));
    }

    /// Shares `budget` context tokens out, in order of arrival; returns the seconds that they take.
    fn plan_chunks(&mut self, mut budget: usize) -> f64 {
        let Limits { threshold, block, .. } = self.limits;
        let longest = if threshold > 0 { threshold.max(block) } else { usize::MAX };
        let (mut seconds, mut floor, mut prefills) = (0.0, 0.0, 0);
        for sequence in &mut self.running {
            let missing = sequence.goal - sequence.filled;
            let mut chunk = missing.min(budget).min(longest);
            if chunk < missing {
                chunk -= chunk % block;
            }
            if let Some(end) = sequence.dies_at {
                chunk = chunk.min(end.saturating_sub(sequence.filled));
            }
            if chunk > 0 {
                prefills += 1;
                floor = if sequence.filled == sequence.cached { self.timing.ttft_floor } else { 0.0 };
            }
            seconds += self.timing.prefill_piece(sequence.filled, chunk);
            sequence.chunk = chunk;
            budget -= chunk;
        }
        // beside another prefill the fixed cost of a beginning is hidden
        if prefills == 1 { seconds + floor } else { seconds }
    }

    /// The planned step is over: what it brought, and who killed the engine in it.
    pub(crate) fn finish(&mut self, step: &Begun) -> (Vec<Advance>, Option<u64>) {
        self.cursor = step.ends;
        self.computed += self.running.iter().map(|sequence| sequence.chunk).sum::<usize>();
        let mut advances = Vec::with_capacity(self.running.len());
        let mut killer = None;
        for sequence in self.running.iter_mut().filter(|sequence| !sequence.left) {
            let computed = sequence.chunk > 0;
            if !computed && (self.paused || !sequence.decodes()) {
                continue;
            }
            let (first_token, dies) = sequence.advance();
            if dies {
                killer = Some(sequence.id);
            }
            let (complete, prefilled) = (sequence.is_complete(), sequence.prefilled());
            if computed || complete {
                self.held.keep(&sequence.chain, sequence.resident(), sequence.slot);
            }
            let (id, decoded) = (sequence.id, sequence.decoded);
            advances.push(Advance { id, prefilled, decoded, first_token, complete });
        }
        if let Some(most) = self.limits.faults.fills_to
            && self.running.iter().map(Sequence::resident).sum::<usize>() > most
        {
            killer =
                self.running.iter().max_by_key(|sequence| sequence.resident()).map(|sequence| sequence.id);
        }
        self.drop_those(Sequence::is_complete);
        (advances, killer)
    }

    fn drop_those(&mut self, gone: impl Fn(&Sequence) -> bool) {
        for sequence in self.running.iter().filter(|sequence| gone(sequence)) {
            self.slots[sequence.slot].0 = false;
            if sequence.left {
                self.held.keep(&sequence.chain, sequence.resident(), sequence.slot);
            }
        }
        self.running.retain(|sequence| !gone(sequence));
    }

    /// What is done next begins no earlier than this.
    pub(crate) fn wait_until(&mut self, at: f64) {
        self.cursor = self.cursor.max(at);
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Sequence> {
        self.running.iter().filter(|sequence| !sequence.left)
    }

    pub(crate) fn computed(&self) -> usize {
        self.computed
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests;
