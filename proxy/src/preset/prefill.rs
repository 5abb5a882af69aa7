//! How long a prompt takes to read: `T(n) = a·n + b·n²` seconds, fitted to published rates.
//!
//! A rate at a length is the average over that prompt. Two points are met exactly, more by least squares over the times, so
//! that long prompts, whose time matters, weigh most. One point says nothing of how it bends: `b` is 0 then, and the times
//! of much longer prompts come out too short.

/// Seconds of prefill as a function of the prompt's tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prefill {
    /// Seconds a token.
    pub a: f64,
    /// Seconds a token squared.
    pub b: f64,
}

impl Prefill {
    /// Seconds for a prompt of so many tokens.
    #[must_use]
    pub fn seconds(self, tokens: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
        let n = tokens as f64;
        (self.a + self.b * n) * n
    }

    /// The curve through points of tokens and tokens a second; `None` without any.
    pub(super) fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let times: Vec<_> = points
            .iter()
            .filter(|(n, rate)| *n > 0.0 && *rate > 0.0)
            .map(|&(n, rate)| (n, n / rate))
            .collect();
        let sum = |term: fn(f64, f64) -> f64| times.iter().map(|&(n, t)| term(n, t)).sum::<f64>();
        let (nn, nt) = (sum(|n, _| n * n), sum(|n, t| n * t));
        if times.is_empty() {
            return None;
        }
        let straight = Self { a: nt / nn, b: 0.0 };
        let (nnn, nnnn, nnt) = (sum(|n, _| n.powi(3)), sum(|n, _| n.powi(4)), sum(|n, t| n * n * t));
        let determinant = nn * nnnn - nnn * nnn;
        // One point, or the same one twice.
        if determinant <= nn * nnnn * 1e-9 {
            return Some(straight);
        }
        let bent = Self { a: (nt * nnnn - nnt * nnn) / determinant, b: (nn * nnt - nnn * nt) / determinant };
        Some(if bent.a > 0.0 && bent.b >= 0.0 { bent } else { straight })
    }
}

#[cfg(test)]
mod tests {
    use super::super::get;
    use super::*;

    #[test]
    fn the_fit_meets_the_published_curves_within_three_percent() {
        for (slug, a, b, lengths) in [
            ("vllm/dual", 7.05e-4, 2.11e-9, [10_000, 90_000, 237_000]),
            ("vllm/qwen38-27b-dual-max", 8.33e-4, 2.55e-9, [10_000, 50_000, 90_000]),
            ("vllm/qwen38-27b-dual-fast", 5.38e-4, 2.40e-9, [10_000, 50_000, 90_000]),
            ("vllm/qwen-27b-multi-fast", 7.67e-4, 9.3e-10, [10_000, 50_000, 90_000]),
            ("llamacpp/default", 9.46e-4, 2.15e-9, [10_000, 30_000, 183_000]),
            ("vllm/qwen-agentworld-35b-a3b-dual-awq-int4", 1.87e-4, 8.6e-10, [10_000, 50_000, 90_000]),
            ("vllm/nemotron-75b-dual-w4a16", 3.06e-4, 3.22e-9, [10_000, 50_000, 90_000]),
            ("llamacpp-club3090/deepseek-flash-dual-q8-moecache", 3.03e-3, 8.9e-9, [10_000, 50_000, 90_000]),
        ] {
            let fitted = get(slug).unwrap().prefill.unwrap();
            for n in lengths {
                let (ours, published) = (fitted.seconds(n), Prefill { a, b }.seconds(n));
                assert!((ours / published - 1.0).abs() < 0.03, "{slug} {n}: {ours:.1} s, {published:.1} s");
            }
        }
    }

    #[test]
    fn two_points_are_met_exactly_and_one_gives_a_straight_line() {
        let two = Prefill::fit(&[(10_000.0, 2000.0), (90_000.0, 1000.0)]).unwrap();
        assert!((two.seconds(10_000) - 5.0).abs() < 1e-9 && (two.seconds(90_000) - 90.0).abs() < 1e-9);
        assert_eq!(Prefill::fit(&[(1000.0, 500.0)]), Some(Prefill { a: 0.002, b: 0.0 }));
        assert_eq!(Prefill::fit(&[]), None);
    }

    #[test]
    fn rates_that_rise_with_length_never_make_long_prompts_free() {
        let fitted = Prefill::fit(&[(1000.0, 500.0), (100_000.0, 1000.0)]).unwrap();
        assert!(fitted.a > 0.0 && fitted.b == 0.0, "{fitted:?}");
    }
}
