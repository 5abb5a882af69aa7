//! Crowds at random: places are never exceeded, nobody waits beyond the bound, everybody is answered once, and what two
//! clients of a class get differs by one request at most.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use switchback_policies::admission::{Ask, Event, Gate, Offer, Rules, Ticket};
use switchback_policies::client::Class;

use crate::{Desk, ask, slotted};

/// What one request does: when it comes, what it asks, how long it reads and writes in truth, and when its client gives up.
#[derive(Clone, Debug)]
struct Visitor {
    comes: f64,
    ask: Ask,
    reads: f64,
    writes: f64,
    gives_up: Option<f64>,
}

fn visitors() -> impl Strategy<Value = Vec<Visitor>> {
    let class = prop_oneof![Just(Class::Interactive), Just(Class::Agent), Just(Class::Background)];
    let offer = (0_usize..2, 0.01_f64..60.0, 0.1_f64..30.0, 100_u64..40_000).prop_map(
        |(backend, prefill, rest, tokens)| {
            let (name, slots, pool) = BACKENDS[backend];
            Offer { pool: Some(pool), tokens, ..slotted(name, slots, prefill, prefill + rest) }
        },
    );
    let visitor = (
        0.0_f64..100.0,
        (1_u64..4, class, any::<bool>(), prop::collection::vec(offer, 1..3)),
        (0.1_f64..3.0, 0.1_f64..30.0, prop::option::weighted(0.2, 0.0_f64..60.0)),
    );
    let visitor =
        visitor.prop_map(|(comes, (client, class, streams, offers), (factor, writes, gives_up))| {
            let reads = offers[0].prefill * factor;
            let ask = Ask { streams, offers, ..ask(client, class, slotted("", 1, 0.0, 0.0)) };
            Visitor { comes, ask, reads, writes, gives_up }
        });
    prop::collection::vec(visitor, 1..40)
}

const BACKENDS: [(&str, u64, u64); 2] = [("one", 1, 100_000), ("many", 3, 60_000)];

fn rules() -> Rules {
    Rules { queue: 12, queue_timeout: Duration::from_secs(90), ..Rules::default() }
}

/// What still happens to a request that was admitted or gives up.
#[derive(Clone, Copy, Debug)]
enum Later {
    FirstToken,
    Leaves,
}

/// Plays a crowd to its end; every step is checked.
fn play(crowd: &[Visitor]) -> Desk {
    let mut desk = Desk::new(rules());
    let mut coming: Vec<&Visitor> = crowd.iter().collect();
    coming.sort_by(|one, other| other.comes.total_cmp(&one.comes));
    let mut known: BTreeMap<Ticket, (&Visitor, f64)> = BTreeMap::new();
    let mut later: Vec<(f64, Ticket, Later)> = Vec::new();
    let mut seen = 0;
    loop {
        let soonest = later.iter().map(|(at, ..)| *at).min_by(f64::total_cmp).unwrap_or(f64::INFINITY);
        let arrival = coming.last().map_or(f64::INFINITY, |visitor| visitor.comes);
        let wake = desk.gate.wake_at(desk.time()).map_or(f64::INFINITY, |wake| wake.as_secs_f64());
        let at = soonest.min(arrival).min(wake);
        if at.is_infinite() {
            return desk;
        }
        desk.now = desk.now.max(at);
        if wake <= soonest.min(arrival) {
            desk.apply(Event::Time);
        } else if arrival <= soonest {
            let visitor = coming.pop().expect("one that comes");
            let ticket = desk.asks(visitor.ask.clone());
            known.insert(ticket, (visitor, desk.now));
            if let Some(after) = visitor.gives_up {
                later.push((desk.now + after, ticket, Later::Leaves));
            }
        } else {
            let next = later.iter().position(|(at, ..)| *at == soonest).expect("it was found");
            match later.swap_remove(next) {
                (_, ticket, Later::FirstToken) => desk.first_token(ticket),
                (_, ticket, Later::Leaves) => desk.leaves(ticket),
            }
        }
        for (ticket, answer) in desk.told.clone().into_iter().skip(seen) {
            let (visitor, came) = known[&ticket];
            assert!(desk.now - came <= 90.1, "{ticket:?} waited {}", desk.now - came);
            if answer.is_ok() {
                let first = desk.now + visitor.reads;
                later.push((first, ticket, Later::FirstToken));
                later.push((first + visitor.writes, ticket, Later::Leaves));
            }
        }
        seen = desk.told.len();
        for (name, slots, pool) in BACKENDS {
            let load = desk.gate.load(name, desk.time());
            assert!(
                load.running <= slots && (load.resident <= pool || load.running == 1),
                "{name}: {load:?}"
            );
        }
        assert!(desk.gate.waiting() <= 12);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_crowd_never_exceeds_a_place_and_leaves_nothing_behind(crowd in visitors()) {
        let mut desk = play(&crowd);
        for ticket in 1..=crowd.len() as u64 {
            let told = desk.told.iter().filter(|(told, _)| *told == Ticket(ticket)).count();
            prop_assert!(told <= 1);
            desk.leaves(Ticket(ticket));
        }
        prop_assert_eq!(desk.gate, Gate::new(rules()));
    }

    #[test]
    fn what_backlogged_clients_get_differs_by_one_request_at_most(
        costs in prop::collection::vec((0_u64..3, 1.0_f64..20.0), 30..60),
    ) {
        let mut desk = Desk::new(Rules { queue: 100, queue_timeout: Duration::from_secs(100_000), ..Rules::default() });
        let mut running = desk.asks(ask(9, Class::Agent, slotted("one", 1, 0.1, 5.0)));
        let mut waiting: BTreeMap<Ticket, (u64, f64)> = BTreeMap::new();
        for (client, cost) in costs {
            waiting.insert(desk.asks(ask(client, Class::Agent, slotted("one", 1, 0.1, cost))), (client, cost));
        }
        let (mut served, mut takes) = ([0.0_f64; 3], 5.0);
        let most = waiting.values().map(|(_, cost)| *cost).fold(0.0, f64::max);
        while waiting.values().map(|(client, _)| client).collect::<std::collections::BTreeSet<_>>().len() == 3 {
            desk.until(desk.now + takes);
            desk.leaves(running);
            running = *desk.admitted().last().expect("somebody is next");
            let (client, cost) = waiting.remove(&running).expect("it waited");
            (served[client as usize], takes) = (served[client as usize] + cost, cost);
            let (least, largest) = (served.iter().copied().fold(f64::MAX, f64::min), served.iter().copied().fold(0.0, f64::max));
            prop_assert!(largest - least <= 2.0 * most, "{served:?}");
        }
    }
}
