//! The schedule alone: who gets what, and when.

use super::*;
use crate::{PrefixCache, timing::Bursts};

fn preset() -> Spec {
    Spec::preset("vllm/dual").unwrap()
}

/// No chance in it: one token a step.
fn plain() -> Spec {
    let mut spec = preset();
    (spec.timing.mtp, spec.timing.company, spec.plans_ahead) = (None, None, false);
    spec
}

fn schedule(spec: &Spec) -> Schedule {
    spec.check().unwrap();
    Schedule::new(spec, 0.0)
}

fn request(spec: &Spec, id: u64, prompt: usize, output: usize, arrived: f64) -> Sequence {
    Sequence::new(id, prompt, output, arrived, Bursts::new(&spec.timing, id))
}

/// Requests and when something happened to them.
type Times = Vec<(u64, f64)>;

/// Runs to the end; returns the first tokens and the ends.
fn run(schedule: &mut Schedule) -> (Times, Times) {
    let (mut firsts, mut ends) = (Vec::new(), Vec::new());
    while let Some(step) = schedule.begin() {
        let (advances, killer) = schedule.finish(&step);
        assert_eq!(killer, None);
        for advance in advances {
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
fn a_prompt_takes_the_same_time_however_it_is_cut() {
    let seconds = |batch_tokens| {
        let spec = Spec { batch_tokens, long_prefill_threshold: 0, ..plain() };
        let mut schedule = schedule(&spec);
        schedule.push(request(&spec, 1, 90_000, 1, 0.0));
        run(&mut schedule).0[0].1
    };
    assert!((seconds(2_048) - seconds(100_000)).abs() < 1e-6);
    assert!((seconds(8_192) - plain().timing.first_token(90_000)).abs() < 1e-6);
}

#[test]
fn a_short_newcomer_overtakes_a_long_prefill_at_the_second_step_when_steps_are_planned_ahead() {
    let wait = |plans_ahead| {
        let spec = Spec { plans_ahead, ..plain() };
        let mut schedule = schedule(&spec);
        schedule.push(request(&spec, 1, 60_000, 1, 0.0));
        schedule.push(request(&spec, 2, 100, 1, 10.0));
        let (firsts, _) = run(&mut schedule);
        assert_eq!(firsts[0].0, 2);
        firsts[0].1 - 10.0
    };
    let step = plain().timing.prefill_piece(11_200, 1_600);
    assert!(((wait(true) - wait(false)) / step - 1.0).abs() < 0.1, "{} {}", wait(true), wait(false));
}

#[test]
fn requests_beyond_the_slots_wait_in_order() {
    let spec = plain();
    let mut schedule = schedule(&spec);
    for id in 1..=4 {
        schedule.push(request(&spec, id, 1_000, 10, 0.0));
    }
    let step = schedule.begin().unwrap();
    assert_eq!((step.admitted, schedule.waiting()), (vec![(1, 0), (2, 0)], 2));
    let (_, ends) = run(&mut schedule);
    assert_eq!(ends.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[test]
fn a_request_that_left_gives_its_slot_to_the_next() {
    let spec = plain();
    let mut schedule = schedule(&spec);
    for id in 1..=3 {
        schedule.push(request(&spec, id, 50_000, 10, 0.0));
    }
    let step = schedule.begin().unwrap();
    assert_eq!(schedule.leave(1), Some(Phase::Prefill));
    assert_eq!(schedule.leave(1), None);
    let (advances, _) = schedule.finish(&step);
    assert!(advances.iter().all(|advance| advance.id != 1));
    assert_eq!(schedule.begin().unwrap().admitted, [(3, 0)]);
    assert_eq!(schedule.leave(3), Some(Phase::Prefill));
}

#[test]
fn the_cliff_is_reached_at_four_fifths_of_what_is_computed() {
    let spec = Spec { dies_above: Some(50_000), ..plain() };
    let mut schedule = schedule(&spec);
    schedule.push(request(&spec, 1, 60_000, 1, 0.0));
    let killed = loop {
        let step = schedule.begin().unwrap();
        if let (_, Some(killer)) = schedule.finish(&step) {
            break (killer, step.ends);
        }
    };
    assert_eq!(killed.0, 1);
    assert!((killed.1 - spec.timing.first_token(48_000)).abs() < 0.001);
}

#[test]
fn an_answer_of_no_tokens_ends_with_its_prefill() {
    let spec = plain();
    let mut schedule = schedule(&spec);
    schedule.push(request(&spec, 1, 10, 0, 5.0));
    let (firsts, ends) = run(&mut schedule);
    assert_eq!(firsts, ends);
}

#[test]
fn a_prompt_waits_until_the_pool_has_room_for_it() {
    let spec = Spec { window: 16_000, kv_pool: Some(16_000), ..plain() };
    let mut schedule = schedule(&spec);
    schedule.push(request(&spec, 1, 9_000, 10, 0.0));
    schedule.push(request(&spec, 2, 9_000, 10, 0.0));
    assert_eq!(schedule.begin().unwrap().admitted, [(1, 0)]);
    let (firsts, ends) = run(&mut schedule);
    assert!(firsts[1].1 > ends[0].1, "the second begins when the first has left: {firsts:?} {ends:?}");
}

#[test]
fn a_full_pool_takes_the_newest_off_and_computes_it_again_later() {
    let spec = Spec { window: 12_800, kv_pool: Some(12_800), block_tokens: 16, ..plain() };
    let mut schedule = schedule(&spec);
    schedule.push(request(&spec, 1, 6_000, 3_000, 0.0));
    schedule.push(request(&spec, 2, 6_000, 3_000, 0.0));
    let (mut preempted, mut ends, mut firsts) = (Vec::new(), Vec::new(), 0);
    while let Some(step) = schedule.begin() {
        preempted.extend(step.preempted.clone());
        for advance in schedule.finish(&step).0 {
            firsts += usize::from(advance.first_token);
            if advance.complete {
                ends.push((advance.id, advance.decoded, step.ends));
            }
        }
        assert!(schedule.running().map(Sequence::resident).sum::<usize>() <= 12_800);
    }
    assert_eq!((preempted, firsts), (vec![2], 2), "the first token comes once");
    assert_eq!((ends[0].0, ends[1].0, ends[1].1), (1, 2, 3_000));
    let decode = 1.0 / 72.0;
    let alone = spec.timing.prefill(6_000) + 3_000.0 * decode;
    assert!(ends[1].2 > ends[0].2 + alone / 2.0, "it waited for the first, then read its context again");
}

#[test]
fn a_conversation_is_read_only_from_where_the_cache_ends() {
    let cached = |reuse| {
        let spec = Spec { prefix_cache: Some(PrefixCache { block: 1_600, reuse }), ..plain() };
        let mut schedule = schedule(&spec);
        let chain: crate::cache::Chain = (0..4_000).collect();
        for (id, prompt) in [(1, 32_000), (2, 48_000)] {
            let mut sequence = request(&spec, id, prompt, 1, f64::from(id as u32) * 1_000.0);
            sequence.chain = std::sync::Arc::clone(&chain);
            schedule.push(sequence);
        }
        run(&mut schedule).0[1].1 - 2_000.0
    };
    let spec = plain();
    let expect = |from| spec.timing.ttft_floor + spec.timing.prefill_piece(from, 48_000 - from);
    for (reuse, from) in [(1.0, 32_000), (0.5, 16_000), (0.0, 0)] {
        assert!((cached(reuse) - expect(from)).abs() < 1e-6, "{reuse}: {}", cached(reuse));
    }
}

#[test]
fn llama_fills_up_to_its_ceiling_and_no_further() {
    let mut spec = Spec::preset("llamacpp/default").unwrap();
    spec.slots = 2;
    let dies = |prompts: [usize; 2]| {
        let mut schedule = schedule(&spec);
        for (id, prompt) in (1..).zip(prompts) {
            schedule.push(request(&spec, id, prompt, 100, 0.0));
        }
        while let Some(step) = schedule.begin() {
            if let (_, Some(killer)) = schedule.finish(&step) {
                return Some(killer);
            }
        }
        None
    };
    assert_eq!(dies([182_700, 50]), None);
    assert_eq!(dies([182_950, 10]), Some(1), "output fills it too");
    assert_eq!(dies([80_000, 120_000]), Some(2), "all slots together");
}

#[test]
fn sglang_lets_decodes_wait_while_it_reads_a_prompt() {
    let tokens_meanwhile = |engine| {
        let spec = Spec { engine, batch_tokens: 8_192, ..plain() };
        let mut schedule = schedule(&spec);
        schedule.push(request(&spec, 1, 100, 2_000, 0.0));
        schedule.push(request(&spec, 2, 60_000, 1, 0.5));
        let (mut decoded, mut before) = (0, 0);
        loop {
            let step = schedule.begin().unwrap();
            before += usize::from(step.admitted.iter().any(|(id, _)| *id == 2)) * decoded;
            let (advances, _) = schedule.finish(&step);
            for advance in advances {
                if advance.id == 1 {
                    decoded = advance.decoded;
                }
                if advance.id == 2 && advance.first_token {
                    return decoded - before;
                }
            }
        }
    };
    assert_eq!(tokens_meanwhile(crate::Engine::Sglang), 0);
    assert!(tokens_meanwhile(crate::Engine::Vllm) > 30);
}
