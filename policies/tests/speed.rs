//! A backend's speed is learned from its own answers, and one odd answer moves little.

use switchback_policies::facts::Speed;
use switchback_policies::speed::{Kept, Learner, Reading, Writing};

/// A machine twice as fast as what is known of machines of no known speed, with a steeper curve.
const TRUE: Speed =
    Speed { prefill_a: 4.5e-4, prefill_b: 3e-9, first_token: 0.1, decode: 110.0, deeper: 2e-7 };

fn fresh(prompt: u64) -> Reading {
    Reading { prompt, believed: 0, cached: None, seconds: TRUE.first_token + TRUE.prefill(0, prompt) }
}

fn write(prompt: u64, running: u64, factor: f64) -> Writing {
    let each = (1.0 / TRUE.decode + TRUE.deeper * (prompt as f64 + 150.0)) * factor;
    Writing { prompt, tokens: 300, seconds: each * 300.0, running }
}

fn near(one: f64, other: f64, within: f64) -> bool {
    (one / other - 1.0).abs() <= within
}

#[test]
fn without_observations_what_is_published_stands() {
    let speed = Learner::default().speed(Speed::USUAL, 0);
    for prompt in [1000, 30_000, 200_000] {
        assert!(near(speed.prefill(0, prompt), Speed::USUAL.prefill(0, prompt), 1e-6));
    }
    assert!(near(speed.seconds(1000, 500), Speed::USUAL.seconds(1000, 500), 1e-6));
}

#[test]
fn after_a_dozen_prompts_of_different_lengths_a_machines_curve_is_known_within_a_tenth() {
    let mut learner = Learner::default();
    for prompt in [2000, 30_000, 8000, 60_000, 500, 16_000, 45_000, 4000, 90_000, 12_000, 25_000, 3000] {
        learner.read(Speed::USUAL, fresh(prompt));
        learner.wrote(Speed::USUAL, write(prompt, 1, 1.0));
    }
    let speed = learner.speed(Speed::USUAL, 0);
    for prompt in [4000, 16_000, 60_000, 120_000] {
        let (learned, truth) = (speed.prefill(0, prompt), TRUE.prefill(0, prompt));
        assert!(near(learned, truth, 0.1), "{prompt}: {learned:.1} s, in truth {truth:.1} s");
        let (learned, truth) = (speed.seconds(prompt, 500), TRUE.seconds(prompt, 500));
        assert!(near(learned, truth, 0.1), "{prompt}: {learned:.1} s, in truth {truth:.1} s");
    }
}

#[test]
fn one_odd_time_moves_little() {
    let mut learner = Learner::default();
    for prompt in [2000, 30_000, 8000, 60_000, 16_000, 45_000] {
        learner.read(Speed::USUAL, fresh(prompt));
    }
    let before = learner.speed(Speed::USUAL, 0).prefill(0, 30_000);
    // A hundredth, since another conversation had left the prompt in the cache; and a hundred times as long.
    learner.read(Speed::USUAL, Reading { seconds: 0.2, ..fresh(30_000) });
    assert!(near(learner.speed(Speed::USUAL, 0).prefill(0, 30_000), before, 0.01));
    learner.read(Speed::USUAL, Reading { seconds: 1600.0, ..fresh(30_000) });
    assert!(learner.speed(Speed::USUAL, 0).prefill(0, 30_000) < 1.5 * before);
}

#[test]
fn what_a_cache_really_saves_is_learned_from_its_word_or_from_the_time() {
    let mut told = Learner::default();
    let mut silent = Learner::default();
    for _ in 0..20 {
        let seconds = TRUE.first_token + TRUE.prefill(15_000, 32_000);
        told.read(TRUE, Reading { prompt: 32_000, believed: 30_000, cached: Some(15_000), seconds });
        silent.read(TRUE, Reading { prompt: 32_000, believed: 30_000, cached: None, seconds });
    }
    assert!(near(told.saved(30_000) as f64, 15_000.0, 0.05), "{}", told.saved(30_000));
    assert!(near(silent.saved(30_000) as f64, 14_000.0, 0.15), "{}", silent.saved(30_000));
    assert!(near(told.speed(TRUE, 0).prefill(0, 32_000), TRUE.prefill(0, 32_000), 0.01));
}

#[test]
fn streams_in_company_are_slower_by_a_factor_of_their_own() {
    let mut learner = Learner::default();
    for _ in 0..20 {
        learner.wrote(TRUE, write(10_000, 1, 1.0));
        learner.wrote(TRUE, write(10_000, 2, 1.7));
        learner.wrote(TRUE, write(10_000, 8, 12.0));
    }
    let each = |running: u64| learner.speed(TRUE, running - 1).seconds(10_000, 500) - TRUE.prefill(0, 10_000);
    assert!(
        near(each(2) / each(1), 1.7, 0.1) && near(each(8) / each(1), 12.0, 0.1),
        "{} {}",
        each(2),
        each(8)
    );
}

#[test]
fn nothing_that_is_seen_makes_a_speed_absurd() {
    let mut learner = Learner::default();
    for seconds in [0.0, -5.0, 1e12, f64::MIN_POSITIVE, 1e-9] {
        for (prompt, believed, cached) in [(0, 0, None), (1 << 40, 5, Some(1 << 50)), (1000, 1 << 50, None)] {
            learner.read(Speed::USUAL, Reading { prompt, believed, cached, seconds });
            learner.wrote(Speed::USUAL, Writing { prompt, tokens: 100, seconds, running: believed });
        }
    }
    let speed = learner.speed(Speed::USUAL, 3);
    for value in [speed.prefill(0, 100_000), speed.seconds(100_000, 1000), speed.decode] {
        assert!(value.is_finite() && value > 0.0, "{speed:?}");
    }
}

#[test]
fn what_was_learned_is_the_same_after_it_was_kept_and_numbers_that_are_none_are_refused() {
    let mut learner = Learner::default();
    for prompt in [3000, 20_000, 60_000] {
        let seconds = 0.002 * prompt as f64;
        learner.read(Speed::USUAL, Reading { prompt, believed: 0, cached: Some(0), seconds });
    }
    learner.wrote(Speed::USUAL, Writing { prompt: 100, tokens: 100, seconds: 4.0, running: 2 });
    let kept = learner.kept();
    assert_eq!(Learner::of(kept), Some(learner));
    for broken in [
        Kept { reuse: 2.0, ..kept },
        Kept { company: [0.0; 4], ..kept },
        Kept { prefill: [f64::NAN; 5], ..kept },
        Kept { decode: [-1.0; 5], ..kept },
    ] {
        assert_eq!(Learner::of(broken), None, "{broken:?}");
    }
}
