//! The scaled clock: simulated seconds run `speed` times faster than real ones.
//!
//! Everything the rig does takes *simulated* seconds, as the published figures give them; only this file turns
//! them into waiting. It is built on tokio's time, so a test with paused time passes through a 285-second prefill
//! at once and still measures 285 seconds. It must never read the system's own clock.

use std::time::Duration;

use tokio::time::Instant;

use crate::SpecError;

/// A clock that several rigs may share: their events then compare, for they count from the same epoch.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    speed: f64,
    epoch: Instant,
}

impl Clock {
    /// A clock that starts now and runs `speed` times as fast as real time: 50.0 passes 50 simulated seconds in one
    /// real one. Create it on the runtime that will use it, or paused time goes unnoticed.
    ///
    /// # Errors
    /// [`SpecError::Speed`] unless `speed` is finite and above zero.
    pub fn new(speed: f64) -> Result<Self, SpecError> {
        if speed.is_finite() && speed > 0.0 {
            Ok(Self { speed, epoch: Instant::now() })
        } else {
            Err(SpecError::Speed { speed })
        }
    }

    /// A clock at the speed of real time, starting now.
    pub fn real() -> Self {
        Self { speed: 1.0, epoch: Instant::now() }
    }

    /// Simulated seconds per real second.
    pub fn speed(&self) -> f64 {
        self.speed
    }

    /// Simulated seconds since the clock was made.
    pub fn now(&self) -> f64 {
        self.epoch.elapsed().as_secs_f64() * self.speed
    }

    /// Waits until the simulated time `at`; returns at once if that has passed. Timers have a grain of one real
    /// millisecond: what is due within it happens together.
    pub async fn sleep_until(&self, at: f64) {
        tokio::time::sleep_until(self.epoch + real(at / self.speed)).await;
    }

    /// Waits for `seconds` of simulated time.
    pub async fn sleep(&self, seconds: f64) {
        tokio::time::sleep(real(seconds / self.speed)).await;
    }
}

/// Real seconds as a duration. Ages become thirty years, which timers still take; nonsense becomes none.
fn real(seconds: f64) -> Duration {
    const AGES: f64 = 30.0 * 365.0 * 86_400.0;
    Duration::try_from_secs_f64(seconds.clamp(0.0, AGES)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn simulated_seconds_pass_speed_times_as_fast() {
        let clock = Clock::new(50.0).unwrap();
        let before = Instant::now();
        clock.sleep(100.0).await;
        assert_eq!(before.elapsed().as_secs(), 2);
        assert!((clock.now() - 100.0).abs() < 1.0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_of_many_days_still_waits() {
        let clock = Clock::real();
        tokio::time::advance(Duration::from_secs(40 * 86_400)).await;
        let before = clock.now();
        clock.sleep_until(before + 7.0).await;
        assert!(clock.now() - before >= 7.0);
    }

    #[test]
    fn a_speed_that_is_no_speed_is_refused() {
        for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Clock::new(speed).is_err(), "{speed}");
        }
    }
}
