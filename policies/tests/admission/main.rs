//! The gate: what its users need of it, as claims; and its bounds over random and over all orders of events.

#![expect(clippy::expect_used, clippy::panic, reason = "a test says by panicking that a claim does not hold")]

mod claims;
mod every_order;
mod properties;
mod queueing;
mod sharing;

use std::time::Duration;

use switchback_policies::admission::{
    Allowance, Answer, Ask, Event, Gate, Grant, Offer, Refusal, Rules, Ticket, Whose,
};
use switchback_policies::client::Class;

/// A gate with a clock, and what it said to each ticket.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) gate: Gate,
    pub(crate) now: f64,
    pub(crate) told: Vec<(Ticket, Answer)>,
    next: u64,
}

impl Desk {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { gate: Gate::new(rules), now: 0.0, told: Vec::new(), next: 1 }
    }

    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.now)
    }

    pub(crate) fn under(&mut self, rules: Rules) {
        self.gate.set_rules(rules);
    }

    pub(crate) fn apply(&mut self, event: Event) {
        let told = self.gate.apply(event, self.time());
        self.told.extend(told);
    }

    pub(crate) fn asks(&mut self, ask: Ask) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.apply(Event::Arrives(ticket, ask));
        ticket
    }

    /// Lets time pass, waking the gate whenever it wants to be.
    pub(crate) fn until(&mut self, time: f64) {
        while let Some(wake) = self.gate.wake_at(self.time()).map(|wake| wake.as_secs_f64())
            && wake <= time
        {
            self.now = self.now.max(wake);
            self.apply(Event::Time);
        }
        self.now = time;
        self.apply(Event::Time);
    }

    pub(crate) fn first_token(&mut self, ticket: Ticket) {
        self.apply(Event::FirstToken(ticket));
    }

    pub(crate) fn leaves(&mut self, ticket: Ticket) {
        self.apply(Event::Leaves(ticket, 0));
    }

    pub(crate) fn answer(&self, ticket: Ticket) -> Option<&Answer> {
        self.told.iter().rev().find(|(told, _)| *told == ticket).map(|(_, answer)| answer)
    }

    pub(crate) fn waits(&self, ticket: Ticket) -> bool {
        self.answer(ticket).is_none()
    }

    pub(crate) fn grant(&self, ticket: Ticket) -> Grant {
        match self.answer(ticket) {
            Some(Ok(grant)) => *grant,
            other => panic!("{ticket:?} has no place: {other:?}"),
        }
    }

    pub(crate) fn refusal(&self, ticket: Ticket) -> Refusal {
        match self.answer(ticket) {
            Some(Err(refusal)) => *refusal,
            other => panic!("{ticket:?} is not refused: {other:?}"),
        }
    }

    /// Tickets in the order in which they were admitted.
    pub(crate) fn admitted(&self) -> Vec<Ticket> {
        self.told.iter().filter(|(_, answer)| answer.is_ok()).map(|(ticket, _)| *ticket).collect()
    }
}

/// A place on a backend without bounds, for a prompt that takes so many seconds to read and as many in all as given.
pub(crate) fn on(backend: &str, prefill: f64, finish: f64) -> Offer {
    Offer {
        backend: backend.into(),
        slots: None,
        pool: None,
        tokens: 1000,
        sequences: 1,
        piece: None,
        prefill,
        finish,
    }
}

/// The same where so many run at once.
pub(crate) fn slotted(backend: &str, slots: u64, prefill: f64, finish: f64) -> Offer {
    Offer { slots: Some(slots), ..on(backend, prefill, finish) }
}

pub(crate) fn ask(client: u64, class: Class, offer: Offer) -> Ask {
    Ask {
        whose: Whose { client, part: 0 },
        account: client,
        class,
        streams: true,
        allowance: Allowance::default(),
        waited: Duration::ZERO,
        offers: vec![offer],
    }
}

pub(crate) fn chat(offer: Offer) -> Ask {
    ask(1, Class::Interactive, offer)
}

pub(crate) fn agent(offer: Offer) -> Ask {
    ask(2, Class::Agent, offer)
}
