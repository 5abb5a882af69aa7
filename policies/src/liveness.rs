//! Whether an engine makes progress: its own counters against the proxy's open requests, failures in a row, answers that
//! are no answers.
//!
//! A health page that says 200 proves nothing: engines were seen to lose requests without a word, and to go on taking what
//! they never compute (vllm#39863). Long silence proves nothing either: that is what a long prefill looks like. Both
//! together with an engine that says that it runs nothing do. Whoever is doubted is asked for one token before it gets
//! work again.
//!
//! Must never doubt an engine that says that it computes, unless a counter of its own steps stands still for minutes meanwhile.

use std::time::Duration;

/// Silence of all of the proxy's requests from which on an engine's counters are believed against it. Answers that are
/// complete in the engine take a moment to arrive.
pub const QUIET: Duration = Duration::from_secs(10);

/// So long the steps of an engine that says that it computes may stand still. One step is a piece of a prompt at the most: on the
/// slowest machine seen, a CPU with ten times as much to do as it could, that took a quarter of a minute.
const STILL: Duration = Duration::from_secs(120);

/// Looks in a row that must find the same.
const LOOKS: u32 = 2;

/// Failures in a row after which a backend is doubted.
const FAILURES: u32 = 5;

/// The longest time for which a backend that fails again and again is left alone.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Answers in a row that are no answers, after which a backend needs a restart.
const NO_ANSWERS: u32 = 3;

/// So many tokens a second any backend writes, if nobody knows how many: a CPU with several requests.
const SLOWEST: f64 = 2.0;

/// What is left beside others of the speed that a backend was seen to write at.
const CROWDED: f64 = 0.25;

/// How long a plain answer may take, of which no token is seen before its end: as long as a stream may to its first token, and then
/// the time for all that it may say, `output` tokens, at a quarter of what is known (`decode`, tokens a second).
#[must_use]
pub fn longest_answer(first_token: Duration, output: u64, decode: Option<f64>) -> Duration {
    let speed = decode.map_or(SLOWEST, |decode| (decode * CROWDED).max(0.1));
    let writing = Duration::try_from_secs_f64(output as f64 / speed).unwrap_or(Duration::MAX);
    first_token.saturating_add(writing)
}

/// One look at an engine's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Requests of the proxy that have been there for [`QUIET`] at least.
    pub own: u64,
    /// Time since any of them made progress.
    pub quiet: Duration,
    /// Requests that the engine says it computes.
    pub running: u64,
    /// Requests that wait in it, if it tells.
    pub waiting: u64,
    /// A number that is another one after each step of its computation, if it tells that.
    pub steps: Option<u64>,
}

/// What looks come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing is to be said against it.
    Well,
    /// It does not know the proxy's requests any more.
    Vanished,
    /// It takes requests and computes none.
    Wedged,
    /// It says that it computes, and makes no step.
    Still,
}

/// An engine under watch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    looks: u32,
    /// The number at its last step, and how long the proxy's requests had been silent when it was first seen.
    steps: Option<(u64, Duration)>,
}

impl Watch {
    /// Takes a look; what it comes to.
    pub fn look(&mut self, look: &Look) -> Finding {
        if self.stands_still(look) {
            self.steps = None;
            return Finding::Still;
        }
        let found = match look {
            Look { own: 0, .. } => Finding::Well,
            Look { quiet, .. } if *quiet < QUIET => Finding::Well,
            Look { running: 1.., .. } => Finding::Well,
            Look { waiting: 0, .. } => Finding::Vanished,
            Look { .. } => Finding::Wedged,
        };
        self.looks = if found == Finding::Well { 0 } else { self.looks + 1 };
        if self.looks < LOOKS {
            return Finding::Well;
        }
        self.looks = 0;
        found
    }

    fn stands_still(&mut self, look: &Look) -> bool {
        let (Some(steps), 1.., 1..) = (look.steps, look.own, look.running) else {
            self.steps = None;
            return false;
        };
        match self.steps {
            Some((before, quiet)) if before == steps && look.quiet >= quiet => look.quiet - quiet >= STILL,
            _ => {
                self.steps = Some((steps, look.quiet));
                false
            }
        }
    }
}

/// A breaker: closed while a backend answers, open after failures in a row, half open when it may be asked for one token.
#[derive(Clone, Copy, Debug, Default)]
pub struct Breaker {
    failures: u32,
    /// How often it opened since the last answer.
    opened: u32,
    /// When it may be half open.
    until: Duration,
}

impl Breaker {
    /// A request failed there at `now` (any clock that only goes forward). True: it opens.
    pub fn failed(&mut self, now: Duration) -> bool {
        self.failures += 1;
        if self.failures < FAILURES {
            return false;
        }
        // The next failure opens it again: one token is no answer.
        self.failures = FAILURES - 1;
        let pause = Duration::from_secs(1 << self.opened.min(6));
        self.opened = self.opened.saturating_add(1);
        self.until = now + pause.min(LONGEST_PAUSE);
        true
    }

    /// A request was answered there.
    pub fn answered(&mut self) {
        *self = Self::default();
    }

    /// Another process has taken its place: that may be asked at once, whatever became of the former.
    pub fn is_replaced(&mut self) {
        self.until = Duration::ZERO;
    }

    /// Whether it may be asked for one token at `now`.
    #[must_use]
    pub fn is_half_open(&self, now: Duration) -> bool {
        now >= self.until
    }
}

/// What an answer under status 200 was worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// Something.
    Answer,
    /// No content at all.
    Empty,
    /// One exclamation mark after the other: what numbers that are none come out as.
    Garbage,
}

/// The worth of a backend's last answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quality {
    bad: u32,
}

impl Quality {
    /// Takes an answer's worth. True: this has gone on for too long; the backend needs a restart.
    pub fn answered(&mut self, worth: Worth) -> bool {
        self.bad = if worth == Worth::Answer { 0 } else { self.bad + 1 };
        self.bad >= NO_ANSWERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET_FOR_LONG: Look =
        Look { own: 2, quiet: Duration::from_secs(40), running: 0, waiting: 3, steps: None };

    #[test]
    fn an_engine_that_computes_is_never_doubted_however_long_it_is_silent() {
        let mut watch = Watch::default();
        for _ in 0..100 {
            let look = Look { running: 1, quiet: Duration::from_secs(900), ..QUIET_FOR_LONG };
            assert_eq!(watch.look(&look), Finding::Well);
        }
    }

    #[test]
    fn an_engine_that_computes_nothing_while_requests_wait_is_wedged_at_the_second_look() {
        let mut watch = Watch::default();
        assert_eq!(watch.look(&QUIET_FOR_LONG), Finding::Well);
        assert_eq!(watch.look(&QUIET_FOR_LONG), Finding::Wedged);
        assert_eq!(watch.look(&QUIET_FOR_LONG), Finding::Well, "it is told once");
    }

    /// A look after so many seconds of silence at an engine that says that it computes.
    fn computing(seconds: u64, steps: u64) -> Look {
        let quiet = Duration::from_secs(seconds);
        Look { quiet, running: 1, waiting: 0, steps: Some(steps), ..QUIET_FOR_LONG }
    }

    #[test]
    fn an_engine_that_says_that_it_computes_and_makes_no_step_for_two_minutes_is_found_out() {
        let mut watch = Watch::default();
        for seconds in (15..135).step_by(5) {
            assert_eq!(watch.look(&computing(seconds, 7000)), Finding::Well, "{seconds} s");
        }
        assert_eq!(watch.look(&computing(135, 7000)), Finding::Still);
        assert_eq!(watch.look(&computing(140, 7000)), Finding::Well, "it is told once");
    }

    #[test]
    fn a_long_prefill_makes_steps_however_silent_it_is() {
        let mut watch = Watch::default();
        for look in 0..200 {
            assert_eq!(watch.look(&computing(look * 100, 2048 * look)), Finding::Well);
        }
        // Its answers have moved meanwhile: another silence.
        watch.look(&computing(300, 9));
        assert_eq!(watch.look(&computing(10, 9)), Finding::Well);
        assert_eq!(watch.look(&computing(125, 9)), Finding::Well);
    }

    #[test]
    fn a_plain_answer_may_take_as_long_as_a_stream_and_what_it_may_say_takes() {
        let first = Duration::from_secs(300);
        assert_eq!(longest_answer(first, 500, Some(50.0)), Duration::from_secs(340));
        assert_eq!(longest_answer(first, 500, None), Duration::from_secs(550), "of unknown speed");
        assert!(longest_answer(first, u64::MAX, Some(0.0)) > Duration::from_secs(1 << 40));
    }

    #[test]
    fn requests_that_an_engine_does_not_know_have_vanished() {
        let mut watch = Watch::default();
        let look = Look { waiting: 0, ..QUIET_FOR_LONG };
        watch.look(&look);
        assert_eq!(watch.look(&look), Finding::Vanished);
    }

    #[test]
    fn progress_in_between_clears_a_doubt() {
        let mut watch = Watch::default();
        for _ in 0..10 {
            assert_eq!(watch.look(&QUIET_FOR_LONG), Finding::Well);
            assert_eq!(watch.look(&Look { quiet: Duration::from_secs(1), ..QUIET_FOR_LONG }), Finding::Well);
        }
    }

    #[test]
    fn failures_in_a_row_open_the_breaker_for_longer_and_longer_and_an_answer_closes_it() {
        let (mut breaker, now) = (Breaker::default(), Duration::from_secs(100));
        assert_eq!(
            (0..5).map(|_| breaker.failed(now)).collect::<Vec<_>>(),
            [false, false, false, false, true]
        );
        assert!(!breaker.is_half_open(now) && breaker.is_half_open(now + Duration::from_secs(1)));
        assert!(breaker.failed(now), "half open: the next failure is enough");
        assert!(!breaker.is_half_open(now + Duration::from_secs(1)));
        for _ in 0..20 {
            breaker.failed(now);
        }
        assert!(breaker.is_half_open(now + LONGEST_PAUSE));
        breaker.answered();
        assert!(!breaker.failed(now));
    }

    #[test]
    fn three_answers_in_a_row_that_are_none_need_a_restart_and_one_good_one_clears_two() {
        let mut quality = Quality::default();
        assert!(!quality.answered(Worth::Empty) && !quality.answered(Worth::Garbage));
        assert!(!quality.answered(Worth::Answer));
        assert!(!quality.answered(Worth::Garbage) && !quality.answered(Worth::Empty));
        assert!(quality.answered(Worth::Garbage));
    }
}
