//! The waiting room under every order of what its requests can do: be polled, get their first token, be dropped while they wait
//! or while they run, and time passing. Polled by hand on one thread, so that each order is tried exactly once.
//!
//! Whatever the order: no place is exceeded, none is lost, nobody waits while a place is free, and at the end the room is as new.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::tests::ask;
use super::*;

const SLOTS: u64 = 2;
const REQUESTS: usize = 3;

type Entering = Pin<Box<dyn Future<Output = Result<(Grant, Permit), Refusal>>>>;

/// One request's life.
enum Life {
    Outside,
    Waits(Entering),
    Runs(Permit),
    Gone,
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Move {
    /// It enters, or is polled again.
    Poll(usize),
    FirstToken(usize),
    /// The client hangs up, or the answer ends.
    Drop(usize),
    Time,
}

struct World {
    room: Arc<WaitingRoom>,
    lives: Vec<Life>,
}

impl World {
    fn new() -> Self {
        Self {
            room: WaitingRoom::new(Rules::default()),
            lives: (0..REQUESTS).map(|_| Life::Outside).collect(),
        }
    }

    fn moves(&self) -> Vec<Move> {
        let mut moves = vec![Move::Time];
        for (at, life) in self.lives.iter().enumerate() {
            match life {
                Life::Outside => moves.push(Move::Poll(at)),
                Life::Waits(_) => moves.extend([Move::Poll(at), Move::Drop(at)]),
                Life::Runs(_) => moves.extend([Move::FirstToken(at), Move::Drop(at)]),
                Life::Gone => {}
            }
        }
        moves
    }

    async fn make(&mut self, step: Move) {
        match step {
            Move::Time => tokio::time::advance(Duration::from_secs(11)).await,
            Move::Drop(at) => self.lives[at] = Life::Gone,
            Move::FirstToken(at) => {
                if let Life::Runs(permit) = &self.lives[at] {
                    permit.first_token();
                }
            }
            Move::Poll(at) => {
                let mut entering: Entering = match std::mem::replace(&mut self.lives[at], Life::Gone) {
                    Life::Outside => {
                        let room = self.room.clone();
                        // The last one would be a large prefill.
                        let prefill = if at + 1 == REQUESTS { 8.0 } else { 0.5 };
                        Box::pin(async move { room.place(ask(SLOTS, prefill)).await })
                    }
                    Life::Waits(entering) => entering,
                    other => {
                        self.lives[at] = other;
                        return;
                    }
                };
                self.lives[at] = match entering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(Ok((_, permit))) => Life::Runs(permit),
                    Poll::Ready(Err(_)) => Life::Gone,
                    Poll::Pending => Life::Waits(entering),
                };
            }
        }
    }

    fn count(&self, of: impl Fn(&Life) -> bool) -> u64 {
        self.lives.iter().filter(|life| of(life)).count() as u64
    }

    fn check(&self, order: &[Move]) {
        let (runs, waits) = (
            self.count(|life| matches!(life, Life::Runs(_))),
            self.count(|life| matches!(life, Life::Waits(_))),
        );
        let load = self.room.load("one").running;
        assert!(load <= SLOTS, "{load} places of {SLOTS}: {order:?}");
        // Who was admitted and has not been polled since holds a place all the same, and is not in the queue.
        assert_eq!(load + self.room.waiting() as u64, runs + waits, "a place or a waiter is lost: {order:?}");
        assert!(load >= runs, "a place is lost: {order:?}");
    }
}

/// Makes the moves of an order, checks after each, and tells what could come next.
async fn play(order: &[Move]) -> Vec<Move> {
    let mut world = World::new();
    for (at, step) in order.iter().enumerate() {
        world.make(*step).await;
        world.check(&order[..=at]);
    }
    let moves = world.moves();
    // Nobody waits while a place is free: whoever waits now is let in when all that runs has gone and time has passed.
    for at in 0..REQUESTS {
        if matches!(world.lives[at], Life::Runs(_)) {
            world.make(Move::Drop(at)).await;
        }
    }
    let waited = world.count(|life| matches!(life, Life::Waits(_)));
    for at in (0..REQUESTS).cycle().take(2 * REQUESTS) {
        if matches!(world.lives[at], Life::Waits(_)) {
            world.make(Move::Poll(at)).await;
        }
    }
    let runs = world.count(|life| matches!(life, Life::Runs(_)));
    assert!(runs >= waited.min(1), "{waited} wait for ever: {order:?}");
    world.lives.clear();
    assert_eq!((world.room.load("one"), world.room.waiting()), (Load::default(), 0), "{order:?}");
    assert!(world.room.inner.lock().waiting.is_empty(), "{order:?}");
    moves
}

#[tokio::test(start_paused = true)]
async fn no_order_of_polls_tokens_hang_ups_and_time_exceeds_or_loses_a_place() {
    const DEEP: usize = 6;
    let mut orders = vec![Vec::new()];
    let mut played = 0;
    while let Some(order) = orders.pop() {
        let moves = play(&order).await;
        played += 1;
        if order.len() < DEEP {
            // Two ticks in a row are one.
            let useful =
                moves.into_iter().filter(|next| *next != Move::Time || order.last() != Some(&Move::Time));
            orders.extend(useful.map(|next| [order.as_slice(), &[next]].concat()));
        }
    }
    assert!(played > 5_000, "{played}");
}
