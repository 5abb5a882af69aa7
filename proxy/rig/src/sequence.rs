//! A request on the engine: what is in, what is out, what it holds of the KV pool.
//!
//! It only counts. It must never decide what it gets: that is the schedule's business (`schedule.rs`).

use crate::{cache::Chain, timing::Bursts};

#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub(crate) id: u64,
    pub(crate) slot: usize,
    /// Prompt tokens, at least one.
    pub(crate) prompt: usize,
    /// Tokens of its answer.
    pub(crate) output: usize,
    pub(crate) arrived: f64,
    /// Chance for everything that concerns it.
    pub(crate) seed: u64,
    /// The hashes of its prompt and its answer.
    pub(crate) chain: Chain,
    /// Which turn of its conversation it is since the process began, from 1.
    pub(crate) turn: usize,
    /// The script has it kill the engine.
    pub(crate) deadly: bool,
    /// The engine dies when this much of the prompt is in.
    pub(crate) dies_at: Option<usize>,
    /// The engine dies when this much of the answer is out.
    pub(crate) crashes_at: Option<usize>,
    /// Prompt tokens that the cache saved when it last got a slot.
    pub(crate) cached: usize,
    pub(crate) decoded: usize,
    /// Tokens of the context that are in, without those decoded since.
    pub(super) filled: usize,
    /// Tokens that prefill has to bring: the prompt; after a preemption what was decoded as well.
    pub(super) goal: usize,
    /// Context tokens of the running step.
    pub(super) chunk: usize,
    /// Tokens that the next decode step brings.
    pub(super) burst: usize,
    bursts: Bursts,
    pub(super) left: bool,
}

impl Sequence {
    /// A request that waits. `bursts` are those of its answer.
    pub(crate) fn new(id: u64, prompt: usize, output: usize, arrived: f64, bursts: Bursts) -> Self {
        let prompt = prompt.max(1);
        Self {
            id,
            slot: 0,
            prompt,
            output,
            arrived,
            seed: 0,
            chain: Chain::default(),
            turn: 1,
            deadly: false,
            dies_at: None,
            crashes_at: None,
            cached: 0,
            decoded: 0,
            filled: 0,
            goal: prompt,
            chunk: 0,
            burst: 1,
            bursts,
            left: false,
        }
    }

    /// Prompt tokens that are in.
    pub(crate) fn prefilled(&self) -> usize {
        self.filled.min(self.prompt)
    }

    /// Tokens of the KV pool that it holds.
    pub(crate) fn resident(&self) -> usize {
        if self.decodes() { self.prompt + self.decoded } else { self.filled }
    }

    /// Tokens of the KV pool that it needs for its next step, its whole prefill included.
    pub(super) fn needs(&self) -> usize {
        let next = if self.decodes() { self.burst } else { 0 };
        self.goal.max(self.prompt + self.decoded) + next.min(self.output - self.decoded)
    }

    pub(super) fn decodes(&self) -> bool {
        self.filled == self.goal
    }

    pub(super) fn is_complete(&self) -> bool {
        self.decodes() && self.decoded == self.output
    }

    /// Gives its place up, and with it all that is computed.
    pub(super) fn preempt(&mut self) {
        (self.filled, self.chunk, self.cached) = (0, 0, 0);
        self.goal = self.prompt + self.decoded;
    }

    /// The running step is over. Whether its first token came with it, and whether it has reached a death.
    pub(super) fn advance(&mut self) -> (bool, bool) {
        let computed = self.chunk > 0;
        self.filled += std::mem::take(&mut self.chunk);
        let mut dies = computed && self.dies_at == Some(self.filled);
        let first = computed && self.decodes() && self.decoded == 0;
        if self.decodes() && self.decoded < self.output {
            let before = self.decoded;
            self.decoded = (before + self.burst).min(self.output);
            self.burst = self.bursts.next();
            dies |= self.crashes_at.is_some_and(|at| before < at && at <= self.decoded);
        }
        (first, dies)
    }
}
