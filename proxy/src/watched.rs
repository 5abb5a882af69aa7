//! A value that tasks wait for.
//!
//! Like tokio's watch channel, but who has waited longest is woken first. A watch wakes in a random order, and then no run can
//! be repeated on paused time: which of two requests moves first decides where both end. Must never be locked across an await.

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// A value, and who waits for it to change.
#[derive(Debug, Default)]
pub(crate) struct Watched<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy + PartialEq> Watched<T> {
    pub(crate) fn get(&self) -> T {
        *self.value.lock()
    }

    /// Changes it; wakes all who wait if it is another one then. Gives the value before and after.
    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) -> (T, T) {
        let mut value = self.value.lock();
        let before = *value;
        change(&mut value);
        let after = *value;
        drop(value);
        if before != after {
            self.changed.notify_waiters();
        }
        (before, after)
    }

    /// Resolves at the next change after this call, even if it is polled only later.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Resolves when the value is as wanted.
    pub(crate) async fn until(&self, wanted: impl Fn(T) -> bool) {
        loop {
            // Made before the look, so that no change is missed.
            let changed = self.changed();
            if wanted(self.get()) {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn who_has_waited_longest_is_woken_first() {
        let (watched, order) = (Arc::new(Watched::<u8>::default()), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..40 {
            let (watched, order) = (watched.clone(), order.clone());
            tasks.spawn(async move {
                watched.until(|value| value == 1).await;
                order.lock().push(number);
            });
        }
        tokio::task::yield_now().await;
        watched.change(|value| *value = 1);
        while tasks.join_next().await.is_some() {}
        assert_eq!(*order.lock(), (0..40).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_change_between_the_look_and_the_wait_is_not_missed() {
        let watched = Watched::<u8>::default();
        let changed = watched.changed();
        watched.change(|value| *value = 1);
        changed.await;
    }
}
