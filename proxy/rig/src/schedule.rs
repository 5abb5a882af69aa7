//! The schedule: which request gets what in each step of an engine.
//!
//! Both engines work in steps. In each, every decoding request gets one token; what is left of the step's token
//! budget goes to prefills in order of arrival; the step takes as long as the larger of the two. So one long prompt
//! slows every stream beside it, as published. Requests beyond the slots wait in order.
//!
//! A plain state machine over simulated seconds: `begin` plans a step and says when it ends, `finish` says what it
//! brought. It must never know a clock: whoever drives it waits between the two.

use std::collections::VecDeque;

use crate::{Phase, Spec, Timing};

/// What bounds a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) slots: usize,
    pub(crate) batch: usize,
    pub(crate) threshold: usize,
    pub(crate) block: usize,
}

/// A request on the engine.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub(crate) id: u64,
    pub(crate) slot: usize,
    /// Prompt tokens, at least one.
    pub(crate) prompt: usize,
    /// Tokens of its answer.
    pub(crate) output: usize,
    /// The engine dies when this much of the prompt is in.
    pub(crate) dies_at: Option<usize>,
    pub(crate) arrived: f64,
    pub(crate) prefilled: usize,
    pub(crate) decoded: usize,
    /// Prompt tokens of the running step.
    chunk: usize,
    left: bool,
}

impl Sequence {
    pub(crate) fn new(id: u64, prompt: usize, output: usize, dies_at: Option<usize>, arrived: f64) -> Self {
        let prompt = prompt.max(1);
        let (slot, prefilled, decoded, chunk, left) = (0, 0, 0, 0, false);
        Self { id, slot, prompt, output, dies_at, arrived, prefilled, decoded, chunk, left }
    }

    fn decodes(&self) -> bool {
        self.prefilled == self.prompt
    }
}

/// A planned step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Begun {
    pub(crate) starts: f64,
    pub(crate) ends: f64,
    /// Requests that got a slot.
    pub(crate) admitted: Vec<u64>,
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
    /// Simulated time up to which work is done.
    cursor: f64,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
}

impl Schedule {
    pub(crate) fn new(spec: &Spec, now: f64) -> Self {
        let limits = Limits {
            slots: spec.slots,
            batch: spec.batch_tokens,
            threshold: spec.long_prefill_threshold,
            block: spec.block_tokens,
        };
        Self { timing: spec.timing, limits, cursor: now, waiting: VecDeque::new(), running: Vec::new() }
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
        self.running.retain(|sequence| !sequence.left);
        if self.running.is_empty() {
            self.cursor = self.cursor.max(self.waiting.front()?.arrived);
        }
        let admitted = self.admit();
        let decoding = self.running.iter().filter(|sequence| sequence.decodes()).count();
        let prefill = self.plan_chunks(self.limits.batch.saturating_sub(decoding));
        let ends = self.cursor + prefill.max(self.timing.decode_step(decoding));
        Some(Begun { starts: self.cursor, ends, admitted })
    }

    fn admit(&mut self) -> Vec<u64> {
        let mut admitted = Vec::new();
        while self.running.len() < self.limits.slots
            && self.waiting.front().is_some_and(|next| next.arrived <= self.cursor)
            && let Some(mut next) = self.waiting.pop_front()
        {
            let taken = |slot: &usize| self.running.iter().any(|sequence| sequence.slot == *slot);
            next.slot = (0..self.limits.slots).find(|slot| !taken(slot)).unwrap_or_default();
            admitted.push(next.id);
            self.running.push(next);
        }
        admitted
    }

    /// Shares `budget` prompt tokens out, in order of arrival; returns the seconds that they take.
    fn plan_chunks(&mut self, mut budget: usize) -> f64 {
        let Limits { threshold, block, .. } = self.limits;
        let crowded = self.running.len() > 1 && threshold > 0;
        let mut seconds = 0.0;
        for sequence in &mut self.running {
            let missing = sequence.prompt - sequence.prefilled;
            let most = if crowded { budget.min(threshold.max(block)) } else { budget };
            let mut chunk = missing.min(most);
            if chunk < missing {
                chunk -= chunk % block;
            }
            if let Some(end) = sequence.dies_at {
                chunk = chunk.min(end.saturating_sub(sequence.prefilled));
            }
            if chunk > 0 && sequence.prefilled == 0 {
                seconds += self.timing.ttft_floor;
            }
            seconds += self.timing.prefill_piece(sequence.prefilled, chunk);
            sequence.chunk = chunk;
            budget -= chunk;
        }
        seconds
    }

    /// The planned step is over: what it brought, and who killed the engine in it.
    pub(crate) fn finish(&mut self, step: &Begun) -> (Vec<Advance>, Option<u64>) {
        self.cursor = step.ends;
        let mut advances = Vec::new();
        let mut killer = None;
        for sequence in self.running.iter_mut().filter(|sequence| !sequence.left) {
            let decoded_before = sequence.decodes();
            if !decoded_before && sequence.chunk == 0 {
                continue;
            }
            sequence.prefilled += sequence.chunk;
            if sequence.chunk > 0 && sequence.dies_at == Some(sequence.prefilled) {
                killer = Some(sequence.id);
            }
            sequence.chunk = 0;
            if sequence.decodes() && sequence.decoded < sequence.output {
                sequence.decoded += 1;
            }
            advances.push(Advance {
                id: sequence.id,
                prefilled: sequence.prefilled,
                decoded: sequence.decoded,
                first_token: sequence.decodes() && !decoded_before,
                complete: sequence.decodes() && sequence.decoded == sequence.output,
            });
        }
        self.running.retain(|sequence| !sequence.decodes() || sequence.decoded < sequence.output);
        (advances, killer)
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Sequence> {
        self.running.iter().filter(|sequence| !sequence.left)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dual() -> Schedule {
        Schedule::new(&Spec::preset("vllm/dual").unwrap(), 0.0)
    }

    /// Requests and when something happened to them.
    type Times = Vec<(u64, f64)>;

    /// Runs to the end; returns the first tokens and the ends.
    fn run(schedule: &mut Schedule) -> (Times, Times) {
        let (mut firsts, mut ends) = (Vec::new(), Vec::new());
        while let Some(step) = schedule.begin() {
            for advance in schedule.finish(&step).0 {
                if advance.first_token {
                    firsts.push((advance.id, step.ends));
                }
                if advance.complete {
                    ends.push((advance.id, step.ends));
                }
            }
        }
        (firsts, ends)
    }

    #[test]
    fn a_prompt_alone_takes_its_published_time_however_it_is_cut() {
        for (tokens, published) in [(10_000, 6.9), (90_000, 80.5), (237_000, 285.5)] {
            let mut schedule = dual();
            schedule.push(Sequence::new(1, tokens, 1, None, 0.0));
            let (firsts, _) = run(&mut schedule);
            assert!((firsts[0].1 / published - 1.0).abs() < 0.10, "{tokens}: {}", firsts[0].1);
        }
    }

    #[test]
    fn a_long_prefill_starves_a_live_stream() {
        let mut schedule = dual();
        schedule.push(Sequence::new(1, 100, 40, None, 0.0));
        schedule.push(Sequence::new(2, 60_000, 1, None, 0.2));
        let (_, ends) = run(&mut schedule);
        let stream = ends.iter().find(|(id, _)| *id == 1).unwrap().1;
        assert!((0.6..1.9).contains(&(40.0 / stream)), "{} tokens/s, published 0.6 to 1.9", 40.0 / stream);
    }

    #[test]
    fn a_short_newcomer_overtakes_a_long_prefill_under_the_threshold() {
        let mut schedule = dual();
        schedule.push(Sequence::new(1, 60_000, 1, None, 0.0));
        schedule.push(Sequence::new(2, 100, 1, None, 10.0));
        let (firsts, _) = run(&mut schedule);
        assert_eq!(firsts[0].0, 2);
        assert!(firsts[0].1 - 10.0 < 10.0, "waited {}", firsts[0].1 - 10.0);
    }

    #[test]
    fn requests_beyond_the_slots_wait_in_order() {
        let mut schedule = dual();
        for id in 1..=4 {
            schedule.push(Sequence::new(id, 1_000, 10, None, 0.0));
        }
        let step = schedule.begin().unwrap();
        assert_eq!((step.admitted, schedule.waiting()), (vec![1, 2], 2));
        let (_, ends) = run(&mut schedule);
        assert_eq!(ends.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_request_that_left_gives_its_slot_to_the_next() {
        let mut schedule = dual();
        for id in 1..=3 {
            schedule.push(Sequence::new(id, 50_000, 10, None, 0.0));
        }
        let step = schedule.begin().unwrap();
        assert_eq!(schedule.leave(1), Some(Phase::Prefill));
        assert_eq!(schedule.leave(1), None);
        let (advances, _) = schedule.finish(&step);
        assert!(advances.iter().all(|advance| advance.id != 1));
        assert_eq!(schedule.begin().unwrap().admitted, [3]);
        assert_eq!(schedule.leave(3), Some(Phase::Prefill));
    }

    #[test]
    fn the_cliff_is_reached_at_its_point_of_the_prefill() {
        let mut schedule = dual();
        schedule.push(Sequence::new(1, 60_000, 1, Some(48_000), 0.0));
        let killed = loop {
            let step = schedule.begin().unwrap();
            if let (_, Some(killer)) = schedule.finish(&step) {
                break (killer, step.ends);
            }
        };
        let expect = Spec::preset("vllm/dual").unwrap().timing.first_token(48_000);
        assert_eq!(killed.0, 1);
        assert!((killed.1 - expect).abs() < 0.001);
    }

    #[test]
    fn an_answer_of_no_tokens_ends_with_its_prefill() {
        let mut schedule = dual();
        schedule.push(Sequence::new(1, 10, 0, None, 5.0));
        let (firsts, ends) = run(&mut schedule);
        assert_eq!(firsts, ends);
    }
}
