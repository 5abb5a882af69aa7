//! Who is on the cards: claims, one by one, and what holds in any order of events.

mod properties;

use std::time::Duration;

use switchback_policies::loading::{
    Busy, Cards, Ended, Hold, Job, Loadable, Offer, Presence, Rules, Standing, Ticket,
};

const LOAD: u64 = 100;

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Backends that need these cards.
pub(crate) fn cards(backends: &[&[u32]]) -> Cards {
    cards_under(Rules::default(), backends)
}

pub(crate) fn cards_under(rules: Rules, backends: &[&[u32]]) -> Cards {
    let loadable = |cards: &&[u32]| Loadable { cards: cards.to_vec(), expected: seconds(LOAD), seen: None };
    Cards::new(rules, backends.iter().map(loadable).collect())
}

/// Two backends on one card, the first of which is there since the beginning and was never used.
fn one_card() -> Cards {
    let mut cards = cards(&[&[0], &[0]]);
    cards.seen(0, Presence::There, seconds(0));
    cards
}

const OWN: Busy = Busy { own: 1, others: 0 };
const OTHERS: Busy = Busy { own: 0, others: 1 };
const NONE: Busy = Busy { own: 0, others: 0 };

fn load(target: usize, stop: &[usize]) -> Option<Job> {
    Some(Job { target, stop: stop.to_vec(), back: false })
}

#[test]
fn a_wish_for_who_is_there_is_fulfilled_at_once() {
    let mut cards = one_card();
    assert_eq!(cards.offer(0, false, seconds(1)), Offer::Ready);
    cards.wish(Ticket(1), 0, false, seconds(1)).unwrap();
    assert_eq!(cards.standing(Ticket(1), seconds(1)), Standing::Go);
    assert_eq!(cards.next(seconds(1)), None);
}

#[test]
fn free_cards_are_loaded_at_once_whoever_asks() {
    let mut cards = cards(&[&[0], &[0], &[1]]);
    cards.seen(0, Presence::There, seconds(0));
    cards.wish(Ticket(1), 2, false, seconds(1)).unwrap();
    assert_eq!(cards.next(seconds(1)), load(2, &[]));
}

#[test]
fn who_may_not_swap_waits_along_with_others_and_never_causes_a_swap() {
    let mut cards = one_card();
    assert_eq!(cards.offer(1, false, seconds(1)), Offer::Denied);
    assert_eq!(cards.wish(Ticket(1), 1, false, seconds(1)), Err(Standing::Denied));
    cards.wish(Ticket(2), 1, true, seconds(2)).unwrap();
    cards.wish(Ticket(3), 1, false, seconds(3)).unwrap();
    assert!(matches!(cards.standing(Ticket(3), seconds(3)), Standing::Waits { before: 1, .. }));
    // The one that may hangs up.
    cards.forget(Ticket(2));
    assert_eq!(cards.standing(Ticket(3), seconds(4)), Standing::Denied);
    assert_eq!(cards.next(seconds(400)), None);
}

#[test]
fn one_that_is_in_use_stays_for_its_time_and_then_goes_although_it_is_used() {
    let mut cards = one_card();
    cards.wish(Ticket(1), 1, true, seconds(1)).unwrap();
    for second in 1..300 {
        // Requests come and go all the time.
        cards.runs(0, if second % 2 == 0 { OWN } else { NONE }, seconds(second));
        assert_eq!(cards.next(seconds(second)), None, "{second}");
        assert!(cards.admits(0));
    }
    cards.runs(0, OWN, seconds(300));
    assert_eq!(cards.next(seconds(300)), None);
    assert!(!cards.admits(0), "it gets nothing new");
    cards.runs(0, NONE, seconds(350));
    assert_eq!(cards.next(seconds(350)), load(1, &[0]));
}

#[test]
fn one_that_nobody_has_used_for_as_long_as_a_load_takes_goes_at_once() {
    let mut cards = one_card();
    assert_eq!(cards.changes_in(seconds(50)), None);
    cards.wish(Ticket(1), 1, true, seconds(59)).unwrap();
    assert_eq!(cards.next(seconds(59)), None);
    assert_eq!(cards.changes_in(seconds(59)), Some(seconds(1)));
    assert_eq!(cards.next(seconds(60)), load(1, &[0]), "idle for the 60 s of the rules");
    cards.done(Ended::Loaded, seconds(65));
    // It loads within 5 s, so an unused one goes after 5 s.
    cards.seen(0, Presence::There, seconds(70));
    cards.seen(1, Presence::Away, seconds(70));
    cards.seen(1, Presence::Away, seconds(71));
    cards.wish(Ticket(2), 1, true, seconds(72)).unwrap();
    assert_eq!(cards.next(seconds(74)), None);
    assert_eq!(cards.next(seconds(75)), load(1, &[0]));
}

#[test]
fn answers_of_the_proxy_are_waited_for_to_their_end_and_those_of_others_for_a_while() {
    for (busy, until) in [(OWN, None), (OTHERS, Some(420))] {
        let mut cards = one_card();
        cards.wish(Ticket(1), 1, true, seconds(290)).unwrap();
        for second in 290..800 {
            cards.runs(0, busy, seconds(second));
            let job = cards.next(seconds(second));
            assert_eq!(job.is_some(), until == Some(second), "{second}");
            if job.is_some() {
                break;
            }
        }
    }
}

#[test]
fn a_drain_ends_when_nobody_wishes_for_it_any_more() {
    let mut cards = one_card();
    cards.wish(Ticket(1), 1, true, seconds(300)).unwrap();
    cards.runs(0, OWN, seconds(300));
    assert_eq!(cards.next(seconds(300)), None);
    assert!(!cards.admits(0));
    cards.forget(Ticket(1));
    assert_eq!(cards.next(seconds(301)), None);
    assert!(cards.admits(0));
}

#[test]
fn who_wants_the_same_goes_together_and_the_oldest_wish_is_next() {
    let mut cards = cards(&[&[], &[], &[]]);
    cards.seen(0, Presence::There, seconds(0));
    for (ticket, backend) in [(1, 1), (2, 2), (3, 1)] {
        cards.wish(Ticket(ticket), backend, true, seconds(100 + ticket)).unwrap();
    }
    assert_eq!(cards.next(seconds(110)), load(1, &[0]));
    assert_eq!(cards.next(seconds(111)), None, "never two");
    cards.done(Ended::Loaded, seconds(210));
    let standing = |ticket| cards.standing(Ticket(ticket), seconds(210));
    assert_eq!((standing(1), standing(3)), (Standing::Go, Standing::Go));
    assert!(matches!(standing(2), Standing::Waits { before: 1, .. }));
}

#[test]
fn who_needs_two_cards_is_not_starved_by_those_who_need_one() {
    let mut cards = cards(&[&[0], &[1], &[0, 1], &[0], &[1]]);
    cards.seen(0, Presence::There, seconds(0));
    cards.seen(1, Presence::There, seconds(200));
    cards.wish(Ticket(1), 2, true, seconds(250)).unwrap();
    cards.wish(Ticket(2), 3, true, seconds(251)).unwrap();
    // The first card could be given to the second wish now.
    cards.runs(0, OWN, seconds(251));
    cards.runs(1, OWN, seconds(251));
    assert_eq!(cards.next(seconds(310)), None);
    assert!(cards.admits(0), "not let go before both can go");
    cards.runs(0, NONE, seconds(490));
    cards.runs(1, NONE, seconds(490));
    assert_eq!(cards.next(seconds(500)), load(2, &[0, 1]));
}

#[test]
fn after_a_failure_the_last_good_one_comes_back_and_the_failed_one_is_left_alone_longer_and_longer() {
    let mut cards = one_card();
    cards.wish(Ticket(1), 1, true, seconds(100)).unwrap();
    assert_eq!(cards.next(seconds(100)), load(1, &[0]));
    cards.done(Ended::Failed, seconds(150));
    assert_eq!(cards.standing(Ticket(1), seconds(150)), Standing::Failed(seconds(60)));
    cards.forget(Ticket(1));
    assert_eq!(cards.next(seconds(150)), Some(Job { target: 0, stop: vec![], back: true }));
    cards.done(Ended::Loaded, seconds(200));
    assert_eq!(cards.offer(1, true, seconds(200)), Offer::Failed(seconds(10)));
    assert_eq!(cards.wish(Ticket(2), 1, true, seconds(200)), Err(Standing::Failed(seconds(10))));
    cards.wish(Ticket(3), 1, true, seconds(300)).unwrap();
    assert_eq!(cards.next(seconds(300)), load(1, &[0]));
    cards.done(Ended::Failed, seconds(310));
    assert_eq!(cards.offer(1, true, seconds(310)), Offer::Failed(seconds(120)));
    // The way back fails, too: it is tried again, though not at once.
    assert!(cards.next(seconds(311)).is_some_and(|job| job.back));
    cards.done(Ended::Failed, seconds(320));
    assert_eq!(cards.next(seconds(379)), None);
    assert_eq!(cards.next(seconds(380)), Some(Job { target: 0, stop: vec![], back: true }));
    cards.done(Ended::Loaded, seconds(400));
    cards.forget(Ticket(3));
    assert_eq!(cards.comes_back().next(), None);
    assert_eq!(cards.next(seconds(1000)), None);
}

#[test]
fn the_last_good_one_comes_back_although_the_failed_one_is_seen_for_a_while_and_others_fail_after_it() {
    let mut cards = cards(&[&[0], &[0], &[0]]);
    cards.seen(0, Presence::There, seconds(0));
    cards.wish(Ticket(1), 1, true, seconds(100)).unwrap();
    cards.next(seconds(100)).unwrap();
    cards.done(Ended::Failed, seconds(150));
    cards.forget(Ticket(1));
    // What is left of it still answers its probes.
    cards.seen(1, Presence::Coming, seconds(150));
    assert_eq!(cards.next(seconds(150)), None);
    cards.seen(1, Presence::Away, seconds(152));
    cards.seen(1, Presence::Away, seconds(153));
    // Somebody wants a third one first, which fails as well, on cards that are free by now.
    cards.wish(Ticket(2), 2, true, seconds(153)).unwrap();
    assert_eq!(cards.next(seconds(153)), load(2, &[]));
    cards.done(Ended::Failed, seconds(160));
    cards.forget(Ticket(2));
    assert_eq!(cards.comes_back().collect::<Vec<_>>(), [0]);
    assert_eq!(cards.next(seconds(160)), Some(Job { target: 0, stop: vec![], back: true }));
}

#[test]
fn what_somebody_else_took_away_or_another_has_replaced_does_not_come_back() {
    let mut cards = cards(&[&[0], &[0], &[1]]);
    cards.seen(0, Presence::There, seconds(0));
    cards.seen(2, Presence::There, seconds(0));
    cards.wish(Ticket(1), 1, true, seconds(100)).unwrap();
    assert_eq!(cards.next(seconds(100)), load(1, &[0]));
    cards.done(Ended::Loaded, seconds(150));
    cards.forget(Ticket(1));
    for second in [160, 161] {
        cards.seen(1, Presence::Away, seconds(second));
        cards.seen(2, Presence::Away, seconds(second));
    }
    cards.wish(Ticket(2), 1, true, seconds(170)).unwrap();
    cards.next(seconds(170)).unwrap();
    cards.done(Ended::Failed, seconds(180));
    cards.forget(Ticket(2));
    assert_eq!(cards.comes_back().next(), None);
    assert_eq!(cards.next(seconds(180)), None);
}

#[test]
fn a_loader_that_cannot_be_reached_is_waited_for_a_minute_and_takes_nobody_from_their_place() {
    let mut cards = one_card();
    cards.reaches(false, seconds(100));
    cards.wish(Ticket(1), 1, true, seconds(100)).unwrap();
    assert_eq!(cards.hold(Ticket(1), seconds(105)), Some(Hold::Unreachable(seconds(5))));
    assert_eq!(cards.next(seconds(110)), None);
    assert!(cards.admits(0));
    // It comes up, goes before it is told to load, and comes up again.
    cards.reaches(true, seconds(120));
    assert_eq!(cards.next(seconds(120)), load(1, &[0]));
    cards.done(Ended::Unreachable, seconds(120));
    assert!(cards.admits(0) && matches!(cards.standing(Ticket(1), seconds(121)), Standing::Waits { .. }));
    cards.reaches(true, seconds(123));
    assert_eq!(cards.next(seconds(123)), load(1, &[0]), "without another idle minute");
    cards.done(Ended::Unreachable, seconds(123));
    assert_eq!(cards.standing(Ticket(1), seconds(183)), Standing::Failed(seconds(1)));
    assert_eq!(cards.offer(1, true, seconds(200)), Offer::Failed(seconds(1)));
    cards.reaches(true, seconds(201));
    assert!(matches!(cards.offer(1, true, seconds(201)), Offer::After(_)));
}

#[test]
fn a_wish_knows_what_it_waits_for() {
    let rules = Rules { wait: seconds(1000), ..Rules::default() };
    let mut cards = cards_under(rules, &[&[0], &[0], &[0]]);
    cards.seen(0, Presence::There, seconds(0));
    cards.runs(0, OWN, seconds(10));
    cards.wish(Ticket(1), 1, true, seconds(10)).unwrap();
    cards.wish(Ticket(2), 2, true, seconds(11)).unwrap();
    let hold = |cards: &Cards, ticket, now| cards.hold(Ticket(ticket), seconds(now));
    assert_eq!(hold(&cards, 1, 20), Some(Hold::Stays(0, seconds(280))));
    assert_eq!(hold(&cards, 2, 20), Some(Hold::Older(1)));
    assert_eq!(hold(&cards, 1, 300), Some(Hold::Runs(0, 1, 0)));
    cards.runs(0, NONE, seconds(310));
    assert_eq!(hold(&cards, 1, 311), Some(Hold::Next));
    cards.next(seconds(311)).unwrap();
    assert_eq!(hold(&cards, 1, 321), Some(Hold::Loads(seconds(10))));
    assert_eq!(hold(&cards, 2, 321), Some(Hold::Other(1, seconds(10))));
    assert_eq!(hold(&cards, 3, 321), None);
}

#[test]
fn a_load_that_was_slower_than_anybody_waits_is_tried_again_all_the_same() {
    let rules = Rules { wait: seconds(120), ..Rules::default() };
    let loadable = Loadable { cards: vec![], expected: seconds(LOAD), seen: Some(seconds(700)) };
    let mut cards = Cards::new(rules, vec![loadable]);
    cards.wish(Ticket(1), 0, true, seconds(0)).unwrap();
    cards.next(seconds(0)).unwrap();
    cards.done(Ended::Loaded, seconds(100));
    assert_eq!(cards.load_time(0), Some(seconds(400)), "as much as all before it");
}

#[test]
fn a_swapper_that_rolls_back_by_itself_is_believed() {
    let mut cards = one_card();
    cards.wish(Ticket(1), 1, true, seconds(100)).unwrap();
    cards.next(seconds(100)).unwrap();
    cards.done(Ended::Failed, seconds(150));
    cards.forget(Ticket(1));
    cards.seen(0, Presence::There, seconds(150));
    assert_eq!(cards.next(seconds(150)), None);
    assert!(cards.admits(0));
}

#[test]
fn a_load_that_never_began_has_taken_nothing_away() {
    let mut cards = one_card();
    cards.wish(Ticket(1), 1, true, seconds(100)).unwrap();
    cards.next(seconds(100)).unwrap();
    cards.done(Ended::NotBegun, seconds(101));
    assert!(cards.admits(0));
    assert_eq!(cards.standing(Ticket(1), seconds(101)), Standing::Failed(seconds(60)));
    assert_eq!(cards.next(seconds(101)), None);
}

#[test]
fn a_load_that_gives_way_to_somebody_elses_is_no_failure_and_comes_after_it() {
    let mut cards = one_card();
    cards.wish(Ticket(1), 1, true, seconds(100)).unwrap();
    cards.next(seconds(100)).unwrap();
    cards.done(Ended::Deferred, seconds(101));
    assert!(matches!(cards.standing(Ticket(1), seconds(101)), Standing::Waits { .. }));
    assert_eq!(cards.next(seconds(102)), None, "who is there is as new");
    assert_eq!(cards.next(seconds(161)), load(1, &[0]));
}

#[test]
fn a_status_that_flickers_for_one_look_changes_nothing() {
    let mut cards = one_card();
    cards.seen(0, Presence::Away, seconds(1));
    assert!(cards.admits(0));
    cards.seen(0, Presence::There, seconds(2));
    cards.seen(0, Presence::Away, seconds(3));
    assert!(cards.admits(0));
    cards.seen(0, Presence::Away, seconds(4));
    assert!(!cards.admits(0));
}

#[test]
fn what_somebody_loads_by_hand_is_waited_for_and_stays_as_if_it_had_been_wished_for() {
    let mut cards = one_card();
    cards.seen(0, Presence::Away, seconds(10));
    cards.seen(0, Presence::Away, seconds(11));
    cards.seen(1, Presence::Coming, seconds(11));
    cards.wish(Ticket(1), 1, false, seconds(12)).unwrap();
    assert_eq!(cards.standing(Ticket(1), seconds(31)), Standing::Waits { before: 0, expected: seconds(80) });
    assert_eq!(cards.next(seconds(31)), None);
    cards.seen(1, Presence::There, seconds(100));
    assert_eq!(cards.standing(Ticket(1), seconds(100)), Standing::Go);
    cards.forget(Ticket(1));
    cards.wish(Ticket(2), 0, true, seconds(101)).unwrap();
    assert_eq!(cards.next(seconds(159)), None);
    assert_eq!(cards.next(seconds(160)), load(0, &[1]));
}

#[test]
fn what_others_load_and_never_becomes_ready_is_loaded_again_for_who_waits() {
    let mut cards = one_card();
    cards.seen(0, Presence::Coming, seconds(1));
    cards.wish(Ticket(1), 0, true, seconds(2)).unwrap();
    assert_eq!(cards.next(seconds(301)), None);
    assert_eq!(cards.next(seconds(302)), load(0, &[]));
}

#[test]
fn the_expected_time_is_that_of_loads_that_were_seen_behind_what_is_ahead() {
    let mut cards = one_card();
    let after = |cards: &Cards, backend, now| match cards.offer(backend, true, seconds(now)) {
        Offer::After(time) => time.as_secs(),
        other => panic!("{other:?}"),
    };
    assert_eq!(after(&cards, 1, 0), 60 + LOAD, "idle for a minute, then the load");
    assert_eq!(after(&cards, 1, 1000), LOAD);
    cards.wish(Ticket(1), 1, true, seconds(1000)).unwrap();
    cards.next(seconds(1000)).unwrap();
    assert_eq!(after(&cards, 1, 1030), 70);
    assert_eq!(after(&cards, 1, 1500), 10, "late: a tenth of it still");
    assert_eq!(after(&cards, 0, 1030), 70 + 300 + LOAD, "it is loaded for somebody, who may use it");
    cards.done(Ended::Loaded, seconds(1040));
    cards.forget(Ticket(1));
    cards.wish(Ticket(2), 0, true, seconds(1200)).unwrap();
    cards.next(seconds(1200)).unwrap();
    cards.done(Ended::Loaded, seconds(1300));
    assert_eq!(after(&cards, 1, 2000), 40, "learned");
}

#[test]
fn who_would_wait_too_long_or_behind_too_many_is_told_at_once() {
    let rules = Rules { wait: seconds(120), queue: 1, ..Rules::default() };
    let mut cards = cards_under(rules, &[&[], &[]]);
    cards.seen(0, Presence::There, seconds(0));
    let wish = cards.wish(Ticket(1), 1, true, seconds(0));
    assert_eq!(wish, Err(Standing::TooLong { expected: seconds(160) }));
    cards.wish(Ticket(2), 1, true, seconds(100)).unwrap();
    assert_eq!(cards.wish(Ticket(3), 1, true, seconds(100)), Err(Standing::QueueFull));
    cards.runs(0, OWN, seconds(220));
    assert_eq!(cards.standing(Ticket(2), seconds(220)), Standing::Expired { waited: seconds(120) });
}
