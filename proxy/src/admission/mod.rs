//! The waiting room around the gate: requests wait here for a place, in the pipeline's own future.
//!
//! So waiting is cancelled by dropping it, like everything else of a request, and the answer's keep-alives go on meanwhile. Who
//! waits may ask otherwise when backends come or go, and keeps its place in the queue.
//! One lock, held for a step of the gate and never across an await; one timer for all, as the gate wants to be woken. Who
//! decides is `policies::admission`; a gate that several proxies share would stand behind [`WaitingRoom::apply`].

mod ask;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use switchback_policies::admission::{Answer, Ask, Event, Gate, Grant, Refusal, Rules, Ticket, Why};
use switchback_policies::facts::Load;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::watched::Watched;

pub(crate) use self::ask::{Asking, admit, offer};

/// Where requests wait. Shared by all configurations: a reload changes its rules and frees nobody's place.
#[derive(Debug)]
pub(crate) struct WaitingRoom {
    inner: Mutex<Inner>,
    /// When the gate wants to be told that time has passed.
    wake_at: Watched<Option<Instant>>,
    opened: Instant,
    /// Somebody has left: who waits for a backend to be empty looks again.
    pub(crate) left: Arc<Notify>,
}

#[derive(Debug)]
struct Inner {
    gate: Gate,
    /// Those who wait for an answer.
    waiting: HashMap<Ticket, oneshot::Sender<Answer>>,
    next: u64,
}

impl WaitingRoom {
    pub(crate) fn new(rules: Rules) -> Arc<Self> {
        let inner = Inner { gate: Gate::new(rules), waiting: HashMap::new(), next: 0 };
        Arc::new(Self {
            inner: Mutex::new(inner),
            wake_at: Watched::default(),
            opened: Instant::now(),
            left: Arc::default(),
        })
    }

    pub(crate) fn set_rules(&self, rules: Rules) {
        self.inner.lock().gate.set_rules(rules);
        self.apply(Event::Time);
    }

    /// What a backend carries by the proxy's own doing.
    pub(crate) fn load(&self, backend: &str) -> Load {
        self.inner.lock().gate.load(backend, self.opened.elapsed())
    }

    /// Requests that wait for a place.
    pub(crate) fn waiting(&self) -> usize {
        self.inner.lock().gate.waiting()
    }

    /// Where a request stands that waits, in words for its client.
    pub(crate) fn standing(&self, ticket: Ticket) -> Option<String> {
        let (before, wait) = self.inner.lock().gate.place_in_queue(ticket, self.opened.elapsed())?;
        Some(format!("{before} before it, a place expected in {:.0} s", wait.as_secs_f64()))
    }

    /// Enters: the request waits for an answer from now on.
    pub(crate) fn enter(self: &Arc<Self>, ask: Ask) -> Waiting {
        let (answer, told) = oneshot::channel();
        let ticket = {
            let mut inner = self.inner.lock();
            inner.next += 1;
            let ticket = Ticket(inner.next);
            inner.waiting.insert(ticket, answer);
            ticket
        };
        // From here on, whatever becomes of it, the ticket is given back.
        let permit = Permit {
            room: self.clone(),
            ticket,
            prefilling: AtomicBool::new(false),
            used: AtomicU64::new(0),
        };
        self.apply(Event::Arrives(ticket, ask));
        Waiting { told, permit }
    }

    /// Enters, and waits for a place.
    pub(crate) async fn place(self: &Arc<Self>, ask: Ask) -> Result<(Grant, Permit), Refusal> {
        let mut waiting = self.enter(ask);
        Ok((waiting.answer().await?, waiting.permit()))
    }

    fn apply(&self, event: Event) {
        let now = self.opened.elapsed();
        let mut inner = self.inner.lock();
        if let Event::Leaves(ticket, _) = event {
            inner.waiting.remove(&ticket);
        }
        for (ticket, answer) in inner.gate.apply(event, now) {
            if let Some(waiter) = inner.waiting.remove(&ticket) {
                // One that has just left gives its place back by itself.
                let _ = waiter.send(answer);
            }
        }
        // Timers have a grain of a millisecond: never wake before there is something to do.
        let wake = inner.gate.wake_at(now).map(|at| self.opened + at.max(now + Duration::from_millis(1)));
        self.wake_at.change(|known| *known = wake);
    }
}

/// A request that waits. Dropping it gives its place in the queue back.
#[derive(Debug)]
pub(crate) struct Waiting {
    told: oneshot::Receiver<Answer>,
    permit: Permit,
}

impl Waiting {
    /// Under what number it waits.
    pub(crate) fn ticket(&self) -> Ticket {
        self.permit.ticket
    }

    /// It asks for something else from now on, and keeps its place in the queue. False: it has its answer already, to what
    /// it asked before.
    pub(crate) fn asks(&self, ask: Ask) -> bool {
        let room = &self.permit.room;
        let waits = room.inner.lock().waiting.contains_key(&self.ticket());
        if waits {
            room.apply(Event::Asks(self.ticket(), ask));
        }
        waits
    }

    /// Waits for the answer. Cancel safe.
    pub(crate) async fn answer(&mut self) -> Answer {
        let room = self.permit.room.clone();
        loop {
            let changed = room.wake_at.changed();
            let wake = room.wake_at.get();
            let sleep = async {
                match wake {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                answer = &mut self.told => {
                    let refused = Refusal { why: Why::TimedOut, expected: Duration::ZERO, waiting: 0 };
                    // The sender lives until it has answered.
                    let answer = answer.unwrap_or(Err(refused));
                    self.permit.prefilling.store(answer.is_ok(), Ordering::Relaxed);
                    return answer;
                }
                () = sleep => room.apply(Event::Time),
                () = changed => {}
            }
        }
    }

    /// The place, once the answer was one.
    pub(crate) fn permit(self) -> Permit {
        self.permit
    }
}

/// The right to use a backend: a place for the prefill, one for the answer, and the tokens that it holds there. Dropping it
/// frees what is left of them.
#[derive(Debug)]
pub(crate) struct Permit {
    room: Arc<WaitingRoom>,
    ticket: Ticket,
    prefilling: AtomicBool,
    /// Tokens that it has used.
    used: AtomicU64,
}

impl Permit {
    /// The backend's first token is there: the prefill place is free.
    pub(crate) fn first_token(&self) {
        if self.prefilling.swap(false, Ordering::Relaxed) {
            self.room.apply(Event::FirstToken(self.ticket));
        }
    }

    /// So many tokens are used, as far as is known now: what its client is charged when it leaves.
    pub(crate) fn uses(&self, tokens: u64) {
        self.used.store(tokens, Ordering::Relaxed);
    }

    /// One more token has come.
    pub(crate) fn uses_one_more(&self) {
        self.used.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl Permit {
    /// From a room of its own.
    pub(crate) async fn for_anything() -> Self {
        WaitingRoom::new(Rules::default()).place(tests::ask(1, 0.1)).await.unwrap().1
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.room.apply(Event::Leaves(self.ticket, self.used.load(Ordering::Relaxed)));
        self.room.left.notify_one();
    }
}

#[cfg(test)]
mod every_order;

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_policies::admission::{Allowance, Offer, Whose};
    use switchback_policies::client::Class;

    pub(super) fn ask(slots: u64, prefill: f64) -> Ask {
        let offer = Offer {
            backend: "one".into(),
            slots: Some(slots),
            pool: None,
            tokens: 1000,
            sequences: 1,
            piece: None,
            prefill,
            finish: prefill + 10.0,
        };
        Ask {
            whose: Whose::default(),
            account: 1,
            class: Class::Interactive,
            streams: true,
            allowance: Allowance::default(),
            waited: Duration::ZERO,
            offers: vec![offer],
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_frees_its_places_when_it_is_dropped_and_the_next_one_enters() {
        let room = WaitingRoom::new(Rules::default());
        let (_, first) = room.place(ask(1, 0.1)).await.unwrap();
        assert_eq!((room.load("one").running, room.load("one").resident), (1, 1000));
        let second = tokio::spawn({
            let room = room.clone();
            async move { room.place(ask(1, 0.1)).await.unwrap() }
        });
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert_eq!(room.waiting(), 1);
        drop(first);
        let (grant, second) = second.await.unwrap();
        assert_eq!(grant.waited.as_secs(), 7);
        drop(second);
        assert_eq!(room.load("one"), Load::default());
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_waiting_leaves_no_trace_and_who_was_admitted_meanwhile_frees_the_place() {
        let room = WaitingRoom::new(Rules::default());
        let (_, first) = room.place(ask(1, 0.1)).await.unwrap();
        let mut waits = Box::pin(room.place(ask(1, 0.1)));
        let given_up = tokio::time::timeout(Duration::from_secs(1), waits.as_mut()).await;
        assert!(given_up.is_err());
        // It gets its place and is never polled again.
        drop(first);
        assert_eq!(room.load("one").running, 1);
        drop(waits);
        assert_eq!((room.load("one").running, room.waiting()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_frees_the_place() {
        let room = WaitingRoom::new(Rules::default());
        let inside = room.clone();
        let task = tokio::spawn(async move {
            let _permit = inside.place(ask(1, 0.1)).await.unwrap();
            panic!("on purpose");
        });
        assert!(task.await.is_err());
        assert_eq!(room.load("one").running, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn time_alone_lets_a_large_prefill_in_beside_a_live_stream() {
        let room = WaitingRoom::new(Rules::default());
        let (_, stream) = room.place(ask(9, 0.1)).await.unwrap();
        stream.first_token();
        let before = Instant::now();
        let (grant, _permit) = room.place(ask(9, 80.0)).await.unwrap();
        // The stream was expected to end after ten seconds, but does not.
        assert_eq!(before.elapsed().as_secs(), 20);
        assert!(grant.broken.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn new_rules_hold_for_those_who_wait() {
        let room = WaitingRoom::new(Rules::default());
        let (_, stream) = room.place(ask(9, 0.1)).await.unwrap();
        stream.first_token();
        let mut waits = Box::pin(room.place(ask(9, 80.0)));
        assert!(tokio::time::timeout(Duration::from_secs(1), waits.as_mut()).await.is_err());
        room.set_rules(Rules { large_prefill_wait: Duration::ZERO, ..Rules::default() });
        assert!(waits.await.is_ok());
    }
}
