//! Slots, memory, classes, fairness, budgets, bounds: the queue that engines do not have.

use std::time::Duration;

use switchback_policies::admission::{Allowance, Ask, Event, Offer, Rules, Ticket, Why};
use switchback_policies::client::Class;

use crate::{Desk, agent, ask, chat, on, slotted};

/// One that runs one request at a time, and a request that runs there.
fn busy() -> (Desk, Ticket) {
    let mut desk = Desk::new(Rules::default());
    let first = desk.asks(agent(slotted("one", 1, 1.0, 10.0)));
    desk.grant(first);
    (desk, first)
}

#[test]
fn an_engine_never_gets_more_than_it_runs_at_once() {
    let (mut desk, first) = busy();
    let second = desk.asks(agent(slotted("one", 1, 0.1, 10.0)));
    desk.first_token(first);
    desk.until(60.0);
    assert!(desk.waits(second), "the slot is taken until the answer's end");
    desk.leaves(first);
    desk.grant(second);
}

#[test]
fn who_asks_for_another_backend_meanwhile_keeps_its_place_in_the_queue() {
    let (mut desk, first) = busy();
    let second = desk.asks(agent(slotted("one", 1, 0.1, 10.0)));
    desk.until(30.0);
    let third = desk.asks(agent(slotted("one", 1, 0.1, 10.0)));
    // Another one comes up, and both would take that, too.
    let both = || Ask {
        offers: vec![slotted("one", 1, 0.1, 10.0), slotted("two", 1, 0.1, 10.0)],
        ..agent(slotted("", 1, 0.0, 0.0))
    };
    desk.apply(Event::Asks(second, both()));
    assert_eq!((desk.grant(second).offer, desk.grant(second).waited.as_secs()), (1, 30));
    desk.apply(Event::Asks(third, both()));
    assert!(desk.waits(third));
    // It has its place: what it asks now changes nothing.
    desk.apply(Event::Asks(second, agent(on("three", 0.1, 10.0))));
    assert_eq!(desk.gate.load("three", desk.time()).running, 0);
    desk.leaves(first);
    assert_eq!(desk.grant(third).offer, 0);
}

#[test]
fn memory_that_all_slots_share_is_never_over_filled() {
    let mut desk = Desk::new(Rules::default());
    let pooled = |tokens| Offer { pool: Some(100_000), tokens, ..slotted("llama", 4, 0.1, 10.0) };
    let first = desk.asks(agent(pooled(60_000)));
    let second = desk.asks(agent(pooled(50_000)));
    assert!(desk.waits(second));
    let small = desk.asks(agent(pooled(10_000)));
    desk.grant(small);
    desk.leaves(first);
    desk.grant(second);
}

#[test]
fn a_request_that_waits_for_memory_is_not_overtaken_for_ever() {
    let mut desk = Desk::new(Rules::default());
    let pooled = |tokens| Offer { pool: Some(100_000), tokens, ..on("llama", 0.1, 10.0) };
    let first = desk.asks(agent(pooled(60_000)));
    let large = desk.asks(agent(pooled(90_000)));
    desk.until(25.0);
    let small = desk.asks(agent(pooled(10_000)));
    assert!(desk.waits(small) && desk.waits(large));
    desk.leaves(first);
    desk.grant(large);
}

#[test]
fn a_prompt_that_fills_more_than_the_pool_goes_alone() {
    let mut desk = Desk::new(Rules::default());
    let ticket = desk.asks(agent(Offer { pool: Some(1000), tokens: 2000, ..on("llama", 0.1, 10.0) }));
    desk.grant(ticket);
}

#[test]
fn a_human_goes_before_agents_and_those_before_what_nobody_waits_for() {
    let (mut desk, first) = busy();
    let one = || slotted("one", 1, 1.0, 10.0);
    let background = desk.asks(ask(5, Class::Background, one()));
    let agents: Vec<Ticket> = (0..3).map(|_| desk.asks(agent(one()))).collect();
    let human = desk.asks(chat(one()));
    let mut running = first;
    for expected in [human, agents[0], agents[1], agents[2], background] {
        desk.leaves(running);
        desk.grant(expected);
        running = expected;
    }
}

#[test]
fn nobody_is_starved_by_a_better_class() {
    let (mut desk, mut running) = busy();
    let title = desk.asks(ask(5, Class::Background, slotted("one", 1, 1.0, 10.0)));
    // Agents without end.
    let mut turns = 0;
    while desk.waits(title) {
        let agent = desk.asks(agent(slotted("one", 1, 1.0, 10.0)));
        desk.until(desk.now + 10.0);
        desk.leaves(running);
        running = agent;
        turns += 1;
        assert!(turns < 30, "the title is never made");
    }
    assert!(desk.grant(title).waited < Duration::from_secs(120));
}

#[test]
fn clients_of_a_class_take_turns_however_many_requests_one_has() {
    let (mut desk, first) = busy();
    let one = || slotted("one", 1, 1.0, 10.0);
    let many: Vec<Ticket> = (0..4).map(|_| desk.asks(ask(7, Class::Agent, one()))).collect();
    let few: Vec<Ticket> = (0..2).map(|_| desk.asks(ask(8, Class::Agent, one()))).collect();
    let mut running = first;
    for expected in [many[0], few[0], many[1], few[1], many[2], many[3]] {
        desk.until(desk.now + 10.0);
        desk.leaves(running);
        desk.grant(expected);
        running = expected;
    }
}

#[test]
fn a_client_has_no_more_running_than_it_may_and_others_pass() {
    let mut desk = Desk::new(Rules::default());
    let allowance = Allowance { running: Some(1), tokens: None };
    let limited = |client| Ask { allowance, ..ask(client, Class::Agent, on("dual", 0.1, 10.0)) };
    let first = desk.asks(limited(1));
    let second = desk.asks(limited(1));
    let other = desk.asks(limited(2));
    desk.grant(other);
    assert!(desk.waits(second));
    desk.leaves(first);
    desk.grant(second);
}

/// A request of a client that has a thousand tokens within so many seconds.
fn costs(client: u64, tokens: u64, within: u64) -> Ask {
    let allowance = Allowance { running: None, tokens: Some((1000, Duration::from_secs(within))) };
    Ask { allowance, ..ask(client, Class::Agent, Offer { tokens, ..on("dual", 0.1, 1.0) }) }
}

#[test]
fn a_spent_token_budget_refills_with_time_and_tells_how_long_that_takes() {
    let mut desk = Desk::new(Rules::default());
    let large = desk.asks(costs(1, 2000, 60));
    desk.apply(Event::Leaves(large, 2000));
    let waits = desk.asks(costs(1, 100, 60));
    desk.until(59.0);
    assert!(desk.waits(waits));
    desk.until(60.0);
    desk.grant(waits);
    let large = desk.asks(costs(2, 2000, 3600));
    desk.apply(Event::Leaves(large, 2000));
    let refused = desk.asks(costs(2, 100, 3600));
    let refusal = desk.refusal(refused);
    assert_eq!((refusal.why, refusal.expected), (Why::BudgetSpent, Duration::from_secs(3600)));
}

#[test]
fn a_budget_is_settled_with_what_was_used_and_reserved_until_then() {
    let mut desk = Desk::new(Rules::default());
    let large = desk.asks(costs(1, 5000, 3600));
    let waits = desk.asks(costs(1, 5000, 3600));
    assert!(desk.waits(waits), "what is reserved may still be used, or not: nobody is refused for it");
    desk.until(10.0);
    desk.apply(Event::Leaves(large, 150));
    desk.grant(waits);
    // Cut off, and nothing of it used.
    desk.apply(Event::Leaves(waits, 0));
    for _ in 0..5 {
        let next = desk.asks(costs(1, 5000, 3600));
        desk.grant(next);
        desk.apply(Event::Leaves(next, 150));
    }
    let last = desk.asks(costs(1, 5000, 3600));
    desk.grant(last);
    desk.apply(Event::Leaves(last, 1000));
    let refused = desk.asks(costs(1, 10, 3600));
    assert_eq!(desk.refusal(refused).why, Why::BudgetSpent);
}

#[test]
fn nobody_waits_beyond_the_bound() {
    let (mut desk, _) = busy();
    let second = desk.asks(agent(slotted("one", 1, 1.0, 10.0)));
    desk.until(179.0);
    assert!(desk.waits(second));
    desk.until(180.0);
    assert_eq!(desk.refusal(second).why, Why::TimedOut);
    assert_eq!(desk.gate.waiting(), 0);
}

#[test]
fn the_expected_wait_is_true_and_one_beyond_the_bound_is_refused_at_entry() {
    let (mut desk, _) = busy();
    desk.until(4.0);
    let waiters: Vec<Ticket> = (0..18).map(|_| desk.asks(agent(slotted("one", 1, 1.0, 10.0)))).collect();
    for (nth, waiter) in waiters.iter().enumerate() {
        let wait = Duration::from_secs(6 + 10 * nth as u64);
        assert_eq!(desk.gate.place_in_queue(*waiter, desk.time()), Some((nth, wait)));
    }
    let one_too_many = desk.asks(agent(slotted("one", 1, 1.0, 10.0)));
    let refusal = desk.refusal(one_too_many);
    assert_eq!(
        (refusal.why, refusal.expected, refusal.waiting),
        (Why::WaitTooLong, Duration::from_secs(186), 18)
    );
}

#[test]
fn the_bound_holds_for_all_waiting_of_a_request_together() {
    let (mut desk, _) = busy();
    desk.until(120.0);
    let again = desk.asks(Ask { waited: Duration::from_secs(100), ..agent(slotted("one", 1, 1.0, 10.0)) });
    desk.until(199.0);
    assert!(desk.waits(again));
    desk.until(200.0);
    assert_eq!(desk.refusal(again).why, Why::TimedOut);
    // Who has no time left takes a place that is free, and waits for none.
    let late = Duration::from_secs(180);
    let free = desk.asks(Ask { waited: late, ..agent(slotted("two", 1, 1.0, 10.0)) });
    assert_eq!(desk.grant(free).waited, late);
    let refused = desk.asks(Ask { waited: late, ..agent(slotted("two", 1, 1.0, 10.0)) });
    desk.refusal(refused);
}

#[test]
fn who_has_waited_before_keeps_its_turn() {
    let (mut desk, first) = busy();
    desk.until(50.0);
    let newcomer = desk.asks(agent(slotted("one", 1, 1.0, 10.0)));
    let again = Ask { waited: Duration::from_secs(30), ..agent(slotted("one", 1, 1.0, 10.0)) };
    let again = desk.asks(again);
    desk.leaves(first);
    desk.grant(again);
    assert!(desk.waits(newcomer));
}

#[test]
fn several_answers_to_one_request_take_as_many_slots_and_a_count_none() {
    let mut desk = Desk::new(Rules::default());
    let of = |sequences| agent(Offer { sequences, ..slotted("one", 4, 0.1, 10.0) });
    let three = desk.asks(of(3));
    desk.grant(three);
    let two = desk.asks(of(2));
    assert!(desk.waits(two));
    assert_eq!(desk.gate.place_in_queue(two, desk.time()), Some((0, Duration::from_secs(10))));
    let one = desk.asks(of(1));
    desk.grant(one);
    let count = desk.asks(of(0));
    desk.grant(count);
    assert_eq!(desk.gate.load("one", desk.time()).running, 4);
    desk.leaves(three);
    desk.grant(two);
    desk.leaves(one);
    desk.leaves(two);
    let more_than_there_are = desk.asks(of(9));
    desk.grant(more_than_there_are);
    let one = desk.asks(of(1));
    assert!(desk.waits(one));
}

#[test]
fn the_expected_wait_knows_what_a_client_may_have_at_once_and_who_takes_turns() {
    let mut desk = Desk::new(Rules::default());
    let one = || slotted("many", 8, 0.1, 10.0);
    let allowance = Allowance { running: Some(1), tokens: None };
    let limited: Vec<Ticket> =
        (0..4).map(|_| desk.asks(Ask { allowance, ..ask(1, Class::Agent, one()) })).collect();
    let wait = |desk: &Desk, ticket| desk.gate.place_in_queue(ticket, desk.time()).expect("it waits").1;
    assert_eq!(wait(&desk, limited[3]), Duration::from_secs(30));
    let (mut desk, _) = busy();
    let of = |client| ask(client, Class::Agent, slotted("one", 1, 1.0, 10.0));
    let many: Vec<Ticket> = (0..3).map(|_| desk.asks(of(7))).collect();
    let few = desk.asks(of(8));
    assert_eq!(wait(&desk, few), Duration::from_secs(20), "it goes after the first of the other one");
    assert_eq!(wait(&desk, many[2]), Duration::from_secs(40));
}

#[test]
fn who_leaves_the_queue_or_a_place_frees_it_at_once() {
    let (mut desk, first) = busy();
    let second = desk.asks(agent(slotted("one", 1, 1.0, 10.0)));
    let third = desk.asks(agent(slotted("one", 1, 1.0, 10.0)));
    desk.leaves(second);
    assert_eq!(desk.gate.waiting(), 1);
    desk.leaves(first);
    desk.grant(third);
    assert!(desk.waits(second));
}
