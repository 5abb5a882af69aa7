//! Fault → verdict: the innocent move anywhere, the guilty only upwards, a client's mistake nowhere.

use switchback_policies::failover::{Fault, Verdict, safe_after_death, silently_truncated, verdict};

const GUILTY_ABOVE: u64 = 20_000;

#[test]
fn an_innocent_stream_of_a_dead_engine_moves_to_any_other_backend() {
    for fault in [Fault::EngineDead, Fault::OutOfMemory, Fault::ConnectionLost, Fault::Aborted] {
        assert_eq!(verdict(fault, 40_000, Some(48_000), false), Verdict::Next);
    }
}

#[test]
fn a_prompt_that_killed_an_engine_moves_once_more_and_only_to_a_larger_one() {
    assert_eq!(verdict(Fault::EngineDead, 40_000, Some(48_000), true), Verdict::LastAbove(48_000));
    assert_eq!(verdict(Fault::OutOfMemory, 40_000, None, true), Verdict::LastAbove(40_000));
}

#[test]
fn an_overflow_moves_above_the_limit_that_the_backend_told() {
    let fault = Fault::TooLong { prompt: Some(33_000), limit: Some(32_768) };
    assert_eq!(verdict(fault, 30_000, Some(40_000), false), Verdict::NextAbove(32_768));
    let silent = Fault::TooLong { prompt: None, limit: None };
    assert_eq!(verdict(silent, 30_000, Some(40_000), false), Verdict::NextAbove(40_000));
}

#[test]
fn a_clients_mistake_is_tried_nowhere_else() {
    assert_eq!(verdict(Fault::ClientMistake, 500, None, false), Verdict::Refuse);
}

#[test]
fn a_death_is_an_overflow_only_for_the_prompt_that_can_have_caused_it() {
    assert_eq!(safe_after_death(500, GUILTY_ABOVE), None);
    assert_eq!(safe_after_death(60_000, GUILTY_ABOVE), Some(54_000));
    assert_eq!(safe_after_death(20_001, GUILTY_ABOVE), Some(20_000));
}

#[test]
fn a_prompt_was_shortened_only_if_no_tokenizer_explains_the_backends_count() {
    assert!(silently_truncated(4096, 40_000));
    assert!(!silently_truncated(39_000, 40_000));
    assert!(!silently_truncated(0, 40_000));
    assert!(!silently_truncated(0, 0));
}
