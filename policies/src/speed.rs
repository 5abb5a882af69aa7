//! How fast a backend is, learned from what its requests took.
//!
//! What is published of such a machine is the start, and counts as one observation; every answer adds one, and old ones fade. Prefill is
//! fitted as `T(n) = a·n + b·n²`, decode as seconds a token that grow with the context, both by least squares of *relative*
//! errors, so that long prompts do not drown short ones; beside other streams a factor. One odd time must move little: a
//! single success or delay proves nothing.

use crate::facts::Speed;

/// What remains of an observation after the next one.
const FADES: f64 = 0.95;

/// An observation counts at most as so many times faster or slower than expected.
const ODD: f64 = 3.0;

/// What one new ratio adds to what was known.
const STEP: f64 = 0.25;

/// A prompt's reading, as it was seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Tokens of it that were thought to be cached there.
    pub believed: u64,
    /// Tokens of it that were cached, if the backend said so.
    pub cached: Option<u64>,
    /// From sending to the first token, with nobody beside it.
    pub seconds: f64,
}

/// An answer's writing, as it was seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Writing {
    /// Tokens before it.
    pub prompt: u64,
    /// Tokens of the answer.
    pub tokens: u64,
    /// From the first token to the last.
    pub seconds: f64,
    /// Requests that ran there, this one among them, from the first token to the last.
    pub running: u64,
}

/// What is known of one backend's speed.
#[derive(Clone, Debug, PartialEq)]
pub struct Learner {
    prefill: Fit,
    decode: Fit,
    /// How much slower each stream is where 2, 3 to 4, 5 to 8, or more run.
    company: [f64; 4],
    /// Part of what is thought to be cached that really costs nothing.
    reuse: f64,
    readings: u32,
}

/// What is known of a speed as plain numbers, for whoever keeps it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    /// The sums of the fit to prefill times: x₁₁, x₁₂, x₂₂, x₁y, x₂y.
    pub prefill: [f64; 5],
    /// The same of decode.
    pub decode: [f64; 5],
    /// How much slower each stream is where 2, 3 to 4, 5 to 8, or more run.
    pub company: [f64; 4],
    /// Part of what is thought to be cached that costs nothing.
    pub reuse: f64,
    /// Prefills that were seen.
    pub readings: u32,
}

impl Default for Learner {
    fn default() -> Self {
        Self { prefill: Fit::default(), decode: Fit::default(), company: [1.0; 4], reuse: 1.0, readings: 0 }
    }
}

impl Learner {
    /// As plain numbers.
    #[must_use]
    pub fn kept(&self) -> Kept {
        let Self { prefill, decode, company, reuse, readings } = *self;
        Kept { prefill: prefill.sums(), decode: decode.sums(), company, reuse, readings }
    }

    /// From plain numbers; `None` if one of them is none that this could have come to.
    #[must_use]
    pub fn of(kept: Kept) -> Option<Self> {
        let Kept { prefill, decode, company, reuse, readings } = kept;
        let sound = |number: &f64| number.is_finite() && *number >= 0.0;
        let sums = prefill.iter().chain(&decode).all(sound);
        let parts =
            company.iter().all(|factor| sound(factor) && *factor > 0.0) && (0.0..=1.0).contains(&reuse);
        let (prefill, decode) = (Fit::of(prefill), Fit::of(decode));
        (sums && parts).then_some(Self { prefill, decode, company, reuse, readings })
    }

    /// Nothing was seen yet.
    #[must_use]
    pub fn is_new(&self) -> bool {
        *self == Self::default()
    }

    /// The speed by all that is known, `start` being what is published, for one more stream where `running` run.
    #[must_use]
    pub fn speed(&self, start: Speed, running: u64) -> Speed {
        let (prefill_a, prefill_b) = self.prefill.solve(prefill_prior(start));
        let (token, deeper) = self.decode.solve(decode_prior(start));
        let factor = company(running + 1).map_or(1.0, |at| self.company[at]);
        Speed {
            prefill_a,
            prefill_b,
            first_token: start.first_token,
            decode: 1.0 / (token * factor).max(1e-6),
            deeper: deeper * factor,
        }
    }

    /// The part of `believed` tokens that its cache really saves.
    #[must_use]
    pub fn saved(&self, believed: u64) -> u64 {
        (believed as f64 * self.reuse) as u64
    }

    /// Takes how long a prompt's reading took.
    pub fn read(&mut self, start: Speed, seen: Reading) {
        const WORTH: u64 = 256;
        let now = self.speed(start, 0);
        let seconds = seen.seconds - start.first_token;
        match (seen.cached, seen.believed) {
            (None, 0) => self.fit_prefill(now, 0, seen.prompt, seconds, true),
            (None, believed) => {
                // Silent about its cache: the time tells what the cache saved.
                let saves = now.prefill(0, seen.prompt) - now.prefill(believed, seen.prompt);
                if believed >= WORTH && saves > 0.1 {
                    let reuse = ((now.prefill(0, seen.prompt) - seconds) / saves).clamp(0.0, 1.0);
                    self.reuse += STEP * (reuse - self.reuse);
                }
            }
            (Some(cached), believed) => {
                if believed >= WORTH {
                    let reuse = (cached as f64 / believed as f64).min(1.0);
                    self.reuse += STEP * (reuse - self.reuse);
                }
                self.fit_prefill(now, cached.min(seen.prompt), seen.prompt, seconds, false);
            }
        }
    }

    fn fit_prefill(&mut self, now: Speed, cached: u64, prompt: u64, seconds: f64, silent: bool) {
        const SHORTEST: f64 = 0.05;
        let expected = now.prefill(cached, prompt);
        if expected < SHORTEST || seconds <= 0.0 {
            return;
        }
        // One that does not tell what it had cached may have had it from another conversation.
        if silent && self.readings >= 3 && seconds < expected / 2.0 {
            return;
        }
        self.readings = self.readings.saturating_add(1);
        let seconds = seconds.clamp(expected / ODD, expected * ODD);
        self.prefill.add(prefill_terms(cached, prompt), seconds, expected);
    }

    /// Takes how long an answer's writing took.
    pub fn wrote(&mut self, start: Speed, seen: Writing) {
        const WORTH: u64 = 32;
        if seen.tokens < WORTH || seen.seconds <= 0.0 {
            return;
        }
        let depth = seen.prompt as f64 + seen.tokens as f64 / 2.0;
        let each = seen.seconds / seen.tokens as f64;
        let alone = self.speed(start, 0);
        let expected = 1.0 / alone.decode + alone.deeper * depth;
        let each = each.clamp(expected / ODD, expected * ODD * seen.running.max(1) as f64);
        match company(seen.running) {
            None => self.decode.add([1.0, depth], each, expected),
            Some(at) => self.company[at] += STEP * (each / expected - self.company[at]),
        }
    }
}

fn company(running: u64) -> Option<usize> {
    match running {
        0 | 1 => None,
        2 => Some(0),
        3..=4 => Some(1),
        5..=8 => Some(2),
        _ => Some(3),
    }
}

fn prefill_terms(cached: u64, prompt: u64) -> [f64; 2] {
    let (cached, prompt) = (cached as f64, prompt as f64);
    [prompt - cached, prompt * prompt - cached * cached]
}

/// What is published, at a short and a long prompt.
fn prefill_prior(start: Speed) -> Fit {
    let mut prior = Fit::default();
    for prompt in [4000, 64_000] {
        let seconds = start.prefill(0, prompt);
        prior.add(prefill_terms(0, prompt), seconds, seconds);
    }
    prior
}

fn decode_prior(start: Speed) -> Fit {
    let mut prior = Fit::default();
    for depth in [1000.0, 60_000.0] {
        let each = 1.0 / start.decode.max(0.1) + start.deeper * depth;
        prior.add([1.0, depth], each, each);
    }
    prior
}

/// A fit of `y = p·x₁ + q·x₂` with `p, q ≥ 0`, to errors relative to what was expected: the sums of its normal equations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Fit {
    x11: f64,
    x12: f64,
    x22: f64,
    x1y: f64,
    x2y: f64,
}

impl Fit {
    fn sums(self) -> [f64; 5] {
        [self.x11, self.x12, self.x22, self.x1y, self.x2y]
    }

    fn of([x11, x12, x22, x1y, x2y]: [f64; 5]) -> Self {
        Self { x11, x12, x22, x1y, x2y }
    }

    fn add(&mut self, [x1, x2]: [f64; 2], y: f64, expected: f64) {
        let (x1, x2, y) = (x1 / expected, x2 / expected, y / expected);
        let faded = |sum: f64, more: f64| sum * FADES + more;
        *self = Self {
            x11: faded(self.x11, x1 * x1),
            x12: faded(self.x12, x1 * x2),
            x22: faded(self.x22, x2 * x2),
            x1y: faded(self.x1y, x1 * y),
            x2y: faded(self.x2y, x2 * y),
        };
    }

    /// `p` and `q` of these observations and the prior's together.
    fn solve(&self, prior: Self) -> (f64, f64) {
        // Two points of what is published, and together one observation.
        let with = |own: f64, prior: f64| own + prior / 2.0;
        let (x11, x12) = (with(self.x11, prior.x11), with(self.x12, prior.x12));
        let x22 = with(self.x22, prior.x22);
        let (x1y, x2y) = (with(self.x1y, prior.x1y), with(self.x2y, prior.x2y));
        let determinant = x11 * x22 - x12 * x12;
        let (p, q) = ((x1y * x22 - x2y * x12) / determinant, (x2y * x11 - x1y * x12) / determinant);
        if p >= 0.0 && q >= 0.0 {
            return (p, q);
        }
        // The best without one of them.
        if q < 0.0 || p.is_nan() { (x1y / x11, 0.0) } else { (0.0, x2y / x22) }
    }
}
