//! Output tokens: what the client asked for against what the window leaves.
//!
//! Agents send 32,000 or 65,536 whatever the window is. Newer vLLM cuts silently, older vLLM refuses, and a `max_tokens`
//! above the window is refused by all: so the proxy cuts, and says so. It must never raise a number here, and never touch
//! one that fits.

use crate::facts::PromptSize;

/// The output limit to send instead of the asked one, or `None` if the asked one fits (or none was asked).
///
/// `margin` tokens stay free between prompt, output and window. At least one token is always left to ask for.
#[must_use]
pub fn clamp(asked: Option<u64>, prompt: PromptSize, window: Option<u64>, margin: u64) -> Option<u64> {
    let (asked, window) = (asked?, window?);
    if prompt.high().saturating_add(asked) <= window {
        return None;
    }
    let room = window.saturating_sub(prompt.expected()).saturating_sub(margin).max(1);
    (asked > room).then_some(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_fits_is_left_alone() {
        assert_eq!(clamp(Some(4096), PromptSize::Exact(1000), Some(8192), 64), None);
        assert_eq!(clamp(None, PromptSize::Exact(1000), Some(1024), 64), None);
        assert_eq!(clamp(Some(4096), PromptSize::Exact(1000), None, 64), None);
    }

    #[test]
    fn an_output_that_does_not_fit_is_cut_to_what_is_left() {
        assert_eq!(clamp(Some(65_536), PromptSize::Exact(30_000), Some(32_768), 64), Some(2704));
        assert_eq!(clamp(Some(100), PromptSize::Exact(32_760), Some(32_768), 64), Some(1));
    }

    #[test]
    fn an_uncertain_prompt_is_planned_with_its_expected_size() {
        let prompt = PromptSize::Between { low: 100, high: 28_000 };
        assert_eq!(clamp(Some(1000), prompt, Some(16_384), 64), None);
        assert_eq!(clamp(Some(32_000), prompt, Some(16_384), 64), Some(6320));
    }
}
