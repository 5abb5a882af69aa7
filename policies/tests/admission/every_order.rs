//! All orders of the events of a few requests: arrivals, first tokens, ends, hang-ups, and time in between. Small, but whole:
//! whatever the order, no place is exceeded, none is lost, nobody is told twice, and at the end the gate is as new.

use std::time::Duration;

use switchback_policies::admission::{Ask, Gate, Offer, Rules, Ticket};
use switchback_policies::client::Class;

use crate::{Desk, agent, ask, chat, slotted};

const SLOTS: u64 = 2;
const POOL: u64 = 3000;

/// Four requests that compete in every way: for two slots, for memory, for the place of a large prefill, for the time of a
/// live stream; one of them may go elsewhere, one hides its first token.
fn requests() -> Vec<Ask> {
    let on_one = |prefill, tokens| Offer { pool: Some(POOL), tokens, ..slotted("one", SLOTS, prefill, 30.0) };
    vec![
        chat(on_one(0.5, 1000)),
        agent(on_one(50.0, 1000)),
        Ask { streams: false, ..agent(on_one(60.0, 2000)) },
        Ask {
            offers: vec![on_one(40.0, 1500), slotted("two", 1, 45.0, 60.0)],
            ..ask(3, Class::Background, on_one(0.0, 0))
        },
    ]
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Absent,
    Asked,
    Reading,
    Gone,
}

struct Explorer {
    asks: Vec<Ask>,
    orders: u64,
}

impl Explorer {
    fn explore(&mut self, desk: &Desk, stages: &[(Stage, Option<Ticket>)], left: usize) {
        self.check(desk, stages);
        if left == 0 || stages.iter().all(|(stage, _)| *stage == Stage::Gone) {
            self.orders += 1;
            return self.end(desk, stages);
        }
        for (nth, (stage, ticket)) in stages.iter().enumerate() {
            let mut moves: Vec<Stage> = Vec::new();
            match stage {
                Stage::Absent => moves.push(Stage::Asked),
                Stage::Asked => moves.extend([Stage::Reading, Stage::Gone]),
                Stage::Reading => moves.push(Stage::Gone),
                Stage::Gone => {}
            }
            for next in moves {
                let (mut desk, mut stages) = (desk.clone(), stages.to_vec());
                match (next, *ticket) {
                    (Stage::Asked, None) => stages[nth].1 = Some(desk.asks(self.asks[nth].clone())),
                    // A first token comes only of a request that runs.
                    (Stage::Reading, Some(ticket)) if desk.waits(ticket) => continue,
                    (Stage::Reading, Some(ticket)) => desk.first_token(ticket),
                    (Stage::Gone, Some(ticket)) => desk.leaves(ticket),
                    _ => continue,
                }
                stages[nth].0 = next;
                self.explore(&desk, &stages, left - 1);
            }
        }
        if let Some(wake) = desk.gate.wake_at(desk.time()) {
            let mut later = desk.clone();
            later.until(wake.as_secs_f64());
            self.explore(&later, stages, left - 1);
        }
    }

    fn check(&self, desk: &Desk, stages: &[(Stage, Option<Ticket>)]) {
        for (backend, slots, pool) in [("one", SLOTS, POOL), ("two", 1, u64::MAX)] {
            let load = desk.gate.load(backend, desk.time());
            assert!(load.running <= slots, "{backend} runs {}", load.running);
            assert!(load.resident <= pool, "{backend} holds {}", load.resident);
        }
        let alive = stages.iter().filter(|(stage, _)| matches!(stage, Stage::Asked | Stage::Reading));
        let tickets: Vec<Ticket> = alive.filter_map(|(_, ticket)| *ticket).collect();
        for ticket in &tickets {
            let told = desk.told.iter().filter(|(told, _)| told == ticket).count();
            assert!(told <= 1, "{ticket:?} was told {told} times");
        }
        let waiting = tickets.iter().filter(|ticket| desk.waits(**ticket)).count();
        assert_eq!(desk.gate.waiting(), waiting, "who was not answered waits, and nobody else");
        let running: u64 = ["one", "two"].iter().map(|name| desk.gate.load(name, desk.time()).running).sum();
        let granted = tickets.iter().filter(|ticket| matches!(desk.answer(**ticket), Some(Ok(_)))).count();
        assert_eq!(
            running, granted as u64,
            "who was admitted and has not left holds a place, and nobody else"
        );
    }

    /// Everybody goes, and nothing is left behind.
    fn end(&self, desk: &Desk, stages: &[(Stage, Option<Ticket>)]) {
        let mut desk = desk.clone();
        for ticket in stages.iter().filter_map(|(_, ticket)| *ticket) {
            desk.leaves(ticket);
        }
        assert_eq!(desk.gate, Gate::new(rules()));
        assert_eq!(desk.gate.wake_at(desk.time()), None);
    }
}

fn rules() -> Rules {
    Rules { queue: 2, queue_timeout: Duration::from_secs(70), ..Rules::default() }
}

#[test]
fn no_order_of_events_exceeds_a_place_or_loses_one() {
    let asks = requests();
    let stages = vec![(Stage::Absent, None); asks.len()];
    let mut explorer = Explorer { asks, orders: 0 };
    explorer.explore(&Desk::new(rules()), &stages, 8);
    assert!(explorer.orders > 100_000, "{}", explorer.orders);
}
