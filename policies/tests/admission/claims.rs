//! Prefills beside live streams: who waits for what, and for how long.

use std::time::Duration;

use switchback_policies::admission::{Ask, Offer, Rules};
use switchback_policies::client::Class;

use crate::{Desk, agent, chat, on};

/// A desk with a chat that has its first token and goes on for half a minute.
fn chatting() -> Desk {
    let mut desk = Desk::new(Rules::default());
    let stream = desk.asks(chat(on("dual", 0.5, 30.0)));
    desk.grant(stream);
    desk.first_token(stream);
    desk
}

#[test]
fn an_idle_backend_takes_any_prefill_at_once() {
    let mut desk = Desk::new(Rules::default());
    let long = desk.asks(agent(on("dual", 80.0, 90.0)));
    assert_eq!(desk.grant(long).waited, Duration::ZERO);
}

#[test]
fn a_large_prefill_waits_for_the_gap_between_live_streams() {
    let mut desk = chatting();
    let long = desk.asks(agent(on("dual", 80.0, 90.0)));
    desk.until(7.0);
    assert!(desk.waits(long));
    desk.leaves(switchback_policies::admission::Ticket(1));
    let grant = desk.grant(long);
    assert_eq!((grant.waited, grant.broken), (Duration::from_secs(7), None));
}

#[test]
fn who_waits_when_admission_is_switched_off_goes_on() {
    let mut desk = chatting();
    let long = desk.asks(agent(on("dual", 80.0, 90.0)));
    desk.under(Rules { enabled: false, ..Rules::default() });
    desk.until(1.0);
    assert_eq!(desk.grant(long).waited, Duration::from_secs(1));
}

#[test]
fn after_its_time_a_large_prefill_goes_and_says_what_others_lose() {
    let mut desk = chatting();
    let long = desk.asks(agent(on("dual", 80.0, 90.0)));
    desk.until(19.9);
    assert!(desk.waits(long));
    desk.until(20.0);
    let grant = desk.grant(long);
    let broken = grant.broken.expect("the bound is broken");
    assert_eq!((broken.streams, broken.seconds), (1, 80.0));
    assert_eq!(grant.to_string(), "waited 20.0 s, then admitted though a live stream may lose 80 s");
}

#[test]
fn nobody_waits_for_others_longer_than_its_own_prefill_takes() {
    let mut desk = chatting();
    let medium = desk.asks(agent(on("dual", 5.0, 8.0)));
    desk.until(4.9);
    assert!(desk.waits(medium));
    desk.until(5.0);
    assert!(desk.grant(medium).broken.is_some());
}

#[test]
fn short_prefills_pass_a_large_one_that_waits_and_one_that_runs() {
    let mut desk = chatting();
    let long = desk.asks(agent(on("dual", 80.0, 90.0)));
    let short = desk.asks(chat(on("dual", 0.3, 3.0)));
    assert!(desk.waits(long));
    desk.grant(short);
    desk.until(20.0);
    desk.grant(long);
    let beside = desk.asks(chat(on("dual", 0.3, 3.0)));
    desk.grant(beside);
}

#[test]
fn what_a_live_stream_loses_to_short_prefills_is_summed_and_paid_back() {
    let mut desk = chatting();
    for _ in 0..2 {
        let short = desk.asks(agent(on("dual", 1.0, 3.0)));
        desk.grant(short);
        desk.first_token(short);
    }
    let third = desk.asks(agent(on("dual", 1.0, 3.0)));
    assert!(desk.waits(third), "two seconds are lost already");
    desk.until(1.0);
    assert!(desk.grant(third).broken.is_some(), "it waits no longer than it takes itself");
    desk.first_token(third);
    desk.until(9.0);
    let later = desk.asks(agent(on("dual", 1.0, 3.0)));
    assert_eq!(desk.grant(later).broken, None, "two of three seconds are paid back");
}

#[test]
fn an_agents_stream_holds_nobody_up() {
    let mut desk = Desk::new(Rules::default());
    let stream = desk.asks(agent(on("dual", 0.5, 30.0)));
    desk.first_token(stream);
    let long = desk.asks(agent(on("dual", 80.0, 90.0)));
    assert_eq!(desk.grant(long).broken, None);
}

#[test]
fn two_large_prefills_are_read_one_after_the_other_until_the_first_token() {
    let mut desk = Desk::new(Rules::default());
    let first = desk.asks(agent(on("dual", 60.0, 70.0)));
    let second = desk.asks(agent(on("dual", 60.0, 70.0)));
    desk.until(100.0);
    assert!(desk.waits(second), "a prefill that takes longer than expected is still one");
    desk.first_token(first);
    desk.grant(second);
}

#[test]
fn a_prefill_whose_end_nobody_sees_counts_for_a_quarter_more_than_expected() {
    let mut desk = Desk::new(Rules::default());
    desk.asks(Ask { streams: false, ..agent(on("dual", 40.0, 70.0)) });
    let second = desk.asks(agent(on("dual", 60.0, 70.0)));
    desk.until(49.9);
    assert!(desk.waits(second));
    desk.until(50.0);
    desk.grant(second);
}

/// A prefill of a minute on one of two backends, the preferred one with a live chat.
fn two(second: Offer) -> (Desk, Ask) {
    (chatting(), Ask { offers: vec![on("dual", 60.0, 70.0), second], ..agent(on("dual", 0.0, 0.0)) })
}

#[test]
fn a_large_prefill_goes_to_another_backend_when_that_ends_sooner_than_waiting() {
    let (mut desk, long) = two(on("llama", 65.0, 80.0));
    let ticket = desk.asks(long);
    assert_eq!(desk.grant(ticket).offer, 1);
}

#[test]
fn it_waits_for_its_own_backend_when_moving_costs_more() {
    let (mut desk, long) = two(on("llama", 120.0, 140.0));
    let ticket = desk.asks(long);
    assert!(desk.waits(ticket));
    desk.until(20.0);
    assert_eq!(desk.grant(ticket).offer, 0);
}

#[test]
fn a_newcomer_avoids_the_backend_that_reads_a_long_prompt() {
    let mut desk = Desk::new(Rules::default());
    desk.asks(agent(on("dual", 60.0, 70.0)));
    let both = |first, second| Ask { offers: vec![first, second], ..chat(on("", 0.0, 0.0)) };
    let ticket = desk.asks(both(on("dual", 0.3, 5.0), on("llama", 0.5, 8.0)));
    assert_eq!(desk.grant(ticket).offer, 1);
}

#[test]
fn background_prefills_give_live_streams_all_the_time_there_is() {
    let mut desk = chatting();
    let title = desk.asks(crate::ask(3, Class::Background, on("dual", 3.0, 5.0)));
    desk.until(19.0);
    assert!(desk.waits(title));
    desk.until(20.0);
    desk.grant(title);
}

#[test]
fn a_gate_that_is_switched_off_lets_everybody_through() {
    let mut desk = Desk::new(Rules { enabled: false, ..Rules::default() });
    for _ in 0..100 {
        let ticket = desk.asks(agent(crate::slotted("dual", 1, 60.0, 70.0)));
        desk.grant(ticket);
    }
    assert_eq!(desk.gate.load("dual", desk.time()).running, 100);
}

#[test]
fn a_short_prompt_stays_beside_a_long_one_where_the_engine_reads_that_in_pieces_and_else_leaves() {
    let asks = |piece| {
        let mut desk = Desk::new(Rules::default());
        let long = desk.asks(agent(on("dual", 60.0, 70.0)));
        desk.grant(long);
        let here = Offer { piece, ..on("dual", 0.5, 4.0) };
        let short =
            desk.asks(Ask { offers: vec![here, on("single", 1.5, 12.0)], ..chat(on("dual", 0.0, 0.0)) });
        desk.grant(short).offer
    };
    assert_eq!((asks(Some(1.5)), asks(None)), (0, 1));
}
