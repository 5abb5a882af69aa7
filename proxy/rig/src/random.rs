//! Chance that repeats: a small generator, and a number for a text.
//!
//! Everything in the rig that is left to chance is drawn here, from a seed and from what it concerns, so that the same
//! seed gives the same bytes and the same deaths on every machine. It must never read a clock or the system's own
//! randomness.

/// A small generator of numbers (splitmix64): the same seed, the same numbers, on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One of several independent generators of the same seed, for one purpose.
    pub(crate) fn of(seed: u64, purpose: &str) -> Self {
        Self(seed ^ hash(purpose.as_bytes()))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to, not with, `end`; 0 for an `end` of 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let drawn = self.next().checked_rem(end as u64).unwrap_or_default();
        usize::try_from(drawn).unwrap_or_default()
    }

    /// A number from 0 up to, not with, 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Whether something of this probability happens.
    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a: a number for a text, the same on every machine.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    hash_on(FNV_START, bytes)
}

/// The same, begun with another number: a chain of hashes.
pub(crate) fn hash_on(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_are_independent_and_repeat() {
        let drawn = |seed, purpose| Random::of(seed, purpose).next();
        assert_eq!(drawn(1, "death"), drawn(1, "death"));
        assert_ne!(drawn(1, "death"), drawn(1, "bursts"));
        assert_ne!(drawn(1, "death"), drawn(2, "death"));
    }

    #[test]
    fn a_probability_comes_true_about_as_often_as_it_says() {
        let mut random = Random::new(7);
        let often = (0..10_000).filter(|_| random.happens(0.65)).count();
        assert!((6_350..6_650).contains(&often), "{often}");
        assert!(!random.happens(0.0) && random.happens(1.0));
        assert_eq!(random.below(0), 0);
    }
}
