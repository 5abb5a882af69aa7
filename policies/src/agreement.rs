//! Whether our counts of prompts are a backend's own, and what to make of it if they are not.
//!
//! Why: a template that the operator changed, another version of an engine, an option of the server: each makes a count that is exact by
//! the files wrong at the backend, always in the same direction. Its answers tell their own count, so a difference that stays is learned,
//! and until somebody explains it the size is no longer called exact. One odd answer must change nothing.

use std::collections::VecDeque;

use crate::facts::PromptSize;

/// So many counts are remembered.
const REMEMBERED: usize = 8;
/// So many counts in a row differ the same way before that is a rule.
const RULE: usize = 3;

/// What a backend said of our latest counts.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    /// Ours and theirs, the newest last.
    latest: VecDeque<(u64, u64)>,
}

/// A difference that stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Correction {
    /// So many tokens more, or fewer, whatever the prompt.
    Constant(i64),
    /// By this share of the prompt: 0.02 is two in a hundred more.
    Share(f64),
}

impl Agreement {
    /// Takes an exact count of ours and the backend's of the same prompt, both in tokens.
    pub fn observe(&mut self, ours: u64, theirs: u64) {
        if self.latest.len() == REMEMBERED {
            self.latest.pop_front();
        }
        self.latest.push_back((ours, theirs));
    }

    /// The difference that stays: all of the latest counts differ, in one direction. One that agrees ends it.
    #[must_use]
    pub fn correction(&self) -> Option<Correction> {
        let agreed = self.latest.iter().rposition(|(ours, theirs)| ours == theirs).map_or(0, |at| at + 1);
        let differing: Vec<(u64, u64)> = self.latest.iter().skip(agreed).copied().collect();
        let above = differing.iter().filter(|(ours, theirs)| theirs > ours).count();
        if differing.len() < RULE || (above != 0 && above != differing.len()) {
            return None;
        }
        let by = |(ours, theirs): &(u64, u64)| theirs.cast_signed().wrapping_sub(ours.cast_signed());
        let first = differing.first().map(by)?;
        if differing.iter().all(|pair| by(pair) == first) {
            return Some(Correction::Constant(first));
        }
        // The largest share: a margin that is too wide costs a detour, one that is too narrow a backend.
        let shares = differing.iter().map(|pair| by(pair) as f64 / (pair.0.max(1)) as f64);
        shares.max_by(|one, other| one.abs().total_cmp(&other.abs())).map(Correction::Share)
    }
}

impl Correction {
    /// The difference for a prompt that we count as `tokens`.
    #[must_use]
    pub fn of(self, tokens: u64) -> i64 {
        match self {
            Self::Constant(by) => by,
            Self::Share(share) => (tokens as f64 * share).round() as i64,
        }
    }

    /// The size with the difference in it, and as much again as margin: it is known, but not why.
    #[must_use]
    pub fn apply(self, size: PromptSize) -> PromptSize {
        let low = size.low().saturating_add_signed(self.of(size.low()));
        let by = self.of(size.high());
        let high = size.high().saturating_add_signed(by).saturating_add(by.unsigned_abs());
        PromptSize::Between { low: low.min(high), high }
    }
}

#[cfg(test)]
mod tests {
    use super::{Agreement, Correction};
    use crate::facts::PromptSize;

    fn after(pairs: &[(u64, u64)]) -> Option<Correction> {
        let mut agreement = Agreement::default();
        pairs.iter().for_each(|(ours, theirs)| agreement.observe(*ours, *theirs));
        agreement.correction()
    }

    #[test]
    fn a_difference_becomes_a_rule_when_it_stays() {
        assert_eq!(after(&[(100, 107), (200, 207)]), None);
        assert_eq!(after(&[(100, 107), (200, 207), (900, 907)]), Some(Correction::Constant(7)));
        assert_eq!(after(&[(100, 99), (200, 199), (900, 899)]), Some(Correction::Constant(-1)));
    }

    #[test]
    fn a_count_that_agrees_ends_it_and_mixed_ones_are_no_rule() {
        assert_eq!(after(&[(100, 107), (200, 207), (900, 907), (50, 50)]), None);
        assert_eq!(after(&[(100, 107), (200, 193), (900, 907)]), None);
        assert_eq!(after(&[(1, 1), (100, 107), (200, 207), (900, 907)]), Some(Correction::Constant(7)));
    }

    #[test]
    fn a_difference_that_grows_with_the_prompt_is_a_share_of_it() {
        let correction = after(&[(100, 102), (1000, 1025), (500, 510)]).unwrap();
        assert_eq!(correction, Correction::Share(0.025));
        assert_eq!(correction.of(10_000), 250);
    }

    #[test]
    fn a_corrected_size_is_planned_with_and_not_called_exact() {
        let more = Correction::Constant(7).apply(PromptSize::Exact(100));
        assert_eq!(more, PromptSize::Between { low: 107, high: 114 });
        assert_eq!(more.expected(), 107);
        let fewer = Correction::Constant(-10).apply(PromptSize::Exact(100));
        assert_eq!(fewer, PromptSize::Between { low: 90, high: 100 });
        assert_eq!(
            Correction::Share(-1.0).apply(PromptSize::Exact(5)),
            PromptSize::Between { low: 0, high: 5 }
        );
    }

    #[test]
    fn only_the_latest_counts_are_remembered() {
        let mut pairs = vec![(100, 93); 3];
        pairs.extend([(100, 107); 8]);
        assert_eq!(after(&pairs), Some(Correction::Constant(7)));
    }
}
