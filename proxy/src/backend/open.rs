//! What the proxy itself has put on a backend: open requests, their tokens, when they are expected to end.
//!
//! A place is taken when an attempt starts and freed when its answer ends, by drop: on failure, disconnect and panic, too.

use std::sync::Arc;

use parking_lot::Mutex;
use switchback_policies::facts::Load;
use tokio::time::{Duration, Instant};

/// The open requests of one backend.
#[derive(Debug, Default)]
pub(crate) struct OpenRequests(Mutex<Vec<Open>>);

#[derive(Clone, Copy, Debug)]
struct Open {
    id: u64,
    tokens: u64,
    ends: Instant,
}

/// One request's place. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place {
    open: Arc<OpenRequests>,
    id: u64,
}

impl OpenRequests {
    /// Takes a place for `tokens` (prompt and expected output) that are expected to be done after `seconds`.
    pub(crate) fn take(self: &Arc<Self>, tokens: u64, seconds: f64) -> Place {
        let ends = Instant::now() + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO);
        let mut open = self.0.lock();
        let id = open.iter().map(|open| open.id + 1).max().unwrap_or(0);
        open.push(Open { id, tokens, ends });
        Place { open: self.clone(), id }
    }

    /// What they come to now.
    pub(crate) fn load(&self) -> Load {
        let open = self.0.lock();
        let now = Instant::now();
        let first = open.iter().map(|open| open.ends.saturating_duration_since(now)).min();
        Load {
            running: open.len() as u64,
            resident: open.iter().map(|open| open.tokens).sum(),
            first_ends_in: first.unwrap_or_default().as_secs_f64(),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.0.lock().retain(|open| open.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_place_counts_until_it_is_dropped() {
        let open = Arc::new(OpenRequests::default());
        let first = open.take(1000, 30.0);
        let second = open.take(500, 10.0);
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(open.load(), Load { running: 2, resident: 1500, first_ends_in: 6.0 });
        drop(second);
        assert_eq!(open.load().resident, 1000);
        drop(first);
        assert_eq!(open.load(), Load::default());
    }
}
