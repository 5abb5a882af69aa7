//! What the proxy itself has put on a backend, and who of them is the suspect when the engine dies.
//!
//! A place is taken with a permit when an attempt starts and freed when its answer ends, by drop: on failure, disconnect and
//! panic, too. Who gets one, and when, is the gate's business.
//! The suspect of a death is the request that was in prefill then; of several the one with the most to read. All that were
//! open at the first report of a death died of that one, so that one death is counted once.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use switchback_policies::cliff::Shape;
use switchback_policies::liveness::QUIET;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use crate::admission::Permit;

/// The open requests of one backend.
#[derive(Debug, Default)]
pub(crate) struct OpenRequests {
    open: Mutex<Open>,
    /// Some requests are lost.
    lost: Notify,
}

#[derive(Debug, Default)]
struct Open {
    requests: Vec<Request>,
    next: u64,
    /// When any of them last made progress.
    moved: Option<Instant>,
    /// The last death: who was there, and the suspect.
    death: Option<(Vec<u64>, Option<u64>)>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    id: u64,
    work: Work,
    /// `None`: its first token has come.
    prefill_until: Option<Instant>,
    began: Instant,
    /// The engine does not know it any more.
    lost: bool,
}

/// What a request puts on a backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Prompt and expected output.
    pub(crate) tokens: u64,
    /// Of the prompt, those that it has to read.
    pub(crate) new: u64,
    /// Its shape; `None`: its length is a guess, and whether it is large is not known.
    pub(crate) shape: Option<Shape>,
    /// Tokens of the prompt that are thought to be cached there.
    pub(crate) believed: u64,
    /// How long it can be in prefill without its first token being seen; `None`: until that comes.
    pub(crate) prefill: Option<f64>,
}

/// One request's place. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place {
    open: Arc<OpenRequests>,
    id: u64,
    permit: Permit,
    believed: u64,
    /// When it was taken, and how many there were then, this one among them.
    taken: (Instant, u64),
    /// The same at its first token.
    first_token: OnceLock<(Instant, u64)>,
}

/// How long one request took, and in what company.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    pub(crate) believed: u64,
    /// From sending to the first token; `None`: others ran beside it.
    pub(crate) reading: Option<Duration>,
    /// From the first token till now, and how many ran at both moments; `None`: it changed.
    pub(crate) writing: Option<(Duration, u64)>,
}

/// What a death means for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Death {
    /// It was in prefill.
    pub(crate) suspect: bool,
    /// What to learn from, at the first report of a death.
    pub(crate) lesson: Option<Witnessed>,
}

/// What an engine carried when it died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Witnessed {
    /// A suspect in prefill.
    Prefill(Shape),
    /// Nobody was in prefill: only how much it was, and how many.
    Crowd(Shape),
}

fn after(seconds: f64) -> Instant {
    Instant::now() + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

impl OpenRequests {
    /// Takes a place.
    pub(crate) fn take(self: &Arc<Self>, work: Work, permit: Permit) -> Place {
        // What cannot be said as a time never ends.
        let prefill_until = after(work.prefill.unwrap_or(1e9));
        let mut open = self.open.lock();
        let id = open.next;
        open.next += 1;
        open.requests.push(Request {
            id,
            work,
            prefill_until: Some(prefill_until),
            began: Instant::now(),
            lost: false,
        });
        Place {
            open: self.clone(),
            id,
            permit,
            believed: work.believed,
            taken: (Instant::now(), open.requests.len() as u64),
            first_token: OnceLock::new(),
        }
    }

    /// How many there are.
    pub(crate) fn running(&self) -> u64 {
        self.open.lock().requests.len() as u64
    }

    /// Requests that have been here for a while, and how long none of them has made progress.
    pub(crate) fn quiet(&self) -> (u64, Duration) {
        let open = self.open.lock();
        let now = Instant::now();
        let mut old = open.requests.iter().filter(|request| now - request.began >= QUIET).peekable();
        let Some(first) = old.peek().map(|request| request.began) else { return (0, Duration::ZERO) };
        let moved = open.moved.map_or(first, |moved| moved.max(first));
        (old.count() as u64, now - moved)
    }

    /// Those are lost: whoever waits for them is told.
    pub(crate) fn lose(&self) {
        let now = Instant::now();
        for request in &mut self.open.lock().requests {
            request.lost |= now - request.began >= QUIET;
        }
        self.lost.notify_waiters();
    }
}

impl Open {
    fn died(&mut self, id: u64) -> Death {
        if let Some((there, suspect)) = &self.death
            && there.contains(&id)
        {
            return Death { suspect: *suspect == Some(id), lesson: None };
        }
        let now = Instant::now();
        let reading = self.requests.iter().filter(|open| open.prefill_until.is_some_and(|until| until > now));
        let suspect = reading.max_by_key(|open| open.work.new).copied();
        let running = self.requests.len() as u64;
        let tokens = || self.requests.iter().map(|open| open.work.tokens);
        let (resident, largest) = (tokens().sum(), tokens().max().unwrap_or(0));
        let crowd = Shape { resident, running, largest, ..Shape::default() };
        let lesson = match suspect.map(|suspect| suspect.work) {
            Some(Work { shape: Some(shape), .. }) => {
                Witnessed::Prefill(Shape { resident, running, largest, ..shape })
            }
            Some(_) | None => Witnessed::Crowd(crowd),
        };
        let suspect = suspect.map(|suspect| suspect.id);
        self.death = Some((self.requests.iter().map(|open| open.id).collect(), suspect));
        Death { suspect: suspect == Some(id), lesson: Some(lesson) }
    }
}

impl Place {
    /// A token of it has come: it is not in prefill any more.
    pub(crate) fn token(&self) {
        self.first_token.get_or_init(|| (Instant::now(), self.open.running()));
        self.permit.uses_one_more();
        self.was_read();
        self.open.open.lock().moved = Some(Instant::now());
    }

    /// So many tokens are what it has used.
    pub(crate) fn used(&self, tokens: u64) {
        self.permit.uses(tokens);
    }

    /// It is not in prefill any more, since when is unknown.
    pub(crate) fn was_read(&self) {
        self.permit.first_token();
        let mut open = self.open.open.lock();
        if let Some(request) = open.requests.iter_mut().find(|open| open.id == self.id) {
            request.prefill_until = None;
        }
    }

    /// How long it took until now; `None`: its first token was not seen.
    pub(crate) fn took(&self) -> Option<Took> {
        let ((taken, beside), (first, then)) = (self.taken, *self.first_token.get()?);
        let alone = beside == 1 && then == 1;
        let same = self.open.running() == then;
        Some(Took {
            believed: self.believed,
            reading: alone.then(|| first - taken),
            writing: same.then(|| (first.elapsed(), then)),
        })
    }

    /// Resolves when the engine does not know the request any more.
    pub(crate) async fn until_lost(&self) {
        loop {
            let told = self.open.lost.notified();
            tokio::pin!(told);
            // From now on, so that nothing is missed between the look and the wait.
            told.as_mut().enable();
            let lost = |open: &Open| open.requests.iter().any(|open| open.id == self.id && open.lost);
            if lost(&self.open.open.lock()) {
                return;
            }
            told.await;
        }
    }

    /// It met the death of the engine.
    pub(crate) fn died(&self) -> Death {
        self.open.open.lock().died(self.id)
    }

    /// What it put there, if that is known well enough to learn from.
    pub(crate) fn shape(&self) -> Option<Shape> {
        let open = self.open.open.lock();
        open.requests.iter().find(|open| open.id == self.id).and_then(|open| open.work.shape)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.open.lock().requests.retain(|open| open.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(tokens: u64) -> Work {
        let shape = Shape { new: tokens, resident: tokens, running: 1, largest: tokens, ..Shape::default() };
        Work { tokens, new: tokens, shape: Some(shape), believed: 0, prefill: None }
    }

    async fn place(open: &Arc<OpenRequests>, work: Work) -> Place {
        open.take(work, Permit::for_anything().await)
    }

    #[tokio::test(start_paused = true)]
    async fn the_suspect_of_a_death_is_the_one_in_prefill_whoever_reports_first() {
        let open = Arc::new(OpenRequests::default());
        let writes = place(&open, work(40_000)).await;
        writes.token();
        let reads = place(&open, work(25_000)).await;
        let waits = place(&open, work(300)).await;
        let death = writes.died();
        assert!(!death.suspect);
        let shape = Shape { new: 25_000, resident: 65_300, running: 3, largest: 40_000, ..Shape::default() };
        assert_eq!(death.lesson, Some(Witnessed::Prefill(shape)));
        assert_eq!(reads.died(), Death { suspect: true, lesson: None });
        assert_eq!(waits.died(), Death { suspect: false, lesson: None });
        drop((writes, reads, waits));
        let next = place(&open, work(100)).await;
        next.token();
        assert!(matches!(next.died().lesson, Some(Witnessed::Crowd(_))), "another death");
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspect_whose_length_is_a_guess_is_no_lesson() {
        let open = Arc::new(OpenRequests::default());
        let guessed = place(&open, Work { shape: None, ..work(25_000) }).await;
        let death = guessed.died();
        assert!(death.suspect && matches!(death.lesson, Some(Witnessed::Crowd(_))), "{death:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_shows_no_token_is_in_prefill_only_as_long_as_that_can_take() {
        let open = Arc::new(OpenRequests::default());
        let whole = place(&open, Work { prefill: Some(5.0), ..work(9000) }).await;
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(!whole.died().suspect);
    }
}
