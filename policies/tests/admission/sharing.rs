//! Places in the queue, and turns: shared between clients first, then among those behind each.

use std::time::Duration;

use switchback_policies::admission::{Ask, Offer, Rules, Ticket, Whose, Why};
use switchback_policies::client::Class;

use crate::{Desk, ask, slotted};

fn one() -> Offer {
    slotted("one", 1, 1.0, 10.0)
}

fn of(client: u64, part: u64, class: Class) -> Ask {
    Ask { whose: Whose { client, part }, ..ask(client, class, one()) }
}

/// A queue of so many places behind a request that runs.
fn queue(places: usize) -> (Desk, Ticket) {
    let mut desk = Desk::new(Rules { queue: places, ..Rules::default() });
    let first = desk.asks(of(99, 0, Class::Agent));
    desk.grant(first);
    (desk, first)
}

#[test]
fn one_client_cannot_fill_the_queue_for_the_others() {
    let (mut desk, _) = queue(4);
    let flood: Vec<Ticket> = (0..6).map(|nth| desk.asks(of(1, nth, Class::Interactive))).collect();
    assert_eq!(desk.refusal(flood[4]).why, Why::QueueFull);
    let first = desk.asks(of(2, 0, Class::Interactive));
    let second = desk.asks(of(2, 0, Class::Interactive));
    assert!(desk.waits(first) && desk.waits(second));
    for displaced in &flood[2..4] {
        assert_eq!(desk.refusal(*displaced).why, Why::Displaced, "the newest of who has most");
    }
    let third = desk.asks(of(2, 0, Class::Interactive));
    assert_eq!(desk.refusal(third).why, Why::QueueFull, "both have as many");
    assert!(desk.waits(flood[0]) && desk.waits(flood[1]));
}

#[test]
fn agents_cannot_fill_the_queue_for_a_human_behind_the_same_address() {
    let (mut desk, _) = queue(3);
    let agents: Vec<Ticket> = (0..3).map(|nth| desk.asks(of(1, nth, Class::Agent))).collect();
    let human = desk.asks(of(1, 7, Class::Interactive));
    assert!(desk.waits(human));
    assert_eq!(desk.refusal(agents[2]).why, Why::Displaced);
    let too_many = desk.asks(of(1, 8, Class::Agent));
    assert_eq!(desk.refusal(too_many).why, Why::QueueFull);
}

#[test]
fn a_human_is_never_refused_for_a_program_however_many_of_its_requests_wait() {
    let (mut desk, _) = queue(3);
    let agents: Vec<Ticket> = (1..4).map(|client| desk.asks(of(client, 0, Class::Agent))).collect();
    let human: Vec<Ticket> = (0..3).map(|_| desk.asks(of(9, 0, Class::Interactive))).collect();
    for agent in agents {
        assert_eq!(desk.refusal(agent).why, Why::Displaced);
    }
    let agent = desk.asks(of(4, 0, Class::Agent));
    assert_eq!(desk.refusal(agent).why, Why::QueueFull, "its client has none, and theirs are waited for");
    assert!(human.iter().all(|ticket| desk.waits(*ticket)));
    let other = desk.asks(of(5, 0, Class::Interactive));
    assert!(desk.waits(other), "within the class it is shared");
    assert_eq!(desk.refusal(human[2]).why, Why::Displaced);
}

#[test]
fn what_nobody_waits_for_gives_way_first() {
    let (mut desk, _) = queue(2);
    let agent = desk.asks(of(1, 0, Class::Agent));
    let title = desk.asks(of(5, 0, Class::Background));
    let human = desk.asks(of(1, 0, Class::Interactive));
    assert!(desk.waits(human) && desk.waits(agent));
    assert_eq!(desk.refusal(title).why, Why::Displaced);
    let tags = desk.asks(of(6, 0, Class::Background));
    assert_eq!(desk.refusal(tags).why, Why::QueueFull);
}

#[test]
fn no_queue_at_all_refuses_whoever_would_have_to_wait() {
    let (mut desk, first) = queue(0);
    let refused = desk.asks(of(1, 0, Class::Interactive));
    assert_eq!(desk.refusal(refused).why, Why::QueueFull);
    desk.leaves(first);
    let next = desk.asks(of(1, 0, Class::Interactive));
    desk.grant(next);
}

#[test]
fn nobody_is_refused_while_a_place_is_free_that_somebody_would_rather_not_take() {
    // Its conversation is cached on a backend that is busy; the other one would read it for a minute.
    let homely = || Ask {
        offers: vec![slotted("home", 1, 0.5, 5.0), slotted("idle", 1, 60.0, 90.0)],
        ..of(1, 0, Class::Interactive)
    };
    let mut desk = Desk::new(Rules { queue: 1, ..Rules::default() });
    let runs = desk.asks(Ask { offers: vec![slotted("home", 1, 0.5, 30.0)], ..of(9, 0, Class::Agent) });
    desk.grant(runs);
    let first = desk.asks(homely());
    assert!(desk.waits(first));
    let second = desk.asks(homely());
    assert_eq!(desk.grant(first).offer, 1, "it would have waited, but that would cost somebody an answer");
    assert!(desk.waits(second));
    let third = desk.asks(homely());
    assert_eq!(desk.refusal(third).why, Why::QueueFull);
    // So it is with one whose time is up.
    let mut desk = Desk::new(Rules { queue_timeout: Duration::from_secs(15), ..Rules::default() });
    let runs = desk.asks(Ask { offers: vec![slotted("home", 1, 0.5, 10.0)], ..of(9, 0, Class::Agent) });
    desk.grant(runs);
    let waits = desk.asks(homely());
    desk.until(14.0);
    assert!(desk.waits(waits));
    desk.until(15.0);
    assert_eq!(desk.grant(waits).offer, 1);
}

#[test]
fn a_new_name_for_each_request_gains_nothing_against_other_clients() {
    let (mut desk, first) = queue(64);
    let greedy: Vec<Ticket> = (0..4).map(|nth| desk.asks(of(1, nth, Class::Interactive))).collect();
    let honest: Vec<Ticket> = (0..2).map(|_| desk.asks(of(2, 0, Class::Interactive))).collect();
    let mut running = first;
    for expected in [greedy[0], honest[0], greedy[1], honest[1], greedy[2], greedy[3]] {
        desk.until(desk.now + 10.0);
        desk.leaves(running);
        desk.grant(expected);
        running = expected;
    }
}

#[test]
fn those_behind_one_client_share_what_it_gets() {
    let (mut desk, first) = queue(64);
    let greedy: Vec<Ticket> = (0..3).map(|_| desk.asks(of(1, 1, Class::Interactive))).collect();
    let modest = desk.asks(of(1, 2, Class::Interactive));
    let other: Vec<Ticket> = (0..2).map(|_| desk.asks(of(2, 1, Class::Interactive))).collect();
    let mut running = first;
    for expected in [greedy[0], other[0], modest, other[1], greedy[1], greedy[2]] {
        desk.until(desk.now + 10.0);
        desk.leaves(running);
        desk.grant(expected);
        running = expected;
    }
}

#[test]
fn ever_new_names_are_not_for_ever_before_one_that_has_had_something() {
    let (mut desk, first) = queue(64);
    // It has had an answer twice as long as others, and asks again while others come without end, each under a name of its own.
    let long = desk.asks(of(1, 0, Class::Interactive));
    desk.leaves(first);
    desk.until(20.0);
    let again = desk.asks(of(1, 0, Class::Interactive));
    let (mut running, mut waiting) = (long, Vec::new());
    for name in 10..14 {
        waiting.push(desk.asks(of(1, name, Class::Interactive)));
    }
    for name in 20..60 {
        desk.leaves(running);
        match desk.admitted().last() {
            Some(ticket) if *ticket == again => return,
            Some(ticket) => running = *ticket,
            None => break,
        }
        desk.until(desk.now + 10.0);
        waiting.push(desk.asks(of(1, name, Class::Interactive)));
        assert!(desk.waits(again), "it was given up: {:?}", desk.answer(again));
    }
    panic!("it is never its turn");
}

#[test]
fn a_newcomer_is_not_before_one_that_came_sooner_and_has_had_nothing_either() {
    let (mut desk, first) = queue(64);
    let long = desk.asks(Ask { offers: vec![slotted("one", 1, 1.0, 100.0)], ..of(1, 0, Class::Interactive) });
    desk.leaves(first);
    desk.until(10.0);
    let early = desk.asks(of(2, 0, Class::Interactive));
    desk.until(80.0);
    let late = desk.asks(of(3, 0, Class::Interactive));
    desk.until(100.0);
    desk.leaves(long);
    desk.grant(early);
    // Who is left has had less than they had on average when the late one came.
    let newcomer = desk.asks(of(4, 0, Class::Interactive));
    desk.until(110.0);
    desk.leaves(early);
    desk.grant(late);
    assert!(desk.waits(newcomer));
}

#[test]
fn a_long_answer_that_was_expected_and_did_not_come_costs_no_turn() {
    let (mut desk, first) = queue(64);
    let asks_much = || Ask { offers: vec![slotted("one", 1, 1.0, 160.0)], ..of(1, 0, Class::Interactive) };
    let started = desk.asks(asks_much());
    desk.leaves(first);
    let much = desk.asks(of(1, 0, Class::Interactive));
    let other: Vec<Ticket> = (0..3).map(|_| desk.asks(of(2, 0, Class::Interactive))).collect();
    let mut running = started;
    for expected in [other[0], much, other[1], other[2]] {
        // All take as long, whatever they asked for.
        desk.until(desk.now + 5.0);
        desk.leaves(running);
        desk.grant(expected);
        running = expected;
    }
}

/// All orders in which requests of these clients can come into a queue of three places.
fn arrivals(left: &[(u64, u64, Class)], desk: &Desk, known: &[(Ticket, u64, Class)], orders: &mut u64) {
    let mut seen = Vec::new();
    for (nth, one) in left.iter().enumerate() {
        if seen.contains(one) {
            continue;
        }
        seen.push(*one);
        let (client, part, class) = *one;
        let (mut desk, mut known) = (desk.clone(), known.to_vec());
        let told = desk.told.len();
        known.push((desk.asks(of(client, part, class)), client, class));
        for (ticket, answer) in desk.told[told..].iter().copied() {
            assert!(answer.is_err() && known.len() > 3);
            let (_, whose, class) = *known.iter().find(|(of, ..)| *of == ticket).expect("it is known");
            let mut waiting: Vec<(u64, Class)> = Vec::new();
            waiting
                .extend(known.iter().filter(|(of, ..)| desk.waits(*of)).map(|(_, of, class)| (*of, *class)));
            assert_eq!(waiting.len(), 3);
            let count = |of: u64| waiting.iter().filter(|one| **one == (of, class)).count();
            for (other, its) in &waiting {
                assert!(*its <= class, "{its:?} was kept for {class:?}: {known:?}");
                if *its == class {
                    assert!(count(*other) <= count(whose) + 1, "{other} has more than {whose}: {known:?}");
                }
            }
        }
        let mut rest = left.to_vec();
        rest.remove(nth);
        if rest.is_empty() {
            *orders += 1;
        }
        arrivals(&rest, &desk, &known, orders);
    }
}

#[test]
fn in_no_order_is_one_refused_for_a_worse_class_or_for_another_of_its_own_whose_client_has_more() {
    use Class::{Agent, Background, Interactive};
    let all = [
        (1, 0, Interactive),
        (1, 1, Interactive),
        (1, 2, Agent),
        (1, 2, Agent),
        (2, 0, Interactive),
        (3, 0, Agent),
        (3, 1, Background),
    ];
    let mut orders = 0;
    arrivals(&all, &queue(3).0, &[], &mut orders);
    assert_eq!(orders, 2_520);
}
