//! A backend is held against what it was, never against what others are.

use proptest::prelude::*;
use switchback_policies::quality::{Collapse, Finding, Flaw, Graded, Record, Subject};

const CALLS: Subject = Subject::Calls;

fn graded(flaw: Option<Flaw>, conversation: u64, kind: u64) -> Graded {
    Graded { flaw, conversation, kind }
}

/// So many answers in as many conversations as there are.
fn take(record: &mut Record, flaw: Option<Flaw>, kind: u64, count: u64) -> Vec<Finding> {
    (0..count).map(|nth| record.took(CALLS, graded(flaw, nth, kind))).collect()
}

fn collapse(findings: &[Finding]) -> Option<Collapse> {
    let collapsed =
        |finding: &Finding| if let Finding::Collapsed(collapse) = finding { Some(*collapse) } else { None };
    findings.iter().find_map(collapsed)
}

#[test]
fn calls_that_worked_and_do_no_longer_are_found_out_with_the_numbers() {
    let mut record = Record::default();
    assert_eq!(collapse(&take(&mut record, None, 1, 60)), None);
    let found = collapse(&take(&mut record, Some(Flaw::Invalid), 1, 12)).expect("collapsed");
    assert_eq!((found.flaw, found.flawed, found.of, found.before), (Flaw::Invalid, 10, 20, 0));
    assert_eq!(record.collapsed(), Some(found));
    assert_eq!(
        found.to_string(),
        "10 of its last 20 answers with calls are flawed (mostly calls with invalid arguments), which 0 in 100 were before"
    );
}

#[test]
fn a_backend_whose_calls_have_always_been_mended_is_as_it_is() {
    let mut record = Record::default();
    assert_eq!(collapse(&take(&mut record, Some(Flaw::Mended), 1, 500)), None);
    // Now and then one is sound.
    for _ in 0..100 {
        assert_eq!(collapse(&take(&mut record, None, 1, 1)), None);
        assert_eq!(collapse(&take(&mut record, Some(Flaw::Mended), 1, 4)), None);
    }
}

#[test]
fn neither_one_conversation_nor_one_kind_of_request_among_several_speaks_for_all() {
    let mut record = Record::default();
    take(&mut record, None, 1, 60);
    for _ in 0..100 {
        assert_eq!(
            record.took(CALLS, graded(Some(Flaw::Invalid), 7, 1)),
            Finding::Same,
            "one that went astray"
        );
    }
    // Two kinds that work; then one of them does no longer.
    let mut record = Record::default();
    take(&mut record, None, 1, 40);
    take(&mut record, None, 2, 40);
    for nth in 0..100 {
        assert_eq!(record.took(CALLS, graded(None, nth, 1)), Finding::Same);
        for more in 0..4 {
            assert_eq!(record.took(CALLS, graded(Some(Flaw::Invalid), nth * 4 + more, 2)), Finding::Same);
        }
    }
}

#[test]
fn a_request_that_has_never_worked_says_nothing() {
    let mut record = Record::default();
    take(&mut record, None, 1, 60);
    assert_eq!(collapse(&take(&mut record, Some(Flaw::Invalid), 2, 500)), None);
    assert_eq!(record.collapsed(), None);
}

#[test]
fn what_answers_well_again_has_recovered_and_only_then() {
    let mut record = Record::default();
    take(&mut record, None, 1, 60);
    assert!(collapse(&take(&mut record, Some(Flaw::Unreadable), 1, 20)).is_some());
    let back = take(&mut record, None, 1, 20);
    let at = back.iter().position(|finding| *finding == Finding::Recovered);
    assert_eq!(at, Some(17), "when no more than two of the last twenty are flawed");
    assert_eq!(record.collapsed(), None);
}

#[test]
fn who_was_released_has_to_collapse_anew_and_is_still_known() {
    let mut record = Record::default();
    take(&mut record, None, 1, 60);
    assert!(collapse(&take(&mut record, Some(Flaw::Empty), 1, 20)).is_some());
    record.release();
    assert_eq!(record.collapsed(), None);
    assert_eq!(collapse(&take(&mut record, Some(Flaw::Empty), 1, 19)), None, "not on few answers");
    assert!(collapse(&take(&mut record, Some(Flaw::Empty), 1, 1)).is_some());
}

#[test]
fn calls_and_answers_are_looked_at_apart() {
    let mut record = Record::default();
    take(&mut record, None, 1, 60);
    for nth in 0..200 {
        assert_eq!(record.took(Subject::Answers, graded(None, nth, 9)), Finding::Same);
    }
    // Its calls fall apart, while what others chat about does not.
    let mut found = None;
    for nth in 0..20 {
        record.took(Subject::Answers, graded(None, nth, 9));
        found = found.or(collapse(&[record.took(CALLS, graded(Some(Flaw::Invalid), nth, 1))]));
    }
    assert_eq!(found.map(|found| found.subject), Some(CALLS));
}

/// Answers that a backend gave: what was wrong, in which conversation, of which kind.
fn answers(flawed: impl Strategy<Value = bool>) -> impl Strategy<Value = Vec<(bool, u64, u64)>> {
    prop::collection::vec((flawed, 0..40_u64, 0..4_u64), 0..400)
}

proptest! {
    /// Whatever comes: it is told once, and what is told is true of the last answers.
    #[test]
    fn what_is_told_is_true(answers in answers(any::<bool>())) {
        let mut record = Record::default();
        let mut ill = false;
        for (nth, (flawed, conversation, kind)) in answers.iter().enumerate() {
            let flaw = flawed.then_some(Flaw::Invalid);
            match record.took(CALLS, graded(flaw, *conversation, *kind)) {
                Finding::Collapsed(told) => {
                    prop_assert!(!ill);
                    prop_assert!(told.flawed * 2 >= told.of && told.flawed <= told.of && nth >= 39);
                    let mut conversations: Vec<u64> =
                        answers[..=nth].iter().filter(|(flawed, ..)| *flawed).map(|(_, of, _)| *of).collect();
                    conversations.sort_unstable();
                    conversations.dedup();
                    prop_assert!(conversations.len() >= 3);
                    ill = true;
                }
                Finding::Recovered => {
                    prop_assert!(ill);
                    ill = false;
                }
                Finding::Same => {}
            }
            prop_assert_eq!(record.collapsed().is_some(), ill);
        }
    }

    /// However a client orders its answers: one that never has a sound one changes nothing for the others.
    #[test]
    fn who_never_had_a_sound_answer_changes_nothing(
        answers in answers(prop::bool::weighted(0.3)), odd in prop::collection::vec(any::<bool>(), 400)
    ) {
        let (mut alone, mut beside) = (Record::default(), Record::default());
        for (nth, (flawed, conversation, kind)) in answers.iter().enumerate() {
            let one = graded(flawed.then_some(Flaw::Mended), *conversation, *kind);
            if odd[nth] {
                prop_assert_eq!(beside.took(CALLS, graded(Some(Flaw::Invalid), nth as u64, 99)), Finding::Same);
            }
            prop_assert_eq!(alone.took(CALLS, one), beside.took(CALLS, one));
        }
    }
}
