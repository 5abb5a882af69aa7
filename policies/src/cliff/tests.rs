//! The cliff map as claims: what a death bars, what a success acquits, what fades.
//!
//! Sizes are tokens; the floor is the usual one.

use super::*;

const FLOOR: u64 = 20_000;

fn first(tokens: u64) -> Shape {
    Shape { new: tokens, resident: tokens, running: 1, largest: tokens, ..Shape::default() }
}

fn turn(new: u64, all: u64) -> Shape {
    Shape { accumulated: all, resident: all, largest: all, ..first(new) }
}

fn limit(cliffs: &Cliffs, dimension: Dimension) -> Option<u64> {
    cliffs.region(FLOOR, false).hard(dimension)
}

#[test]
fn a_death_makes_nine_tenths_of_the_smallest_killer_the_limit() {
    let mut cliffs = Cliffs::default();
    cliffs.survived(&first(30_000));
    let lesson = cliffs.died(&first(60_000), 1, FLOOR);
    assert_eq!(lesson.lowered, [(Dimension::New, None, 54_000)]);
    cliffs.died(&first(50_000), 2, FLOOR);
    cliffs.died(&first(58_000), 3, FLOOR);
    assert_eq!(limit(&cliffs, Dimension::New), Some(45_000));
    assert!(cliffs.region(FLOOR, false).beyond(&first(44_000)).is_none(), "short prompts go on");
    assert!(cliffs.region(FLOOR, false).beyond(&first(45_001)).is_some());
}

#[test]
fn a_conversation_that_died_of_its_length_bars_no_first_turn_that_was_survived_before() {
    let mut cliffs = Cliffs::default();
    cliffs.survived(&first(24_000));
    for tokens in [5_000, 10_000, 15_000, 20_000] {
        cliffs.survived(&turn(5_000, tokens));
    }
    cliffs.died(&turn(3_000, 23_000), 1, FLOOR);
    assert_eq!(
        (limit(&cliffs, Dimension::New), limit(&cliffs, Dimension::Accumulated)),
        (None, Some(20_700))
    );
    let region = cliffs.region(FLOOR, false);
    assert!(region.beyond(&first(24_000)).is_none());
    assert_eq!(region.beyond(&turn(1_000, 21_000)).unwrap().dimension, Dimension::Accumulated);
}

#[test]
fn tiny_prompts_are_never_blamed_however_often_the_engine_dies_on_them() {
    let mut cliffs = Cliffs::default();
    for at in 0..10 {
        cliffs.died(&first(976), at, FLOOR);
    }
    assert!(cliffs.region(FLOOR, false).beyond(&first(30_000)).is_none());
}

#[test]
fn a_death_of_what_was_survived_many_times_teaches_nothing_about_length() {
    let mut cliffs = Cliffs::default();
    for _ in 0..20 {
        cliffs.survived(&first(40_000));
    }
    for at in 0..4 {
        assert_eq!(cliffs.died(&first(30_000), at, FLOOR), Lesson::default());
    }
}

#[test]
fn a_ramp_is_learned_although_some_came_through() {
    let mut cliffs = Cliffs::default();
    for _ in 0..3 {
        cliffs.survived(&first(55_000));
    }
    cliffs.died(&first(54_000), 1, FLOOR);
    assert_eq!(limit(&cliffs, Dimension::New), Some(48_600));
}

#[test]
fn a_short_prompt_is_guilty_only_if_it_happens_again_and_again() {
    let mut cliffs = Cliffs::default();
    for tokens in [6_000, 6_400] {
        assert_eq!(cliffs.died(&first(tokens), tokens, FLOOR), Lesson::default());
    }
    cliffs.died(&first(6_200), 3, FLOOR);
    assert_eq!(limit(&cliffs, Dimension::New), Some(5_400));
    cliffs.survived(&first(7_000));
    cliffs.survived(&first(7_000));
    assert_eq!(limit(&cliffs, Dimension::New), None, "acquitted by what was survived since");
}

#[test]
fn many_at_once_are_blamed_as_a_crowd_and_not_alone() {
    let mut cliffs = Cliffs::default();
    for _ in 0..10 {
        cliffs.survived(&first(30_000));
    }
    let crowd = Shape { resident: 130_000, running: 4, ..first(25_000) };
    let lesson = cliffs.died(&crowd, 1, FLOOR);
    assert_eq!(lesson.lowered, [(Dimension::Resident, None, 117_000)]);
}

#[test]
fn many_small_requests_that_die_together_again_and_again_lower_nothing() {
    let mut cliffs = Cliffs::default();
    for at in 0..6 {
        let new = 900 + 700 * at;
        let crowd = Shape { resident: 30_000 + 1_000 * at, running: 4 + at, largest: 9_000, ..first(new) };
        for _ in 0..4 {
            cliffs.survived(&crowd);
        }
        assert_eq!(cliffs.died(&crowd, at, FLOOR), Lesson::default());
    }
}

#[test]
fn exploring_goes_up_in_small_steps_on_an_idle_backend_and_raises_the_limit() {
    let mut cliffs = Cliffs::default();
    cliffs.died(&first(40_000), 1, FLOOR);
    let allowed = |cliffs: &Cliffs, tokens, running| {
        let region = cliffs.region(FLOOR, true);
        region.beyond(&first(tokens)).is_none_or(|beyond| beyond.may_be_tried(&region, running))
    };
    assert!(allowed(&cliffs, 39_000, 0) && !allowed(&cliffs, 39_000, 1) && !allowed(&cliffs, 44_000, 0));
    cliffs.survived(&first(39_000));
    assert_eq!(limit(&cliffs, Dimension::New), Some(39_000));
    assert!(allowed(&cliffs, 42_000, 0));
    assert!(!cliffs.region(FLOOR, false).beyond(&first(39_500)).unwrap().may_be_tried(&Region::default(), 0));
}

#[test]
fn what_was_learned_fades_with_restarts_on_purpose_and_with_another_version() {
    let mut cliffs = Cliffs::default();
    cliffs.is_version("0.31.0");
    cliffs.died(&first(60_000), 1, FLOOR);
    cliffs.is_version("0.31.0");
    cliffs.restarted();
    assert_eq!(limit(&cliffs, Dimension::New), Some(54_000));
    cliffs.is_version("0.32.0");
    let bound = cliffs.region(FLOOR, false).bound(Dimension::New).unwrap();
    assert!(bound.soft && bound.limit == 54_000);
    cliffs.restarted();
    cliffs.restarted();
    assert_eq!(cliffs.region(FLOOR, false).bound(Dimension::New), None);
}

#[test]
fn numbers_of_another_rig_are_taken_over_once() {
    let (mut own, mut theirs) = (Cliffs::default(), Cliffs::default());
    theirs.died(&first(60_000), 7, FLOOR);
    theirs.survived(&first(30_000));
    own.merge(&theirs);
    own.merge(&theirs);
    assert_eq!(own, theirs);
    assert_eq!(limit(&own, Dimension::New), Some(54_000));
}

#[test]
fn what_the_operator_has_forgotten_does_not_come_back_with_an_older_copy() {
    let mut cliffs = Cliffs::default();
    cliffs.died(&first(60_000), 7, FLOOR);
    let copy = cliffs.clone();
    cliffs.forget(8);
    cliffs.merge(&copy);
    assert_eq!(limit(&cliffs, Dimension::New), None);
    cliffs.died(&first(60_000), 9, FLOOR);
    assert_eq!(limit(&cliffs, Dimension::New), Some(54_000));
}

#[test]
fn a_death_of_a_long_prompt_does_not_prove_that_a_short_one_was_guilty() {
    let mut cliffs = Cliffs::default();
    cliffs.died(&turn(7_000, 24_000), 1, FLOOR);
    cliffs.died(&first(60_000), 2, FLOOR);
    assert_eq!(limit(&cliffs, Dimension::New), Some(54_000));
}

#[test]
fn an_engine_that_dies_of_anything_has_no_cliff_at_short_prompts() {
    let mut cliffs = Cliffs::default();
    for _ in 0..40 {
        cliffs.survived(&first(1_000));
    }
    for at in 0..4 {
        cliffs.died(&first(800), at, FLOOR);
    }
    for at in 4..7 {
        cliffs.died(&first(6_000), at, FLOOR);
    }
    assert_eq!(limit(&cliffs, Dimension::New), None);
}
