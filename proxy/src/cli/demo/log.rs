//! What happens to the demo's machines, printed while it happens.
//!
//! It reads their event logs and prints each entry once. It must never print what it did not find there.

use std::cell::Cell;
use std::task::Poll;

use switchback_rig::{Event, EventKind, Rig};

use crate::cli::{rig::sentence, say};

/// Awaits `work`, and prints what happens to the machines meanwhile.
pub(super) async fn watching<T>(rigs: &[&Rig], work: impl Future<Output = T>) -> T {
    let logs: Vec<Log<'_>> = rigs.iter().map(|rig| Log::from_now_on(rig)).collect();
    let mut work = std::pin::pin!(work);
    let done = loop {
        let happened = logs.iter().map(Log::print_next);
        tokio::select! {
            done = &mut work => break done,
            () = any_of(happened) => {}
        }
    };
    logs.iter().for_each(Log::print_rest);
    done
}

/// The number of the machine's next event.
pub(super) fn next_event(rig: &Rig) -> u64 {
    rig.events().last().map_or(0, |event| event.number + 1)
}

/// Waits until a machine serves, if it does not.
pub(super) async fn ready(rig: &Rig) {
    let last = rig.events().into_iter().rfind(|event| matches!(event.kind, EventKind::Died { .. }));
    let since = last.map_or(0, |died| died.number);
    rig.event_since(since, |event| matches!(event.kind, EventKind::Ready)).await;
}

/// Waits until a machine that died after the event `since` serves again: how long it was away, and when it came back.
/// None if it did not die: that would be a wait without an end.
pub(super) async fn outage(rig: &Rig, since: u64) -> Option<(f64, f64)> {
    let died =
        rig.events_since(since).into_iter().find(|event| matches!(event.kind, EventKind::Died { .. }))?;
    let back = rig.event_since(died.number, |event| matches!(event.kind, EventKind::Ready)).await;
    Some((back.at - died.at, back.at))
}

/// Resolves with the first of them.
async fn any_of<F: Future<Output = ()>>(futures: impl Iterator<Item = F>) {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        let ready = futures.iter_mut().any(|future| future.as_mut().poll(cx).is_ready());
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// What happens to a machine, printed once each.
struct Log<'a> {
    rig: &'a Rig,
    next: Cell<u64>,
}

impl<'a> Log<'a> {
    fn from_now_on(rig: &'a Rig) -> Self {
        Self { rig, next: Cell::new(next_event(rig)) }
    }

    async fn print_next(&self) {
        self.print(&self.rig.event_since(self.next.get(), |_| true).await);
    }

    fn print_rest(&self) {
        self.rig.events_since(self.next.get()).iter().for_each(|event| self.print(event));
    }

    fn print(&self, event: &Event) {
        self.next.set(event.number + 1);
        say(format_args!("{:>9.1} s  {:10} {}", event.at, self.rig.spec().name, sentence(event)));
    }
}
